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

/// Whether a text ends with the notice of [`clip`], so that a part of it is missing.
#[must_use]
pub fn is_clipped(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let notice =
        text.trim_end().rsplit_once("\n[cut: the first ").and_then(|(_, notice)| notice.strip_suffix(" bytes]"));
    notice.and_then(|notice| notice.split_once(" of ")).is_some_and(|(shown, of)| is_number(shown) && is_number(of))
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
        assert!(is_clipped(&cut) && is_clipped(&format!("{cut}\n")) && !is_clipped(&text));
        assert!(!is_clipped(&format!("[{cut:?}]")) && !is_clipped("x\n[cut: the first half of 10 bytes]"));
    }
}
