//! Decodes what a terminal sends into keys. A bracketed paste is one key, whatever it contains.

/// The longest paste, in bytes; the rest of a longer one is left out.
const PASTE_BYTES_MAX: usize = 1024 * 1024;
/// The longest escape sequence that is waited for, in bytes.
const SEQUENCE_BYTES_MAX: usize = 32;
const PASTE_END: &[u8] = b"\x1b[201~";

/// A key, or a paste.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// Text to insert.
    Text(String),
    /// Enter.
    Enter,
    /// A control key: the letter, in lower case.
    Control(char),
    /// Alt with a letter.
    Alt(char),
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Tab.
    Tab,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Control with the left arrow, or Alt with it.
    WordLeft,
    /// Control with the right arrow, or Alt with it.
    WordRight,
}

/// Bytes that are not yet a key.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
    /// The text of a paste whose end has not arrived.
    paste: Option<Vec<u8>>,
}

impl Decoder {
    /// Decodes bytes; what is incomplete waits for the next call.
    pub fn keys(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for byte in bytes {
            self.pending.push(*byte);
            if let Some(key) = self.decoded() {
                keys.push(key);
            }
        }
        keys
    }

    /// Whether an escape sequence is incomplete.
    #[must_use]
    pub fn is_within_sequence(&self) -> bool {
        self.paste.is_none() && self.pending.first() == Some(&0x1b)
    }

    /// Forgets an incomplete escape sequence: nothing followed, so that it was the key Escape.
    pub fn is_silent(&mut self) {
        if self.is_within_sequence() {
            self.pending.clear();
        }
    }

    fn decoded(&mut self) -> Option<Key> {
        if let Some(paste) = &mut self.paste {
            let is_prefix = PASTE_END.starts_with(&self.pending);
            if is_prefix && self.pending.len() < PASTE_END.len() {
                return None;
            }
            if !is_prefix {
                // The last byte may begin the end of the paste.
                let last = (self.pending.last() == Some(&0x1b)).then(|| self.pending.pop()).flatten();
                let left = PASTE_BYTES_MAX.saturating_sub(paste.len());
                paste.extend(self.pending.drain(..).take(left));
                self.pending.extend(last);
                return None;
            }
            self.pending.clear();
            let text = String::from_utf8_lossy(paste).replace("\r\n", "\n").replace('\r', "\n");
            self.paste = None;
            return Some(Key::Text(text));
        }
        let first = *self.pending.first()?;
        let key = match first {
            0x1b => return self.sequence(),
            b'\r' | b'\n' => Some(Key::Enter),
            b'\t' => Some(Key::Tab),
            0x7f | 0x08 => Some(Key::Backspace),
            byte @ 1..=26 => Some(Key::Control(char::from(byte - 1 + b'a'))),
            0..0x20 => None,
            _ => return self.character(),
        };
        self.pending.clear();
        key
    }

    /// A character of UTF-8. What is not UTF-8 is left out.
    fn character(&mut self) -> Option<Key> {
        match std::str::from_utf8(&self.pending) {
            Ok(text) => {
                let key = Key::Text(text.to_owned());
                self.pending.clear();
                Some(key)
            }
            Err(error) => {
                if error.error_len().is_some() {
                    self.pending.clear();
                }
                None
            }
        }
    }

    fn sequence(&mut self) -> Option<Key> {
        let (introducer, last) = (*self.pending.get(1)?, *self.pending.last()?);
        if !matches!(introducer, b'[' | b'O') {
            self.pending.clear();
            return match last {
                0x7f | 0x08 => Some(Key::Control('w')),
                byte if byte.is_ascii_alphabetic() => Some(Key::Alt(char::from(byte.to_ascii_lowercase()))),
                b'\r' | b'\n' => Some(Key::Text("\n".to_owned())),
                _ => None,
            };
        }
        let is_end = self.pending.len() > 2 && (0x40..=0x7e).contains(&last);
        if !is_end {
            if self.pending.len() > SEQUENCE_BYTES_MAX {
                self.pending.clear();
            }
            return None;
        }
        let sequence = std::mem::take(&mut self.pending);
        let parameters = sequence.get(2..sequence.len() - 1).unwrap_or_default();
        let is_with_word = matches!(parameters, b"1;5" | b"1;3" | b"5");
        match (last, parameters) {
            (b'A', _) => Some(Key::Up),
            (b'B', _) => Some(Key::Down),
            (b'C', _) if is_with_word => Some(Key::WordRight),
            (b'D', _) if is_with_word => Some(Key::WordLeft),
            (b'C', _) => Some(Key::Right),
            (b'D', _) => Some(Key::Left),
            (b'H', _) | (b'~', b"1" | b"7") => Some(Key::Home),
            (b'F', _) | (b'~', b"4" | b"8") => Some(Key::End),
            (b'~', b"3") => Some(Key::Delete),
            (b'~', b"200") => {
                self.paste = Some(Vec::new());
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Key {
        Key::Text(text.to_owned())
    }

    #[test]
    fn sequences_are_keys_however_they_are_split() {
        let bytes = b"\x1b[D\x1b[1;5C\x1bOH\x1b[3~\x1b[A\x01\x1bb\x7f\xc3\xa9\r\x1b[99~\x1b[5u";
        let wanted = [
            Key::Left,
            Key::WordRight,
            Key::Home,
            Key::Delete,
            Key::Up,
            Key::Control('a'),
            Key::Alt('b'),
            Key::Backspace,
            text("é"),
            Key::Enter,
        ];
        assert_eq!(Decoder::default().keys(bytes), wanted);
        let mut decoder = Decoder::default();
        let keys: Vec<Key> = bytes.iter().flat_map(|byte| decoder.keys(&[*byte])).collect();
        assert_eq!(keys, wanted);
    }

    #[test]
    fn bracketed_paste_is_one_text_with_its_lines() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.keys(b"\x1b[200~one\rtwo\x1b[A\x1b\r\n\x1b[20"), []);
        assert_eq!(decoder.keys(b"1~x"), [text("one\ntwo\u{1b}[A\u{1b}\n"), text("x")]);
    }

    #[test]
    fn bad_bytes_and_a_lone_escape_are_left_out() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.keys(b"\xff\x00a\x1b"), [text("a")]);
        decoder.is_silent();
        assert_eq!(decoder.keys(b"[b"), [text("["), text("b")]);
        let endless = [b"\x1b[".as_slice(), &[b'1'; 100]].concat();
        assert!(decoder.keys(&endless).iter().all(|key| *key == text("1")));
    }
}
