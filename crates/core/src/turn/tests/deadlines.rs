//! The consequences of each class's deadlines [S3 5.3.5].

use serde_json::json;

use super::{
    script::{collect, dispatch, tool, use_skill},
    world::World,
};
use crate::{
    classify::Spoken,
    dead_letter::DeadLetter,
    event::{EventBody, Inbound, Mode, Priority, ReportStatus},
    ids::{AgentId, TaskId},
    limits::Deadlines,
    message::{ModelError, ModelErrorKind},
    outcome::Outcome,
};

const HARD: EventBody = EventBody::DeadlinePassed { hard: true, dead_letters: None };
const SOFT: EventBody = EventBody::DeadlinePassed { hard: false, dead_letters: None };

fn dead_letter(w: &World, task: TaskId) -> Option<DeadLetter> {
    let EventBody::Failed { dead_letter, .. } = w.finals(task)[0] else { panic!("no failure: {:?}", w.finals(task)) };
    dead_letter.clone()
}

/// A turn of this class with one finished and one running agent.
fn busy(class: Priority) -> (World, TaskId) {
    let mut w = World::new();
    let task = w.say_as(class, "Much");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), collect(&[])]);
    w.agent_replies("a", "Created 7.", &[]);
    (w, task)
}

#[test]
fn soft_deadline_asks_model_once_to_finish_if_it_has_results() {
    for class in Priority::ALL {
        let mut w = World::in_mode(Mode::SingleLoop);
        let task = w.say_as(class, "Much");
        assert_eq!(w.deadline(), Some((task, false)));
        w.happens(task, SOFT);
        assert_eq!(w.last_shown(), "Much", "the running round is unchanged");
        w.replies("", &[tool("0", "get_skill", &json!({}))]);
        assert!(
            !w.last_shown().contains("Time is nearly up"),
            "a slow first round is not asked to finish: {}",
            w.last_shown()
        );
        for n in 0..2 {
            w.replies("", &[use_skill(&n.to_string(), "tasks.search", &json!({"query": n.to_string()}))]);
            w.main_skill("none");
        }
        let shown: String = w.request().messages.iter().map(super::world::text_of).collect();
        assert_eq!(shown.matches("[Time is nearly up.").count(), 1, "{shown}");
        w.replies("What I have", &[]);
        assert_eq!(w.answer(task), "What I have");
    }
}

#[test]
fn deadlines_do_not_count_wait_for_permit() {
    let mut w = World::new();
    let task = w.say("Much");
    let deadlines = Deadlines::default();
    let (before, ..) = w.conv.next_deadline(&deadlines).unwrap();
    let waiting = w.conv.next_deadline_adjusted(&deadlines, |_, at, _| at.plus_ms(40_000));
    assert_eq!(
        waiting,
        Some((before.plus_ms(40_000), task, false)),
        "during the wait, the caller passes the waiting time in"
    );
    let mut reply = crate::turn::tests::world::replied(1, &crate::turn::tests::script::reply("", &[]), Vec::new());
    let EventBody::ModelReplied { waited_ms, .. } = &mut reply else { panic!("a reply") };
    *waited_ms = 40_000;
    w.wait_ms(40_000);
    w.happens(task, reply);
    assert_eq!(
        w.conv.next_deadline(&deadlines),
        Some((before.plus_ms(40_000), task, false)),
        "afterwards, the log contains the waiting time"
    );
}

#[test]
fn deadline_soft_is_extended_by_prefill_and_hard_is_not() {
    let mut w = World::new();
    let task = w.say("Much");
    let deadlines = Deadlines::default();
    let (soft, ..) = w.conv.next_deadline(&deadlines).unwrap();
    let reply = crate::turn::tests::script::reply("", &[tool("0", "get_skill", &json!({}))]);
    let calls = vec![crate::event::ResolvedCall {
        id: "0".to_owned(),
        name: "get_skill".to_owned(),
        raw: "{}".to_owned(),
        action: crate::event::Action::Answer {
            text: "none".to_owned(),
            is_error: false,
            is_unknown: false,
            is_malformed: false,
        },
    }];
    w.wait_ms(50_000);
    w.happens(task, super::world::replied(1, &reply, calls).after_prefill(48_000));
    assert_eq!(w.conv.next_deadline(&deadlines), Some((soft.plus_ms(48_000), task, false)));
    w.happens(task, SOFT);
    let hard_ms = i64::try_from(deadlines.high.hard_ms - deadlines.high.soft_ms).unwrap();
    assert_eq!(
        w.conv.next_deadline(&deadlines),
        Some((soft.plus_ms(hard_ms), task, true)),
        "the hard deadline is unchanged"
    );
}

