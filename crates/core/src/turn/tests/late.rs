//! Messages that the log has at one place and of which the Engine hears at a later one: what it did meanwhile is the same in
//! every life, and so is what becomes of them.

use serde_json::json;

use super::{
    script::{collect, dispatch, tool, use_skill},
    world::{World, timeless},
};
use crate::{
    event::{Action, Event, EventBody, Inbound, Mode, Priority, ResumeCause},
    ids::{AgentId, Seq, TaskId},
    letter::LetterState,
    message::{ModelErrorKind, ToolCall},
    turn::{Conversation, Directive, DirectiveId},
};

const TAKEN_UP: &str = "Taken up in the answer to your earlier message.";

fn look() -> ToolCall {
    tool("g", "get_skill", &json!({}))
}

fn mail(to: &str) -> ToolCall {
    use_skill("m", "email.send", &json!({"to": to, "body": "b"}))
}

/// A message that steers is stored, and its Engine has not heard of it.
fn post_steer(w: &mut World, text: &str) -> TaskId {
    w.post(Inbound { steer: true, ..World::inbound(text) })
}

/// The next life; nothing that mattered to the former one is forgotten in it.
fn next_life(w: &mut World) {
    let (turns, runs) = (w.conv.turns.clone(), w.conv.outstanding(w.now));
    w.restart(ResumeCause::Restart);
    for turn in &turns {
        let now = w.conv.turn(turn.task).expect("it is under way");
        assert_eq!((&now.told, now.main.round, &now.main.messages), (&turn.told, turn.main.round, &turn.main.messages));
    }
    let asks = |d: &Directive| matches!(d.id(), DirectiveId::Model(..));
    assert_eq!(
        w.conv.outstanding(w.now).into_iter().filter(asks).collect::<Vec<_>>(),
        runs.into_iter().filter(asks).collect::<Vec<_>>()
    );
}

/// How many runs of a skill were planned, begun or not.
fn planned(w: &World, skill: &str) -> usize {
    let calls = w.log.iter().filter_map(|e| match &e.body {
        EventBody::ModelReplied { calls, .. } => Some(calls),
        _ => None,
    });
    calls.flatten().filter(|c| matches!(&c.action, Action::Skill(p) if p.skill == skill)).count()
}

fn has_begun(w: &World, task: TaskId) -> bool {
    w.log.iter().any(|e| e.task == task && matches!(e.body, EventBody::TurnStarted { .. }))
}

/// The log as it is if a message came into it before the turn of another began, which was not stored yet when the Engine
/// heard of the message.
fn stored_before_it_began(w: &World, message: TaskId, turn: TaskId) -> Vec<Event> {
    let mut log = w.log.clone();
    let received = log.iter().position(|e| e.task == message).expect("it was received");
    let received = log.remove(received);
    let began = |e: &Event| e.task == turn && matches!(e.body, EventBody::TurnStarted { .. });
    let began = log.iter().position(began).expect("it began");
    log.insert(began, received);
    for (event, seq) in log.iter_mut().zip(1..) {
        event.seq = Seq(seq);
    }
    log
}

/// The reply of an older message's commit was lost, so that the Engine hears of a younger one first.
#[test]
fn a_turn_that_began_before_an_older_message_was_heard_of_goes_on_in_the_next_life_and_repeats_nothing() {
    for is_same in [false, true] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let older = w.post(World::inbound("Mail Bob"));
        let same_as = is_same.then_some(older);
        let younger = w.receive(Inbound { same_as, ..World::inbound("Mail Bob too") });
        w.replies("", &[mail("bob")]);
        w.skill_starts(&AgentId::orchestrator());
        w.main_skill("sent");
        next_life(&mut w);
        assert_eq!(w.current(), Some(younger));
        assert!(w.skill_calls(&AgentId::orchestrator()).is_empty(), "it is not sent again");
        assert!(w.conv.inbox.iter().map(|p| p.task).eq([older]), "the older one waits for its lane");
        w.replies("Sent", &[]);
        w.on(older).replies("Nothing to do", &[]);
        assert_eq!((w.answer(younger), w.answer(older)), ("Sent".to_owned(), "Nothing to do".to_owned()));
        assert_eq!(planned(&w, "email.send"), 1);
    }
}

