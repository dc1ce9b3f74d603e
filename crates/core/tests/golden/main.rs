//! Every stored format stays readable for ever. `event_v1` contains one event body of each kind, with every field of its
//! first version filled in: it must be read and written back without loss. `event_v1/added` contains the kinds that got more
//! fields later, with those filled in; a field that a kind got even later has a file `KIND.FIELD.json` of its own.
//! `event_v1/least` contains kinds with only the fields that version 1 always wrote: they must be read. These files are never
//! changed; a new version gets a new folder.
//!
//! `state_v15` is a snapshot: the folded state of these events. Snapshots of other versions are not read, so a changed fold
//! or state needs a new version and a new folder.

// Tests report errors by panicking, also in their helpers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeSet, fs, path::PathBuf};

use annie_core::{
    event::{EVENT_VERSION, Event, EventBody},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    time::Micros,
    turn::{Conversation, STATE_VERSION},
};
use serde_json::Value;
use uuid::Uuid;

const KINDS: [&str; 36] = [
    "received",
    "joined",
    "turn_started",
    "round_began",
    "round_not_begun",
    "model_replied",
    "model_failed",
    "interface_changed",
    "loop_detected",
    "skill_started",
    "skill_finished",
    "agent_started",
    "agent_reported",
    "agent_steered",
    "steering_taken",
    "agent_stop_requested",
    "cancel_requested",
    "decided",
    "approval_requested",
    "approval_decided",
    "results_given",
    "resumed",
    "suspended",
    "continued",
    "reprioritised",
    "deadline_passed",
    "deferred",
    "retried",
    "ordered",
    "dead_letter_due",
    "dead_letter_moved",
    "answered",
    "failed",
    "cancelled",
    "copied",
    "compacted",
];

/// All kinds of events. If a kind is added, this function does not compile until the kind is listed here, and so must have a
/// file.
const fn kinds(body: &EventBody) -> [&'static str; 36] {
    match body {
        EventBody::Received(_)
        | EventBody::Joined { .. }
        | EventBody::TurnStarted { .. }
        | EventBody::RoundBegan { .. }
        | EventBody::RoundNotBegun { .. }
        | EventBody::ModelReplied { .. }
        | EventBody::ModelFailed { .. }
        | EventBody::InterfaceChanged { .. }
        | EventBody::LoopDetected { .. }
        | EventBody::SkillStarted { .. }
        | EventBody::SkillFinished { .. }
        | EventBody::AgentStarted { .. }
        | EventBody::AgentReported { .. }
        | EventBody::AgentSteered { .. }
        | EventBody::SteeringTaken { .. }
        | EventBody::AgentStopRequested { .. }
        | EventBody::CancelRequested { .. }
        | EventBody::Decided { .. }
        | EventBody::ApprovalRequested { .. }
        | EventBody::ApprovalDecided { .. }
        | EventBody::ResultsGiven
        | EventBody::Resumed { .. }
        | EventBody::Suspended { .. }
        | EventBody::Continued { .. }
        | EventBody::Reprioritised { .. }
        | EventBody::DeadlinePassed { .. }
        | EventBody::Deferred { .. }
        | EventBody::Retried { .. }
        | EventBody::Ordered { .. }
        | EventBody::DeadLetterDue { .. }
        | EventBody::DeadLetterMoved { .. }
        | EventBody::Answered { .. }
        | EventBody::Failed { .. }
        | EventBody::Cancelled { .. }
        | EventBody::Copied(_)
        | EventBody::Compacted(_) => KINDS,
    }
}

/// Names and contents of the JSON files of a folder.
fn files(folder: &str) -> Vec<(String, Value)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let mut files: Vec<(String, Value)> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

/// Whether `now` contains all of `golden`. Objects may have additional fields.
fn holds(now: &Value, golden: &Value) -> bool {
    match (now, golden) {
        (Value::Object(now), Value::Object(golden)) => {
            golden.iter().all(|(key, value)| now.get(key).is_some_and(|now| holds(now, value)))
        }
        (Value::Array(now), Value::Array(golden)) => {
            now.len() == golden.len() && now.iter().zip(golden).all(|(now, golden)| holds(now, golden))
        }
        _ => now == golden,
    }
}

