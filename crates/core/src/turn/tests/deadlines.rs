//! What each class's deadlines lead to [S3 5.3.5].

use serde_json::json;

use super::{
    script::{collect, dispatch, tool, use_skill},
    world::World,
};
use crate::{
    classify::Spoken,
    event::{EventBody, Inbound, Mode, Priority, ReportStatus},
    ids::{AgentId, TaskId},
    letter::Letter,
    limits::Deadlines,
    message::{ModelError, ModelErrorKind},
    outcome::Outcome,
};

const HARD: EventBody = EventBody::DeadlinePassed { hard: true, letters: None };
const SOFT: EventBody = EventBody::DeadlinePassed { hard: false, letters: None };

fn letter(w: &World, task: TaskId) -> Option<Letter> {
    let EventBody::Failed { letter, .. } = w.finals(task)[0] else { panic!("no failure: {:?}", w.finals(task)) };
    letter.clone()
}

/// A turn of this class with one agent done and one under way.
fn busy(class: Priority) -> (World, TaskId) {
    let mut w = World::new();
    let task = w.say_as(class, "Much");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), collect(&[])]);
    w.agent_replies("a", "Created 7.", &[]);
    (w, task)
}

#[test]
fn soft_deadline_asks_the_model_once_to_come_to_an_end_when_it_has_results() {
    for class in Priority::ALL {
        let mut w = World::in_mode(Mode::SingleLoop);
        let task = w.say_as(class, "Much");
        assert_eq!(w.deadline(), Some((task, false)));
        w.happens(task, SOFT);
        assert_eq!(w.last_shown(), "Much", "the round under way is as it was");
        w.replies("", &[tool("0", "get_skill", &json!({}))]);
        assert!(!w.last_shown().contains("Time is nearly up"), "a slow first round is no reason: {}", w.last_shown());
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
fn time_that_a_round_waits_for_its_permit_is_not_the_tasks() {
    let mut w = World::new();
    let task = w.say("Much");
    let deadlines = Deadlines::default();
    let (before, ..) = w.conv.next_deadline(&deadlines).unwrap();
    let waiting = w.conv.next_deadline_but(&deadlines, |_, at, _| at.plus_ms(40_000));
    assert_eq!(waiting, Some((before.plus_ms(40_000), task, false)), "while it waits the caller knows");
    let mut reply = crate::turn::tests::world::replied(1, &crate::turn::tests::script::reply("", &[]), Vec::new());
    let EventBody::ModelReplied { waited_ms, .. } = &mut reply else { panic!("a reply") };
    *waited_ms = 40_000;
    w.wait_ms(40_000);
    w.happens(task, reply);
    assert_eq!(w.conv.next_deadline(&deadlines), Some((before.plus_ms(40_000), task, false)), "then the log says it");
}

#[test]
fn time_before_the_first_token_moves_the_soft_deadline_and_not_the_hard_one() {
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
    assert_eq!(w.conv.next_deadline(&deadlines), Some((soft.plus_ms(hard_ms), task, true)), "the hard one stays");
}

#[test]
fn longest_time_that_agents_read_at_the_same_time_moves_the_soft_deadline() {
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
fn time_that_a_failed_round_waited_for_its_permit_is_not_the_tasks() {
    let mut w = World::new();
    let task = w.say("Much");
    let deadlines = Deadlines::default();
    let (before, ..) = w.conv.next_deadline(&deadlines).unwrap();
    let error = ModelError::new(ModelErrorKind::ToolsUnsupported, "this model does not support tools");
    w.wait_ms(130_000);
    w.happens(task, EventBody::ModelFailed { round: 1, error, waited_ms: 130_000 });
    assert_eq!(w.turn().main.round, 2, "the round is asked again by commands");
    assert_eq!(w.conv.next_deadline(&deadlines), Some((before.plus_ms(130_000), task, false)));
}

#[test]
fn wait_for_a_permit_moves_the_deadlines_of_a_person_by_its_limit_at_most() {
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
        assert_eq!(waits(&w, hours(5)), moved_ms.unsigned_abs(), "{class:?}: while it waits");
        w.wait_ms(hours(5));
        let error = ModelError::new(ModelErrorKind::ToolsUnsupported, "this model does not support tools");
        w.happens(task, EventBody::ModelFailed { round: 1, error, waited_ms: hours(5).unsigned_abs() });
        assert_eq!(w.turn().main.round, 2, "{class:?}: the round is asked again by commands");
        let (after, ..) = w.conv.next_deadline(&deadlines).unwrap();
        assert_eq!(after, before.plus_ms(moved_ms), "{class:?}: as the log says");
        let left_ms = if moved_ms == hours(5) { 1_000 } else { 0 };
        assert_eq!(waits(&w, 1_000), left_ms, "{class:?}: the limit is the turn's and not the round's");
    }
}

#[test]
fn wait_before_the_deadlines_began_to_count_does_not_move_them() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Much");
    w.suspend(task);
    w.wait_ms(3_600_000);
    w.let_go_on(task);
    let from = w.turn().clock.from;
    w.wait_ms(2_000);
    let error = ModelError::new(ModelErrorKind::ToolsUnsupported, "this model does not support tools");
    w.happens(task, EventBody::ModelFailed { round: 1, error, waited_ms: 3_602_000 });
    let moved_ms = w.turn().clock.from.since_ms(from);
    assert!((2_000..2_100).contains(&moved_ms), "{moved_ms}");
}

#[test]
fn longest_wait_of_agents_at_the_same_time_is_not_the_tasks() {
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
fn spoken_requests_have_the_time_of_their_kind() {
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
fn deadlines_count_from_a_turns_beginning_and_the_soft_one_comes_first() {
    let mut w = World::new();
    w.slow_facts = true;
    let deadlines = Deadlines::default();
    let first = w.say("one");
    let accepted = w.log[0].at;
    assert_eq!(w.conv.next_deadline(&deadlines), Some((accepted.plus_ms(120_000), first, true)));
    // While the process is away nobody can begin it.
    w.wait_ms(3_600_000);
    w.begin();
    let begun = w.conv.turn(first).expect("it has begun").started_at;
    assert_eq!(w.conv.next_deadline(&deadlines), Some((begun.plus_ms(30_000), first, false)));
    w.deadline();
    assert_eq!(w.conv.next_deadline(&deadlines), Some((begun.plus_ms(120_000), first, true)));
    w.deadline();
    assert_eq!(w.conv.next_deadline(&deadlines), None);
}

#[test]
fn at_the_hard_deadline_realtime_says_that_it_has_trouble() {
    let (mut w, task) = busy(Priority::Realtime);
    w.happens(task, HARD);
    let (how, text) = w.ending(task);
    assert!(how == "failed" && text.starts_with("deadline: I'm having trouble with that right now."), "{text}");
    assert_eq!(letter(&w, task), None);
    assert_eq!(w.statuses(task), [("a", ReportStatus::Completed), ("b", ReportStatus::Cancelled)]);
}

#[test]
fn at_the_hard_deadline_high_work_answers_with_what_it_has_and_can_be_continued() {
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
fn a_turn_that_ran_out_of_time_among_its_calls_can_be_continued_by_any_provider() {
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
fn at_the_hard_deadline_background_work_is_put_off_once_and_goes_on_from_where_it_is() {
    for class in [Priority::Normal, Priority::Low] {
        let (mut w, task) = busy(class);
        w.happens(task, HARD);
        let until = w.conv.turn(task).and_then(|t| t.deferral.until).expect("it is deferred");
        assert!(until.since_ms(w.now).abs_diff(w.limits.defer_ms) < 10);
        assert!(matches!(w.log.last().map(|e| &e.body), Some(EventBody::Deferred { .. })));
        assert_eq!(w.running(), ["b"], "what is under way goes on");
        let next = w.say_as(class, "Next");
        assert!(w.conv.turn(next).is_some(), "its lane goes on");
        w.on(next).replies("n", &[]);
        let (at, _, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
        assert!(at > until && !hard, "they count anew from when it may go on");
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
        let letter = letter(&w, task).expect("a letter");
        assert_eq!(letter.retry_at, Some(letter.since.plus_ms(6 * 3_600_000)));
        assert_eq!(letter.tried, [format!("the hard deadline of class {} passed", class.as_str())]);
    }
}

#[test]
fn what_was_put_off_goes_on_at_once_when_its_user_says_so() {
    let (mut w, task) = busy(Priority::Normal);
    w.happens(task, HARD);
    w.let_go_on(task);
    let deferral = w.conv.turn(task).expect("it is under way").deferral;
    assert!(deferral.until.is_some_and(|until| until <= w.now) && deferral.count == 1, "{deferral:?}");
    let deferred: Vec<_> = w.log.iter().filter(|e| matches!(e.body, EventBody::Deferred { .. })).collect();
    assert_eq!(deferred.len(), 2, "the queue hears of it, too");
    let (at, _, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert!(!hard && at <= w.now.plus_ms(300_000));
    w.let_go_on(task);
    assert_eq!(w.log.iter().filter(|e| matches!(e.body, EventBody::Deferred { .. })).count(), 2);
}

#[test]
fn at_the_hard_deadline_maintenance_is_given_up_and_nothing_is_kept() {
    let (mut w, task) = busy(Priority::Background);
    w.happens(task, HARD);
    assert!(w.ending(task).1.starts_with("deadline: It took longer than it may."));
    assert_eq!(letter(&w, task), None);
}

#[test]
fn a_turn_that_only_waits_for_its_agents_has_a_deadline_too() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    w.replies("It is under way.", &[]);
    assert!(w.finals(task).is_empty());
    assert_eq!((w.deadline(), w.deadline()), (Some((task, false)), Some((task, true))));
    assert_eq!(w.ending(task).0, "paused");
}

#[test]
fn a_message_that_could_not_begin_in_time_fails_with_a_letter_if_somebody_may_want_it_yet() {
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
        let letter = letter(&w, task);
        assert_eq!(letter.is_some(), matches!(class, Priority::Normal | Priority::Low), "{class:?}");
        let retried = letter.is_some_and(|l| l.retry_at.is_some());
        assert_eq!(retried, matches!(class, Priority::Normal | Priority::Low), "{class:?}");
        assert!(w.conv.is_idle());
    }
}

#[test]
fn a_message_is_late_only_after_its_time_has_come() {
    let mut w = World::new();
    let due = w.now.plus_ms(3_600_000);
    let task = w.receive(Inbound { not_before: Some(due), ..World::inbound("Remind me") });
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), Some((due.plus_ms(120_000), task, true)));
}

#[test]
fn what_is_held_back_has_no_deadlines_and_afterwards_they_count_anew() {
    let mut w = World::new();
    let (running, waiting) = (w.say("one"), w.say("two"));
    w.slow_facts = true;
    w.suspend(running);
    w.suspend(waiting);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), None);
    for task in [running, waiting] {
        w.happens(task, HARD);
        w.happens(task, HARD);
        assert!(w.finals(task).is_empty(), "what the clock said too late means nothing");
    }
    w.wait_ms(3_600_000);
    w.let_go_on(running);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), Some((w.now.plus_ms(30_000), running, false)));
    w.let_go_on(waiting);
    w.on(running).replies("1", &[]);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()).map(|(at, ..)| at > w.now), Some(true));
}