/// The beginning of a turn waits a moment before it is stored; meanwhile the Engine has heard of what came before it in the
/// log.
#[test]
fn what_a_turn_was_told_that_is_stored_before_its_beginning_was_told_to_it_in_every_life() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Mail Bob");
    let more = w.add("And Eve");
    w.replies("", &[look()]);
    assert!(w.last_shown().contains("And Eve"));
    w.replies("", &[mail("eve")]);
    w.main_skill("sent");
    w.log = stored_before_it_began(&w, more, task);
    next_life(&mut w);
    assert!(w.conv.inbox.is_empty(), "it is no message of its own");
    w.replies("Sent", &[]);
    assert_eq!((w.answer(task), w.answer(more)), ("Sent".to_owned(), TAKEN_UP.to_owned()));
    assert!(w.conv.is_idle() && !has_begun(&w, more));
}

/// A reply whose calls are answered at once leads straight to the next round.
#[test]
fn what_is_heard_of_after_a_round_was_sent_is_told_in_the_one_after_it_in_every_life() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = post_steer(&mut w, "In French");
    w.replies("", &[look()]);
    assert!(!w.last_shown().contains("In French"), "nobody has heard of it");
    w.hear(more);
    next_life(&mut w);
    w.replies("Hello!", &[]);
    assert!(w.finals(task).is_empty() && w.last_shown().ends_with("In French"));
    next_life(&mut w);
    w.replies("Salut !", &[]);
    assert_eq!((w.answer(task), w.answer(more)), ("Salut !".to_owned(), TAKEN_UP.to_owned()));
}

#[test]
fn what_nobody_heard_of_before_the_death_is_told_by_the_next_life() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = post_steer(&mut w, "In French");
    w.replies("", &[look()]);
    w.restart(ResumeCause::Crash);
    assert!(!w.last_shown().contains("In French"), "this round was asked without it");
    w.replies("Hello!", &[]);
    assert!(w.last_shown().ends_with("In French"));
    w.replies("Salut !", &[]);
    assert_eq!((w.answer(task), w.answer(more)), ("Salut !".to_owned(), TAKEN_UP.to_owned()));
}

#[test]
fn what_is_heard_of_while_a_said_answer_waits_for_agents_is_a_message_of_its_own_in_every_life() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    let late = post_steer(&mut w, "And mail Bob");
    w.replies("Under way", &[]);
    w.hear(late);
    assert!(w.conv.inbox.iter().any(|p| p.task == late), "its last word was said");
    w.agent_replies("a", "done", &[]);
    next_life(&mut w);
    assert!(w.conv.inbox.iter().any(|p| p.task == late));
    w.replies("Done", &[]);
    assert_eq!(w.answer(task), "Done");
    next_life(&mut w);
    w.on(late).replies("Mailed", &[]);
    assert_eq!(w.answer(late), "Mailed");
}

#[test]
fn what_is_heard_of_while_the_answer_is_stored_is_answered_by_itself_once() {
    for dies in [false, true] {
        let mut w = World::new();
        let task = w.say("Hello");
        let late = post_steer(&mut w, "In French");
        w.replies("Hello!", &[]);
        assert_eq!(w.answer(task), "Hello!");
        if dies {
            w.restart(ResumeCause::Crash);
        } else {
            w.hear(late);
        }
        assert_eq!(w.current(), Some(late));
        next_life(&mut w);
        w.replies("Salut !", &[]);
        assert_eq!(w.answer(late), "Salut !");
    }
}

