//! Events in the form that callers receive. The log stores microseconds and short field names, permanently; the public form has
//! RFC 3339 times, and names ids as everywhere else in the interface.

use annie_core::{
    event::{Event, EventBody},
    message::Finish,
    time::Micros,
};
use chrono::{DateTime, SecondsFormat};
use serde_json::Value;

/// Field names of ids in the log and in the public form.
const IDS: [(&str, &str); 2] = [("conversation", "conversation_id"), ("task", "task_id")];
/// Paths of the fields that hold times.
const TIMES: [&[&str]; 8] = [
    &["at"],
    &["not_before"],
    &["until"],
    &["expires_at"],
    &["retry", "since"],
    &["dead_letter", "since"],
    &["dead_letter", "retry_at"],
    &["outcome", "operation", "expires_at"],
];

/// Whether the event is a round of the orchestrator whose text was cut off by the length limit. The next round may continue
/// this text, and only the final text says how the two are joined.
pub fn is_cut_off(event: &Event) -> bool {
    let EventBody::ModelReplied { text, calls, finish, .. } = &event.body else { return false };
    let has_words_only = calls.is_empty() && !text.trim().is_empty();
    event.agent.is_orchestrator() && has_words_only && *finish == Finish::Length
}

/// The public form of an event.
pub fn shown_event(event: &Event) -> Value {
    let mut value = serde_json::to_value(event).unwrap_or_default();
    for path in TIMES {
        if let Some(time) = at_mut(&mut value, path)
            && let Some(us) = time.as_i64()
        {
            // Microseconds are kept, so that a client orders and compares times as the log does.
            *time = Micros(us).to_utc().to_rfc3339_opts(SecondsFormat::Micros, true).into();
        }
    }
    rename(&mut value, IDS);
    value
}

/// The event of a public form that a server sent.
///
/// # Errors
/// If the text is not an event.
pub fn read_event(text: &str) -> Result<Event, serde_json::Error> {
    let mut value: Value = serde_json::from_str(text)?;
    rename(&mut value, IDS.map(|(log, shown)| (shown, log)));
    for path in TIMES {
        if let Some(time) = at_mut(&mut value, path)
            && let Some(at) = time.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok())
        {
            *time = Micros::from_utc(at.to_utc()).0.into();
        }
    }
    serde_json::from_value(value)
}

fn at_mut<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, key| value.get_mut(*key))
}

fn rename<'a>(value: &mut Value, names: [(&'a str, &'a str); 2]) {
    let Some(object) = value.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(id) = object.remove(from) {
            object.insert(to.to_owned(), id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use annie_core::{
        event::{Event, EventBody, NewEvent},
        ids::{AgentId, ConversationId, Seq, TaskId},
        time::Micros,
    };
    use serde_json::{Value, json};

    use super::*;

    /// One event of every kind that was ever stored, as the log has it.
    fn golden() -> Vec<Event> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/golden/event_v1");
        let files =
            [folder.clone(), folder.join("added")].map(|folder| fs::read_dir(folder).expect("the golden events"));
        let paths = files.into_iter().flatten().map(|file| file.expect("readable").path());
        let texts = paths.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).expect("readable"));
        let placed = |text: String| {
            let body: EventBody = serde_json::from_str(&text).expect("an event");
            let (at, task) = (Micros(1_700_000_000_123_456), TaskId::from_uuid(uuid::Uuid::from_u128(1)));
            let new = NewEvent { at, task, agent: AgentId::orchestrator(), body };
            Event::placed(ConversationId::from_uuid(uuid::Uuid::from_u128(2)), Seq(7), new)
        };
        texts.map(placed).collect()
    }

    /// Paths of integers that are so large that they must be times.
    fn instants(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Number(number) if number.as_i64().is_some_and(|n| n > 1_000_000_000_000) => {
                found.push(path.to_owned())
            }
            Value::Array(items) => items.iter().for_each(|item| instants(item, &format!("{path}/#"), found)),
            Value::Object(fields) => fields.iter().for_each(|(key, v)| instants(v, &format!("{path}/{key}"), found)),
            _ => {}
        }
    }

    #[test]
    fn shown_event_round_trips_for_every_event_kind() {
        let events = golden();
        assert!(events.len() > 20, "{}", events.len());
        for event in events {
            let shown = shown_event(&event);
            assert!(shown["conversation_id"].is_string() && shown["task_id"].is_string(), "{shown}");
            assert!(shown.get("conversation").is_none() && shown.get("task").is_none(), "{shown}");
            assert!(shown["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{shown}");
            assert_eq!(read_event(&shown.to_string()).expect("an event"), event, "{shown}");
            let mut found = Vec::new();
            instants(&shown, "", &mut found);
            assert_eq!(found, Vec::<String>::new(), "times are RFC 3339: {shown}");
        }
    }

    #[test]
    fn shown_event_times_have_microseconds() {
        let mut event = golden().remove(0);
        let plan = json!({ "kind": "deferred", "until": 1_700_000_000_000_001_i64, "reason": "at 5" });
        event.body = serde_json::from_value(plan).expect("an event");
        let shown = shown_event(&event);
        assert_eq!(
            (&shown["at"], &shown["until"]),
            (&json!("2023-11-14T22:13:20.123456Z"), &json!("2023-11-14T22:13:20.000001Z"))
        );
        assert_eq!(shown["reason"], "at 5");
    }
}
