//! Failures around a turn: failing models, cancellations, crashes, and late or repeated events.

use serde_json::json;

use super::{
    script::{agent, cmd, collect, dispatch, dispatch_to_act, tool, use_skill},
    world::World,
};
use crate::{
    event::{Event, EventBody, Inbound, Mode, ReportStatus, ResumeCause},
    ids::{AgentId, IntentId, TaskId},
    limits::TurnLimits,
    message::ModelErrorKind,
    outcome::Outcome,
    turn::Directive,
};

const KINDS: [ModelErrorKind; 11] = [
    ModelErrorKind::RateLimited,
    ModelErrorKind::Overflow,
    ModelErrorKind::Auth,
    ModelErrorKind::Payment,
    ModelErrorKind::Content,
    ModelErrorKind::Timeout,
    ModelErrorKind::Truncated,
    ModelErrorKind::InDoubt,
    ModelErrorKind::Unavailable,
    ModelErrorKind::InvalidRequest,
    ModelErrorKind::Protocol,
];

#[test]
fn model_failure_of_each_kind_ends_turn_with_text_and_next_message_is_answered() {
    for kind in KINDS {
        let mut w = World::new();
        let (first, second) = (w.say("Hello"), w.say("Anyone?"));
        w.model_fails(kind);
        let (how, text) = w.ending(first);
        assert_eq!(how, "failed");
        assert!(text.contains(kind.as_str()), "{text}");
        let EventBody::Failed { detail, .. } = w.finals(first)[0] else { panic!("no failure") };
        assert!(detail.contains("so it is"), "the operator gets more details: {detail}");
        assert!(!text.contains("so it is"));
        w.replies("Here.", &[]);
        assert_eq!(w.answer(second), "Here.");
    }
}

#[test]
fn failed_turn_reports_effects_made_before_failure() {
    for kind in KINDS {
        let mut w = World::new();
        let task = w.say("Two things");
        w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), dispatch("c", &["b"]), collect(&["a"])]);
        w.agent_replies("a", "Found task 7.", &[]);
        w.model_fails(kind);
        let (_, text) = w.ending(task);
        assert!(text.contains("Completed:\n- Do a: Found task 7."), "{text}");
        assert!(text.contains("- Do b (cancelled: The orchestrator's model failed. What it had done until then may have taken effect.)"), "{text}");
        assert!(text.contains("- Do c (cancelled: The orchestrator's model failed. It had not started.)"), "{text}");
        assert_eq!(w.statuses(task)[1..], [("b", ReportStatus::Cancelled), ("c", ReportStatus::Cancelled)]);
        assert!(w.running().is_empty());
    }
}

#[test]
fn context_overflow_is_retried_once_without_history() {
    let mut w = World::new();
    w.say("One");
    w.replies("First", &[]);
    let task = w.say("Two");
    assert_eq!(w.request().messages.len(), 3);
    w.model_fails(ModelErrorKind::Overflow);
    assert_eq!((w.request().messages.len(), w.request().stable_messages), (1, 0));
    let turn = w.conv.turns.first().unwrap();
    assert_eq!(turn.main.rounds_max - turn.main.round, 5, "the round that exceeded the context does not count");
    w.model_fails(ModelErrorKind::Overflow);
    assert!(w.ending(task).1.starts_with("context_overflow"));
    w.say("Three");
    assert_eq!(w.request().messages.len(), 5, "the history is kept");
}

#[test]
fn context_overflow_in_turn_is_retried_with_shorter_results() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Read");
    w.replies("", &[use_skill("1", "tasks.search", &json!({}))]);
    w.main_skill(&"long ".repeat(2_000));
    w.model_fails(ModelErrorKind::Overflow);
    assert!(w.results()[0].len() <= 1_000);
    w.replies("Long.", &[]);
    assert_eq!(w.answer(task), "Long.");
}

