//! Truncates long texts with a notice, so that models and people see that a part is missing.

use std::borrow::Cow;

use crate::outcome::floor_char_boundary;

/// Space reserved for the notice, in bytes.
const NOTICE_BYTES: usize = 64;

/// Truncates a text to `bytes_max` bytes (at least the length of the notice), at a character boundary and with a notice.
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
    fn clip_adds_notice_and_is_idempotent() {
        let text = "ü".repeat(1_000);
        let cut = clip(&text, 500).into_owned();
        assert!(cut.len() <= 500 && cut.ends_with("of 2000 bytes]"), "{cut}");
        assert_eq!(clip(&cut, 500), cut.as_str());
        assert_eq!(clip(&text, 2_000), text.as_str());
    }
}
