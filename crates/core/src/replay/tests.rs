//! Replays of small logs: states, differences, divergences, redaction and copies.

use serde_json::json;

use super::*;
use crate::{
    event::{Copied, Inbound, NewEvent, Priority},
    ids::{AgentId, TaskId},
    time::Micros,
};

fn user() -> UserId {
    UserId::new("ann").unwrap()
}

fn id() -> ConversationId {
    ConversationId::for_key(&user(), "k")
}

fn event(seq: u64, task: u128, body: EventBody) -> Event {
    let new = NewEvent {
        at: Micros(i64::try_from(seq).unwrap()),
        task: TaskId::from_uuid(uuid::Uuid::from_u128(task)),
        agent: AgentId::orchestrator(),
        body,
    };
    Event::placed(id(), Seq(seq), new)
}

fn message(text: &str) -> EventBody {
    let (text, source) = (text.to_owned(), "cli".to_owned());
    EventBody::Received(Inbound { text, source, priority: Priority::High, ..Inbound::default() })
}

fn replayed(log: &[Event]) -> Replay {
    let mut replay = Replay::new(id(), user());
    log.iter().for_each(|event| replay.see(event));
    replay
}

/// The log of a cancelled message.
fn cancelled() -> Vec<Event> {
    let by = "ann".to_owned();
    let text = "Cancelled.".to_owned();
    vec![
        event(1, 1, message("find the tax form")),
        event(2, 1, EventBody::CancelRequested { by }),
        event(3, 1, EventBody::Cancelled { text }),
    ]
}

#[test]
fn replay_check_confirms_decisions_of_an_unchanged_log() {
    let check = replayed(&cancelled()).finish();
    assert!(check.agrees(), "{:?}", check.divergences);
    assert_eq!((check.events, check.decisions), (3, 1));
}

#[test]
fn replay_check_reports_changed_missing_and_undecided_events() {
    let mut changed = cancelled();
    changed[2].body = EventBody::Cancelled { text: "All done.".to_owned() };
    let check = replayed(&changed).finish();
    assert_eq!(
        check.divergences.iter().map(|d| (d.seq.0, d.kind)).collect::<Vec<_>>(),
        [(3, DivergenceKind::Decision)]
    );
    assert!(check.divergences[0].stored.contains("All done."), "{:?}", check.divergences);

    let check = replayed(&cancelled()[..2]).finish();
    assert_eq!(check.divergences.iter().map(|d| d.kind).collect::<Vec<_>>(), [DivergenceKind::Missing]);

    let mut gap = cancelled();
    gap.remove(1);
    let kinds: Vec<_> = replayed(&gap).finish().divergences.iter().map(|d| d.kind).collect();
    assert!(kinds.contains(&DivergenceKind::Gap), "{kinds:?}");
}

#[test]
fn replay_state_shows_waiting_messages_and_what_the_core_decides() {
    let log = cancelled();
    let state = ReplayState::of(replayed(&log[..1]).state());
    assert_eq!((state.waiting.len(), state.waiting[0].place, state.decides), (1, 1, None));
    assert_eq!(state.outstanding, [format!("begin {}", log[0].task)]);
    let state = ReplayState::of(replayed(&log[..2]).state());
    assert_eq!(state.decides, Some("cancelled"));
}

#[test]
fn differences_name_paths_by_ids_and_not_by_positions() {
    let before = json!({"turns": [{"task": "a", "round": 1}, {"task": "b", "round": 1}], "seq": 1});
    let after = json!({"turns": [{"task": "b", "round": 2}], "seq": 2});
    let found: Vec<String> = differences(&before, &after).into_iter().map(|d| d.path).collect();
    assert_eq!(found, ["seq", "turns/a", "turns/b/round"]);
    assert!(differences(&before, &before).is_empty());
}

#[test]
fn redacted_event_keeps_its_structure_and_loses_texts() {
    let event = event(1, 1, message("my secret tax number is 12"));
    let line = redacted(&event);
    let text = line.to_string();
    assert!(!text.contains("secret") && text.contains("[redacted 26 characters]"), "{text}");
    let read: Event = serde_json::from_value(line).unwrap();
    assert_eq!((read.seq, read.task, read.body.kind()), (event.seq, event.task, "received"));
    assert!(redact::is_redacted(&read));
}

#[test]
fn redacted_event_does_not_name_the_recipient_of_a_channel() {
    let mut body = message("hello");
    let EventBody::Received(inbound) = &mut body else { panic!("{body:?}") };
    inbound.reply_to = Some(crate::ports::Address { channel: "mail".to_owned(), to: "ann@example.org".to_owned() });
    let text = redacted(&event(1, 1, body)).to_string();
    assert!(!text.contains("ann@") && text.contains("mail"), "{text}");
}

#[test]
fn copy_has_no_open_work_and_says_what_is_not_carried_out() {
    let original = replayed(&cancelled()[..1]);
    let history = history_of(original.state(), true);
    assert_eq!(history.len(), 1);
    assert!(history[0].answer.contains("not answered here") && history[0].is_outside, "{history:?}");
    let lines: Vec<Event> = cancelled().iter().map(copied_event).collect();
    let begin = event(
        4,
        9,
        EventBody::Copied(Box::new(Copied {
            of: id(),
            original_seq: Seq(3),
            event: None,
            history,
            summary: None,
            bytes: 0,
        })),
    );
    // Before its begin, the copy shows the states of the original.
    assert_eq!(ReplayState::of(replayed(&lines[..1]).state()).waiting.len(), 1);
    let copy = replayed(&[lines, vec![begin]].concat());
    assert!(copy.state().is_idle() && copy.state().outstanding(Micros(9)).is_empty());
    assert_eq!(ReplayState::of(copy.state()).exchanges, 1);
    assert!(copy.finish().agrees());
}

fn copied_event(inner: &Event) -> Event {
    let copied = Copied {
        of: id(),
        original_seq: inner.seq,
        event: Some(serde_json::to_value(inner).unwrap()),
        history: Vec::new(),
        summary: None,
        bytes: 0,
    };
    event(inner.seq.0, 9, EventBody::Copied(Box::new(copied)))
}
