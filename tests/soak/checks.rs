//! The checker catches each kind of violation: each test changes one thing in a correct history.

use crate::soak::{
    check::{Violation, Wrong, check},
    history::{Ack, Cancel, Foreign, Found, History, Kind, Log, LogEvent, Read, Stream, Submit, tokens_in},
};

const CONVERSATION: &str = "conv_1";

fn event(seq: u64, task: &str, kind: &str, token: &str) -> LogEvent {
    LogEvent {
        seq,
        task: task.to_owned(),
        agent: "orchestrator".to_owned(),
        kind: kind.to_owned(),
        class: if kind == "received" { "high".to_owned() } else { String::new() },
        intent: String::new(),
        code: String::new(),
        tokens: if token.is_empty() { Vec::new() } else { vec![token.to_owned()] },
        once: Vec::new(),
    }
}

fn submit(token: &str, task: &str, seq: u64, from_us: u64, kind: Kind) -> Submit {
    let ack = Ack {
        at_us: from_us + 10,
        task: task.to_owned(),
        conversation: CONVERSATION.to_owned(),
        seq,
        class: "high".to_owned(),
        answer: None,
    };
    let (user, token) = ("u0".to_owned(), token.to_owned());
    Submit { client: 0, user, token, kind, from_us, acks: vec![ack], refused: Vec::new(), unknown: 1 }
}

/// Two messages in a correct history. The second one is sent by the agentic backend.
fn good() -> (History, Found) {
    let events = vec![
        event(1, "a", "received", "TK0N1E"),
        event(2, "a", "turn_started", ""),
        event(3, "b", "received", "TK0N2E"),
        event(4, "a", "answered", "TK0N1E"),
        event(5, "b", "turn_started", ""),
        event(6, "b", "answered", "TK0N2E"),
    ];
    let seen = events.iter().map(|e| (e.seq, e.kind.clone(), e.task.clone())).collect();
    let message =
        |seq, role: &str, task: &str, token: &str| (seq, role.to_owned(), task.to_owned(), vec![token.to_owned()]);
    let history = History {
        submits: vec![submit("TK0N1E", "a", 1, 100, Kind::Plain), submit("TK0N2E", "b", 3, 200, Kind::Send)],
        streams: vec![Stream {
            user: "u0".to_owned(),
            conversation: CONVERSATION.to_owned(),
            seen,
            tokens: vec!["TK0N1E".to_owned()],
            ..Stream::default()
        }],
        reads: vec![Read {
            user: "u0".to_owned(),
            conversation: CONVERSATION.to_owned(),
            from_us: 300,
            down_to: 0,
            messages: vec![
                message(1, "user", "a", "TK0N1E"),
                message(3, "user", "b", "TK0N2E"),
                message(4, "assistant", "a", "TK0N1E"),
            ],
        }],
        ..History::default()
    };
    let log = Log { user: "u0".to_owned(), events };
    let found = Found {
        logs: [(CONVERSATION.to_owned(), log)].into(),
        sent: [("TK0N2E".to_owned(), 1)].into(),
        ..Found::default()
    };
    (history, found)
}

fn events(found: &mut Found) -> &mut Vec<LogEvent> {
    &mut found.logs.get_mut(CONVERSATION).expect("the log").events
}

/// The violations that are found after this change.
fn found_when(change: impl Fn(&mut History, &mut Found)) -> Vec<Violation> {
    let (mut history, mut found) = good();
    change(&mut history, &mut found);
    check(&history, &found)
}

/// Asserts that this change is found as this kind of violation.
fn catches(wrong: Wrong, change: impl Fn(&mut History, &mut Found)) {
    let all = found_when(change);
    assert!(!all.is_empty(), "{} was not found", wrong.name());
    assert!(all.iter().any(|v| v.wrong == wrong), "{} was wanted: {all:#?}", wrong.name());
}

#[test]
fn soak_check_accepts_a_correct_history() {
    assert_eq!(found_when(|_, _| ()), []);
}

#[test]
fn soak_check_reports_an_acknowledged_message_missing_from_the_log_as_lost() {
    catches(Wrong::Lost, |_, found| events(found).retain(|e| e.task != "b"));
}

#[test]
fn soak_check_reports_an_acknowledged_message_at_another_seq_as_lost() {
    catches(Wrong::Lost, |history, _| history.submits[0].acks[0].seq = 2);
}

#[test]
fn soak_check_reports_a_message_without_an_end_as_lost() {
    catches(Wrong::Lost, |_, found| {
        events(found).truncate(5);
    });
}

