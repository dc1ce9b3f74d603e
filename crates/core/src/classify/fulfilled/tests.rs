//! Tests of ready answers: which calls fulfil which messages, and which words of a message no call explains.

use serde_json::json;

use super::*;
use crate::skill::{ArgSpec, SkillFormat};

fn arg(name: &str, kind: ArgKind, default: Value) -> ArgSpec {
    let help = String::new();
    ArgSpec { name: name.to_owned(), kind, required: false, help, minimum: None, maximum: None, default }
}

fn skill(name: &str, effect: Effect, description: &str) -> SkillSpec {
    let choices = ["open", "overdue", "done"].map(str::to_owned).to_vec();
    SkillSpec {
        name: name.to_owned(),
        domain: name.split('.').next().unwrap_or_default().to_owned(),
        description: description.to_owned(),
        body: String::new(),
        args: vec![
            arg("title", ArgKind::Text, Value::Null),
            arg("id", ArgKind::Id, Value::Null),
            arg("due", ArgKind::Date, Value::Null),
            arg("status", ArgKind::Choice(choices), json!("open")),
        ],
        effect,
        external: false,
        timeout_ms: 1,
        alternatives: Vec::new(),
        fallback: std::collections::BTreeMap::new(),
        is_ready: true,
        format: SkillFormat::Command,
        source: "bundled".to_owned(),
    }
}

fn check(skill: &SkillSpec, wanted: bool, cases: &[(&str, Value)]) {
    for (message, arguments) in cases {
        let found = fulfils(message, &[Fulfilment { skill, arguments }]);
        assert_eq!(found, wanted, "{}: {message} {arguments}", skill.name);
    }
}

#[test]
fn list_is_fulfilled_only_if_the_call_has_every_word_of_the_question() {
    let search = skill(
        "tasks.search",
        Effect::Read,
        "List or search the user's tasks by status or due date. Use it for \"what is due\", \"what is on my list\".",
    );
    let due = |due: &str| json!({"due": due});
    check(
        &search,
        true,
        &[
            ("What's on my list?", json!({})),
            ("List my tasks", json!({})),
            ("Hi Annie! Show me my open tasks, please.", json!({})),
            ("What is due today?", due("today")),
            ("what is due on friday", due("2026-11-27")),
            ("What is overdue?", json!({"status": "overdue"})),
            ("Show the tasks about milk", json!({"title": "milk"})),
        ],
    );
    check(
        &search,
        false,
        &[
            ("What is due today?", json!({})),
            ("What is overdue?", json!({})),
            ("List my tasks", json!({"id": 1})),
            ("What is due this week?", due("today")),
            ("How many tasks are due?", json!({})),
            ("Which of my tasks matters most?", json!({})),
            ("Is the report done?", json!({"title": "report"})),
            ("What is due today and tomorrow?", due("today")),
            ("What is on my list? Add milk to it.", json!({})),
            ("What is on Bob's list?", json!({})),
            ("Was ist heute fällig?", due("today")),
            ("List my tasks; summarise them.", json!({})),
            ("What is due?\nAnd what is not?", json!({})),
            ("", json!({})),
            ("Thanks!", json!({})),
        ],
    );
}

#[test]
fn change_is_fulfilled_only_by_one_call_with_every_word_of_the_request() {
    let create = skill(
        "tasks.create",
        Effect::Idempotent,
        "Create a task (to-do) with due date. A due date with a time of day also reminds at this time.",
    );
    check(
        &create,
        true,
        &[
            ("Add milk to my list", json!({"title": "Milk"})),
            ("Please create a task: review PR 42", json!({"title": "Review PR 42"})),
            ("Add a task to buy milk and eggs tomorrow", json!({"title": "Buy milk and eggs", "due": "tomorrow"})),
            ("Add \"call Bob\" for friday at 3pm", json!({"title": "call Bob", "due": "2026-11-27 15:00"})),
        ],
    );
    check(
        &create,
        false,
        &[
            ("Add 10 eggs tomorrow", json!({"title": "eggs", "due": "2026-10-03"})),
            ("Remind me to buy milk", json!({"title": "buy milk"})),
            ("Add milk to my list tomorrow", json!({"title": "milk"})),
            (
                "Add a task: file the taxes by tomorrow",
                json!({"title": "File the taxes", "description": "file the taxes by tomorrow"}),
            ),
            ("Add milk and bread", json!({"title": "milk"})),
            ("Add milk to my list and tell me what is due", json!({"title": "milk"})),
            ("Add milk, then delete the bread", json!({"title": "milk"})),
            ("Add all of these: milk", json!({"title": "milk"})),
            ("Add a task for each guest", json!({"title": "guest"})),
            ("Do not add milk", json!({"title": "milk"})),
            ("Add milk unless it is there", json!({"title": "milk"})),
            ("What is on my list?", json!({"title": "list"})),
            ("Delete milk", json!({"title": "milk"})),
        ],
    );
    let update = skill("tasks.update", Effect::Idempotent, "Change a task: finish it, mark as finished.");
    check(&update, true, &[("Mark task 3 as done", json!({"id": 3, "status": "done"}))]);
    check(
        &update,
        false,
        &[
            ("Mark the milk task as done", json!({"id": 3, "status": "done"})),
            ("Mark task 3 as done", json!({"id": 4, "status": "done"})),
            ("Mark tasks 3 and 4 as done", json!({"id": 3, "status": "done"})),
        ],
    );
    let call = Fulfilment { skill: &create, arguments: &json!({"title": "milk"}) };
    assert!(!fulfils("Add milk to my list", &[call, call]), "a change is alone");
}
