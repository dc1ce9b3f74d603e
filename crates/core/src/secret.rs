//! A secret text: an API key, a header with a token. Formatting and serialisation never show it.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

const MASK: &str = "[secret]";

/// A text that only [`Secret::expose`] returns.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Shorter secrets are not masked in messages, because they would match inside ordinary words.
    const SCRUB_LEN_BYTES_MIN: usize = 4;

    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Masks every occurrence of this secret in a text: servers tend to repeat a wrong key in their answer.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        if self.0.len() < Self::SCRUB_LEN_BYTES_MIN { text.to_owned() } else { text.replace(&self.0, MASK) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    /// Serialises the mask, so that a displayed configuration does not leak the secret.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_masked_in_every_format() {
        let secret: Secret = serde_json::from_str("\"sk-123456\"").unwrap();
        assert_eq!(secret.expose(), "sk-123456");
        for shown in [format!("{secret}"), format!("{secret:?}"), serde_json::to_string(&secret).unwrap()] {
            assert!(!shown.contains("sk-123456"), "{shown}");
        }
        assert_eq!(secret.scrub("wrong key sk-123456!"), "wrong key [secret]!");
        assert_eq!(Secret::new("a").scrub("banana"), "banana");
    }
}
