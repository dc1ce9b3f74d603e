//! Messages without a turn of their own: steering messages, and messages that share another task's answer.

use super::{
    script::{agent, cmd, collect, dispatch, tool, use_skill},
    world::World,
};
use crate::{
    classify::Spoken,
    event::{EventBody, Inbound, Mode, Priority},
    ids::{AgentId, TaskId},
    limits::TurnLimits,
    message::{ModelErrorKind, Usage},
    ports::Address,
    turn::Conversation,
};

fn same_as(w: &mut World, task: TaskId) -> TaskId {
    w.receive(Inbound { same_as: Some(task), ..World::inbound("The same") })
}

#[test]
fn steering_message_reaches_model_before_next_round_and_gets_own_final_event() {
    let mut w = World::new();
    let task = w.say("Plan my week");
    let (more, most) = (w.add("Not on Monday"), w.add("Nor Tuesday"));
    assert!(w.conv.inbox.is_empty());
    assert_eq!(w.request().messages.len(), 1, "the running round is unchanged");
    w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    let shown = w.last_shown();
    let position_of = |text: &str| {
        shown
            .find(&format!("[The user adds, while you work on this:]\n{text}"))
            .expect("the model received the added text")
    };
    assert!(position_of("Not on Monday") < position_of("Nor Tuesday"));
    w.replies("The plan", &[]);
    assert_eq!(w.answer(task), "The plan");
    for added in [more, most] {
        assert_eq!(w.answer(added), "Taken up in the answer to your earlier message.");
        let EventBody::Answered { usage, .. } = w.finals(added)[0] else { panic!("no answer") };
        assert_eq!(*usage, Usage::default());
    }
    assert!(w.conv.is_idle());
    let history = w.say("And?");
    assert_eq!(w.on(history).request().messages.len(), 3, "the turn is a single exchange in the history");
}

#[test]
fn spoken_question_becomes_request_when_a_request_is_added() {
    for (added, kind) in [("and add milk", Spoken::Action), ("And what is due?", Spoken::Simple)] {
        let mut w = World::in_mode(Mode::SingleLoop);
        w.facts.spoken_as = Some(Spoken::Simple);
        w.say_as(Priority::Realtime, "What is on my list?");
        w.add(added);
        w.replies("Bread.", &[]);
        assert_eq!(w.turn().facts.spoken_as, Some(kind), "{added}");
        assert_eq!(w.conv, w.refolded());
    }
}

#[test]
fn answer_given_without_steering_message_waits_for_one_more_round() {
    let mut w = World::new();
    let task = w.say("Hello");
    let more = w.add("In French");
    w.replies("Hello!", &[]);
    assert!(w.finals(task).is_empty());
    assert!(w.last_shown().ends_with("In French"));
    w.replies("Salut !", &[]);
    assert_eq!((w.answer(task), w.ending(more).0), ("Salut !".to_owned(), "answered"));
}

#[test]
fn answer_of_last_round_is_final_and_steering_message_gets_own_turn() {
    let mut w = World::with(crate::event::Mode::MultiAgent, TurnLimits { iterations_max: 1, ..TurnLimits::default() });
    let task = w.say("Hello");
    let more = w.add("In French");
    w.replies("Hello!", &[]);
    assert_eq!(w.answer(task), "Hello!");
    assert_eq!(w.current(), Some(more));
    w.replies("Salut !", &[]);
    assert_eq!(w.answer(more), "Salut !");
}

/// The Engine receives a message after it has stored events that follow the message in the log.
#[test]
fn engine_message_logged_before_final_but_received_after_starts_its_own_turn_on_replay() {
    let mut w = World::new();
    let task = w.say("Hello");
    w.replies("Hello!", &[]);
    let late = w.add("In French");
    w.replies("", &[dispatch("a", &[])]);
    let received = w.log.iter().position(|e| e.task == late).expect("the message was received");
    let mut log = w.log.clone();
    let received = log.remove(received);
    let sent = log.iter().position(|e| matches!(e.body, EventBody::ModelReplied { .. })).expect("the model replied");
    log.insert(sent, received);
    let mut next_incarnation = Conversation::new(w.conv.id, w.conv.user.clone());
    for event in &log {
        next_incarnation.fold(event.at, event.task, &event.agent, &event.body);
        assert!(next_incarnation.is_open(late) || event.task == task, "{event:?}");
    }
    assert_eq!(next_incarnation.turn(late).map(|t| &t.agents.plan), w.conv.turn(late).map(|t| &t.agents.plan));
    assert!(next_incarnation.turn(late).is_some() && next_incarnation.decide().is_none());
    assert_eq!(next_incarnation.history, w.conv.history);
}

