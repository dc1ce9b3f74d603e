//! Retries of failed background work with other strategies, before it becomes a dead letter [S3 5.9].

use super::{
    script::{cmd, collect, dispatch, dispatch_to_act, skill, skills, tool, use_skill},
    world::World,
};
use crate::{
    dead_letter::{DeadLetter, DeadLetterLimits, Strategy},
    event::{EventBody, Inbound, Mode, Priority, ResumeCause, Retry},
    ids::{AgentId, TaskId},
    message::{ModelErrorKind, ToolCall},
    outcome::Outcome,
    receipt::Receipt,
    skill::{ArgKind, Effect, SkillSet},
    time::Micros,
    turn::TaskEffects,
};

const HOUR_MS: i64 = 3_600_000;

fn dead_letter(w: &World, task: TaskId) -> DeadLetter {
    let EventBody::Failed { dead_letter, .. } = w.finals(task)[0] else { panic!("no failure: {:?}", w.finals(task)) };
    dead_letter.clone().expect("a dead letter")
}

fn strategies(w: &World) -> Vec<Strategy> {
    w.log
        .iter()
        .filter_map(|e| if let EventBody::Retried { strategy, .. } = e.body { Some(strategy) } else { None })
        .collect()
}

#[test]
fn background_task_is_retried_elsewhere_then_later_then_becomes_dead_letter() {
    for class in [Priority::Normal, Priority::Low, Priority::Background] {
        let mut w = World::new();
        w.limits.defer_ms = 60_000;
        w.route = ["a", "b", "c"].map(str::to_owned).to_vec();
        let task = w.say_as(class, "Report");
        w.model_fails(ModelErrorKind::Unavailable);
        assert_eq!(w.turn().route, ["b", "c", "a"], "the failed backend comes last");
        assert_eq!((w.turn().main.round, w.turn().deferral.until), (2, None));
        let first = w.now;
        w.model_fails(ModelErrorKind::Timeout);
        assert_eq!(strategies(&w), [Strategy::OtherBackend, Strategy::Later]);
        assert!(matches!(w.log.last().map(|e| &e.body), Some(EventBody::Deferred { .. })));
        assert_eq!(w.turn().deferral.count, 1);
        assert_eq!(w.turn().main.rounds_max - w.turn().main.round, 5, "failed rounds do not count");
        w.wait_ms(60_000);
        w.model_fails(ModelErrorKind::Protocol);
        let dead_letter = dead_letter(&w, task);
        assert_eq!(dead_letter.tried.len(), 3);
        for (tried, word) in dead_letter.tried.iter().zip(["unavailable", "timeout", "protocol"]) {
            assert!(tried.contains(word), "{tried}");
        }
        assert_eq!(dead_letter.since, first, "the time of the first failure");
        let wait_ms = dead_letter.retry_at.map(|at| at.since_ms(w.now).abs_diff(6 * HOUR_MS.unsigned_abs()));
        assert!(wait_ms < Some(10) && wait_ms.is_some());
        let text = w.ending(task).1;
        assert!(text.contains("I tried 3 times") && text.ends_with("I'll try again by myself in 6 hours."), "{text}");
        assert!(w.conv.is_idle());
    }
}

#[test]
fn turn_deferred_after_failures_is_retried_with_growing_waits_until_defer_time_is_used_up() {
    for (defer_ms, waits_ms) in [
        (900_000, vec![60_000, 120_000, 240_000, 480_000]),
        (100_000, vec![60_000, 40_000]),
        (5, vec![5]),
        (u64::MAX, vec![60_000, 120_000, 240_000, 480_000, 960_000]),
    ] {
        let mut w = World::new();
        w.limits.defer_ms = defer_ms;
        let task = w.say_as(Priority::Normal, "Report");
        w.model_fails(ModelErrorKind::Unavailable);
        for wait_ms in &waits_ms {
            w.model_fails(ModelErrorKind::Unavailable);
            let deferred = w.log.last().expect("an event");
            let EventBody::Deferred { until, after_failure: true, .. } = deferred.body else { panic!("{deferred:?}") };
            assert!(until.since_ms(deferred.at).abs_diff(*wait_ms) < 3, "{until} after {deferred:?}, of {defer_ms} ms");
            w.now = until;
            w.advance();
        }
        if defer_ms == u64::MAX {
            w.replies("Report", &[]);
            assert_eq!(w.answer(task), "Report", "the model answers again");
        } else {
            w.model_fails(ModelErrorKind::Unavailable);
            assert_eq!(dead_letter(&w, task).tried.len(), waits_ms.len() + 2, "of {defer_ms} ms");
        }
    }
}

