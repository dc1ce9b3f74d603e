//! Consecutive turns: plain answers, their history, and truncated or missing answers.

use serde_json::json;

use super::{
    script::{USAGE, collect, dispatch, reply, tool},
    world::{World, text_of},
};
use crate::{
    event::{AnswerOutcome, EventBody, Mode},
    message::{Finish, Message},
};

fn shown(w: &World) -> Vec<String> {
    w.request().messages.iter().map(text_of).collect()
}

#[test]
fn plain_answer_takes_one_round_and_is_in_history_of_next_turn() {
    let mut w = World::new();
    let hello = w.say("Hello");
    assert_eq!(shown(&w), ["Hello"]);
    w.replies("  Hi Ann!\n", &[]);
    assert_eq!(w.answer(hello), "Hi Ann!");
    assert!(w.conv.is_idle());
    w.say("What did you say?");
    assert_eq!(shown(&w), ["Hello", "Hi Ann!", "What did you say?"]);
    assert_eq!(w.request().stable_messages, 2);
}

#[test]
fn turn_context_precedes_user_text_and_appears_only_in_its_turn() {
    let mut w = World::new();
    w.facts.memories = vec!["Bob prefers email".to_owned()];
    w.facts.todo_summary = "Tasks: 2 open".to_owned();
    w.say("Who is Bob?");
    let Some(Message::User { context: Some(context), .. }) = w.request().messages.pop() else { panic!("no context") };
    assert!(
        context.contains("Bob prefers email") && context.contains("2 open") && context.contains("14:05"),
        "{context}"
    );
    w.replies("A colleague.", &[]);
    w.say("Thanks");
    assert_eq!(w.request().messages[0], Message::user("Who is Bob?"));
}

#[test]
fn slash_command_is_expanded_for_model_and_kept_as_typed_in_history() {
    let mut w = World::new();
    w.facts.spoken = Some("Summarise the week in five lines.".to_owned());
    let task = w.say("/week");
    assert_eq!(shown(&w), ["Summarise the week in five lines."]);
    w.replies("Five lines.", &[]);
    assert_eq!(w.answer(task), "Five lines.");
    w.facts.spoken = None;
    w.say("Shorter");
    assert_eq!(shown(&w)[0], "/week");
}

#[test]
fn preamble_of_stateless_client_becomes_history_once() {
    let mut w = World::new();
    let pairs = [("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d")];
    let preamble: Vec<(String, String)> = pairs.map(|(role, text)| (role.to_owned(), text.to_owned())).to_vec();
    let mut inbound = World::inbound("e");
    inbound.preamble.clone_from(&preamble);
    w.receive(inbound.clone());
    assert_eq!(shown(&w), ["a\n\nb", "c", "d", "(no answer)", "e"]);
    assert!(w.conv.turns.first().unwrap().inbound.preamble.is_empty(), "the preamble is moved into the history");
    w.replies("f", &[]);
    w.receive(inbound);
    assert_eq!(shown(&w)[4..], ["e", "f", "e"], "a conversation with a history ignores the preamble");
}

#[test]
fn messages_wait_behind_running_turn_in_order() {
    let mut w = World::new();
    let tasks = [w.say("one"), w.say("two"), w.say("three")];
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(w.current(), Some(task));
        assert_eq!(w.conv.inbox.len(), 2 - n);
        w.replies(&format!("answer {n}"), &[]);
    }
    assert!(w.conv.is_idle());
    let order: Vec<_> = w.log.iter().filter(|e| e.body.is_final()).map(|e| e.task).collect();
    assert_eq!(order, tasks);
}

#[test]
fn empty_reply_is_retried_once_and_then_reported() {
    let mut w = World::new();
    let task = w.say("Hello");
    w.replies(" \n", &[]);
    assert!(w.last_shown().contains("was empty"));
    w.replies("Sorry: hello!", &[]);
    assert_eq!(w.answer(task), "Sorry: hello!");

    let task = w.say("Hello?");
    w.replies("", &[]);
    w.replies("", &[]);
    assert_eq!(w.answer(task), "I have no answer: The model gave an empty answer twice.");
}

