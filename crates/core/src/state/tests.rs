//! Keys, values, writes and placeholders of the state.

use serde_json::json;

use super::*;
use crate::{
    context::Frames,
    ids::{AgentId, TaskId},
};

fn frames() -> Frames {
    Frames::of(TaskId::from_uuid(uuid::Uuid::nil()))
}

fn author() -> StateAuthor {
    let intent = IntentId::for_call(TaskId::from_uuid(uuid::Uuid::nil()), &AgentId::orchestrator(), "k");
    StateAuthor { by: "http".to_owned(), origin: Vec::new(), intent, at: Micros(7) }
}

#[test]
fn key_has_a_known_prefix_and_a_short_plain_name() {
    for (text, wanted) in [("topic", "session:topic"), ("user:a.b-c_1", "user:a.b-c_1"), (" app:x ", "app:x")] {
        assert_eq!(StateKey::parse(text).map(|key| key.to_string()), Ok(wanted.to_owned()), "{text}");
    }
    for text in ["", "user:", "1a", "user:a b", "user:ä", "user:a:b", "user:{x}", &"x".repeat(65)] {
        assert!(matches!(StateKey::parse(text), Err(StateError::Name(_))), "{text}");
    }
    assert_eq!(StateKey::parse("users:x"), Err(StateError::Prefix("users".to_owned())));
    let app = StateKey::parse("app:x").unwrap();
    assert_eq!(app.check_writable(), Err(StateError::ReadOnly("app:x".to_owned())));
}

#[test]
fn value_is_neither_null_nor_large() {
    assert_eq!(check_value(&json!({"a": [1, "b"]})), Ok(()));
    assert_eq!(check_value(&Value::Null), Err(StateError::Null));
    assert_eq!(check_value(&"x".repeat(VALUE_BYTES_MAX).into()), Err(StateError::Value(VALUE_BYTES_MAX + 2)));
}

#[test]
fn write_keeps_the_last_changes_and_refuses_a_key_too_many() {
    let user = UserId::new("ann").unwrap();
    let place = StatePlace::of(StateScope::User, &user, None).unwrap();
    let key = StateKey::parse("user:name").unwrap();
    let document = |number: u64, body: Value| Document {
        number,
        body,
        created_at: Micros(0),
        updated_at: Micros(0),
        accessed_at: None,
    };
    let mut body = json!({});
    for n in 0..30 {
        let write = place.set(&key, &json!(n), &author());
        let seen: Vec<Document> = if n == 0 { Vec::new() } else { vec![document(1, body.clone())] };
        body = match (write.decide)(&seen).unwrap() {
            DocumentChange::Insert(body) | DocumentChange::Replace { body, .. } => body,
            other => panic!("{other:?}"),
        };
    }
    let entry = StateEntry::of(&document(1, body)).unwrap().unwrap();
    assert_eq!((entry.value, entry.changes.len()), (json!(29), CHANGES_MAX));
    assert_eq!(entry.changes.last().map(|change| (&change.before, &change.after)), Some((&json!(28), &json!(29))));
    let full: Vec<Document> =
        (0..u64::from(KEYS_MAX)).map(|n| document(n, json!({"place": "user", "key": format!("user:k{n}")}))).collect();
    assert_eq!((place.set(&key, &json!(1), &author()).decide)(&full).unwrap(), DocumentChange::Keep);
    assert!(StatePlace::of(StateScope::Session, &user, None).is_err(), "a conversation is needed");
    assert!(StatePlace::of(StateScope::Temp, &user, None).is_err(), "values of a turn are not stored");
}

#[test]
fn template_is_filled_once_and_needs_every_value_without_a_question_mark() {
    let value = |key: &StateKey| {
        let text = match key.to_string().as_str() {
            "user:name" => "Ann {app:x}",
            "session:page" => {
                return Some(StateText { text: "obey <context".to_owned(), origin: vec!["web.fetch".to_owned()] });
            }
            _ => return None,
        };
        Some(StateText { text: text.to_owned(), origin: Vec::new() })
    };
    let filled = |text: &str| fill(text, &frames(), &value);
    for (text, wanted) in [
        ("Greet {user:name}.", "Greet Ann {app:x}."),
        ("{user:nick?}Hi", "Hi"),
        (
            "{{user:name}} {args.x} {x} {\"a\": 1} { user:name } {",
            "{user:name} {args.x} {x} {\"a\": 1} { user:name } {",
        ),
        ("{{user:name}", "{Ann {app:x}"),
        ("ä{user:name}ö", "äAnn {app:x}ö"),
    ] {
        assert_eq!(filled(text).as_deref(), Ok(wanted), "{text}");
    }
    assert_eq!(filled("{app:b} {user:a} {app:b}"), Err(Unset(vec!["app:b".to_owned(), "user:a".to_owned()])));
    let framed = filled("Read {session:page}").unwrap();
    assert!(
        framed.contains("state=\"session:page\" origin=\"web.fetch\"") && framed.contains("obey &lt;context"),
        "{framed}"
    );
}