#[test]
fn a_turn_that_was_put_off_and_then_held_back_gets_its_whole_time() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Report");
    w.happens(task, HARD);
    w.suspend(task);
    w.let_go_on(task);
    let turn = w.conv.turn(task).expect("it is under way");
    assert_eq!((turn.clock.from, turn.deferral.until), (w.now.plus_ms(-1), Some(w.now.plus_ms(-1))));
}

#[test]
fn what_is_made_urgent_gets_the_time_of_its_new_class() {
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
    assert!(w.finals(task).is_empty(), "it was late as something else");
    w.begin();
    w.replies("Report", &[]);
    assert_eq!(w.answer(task), "Report");
}

#[test]
fn an_answer_that_is_there_is_given_however_late() {
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
        waited_ms: 0,
        prefill_ms: 0,
    };
    w.conv.fold(w.now, task, &main, &reply);
    w.conv.fold(w.now, task, &main, &HARD);
    let Some(EventBody::Answered { text, paused, .. }) = w.conv.decide().map(|d| d.body) else { panic!("no answer") };
    assert_eq!((text.as_str(), paused), ("Hi", false));
}

#[test]
fn a_message_behind_a_turn_of_its_lane_has_its_whole_time_once_the_lane_is_free() {
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
fn a_message_has_its_whole_time_when_the_turn_before_it_leaves_its_lane() {
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
fn the_time_in_which_the_process_was_away_is_nobodys_delay() {
    let mut w = World::new();
    let task = w.say("one");
    w.wait_ms(3_600_000);
    w.restart(crate::event::ResumeCause::Restart);
    let (at, late, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert!(at > w.now && at <= w.now.plus_ms(30_000) && late == task && !hard, "{at}");
}

#[test]
fn a_turn_that_was_put_off_is_not_to_blame_for_what_dies_meanwhile() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Much");
    w.happens(task, HARD);
    for _ in 0..3 {
        w.restart(crate::event::ResumeCause::Crash);
    }
    assert!(w.finals(task).is_empty());
    assert_eq!(w.conv.turn(task).map(|t| t.crashes), Some(0));
}

#[test]
fn what_waits_for_other_tasks_holds_nobody_up_and_has_no_deadlines_until_its_first_round() {
    let mut w = World::new();
    let other = w.log.len() as u128 + 77;
    let before = TaskId::from_uuid(uuid::Uuid::from_u128(other));
    let waits = w.receive(Inbound { after: vec![before], ..World::inbound("Then this") });
    let next = w.say("And now?");
    assert!(w.conv.turn(waits).is_some() && w.conv.turn(next).is_some(), "the one behind it has begun");
    w.on(next).replies("Now.", &[]);
    assert_eq!(w.conv.next_deadline(&Deadlines::default()), None);
    w.wait_ms(3_600_000);
    w.on(waits).replies("", &[tool("1", "get_skill", &json!({}))]);
    let (at, task, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert!(task == waits && !hard && at > w.now, "{at}");
}

#[test]
fn what_waited_for_other_tasks_has_its_whole_time_also_if_its_first_round_fails() {
    let mut w = World::new();
    w.route = ["a", "b"].map(str::to_owned).to_vec();
    let before = TaskId::from_uuid(uuid::Uuid::from_u128(77));
    let inbound = Inbound { after: vec![before], priority: Priority::Normal, ..World::inbound("Then this") };
    let waits = w.receive(inbound);
    w.wait_ms(3_600_000);
    w.model_fails(crate::message::ModelErrorKind::Unavailable);
    assert_eq!(w.turn().main.round, 2, "it is tried elsewhere");
    let (at, task, hard) = w.conv.next_deadline(&Deadlines::default()).expect("a deadline");
    assert!(task == waits && !hard && at > w.now, "{at}, it is {}", w.now);
}

#[test]
fn the_letter_of_a_message_that_never_began_keeps_to_the_limits_of_its_house() {
    let mut w = World::new();
    w.slow_facts = true;
    let task = w.say_as(Priority::Normal, "Much");
    let letters = crate::letter::LetterLimits { retry_after_ms: 60_000, ..crate::letter::LetterLimits::default() };
    for _ in 0..2 {
        w.happens(task, EventBody::DeadlinePassed { hard: true, letters: Some(letters.clone()) });
    }
    let passed = w.log.iter().rfind(|e| matches!(e.body, EventBody::DeadlinePassed { .. })).expect("it is late").at;
    assert_eq!(letter(&w, task).and_then(|l| l.retry_at), Some(passed.plus_ms(60_000)));
}
