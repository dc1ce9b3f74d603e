//! Messages whose position in the log is before the point at which the Engine receives them. The Engine's actions in
//! between, and the handling of these messages, must be the same in every incarnation.

use serde_json::json;

use super::{
    script::{collect, dispatch, tool, use_skill},
    world::{World, timeless},
};
use crate::{
    dead_letter::DeadLetterState,
    event::{Action, Event, EventBody, Inbound, Mode, Priority, ResumeCause},
    ids::{AgentId, Seq, TaskId},
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

/// Stores a steering message that the Engine has not received yet.
fn post_steer(w: &mut World, text: &str) -> TaskId {
    w.post(Inbound { steer: true, ..World::inbound(text) })
}

/// Restarts the Engine, and asserts that the next incarnation has the same relevant state.
fn next_incarnation(w: &mut World) {
    let (turns, runs) = (w.conv.turns.clone(), w.conv.outstanding(w.now));
    w.restart(ResumeCause::Restart);
    for turn in &turns {
        let now = w.conv.turn(turn.task).expect("the turn is running");
        assert_eq!(
            (&now.steering.seen, now.main.round, &now.main.messages),
            (&turn.steering.seen, turn.main.round, &turn.main.messages)
        );
    }
    let asks = |d: &Directive| matches!(d.id(), DirectiveId::Model(..));
    assert_eq!(
        w.conv.outstanding(w.now).into_iter().filter(asks).collect::<Vec<_>>(),
        runs.into_iter().filter(asks).collect::<Vec<_>>()
    );
}

/// Number of planned runs of a skill, whether started or not.
fn planned(w: &World, skill: &str) -> usize {
    let calls = w.log.iter().filter_map(|e| {
        let EventBody::ModelReplied { calls, .. } = &e.body else { return None };
        Some(calls)
    });
    calls.flatten().filter(|c| matches!(&c.action, Action::Skill(p) if p.skill == skill)).count()
}

fn has_begun(w: &World, task: TaskId) -> bool {
    w.log.iter().any(|e| e.task == task && matches!(e.body, EventBody::TurnStarted { .. }))
}

/// The log as it would be if a message was stored before the beginning of another turn, whose event was not stored yet when
/// the Engine received the message.
fn stored_before_it_began(w: &World, message: TaskId, turn: TaskId) -> Vec<Event> {
    let mut log = w.log.clone();
    let received = log.iter().position(|e| e.task == message).expect("the message was received");
    let received = log.remove(received);
    let began = |e: &Event| e.task == turn && matches!(e.body, EventBody::TurnStarted { .. });
    let began = log.iter().position(began).expect("the turn began");
    log.insert(began, received);
    for (event, seq) in log.iter_mut().zip(1..) {
        event.seq = Seq(seq);
    }
    log
}

/// The reply of an older message's commit was lost, so the Engine receives a newer message first.
#[test]
fn turn_begun_before_older_message_was_received_resumes_without_repetition() {
    for is_same in [false, true] {
        let mut w = World::in_mode(Mode::SingleLoop);
        let older = w.post(World::inbound("Mail Bob"));
        let same_as = is_same.then_some(older);
        let younger = w.receive(Inbound { same_as, ..World::inbound("Mail Bob too") });
        w.replies("", &[mail("bob")]);
        w.skill_starts(&AgentId::orchestrator());
        w.main_skill("sent");
        next_incarnation(&mut w);
        assert_eq!(w.current(), Some(younger));
        assert!(w.skill_calls(&AgentId::orchestrator()).is_empty(), "the e-mail is not sent again");
        assert!(w.conv.inbox.iter().map(|p| p.task).eq([older]), "the older message waits for its lane");
        w.replies("Sent", &[]);
        w.on(older).replies("Nothing to do", &[]);
        assert_eq!((w.answer(younger), w.answer(older)), ("Sent".to_owned(), "Nothing to do".to_owned()));
        assert_eq!(planned(&w, "email.send"), 1);
    }
}

/// The event of a turn's beginning is stored late. In the meantime the Engine has received messages that precede it in the
/// log.
#[test]
fn steering_message_logged_before_turn_start_joins_turn_on_replay() {
    let mut w = World::in_mode(Mode::SingleLoop);
    let task = w.say("Mail Bob");
    let more = w.add("And Eve");
    w.replies("", &[look()]);
    assert!(w.last_shown().contains("And Eve"));
    w.replies("", &[mail("eve")]);
    w.main_skill("sent");
    w.log = stored_before_it_began(&w, more, task);
    next_incarnation(&mut w);
    assert!(w.conv.inbox.is_empty(), "the message has no turn of its own");
    w.replies("Sent", &[]);
    assert_eq!((w.answer(task), w.answer(more)), ("Sent".to_owned(), TAKEN_UP.to_owned()));
    assert!(w.conv.is_idle() && !has_begun(&w, more));
}

/// A reply whose calls are answered by the kernel leads directly to the next round.
#[test]
fn steering_message_received_after_round_was_sent_joins_next_round_on_replay() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = post_steer(&mut w, "In French");
    w.replies("", &[look()]);
    assert!(!w.last_shown().contains("In French"), "the Engine has not received the message");
    w.deliver(more);
    next_incarnation(&mut w);
    w.replies("Hello!", &[]);
    assert!(w.finals(task).is_empty() && w.last_shown().ends_with("In French"));
    next_incarnation(&mut w);
    w.replies("Salut !", &[]);
    assert_eq!((w.answer(task), w.answer(more)), ("Salut !".to_owned(), TAKEN_UP.to_owned()));
}