#[test]
fn steering_message_not_read_before_turn_end_keeps_its_queue_position() {
    for fails in [true, false] {
        let mut w = World::new();
        let task = w.say("One");
        let steers = w.add("One and a half");
        let two = w.say("Two");
        let again = w.add("And again");
        if fails {
            w.model_fails(ModelErrorKind::Auth);
        } else {
            w.cancel(task);
        }
        for expected in [steers, two, again] {
            assert_eq!(w.current(), Some(expected));
            w.replies("ok", &[]);
            assert_eq!(w.answer(expected), "ok");
        }
    }
}

#[test]
fn steering_message_that_was_read_ends_with_its_turn() {
    let steered_turn = |w: &mut World| {
        let task = w.say("One");
        let steers = w.add("More");
        w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
        (task, steers)
    };
    let mut w = World::new();
    let (task, steers) = steered_turn(&mut w);
    w.cancel(task);
    assert_eq!(w.ending(steers).0, "cancelled");

    let mut w = World::new();
    let (_, steers) = steered_turn(&mut w);
    w.model_fails(ModelErrorKind::Auth);
    let EventBody::Failed { dead_letter, code, .. } = w.finals(steers)[0] else { panic!("no failure") };
    assert!(dead_letter.is_none() && code == "model_auth");
}

#[test]
fn steering_message_can_be_cancelled_before_and_after_it_was_read() {
    let mut w = World::new();
    let task = w.say("One");
    let (before, after) = (w.add("before"), w.add("after"));
    w.cancel(before);
    w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    assert!(!w.last_shown().contains("before") && w.last_shown().contains("after"));
    w.cancel(after);
    w.replies("1", &[]);
    assert_eq!(w.answer(task), "1");
    assert_eq!((w.ending(before).0, w.ending(after).0), ("cancelled", "cancelled"));
}

#[test]
fn only_working_turns_are_steered() {
    let mut w = World::new();
    let first = w.add("Nobody works");
    assert_eq!(w.current(), Some(first), "without a running turn, it is an ordinary message");
    w.suspend(first);
    let second = w.add("Somebody is held back");
    assert_eq!(w.conv.turns.len(), 2);
    let back = w.say_as(Priority::Normal, "Back");
    let own = w.add("The turn of its lane is meant");
    w.on(back).replies("b", &[]);
    w.on(second).replies("2", &[]);
    w.on(second).replies("2, and more", &[]);
    assert_eq!((w.answer(second), w.ending(own).0), ("2, and more".to_owned(), "answered"));
    let back = w.say_as(Priority::Normal, "Back");
    let other = w.add("Better that of the other lane than none");
    w.on(back).replies("b", &[]);
    w.on(back).replies("b2", &[]);
    assert_eq!(w.ending(other).0, "answered");
    // A deferred turn does not read steering messages for a long time.
    let back = w.say_as(Priority::Normal, "Back");
    while w.conv.turn(back).is_some_and(|t| t.deferral.count == 0) {
        w.on(back).deadline();
    }
    let own = w.add("Now");
    assert!(w.conv.turn(own).is_some());
}

#[test]
fn turn_waiting_for_other_tasks_is_not_steered() {
    let mut w = World::new();
    let before = w.say_as(Priority::Normal, "Before");
    let waits = w.receive(Inbound { after: vec![before], ..World::inbound("Then this") });
    w.cancel(before);
    let own = w.add("And now?");
    assert!(w.conv.turn(own).is_some() && w.conv.turn(waits).is_some(), "the second turn begins at once");
    w.on(own).replies("Now.", &[]);
    w.on(waits).replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    let more = w.add("More");
    assert!(w.conv.turn(more).is_none(), "a turn that has begun its work is steered");
}

#[test]
fn private_message_does_not_steer_non_private_turn() {
    let private = |text: &str| Inbound { private: true, steer: true, ..World::inbound(text) };
    let mut w = World::new();
    let open = w.say("Look it up");
    let secret = w.receive(private("My code is 1234"));
    assert!(w.conv.inbox.iter().any(|p| p.task == secret), "the private message waits for its own turn");
    w.on(open).replies("Found", &[]);
    assert!(w.conv.turn(secret).is_some());
    let (more, plain) = (w.receive(private("And 5678")), w.add("Thanks"));
    w.on(secret).replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    assert!(w.on(secret).last_shown().contains("And 5678") && w.last_shown().contains("Thanks"));
    w.replies("Kept", &[]);
    assert_eq!([w.ending(more).0, w.ending(plain).0], ["answered"; 2]);
}

