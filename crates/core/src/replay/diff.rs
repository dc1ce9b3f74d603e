//! The differences between two JSON values, by their paths.

use serde::Serialize;
use serde_json::Value;

/// The most differences that are listed.
pub const DIFFERENCES_MAX: usize = 500;
/// The fields by which the items of lists are recognised, so that an item that was added or removed does not change the paths of
/// all others.
const KEYS: [&str; 5] = ["task", "agent", "call_id", "number", "id"];

/// A value that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The path of the value, such as `turns/task_…/main/round`.
    pub path: String,
    /// The former value; absent if it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The new value; absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The differences between two values, at most [`DIFFERENCES_MAX`].
#[must_use]
pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut found);
    found
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    if before == after || found.len() >= DIFFERENCES_MAX {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}/{key}") };
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                compare(below(key), old.get(key), new.get(key), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new)))
            if old.iter().chain(new).all(|item| key_of(item).is_some()) =>
        {
            let named = |items: &[Value]| {
                items.iter().filter_map(|item| Some((key_of(item)?, item.clone()))).collect::<Vec<_>>()
            };
            let (old, new) = (named(old), named(new));
            let of = |items: &[(String, Value)], key: &str| {
                items.iter().find(|(k, _)| k == key).map(|(_, item)| item.clone())
            };
            let added = new.iter().filter(|(key, _)| of(&old, key).is_none());
            for (key, _) in old.iter().chain(added) {
                compare(below(key), of(&old, key).as_ref(), of(&new, key).as_ref(), found);
            }
        }
        _ => found.push(Difference { path, before: before.cloned(), after: after.cloned() }),
    }
}

/// The name of an item of a list.
fn key_of(item: &Value) -> Option<String> {
    KEYS.iter().find_map(|key| match &item[*key] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    })
}
