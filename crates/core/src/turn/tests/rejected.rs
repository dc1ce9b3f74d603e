//! Final texts that are no answers: repeated errors and notes, described calls, and made-up results.

use serde_json::json;

use super::{
    script::{cmd, collect, dispatch, dispatch_to_act, reply, use_skill},
    world::World,
};
use crate::{
    event::{Action, EventBody, Inbound, Mode, Priority, Retry},
    ids::{AgentId, TaskId},
    limits::{MainInterface, TurnLimits},
    outcome::Outcome,
    time::Micros,
    turn::refused_by,
};

fn with(mode: Mode, main_interface: MainInterface) -> World {
    World::with(mode, TurnLimits { main_interface, ..TurnLimits::default() })
}

#[test]
fn answer_that_repeats_an_error_of_a_call_is_not_shown_to_user_or_model() {
    for (interface, error) in [
        (MainInterface::Tools, "Error: tasks.create: it has no argument \"titel\"."),
        (MainInterface::Cmd, "Error: tasks.create has no flag --titel."),
    ] {
        for is_corrected in [true, false] {
            let mut w = with(Mode::SingleLoop, interface);
            let task = w.say("Buy milk");
            match interface {
                MainInterface::Cmd => w.replies(&cmd("tasks.create --titel milk"), &[]),
                _ => w.replies("", &[use_skill("1", "tasks.create", &json!({"titel": "milk"}))]),
            }
            w.replies(error, &[]);
            let shown = w.texts();
            assert!(shown.last().unwrap().contains("the user does not see it"), "{shown:#?}");
            assert!(!shown.contains(&error.to_owned()), "{shown:#?}");
            w.replies(if is_corrected { "What is it called?" } else { error }, &[]);
            let answer = w.answer(task);
            assert_eq!(answer == "What is it called?", is_corrected, "{answer}");
            assert!(!answer.contains("titel"), "{answer}");
            w.say("Hi");
            assert!(!w.texts().iter().any(|text| text.contains("titel")), "{:#?}", w.texts());
        }
    }
}

#[test]
fn answer_that_repeats_note_about_repeated_effect_is_completed_from_receipts() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let task = w.say("Buy milk");
    for _ in 0..2 {
        w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
        if w.skill_calls(&AgentId::orchestrator()).len() == 1 {
            w.main_skill("Created task #1 milk");
        }
    }
    w.replies("This was not run again. Go on, or answer in words.", &[]);
    assert_eq!(w.answer(task), "Created task #1 milk.");
}

#[test]
fn answer_that_repeats_the_request_is_completed_from_receipts() {
    let mut w = with(Mode::SingleLoop, MainInterface::Cmd);
    let task = w.say("Buy milk.");
    w.replies(&cmd("tasks.create --title milk"), &[]);
    w.main_skill("Created task #1 milk");
    w.replies("buy milk", &[]);
    assert_eq!(w.answer(task), "Created task #1 milk.");
    // Without an effect the same words may be an answer.
    let task = w.say("Hello");
    w.replies("Hello!", &[]);
    assert_eq!(w.answer(task), "Hello!");
}

#[test]
fn answer_that_repeats_a_request_done_in_part_is_asked_once_for_what_is_missing() {
    for is_repeated in [false, true] {
        let mut w = with(Mode::SingleLoop, MainInterface::Tools);
        let task = w.say("Buy milk and write to Bob");
        w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
        w.main_skill("Created task #1 milk");
        w.replies("buy milk and write to bob", &[]);
        assert!(w.last_shown().contains("what was done, and what was not"), "{:#?}", w.texts());
        let says = if is_repeated { "Buy milk and write to Bob" } else { "Milk is a task now; the mail is missing." };
        w.replies(says, &[]);
        assert_eq!(w.answer(task), if is_repeated { "Created task #1 milk." } else { says });
    }
}