#[test]
fn deadline_soft_is_extended_by_longest_concurrent_prefill_of_agents() {
    let mut w = World::new();
    w.say("Much");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), collect(&[])]);
    let deadlines = Deadlines::default();
    let (before, ..) = w.conv.next_deadline(&deadlines).unwrap();
    w.wait_ms(90_000);
    for (name, prefill_ms) in [("a", 30_000), ("b", 40_000)] {
        let reply = crate::turn::tests::script::reply("Done.", &[]);
        let body = super::world::replied(1, &reply, Vec::new()).after_prefill(prefill_ms);
        w.agent_records(&super::script::agent(name), body);
    }
    let (after, ..) = w.conv.next_deadline(&deadlines).unwrap();
    assert_eq!(after, before.plus_ms(40_000));
}

#[test]
fn deadlines_do_not_count_wait_for_permit_of_failed_round() {
    let mut w = World::new();
    let task = w.say("Much");
    let deadlines = Deadlines::default();
    let (before, ..) = w.conv.next_deadline(&deadlines).unwrap();
    let error = ModelError::new(ModelErrorKind::ToolsUnsupported, "this model does not support tools");
    w.wait_ms(130_000);
    w.happens(task, EventBody::ModelFailed { round: 1, error, waited_ms: 130_000 });
    assert_eq!(w.turn().main.round, 2, "the round is repeated with commands");
    assert_eq!(w.conv.next_deadline(&deadlines), Some((before.plus_ms(130_000), task, false)));
}

#[test]
fn deadlines_are_extended_by_permit_wait_up_to_its_limit() {
    let deadlines = Deadlines::default();
    let most_ms = i64::try_from(deadlines.permit_ms_max).unwrap();
    let hours = |n: i64| n * 3_600_000;
    for (class, moved_ms) in [
        (Priority::Realtime, 0),
        (Priority::High, most_ms),
        (Priority::Normal, hours(5)),
        (Priority::Low, hours(5)),
        (Priority::Background, hours(5)),
    ] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let task = w.say_as(class, "Much");
        let (before, ..) = w.conv.next_deadline(&deadlines).unwrap();
        let waits = |w: &World, ms: i64| w.turn().permit_credit_ms(&deadlines, ms.unsigned_abs());
        assert_eq!(waits(&w, hours(5)), moved_ms.unsigned_abs(), "{class:?}: during the wait");
        w.wait_ms(hours(5));
        let error = ModelError::new(ModelErrorKind::ToolsUnsupported, "this model does not support tools");
        w.happens(task, EventBody::ModelFailed { round: 1, error, waited_ms: hours(5).unsigned_abs() });
        assert_eq!(w.turn().main.round, 2, "{class:?}: the round is repeated with commands");
        let (after, ..) = w.conv.next_deadline(&deadlines).unwrap();
        assert_eq!(after, before.plus_ms(moved_ms), "{class:?}: according to the log");
        let left_ms = if moved_ms == hours(5) { 1_000 } else { 0 };
        assert_eq!(waits(&w, 1_000), left_ms, "{class:?}: the limit applies to the turn and not to each round");
    }
}

#[test]
fn deadlines_are_not_extended_by_wait_before_they_count() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Much");
    w.suspend(task);
    w.wait_ms(3_600_000);
    w.resume(task);
    let from = w.turn().clock.from;
    w.wait_ms(2_000);
    let error = ModelError::new(ModelErrorKind::ToolsUnsupported, "this model does not support tools");
    w.happens(task, EventBody::ModelFailed { round: 1, error, waited_ms: 3_602_000 });
    let moved_ms = w.turn().clock.from.since_ms(from);
    assert!((2_000..2_100).contains(&moved_ms), "{moved_ms}");
}