#[test]
fn steering_message_unreceived_at_crash_is_read_by_next_incarnation() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = post_steer(&mut w, "In French");
    w.replies("", &[look()]);
    w.restart(ResumeCause::Crash);
    assert!(!w.last_shown().contains("In French"), "this round was requested without the message");
    w.replies("Hello!", &[]);
    assert!(w.last_shown().ends_with("In French"));
    w.replies("Salut !", &[]);
    assert_eq!((w.answer(task), w.answer(more)), ("Salut !".to_owned(), TAKEN_UP.to_owned()));
}

#[test]
fn message_received_while_final_answer_waits_for_agents_gets_own_turn_on_replay() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    let late = post_steer(&mut w, "And mail Bob");
    w.replies("Under way", &[]);
    w.deliver(late);
    assert!(w.conv.inbox.iter().any(|p| p.task == late), "the final answer was already given");
    w.agent_replies("a", "done", &[]);
    next_incarnation(&mut w);
    assert!(w.conv.inbox.iter().any(|p| p.task == late));
    w.replies("Done", &[]);
    assert_eq!(w.answer(task), "Done");
    next_incarnation(&mut w);
    w.on(late).replies("Mailed", &[]);
    assert_eq!(w.answer(late), "Mailed");
}

#[test]
fn message_received_while_answer_is_stored_gets_own_answer_once() {
    for dies in [false, true] {
        let mut w = World::new();
        let task = w.say("Hello");
        let late = post_steer(&mut w, "In French");
        w.replies("Hello!", &[]);
        assert_eq!(w.answer(task), "Hello!");
        if dies {
            w.restart(ResumeCause::Crash);
        } else {
            w.deliver(late);
        }
        assert_eq!(w.current(), Some(late));
        next_incarnation(&mut w);
        w.replies("Salut !", &[]);
        assert_eq!(w.answer(late), "Salut !");
    }
}