#[test]
fn message_with_another_address_does_not_steer_and_is_answered_there() {
    let from = |to: &str, text: &str| {
        let address = Address { channel: "chats".to_owned(), to: to.to_owned() };
        Inbound { reply_to: Some(address), steer: true, ..World::inbound(text) }
    };
    let mut w = World::new();
    let open = w.receive(from("chat:1", "Look it up"));
    let (other, same, plain) =
        (w.receive(from("chat:2", "And the weather")), w.receive(from("chat:1", "In Bonn")), w.add("Thanks"));
    assert!(w.conv.inbox.iter().any(|p| p.task == other), "the message with another address waits for its own turn");
    w.on(open).replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    let shown = w.on(open).last_shown();
    assert!(shown.contains("In Bonn") && shown.contains("Thanks") && !shown.contains("weather"), "{shown}");
    w.on(open).replies("Found", &[]);
    assert_eq!([w.ending(same).0, w.ending(plain).0], ["answered"; 2]);
    assert!(w.conv.turn(other).is_some(), "the answer of this turn goes to its address");
}

#[test]
fn private_turn_runs_no_skill_that_reaches_other_machines_in_any_agent() {
    for private in [true, false] {
        let message = || Inbound { private, ..World::inbound("Mail my code 1234 to Bob") };
        let send = serde_json::json!({"to": "bob", "body": "1234"});
        let mut w = World::in_mode(Mode::SingleLoop);
        w.receive(message());
        w.replies("", &[use_skill("1", "email.send", &send), use_skill("2", "tasks.search", &serde_json::json!({}))]);
        let calls = w.skill_calls(&AgentId::orchestrator());
        assert_eq!(calls.iter().any(|(skill, _)| skill == "email.send"), !private, "{calls:?}");
        assert!(calls.iter().any(|(skill, _)| skill == "tasks.search"), "{calls:?}");

        let mut w = World::new();
        w.receive(message());
        let mission = serde_json::json!({"agent_id": "a", "mission": "Mail it", "skills": ["email.send"]});
        w.replies("", &[tool("d", "dispatch_agent", &mission)]);
        w.agent_replies("a", &cmd("email.send --to bob --body 1234"), &[]);
        assert_eq!(w.skill_calls(&agent("a")).is_empty(), private);
        let shown = w.last_shown_to("a");
        assert_eq!(shown.contains("[refused] email.send reaches other machines"), private, "{shown}");
    }
}

#[test]
fn private_exchange_is_omitted_from_later_non_private_turn() {
    let texts = |w: &World| w.request().messages.iter().map(super::world::text_of).collect::<Vec<_>>();
    let private = |text: &str| Inbound { private: true, ..World::inbound(text) };
    let mut w = World::new();
    w.say("Hello");
    w.replies("Hi", &[]);
    w.receive(private("My code is 1234"));
    assert_eq!(texts(&w), ["Hello", "Hi", "My code is 1234"]);
    w.replies("Noted", &[]);
    w.say("What is new?");
    assert_eq!(texts(&w), ["Hello", "Hi", "What is new?"]);
    w.replies("Nothing", &[]);
    w.receive(private("What is my code?"));
    let all = ["Hello", "Hi", "My code is 1234", "Noted", "What is new?", "Nothing", "What is my code?"];
    assert_eq!(texts(&w), all);
}

#[test]
fn paused_private_turn_is_continued_only_by_private_message() {
    for private in [true, false] {
        let mut w = World::new();
        let task = w.receive(Inbound { private: true, ..World::inbound("My code is 1234") });
        w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
        w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
        assert_eq!(w.ending(task).0, "paused");
        w.receive(Inbound { private, ..World::inbound("continue") });
        let shown: Vec<String> = w.request().messages.iter().map(super::world::text_of).collect();
        assert_eq!(shown.iter().any(|m| m.contains("1234")), private, "{shown:?}");
    }
}