#[test]
fn described_call_changes_turn_to_commands_or_is_notified_once() {
    let json = "To delete it, you can use:\n```json\n{\"name\": \"use_skill\", \"arguments\": {\"skill\": \"tasks.delete\"}}\n```";
    for described in [json, "<tasks.delete id=\"1\" />", "<tasks.delete\n id=\"1\"></tasks.delete>"] {
        let mut w = with(Mode::SingleLoop, MainInterface::Auto);
        let task = w.say("Delete task 1");
        w.replies(described, &[]);
        assert!(w.request().tools.is_empty() && !w.texts().contains(&described.to_owned()), "{:#?}", w.texts());
        w.replies("There is no such task.", &[]);
        assert_eq!(w.answer(task), "There is no such task.");
        let mut w = with(Mode::SingleLoop, MainInterface::Tools);
        let task = w.say("Delete task 1");
        w.replies(described, &[]);
        assert!(w.texts().last().unwrap().contains("You described a call"), "{:#?}", w.texts());
        w.replies(described, &[]);
        assert!(w.answer(task).contains("only described the call"), "{}", w.answer(task));
        // Without a request for a change the user may have asked for the code.
        let task = w.say("What would a call of use_skill look like?");
        w.replies(described, &[]);
        assert_eq!(w.answer(task), described);
    }
}

#[test]
fn agent_that_has_acted_is_not_asked_to_call_again() {
    let described =
        "I created it with:\n```json\n{\"name\": \"use_skill\", \"arguments\": {\"skill\": \"tasks.create\"}}\n```";
    for says in [described, "This was not run again. Go on, or answer in words."] {
        let mut w = with(Mode::SingleLoop, MainInterface::Tools);
        let task = w.say("Create a task to buy milk");
        w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
        w.main_skill("Created task #1 milk");
        if says != described {
            w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
        }
        w.replies(says, &[]);
        if says == described {
            assert!(w.last_shown().contains("Answer in your own words"), "{:#?}", w.texts());
            w.replies(says, &[]);
        }
        assert_eq!(w.answer(task), "Created task #1 milk.");
    }
}

#[test]
fn markup_and_errors_that_the_user_asks_for_are_answers() {
    for (asks, says) in [
        ("Write an XML element for my settings", "<app.settings>\n<a/>\n</app.settings>"),
        (
            "What does this mean? Error: connect ECONNREFUSED 127.0.0.1:5432",
            "Error: connect ECONNREFUSED 127.0.0.1:5432 means that nothing listens at this port.",
        ),
    ] {
        let mut w = with(Mode::SingleLoop, MainInterface::Tools);
        let task = w.say(asks);
        w.replies(says, &[]);
        assert_eq!(w.answer(task), says);
    }
}

#[test]
fn result_repeated_by_agent_that_has_acted_is_the_answer() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let task = w.say("Add a task to buy milk");
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
    w.main_skill("Created task #1 milk");
    w.replies("<result>Created task #1 milk</result>", &[]);
    assert_eq!(w.answer(task), "Created task #1 milk");
}

#[test]
fn result_made_up_twice_without_a_claim_is_not_the_answer() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let task = w.say("Delete task 1");
    for _ in 0..2 {
        w.replies("<result>Deleted.</result>", &[]);
    }
    let answer = w.answer(task);
    assert!(answer.contains("Nothing ran") && !answer.contains("Deleted"), "{answer}");
}

#[test]
fn result_made_up_twice_after_a_read_is_not_the_answer() {
    for (says, is_answer) in [("Task #1 deleted", false), ("Deleted.", false), ("There are two such tasks.", true)] {
        let mut w = with(Mode::SingleLoop, MainInterface::Tools);
        let task = w.say("Delete task 1");
        w.replies("", &[use_skill("1", "tasks.search", &json!({}))]);
        w.main_skill("#1 milk, open");
        for _ in 0..2 {
            w.replies(&format!("<result>{says}</result>"), &[]);
        }
        let answer = w.answer(task);
        assert_eq!(answer == says, is_answer, "{answer}");
        // The answer is the reason alone, not the made-up result with a correction below it.
        assert_eq!(answer.contains("only made up a result. Nothing was changed."), !is_answer, "{answer}");
        assert!(is_answer || !answer.contains(says), "{answer}");
    }
}

#[test]
fn agent_whose_agents_may_have_acted_is_not_asked_to_call_again() {
    let described = "I used:\n```json\n{\"name\": \"dispatch_agent\", \"arguments\": {\"name\": \"b\"}}\n```";
    let mut w = with(Mode::MultiAgent, MainInterface::Tools);
    let task = w.say("Create a task to buy milk");
    w.replies("", &[dispatch_to_act("a", &[]), collect(&["a"])]);
    w.agent_replies("a", &cmd("tasks.create --title milk"), &[]);
    w.agent_skill("a", "Created task #1 milk");
    w.agent_replies("a", "Created.", &[]);
    w.replies(described, &[]);
    assert!(w.last_shown().contains("Answer in your own words"), "{:#?}", w.texts());
    w.replies("I created it.", &[]);
    assert_eq!(w.answer(task), "I created it.");
}