#[test]
fn soak_check_reports_an_unacknowledged_stored_message_without_an_end_as_lost() {
    catches(Wrong::Lost, |history, found| {
        history.submits[1].acks.clear();
        events(found).truncate(5);
    });
}

#[test]
fn soak_check_reports_a_gap_in_the_log_as_lost() {
    catches(Wrong::Lost, |_, found| {
        events(found).remove(1);
    });
}

#[test]
fn soak_check_reports_an_acknowledged_cancellation_missing_from_the_log_as_lost() {
    let cancel = |done| Cancel { conversation: CONVERSATION.to_owned(), task: "a".to_owned(), done };
    catches(Wrong::Lost, |history, _| history.cancels.push(cancel(Some(true))));
    assert_eq!(found_when(|history, _| history.cancels.extend([cancel(Some(false)), cancel(None)])), []);
}

#[test]
fn soak_check_reports_a_second_final_event_as_doubled() {
    catches(Wrong::Doubled, |_, found| events(found).push(event(7, "b", "answered", "TK0N2E")));
}

#[test]
fn soak_check_reports_a_message_stored_twice_as_doubled() {
    catches(Wrong::Doubled, |_, found| {
        events(found).extend([event(7, "c", "received", "TK0N2E"), event(8, "c", "answered", "TK0N2E")]);
    });
}

#[test]
fn soak_check_reports_acknowledgements_of_two_tasks_as_doubled() {
    catches(Wrong::Doubled, |history, _| {
        let other = Ack { task: "a".to_owned(), ..history.submits[1].acks[0].clone() };
        history.submits[1].acks.push(other);
    });
}

#[test]
fn soak_check_reports_a_second_report_of_an_agent_as_doubled() {
    catches(Wrong::Doubled, |_, found| {
        events(found)
            .extend([7, 8].map(|seq| LogEvent { agent: "one".to_owned(), ..event(seq, "b", "agent_reported", "") }));
    });
}

#[test]
fn soak_check_reports_two_answers_to_one_message_in_a_read_as_doubled() {
    catches(Wrong::Doubled, |history, _| {
        let again = (5, "assistant".to_owned(), "a".to_owned(), Vec::new());
        history.reads[0].messages.push(again);
    });
}

#[test]
fn soak_check_reports_a_later_message_stored_before_an_earlier_one_as_reordered() {
    catches(Wrong::Reordered, |history, _| {
        let (first, second) = (history.submits[0].from_us, history.submits[1].from_us);
        history.submits[0].from_us = second;
        history.submits[0].acks[0].at_us = second + 10;
        history.submits[1].from_us = first;
        history.submits[1].acks[0].at_us = first + 10;
        history.reads.clear();
    });
}

#[test]
fn soak_check_reports_overlapping_turns_of_one_lane_as_reordered() {
    catches(Wrong::Reordered, |history, found| {
        history.streams.clear();
        let events = events(found);
        events.swap(3, 4);
        events[3].seq = 4;
        events[4].seq = 5;
    });
}

#[test]
fn soak_check_accepts_parallel_turns_of_two_lanes() {
    let side_by_side = found_when(|history, found| {
        history.streams.clear();
        let events = events(found);
        events[2].class = "normal".to_owned();
        events.swap(3, 4);
        events[3].seq = 4;
        events[4].seq = 5;
    });
    assert!(side_by_side.iter().all(|v| v.wrong == Wrong::StaleRead || v.wrong == Wrong::Lost), "{side_by_side:#?}");
}

#[test]
fn soak_check_reports_text_of_another_user_in_logs_streams_and_reads() {
    let other = || Submit { user: "u1".to_owned(), acks: Vec::new(), ..submit("TK9N9E", "z", 1, 1, Kind::Plain) };
    catches(Wrong::CrossUser, |history, found| {
        history.submits.push(other());
        events(found)[3].tokens.push("TK9N9E".to_owned());
    });
    catches(Wrong::CrossUser, |history, _| {
        history.submits.push(other());
        history.streams[0].tokens.push("TK9N9E".to_owned());
    });
    catches(Wrong::CrossUser, |history, _| {
        history.submits.push(other());
        history.reads[0].messages[0].3.push("TK9N9E".to_owned());
    });
}

#[test]
fn soak_check_reports_access_granted_to_another_user() {
    let foreign = |status| Foreign { user: "u1".to_owned(), conversation: CONVERSATION.to_owned(), status };
    catches(Wrong::CrossUser, |history, _| history.foreigns.push(foreign(200)));
    assert_eq!(found_when(|history, _| history.foreigns.push(foreign(404))), []);
}