#[test]
fn equal_work_that_is_heard_of_after_its_original_has_ended_has_a_turn_of_its_own_and_else_its_answer() {
    let same = |task: TaskId| Inbound { same_as: Some(task), ..World::inbound("Search") };
    for is_late in [false, true] {
        let mut w = World::new();
        let task = w.say("Search");
        let again = w.post(same(task));
        if !is_late {
            w.hear(again);
        }
        w.replies("Found", &[]);
        w.restart(ResumeCause::Crash);
        if is_late {
            w.replies("Found anew", &[]);
        }
        assert_eq!(w.answer(again), if is_late { "Found anew" } else { "Found" });
        assert_eq!(has_begun(&w, again), is_late);
        assert!(w.conv.is_idle());
    }
}

#[test]
fn equal_work_that_is_heard_of_before_its_original_waits_for_that_as_long_as_it_has_not_begun() {
    let mut w = World::new();
    let busy = w.say("Something else");
    let original = w.post(World::inbound("Search"));
    let again = w.receive(Inbound { same_as: Some(original), ..World::inbound("Search") });
    w.hear(original);
    assert!(w.conv.inbox.iter().map(|p| p.task).eq([original]));
    w.on(busy).replies("ok", &[]);
    w.replies("Found", &[]);
    assert_eq!((w.answer(original), w.answer(again)), ("Found".to_owned(), "Found".to_owned()));
}

#[test]
fn messages_and_orders_stand_in_the_order_of_the_log_whenever_they_are_heard_of() {
    let mut w = World::new();
    w.say("Busy");
    let [one, two] = [w.post(World::inbound("one")), w.post(World::inbound("two"))];
    let order = |text: &str| Inbound { order: true, ..World::inbound(text) };
    let [stop, go_on] = [w.post(order("Pause that")), w.post(order("Go on"))];
    for task in [go_on, two, stop, one] {
        w.hear(task);
    }
    assert!(w.conv.inbox.iter().map(|p| p.task).eq([one, two]));
    assert!(w.conv.orders.iter().map(|o| o.task).eq([stop, go_on]));
}

#[test]
fn the_time_of_what_is_heard_of_late_is_what_the_log_says() {
    let mut w = World::new();
    let first = w.say("first");
    w.say("second");
    let late = w.post(World::inbound("late"));
    w.wait_ms(5_000);
    // The lane is free for a moment.
    w.on(first).replies("1", &[]);
    w.wait_ms(5_000);
    w.hear(late);
    assert_eq!(timeless(&w.conv), timeless(&w.refolded()));
    let pending = w.conv.inbox.iter().find(|p| p.task == late).expect("it waits");
    assert!(pending.at.since_ms(pending.accepted_at) >= 5_000, "it stood behind another turn");
}

/// Doors, keepers and rounds store events of their own, which no live Engine folds.
#[test]
fn the_times_of_what_is_stored_beside_an_engine_are_no_times_of_its_state() {
    let mut w = World::new();
    let task = w.say("Hello");
    let main = AgentId::orchestrator();
    let decided = EventBody::Decided {
        component: "classify".to_owned(),
        decision: "class normal".to_owned(),
        reasoning: "long work".to_owned(),
        alternatives: Vec::new(),
    };
    let moved = EventBody::LetterMoved { state: LetterState::Archived, by: "ann".to_owned() };
    let began = EventBody::RoundBegan { round: 1, backend: "program".to_owned() };
    for body in [decided, moved, began] {
        w.wait_ms(60_000);
        w.only_logged(task, &main, body);
        assert_eq!(w.refolded().at, w.conv.at);
    }
    w.wait_ms(60_000);
    w.post(World::inbound("And?"));
    assert_eq!(w.refolded().at, w.conv.at);
    // The task that runs the round tells the Engine with its end.
    w.conv.round_acts(task, 1);
    w.replies("", &[look()]);
    assert_eq!(w.refolded().turns, w.conv.turns, "a round that is over is as if nobody had noted its beginning");
}

#[test]
fn what_was_accepted_before_a_turn_listened_has_a_turn_of_its_own_whenever_it_is_heard_of() {
    let mut w = World::new();
    w.slow_facts = true;
    let task = w.say("Hello");
    let early = post_steer(&mut w, "In French");
    w.begin();
    w.hear(early);
    assert!(w.conv.inbox.iter().any(|p| p.task == early));
    w.suspend(task);
    let meanwhile = post_steer(&mut w, "In Greek");
    w.let_go_on(task);
    w.hear(meanwhile);
    assert!(w.conv.inbox.iter().any(|p| p.task == meanwhile));
    let now = w.add("Now");
    assert!(w.conv.inbox.iter().all(|p| p.task != now) && w.conv.is_open(now));
}