#[test]
fn equal_task_received_after_original_ended_gets_own_turn() {
    let same = |task: TaskId| Inbound { same_as: Some(task), ..World::inbound("Search") };
    for is_late in [false, true] {
        let mut w = World::new();
        let task = w.say("Search");
        let again = w.post(same(task));
        if !is_late {
            w.deliver(again);
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
fn equal_task_received_before_original_waits_for_it() {
    let mut w = World::new();
    let busy = w.say("Something else");
    let original = w.post(World::inbound("Search"));
    let again = w.receive(Inbound { same_as: Some(original), ..World::inbound("Search") });
    w.deliver(original);
    assert!(w.conv.inbox.iter().map(|p| p.task).eq([original]));
    w.on(busy).replies("ok", &[]);
    w.replies("Found", &[]);
    assert_eq!((w.answer(original), w.answer(again)), ("Found".to_owned(), "Found".to_owned()));
}

#[test]
fn messages_and_job_commands_keep_log_order_whenever_received() {
    let mut w = World::new();
    w.say("Busy");
    let [one, two] = [w.post(World::inbound("one")), w.post(World::inbound("two"))];
    let job_command = |text: &str| Inbound { order: true, ..World::inbound(text) };
    let [stop, resume_command] = [w.post(job_command("Pause that")), w.post(job_command("Go on"))];
    for task in [resume_command, two, stop, one] {
        w.deliver(task);
    }
    assert!(w.conv.inbox.iter().map(|p| p.task).eq([one, two]));
    assert!(w.conv.job_commands.iter().map(|o| o.task).eq([stop, resume_command]));
}

#[test]
fn late_received_message_has_times_of_the_log() {
    let mut w = World::new();
    let first = w.say("first");
    w.say("second");
    let late = w.post(World::inbound("late"));
    w.wait_ms(5_000);
    // The lane is free for a short time.
    w.on(first).replies("1", &[]);
    w.wait_ms(5_000);
    w.deliver(late);
    assert_eq!(timeless(&w.conv), timeless(&w.refolded()));
    let pending = w.conv.inbox.iter().find(|p| p.task == late).expect("the message is in the inbox");
    assert!(pending.at.since_ms(pending.accepted_at) >= 5_000, "the message waited for another turn");
}

/// Front ends, background workers and rounds store events that no live Engine folds.
#[test]
fn events_stored_by_other_components_do_not_change_times_of_state() {
    let mut w = World::new();
    let task = w.say("Hello");
    let main = AgentId::orchestrator();
    let decided = EventBody::Decided {
        component: "classify".to_owned(),
        decision: "class normal".to_owned(),
        reasoning: "long work".to_owned(),
        alternatives: Vec::new(),
        hook: None,
    };
    let moved = EventBody::DeadLetterMoved { state: DeadLetterState::Archived, by: "ann".to_owned() };
    let began = EventBody::RoundBegan { round: 1, backend: "program".to_owned() };
    for body in [decided, moved, began] {
        w.wait_ms(60_000);
        w.only_logged(task, &main, body);
        assert_eq!(w.refolded().at, w.conv.at);
    }
    w.wait_ms(60_000);
    w.post(World::inbound("And?"));
    assert_eq!(w.refolded().at, w.conv.at);
    // The task that runs the round notifies the Engine when the round ends.
    w.conv.round_acts(task, 1);
    w.replies("", &[look()]);
    assert_eq!(w.refolded().turns, w.conv.turns, "the beginning of a finished round leaves no trace in the state");
}

#[test]
fn message_accepted_before_turn_was_steerable_gets_own_turn() {
    let mut w = World::new();
    w.slow_facts = true;
    let task = w.say("Hello");
    let early = post_steer(&mut w, "In French");
    w.begin();
    w.deliver(early);
    assert!(w.conv.inbox.iter().any(|p| p.task == early));
    w.suspend(task);
    let meanwhile = post_steer(&mut w, "In Greek");
    w.resume(task);
    w.deliver(meanwhile);
    assert!(w.conv.inbox.iter().any(|p| p.task == meanwhile));
    let now = w.add("Now");
    assert!(w.conv.inbox.iter().all(|p| p.task != now) && w.conv.is_open(now));
}

#[test]
fn deferred_turn_that_is_resumed_is_steerable_at_once() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "A long report");
    w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
    w.resume(task);
    let more = w.add("With pictures");
    assert!(w.conv.inbox.is_empty() && w.conv.turn(more).is_none());
    w.replies("The report", &[]);
    w.replies("The report, with pictures", &[]);
    assert_eq!((w.answer(task), w.answer(more)), ("The report, with pictures".to_owned(), TAKEN_UP.to_owned()));
}

/// An interactive turn that waits for one more round is answered without it when its deadline passes.
#[test]
fn steering_message_not_read_before_deadline_gets_own_turn() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = w.add("In French");
    w.replies("Hello!", &[]);
    w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
    assert_eq!(w.ending(task).0, "paused");
    assert_eq!(w.current(), Some(more));
    next_incarnation(&mut w);
    w.replies("Salut !", &[]);
    assert_eq!(w.answer(more), "Salut !");
}

#[test]
fn message_returned_by_a_turn_joins_no_other_turn() {
    let mut w = World::new();
    let back = w.say_as(Priority::Normal, "Back");
    let front = w.say("Front");
    let more = w.add("More");
    w.on(front).model_fails(ModelErrorKind::Auth);
    assert!(w.conv.turn(more).is_some() && w.conv.turn(back).is_some());
    let joined = w.log.iter().filter(|e| matches!(e.body, EventBody::Joined { .. }));
    assert!(joined.map(|e| (e.task, e.body.clone())).eq([(more, EventBody::Joined { into: front })]));
}

/// Events of old versions do not record what a message joined; only its final event shows it.
#[test]
fn log_without_joined_events_is_replayed_to_its_end() {
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
    assert!([more, same].iter().all(|t| in_the_middle.is_open(*t)), "no message is lost");
}

#[test]
fn final_event_of_unreceived_message_ends_it() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = post_steer(&mut w, "More");
    let body = EventBody::answered(TAKEN_UP);
    w.only_logged(more, &AgentId::orchestrator(), body);
    w.restart(ResumeCause::Crash);
    assert!(!w.conv.is_open(more) && w.conv.turn(task).is_some());
}

#[test]
fn agents_of_turn_begun_before_older_message_run_once() {
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