#[test]
fn history_contains_steering_messages_of_earlier_turn() {
    let mut w = World::new();
    w.say("Plan my week");
    w.add("Not on Monday");
    w.replies("", &[tool("g", "get_skill", &serde_json::json!({}))]);
    w.replies("The plan", &[]);
    w.say("Why?");
    let shown: Vec<String> = w.request().messages.iter().map(super::world::text_of).collect();
    assert_eq!(shown, ["Plan my week\n\nNot on Monday", "The plan", "Why?"]);
}

#[test]
fn suspended_turn_returns_unread_steering_messages_to_inbox() {
    for suspend in [true, false] {
        let mut w = World::new();
        let task = w.say_as(Priority::Normal, "A long report");
        let more = w.add("With pictures");
        if suspend {
            w.suspend(task);
        } else {
            w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
        }
        w.on(more).replies("I will", &[]);
        assert_eq!(w.answer(more), "I will");
        assert!(w.finals(task).is_empty());
    }
}

#[test]
fn steering_message_during_agents_work_is_read_with_their_results() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[dispatch("a", &[])]);
    w.replies("Under way", &[]);
    let late = w.add("More");
    assert!(w.conv.inbox.iter().any(|p| p.task == late), "the final answer was already given");
    w.agent_replies("a", "done", &[]);
    w.replies("Done", &[]);
    assert_eq!(w.answer(task), "Done");

    let mut w = World::new();
    w.say("Do it");
    w.replies("", &[dispatch("a", &[]), collect(&[])]);
    let more = w.add("More");
    w.agent_replies("a", "done", &[]);
    assert!(w.last_shown().contains("More"));
    w.replies("Done", &[]);
    assert_eq!(w.ending(more).0, "answered");
}

#[test]
fn equal_task_shares_answer_and_cost_is_counted_once() {
    let mut w = World::new();
    let task = w.say("Search");
    let same = same_as(&mut w, task);
    let chain = same_as(&mut w, same);
    assert!(w.conv.inbox.is_empty());
    w.replies("Found", &[]);
    for joined in [same, chain] {
        assert_eq!(w.answer(joined), "Found");
        let EventBody::Answered { usage, .. } = w.finals(joined)[0] else { panic!("no answer") };
        assert_eq!(*usage, Usage::default(), "the cost is counted once");
    }
    assert!(w.conv.is_idle());
    let late = same_as(&mut w, task);
    assert_eq!(w.current(), Some(late), "a later message does not share the answer of a task that has ended");
}

#[test]
fn equal_task_of_more_urgent_class_raises_original_once() {
    let mut w = World::new();
    let busy = w.say_as(Priority::Normal, "Report");
    let task = w.say_as(Priority::Normal, "Search");
    let lifts = |w: &mut World| {
        w.receive(Inbound { same_as: Some(task), lifts: Some(Priority::High), ..World::inbound("Search") })
    };
    let same = lifts(&mut w);
    let lifted: Vec<(TaskId, &EventBody)> = w.log.iter().map(|e| (e.task, &e.body)).collect();
    assert!(
        lifted.contains(&(task, &EventBody::Reprioritised { priority: Priority::High, by: same.to_string() })),
        "{lifted:?}"
    );
    assert_eq!(
        w.conv.turns.iter().map(|t| t.task).collect::<Vec<_>>(),
        [busy, task],
        "the raised task does not wait for the lane"
    );
    w.make(task, Priority::Low);
    assert_eq!(
        w.conv.turn(task).map(|t| t.inbound.priority),
        Some(Priority::Low),
        "a later explicit change of class takes effect"
    );
    w.on(task).replies("Found", &[]);
    assert_eq!(w.answer(same), "Found");
}

#[test]
fn equal_task_fails_with_original_without_own_dead_letter() {
    let mut w = World::new();
    let task = w.say_as(Priority::Normal, "Search");
    let same = same_as(&mut w, task);
    w.model_fails(ModelErrorKind::InvalidRequest);
    let (EventBody::Failed { text, dead_letter, .. }, EventBody::Failed { text: own, dead_letter: none, .. }) =
        (w.finals(task)[0], w.finals(same)[0])
    else {
        panic!("no failure")
    };
    assert!(dead_letter.is_some() && none.is_none() && text == own);
}

#[test]
fn equal_task_can_be_cancelled_separately() {
    let mut w = World::new();
    let task = w.say("Search");
    let same = same_as(&mut w, task);
    w.cancel(same);
    assert_eq!(w.ending(same).0, "cancelled");
    w.replies("Found", &[]);
    assert_eq!(w.answer(task), "Found");
}
