//! Placeholders for values of the state in texts: `{user:name}`, and `{user:name?}` if the value may be missing. `{{user:name}}`
//! stands for the text `{user:name}`. Braces with anything else are text.

use std::{collections::BTreeSet, ops::Range};

use serde::{Deserialize, Serialize};

use super::{StateKey, StateScope};
use crate::context::Frames;

/// A value as it is filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateText {
    /// The text.
    pub text: String,
    /// The origins of what its author had read. With one of them the text is framed as data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origin: Vec<String>,
}

/// A placeholder in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// Where it stands, with its braces.
    pub range: Range<usize>,
    /// The key.
    pub key: StateKey,
    /// Whether a missing value is an empty text.
    pub is_optional: bool,
    /// The braces are doubled, so it is text.
    pub is_escaped: bool,
}

/// Keys without values that a text needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not set: {}. Set it with `annie state set KEY VALUE`, or write {{KEY?}} if it may be missing", .0.join(", "))]
pub struct Unset(pub Vec<String>);

/// The placeholders of a text, escaped ones included, in their order. A placeholder has an explicit prefix.
#[must_use]
pub fn placeholders(text: &str) -> Vec<Placeholder> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|at| from + at) {
        from = open + 1;
        let Some(close) = text[from..].find(['{', '}']).map(|at| from + at).filter(|at| text[*at..].starts_with('}'))
        else {
            continue;
        };
        let inside = &text[open + 1..close];
        let (name, is_optional) = inside.strip_suffix('?').map_or((inside, false), |name| (name, true));
        let Some(key) = StateKey::parse(name).ok().filter(|_| name.contains(':') && name.trim() == name) else {
            continue;
        };
        let is_escaped = open > 0 && text[..open].ends_with('{') && text[close + 1..].starts_with('}');
        let range = if is_escaped { open - 1..close + 2 } else { open..close + 1 };
        from = range.end;
        found.push(Placeholder { range, key, is_optional, is_escaped });
    }
    found
}

/// Fills the placeholders of a text. A value is never expanded itself. A value that comes from text of others is framed, so that no
/// model takes it for an instruction.
///
/// # Errors
/// The keys that are needed and not set.
pub fn fill(text: &str, frames: &Frames, value_of: &dyn Fn(&StateKey) -> Option<StateText>) -> Result<String, Unset> {
    let mut filled = String::with_capacity(text.len());
    let mut unset = BTreeSet::new();
    let mut from = 0;
    for Placeholder { range, key, is_optional, is_escaped } in placeholders(text) {
        filled.push_str(&text[from..range.start]);
        from = range.end;
        if is_escaped {
            filled.push_str(&text[range.start + 1..range.end - 1]);
            continue;
        }
        match value_of(&key) {
            Some(value) if value.origin.is_empty() => filled.push_str(&value.text),
            Some(value) => {
                let (name, origin) = (key.to_string(), value.origin.join(", "));
                filled.push_str(&frames.wrap("context", &[("state", &name), ("origin", &origin)], &value.text));
            }
            None if is_optional => {}
            None => drop(unset.insert(key.to_string())),
        }
    }
    filled.push_str(&text[from..]);
    if unset.is_empty() { Ok(filled) } else { Err(Unset(unset.into_iter().collect())) }
}

impl Placeholder {
    /// Whether its value is stored, and not that of a turn.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        !self.is_escaped && self.key.scope != StateScope::Temp
    }
}
