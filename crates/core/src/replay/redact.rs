//! Redaction of an event: texts of people, models and skills are replaced, so that the structure of a conversation can be given
//! away, or kept, without its content.

use serde_json::Value;

use crate::event::Event;

/// What a text is replaced by, before its length.
const MARK: &str = "[redacted ";
/// Fields whose texts say nothing about content: ids, kinds, names of skills, backends, modes and times.
const KEPT: [&str; 55] = [
    "detector",
    "level",
    "conversation",
    "task",
    "agent",
    "kind",
    "source",
    "channel",
    "priority",
    "mode",
    "to",
    "into",
    "same_as",
    "after",
    "route",
    "backend",
    "model",
    "finish",
    "action",
    "intent",
    "skill",
    "effect",
    "id",
    "call_id",
    "status",
    "component",
    "cause",
    "verb",
    "targets",
    "state",
    "code",
    "strategy",
    "outcome",
    "of",
    "depends_on",
    "agents",
    "interface",
    "timezone",
    "continues",
    "class",
    "do",
    "why",
    "extent",
    "main_interface",
    "spoken_as",
    "redacted",
    "redact",
    "retry_from",
    "role",
    "verdict",
    "effort",
    "planning",
    "reasoning_effort",
    "sub_agent_interface",
    "traceparent",
];

/// The JSON of an event with all texts of its body replaced, except those in fields that say nothing about content.
#[must_use]
pub fn redacted(event: &Event) -> Value {
    let mut value = serde_json::to_value(event).unwrap_or_default();
    replace_texts(&mut value, false, &|text| format!("{MARK}{} characters]", text.chars().count()));
    value
}

/// Replaces all texts of a JSON value by what `with` makes of them, except those in fields that say nothing about content.
pub(crate) fn replace_texts(value: &mut Value, is_kept: bool, with: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) if !is_kept && !text.is_empty() && !is_id(text) => *text = with(text),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_texts(item, is_kept, with)),
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                // The arguments of a skill and the data of an outcome may have fields with any names.
                let is_content = matches!(key.as_str(), "arguments" | "data" | "evidence" | "provider_state");
                if is_content && (field.is_object() || field.is_array()) {
                    *field = Value::String(with(&field.to_string()));
                    continue;
                }
                // The recipient of a channel is a person's address or number.
                if key == "reply_to"
                    && let Some(to) = field.get_mut("to")
                {
                    *to = Value::String(with(to.as_str().unwrap_or_default()));
                    continue;
                }
                replace_texts(field, !is_content && KEPT.contains(&key.as_str()), with);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a text is an id, such as `task_0198c0ffee0070008000000000000003`. An event without its ids cannot be read.
fn is_id(text: &str) -> bool {
    let is_hex = |id: &str| id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    text.split_once('_').is_some_and(|(kind, id)| kind.bytes().all(|b| b.is_ascii_lowercase()) && is_hex(id))
}

/// Whether the texts of an event were replaced.
pub(super) fn is_redacted(event: &Event) -> bool {
    use crate::event::EventBody;
    if let EventBody::Received(inbound) = &event.body {
        return inbound.text.starts_with(MARK);
    }
    event.body.as_final().is_some_and(|end| end.text().starts_with(MARK))
}