#[test]
fn event_of_every_kind_round_trips_without_loss() {
    let mut seen = BTreeSet::new();
    for (name, golden) in files("event_v1") {
        let body: EventBody = serde_json::from_value(golden.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(body.kind(), name);
        let now = serde_json::to_value(&body).unwrap();
        assert!(holds(&now, &golden), "{name}: {now:#} for {golden:#}");
        seen.insert(name);
    }
    assert_eq!(seen, kinds(&EventBody::ResultsGiven).map(str::to_owned).into());
}

#[test]
fn event_with_former_names_is_read_like_one_with_the_present_names() {
    let renamed = files("event_v1/renamed");
    assert!(!renamed.is_empty());
    for (name, former) in renamed {
        let kind = match name.as_str() {
            "letter_due" => "dead_letter_due",
            "letter_moved" => "dead_letter_moved",
            kind => kind,
        };
        let present = files("event_v1/added").into_iter().chain(files("event_v1")).find(|(name, _)| name == kind);
        let read = |body: Value| serde_json::from_value::<EventBody>(body).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(read(former), read(present.unwrap().1), "{name}");
    }
}

#[test]
fn event_fields_added_later_round_trip_without_loss() {
    let added = files("event_v1/added");
    assert!(!added.is_empty());
    for (name, golden) in added {
        let body: EventBody = serde_json::from_value(golden.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(Some(body.kind()), name.split('.').next());
        let now = serde_json::to_value(&body).unwrap();
        assert!(holds(&now, &golden), "{name}: {now:#} for {golden:#}");
    }
}

#[test]
fn event_fields_omitted_by_version_1_get_defaults() {
    let least = files("event_v1/least");
    assert!(!least.is_empty());
    for (name, golden) in least {
        let body: EventBody = serde_json::from_value(golden).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(body.kind(), name);
        let again: EventBody = serde_json::from_str(&serde_json::to_string(&body).unwrap()).unwrap();
        assert_eq!(again, body, "{name}");
    }
}

#[test]
fn golden_files_have_current_version() {
    assert_eq!(EVENT_VERSION, 1, "a new version needs a folder of golden files of its own");
}

/// The folded state of the golden events: a turn with a running call and a running agent, and a second message queued behind
/// it.
fn folded() -> Conversation {
    const ORDER: [&str; 9] = [
        "received",
        "turn_started",
        "model_replied",
        "skill_started",
        "agent_started",
        "reprioritised",
        "suspended",
        "continued",
        "deferred",
    ];
    let golden: std::collections::BTreeMap<String, Value> = files("event_v1").into_iter().collect();
    let conversation = ConversationId::from_uuid(Uuid::from_u128(0xc0));
    let mut state = Conversation::new(conversation, UserId::new("ann").unwrap());
    let mut events: Vec<(&str, u128)> = ORDER.iter().map(|kind| (*kind, 1)).collect();
    events.push(("received", 2));
    for ((kind, task), position) in events.into_iter().zip(1_u32..) {
        let body = serde_json::from_value(golden[kind].clone()).unwrap();
        state.apply(&Event {
            conversation,
            seq: Seq(u64::from(position)),
            at: Micros(1_000_000 * i64::from(position)),
            task: TaskId::from_uuid(Uuid::from_u128(task)),
            agent: AgentId::orchestrator(),
            body,
        });
    }
    state
}

#[test]
fn snapshot_equals_folded_events_or_has_another_version() {
    let [(name, golden)] = &files("state_v15")[..] else { panic!("one file of a state") };
    assert_eq!((name.as_str(), STATE_VERSION), ("folded", 15), "a new version needs a folder of its own");
    let now = serde_json::to_value(folded()).unwrap();
    assert_eq!(&now, golden, "the fold is the same, or STATE_VERSION is raised: {now:#}");
    let read: Conversation = serde_json::from_value(golden.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(&serde_json::to_value(&read).unwrap(), golden, "it is read without loss, or STATE_VERSION is raised");
}