#[test]
fn queued_message_can_be_cancelled() {
    let mut w = World::new();
    let (one, two, three) = (w.say("one"), w.say("two"), w.say("three"));
    w.cancel(two);
    assert_eq!(w.ending(two), ("cancelled", "Cancelled.".to_owned()));
    w.replies("1", &[]);
    w.replies("3", &[]);
    assert_eq!((w.answer(one), w.answer(three)), ("1".to_owned(), "3".to_owned()));
    w.cancel(two);
    assert_eq!(w.finals(two).len(), 1);
}

#[test]
fn message_can_be_cancelled_while_its_facts_are_read() {
    let mut w = World::new();
    w.slow_facts = true;
    let task = w.say("one");
    w.cancel(task);
    assert_eq!(w.ending(task).0, "cancelled");
    let late = EventBody::TurnStarted {
        mode: w.mode,
        facts: w.facts.clone(),
        limits: w.limits.clone(),
        route: Vec::new(),
        continues: None,
    };
    w.record(task, AgentId::orchestrator(), late);
    assert!(w.conv.is_idle(), "facts that arrive late do not begin a turn");
}

#[test]
fn turn_can_be_cancelled_during_model_call() {
    let mut w = World::new();
    let task = w.say("one");
    let late = w.conv.turns.first().unwrap().main.round;
    w.cancel(task);
    assert_eq!(w.ending(task), ("cancelled", "Cancelled.".to_owned()));
    w.say("two");
    let reply = EventBody::ModelReplied {
        round: late,
        text: "too late".to_owned(),
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
    w.record(task, AgentId::orchestrator(), reply);
    assert!(w.current().is_some_and(|t| t != task), "the late reply does not answer the next turn");
    assert_eq!(w.last_shown(), "two");
}

#[test]
fn cancelled_turn_ends_after_each_agent_reported_once() {
    let mut w = World::new();
    let task = w.say("Much");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), dispatch("c", &["a"]), dispatch("d", &[]), collect(&[])]);
    w.agent_replies("d", "d is done", &[]);
    w.agent_replies("a", &cmd("tasks.create --title x"), &[]);
    w.cancel(task);
    let expected = [
        ("d", ReportStatus::Completed),
        ("a", ReportStatus::Cancelled),
        ("b", ReportStatus::Cancelled),
        ("c", ReportStatus::Cancelled),
    ];
    assert_eq!(w.statuses(task), expected);
    assert!(w.log.last().unwrap().body.is_final() && w.running().is_empty() && w.conv.is_idle());
    let (kind, text) = w.ending(task);
    assert_eq!(kind, "cancelled");
    assert!(
        text.starts_with("Cancelled.\n\nCompleted:\n- Do d: d is done\n\nNot completed:\n- Do a (cancelled: "),
        "{text}"
    );
}

#[test]
fn cancelled_turn_reports_running_calls_as_in_doubt() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Mail Bob");
    let calls = [
        use_skill("1", "tasks.search", &json!({})),
        use_skill("2", "email.send", &json!({"to": "bob", "body": "hi"})),
        use_skill("3", "tasks.create", &json!({"title": "x"})),
    ];
    w.replies("", &calls);
    w.skill_ends(&AgentId::orchestrator(), 2, Outcome::success("created 7"));
    w.cancel(task);
    let (_, text) = w.ending(task);
    assert_eq!(
        text,
        "Cancelled.\n\nCompleted:\n- tasks.create: created 7\n\nMay or may not have happened:\n- email.send (it was under way)"
    );
}

#[test]
fn engine_crash_resumes_turn_once_and_second_crash_quarantines_message() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let (first, second) = (w.say("Mail Bob"), w.say("Hello"));
    w.replies("", &[use_skill("1", "email.send", &json!({"to": "bob", "body": "hi"}))]);
    w.skill_starts(&AgentId::orchestrator());
    let before = w.conv.outstanding(w.now).pop().unwrap();
    w.restart(ResumeCause::Crash);
    let after = w.conv.outstanding(w.now).pop().unwrap();
    assert_eq!(before.id(), after.id());
    assert!(matches!(after, Directive::CallSkill { started_before: true, .. }));
    w.restart(ResumeCause::Crash);
    let (kind, text) = w.ending(first);
    assert_eq!(kind, "failed");
    assert!(text.starts_with("engine_crashed: ") && text.contains("- email.send (it was under way)"), "{text}");
    w.replies("Hi", &[]);
    assert_eq!(w.answer(second), "Hi");
}