#[test]
fn answer_contains_usage_of_whole_turn() {
    let mut w = World::new();
    let task = w.say("Both please");
    w.replies("", &[dispatch("a", &[]), dispatch("b", &[]), collect(&[])]);
    for name in ["a", "b"] {
        w.agent_replies(name, "done", &[]);
    }
    w.replies("Both are done.", &[]);
    let EventBody::Answered { usage, .. } = w.finals(task)[0] else { panic!("no answer") };
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cached_tokens), (400, 40, 200));
    assert!((usage.cost_usd - 4.0 * USAGE.cost_usd).abs() < f64::EPSILON);
}

#[test]
fn usage_sum_round_trips_through_json() {
    let mut sum = crate::message::Usage::default();
    for n in 0..10_000_u32 {
        sum.add(&crate::message::Usage { cost_usd: 0.1 + f64::from(n) * 0.000_123, ..USAGE });
        let back: crate::message::Usage = serde_json::from_str(&serde_json::to_string(&sum).unwrap()).unwrap();
        assert_eq!(back, sum);
    }
    sum.add(&crate::message::Usage { input_tokens: u64::MAX, ..USAGE });
    assert_eq!(sum.input_tokens, u64::MAX, "sums saturate");
}

#[test]
fn history_is_reduced_for_long_message_and_keeps_its_window() {
    let mut w = World::new();
    for n in 0..40 {
        w.say(&format!("question {n} {}", "x".repeat(300)));
        assert!(crate::context::tokens_of(&w.request().messages) <= w.limits.history_tokens_max());
        w.replies(&"y".repeat(300), &[]);
    }
    w.say("short");
    let usual = w.request().stable_messages;
    w.replies("ok", &[]);
    w.say(&"z".repeat(17_000));
    assert!(w.request().stable_messages < usual / 2);
    assert!(crate::context::tokens_of(&w.request().messages) <= w.limits.history_tokens_max());
}

#[test]
fn answer_truncated_by_length_is_continued_once_and_joined() {
    let cut = |text: &str| crate::message::ModelReply { finish: Finish::Length, ..reply(text, &[]) };
    let finish = |w: &World, task| {
        let EventBody::Answered { finish, .. } = w.finals(task)[0] else { panic!("{:?}", w.finals(task)) };
        *finish
    };
    let mut w = World::new();
    let task = w.say("A long story");
    w.replies_with(&cut("Once upon a"));
    assert!(w.last_shown().contains("Go on exactly where it stopped"), "{}", w.last_shown());
    w.replies("time there was.", &[]);
    assert_eq!(w.answer(task), "Once upon a time there was.");
    assert_eq!(finish(&w, task), Finish::Stop);

    let task = w.say("A longer one");
    w.replies_with(&cut("Once upon a"));
    w.replies_with(&cut("time there"));
    assert_eq!(w.answer(task), "Once upon a time there\n\n[This answer was cut off at the model's length limit.]");
    assert_eq!(finish(&w, task), Finish::Length);

    for ends in
        [|w: &mut World| w.replies("", &[]), |w: &mut World| w.model_fails(crate::message::ModelErrorKind::Timeout)]
    {
        let task = w.say("And now?");
        w.replies_with(&cut("Once upon a"));
        ends(&mut w);
        assert_eq!(w.answer(task), "Once upon a\n\n[This answer was cut off at the model's length limit.]");
    }
}