#[test]
fn wait_that_is_lifted_is_not_used_up_and_lifts_are_bounded() {
    const LIFTS_MAX: usize = 4;
    let mut w = World::new();
    w.limits.defer_ms = 900_000;
    let task = w.say_as(Priority::Normal, "Report");
    w.model_fails(ModelErrorKind::Unavailable);
    let lifted = [(60_000, true); LIFTS_MAX];
    // The lifts that follow use their waits up.
    let waited = [(60_000, true), (120_000, true), (240_000, true), (480_000, false)];
    for (wait_ms, is_lifted) in lifted.into_iter().chain(waited) {
        w.model_fails(ModelErrorKind::Unavailable);
        let deferred = w.log.last().expect("an event");
        let EventBody::Deferred { until, after_failure: true, .. } = deferred.body else { panic!("{deferred:?}") };
        assert!(until.since_ms(deferred.at).abs_diff(wait_ms) < 3, "{until} after {deferred:?}");
        if is_lifted {
            // The scheduler does the same when the model answers another task. The second time lifts no other wait.
            w.resume(task);
            w.resume(task);
        } else {
            w.now = until;
            w.advance();
        }
    }
    w.model_fails(ModelErrorKind::Unavailable);
    assert_eq!(dead_letter(&w, task).tried.len(), LIFTS_MAX + 6, "the turn ends");
    assert!(w.ending(task).1.contains("I tried 10 times.\n"), "{}", w.ending(task).1);
}

#[test]
fn retry_continues_turn_with_its_results() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &["a"]), collect(&["a"])]);
    w.agent_replies("a", "found", &[]);
    w.model_fails(ModelErrorKind::Unavailable);
    assert!(w.results().iter().any(|r| r.contains("found")), "{:?}", w.results());
    assert_eq!(w.running(), ["b"], "the agents continue");
    w.agent_replies("b", "done", &[]);
    w.replies("", &[collect(&[])]);
    w.replies("Report", &[]);
    assert_eq!(w.answer(task), "Report");
}

#[test]
fn failure_of_interactive_task_is_reported_at_once_without_retry() {
    for class in [Priority::Realtime, Priority::High] {
        let mut w = World::new();
        let task = w.say_as(class, "Hello");
        w.model_fails(ModelErrorKind::Unavailable);
        assert!(strategies(&w).is_empty());
        assert!(
            matches!(w.finals(task)[0], EventBody::Failed { dead_letter: None, .. }),
            "{class:?}: {:?}",
            w.finals(task)
        );
        assert!(!w.ending(task).1.contains("I'll try again"));
    }
}

#[test]
fn requested_retry_of_dead_letter_becomes_dead_letter_again_on_failure() {
    let mut w = World::new();
    let before = vec!["x".to_owned()];
    let retry = Retry { tried: before, ..Retry::of(TaskId::from_uuid(uuid::Uuid::nil()), Micros(0)) };
    let task = w.receive(Inbound { priority: Priority::High, retry: Some(retry), ..World::inbound("Report") });
    w.model_fails(ModelErrorKind::Unavailable);
    let dead_letter = dead_letter(&w, task);
    assert_eq!((dead_letter.tried.len(), dead_letter.retry_at), (2, None), "kept without an automatic retry");
}

