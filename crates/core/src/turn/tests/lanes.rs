//! Concurrent turns: two lanes, suspended turns, and delayed messages.

use serde_json::json;

use super::{
    script::{collect, dispatch, use_skill},
    world::World,
};
use crate::{
    event::{EventBody, Inbound, Mode, Priority, ReportStatus, ResumeCause},
    ids::{AgentId, TaskId},
    limits::TurnLimits,
    outcome::Outcome,
    turn::{DirectiveId, Lane},
};

const BACK: [Priority; 3] = [Priority::Normal, Priority::Low, Priority::Background];

fn running(w: &World) -> Vec<TaskId> {
    w.conv.turns.iter().map(|t| t.task).collect()
}

#[test]
fn interactive_message_never_waits_for_background_turn() {
    for class in BACK {
        let mut w = World::new();
        let back = w.say_as(class, "A long report");
        let front = w.say("Hello");
        assert_eq!(running(&w), [back, front]);
        w.on(front).replies("Hi", &[]);
        assert_eq!(w.answer(front), "Hi");
        w.on(back).replies("The report", &[]);
        assert_eq!(w.answer(back), "The report");
    }
}

#[test]
fn lane_begins_messages_in_order_one_at_a_time() {
    let mut w = World::new();
    let [b1, f1, b2, f2, b3] = [
        w.say_as(Priority::Low, "b1"),
        w.say("f1"),
        w.say_as(Priority::Background, "b2"),
        w.say_as(Priority::Realtime, "f2"),
        w.say_as(Priority::Normal, "b3"),
    ];
    assert_eq!(running(&w), [b1, f1]);
    w.on(f1).replies("1", &[]);
    assert_eq!(running(&w), [b1, f2], "a realtime message waits for its own lane");
    w.on(b1).replies("1", &[]);
    assert_eq!(running(&w), [f2, b2], "the background message arrived before the normal one");
    w.on(b2).replies("2", &[]);
    w.on(f2).replies("2", &[]);
    assert_eq!(running(&w), [b3]);
}

#[test]
fn concurrent_turns_may_have_agents_of_same_name() {
    let mut w = World::new();
    let back = w.say_as(Priority::Normal, "Back");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    let front = w.say("Front");
    w.on(front).replies("", &[dispatch("a", &[]), collect(&[])]);
    w.on(front).agent_replies("a", "front's", &[]);
    assert!(w.on(front).results()[1].contains("front's"));
    w.on(back).agent_replies("a", "back's", &[]);
    assert!(w.on(back).results()[1].contains("back's"));
    w.on(back).replies("b", &[]);
    w.on(front).replies("f", &[]);
    assert_eq!((w.answer(back), w.answer(front)), ("b".to_owned(), "f".to_owned()));
}

#[test]
fn turn_history_contains_answers_given_before_it_began() {
    let mut w = World::new();
    let back = w.say_as(Priority::Normal, "Back");
    let front = w.say("Front");
    assert_eq!(w.on(front).request().messages.len(), 1);
    w.on(back).replies("b", &[]);
    w.on(front).replies("f", &[]);
    w.say("And?");
    let shown: Vec<String> = w.request().messages.iter().map(super::world::text_of).collect();
    assert_eq!(shown, ["Back", "b", "Front", "f", "And?"]);
}

#[test]
fn concurrent_turns_share_call_window_of_conversation() {
    let mut w = World::with(Mode::SingleLoop, TurnLimits { window_calls_max: 3, ..TurnLimits::default() });
    let call = |n: u32| use_skill(&n.to_string(), "tasks.create", &json!({"title": n.to_string()}));
    let back = w.say_as(Priority::Normal, "Back");
    let front = w.say("Front");
    w.on(back).replies("", &[call(1), call(2)]);
    w.on(front).replies("", &[call(3), call(4)]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "another turn uses two of three calls");
    w.main_skill("created");
    assert_eq!(w.ending(front).0, "paused");
    assert!(w.ending(front).1.contains("3 skill calls within"));
    w.on(back).main_skill("created");
    w.main_skill("created");
    w.wait_ms(400_000);
    w.on(back).replies("", &[call(5), call(6), call(7)]);
    assert_eq!(w.on(back).skill_calls(&AgentId::orchestrator()).len(), 3, "the calls have left the window");
}

