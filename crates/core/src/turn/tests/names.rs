//! Variants of calls that models make: names like those of skills, flat arguments, values of another type.

use serde_json::{Value, json};

use super::{
    script::{agent, tool, use_skill},
    world::World,
};
use crate::{
    context::framed,
    event::Mode,
    ids::AgentId,
    limits::{SubAgentInterface, TurnLimits},
    message::{Message, ToolCall},
};

fn called(mode: Mode, call: ToolCall) -> World {
    let mut w = World::in_mode(mode);
    w.say("Do it");
    w.replies("", &[call]);
    w
}

/// The text of a result. It is in a frame if its call could not be sent back as a call.
fn unframed(result: &str) -> String {
    framed(result, "result").first().map_or_else(|| result.to_owned(), |frame| frame.text.clone().into_owned())
}

#[test]
fn call_named_like_a_skill_runs_the_skill() {
    let meant = [("tasks.create".to_owned(), json!({"title": "milk"}))];
    for name in ["tasks.create", "tasks_create", "tasks__create", "Tasks-Create"] {
        for mode in [Mode::SingleLoop, Mode::Direct] {
            let w = called(mode, tool("1", name, &json!({"title": "milk"})));
            assert_eq!(w.skill_calls(&AgentId::orchestrator()), meant, "{mode:?} {name}");
        }
    }
    let odd = called(Mode::SingleLoop, tool("1", "mcp_files_read_all", &json!({})));
    assert_eq!(odd.skill_calls(&AgentId::orchestrator())[0].0, "mcp.files.read__all");
}

#[test]
fn call_arguments_are_found_in_every_position() {
    let create = |arguments: Value| tool("1", "use_skill", &arguments);
    for call in [
        create(json!({"skill": "tasks.create", "title": "milk", "due": "friday"})),
        create(json!({"skill": "tasks_create", "arguments": {"title": "milk"}, "due_date": "friday"})),
        create(json!({"name": "tasks.create", "parameters": {"title": "milk", "due": "friday"}})),
        create(json!({"skill": "tasks.create", "arguments": "{\"title\": \"milk\", \"due\": \"friday\"}"})),
        tool("1", "tasks.create", &json!({"arguments": {"title": "milk", "due": "friday"}})),
    ] {
        for mode in [Mode::SingleLoop, Mode::Direct] {
            let w = called(mode, call.clone());
            let ran = w.skill_calls(&AgentId::orchestrator());
            let meant = ("tasks.create".to_owned(), json!({"title": "milk", "due": "friday"}));
            assert_eq!(ran, [meant], "{call:?} {:?}", w.turn().main.messages);
        }
    }
}

#[test]
fn orchestrator_calling_a_skill_is_given_dispatch_to_copy() {
    for call in [
        tool("1", "tasks.create", &json!({"title": "Buy milk"})),
        use_skill("1", "tasks.create", &json!({"title": "Buy milk"})),
    ] {
        let w = called(Mode::MultiAgent, call);
        let result = w.results().remove(0);
        let error_text = unframed(&result);
        let want = r#"tasks.create is a skill, not a tool. Call: dispatch_agent {"agent_id":"a1","mission":"Run tasks.create --title \"Buy milk\"","skills":["tasks.create"]} and then get_agent_results {}"#;
        assert_eq!(error_text, format!("Error: {want}"));
    }
}

#[test]
fn json_call_error_contains_complete_json_call() {
    let w = called(Mode::SingleLoop, tool("1", "tasks.create", &json!({"due": "tomorrow", "colour": "red"})));
    let error_text = unframed(&w.results()[0]);
    assert!(error_text.contains("it has no argument \"colour\""), "{error_text}");
    assert!(
        error_text.ends_with(r#"use_skill {"skill":"tasks.create","arguments":{"due":"tomorrow","title":"…"}}"#),
        "{error_text}"
    );
    assert!(!error_text.contains("--"), "{error_text}");
    let w = called(Mode::Direct, tool("1", "tasks__create", &json!({})));
    let error_text = w.results().remove(0);
    assert!(error_text.ends_with(r#"tasks__create {"title":"…"}"#), "{error_text}");
}

#[test]
fn skill_error_about_flags_is_rewritten_in_calling_style() {
    let mut w = called(Mode::SingleLoop, use_skill("1", "tasks.create", &json!({"title": "x", "due": "someday"})));
    let sent = "--due is no date\nUsage: tasks.create --title TEXT [--due TEXT]\nTry `tasks.create --help`.";
    w.skill_ends(&AgentId::orchestrator(), 0, crate::outcome::Outcome::permanent("invalid_arguments", sent));
    let error_text = w.results().remove(0);
    assert!(
        error_text.contains("\"due\" is no date\nYour call was: use_skill {\"skill\":\"tasks.create\""),
        "{error_text}"
    );
    assert!(!error_text.contains("--"), "{error_text}");
}

#[test]
fn model_text_of_misnamed_call_is_kept_in_context() {
    let mut w = called(Mode::SingleLoop, tool("1", "tasks.create", &json!({"title": "milk"})));
    w.main_skill("Created task #1.");
    let messages = w.request().messages;
    let [_, Message::Assistant { text, tool_calls, .. }, Message::User { text: result, .. }] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert!(tool_calls.is_empty());
    assert_eq!(text, r#"{"name": "tasks.create", "arguments": {"title":"milk"}}"#);
    let result = &framed(result, "result")[0];
    assert_eq!((result.attributes, &*result.text), ("command=\"tasks.create\" status=\"ok\"", "Created task #1."));
}

#[test]
fn sub_agent_with_json_may_call_granted_skills_by_name_only() {
    let limits = TurnLimits { interface: SubAgentInterface::Json, ..TurnLimits::default() };
    let mut w = World::with(Mode::MultiAgent, limits);
    w.say("Do it");
    w.replies("", &[super::script::dispatch_to_act("a", &[])]);
    w.agent_replies("a", "", &[tool("1", "email_send", &json!({"to": "bob", "body": "hi"}))]);
    assert!(w.last_shown_to("a").contains("\"email.send\" is not available to this agent"), "{}", w.last_shown_to("a"));
    w.agent_replies("a", "", &[tool("1", "tasks_create", &json!({"title": "milk"}))]);
    assert_eq!(w.skill_calls(&agent("a")), [("tasks.create".to_owned(), json!({"title": "milk"}))]);
}