#[test]
fn failure_that_would_recur_is_not_retried_automatically() {
    for kind in [ModelErrorKind::Content, ModelErrorKind::InvalidRequest, ModelErrorKind::Overflow] {
        let mut w = World::new();
        let task = w.say_as(Priority::Normal, "Report");
        w.model_fails(kind);
        assert!(strategies(&w).is_empty());
        assert_eq!(dead_letter(&w, task).retry_at, None);
    }
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.restart(ResumeCause::Crash);
    w.restart(ResumeCause::Crash);
    assert!(w.ending(task).1.starts_with("engine_crashed"));
    assert_eq!(dead_letter(&w, task).retry_at, None, "a message that crashes Engines is not retried automatically");
}

#[test]
fn automatic_retries_stop_before_archive_time() {
    for (hours, again) in [(6, true), (41, true), (42, false), (47, false)] {
        let mut w = World::new();
        w.limits.defer_ms = 60_000;
        w.now = Micros(0).plus_ms(hours * HOUR_MS);
        let before = DeadLetter { tried: vec!["x".to_owned(), "y".to_owned()], since: Micros(0), retry_at: None };
        let retry = Retry { tried: before.tried, ..Retry::of(TaskId::from_uuid(uuid::Uuid::nil()), before.since) };
        let inbound = Inbound { priority: Priority::Normal, retry: Some(retry), ..World::inbound("Report") };
        let task = w.receive(inbound);
        for _ in 0..3 {
            w.model_fails(ModelErrorKind::Unavailable);
        }
        let dead_letter = dead_letter(&w, task);
        assert_eq!((dead_letter.since, dead_letter.tried.len()), (Micros(0), 5));
        assert_eq!(dead_letter.tried[..2], ["x", "y"]);
        assert_eq!(dead_letter.retry_at.is_some(), again, "after {hours} h");
        assert_eq!(w.ending(task).1.contains("I'll try again by myself"), again);
    }
}

#[test]
fn turn_deferred_after_failures_is_not_deferred_again_by_deadline() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.model_fails(ModelErrorKind::Unavailable);
    w.model_fails(ModelErrorKind::Unavailable);
    assert_eq!((w.deadline(), w.deadline()), (Some((task, false)), Some((task, true))));
    assert_eq!(dead_letter(&w, task).tried.len(), 3);
}

#[test]
fn turn_can_be_cancelled_and_suspended_between_attempts() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.model_fails(ModelErrorKind::Unavailable);
    w.suspend(task);
    w.model_fails(ModelErrorKind::Unavailable);
    assert!(w.conv.is_idle());
    w.resume(task);
    assert_eq!(w.turn().deferral.until, Some(w.turn().clock.from));
    w.cancel(task);
    assert_eq!(w.ending(task).0, "cancelled");
}

#[test]
fn retry_strategies_are_used_once_per_turn() {
    let mut w = World::in_mode(Mode::MultiAgent);
    w.limits.defer_ms = 60_000;
    let task = w.say_as(Priority::Normal, "Report");
    w.model_fails(ModelErrorKind::Unavailable);
    w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    w.model_fails(ModelErrorKind::Unavailable);
    w.replies("", &[tool("h", "get_skill", &serde_json::json!({"domain": "tasks"}))]);
    w.model_fails(ModelErrorKind::Unavailable);
    assert_eq!(strategies(&w), [Strategy::OtherBackend, Strategy::Later]);
    assert_eq!(w.ending(task).0, "failed");
}

/// A retry of a failed task, built from the log in the same way as by the worker for dead letters.
fn retry_of(w: &mut World, task: TaskId, priority: Priority) -> TaskId {
    let mut effects = TaskEffects::of(task);
    w.log.iter().for_each(|event| effects.take(event));
    let retry = effects.retry(w.now);
    w.receive(Inbound { priority, retry: Some(retry), ..World::inbound("Write to Bob") })
}

/// The first attempt, one on another backend, and one after each of the four waits.
fn fails_in_each_way(w: &mut World) {
    (0..6).for_each(|_| w.model_fails(ModelErrorKind::Unavailable));
}

