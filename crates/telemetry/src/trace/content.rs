//! Texts in spans, in the form of the semantic conventions.

use serde_json::json;

/// The longest text of an attribute, in bytes: receivers cut or refuse longer ones.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// One message of a role, as a list.
pub fn message(role: &str, text: &str, finish: Option<&str>) -> String {
    let mut message = json!({"role": role, "parts": [{"type": "text", "content": clip(text)}]});
    if let Some(finish) = finish {
        message["finish_reason"] = finish.into();
    }
    json!([message]).to_string()
}

/// The beginning of a text.
pub fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}