#[test]
fn engine_crash_is_blamed_on_one_turn_only() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Hello");
    for _ in 0..9 {
        w.restart(ResumeCause::Bystander);
    }
    let recovery = w.conv.turn(task).unwrap().recovery;
    assert_eq!((recovery.crashes, recovery.restarts), (0, 0));
    w.replies("Hi", &[]);
    assert_eq!(w.answer(task), "Hi");
}

#[test]
fn fifth_process_restart_in_turn_quarantines_message_after_its_agents() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &["a"]), collect(&[])]);
    for _ in 0..4 {
        w.restart(ResumeCause::Restart);
        assert_eq!(w.running(), ["a"]);
    }
    w.restart(ResumeCause::Restart);
    assert!(w.ending(task).1.starts_with("process_restarted"));
    assert_eq!(w.statuses(task), [("a", ReportStatus::Cancelled), ("b", ReportStatus::Cancelled)]);
}

#[test]
fn turn_waiting_for_other_tasks_survives_any_number_of_restarts() {
    let mut w = World::new();
    let before = TaskId::from_uuid(uuid::Uuid::from_u128(77));
    let waits = Inbound { after: vec![before], ..World::inbound("Then this") };
    let task = w.receive(waits.clone());
    for _ in 0..9 {
        w.restart(ResumeCause::Restart);
    }
    assert_eq!(w.conv.turn(task).map(|t| t.recovery.restarts), Some(0));
    w.on(task).replies("", &[tool("1", "get_skill", &json!({}))]);
    w.restart(ResumeCause::Restart);
    assert_eq!(
        w.conv.turn(task).map(|t| t.recovery.restarts),
        Some(1),
        "a turn that has begun its work counts restarts"
    );

    let task = w.receive(waits);
    w.only_logged(task, &AgentId::orchestrator(), EventBody::RoundBegan { round: 1, backend: "coder".to_owned() });
    w.restart(ResumeCause::Restart);
    assert_eq!(w.ending(task).0, "failed", "a program's round had begun");
}

#[test]
fn restart_between_turns_changes_nothing() {
    let mut w = World::new();
    w.say("One");
    w.replies("1", &[]);
    w.slow_facts = true;
    w.say("Two");
    w.restart(ResumeCause::Restart);
    assert_eq!(w.conv.outstanding(w.now).len(), 1);
    w.begin();
    assert_eq!(w.request().messages.len(), 3);
}

/// A world with much unfinished work, and its log.
fn busy(mode: Mode) -> World {
    let limits = TurnLimits::default();
    let mut w = World::with(mode, limits);
    w.say("One");
    w.replies("First", &[]);
    w.say("Two");
    if mode == Mode::MultiAgent {
        let agents = [dispatch_to_act("a", &[]), dispatch("b", &["a"]), dispatch("x", &["y"])];
        w.replies("", &agents.into_iter().chain([tool("?", "x", &json!({}))]).collect::<Vec<_>>());
        w.agent_replies("a", &cmd("tasks.create --title x"), &[]);
        w.skill_starts(&agent("a"));
        w.agent_skill("a", "created");
        w.agent_replies("a", "Done", &[]);
        w.agent_replies("b", "Done", &[]);
        w.replies("Well?", &[]);
    } else {
        w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "x"})), tool("2", "tasks__find", &json!({}))]);
        w.skill_starts(&AgentId::orchestrator());
        w.main_skill("created");
        w.replies(
            "",
            &[
                use_skill("1", "email.send", &json!({"to": "a", "body": "b"})),
                tool("1", "email__post", &json!({"to": "a", "body": "b"})),
            ],
        );
    }
    w.say("Three");
    w
}