#[test]
fn retry_does_not_repeat_effects_with_receipts_or_doubts() {
    let unknown = Outcome::unknown("Its receipt is missing.", serde_json::json!({}));
    for (outcome, shown, answered) in [
        (Outcome::success("Sent to Bob #9"), "Do not do it again.]", "[done already] Sent to Bob #9"),
        (unknown, "say that it is not known", "may have happened already"),
    ] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let main = AgentId::orchestrator();
        let send = use_skill("1", "email.send", &serde_json::json!({"to": "bob", "body": "hi"}));
        let mut task = w.say_as(Priority::Normal, "Write to Bob");
        w.replies("", std::slice::from_ref(&send));
        w.skill_ends(&main, 0, outcome);
        fails_in_each_way(&mut w);
        assert_eq!(dead_letter(&w, task).retry_at, None);
        assert!(w.ending(task).1.contains("I won't try it again by myself"), "{}", w.ending(task).1);
        // A retry by hand, and the dead letter of the retry in the same way. Background retries exist only for dead letters
        // of older versions.
        for class in [Priority::High, Priority::Background, Priority::High] {
            task = retry_of(&mut w, task, class);
            assert!(w.last_shown().contains(shown) && w.last_shown().contains("<result-"), "{}", w.last_shown());
            w.replies("", std::slice::from_ref(&send));
            assert!(w.skill_calls(&main).is_empty(), "{answered}");
            assert!(w.results()[0].contains(answered), "{:?}", w.results());
            fails_in_each_way_of(&mut w, class);
            assert_eq!(dead_letter(&w, task).retry_at, None);
        }
    }
}

fn fails_in_each_way_of(w: &mut World, class: Priority) {
    if class == Priority::High {
        w.model_fails(ModelErrorKind::Unavailable);
    } else {
        fails_in_each_way(w);
    }
}

#[test]
fn retry_does_not_repeat_effects_of_agents_of_failed_turn() {
    const CREATE: &str = "tasks.create --title milk";
    for (is_over, answered) in [(true, "[done already] Created task #1 milk"), (false, "may have happened already")] {
        let mut w = World::new();
        let task = w.say_as(Priority::Normal, "Buy milk");
        w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
        w.agent_replies("a", &cmd(CREATE), &[]);
        w.skill_starts(&super::script::agent("a"));
        if is_over {
            w.agent_skill("a", "Created task #1 milk");
        }
        w.agent_ends("a", crate::event::ReportStatus::Crashed);
        fails_in_each_way(&mut w);
        assert_eq!(dead_letter(&w, task).retry_at, None);
        retry_of(&mut w, task, Priority::High);
        w.replies("", &[dispatch_to_act("b", &[]), collect(&[])]);
        w.agent_replies("b", &cmd(CREATE), &[]);
        assert!(w.last_shown_to("b").contains(answered), "{}", w.last_shown_to("b"));
        assert!(w.skill_calls(&super::script::agent("b")).is_empty());
    }
}

#[test]
fn turn_with_program_round_is_not_retried_automatically() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say_as(Priority::Normal, "Write the file");
    w.only_logged(task, &AgentId::orchestrator(), EventBody::RoundBegan { round: 1, backend: "coder".to_owned() });
    w.conv.round_acts(task, 1);
    w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    fails_in_each_way(&mut w);
    assert_eq!(dead_letter(&w, task).retry_at, None);
}

#[test]
fn retry_with_earlier_effects_that_misses_deadline_waits_for_a_person() {
    let mut w = World::in_mode(Mode::SingleLoop);
    w.say_as(Priority::Normal, "Hold the lane");
    let doubt = ("email.send".to_owned(), serde_json::json!({"to": "bob"}));
    let retry = Retry { in_doubt: vec![doubt], ..Retry::of(TaskId::from_uuid(uuid::Uuid::nil()), w.now) };
    let retry = Inbound { priority: Priority::Normal, retry: Some(retry), ..World::inbound("Write to Bob") };
    let task = w.receive(retry);
    for _ in 0..2 {
        w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: Some(DeadLetterLimits::default()) });
    }
    assert_eq!(dead_letter(&w, task).retry_at, None);
}