#[test]
fn a_turn_that_was_put_off_and_let_go_on_listens_at_once() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "A long report");
    w.happens(task, EventBody::DeadlinePassed { hard: true, letters: None });
    w.let_go_on(task);
    let more = w.add("With pictures");
    assert!(w.conv.inbox.is_empty() && w.conv.turn(more).is_none());
    w.replies("The report", &[]);
    w.replies("The report, with pictures", &[]);
    assert_eq!((w.answer(task), w.answer(more)), ("The report, with pictures".to_owned(), TAKEN_UP.to_owned()));
}

/// A person's turn that waits for one more round is answered without it when its time is up.
#[test]
fn what_a_said_answer_waited_for_in_vain_is_a_message_of_its_own() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = w.add("In French");
    w.replies("Hello!", &[]);
    w.happens(task, EventBody::DeadlinePassed { hard: true, letters: None });
    assert_eq!(w.ending(task).0, "paused");
    assert_eq!(w.current(), Some(more));
    next_life(&mut w);
    w.replies("Salut !", &[]);
    assert_eq!(w.answer(more), "Salut !");
}

#[test]
fn what_was_given_back_by_a_turn_joins_no_other() {
    let mut w = World::new();
    let back = w.say_as(Priority::Normal, "Back");
    let front = w.say("Front");
    let more = w.add("More");
    w.on(front).model_fails(ModelErrorKind::Auth);
    assert!(w.conv.turn(more).is_some() && w.conv.turn(back).is_some());
    let joined = w.log.iter().filter(|e| matches!(e.body, EventBody::Joined { .. }));
    assert!(joined.map(|e| (e.task, e.body.clone())).eq([(more, EventBody::Joined { into: front })]));
}

/// Before it was stored what a message joins, nothing but its final told of it.
#[test]
fn a_log_that_does_not_say_what_its_messages_joined_is_read_to_its_end() {
    let mut w = World::new();
    let task = w.say("Hello");
    let (more, same) = (w.add("In French"), w.receive(Inbound { same_as: Some(task), ..World::inbound("Hello") }));
    w.replies("Hello!", &[]);
    let waits = w.log.len();
    w.replies("Salut !", &[]);
    let old = |log: &[Event]| {
        let mut conv = Conversation::new(w.conv.id, w.conv.user.clone());
        log.iter().filter(|e| !matches!(e.body, EventBody::Joined { .. })).for_each(|e| conv.apply(e));
        conv
    };
    let read = old(&w.log);
    assert!(read.is_idle() && read.turns.is_empty() && read.inbox.is_empty() && read.decide().is_none());
    assert!([task, more, same].iter().all(|t| read.finished.contains(t)));
    let in_the_middle = old(&w.log[..waits]);
    assert!([more, same].iter().all(|t| in_the_middle.is_open(*t)), "nobody is forgotten");
}

#[test]
fn a_final_that_was_stored_for_a_message_of_which_nobody_heard_ends_it() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = post_steer(&mut w, "More");
    let body = EventBody::answered(TAKEN_UP);
    w.only_logged(more, &AgentId::orchestrator(), body);
    w.restart(ResumeCause::Crash);
    assert!(!w.conv.is_open(more) && w.conv.turn(task).is_some());
}

#[test]
fn agents_of_a_turn_that_an_older_message_does_not_stand_before_are_run_once() {
    let mut w = World::new();
    let older = w.post(World::inbound("older"));
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    w.restart(ResumeCause::Crash);
    assert_eq!(w.running(), ["a"]);
    w.agent_replies("a", "done", &[]);
    w.on(task).replies("Done", &[]);
    w.on(older).replies("ok", &[]);
    assert_eq!(w.statuses(task).len(), 1);
}