#[test]
fn deadlines_do_not_count_longest_concurrent_wait_of_agents() {
    let mut w = World::new();
    w.say("Much");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), collect(&[])]);
    let deadlines = Deadlines::default();
    let (before, ..) = w.conv.next_deadline(&deadlines).unwrap();
    w.wait_ms(90_000);
    for (name, waited_ms) in [("a", 60_000), ("b", 90_000)] {
        let reply = crate::turn::tests::script::reply("Done.", &[]);
        let body = crate::turn::tests::world::replied(1, &reply, Vec::new()).after_waiting(waited_ms);
        w.agent_records(&super::script::agent(name), body);
    }
    let (after, ..) = w.conv.next_deadline(&deadlines).unwrap();
    assert_eq!(after, before.plus_ms(90_000));
}

#[test]
fn deadlines_of_spoken_request_depend_on_its_kind() {
    for (kind, soft_ms, hard_ms) in
        [(Spoken::Simple, 3_000, 5_000), (Spoken::Action, 5_000, 8_000), (Spoken::Complex, 8_000, 12_000)]
    {
        let mut w = World::in_mode(Mode::SingleLoop);
        w.facts.spoken_as = Some(kind);
        let task = w.say_as(Priority::Realtime, "What is there?");
        let from = w.turn().clock.from;
        assert_eq!(w.conv.next_deadline(&Deadlines::default()), Some((from.plus_ms(soft_ms), task, false)));
        w.happens(task, SOFT);
        assert_eq!(w.conv.next_deadline(&Deadlines::default()), Some((from.plus_ms(hard_ms), task, true)));
    }
}

#[test]
fn deadlines_count_from_turn_start_and_soft_one_is_first() {
    let mut w = World::new();
    w.slow_facts = true;
    let deadlines = Deadlines::default();
    let first = w.say("one");
    let accepted = w.log[0].at;
    assert_eq!(w.conv.next_deadline(&deadlines), Some((accepted.plus_ms(120_000), first, true)));
    // While the process is down, no turn can begin.
    w.wait_ms(3_600_000);
    w.begin();
    let begun = w.conv.turn(first).expect("the turn has begun").started_at;
    assert_eq!(w.conv.next_deadline(&deadlines), Some((begun.plus_ms(30_000), first, false)));
    w.deadline();
    assert_eq!(w.conv.next_deadline(&deadlines), Some((begun.plus_ms(120_000), first, true)));
    w.deadline();
    assert_eq!(w.conv.next_deadline(&deadlines), None);
}

#[test]
fn hard_deadline_of_realtime_task_fails_with_apology() {
    let (mut w, task) = busy(Priority::Realtime);
    w.happens(task, HARD);
    let (how, text) = w.ending(task);
    assert!(how == "failed" && text.starts_with("deadline: I'm having trouble with that right now."), "{text}");
    assert_eq!(dead_letter(&w, task), None);
    assert_eq!(w.statuses(task), [("a", ReportStatus::Completed), ("b", ReportStatus::Cancelled)]);
}

#[test]
fn hard_deadline_of_high_task_answers_with_partial_results_and_pauses() {
    let (mut w, task) = busy(Priority::High);
    w.happens(task, HARD);
    let (how, text) = w.ending(task);
    assert_eq!(how, "paused");
    assert!(
        text.contains("Completed:\n- Do a: Created 7.") && text.contains("Not completed:\n- Do b (cancelled"),
        "{text}"
    );
    let EventBody::Answered { usage, .. } = w.finals(task)[0] else { panic!("no answer") };
    assert!(usage.input_tokens > 0);
    w.say("continue");
    let shown: Vec<String> = w.request().messages.iter().map(super::world::text_of).collect();
    assert!(shown.iter().any(|m| m.contains("Created 7.")), "{shown:?}");
}