#[test]
fn soak_check_reports_an_effect_that_happened_twice() {
    catches(Wrong::OnceRepeated, |_, found| {
        found.sent.insert("TK0N2E".to_owned(), 2);
    });
    catches(Wrong::EffectRepeated, |_, found| {
        found.noted.insert("TK0N1E".to_owned(), 2);
    });
}

#[test]
fn soak_check_reports_a_once_run_that_began_twice() {
    let begun = |seq| LogEvent { intent: "intent_1".to_owned(), ..event(seq, "b", "skill_started", "") };
    let plan = |found: &mut Found| events(found)[4].once.push("intent_1".to_owned());
    catches(Wrong::OnceRepeated, |_, found| {
        plan(found);
        events(found).extend([begun(7), begun(8)]);
    });
    assert_eq!(
        found_when(|_, found| {
            plan(found);
            events(found).push(begun(7));
        }),
        []
    );
}

#[test]
fn soak_check_reports_an_answered_effect_that_did_not_happen() {
    catches(Wrong::Answer, |_, found| found.sent.clear());
}

#[test]
fn soak_check_reports_an_effect_that_no_message_requested() {
    catches(Wrong::Answer, |_, found| {
        found.sent.insert("TK0N1E".to_owned(), 1);
    });
}

#[test]
fn soak_check_reports_a_wrong_answer_and_a_failure_without_a_cause() {
    catches(Wrong::Answer, |_, found| events(found)[3].tokens = vec!["TK0N2E".to_owned()]);
    let failed = |code: &str| LogEvent { code: code.to_owned(), ..event(4, "a", "failed", "") };
    catches(Wrong::Answer, |history, found| {
        history.streams.clear();
        events(found)[3] = failed("internal");
    });
    let violations = found_when(|history, found| {
        history.streams.clear();
        events(found)[3] = failed("engine_crashed");
    });
    assert_eq!(violations, []);
    // Only an agentic backend may leave its work in doubt.
    catches(Wrong::Answer, |history, found| {
        history.streams.clear();
        events(found)[3] = failed("model_in_doubt");
    });
}

#[test]
fn soak_check_reports_a_stored_refusal_and_an_unexpected_refusal() {
    catches(Wrong::Answer, |history, _| {
        let refused = &mut history.submits[0];
        refused.acks.clear();
        refused.unknown = 0;
        refused.refused.push("queue_full".to_owned());
    });
    catches(Wrong::Answer, |history, _| history.submits[0].refused.push("conflict".to_owned()));
    assert_eq!(found_when(|history, _| history.submits[0].refused.push("queue_full".to_owned())), []);
}

#[test]
fn soak_check_reports_a_stream_with_a_gap_a_repeat_or_a_wrong_event() {
    catches(Wrong::Stream, |history, _| {
        history.streams[0].seen.remove(2);
    });
    catches(Wrong::Stream, |history, _| {
        let again = history.streams[0].seen[2].clone();
        history.streams[0].seen.insert(3, again);
    });
    catches(Wrong::Stream, |history, _| history.streams[0].seen[3].1 = "failed".to_owned());
    catches(Wrong::Stream, |history, _| history.streams[0].seen.push((7, "answered".to_owned(), "b".to_owned())));
    catches(Wrong::Stream, |history, _| history.streams[0].resets = 1);
}

#[test]
fn soak_check_accepts_a_stream_that_began_in_the_middle() {
    let later = found_when(|history, _| {
        history.streams[0].after = 2;
        history.streams[0].seen.drain(..2);
    });
    assert_eq!(later, []);
}

#[test]
fn soak_check_reports_a_read_without_an_earlier_acknowledged_message_as_stale() {
    catches(Wrong::StaleRead, |history, _| {
        history.reads[0].messages.remove(1);
    });
    let below_the_page = found_when(|history, _| {
        history.reads[0].messages.remove(0);
        history.reads[0].down_to = 2;
    });
    assert_eq!(below_the_page, []);
}

#[test]
fn soak_check_reports_a_finding_of_the_doctor() {
    catches(Wrong::Doctor, |_, found| found.doctor = Some("1 error(s)".to_owned()));
}

#[test]
fn tokens_in_finds_only_whole_tokens() {
    assert_eq!(tokens_in("zplain TK1N22E, then TK3N4E."), ["TK1N22E", "TK3N4E"]);
    assert_eq!(tokens_in("TKE TK12 TK1NxE TK"), Vec::<String>::new());
}