#[test]
fn repeated_event_changes_nothing() {
    for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
        let w = busy(mode);
        let mut twice = w.conv.clone();
        let mut replay = crate::turn::Conversation::new(w.conv.id, w.conv.user.clone());
        for event in &w.log {
            replay.apply(event);
            // Immediately, like a repeated message to an actor.
            let once = replay.clone();
            if !matches!(event.body, EventBody::Resumed { .. }) {
                replay.fold(event.at, event.task, &event.agent, &event.body);
            }
            assert_eq!(replay, once, "{event:?}");
        }
        // And later, all events again.
        for event in &w.log {
            twice.fold(event.at, event.task, &event.agent, &event.body);
        }
        assert_eq!(super::world::timeless(&twice), super::world::timeless(&w.conv));
        assert_eq!(super::world::timeless(&replay), super::world::timeless(&w.conv));
    }
}

fn stray(w: &World, task: TaskId, agent: &AgentId, body: EventBody) {
    let mut conv = w.conv.clone();
    conv.fold(w.now, task, agent, &body);
    conv.at = w.conv.at;
    assert_eq!(conv, w.conv, "{body:?}");
}

#[test]
fn inapplicable_events_change_nothing() {
    let w = busy(Mode::SingleLoop);
    let task = w.current().unwrap();
    let main = AgentId::orchestrator();
    let unknown_agent = agent("nobody");
    let report = crate::event::AgentReport {
        tool_calls_used: u32::MAX,
        ..crate::event::AgentReport::bare(ReportStatus::Completed, "?")
    };
    let finished = |call_id: &str, intent: IntentId| EventBody::SkillFinished {
        intent,
        call_id: call_id.to_owned(),
        skill: "email.send".to_owned(),
        outcome: Outcome::success("!"),
        duration_ms: 0,
        route: None,
    };
    let other = IntentId::for_call(task, &main, "another");
    stray(&w, task, &main, EventBody::ResultsGiven);
    stray(&w, task, &unknown_agent, EventBody::AgentStarted { calls_granted: 5 });
    stray(&w, task, &unknown_agent, EventBody::AgentReported { report });
    // Round 1 had a call with the same id, as models do.
    stray(&w, task, &main, finished("1", other));
    stray(&w, task, &main, EventBody::SkillStarted { intent: other, call_id: "1".into(), skill: "email.send".into() });
    let waiting = w.conv.inbox[0].task;
    stray(&w, waiting, &main, EventBody::Joined { into: task });
    stray(&w, task, &main, EventBody::Joined { into: waiting });
    stray(
        &w,
        task,
        &main,
        EventBody::TurnStarted {
            mode: w.mode,
            facts: w.facts.clone(),
            limits: w.limits.clone(),
            route: Vec::new(),
            continues: None,
        },
    );
    let first: &Event = &w.log[0];
    stray(&w, first.task, &main, first.body.clone());
    stray(
        &w,
        first.task,
        &main,
        EventBody::Failed { code: "x".into(), text: "x".into(), detail: String::new(), dead_letter: None },
    );
    stray(&w, first.task, &main, EventBody::CancelRequested { by: "x".into() });
}

#[test]
fn calls_with_same_id_in_two_rounds_have_different_intents() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say("Twice");
    let call = |title: &str| use_skill("same", "tasks.create", &json!({"title": title}));
    w.replies("", &[call("x")]);
    let first = w.conv.outstanding(w.now).pop().unwrap();
    w.main_skill("created");
    w.replies("", &[call("y"), call("z")]);
    let wanted = w.conv.outstanding(w.now);
    assert_eq!(wanted.len(), 2);
    assert!(wanted.iter().all(|d| d.id() != first.id()) && wanted[0].id() != wanted[1].id());
    w.skill_ends(&AgentId::orchestrator(), 1, Outcome::success("second"));
    w.main_skill("first");
    assert_eq!(w.results(), ["first", "second"]);
}