#[test]
fn error_repeated_after_effect_hides_no_failure() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let task = w.say("Buy milk and write to Bob");
    let send = use_skill("2", "email.send", &json!({"to": "bob", "body": "hi"}));
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"})), send]);
    w.main_skill("Created task #1 milk");
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::permanent("refused", "No such mailbox."));
    w.replies("", &[use_skill("3", "email.send", &json!({"whom": "bob"}))]);
    let error = "Error: email.send: it has no argument \"whom\".";
    assert!(w.results()[0].starts_with(error), "{:?}", w.results());
    w.replies(error, &[]);
    assert!(w.texts().last().unwrap().contains("Answer in your own words"), "{:#?}", w.texts());
    w.replies(error, &[]);
    let answer = w.answer(task);
    assert!(answer.starts_with("Done in this turn:\n- Created task #1 milk"), "{answer}");
    assert!(answer.contains("Not completed:\n- email.send: No such mailbox.") && !answer.contains("whom"), "{answer}");
}

#[test]
fn error_of_a_skill_may_be_the_answer() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let task = w.say("Write to Bob");
    w.replies("", &[use_skill("1", "email.send", &json!({"to": "bob", "body": "hi"}))]);
    let error = "Error: no such mailbox bob@example.com";
    w.skill_ends(&AgentId::orchestrator(), 0, Outcome::permanent("refused", error));
    let says = format!("{error}, so the mail was not sent.");
    w.replies(&says, &[]);
    assert!(w.answer(task).starts_with(&says), "{}", w.answer(task));
}

#[test]
fn effect_of_another_agent_is_the_report_of_agent_that_only_repeats_the_note_about_it() {
    let mut w = with(Mode::MultiAgent, MainInterface::Tools);
    w.say("Buy milk");
    w.replies("", &[dispatch_to_act("a", &[]), dispatch_to_act("b", &["a"]), collect(&["a", "b"])]);
    w.agent_replies("a", &cmd("tasks.create --title milk"), &[]);
    w.agent_skill("a", "Created task #1 milk");
    w.agent_replies("a", "Created.", &[]);
    w.agent_replies("b", &cmd("tasks.create --title milk"), &[]);
    w.agent_replies("b", "This was not run again.", &[]);
    let shown = serde_json::to_string(&w.request().messages).unwrap();
    assert!(!shown.contains("failed") && shown.matches("Created task #1 milk").count() == 1, "{shown}");
}

#[test]
fn doubt_of_an_earlier_attempt_stands_in_answer_of_attempt_without_words() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let mut retry = Retry::of(TaskId::from_uuid(uuid::Uuid::nil()), Micros(0));
    retry.in_doubt = vec![("email.send".to_owned(), json!({"to": "bob", "body": "hi"}))];
    let task = w.receive(Inbound { retry: Some(retry), ..World::inbound("Write to Bob") });
    w.replies("", &[use_skill("1", "email.send", &json!({"whom": "bob"}))]);
    let error = w.results()[0].lines().next().unwrap().to_owned();
    w.replies(&error, &[]);
    w.replies(&error, &[]);
    let answer = w.answer(task);
    assert!(answer.starts_with("I have no answer") && answer.contains("not known whether this happened"), "{answer}");
}

#[test]
fn history_keeps_effect_beside_a_repeated_reading() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let search = || use_skill("1", "tasks.search", &json!({}));
    w.say("Look, and buy milk");
    w.replies("", &[search()]);
    w.main_skill("nothing");
    w.replies("", &[search(), use_skill("2", "tasks.create", &json!({"title": "milk"}))]);
    w.main_skill("nothing");
    w.main_skill("Created task #1 milk");
    w.replies("I bought it.", &[]);
    w.say("Hi");
    assert!(w.texts().iter().any(|text| text.contains("Created task #1 milk")), "{:#?}", w.texts());
}