#[test]
fn turn_paused_by_deadline_during_calls_has_result_for_every_call() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Mail Bob");
    let calls = [
        use_skill("1", "email.send", &json!({"to": "bob", "body": "hi"})),
        use_skill("2", "tasks.search", &json!({})),
        use_skill("3", "tasks.create", &json!({"title": "x"})),
    ];
    w.replies("", &calls);
    w.skill_ends(&AgentId::orchestrator(), 2, Outcome::success("created 7"));
    w.happens(task, HARD);
    assert!(w.ending(task).1.contains("May or may not have happened:\n- email.send"), "{}", w.ending(task).1);
    w.say("continue");
    let messages = w.request().messages;
    let results: Vec<String> = messages
        .iter()
        .filter_map(|m| match m {
            crate::message::Message::Tool { text, .. } => Some(text.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(results.len(), 3, "every call has a result: {messages:?}");
    assert!(results[0].starts_with("[unknown]") && results[1].starts_with("[not run]"), "{results:?}");
    assert_eq!(results[2], "created 7");
}

#[test]
fn hard_deadline_of_background_task_defers_once_and_then_fails() {
    for class in [Priority::Normal, Priority::Low] {
        let (mut w, task) = busy(class);
        w.happens(task, HARD);
        let until = w.conv.turn(task).and_then(|t| t.deferral.until).expect("the turn is deferred");
        assert!(until.since_ms(w.now).abs_diff(w.limits.defer_ms) < 10);
        assert!(matches!(w.log.last().map(|e| &e.body), Some(EventBody::Deferred { .. })));
        assert_eq!(w.running(), ["b"], "running agents continue");
        let next = w.say_as(class, "Next");
        assert!(w.conv.turn(next).is_some(), "the lane is free for the next turn");
        w.on(next).replies("n", &[]);
        let (at, _, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
        assert!(at > until && !hard, "deadlines count anew from the time of resumption");
        w.on(task).agent_replies("b", "b too", &[]);
        w.on(task).replies("Both", &[]);
        assert_eq!(w.answer(task), "Both");

        let (mut w, task) = busy(class);
        w.happens(task, HARD);
        w.happens(task, HARD);
        let (how, text) = w.ending(task);
        assert!(
            how == "failed" && text.contains("It took longer than it may.\n\nCompleted:\n- Do a: Created 7."),
            "{text}"
        );
        assert!(text.ends_with("I'll try again by myself in 6 hours."), "{text}");
        let dead_letter = dead_letter(&w, task).expect("a dead letter");
        assert_eq!(dead_letter.retry_at, Some(dead_letter.since.plus_ms(6 * 3_600_000)));
        assert_eq!(dead_letter.tried, [format!("the hard deadline of class {} passed", class.as_str())]);
    }
}

#[test]
fn deferred_turn_resumes_at_once_at_users_request() {
    let (mut w, task) = busy(Priority::Normal);
    w.happens(task, HARD);
    w.resume(task);
    let deferral = w.conv.turn(task).expect("the turn is running").deferral;
    assert!(deferral.until.is_some_and(|until| until <= w.now) && deferral.count == 1, "{deferral:?}");
    let deferred: Vec<_> = w.log.iter().filter(|e| matches!(e.body, EventBody::Deferred { .. })).collect();
    assert_eq!(deferred.len(), 2, "the queue is notified of the resumption");
    let (at, _, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert!(!hard && at <= w.now.plus_ms(300_000));
    w.resume(task);
    assert_eq!(w.log.iter().filter(|e| matches!(e.body, EventBody::Deferred { .. })).count(), 2);
}

#[test]
fn hard_deadline_of_maintenance_fails_without_dead_letter() {
    let (mut w, task) = busy(Priority::Background);
    w.happens(task, HARD);
    assert!(w.ending(task).1.starts_with("deadline: It took longer than it may."));
    assert_eq!(dead_letter(&w, task), None);
}

#[test]
fn deadline_applies_to_turn_waiting_for_agents() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    w.replies("It is under way.", &[]);
    assert!(w.finals(task).is_empty());
    assert_eq!((w.deadline(), w.deadline()), (Some((task, false)), Some((task, true))));
    assert_eq!(w.ending(task).0, "paused");
}

#[test]
fn message_that_misses_deadline_fails_with_dead_letter_depending_on_class() {
    for (class, terms) in [
        (Priority::Realtime, 1),
        (Priority::High, 1),
        (Priority::Normal, 2),
        (Priority::Low, 2),
        (Priority::Background, 1),
    ] {
        let mut w = World::new();
        w.slow_facts = true;
        let task = w.say_as(class, "Hello");
        for n in 0..terms {
            assert!(w.finals(task).is_empty(), "{class:?} in term {n}");
            assert_eq!(w.deadline(), Some((task, true)));
        }
        let (how, text) = w.ending(task);
        assert!(how == "failed" && text.starts_with("deadline: "), "{text}");
        let dead_letter = dead_letter(&w, task);
        assert_eq!(dead_letter.is_some(), matches!(class, Priority::Normal | Priority::Low), "{class:?}");
        let retried = dead_letter.is_some_and(|l| l.retry_at.is_some());
        assert_eq!(retried, matches!(class, Priority::Normal | Priority::Low), "{class:?}");
        assert!(w.conv.is_idle());
    }
}

#[test]
fn delayed_message_has_deadline_only_after_its_time() {
    let mut w = World::new();
    let due = w.now.plus_ms(3_600_000);
    let task = w.receive(Inbound { not_before: Some(due), ..World::inbound("Remind me") });
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), Some((due.plus_ms(120_000), task, true)));
}

#[test]
fn suspended_task_has_no_deadlines_and_they_restart_on_resumption() {
    let mut w = World::new();
    let (running, waiting) = (w.say("one"), w.say("two"));
    w.slow_facts = true;
    w.suspend(running);
    w.suspend(waiting);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), None);
    for task in [running, waiting] {
        w.happens(task, HARD);
        w.happens(task, HARD);
        assert!(w.finals(task).is_empty(), "a late deadline event is ignored");
    }
    w.wait_ms(3_600_000);
    w.resume(running);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), Some((w.now.plus_ms(30_000), running, false)));
    w.resume(waiting);
    w.on(running).replies("1", &[]);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()).map(|(at, ..)| at > w.now), Some(true));
}