const HARD: EventBody = EventBody::DeadlinePassed { hard: true, dead_letters: None };

/// A turn that has sent a message, or may have, and then paused this many times. The last continuation fails permanently.
fn fails_after_pauses(w: &mut World, send: &ToolCall, is_over: bool, pauses: usize) -> TaskId {
    let main = AgentId::orchestrator();
    let mut task = w.say("Write to Bob");
    w.replies("", std::slice::from_ref(send));
    w.skill_starts(&main);
    if is_over {
        w.main_skill("Sent to Bob #9");
    }
    for _ in 0..pauses {
        w.happens(task, HARD);
        assert_eq!(w.ending(task).0, "paused");
        let before = std::mem::replace(&mut task, w.say("yes, continue"));
        let is_it =
            |body: &EventBody| matches!(body, EventBody::TurnStarted { continues, .. } if *continues == Some(before));
        assert!(
            w.log.iter().any(|event| event.task == task && is_it(&event.body)),
            "the log records which turn is continued"
        );
    }
    w.make(task, Priority::Normal);
    fails_in_each_way(w);
    assert_eq!(dead_letter(w, task).retry_at, None);
    task
}

#[test]
fn retry_of_turn_continued_after_pauses_does_not_repeat_earlier_effects() {
    for (is_over, shown, answered) in [
        (true, "Do not do it again.]", "[done already] Sent to Bob #9"),
        (false, "say that it is not known", "may have happened already"),
    ] {
        for pauses in [1, 2] {
            let mut w = World::in_mode(Mode::SingleLoop);
            let send = use_skill("1", "email.send", &serde_json::json!({"to": "bob", "body": "hi"}));
            let task = fails_after_pauses(&mut w, &send, is_over, pauses);
            retry_of(&mut w, task, Priority::High);
            assert!(w.last_shown().contains(shown), "{pauses}: {}", w.last_shown());
            w.replies("", std::slice::from_ref(&send));
            assert!(w.skill_calls(&AgentId::orchestrator()).is_empty(), "{pauses}: {answered}");
            assert!(w.results()[0].contains(answered), "{:?}", w.results());
        }
    }
}

#[test]
fn retry_ignores_effects_of_turns_that_it_does_not_continue() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let send = use_skill("1", "email.send", &serde_json::json!({"to": "bob", "body": "hi"}));
    w.say("Write to Bob");
    w.replies("", std::slice::from_ref(&send));
    w.main_skill("Sent to Bob #9");
    w.replies("Sent.", &[]);
    let task = w.say_as(Priority::Normal, "Write to Bob once more");
    fails_in_each_way(&mut w);
    retry_of(&mut w, task, Priority::High);
    w.replies("", &[send]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "the new turn requested the effect itself");
}

#[test]
fn late_result_of_failed_turn_is_receipt_of_retry() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let main = AgentId::orchestrator();
    let send = use_skill("1", "email.send", &serde_json::json!({"to": "bob", "body": "hi"}));
    let task = w.say_as(Priority::Normal, "Write to Bob");
    w.replies("", std::slice::from_ref(&send));
    w.skill_starts(&main);
    let planned = w.turn().main.wanted_skills().map(|(_, planned)| planned.clone()).next().expect("a planned run");
    w.restart(ResumeCause::Crash);
    w.restart(ResumeCause::Crash);
    assert_eq!(w.ending(task).0, "failed");
    let (intent, skill) = (planned.intent, planned.skill);
    let outcome = Outcome::success("Sent to Bob #9");
    w.only_logged(
        task,
        &main,
        EventBody::SkillFinished { intent, call_id: "1".to_owned(), skill, outcome, duration_ms: 5, route: None },
    );
    retry_of(&mut w, task, Priority::High);
    assert!(w.turn().main.in_doubt.is_empty(), "{:?}", w.turn().main.in_doubt);
    w.replies("", &[send]);
    assert!(w.results()[0].contains("[done already] Sent to Bob #9"), "{:?}", w.results());
}