#[test]
fn agents_of_concurrent_turns_share_call_window() {
    let mut w = World::with(Mode::MultiAgent, TurnLimits { window_calls_max: 7, ..TurnLimits::default() });
    let back = w.say_as(Priority::Normal, "Back");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    let front = w.say("Front");
    w.on(front).replies("", &[dispatch("b", &[]), collect(&[])]);
    assert_eq!((w.on(back).granted("a"), w.on(front).granted("b")), (5, 2));
}

#[test]
fn suspended_turn_frees_its_lane_and_resumes_where_it_was() {
    let mut w = World::new();
    let first = w.say("First");
    let before: Vec<DirectiveId> = w.conv.outstanding(w.now).iter().map(crate::turn::Directive::id).collect();
    w.suspend(first);
    assert!(w.conv.is_idle(), "only a suspended turn is left");
    assert_eq!(w.conv.outstanding(w.now).iter().map(crate::turn::Directive::id).collect::<Vec<_>>(), before);
    let second = w.say("Second");
    assert_eq!(running(&w), [first, second], "the lane is free for the next turn");
    w.on(second).replies("2", &[]);
    assert!(w.conv.is_idle());
    w.resume(first);
    assert!(!w.conv.is_idle());
    let third = w.say("Third");
    assert_eq!(running(&w), [first, third], "the resumed turn does not block its lane");
    w.on(first).replies("1", &[]);
    assert_eq!(w.answer(first), "1");
}

#[test]
fn suspended_turn_is_idle_only_after_skills_and_agents_have_ended() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Mail Bob");
    w.replies("", &[use_skill("1", "email.send", &json!({"to": "bob", "body": "hi"}))]);
    w.suspend(task);
    assert!(!w.conv.is_idle(), "a skill is running");
    w.main_skill("sent");
    assert!(w.conv.is_idle());

    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    w.suspend(task);
    assert!(!w.conv.is_idle());
    w.agent_replies("a", "done", &[]);
    assert!(w.conv.is_idle());

    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &["a"]), collect(&[])]);
    w.suspend(task);
    w.agent_replies("a", "done", &[]);
    assert!(w.running().is_empty() && w.conv.is_idle(), "a suspended turn starts no agent");
    w.resume(task);
    assert_eq!(w.running(), ["b"]);
}

#[test]
fn running_round_of_suspended_turn_may_complete_it() {
    let mut w = World::new();
    let task = w.say("Hello");
    w.suspend(task);
    w.replies("Hi", &[]);
    assert_eq!(w.answer(task), "Hi");
}

#[test]
fn suspended_turn_can_be_cancelled() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    w.suspend(task);
    w.cancel(task);
    assert_eq!(w.ending(task).0, "cancelled");
    assert_eq!(w.statuses(task), [("a", ReportStatus::Cancelled)]);
    assert!(w.conv.is_idle() && w.conv.turns.is_empty());
}

#[test]
fn suspended_message_does_not_block_later_messages() {
    let mut w = World::new();
    let (one, two, three) = (w.say("one"), w.say("two"), w.say("three"));
    w.suspend(two);
    w.on(one).replies("1", &[]);
    assert_eq!(running(&w), [three]);
    w.replies("3", &[]);
    assert!(w.conv.is_idle());
    w.resume(two);
    w.replies("2", &[]);
    assert_eq!(w.answer(two), "2");
    let four = w.say("four");
    w.suspend(two);
    w.cancel(four);
    assert!(w.conv.is_idle() && w.conv.turns.is_empty());
}

#[test]
fn suspended_message_can_be_cancelled() {
    let mut w = World::new();
    let (_, two) = (w.say("one"), w.say("two"));
    w.suspend(two);
    w.cancel(two);
    assert_eq!(w.ending(two).0, "cancelled");
}