#[test]
fn effect_with_unknown_outcome_is_not_repeated_at_models_request() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Mail Bob");
    let mail = |body: &str| use_skill("1", "email.send", &json!({"to": "bob", "body": body}));
    w.replies("", &[mail("hi")]);
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::unknown("Its receipt is missing.", json!({"id": 1})));
    assert!(w.results()[0].starts_with("[unknown] Its receipt is missing."));
    w.replies("", &[mail("hi")]);
    assert!(w.results()[0].starts_with("[blocked] This may have happened already"), "{:?}", w.results());
    w.replies("", &[mail("another")]);
    w.main_skill("sent");
    w.replies("I do not know whether the first mail was sent.", &[]);
    assert_eq!(w.ending(task).0, "answered");
}

#[test]
fn cancellation_during_program_round_reports_possible_effects() {
    let main = AgentId::orchestrator();
    let began = || EventBody::RoundBegan { round: 1, backend: "coder".to_owned() };
    let wanted = "Cancelled.\n\nMay or may not have happened:\n- the work of a program (it was under way)";
    let mut w = World::new();
    let task = w.say("Commit it");
    w.only_logged(task, &main, began());
    w.conv.round_acts(task, 1);
    w.cancel(task);
    assert_eq!(w.ending(task).1, wanted);

    let task = w.say("Commit it");
    w.only_logged(task, &main, began());
    w.conv.round_acts(task, 1);
    w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
    assert!(
        w.ending(task).1.contains("May or may not have happened:\n- the work of a program"),
        "{:?}",
        w.ending(task)
    );

    let task = w.say("Commit it");
    w.only_logged(task, &main, began());
    w.conv.round_acts(task, 1);
    w.add("And push it");
    w.replies("Committed.\nOn main.", &[]);
    w.cancel(task);
    assert_eq!(w.ending(task).1, "Cancelled.\n\nCompleted:\n- a program's work: Committed.");
}

#[test]
fn round_begun_on_agentic_backend_is_not_repeated_by_next_incarnation() {
    let mut w = World::new();
    let task = w.say("Commit it");
    let main = AgentId::orchestrator();
    w.only_logged(task, &main, EventBody::RoundBegan { round: 1, backend: "coder".to_owned() });
    assert_eq!(w.conv.outstanding(w.now).len(), 1, "this incarnation waits for the end of the round");
    w.restart(ResumeCause::Restart);
    assert!(w.ending(task).1.starts_with("model_in_doubt: "));

    let task = w.say_as(crate::event::Priority::Normal, "Commit it in the background");
    w.only_logged(task, &main, EventBody::RoundBegan { round: 1, backend: "coder".to_owned() });
    w.restart(ResumeCause::Crash);
    assert_eq!(w.ending(task).0, "failed", "the turn is not retried with another strategy");

    let task = w.say("Have it committed");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    w.only_logged(task, &agent("a"), EventBody::RoundBegan { round: 1, backend: "coder".to_owned() });
    w.restart(ResumeCause::Restart);
    let sub = w.conv.sub_turn(task, &agent("a")).expect("the agent is running");
    assert!(matches!(sub.interrupted(), Some(EventBody::ModelFailed { round: 1, .. })));
}

#[test]
fn fallback_reply_after_program_that_never_began_is_not_programs_work() {
    let main = AgentId::orchestrator();
    let backend = || "coder".to_owned();
    let mut w = World::new();
    let task = w.say("Commit it");
    w.only_logged(task, &main, EventBody::RoundBegan { round: 1, backend: backend() });
    w.conv.round_acts(task, 1);
    w.only_logged(task, &main, EventBody::RoundNotBegun { round: 1, backend: backend() });
    w.conv.round_does_not_act(task);
    w.replies("I created the task.", &[]);
    let answer = w.answer(task);
    assert!(answer.contains("Nothing was changed"), "{answer}");

    let task = w.say("Commit it");
    w.only_logged(task, &main, EventBody::RoundBegan { round: 1, backend: backend() });
    w.only_logged(task, &main, EventBody::RoundNotBegun { round: 1, backend: backend() });
    w.restart(ResumeCause::Restart);
    assert!(w.finals(task).is_empty(), "no program was interrupted: {:?}", w.finals(task));
    w.replies("Here is how to do it.", &[]);
    assert_eq!(w.answer(task), "Here is how to do it.");
}
