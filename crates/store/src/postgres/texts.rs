//! PostgreSQL stores no text with the character zero. It is written as two other characters, the first of which is not used in
//! meaningful texts, and is restored when read. Within JSON it is escaped anyway.

use std::borrow::Cow;

/// The first character of an escape sequence.
const ESCAPE: char = '\u{10ffff}';
/// The first byte of the escape character: few texts contain it.
const ESCAPE_BYTE: u8 = 0xf4;
/// The escape sequence of the character zero.
const ZERO: &str = "\u{10ffff}0";
/// The escape sequence of the escape character itself.
const ITSELF: &str = "\u{10ffff}1";

/// A text as it is stored.
pub fn kept(text: String) -> String {
    if text.as_bytes().contains(&0) || text.as_bytes().contains(&ESCAPE_BYTE) {
        text.replace(ESCAPE, ITSELF).replace('\0', ZERO)
    } else {
        text
    }
}

/// A stored text as it was before.
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.as_bytes().contains(&ESCAPE_BYTE) && text.contains(ESCAPE) {
        Cow::Owned(text.replace(ZERO, "\0").replace(ITSELF, "\u{10ffff}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A word as it is compared with words within JSON: the database cannot return the character zero from JSON.
pub fn within_json(word: String) -> String {
    word.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_text_is_read_as_it_was_written() {
        for text in
            ["", "plain", "a\0b", "\u{10ffff}", "\u{10ffff}0", "\0\u{10ffff}1\0", "\u{10fffe}", "\u{10ffff}\u{10ffff}0"]
        {
            let kept = kept(text.to_owned());
            assert!(!kept.contains('\0'));
            assert_eq!(shown(&kept), text);
        }
    }
}