#[test]
fn suspended_turn_is_not_blamed_for_crash() {
    let mut w = World::new();
    let task = w.say("Hello");
    w.suspend(task);
    for _ in 0..10 {
        w.restart(ResumeCause::Crash);
        w.happens(task, EventBody::Resumed { cause: ResumeCause::Restart });
    }
    w.resume(task);
    w.replies("Hi", &[]);
    assert_eq!(w.answer(task), "Hi");
}

#[test]
fn changed_class_moves_message_or_turn_to_another_lane() {
    let mut w = World::new();
    let (one, two, three) =
        (w.say_as(Priority::Normal, "one"), w.say_as(Priority::Normal, "two"), w.say_as(Priority::Normal, "three"));
    w.make(three, Priority::High);
    assert_eq!(running(&w), [one, three]);
    w.make(three, Priority::Low);
    assert_eq!(w.conv.turn(three).map(|t| t.lane), Some(Lane::Back));
    let front = w.say("front");
    assert_eq!(running(&w), [one, three, front], "no message waits for a turn that left the lane");
    w.on(front).replies("f", &[]);
    w.on(one).replies("1", &[]);
    assert_eq!(running(&w), [three], "message two waits for the turn that is now in its lane");
    w.replies("3", &[]);
    assert_eq!(running(&w), [two]);
}

#[test]
fn only_voice_can_be_realtime() {
    let mut w = World::new();
    let (voice, text) = (w.say_as(Priority::Realtime, "spoken"), w.say("typed"));
    w.make(voice, Priority::Low);
    w.make(text, Priority::Realtime);
    assert_eq!(w.turn().inbound.priority, Priority::Realtime);
    assert_eq!(w.conv.inbox[0].inbound.priority, Priority::High);
}

#[test]
fn delayed_message_begins_when_due_and_does_not_block_its_lane() {
    let mut w = World::new();
    let due = w.now.plus_ms(60_000);
    let later = w.receive(Inbound { not_before: Some(due), ..World::inbound("Remind me") });
    assert!(w.conv.turns.is_empty() && !w.conv.is_idle());
    assert_eq!(w.conv.next_due(w.now), Some(due));
    let now = w.say("Now");
    assert_eq!(running(&w), [now]);
    w.wait_ms(60_000);
    w.advance();
    assert_eq!(running(&w), [now], "a due message waits for its lane");
    let behind = w.say("Behind");
    w.replies("n", &[]);
    assert_eq!(running(&w), [later]);
    w.replies("l", &[]);
    assert_eq!(running(&w), [behind]);
}

#[test]
fn turn_begins_although_earlier_message_became_due_meanwhile() {
    let mut w = World::new();
    w.slow_facts = true;
    let due = w.now.plus_ms(1_000);
    let later = w.receive(Inbound { not_before: Some(due), ..World::inbound("later") });
    let now = w.say("now");
    assert_eq!(w.beginnings(), [now]);
    w.wait_ms(2_000);
    let (mode, facts, limits) = (w.mode, w.facts.clone(), w.limits.clone());
    w.happens(now, EventBody::TurnStarted { mode, facts, limits, route: Vec::new(), continues: None });
    assert_eq!(running(&w), [now]);
    w.replies("n", &[]);
    assert_eq!(w.beginnings(), [later]);
}

#[test]
fn concurrent_turns_resume_after_restart_under_same_ids() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let back = w.say_as(Priority::Low, "Back");
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "x"}))]);
    let suspended_task = w.say("Held");
    w.suspend(suspended_task);
    let front = w.say("Front");
    let ids = |w: &World| w.conv.outstanding(w.now).iter().map(crate::turn::Directive::id).collect::<Vec<_>>();
    let before = ids(&w);
    w.restart(ResumeCause::Crash);
    assert_eq!(ids(&w), before);
    assert_eq!(running(&w), [back, suspended_task, front]);
    w.on(back).skill_ends(&AgentId::orchestrator(), 0, Outcome::success("created"));
    w.on(front).replies("f", &[]);
    w.on(back).replies("b", &[]);
    assert_eq!((w.answer(front), w.answer(back)), ("f".to_owned(), "b".to_owned()));
    assert!(w.conv.is_idle());
}
