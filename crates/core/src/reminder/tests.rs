//! When a reminder is due, how it is claimed, and how it ends.

use chrono::NaiveDate;

use super::*;

const NOON: Micros = Micros(1_771_416_000_000_000);

fn reminder() -> Reminder {
    Reminder {
        id: Uuid::from_u128(7),
        conversation: ConversationId::from_uuid(Uuid::from_u128(8)),
        task: TaskId::from_uuid(Uuid::from_u128(9)),
        timezone: "Europe/Berlin".to_owned(),
        claimed: None,
        reminded_at: None,
    }
}

fn document(remind_at: Option<Micros>, reminder: Option<Reminder>, status: &str) -> Document {
    let body = json!({
        "title": "Stretch", "status": status, "due": "2026-02-18T13:00", "tags": ["x"], "remind_at": remind_at,
        "reminder": reminder,
    });
    Document { number: 3, body, created_at: NOON, updated_at: NOON, accessed_at: None }
}

/// The to-do after a change; `None` if the change does not apply.
fn changed(change: &ReminderChange, document: &Document, now: Micros) -> Option<RemindedTodo> {
    match change.decide(document, now).unwrap() {
        DocumentChange::Replace { body, .. } => {
            assert_eq!(body["tags"], json!(["x"]), "the other fields stay");
            RemindedTodo::of(&Document { body, ..document.clone() }).unwrap()
        }
        DocumentChange::Keep => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reminder_has_the_origins_of_its_todo() {
    let mut due = document(Some(NOON), Some(reminder()), "todo");
    assert_eq!(RemindedTodo::of(&due).unwrap().unwrap().origins, [""; 0]);
    due.body["tags"] = json!(["x", "from:web.fetch"]);
    assert_eq!(RemindedTodo::of(&due).unwrap().unwrap().origins, ["web.fetch"]);
}

#[test]
fn reminder_is_claimed_once_and_ends_when_it_was_sent() {
    let claim = ReminderChange::Claim { remind_at: NOON };
    let due = document(Some(NOON), Some(reminder()), "todo");
    let claimed = changed(&claim, &due, NOON).unwrap();
    let text = claimed.reminder.claimed.clone().unwrap();
    let (line, shown) = parts(&text);
    assert_eq!(line, "[Reminder of task #3]");
    assert_eq!(
        shown,
        "Reminder: Stretch (task #3, due 2026-02-18 13:00). Say “it is done” or “snooze it for 10 minutes”."
    );
    let claimed = document(Some(NOON), Some(claimed.reminder), "todo");
    assert_eq!(changed(&claim, &claimed, NOON.plus_ms(1)), None, "the text stays");
    let sent = changed(&ReminderChange::Sent { remind_at: NOON }, &claimed, NOON.plus_ms(5)).unwrap();
    assert_eq!((sent.remind_at, sent.reminder.claimed), (None, None));
    assert_eq!(sent.reminder.reminded_at, Some(NOON.plus_ms(5)));
    let moved = document(Some(NOON.plus_ms(60_000)), Some(reminder()), "todo");
    for change in [claim, ReminderChange::Sent { remind_at: NOON }] {
        assert_eq!(changed(&change, &moved, NOON), None, "the user has moved it");
    }
}

#[test]
fn reminder_that_is_late_names_the_time_for_which_it_was_set() {
    let claim = ReminderChange::Claim { remind_at: NOON };
    let due = document(Some(NOON), Some(reminder()), "todo");
    let late = changed(&claim, &due, NOON.plus_ms(3_600_000)).unwrap().reminder.claimed.unwrap();
    assert!(late.contains("This reminder is late: it was set for 2026-02-18 13:00 CET,"), "{late}");
    let in_time = changed(&claim, &due, NOON.plus_ms(80_000)).unwrap().reminder.claimed.unwrap();
    assert!(!in_time.contains("late"), "{in_time}");
}

#[test]
fn snooze_sets_a_new_reminder_of_an_open_todo_only() {
    let new = Reminder { id: Uuid::from_u128(70), conversation: ConversationId::from_uuid(Uuid::nil()), ..reminder() };
    let snooze = ReminderChange::Snooze { until: NOON.plus_ms(600_000), new: new.clone() };
    let snoozed = changed(&snooze, &document(None, Some(reminder()), "todo"), NOON).unwrap();
    assert_eq!(snoozed.remind_at, Some(NOON.plus_ms(600_000)));
    assert_eq!(snoozed.reminder, Reminder { id: new.id, ..reminder() }, "the conversation stays");
    let first = changed(&snooze, &document(None, None, "blocked"), NOON).unwrap();
    assert_eq!(first.reminder, new);
    assert_eq!(changed(&snooze, &document(None, Some(reminder()), "done"), NOON), None);
    let cancelled = changed(&ReminderChange::Cancel, &document(Some(NOON), Some(reminder()), "todo"), NOON).unwrap();
    assert_eq!(cancelled.remind_at, None);
    assert_eq!(changed(&ReminderChange::Cancel, &document(None, None, "todo"), NOON), None);
}

#[test]
fn due_minute_becomes_the_instant_of_the_zone_also_at_changes_of_the_clocks() {
    let at = |text: &str| Micros::from_utc(chrono::DateTime::parse_from_rfc3339(text).unwrap().to_utc());
    let of = |due: &str, zone: Tz| at_due(due, zone, Micros(0));
    assert_eq!(of("2026-02-18T13:00", Tz::Europe__Berlin), Some(NOON));
    assert_eq!(of("2026-03-29T02:30", Tz::Europe__Berlin), Some(at("2026-03-29T01:00:00Z")), "the end of the gap");
    assert_eq!(of("2026-10-25T02:30", Tz::Europe__Berlin), Some(at("2026-10-25T00:30:00Z")), "the first of two");
    assert_eq!(of("2011-12-30T08:00", Tz::Pacific__Apia), Some(at("2011-12-30T10:00:00Z")), "a day that was skipped");
    assert_eq!(of("2026-02-18", Tz::UTC), None, "a day has no minute");
    assert_eq!(at_due("2026-02-18T12:00", Tz::UTC, NOON), None, "it has passed");
    let far = NaiveDate::from_ymd_opt(9999, 1, 1).unwrap().and_hms_opt(0, 0, 0).unwrap();
    assert!(instant(far, Tz::UTC).is_some());
}