#[test]
fn call_that_a_hook_refused_is_listed_as_not_completed() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let task = w.say("Write to Bob");
    let model_reply = reply("", &[use_skill("1", "email.send", &json!({"to": "bob", "body": "hi"}))]);
    let agent = w.conv.main_agent(task).unwrap();
    let (round, mut calls) = (w.turn().main.round, agent.resolve(&model_reply, &w.skills));
    let text = refused_by("quiet", "email.send", "No mail.");
    calls[0].action = Action::Answer { text: text.clone(), is_error: true, is_unknown: false, is_malformed: false };
    w.record(task, AgentId::orchestrator(), EventBody::replied(round, model_reply, calls, "main".to_owned()));
    assert_eq!(w.results(), [text]);
    for _ in 0..2 {
        w.replies("", &[]);
    }
    let answer = w.answer(task);
    assert!(answer.contains("Not completed:\n- The rule \"quiet\" does not allow email.send"), "{answer}");
}

#[test]
fn call_with_effect_in_answer_to_thanks_is_refused() {
    for interface in [MainInterface::Cmd, MainInterface::Tools] {
        let mut w = with(Mode::SingleLoop, interface);
        let task = w.say("Thanks, that was helpful!");
        let create = |w: &mut World| match interface {
            MainInterface::Cmd => w.replies(&cmd("tasks.create --title milk"), &[]),
            _ => w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]),
        };
        create(&mut w);
        assert!(w.skill_calls(&AgentId::orchestrator()).is_empty());
        assert!(w.last_shown().contains("only says thanks"), "{}", w.last_shown());
        w.replies("You are welcome.", &[]);
        assert_eq!(w.answer(task), "You are welcome.");
    }
}

#[test]
fn call_with_effect_after_a_request_was_added_to_thanks_runs() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    w.say("Thanks, that was helpful!");
    w.add("and add milk");
    w.replies("", &[use_skill("1", "tasks.search", &json!({}))]);
    w.main_skill("nothing");
    w.replies("", &[use_skill("2", "tasks.create", &json!({"title": "milk"}))]);
    let calls = w.skill_calls(&AgentId::orchestrator());
    assert_eq!(calls, [("tasks.create".to_owned(), json!({"title": "milk"}))], "{}", w.last_shown());
}

#[test]
fn retry_of_thanks_may_be_the_consent_to_an_earlier_question() {
    let mut w = with(Mode::SingleLoop, MainInterface::Tools);
    let retry = Retry::of(TaskId::from_uuid(uuid::Uuid::nil()), Micros(0));
    w.receive(Inbound { retry: Some(retry), ..World::inbound("Great, thanks") });
    w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
    assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "{:?}", w.results());
}

#[test]
fn thanks_after_a_question_or_a_pause_may_be_the_consent_to_it() {
    for is_paused in [false, true] {
        for thanks in ["Thanks, perfect!", "Thank you, very good", "Danke, prima"] {
            let mut w = with(Mode::SingleLoop, MainInterface::Tools);
            let task = w.say("Look at my tasks");
            if is_paused {
                w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
                // The answer of another lane follows the question of the pause.
                let other = w.say_as(Priority::Background, "Hello");
                w.on(other).replies("Hello.", &[]);
                assert!(w.conv.paused.is_some() && w.answer(other) == "Hello.");
            } else {
                w.replies("Task 7 is old. Shall I create a new one?", &[]);
            }
            w.say(thanks);
            w.replies("", &[use_skill("1", "tasks.create", &json!({"title": "milk"}))]);
            assert_eq!(w.skill_calls(&AgentId::orchestrator()).len(), 1, "{thanks}: {:?}", w.results());
        }
    }
}

#[test]
fn thanks_lead_to_no_agent_that_may_change_something() {
    let mut w = with(Mode::MultiAgent, MainInterface::Tools);
    let task = w.say("Thanks, that was helpful!");
    w.replies("", &[dispatch_to_act("a", &[]), dispatch("b", &[])]);
    assert!(w.results()[0].contains("only says thanks"), "{:?}", w.results());
    assert_eq!(w.running(), ["b"], "an agent that only reads may run");
    w.agent_replies("b", "Nothing new.", &[]);
    w.replies("You are welcome.", &[]);
    w.replies("You are welcome.", &[]);
    assert_eq!(w.answer(task), "You are welcome.");
}
