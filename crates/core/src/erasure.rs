//! Erasing the content of a conversation: what remains of an event, and the record that says who erased it and why.
//!
//! An erased event keeps its place, its kind, ids, numbers and names of skills, and the digest of its former body, over which the
//! audit chain was computed. Therefore tables are folded from it as before, and the chain still holds.

use serde_json::Value;

use crate::{
    event::{EventBody, NewEvent},
    ids::{AgentId, Seq, TaskId},
    replay::replace_texts,
    time::Micros,
};

/// What every text of an erased event is replaced by.
pub const ERASED: &str = "[redacted by erasure]";
/// The component that the record of an erasure names.
pub const COMPONENT: &str = "erasure";
/// The JSON that remains of a body that this version cannot read.
const UNREADABLE: &str = "null";

/// The client id of an erased message. It names the task, because client ids are unique. It begins with a control character, which
/// the kernel refuses in the ids of messages, so that no message can have it before.
#[must_use]
pub fn client_id(task: TaskId) -> String {
    format!("\u{1}erased:{task}")
}

/// The JSON that remains of a stored body: without the texts of people, models and skills. To erase it again changes nothing.
#[must_use]
pub fn erased_body(body: &str, task: TaskId) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(body) else { return UNREADABLE.to_owned() };
    replace_texts(&mut value, false, &|_| ERASED.to_owned());
    if let Value::Object(fields) = &mut value {
        // The address names a person.
        fields.remove("reply_to");
        if let Some(client) = fields.get_mut("client_id") {
            *client = client_id(task).into();
        }
    }
    let text = value.to_string();
    if serde_json::from_str::<EventBody>(&text).is_ok() { text } else { UNREADABLE.to_owned() }
}

/// The event that records an erasure of all events before it.
#[must_use]
pub fn record(task: TaskId, by: &str, reason: &str, at: Micros) -> NewEvent {
    let reason = if reason.is_empty() { "no reason given" } else { reason };
    let body = EventBody::Decided {
        component: COMPONENT.to_owned(),
        decision: "erase the content of all events before this one".to_owned(),
        reasoning: format!("requested by {by}: {reason}"),
        alternatives: Vec::new(),
        hook: None,
    };
    NewEvent { at, task, agent: AgentId::orchestrator(), body }
}

/// Whether a stored body is the record of an erasure.
#[must_use]
pub fn is_record(body: &str) -> bool {
    matches!(serde_json::from_str(body), Ok(EventBody::Decided { component, .. }) if component == COMPONENT)
}

/// What is wrong with an erased event, if anything: only what an erasure leaves may be in it, and a record must follow it.
#[must_use]
pub fn fault_of(seq: Seq, task: TaskId, body: &str, record: Option<Seq>) -> Option<String> {
    if record.is_none_or(|record| seq >= record) {
        return Some(format!("event {seq} was replaced, and no record of an erasure covers it"));
    }
    // Erasures of earlier versions left a client id without the control character.
    let (earlier, present) = (format!("\"erased:{task}\""), Value::from(client_id(task)).to_string());
    let is_erased = |body: &str| erased_body(body, task) == body;
    let is_content = !is_erased(body) && !is_erased(&body.replacen(&earlier, &present, 1));
    is_content.then(|| format!("event {seq} was erased, and has content again"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn task() -> TaskId {
        TaskId::from_uuid(Uuid::from_u128(7))
    }

    #[test]
    fn erased_message_has_no_words_and_no_address_and_is_a_message() {
        let body = json!({
            "kind": "received", "client_id": "about Bob", "text": "Bob is ill", "source": "http", "priority": "high",
            "reply_to": {"channel": "mail", "to": "ann@example.org"}, "preamble": [["user", "Bob"]],
        });
        let erased = erased_body(&body.to_string(), task());
        assert!(!erased.contains("Bob") && !erased.contains("ann@"), "{erased}");
        let EventBody::Received(inbound) = serde_json::from_str(&erased).unwrap() else { panic!("{erased}") };
        assert_eq!((&*inbound.text, inbound.client_id), (ERASED, client_id(task())));
        assert_eq!(erased_body(&erased, task()), erased, "to erase it again changes nothing");
    }

    #[test]
    fn erased_body_that_cannot_be_read_has_no_content() {
        assert_eq!(erased_body("{ not JSON, Bob", task()), "null");
        assert_eq!(erased_body(r#"{"kind": "of another version", "name": "Bob"}"#, task()), "null");
    }

    #[test]
    fn erased_event_needs_a_record_behind_it_and_no_content() {
        let body = erased_body(&json!({"kind": "cancelled", "text": "Bob"}).to_string(), task());
        assert_eq!(fault_of(Seq(3), task(), &body, Some(Seq(4))), None);
        assert!(fault_of(Seq(3), task(), &body, None).is_some_and(|why| why.contains("no record")));
        assert!(fault_of(Seq(4), task(), &body, Some(Seq(4))).is_some());
        let forged = body.replace(ERASED, "Eve");
        assert!(fault_of(Seq(3), task(), &forged, Some(Seq(4))).is_some_and(|why| why.contains("content again")));
        let stored = serde_json::to_string(&record(task(), "ann", "", Micros(1)).body).unwrap();
        assert!(is_record(&stored) && !is_record(&body));
    }

    #[test]
    fn erased_event_of_every_kind_can_be_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/event_v1");
        let (mut read, mut unreadable) = (0, Vec::new());
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let event: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let body = event.get("body").unwrap_or(&event).to_string();
            let erased = erased_body(&body, task());
            assert_eq!(erased_body(&erased, task()), erased);
            read += 1;
            unreadable.extend((erased == UNREADABLE).then_some(path));
        }
        assert!(read > 20);
        assert!(unreadable.is_empty(), "{unreadable:?}");
    }
}
