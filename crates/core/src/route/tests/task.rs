//! Tests of the request for an agentic backend.

use super::*;
use crate::message::Message;

fn conversation(turns: usize, answer: &str) -> Vec<Message> {
    (1..=turns)
        .flat_map(|n| [Message::user(format!("question {n}")), Message::assistant(format!("{n} {answer}"))])
        .collect()
}

fn parts(messages: &[Message]) -> (String, String) {
    match messages {
        [Message::User { context, text }] => (context.clone().unwrap_or_default(), text.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hand_over_contains_persona_last_four_turns_and_instruction() {
    let mut messages = conversation(9, "answer");
    messages.push(Message::User { context: Some("It is Monday.".to_owned()), text: "commit these changes".to_owned() });
    let (context, text) = parts(&hand_over("You are Annie.", &messages, 2_000));
    assert_eq!(text, "commit these changes");
    assert!(context.starts_with("You are Annie.\nIt is Monday.\n"), "{context}");
    assert!(context.contains("User: question 6\nAssistant: 6 answer\n") && context.ends_with("Assistant: 9 answer\n"));
    assert!(!context.contains("question 5"));
}

#[test]
fn hand_over_contains_work_done_within_the_turn() {
    let mut messages = conversation(1, "answer");
    messages.push(Message::user("fix it"));
    messages.push(Message::assistant(""));
    messages.push(Message::result("c", "the file is notes.txt"));
    let (context, text) = parts(&hand_over("", &messages, 2_000));
    assert_eq!(text, "fix it");
    assert!(context.ends_with("Result: the file is notes.txt\n"), "{context}");
}

#[test]
fn hand_over_prefers_instruction_over_history_and_truncates_long_answers() {
    let mut messages = conversation(4, &"long ".repeat(2_000));
    messages.push(Message::user("i".repeat(1_000)));
    let (context, text) = parts(&hand_over("You are Annie.", &messages, 1_000));
    assert_eq!(text.len(), 1_000, "whole");
    assert!(context.contains("question 1") && context.contains("[cut: the first"), "{context}");
    assert!(context.len() + text.len() <= 4_000);
    let (context, text) = parts(&hand_over("You are Annie.", &messages, 100));
    assert!(context.len() + text.len() <= 400 && text.contains("[cut:"), "{context}{text}");
    assert_eq!(parts(&hand_over("", &[], 100)), (String::new(), String::new()));
}