#[test]
fn call_truncated_twice_is_never_shown() {
    let cut = |text: &str| crate::message::ModelReply { finish: Finish::Length, ..reply(text, &[]) };
    let half = r#"{"name": "notes_write", "arguments": {"text": "Once upon a"#;
    for again in [half, "{\"name\": \"notes_write\", \"argu"] {
        let mut w = World::new();
        let task = w.say("Keep a long story as a note");
        w.replies_with(&cut(half));
        assert!(w.last_shown().contains("Send the whole call again"), "{}", w.last_shown());
        w.replies_with(&cut(again));
        let EventBody::Answered { text, outcome, .. } = w.finals(task)[0] else { panic!("no answer") };
        assert_eq!(text, "I have no answer: The model's call was cut off at its length limit, so it was not run.");
        assert_eq!(*outcome, AnswerOutcome::GaveUp);
    }
}

#[test]
fn answer_withheld_by_filter_or_lost_in_reasoning_names_the_cause() {
    let ends = |finish, text: &str| crate::message::ModelReply { finish, ..reply(text, &[]) };
    let mut w = World::new();
    let task = w.say("One");
    w.replies_with(&ends(Finish::ContentFilter, ""));
    assert_eq!(w.answer(task), "I have no answer: The content filter of the model's provider withheld the answer.");
    let task = w.say("Two");
    w.replies_with(&ends(Finish::ContentFilter, "This is"));
    assert_eq!(w.answer(task), "This is\n\n[The content filter of the model's provider cut this answer off.]");
    let task = w.say("Three");
    w.replies_with(&ends(Finish::Length, ""));
    assert!(w.last_shown().contains("Think briefly"), "{}", w.last_shown());
    w.replies_with(&ends(Finish::Length, ""));
    let EventBody::Answered { text, outcome, finish, .. } = w.finals(task)[0] else { panic!("no answer") };
    assert_eq!(text, "I have no answer: The model used its whole output for thinking and wrote no answer.");
    assert_eq!((*outcome, *finish), (AnswerOutcome::GaveUp, Finish::Length));
}

#[test]
fn failed_turn_appears_as_note_in_later_prompts() {
    let mut w = World::new();
    w.say("One");
    w.model_fails(crate::message::ModelErrorKind::Auth);
    w.say("Two");
    w.replies("I'm sorry, but I can't assist with that.", &[]);
    w.say("Three");
    let shown = shown(&w);
    assert!(shown[1].starts_with("[This request failed: The language model refused Annie's key."), "{shown:?}");
    assert_eq!(shown[3], "[This request failed: the model declined to answer.]");
}

#[test]
fn conversation_state_round_trips_through_json_at_every_step() {
    let mut w = World::in_mode(Mode::MultiAgent);
    let same = |w: &World| {
        let json = serde_json::to_string(&w.conv).unwrap();
        let back: crate::turn::Conversation = serde_json::from_str(&json).unwrap();
        assert_eq!(back, w.conv);
    };
    same(&w);
    w.say("Search, then tell me");
    same(&w);
    w.replies("", &[tool("g", "get_skill", &json!({})), dispatch("a", &[]), dispatch("b", &["a"]), collect(&[])]);
    same(&w);
    w.agent_replies("a", "", &[]);
    w.agent_replies("a", "found", &[]);
    same(&w);
    w.agent_replies("b", "done", &[]);
    same(&w);
    w.say("And then?");
    w.replies("That is all.", &[]);
    same(&w);
}

#[test]
fn turn_declined_by_backend_is_answered_with_outcome_declined() {
    let mut w = World::new();
    let task = w.say("Water the plants");
    w.replies_with(&crate::message::ModelReply { declined: true, ..reply("I found no skill for that.", &[]) });
    let EventBody::Answered { outcome, .. } = w.finals(task)[0] else { panic!("no answer") };
    assert_eq!(*outcome, AnswerOutcome::Declined);
    let at = w.log.iter().position(|e| e.body.is_final()).unwrap();
    let e = &w.log[at];
    let new = crate::event::NewEvent { at: e.at, task, agent: e.agent.clone(), body: e.body.clone() };
    let changes = crate::projection::changes(&new);
    let moved = |c: &crate::projection::Change| matches!(c, crate::projection::Change::TaskMoved { error: Some(word), .. } if word == "declined");
    assert!(changes.iter().any(moved), "{changes:?}");
}
