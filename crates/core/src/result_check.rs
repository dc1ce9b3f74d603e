//! What a result says about itself without a model [S3 14 phase 3].

use serde_json::Value;

/// The longest text that may say that nothing was found, in bytes: a longer one has found something.
const NOTHING_BYTES_MAX: usize = 160;

/// How a text begins that says so.
const NOTHING: [&str; 12] = [
    "0 matches",
    "0 results",
    "found 0",
    "found no",
    "found nothing",
    "i found no",
    "no ",
    "none",
    "not found",
    "nothing",
    "there are no",
    "there is no",
];

/// Whether a result says that nothing was found: an empty text, a short text that begins so, or lists that are all empty.
#[must_use]
pub fn finds_nothing(text: &str) -> bool {
    let text = text.trim();
    if text.is_empty() {
        return true;
    }
    if text.starts_with(['{', '[']) {
        return serde_json::from_str::<Value>(text).is_ok_and(|value| is_empty(&value));
    }
    text.len() <= NOTHING_BYTES_MAX && {
        let text = text.to_lowercase();
        matches!(text.as_str(), "null" | "no" | "0") || NOTHING.iter().any(|begins| text.starts_with(begins))
    }
}

/// Whether a value is empty, or an object with lists that are all empty.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => {
            let mut lists = map.values().filter_map(Value::as_array).peekable();
            map.is_empty() || (lists.peek().is_some() && lists.all(Vec::is_empty))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_finds_nothing_if_it_is_empty_or_says_so_shortly() {
        for text in
            ["", " \n", "[]", "{}", r#"{"count": 0, "results": []}"#, "Nothing found.", "Found no open tasks.", "null"]
        {
            assert!(finds_nothing(text), "{text:?}");
        }
        let long = format!("No. 10 is a house. {}", "x".repeat(NOTHING_BYTES_MAX));
        for text in
            ["Found 1 task", r#"{"a": []"#, r#"{"results": [1]}"#, r#"{"status": "done"}"#, "Notes: none", &long]
        {
            assert!(!finds_nothing(text), "{text:?}");
        }
    }
}
