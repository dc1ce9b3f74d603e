//! Several turns at once: two lanes, what is held back, and what waits for its time.

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
fn what_a_person_waits_for_never_waits_behind_the_background() {
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
fn each_lane_begins_its_messages_in_their_order_one_at_a_time() {
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
    assert_eq!(running(&w), [b1, f2], "realtime waits for its own lane");
    w.on(b1).replies("1", &[]);
    assert_eq!(running(&w), [f2, b2], "background came before normal");
    w.on(b2).replies("2", &[]);
    w.on(f2).replies("2", &[]);
    assert_eq!(running(&w), [b3]);
}

#[test]
fn two_turns_have_agents_of_the_same_name_without_mixing_them_up() {
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
fn a_turn_remembers_what_was_answered_when_it_began() {
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
fn turns_side_by_side_share_the_conversations_window() {
    let mut w = World::with(Mode::SingleLoop, TurnLimits { window_calls_max: 3, ..TurnLimits::default() });
    let call = |n: u32| use_skill(&n.to_string(), "tasks.create", &json!({"title": n.to_string()}));
    let back = w.say_as(Priority::Normal, "Back");
    let front = w.say("Front");
    w.on(back).replies("", &[call(1), call(2)]);
    w.on(front).replies("", &[call(3), call(4)]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "two of three are under way elsewhere");
    w.main_skill("created");
    assert_eq!(w.ending(front).0, "paused");
    assert!(w.ending(front).1.contains("3 skill calls within"));
    w.on(back).main_skill("created");
    w.main_skill("created");
    w.wait_ms(400_000);
    w.on(back).replies("", &[call(5), call(6), call(7)]);
    assert_eq!(w.on(back).skill_calls(&AgentId::orchestrator()).len(), 3, "the window has moved on");
}

#[test]
fn agents_of_all_turns_are_granted_calls_out_of_one_window() {
    let mut w = World::with(Mode::MultiAgent, TurnLimits { window_calls_max: 7, ..TurnLimits::default() });
    let back = w.say_as(Priority::Normal, "Back");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    let front = w.say("Front");
    w.on(front).replies("", &[dispatch("b", &[]), collect(&[])]);
    assert_eq!((w.on(back).granted("a"), w.on(front).granted("b")), (5, 2));
}

#[test]
fn a_suspended_turn_stands_aside_and_goes_on_where_it_was() {
    let mut w = World::new();
    let first = w.say("First");
    let before: Vec<DirectiveId> = w.conv.outstanding(w.now).iter().map(crate::turn::Directive::id).collect();
    w.suspend(first);
    assert!(w.conv.is_idle(), "nothing but what is held back");
    assert_eq!(w.conv.outstanding(w.now).iter().map(crate::turn::Directive::id).collect::<Vec<_>>(), before);
    let second = w.say("Second");
    assert_eq!(running(&w), [first, second], "its lane goes on");
    w.on(second).replies("2", &[]);
    assert!(w.conv.is_idle());
    w.let_go_on(first);
    assert!(!w.conv.is_idle());
    let third = w.say("Third");
    assert_eq!(running(&w), [first, third], "it does not hold its lane up again");
    w.on(first).replies("1", &[]);
    assert_eq!(w.answer(first), "1");
}

#[test]
fn a_suspended_turn_is_at_rest_only_when_its_skills_and_agents_have_ended() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Mail Bob");
    w.replies("", &[use_skill("1", "email.send", &json!({"to": "bob", "body": "hi"}))]);
    w.suspend(task);
    assert!(!w.conv.is_idle(), "a run is under way");
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
    assert!(w.running().is_empty() && w.conv.is_idle(), "what is held back starts nobody");
    w.let_go_on(task);
    assert_eq!(w.running(), ["b"]);
}

#[test]
fn a_round_that_was_under_way_when_its_turn_was_suspended_may_be_its_last() {
    let mut w = World::new();
    let task = w.say("Hello");
    w.suspend(task);
    w.replies("Hi", &[]);
    assert_eq!(w.answer(task), "Hi");
}

#[test]
fn a_suspended_turn_can_be_cancelled() {
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
fn a_message_that_is_held_back_lets_the_others_go_first() {
    let mut w = World::new();
    let (one, two, three) = (w.say("one"), w.say("two"), w.say("three"));
    w.suspend(two);
    w.on(one).replies("1", &[]);
    assert_eq!(running(&w), [three]);
    w.replies("3", &[]);
    assert!(w.conv.is_idle());
    w.let_go_on(two);
    w.replies("2", &[]);
    assert_eq!(w.answer(two), "2");
    let four = w.say("four");
    w.suspend(two);
    w.cancel(four);
    assert!(w.conv.is_idle() && w.conv.turns.is_empty());
}

#[test]
fn a_message_that_is_held_back_can_be_cancelled() {
    let mut w = World::new();
    let (_, two) = (w.say("one"), w.say("two"));
    w.suspend(two);
    w.cancel(two);
    assert_eq!(w.ending(two).0, "cancelled");
}

#[test]
fn what_is_held_back_is_not_to_blame_for_a_death() {
    let mut w = World::new();
    let task = w.say("Hello");
    w.suspend(task);
    for _ in 0..10 {
        w.restart(ResumeCause::Crash);
        w.happens(task, EventBody::Resumed { cause: ResumeCause::Restart });
    }
    w.let_go_on(task);
    w.replies("Hi", &[]);
    assert_eq!(w.answer(task), "Hi");
}

#[test]
fn a_new_class_is_a_new_lane_for_a_message_and_for_a_turn() {
    let mut w = World::new();
    let (one, two, three) =
        (w.say_as(Priority::Normal, "one"), w.say_as(Priority::Normal, "two"), w.say_as(Priority::Normal, "three"));
    w.make(three, Priority::High);
    assert_eq!(running(&w), [one, three]);
    w.make(three, Priority::Low);
    assert_eq!(w.conv.turn(three).map(|t| t.lane), Some(Lane::Back));
    let front = w.say("front");
    assert_eq!(running(&w), [one, three, front], "nobody waits behind what is not urgent any more");
    w.on(front).replies("f", &[]);
    w.on(one).replies("1", &[]);
    assert_eq!(running(&w), [three], "two waits for the turn that is in its lane now");
    w.replies("3", &[]);
    assert_eq!(running(&w), [two]);
}

#[test]
fn voice_alone_is_realtime() {
    let mut w = World::new();
    let (voice, text) = (w.say_as(Priority::Realtime, "spoken"), w.say("typed"));
    w.make(voice, Priority::Low);
    w.make(text, Priority::Realtime);
    assert_eq!(w.turn().inbound.priority, Priority::Realtime);
    assert_eq!(w.conv.inbox[0].inbound.priority, Priority::High);
}

#[test]
fn a_message_begins_when_its_time_has_come_and_holds_nobody_up_before() {
    let mut w = World::new();
    let due = w.now.plus_ms(60_000);
    let later = w.receive(Inbound { not_before: Some(due), ..World::inbound("Remind me") });
    assert!(w.conv.turns.is_empty() && !w.conv.is_idle());
    assert_eq!(w.conv.next_due(w.now), Some(due));
    let now = w.say("Now");
    assert_eq!(running(&w), [now]);
    w.wait_ms(60_000);
    w.go_on();
    assert_eq!(running(&w), [now], "it waits for its lane like any other");
    let behind = w.say("Behind");
    w.replies("n", &[]);
    assert_eq!(running(&w), [later]);
    w.replies("l", &[]);
    assert_eq!(running(&w), [behind]);
}

#[test]
fn a_turn_begins_though_an_earlier_message_fell_due_while_its_facts_were_read() {
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
fn several_turns_go_on_after_a_restart_under_the_same_ids() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let back = w.say_as(Priority::Low, "Back");
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "x"}))]);
    let held = w.say("Held");
    w.suspend(held);
    let front = w.say("Front");
    let ids = |w: &World| w.conv.outstanding(w.now).iter().map(crate::turn::Directive::id).collect::<Vec<_>>();
    let before = ids(&w);
    w.restart(ResumeCause::Crash);
    assert_eq!(ids(&w), before);
    assert_eq!(running(&w), [back, held, front]);
    w.on(back).skill_ends(&AgentId::orchestrator(), 0, Outcome::success("created"));
    w.on(front).replies("f", &[]);
    w.on(back).replies("b", &[]);
    assert_eq!((w.answer(front), w.answer(back)), ("f".to_owned(), "b".to_owned()));
    assert!(w.conv.is_idle());
}