#[test]
fn deferred_turn_that_was_suspended_gets_full_deadline() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.happens(task, HARD);
    w.suspend(task);
    w.resume(task);
    let turn = w.conv.turn(task).expect("the turn is running");
    assert_eq!((turn.clock.from, turn.deferral.until), (w.now.plus_ms(-1), Some(w.now.plus_ms(-1))));
}

#[test]
fn deadlines_follow_changed_class() {
    let mut w = World::new();
    let task = w.say_as(Priority::Low, "Report");
    w.wait_ms(20 * 60_000);
    w.make(task, Priority::High);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), Some((w.now.plus_ms(30_000), task, false)));

    let mut w = World::new();
    w.slow_facts = true;
    let task = w.say_as(Priority::Normal, "Report");
    w.deadline();
    w.make(task, Priority::High);
    assert!(w.finals(task).is_empty(), "the deadline of the former class does not count");
    w.begin();
    w.replies("Report", &[]);
    assert_eq!(w.answer(task), "Report");
}

#[test]
fn existing_answer_is_given_after_deadline() {
    let mut w = World::new();
    let task = w.say("Hello");
    let main = AgentId::orchestrator();
    let reply = EventBody::ModelReplied {
        round: 1,
        text: "Hi".to_owned(),
        calls: Vec::new(),
        finish: crate::message::Finish::Stop,
        usage: crate::message::Usage::default(),
        model: String::new(),
        backend: String::new(),
        declined: false,
        provider_state: None,
        repairs: Vec::new(),
        cached: false,
        waited_ms: 0,
        prefill_ms: 0,
        judged: None,
    };
    w.conv.fold(w.now, task, &main, &reply);
    w.conv.fold(w.now, task, &main, &HARD);
    let Some(EventBody::Answered { text, paused, .. }) = w.conv.decide().map(|d| d.body) else { panic!("no answer") };
    assert_eq!((text.as_str(), paused), ("Hi", false));
}

