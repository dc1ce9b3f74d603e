//! PostgreSQL keeps no text with the character zero. It is written as two other characters, of which the first stands in no
//! text that means something, and is read back as it was. Within JSON it is escaped anyway.

use std::borrow::Cow;

/// Says that the next character is not what it seems.
const ESCAPE: char = '\u{10ffff}';
/// The first byte of the escape: few texts have it.
const ESCAPE_BYTE: u8 = 0xf4;
/// Behind the escape: the character zero.
const ZERO: &str = "\u{10ffff}0";
/// Behind the escape: itself.
const ITSELF: &str = "\u{10ffff}1";

/// A text as it is kept.
pub fn kept(text: String) -> String {
    if text.as_bytes().contains(&0) || text.as_bytes().contains(&ESCAPE_BYTE) {
        text.replace(ESCAPE, ITSELF).replace('\0', ZERO)
    } else {
        text
    }
}

/// A kept text as it was.
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.as_bytes().contains(&ESCAPE_BYTE) && text.contains(ESCAPE) {
        Cow::Owned(text.replace(ZERO, "\0").replace(ITSELF, "\u{10ffff}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A word as it is compared with those within JSON: the database cannot give the character zero out of it.
pub fn within_json(word: String) -> String {
    word.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_as_it_was() {
        for text in
            ["", "plain", "a\0b", "\u{10ffff}", "\u{10ffff}0", "\0\u{10ffff}1\0", "\u{10fffe}", "\u{10ffff}\u{10ffff}0"]
        {
            let kept = kept(text.to_owned());
            assert!(!kept.contains('\0'));
            assert_eq!(shown(&kept), text);
        }
    }
}
