//! The options of one dispatch of a sub-agent. They are recorded with the dispatch, so that a restart and a replay use what was
//! recorded, although the configuration may have changed since.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::effort::Effort;

/// What a dispatch says about its agent beyond mission and skills.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DispatchOptions {
    /// A short title for people; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// How long the agent may work, in milliseconds, without its waits for permits and for persons. Absent means the time that
    /// follows from its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The backends that may run its rounds, the preferred one first. Empty means those of the turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<String>,
    /// How hard its model should think. Absent means as the backend is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// The JSON Schema that its report must fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The name by which the missions of other agents of the turn contain its report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_key: Option<String>,
}

impl DispatchOptions {
    /// The longest label, in characters.
    pub const LABEL_CHARS_MAX: usize = 60;
    /// The longest schema, in bytes of JSON: it is a part of the agent's prompt.
    pub const SCHEMA_BYTES_MAX: usize = 4 * 1024;
    /// The longest key, in characters.
    pub const KEY_CHARS_MAX: usize = 32;

    /// Whether the dispatch says nothing of this.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a text may be an output key: letters, digits and `_`, and no digit first.
    #[must_use]
    pub fn is_key(text: &str) -> bool {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        (1..=Self::KEY_CHARS_MAX).contains(&text.len())
            && text.bytes().all(is_word)
            && !text.starts_with(|c: char| c.is_ascii_digit())
    }
}

/// The keys that a text names as `{key}`, in their order.
pub fn keys_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(key, _)| key)
        .filter(|key| DispatchOptions::is_key(key))
}

/// A text with each `{key}` replaced for which `value` has a value. A replaced value is not searched for keys again.
#[must_use]
pub fn fill_in(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}').and_then(|(key, rest)| Some((value(key)?, rest))) {
            Some((value, rest)) => filled.extend([value.as_str(), rest]),
            None => filled.extend(["{", part]),
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_in_replaces_known_keys_once_and_leaves_other_braces() {
        let text = r#"Compare {a} with {b}, as {"x": {a}} and {unknown} {"#;
        assert_eq!(keys_in(text).collect::<Vec<_>>(), ["a", "b", "a", "unknown"]);
        let value = |key: &str| match key {
            "a" => Some("{b}".to_owned()),
            "b" => Some("B".to_owned()),
            _ => None,
        };
        assert_eq!(fill_in(text, value), r#"Compare {b} with B, as {"x": {b}} and {unknown} {"#);
    }

    #[test]
    fn output_key_is_a_word() {
        assert!(["a", "_x", "report_2"].into_iter().all(DispatchOptions::is_key));
        assert!(["", "2a", "a b", "a.b", "ü", &"k".repeat(33)].into_iter().all(|key| !DispatchOptions::is_key(key)));
    }
}