#[test]
fn deadline_of_waiting_message_starts_when_lane_is_free() {
    let mut w = World::new();
    let (first, second) = (w.say("one"), w.say("two"));
    w.wait_ms(110_000);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()).map(|(_, task, _)| task), Some(first));
    w.slow_facts = true;
    w.on(first).replies("1", &[]);
    let (at, task, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert_eq!((at, task, hard), (w.now.plus_ms(120_000), second, true));
}

#[test]
fn deadline_of_waiting_message_starts_when_turn_leaves_lane() {
    let mut w = World::new();
    let (first, second) = (w.say("one"), w.say("two"));
    w.wait_ms(110_000);
    w.slow_facts = true;
    w.make(first, Priority::Normal);
    let deadlines = Deadlines::default();
    let (at, task, hard) = w.conv.next_deadline(&deadlines).expect("a deadline");
    assert_eq!((at, task, hard), (w.now.plus_ms(120_000), second, true));
}

#[test]
fn deadlines_do_not_count_downtime_of_process() {
    let mut w = World::new();
    let task = w.say("one");
    w.wait_ms(3_600_000);
    w.restart(crate::event::ResumeCause::Restart);
    let (at, late, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert!(at > w.now && at <= w.now.plus_ms(30_000) && late == task && !hard, "{at}");
}

#[test]
fn deferred_turn_is_not_blamed_for_crash() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Much");
    w.happens(task, HARD);
    for _ in 0..3 {
        w.restart(crate::event::ResumeCause::Crash);
    }
    assert!(w.finals(task).is_empty());
    assert_eq!(w.conv.turn(task).map(|t| t.recovery.crashes), Some(0));
}

#[test]
fn turn_waiting_for_other_tasks_blocks_no_lane_and_has_no_deadlines() {
    let mut w = World::new();
    let other = w.log.len() as u128 + 77;
    let before = TaskId::from_uuid(uuid::Uuid::from_u128(other));
    let waits = w.receive(Inbound { after: vec![before], ..World::inbound("Then this") });
    let next = w.say("And now?");
    assert!(w.conv.turn(waits).is_some() && w.conv.turn(next).is_some(), "the next message has begun");
    w.on(next).replies("Now.", &[]);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), None);
    w.wait_ms(3_600_000);
    w.on(waits).replies("", &[tool("1", "get_skill", &json!({}))]);
    let (at, task, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert!(task == waits && !hard && at > w.now, "{at}");
}

#[test]
fn turn_that_waited_for_other_tasks_gets_full_deadline_after_failed_round() {
    let mut w = World::new();
    w.route = ["a", "b"].map(str::to_owned).to_vec();
    let before = TaskId::from_uuid(uuid::Uuid::from_u128(77));
    let inbound = Inbound { after: vec![before], priority: Priority::Normal, ..World::inbound("Then this") };
    let waits = w.receive(inbound);
    w.wait_ms(3_600_000);
    w.model_fails(crate::message::ModelErrorKind::Unavailable);
    assert_eq!(w.turn().main.round, 2, "the round is retried on another backend");
    let (at, task, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert!(task == waits && !hard && at > w.now, "{at}, now is {}", w.now);
}

#[test]
fn dead_letter_of_message_that_never_began_follows_configured_limits() {
    let mut w = World::new();
    w.slow_facts = true;
    let task = w.say_as(Priority::Normal, "Much");
    let dead_letters = crate::dead_letter::DeadLetterLimits {
        retry_after_ms: 60_000,
        ..crate::dead_letter::DeadLetterLimits::default()
    };
    for _ in 0..2 {
        w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: Some(dead_letters.clone()) });
    }
    let passed =
        w.log.iter().rfind(|e| matches!(e.body, EventBody::DeadlinePassed { .. })).expect("the deadline has passed").at;
    assert_eq!(dead_letter(&w, task).and_then(|l| l.retry_at), Some(passed.plus_ms(60_000)));
}
