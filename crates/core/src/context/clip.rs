//! Cutting what would not fit: a model, and a person, must see that something is missing.

use std::borrow::Cow;

use crate::outcome::floor_char_boundary;

/// Room for the notice.
const NOTICE_BYTES: usize = 64;

/// A text of at most `bytes_max` bytes (and never less than the notice): cut at a character, and saying so.
#[must_use]
pub fn clip(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let shown = floor_char_boundary(text, bytes_max.saturating_sub(NOTICE_BYTES));
    format!("{}\n[cut: the first {shown} of {} bytes]", &text[..shown], text.len()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_says_so_and_is_not_cut_again() {
        let text = "ü".repeat(1_000);
        let cut = clip(&text, 500).into_owned();
        assert!(cut.len() <= 500 && cut.ends_with("of 2000 bytes]"), "{cut}");
        assert_eq!(clip(&cut, 500), cut.as_str());
        assert_eq!(clip(&text, 2_000), text.as_str());
    }
}
