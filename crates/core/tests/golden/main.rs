//! Every stored shape stays readable for ever. `event_v1` holds one event body of each kind with every field that its
//! first shape had filled in: it must be read and written back without loss. `event_v1/added` holds the kinds that got
//! more fields since, with those filled in. `event_v1/least` holds kinds with only the fields that version 1 always wrote:
//! it must be read. These files are never changed; a new version gets a new folder.
//!
//! `state_v9` is a snapshot: what these events fold to. A snapshot of another version is not read, so a fold or a state that
//! comes to be another one needs a new version, and its own folder.

// A test says what went wrong by panicking, in its helpers too.
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

/// All kinds. Does not compile when one is added, until it stands here and so must have a file.
const fn kinds(body: &EventBody) -> [&'static str; 28] {
    match body {
        EventBody::Received(_)
        | EventBody::Joined { .. }
        | EventBody::TurnStarted { .. }
        | EventBody::RoundBegan { .. }
        | EventBody::RoundNotBegun { .. }
        | EventBody::ModelReplied { .. }
        | EventBody::ModelFailed { .. }
        | EventBody::InterfaceChanged { .. }
        | EventBody::SkillStarted { .. }
        | EventBody::SkillFinished { .. }
        | EventBody::AgentStarted { .. }
        | EventBody::AgentReported { .. }
        | EventBody::CancelRequested { .. }
        | EventBody::Decided { .. }
        | EventBody::ResultsGiven
        | EventBody::Resumed { .. }
        | EventBody::Suspended { .. }
        | EventBody::Continued { .. }
        | EventBody::Reprioritised { .. }
        | EventBody::DeadlinePassed { .. }
        | EventBody::Deferred { .. }
        | EventBody::Retried { .. }
        | EventBody::Ordered { .. }
        | EventBody::LetterDue { .. }
        | EventBody::LetterMoved { .. }
        | EventBody::Answered { .. }
        | EventBody::Failed { .. }
        | EventBody::Cancelled { .. } => [
            "received",
            "joined",
            "turn_started",
            "round_began",
            "round_not_begun",
            "model_replied",
            "model_failed",
            "interface_changed",
            "skill_started",
            "skill_finished",
            "agent_started",
            "agent_reported",
            "cancel_requested",
            "decided",
            "results_given",
            "resumed",
            "suspended",
            "continued",
            "reprioritised",
            "deadline_passed",
            "deferred",
            "retried",
            "ordered",
            "letter_due",
            "letter_moved",
            "answered",
            "failed",
            "cancelled",
        ],
    }
}

/// Name and content of the JSON files of a folder.
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

/// Whether all of `golden` is in `now`, where an object may have got more fields.
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
fn every_kind_of_event_is_read_and_written_back_without_loss() {
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
fn fields_that_were_added_are_read_and_written_back_without_loss() {
    let added = files("event_v1/added");
    assert!(!added.is_empty());
    for (name, golden) in added {
        let body: EventBody = serde_json::from_value(golden.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(body.kind(), name);
        let now = serde_json::to_value(&body).unwrap();
        assert!(holds(&now, &golden), "{name}: {now:#} for {golden:#}");
    }
}

#[test]
fn what_version_1_left_out_is_filled_in() {
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
fn the_golden_files_are_of_the_version_that_is_written() {
    assert_eq!(EVENT_VERSION, 1, "a new version needs a folder of golden files of its own");
}

/// What the golden events fold to: a turn with a call and an agent under way, and a second message behind it.
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
    for ((kind, task), place) in events.into_iter().zip(1_u32..) {
        let body = serde_json::from_value(golden[kind].clone()).unwrap();
        state.apply(&Event {
            conversation,
            seq: Seq(u64::from(place)),
            at: Micros(1_000_000 * i64::from(place)),
            task: TaskId::from_uuid(Uuid::from_u128(task)),
            agent: AgentId::orchestrator(),
            body,
        });
    }
    state
}

#[test]
fn a_snapshot_is_read_and_is_what_its_events_fold_to_or_has_another_version() {
    let [(name, golden)] = &files("state_v9")[..] else { panic!("one file of a state") };
    assert_eq!((name.as_str(), STATE_VERSION), ("folded", 9), "a new version needs a folder of its own");
    let now = serde_json::to_value(folded()).unwrap();
    assert_eq!(&now, golden, "the fold is the same, or STATE_VERSION is raised: {now:#}");
    let read: Conversation = serde_json::from_value(golden.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(&serde_json::to_value(&read).unwrap(), golden, "it is read without loss, or STATE_VERSION is raised");
}