#[test]
fn retry_may_act_on_things_created_by_earlier_attempt() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let mut update = skill("tasks.update", Effect::Idempotent, &[("id", true)]);
    update.args[0].kind = ArgKind::Id;
    let all = skills().iter().map(|s| (**s).clone()).chain([update]).collect::<Vec<_>>();
    w.skills = SkillSet::new(all, [], 1);
    let made = Outcome::success("Created task #7 milk").with_evidence(serde_json::json!({"number": 7}));
    let receipt = Receipt::of("tasks.create", &serde_json::json!({"title": "milk"}), &made, Micros(1));
    let receipts = receipt.into_iter().collect();
    let retry = Retry { receipts, ..Retry::of(TaskId::from_uuid(uuid::Uuid::nil()), w.now) };
    w.receive(Inbound { retry: Some(retry), ..World::inbound("Buy milk and mark it") });
    w.replies("", &[use_skill("1", "tasks.update", &serde_json::json!({"id": 7}))]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "{:?}", w.results());
}

#[test]
fn effects_of_task_are_bounded_and_newest_are_kept() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let receipt = |n: i64| {
        let outcome = Outcome::success(format!("Sent {n}"));
        Receipt::of("email.send", &serde_json::json!({"n": n}), &outcome, Micros(n + 1)).unwrap()
    };
    let receipts = (0..1_500).map(receipt).collect();
    let in_doubt = (0..1_500).map(|n| ("email.send".to_owned(), serde_json::json!({"n": n}))).collect();
    let before = Retry { receipts, in_doubt, ..Retry::of(TaskId::from_uuid(uuid::Uuid::nil()), w.now) };
    w.slow_facts = true;
    let task = w.receive(Inbound { retry: Some(before), ..World::inbound("Write to all") });
    let mut effects = TaskEffects::of(task);
    w.log.iter().for_each(|event| effects.take(event));
    let retry = effects.retry(w.now);
    assert_eq!((retry.receipts.len(), retry.in_doubt.len()), (1_000, 1_000));
    assert_eq!(retry.receipts.last().unwrap().line, "Sent 1499");
    assert_eq!(retry.in_doubt.last().unwrap().1["n"], 1_499);
}

#[test]
fn retry_after_program_round_is_reported_and_not_retried_automatically() {
    let begins = |round| EventBody::RoundBegan { round, backend: "coder".to_owned() };
    for class in [Priority::High, Priority::Background] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let main = AgentId::orchestrator();
        let task = w.say_as(Priority::Normal, "Write the file");
        w.only_logged(task, &main, begins(1));
        w.conv.round_acts(task, 1);
        w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
        fails_in_each_way(&mut w);
        let task = retry_of(&mut w, task, class);
        assert!(w.last_shown().contains("[A program worked on an earlier try of this request"), "{}", w.last_shown());
        fails_in_each_way_of(&mut w, class);
        assert_eq!(dead_letter(&w, task).retry_at, None, "{class:?}");
        let task = retry_of(&mut w, task, Priority::High);
        w.replies("The file is there.", &[]);
        let answer = w.answer(task);
        assert!(answer.starts_with("The file is there.\n\n(A program had worked on an earlier try"), "{answer}");
    }
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say_as(Priority::Normal, "Write the file");
    w.only_logged(task, &AgentId::orchestrator(), begins(1));
    let not_begun = EventBody::RoundNotBegun { round: 1, backend: "coder".to_owned() };
    w.only_logged(task, &AgentId::orchestrator(), not_begun);
    fails_in_each_way(&mut w);
    retry_of(&mut w, task, Priority::High);
    assert!(!w.last_shown().contains("A program worked"), "no program had begun: {}", w.last_shown());
}
