//! Invalid replies: each gets an answer by which the model can correct it, and the turn continues.

use serde_json::{Value, json};

use super::{
    script::{collect, dispatch, reply, tool, use_skill},
    world::World,
};
use crate::{
    context::framed,
    event::Mode,
    message::{Message, ToolCall},
};

fn dispatch_of(arguments: &Value) -> ToolCall {
    tool("d", "dispatch_agent", arguments)
}

/// The text that the orchestrator receives for one call. Checks that the turn continues.
fn received(call: ToolCall) -> String {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[call]);
    let received = w.results().remove(0);
    w.replies("Sorry.", &[]);
    if w.finals(task).is_empty() {
        w.replies("Sorry.", &[]);
    }
    assert_eq!(w.answer(task), "Sorry.");
    received
}

#[test]
fn invalid_dispatch_is_answered_with_the_error() {
    let cases = [
        (json!({}), "dispatch_agent needs agent_id"),
        (json!({"agent_id": 7, "mission": "m", "skills": ["tasks.search"]}), "dispatch_agent needs agent_id"),
        (json!({"agent_id": "a b", "mission": "m", "skills": ["tasks.search"]}), "agent_id must be 1 to 64 letters"),
        (json!({"agent_id": "orchestrator", "mission": "m", "skills": ["tasks.search"]}), "and not \"orchestrator\""),
        (json!({"agent_id": "x".repeat(65), "mission": "m", "skills": ["tasks.search"]}), "agent_id must be 1 to 64"),
        (json!({"agent_id": "a", "mission": " ", "skills": ["tasks.search"]}), "dispatch_agent needs a mission"),
        (json!({"agent_id": "a", "mission": "m"}), "dispatch_agent needs skills"),
        (json!({"agent_id": "a", "mission": "m", "skills": []}), "dispatch_agent needs skills"),
        (
            json!({"agent_id": "a", "mission": "m".repeat(9_000), "skills": ["tasks.search"]}),
            "the mission has 9000 bytes and at most 8192 are allowed",
        ),
        (
            json!({"agent_id": "a", "mission": "m", "skills": ["tasks.serch"]}),
            "unknown skill \"tasks.serch\". Did you mean tasks.search",
        ),
        (
            json!({"agent_id": "a", "mission": "m", "skills": ["tasks.search"], "depends_on": ["b"]}),
            "depends_on names b, which was not dispatched",
        ),
        (
            json!({"agent_id": "a", "mission": "m", "skills": ["tasks.search"], "depends_on": ["a"]}),
            "agent a depends on itself",
        ),
        (
            json!({"agent_id": "a", "mission": "m", "skills": ["tasks.search"], "depends_on": "b c"}),
            "depends_on names \"b c\", which cannot be an agent's name",
        ),
    ];
    for (arguments, expected) in cases {
        let received = received(dispatch_of(&arguments));
        assert!(received.starts_with("Error: ") && received.contains(expected), "{arguments}: {received}");
    }
}

#[test]
fn other_invalid_calls_are_answered_with_the_error() {
    let raw = |name: &str, arguments: &str| ToolCall {
        id: "1".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let cases = [
        (raw("get_skill", "{\"domain\": "), "Error: the arguments of get_skill are not valid JSON"),
        (raw("get_skill", "[1]"), "Error: the arguments of get_skill must be a JSON object"),
        (raw("get_skill", ""), "Available domains:"),
        (raw("get_skill", "null"), "Available domains:"),
        (raw("get_skill", "{\"domain\": \" Tasks \"}"), "{\"skills\":[{"),
        (
            raw("get_skill", "{\"domain\": \"taks\"}"),
            "Error: there is no domain \"taks\". The domains are email, mcp, tasks.",
        ),
        (raw("get_skill", "{\"domain\": \"mcp.files\"}"), "{\"skills\":[{"),
        (raw("get_skill", "{\"domain\": \"tasks.create\"}"), "{\"skills\":[{"),
        (raw("get_skill", "{\"domain\": \"mcp.file\"}"), "Error: there is no domain \"mcp.file\"."),
        (raw("get_skill", "{\"search\": \"quantum\"}"), "{\"skills\":[]}"),
        (raw("use_skill", "{}"), "Error: there is no tool \"use_skill\""),
        (raw("", "{}"), "Error: there is no tool \"\""),
        (collect(&["ghost"]), "Error: no agent ghost was dispatched in this turn."),
        (collect(&["g h"]), "Error: agent_ids names \"g h\", which cannot be an agent's name."),
        (collect(&[]), "{\"agents\":[]}"),
    ];
    for (call, expected) in cases {
        let received = received(call.clone());
        assert!(received.starts_with(expected), "{call:?}: {received}");
    }
}

#[test]
fn cyclic_and_duplicate_dispatches_are_refused_and_valid_ones_run() {
    let mut w = World::new();
    w.say("Do it");
    let calls = [
        dispatch("x", &["y"]),
        dispatch("y", &["x"]),
        dispatch("ok", &[]),
        dispatch("ok", &[]),
        dispatch("lost", &["x"]),
    ];
    w.replies("", &calls);
    let received = w.results();
    assert!(received[0].contains("goes in a circle") && received[1].contains("goes in a circle"), "{received:?}");
    assert!(received[2].contains("accepted") && received[3].contains("already used"), "{received:?}");
    assert!(received[4].starts_with("Error: depends_on"), "{received:?}");
    assert_eq!(w.running(), ["ok"]);
    w.replies("", &[dispatch("ok", &[])]);
    assert!(w.results()[0].contains("\"ok\" was already used in this turn; choose another"));
}

#[test]
fn excess_calls_of_a_reply_are_not_run_and_are_counted() {
    let mut w = World::new();
    let task = w.say("Do it");
    let calls: Vec<_> =
        (0..500).map(|n| tool(&n.to_string(), "get_skill", &json!({"search": n.to_string()}))).collect();
    w.replies("", &calls);
    let received = w.results();
    assert_eq!(received.len(), 33);
    assert!(received[31].starts_with("{\"skills\""));
    assert!(
        received[32].contains("32 were taken") && received[32].contains("(468 in all) were not run"),
        "{}",
        received[32]
    );
    w.replies("Fine.", &[]);
    assert_eq!(w.answer(task), "Fine.");
}

#[test]
fn invalid_calls_are_sent_back_in_valid_form() {
    let mut w = World::new();
    w.say("Do it");
    let odd = ToolCall { id: String::new(), name: "tasks.create ünd".to_owned(), arguments: "{".to_owned() };
    let long = ToolCall { id: "same".to_owned(), name: "x".repeat(5_000), arguments: "y".repeat(500_000) };
    let twin = ToolCall { id: "same".to_owned(), ..odd.clone() };
    w.replies(&"z".repeat(500_000), &[odd, long, twin]);
    let messages = w.request().messages;
    let Message::Assistant { text, tool_calls, .. } = &messages[1] else { panic!("{messages:?}") };
    assert!(tool_calls.is_empty(), "providers reject these names");
    assert!(text.contains(r#"{"name": "tasks.create ünd", "arguments": {}"#), "the model's own text is kept");
    assert!(text.len() < 200_000);
    assert!(matches!(&messages[2..], [Message::User { text, .. }] if framed(text, "result").len() == 3));
    assert!(w.results().iter().all(|text| text.len() < 3_000), "invalid input is not repeated at length");
}

#[test]
fn dispatch_accepts_any_number_format_but_limits_its_value() {
    for (asked, granted) in [
        (json!(7), 7),
        (json!("7"), 7),
        (json!(7.9), 7),
        (json!(0), 1),
        (json!(-3), 5),
        (json!(1e30), 15),
        (json!("many"), 5),
        (json!(null), 5),
    ] {
        let mut w = World::new();
        w.say("Do it");
        let arguments = json!({"agent_id": "a", "mission": "m", "skills": ["tasks.search"], "max_tool_calls": asked});
        w.replies("", &[dispatch_of(&arguments)]);
        assert_eq!(w.granted("a"), granted, "{asked}");
    }
}

#[test]
fn unknown_tool_error_lists_tools_of_the_mode() {
    for (mode, call, expected) in [
        (Mode::SingleLoop, use_skill("1", "tasks.delete", &json!({})), "unknown skill \"tasks.delete\". Did you mean"),
        (Mode::SingleLoop, tool("1", "use_skill", &json!({})), "use_skill needs \"skill\""),
        (Mode::SingleLoop, tool("1", "dispatch_agent", &json!({})), "Your tools are get_skill and use_skill."),
        (Mode::Direct, tool("1", "tasks.destroy", &json!({"title": "x"})), "Your tools are those listed."),
        (Mode::Direct, tool("1", "tasks__create", &json!({})), "\"title\" is missing"),
        (Mode::Direct, tool("1", "get_skill", &json!({})), "there is no tool \"get_skill\""),
    ] {
        let mut w = World::in_mode(mode);
        w.say("Do it");
        w.replies("", std::slice::from_ref(&call));
        assert!(w.results()[0].contains(expected), "{call:?}: {:?}", w.results());
        if mode == Mode::Direct {
            assert!(!w.results()[0].contains("Call get_skill"), "this mode has no get_skill");
        }
    }
}

#[test]
fn reply_with_valid_names_is_sent_back_as_calls_with_results() {
    let mut w = World::new();
    w.say("Do it");
    let odd = ToolCall { id: String::new(), name: "tasks_make".to_owned(), arguments: "{".to_owned() };
    let long = ToolCall { id: "same".to_owned(), arguments: "y".repeat(500_000), ..odd.clone() };
    let twin = ToolCall { id: "same".to_owned(), ..odd.clone() };
    w.replies("", &[odd, long, twin]);
    let messages = w.request().messages;
    let Message::Assistant { tool_calls, .. } = &messages[1] else { panic!("{messages:?}") };
    assert!(tool_calls.iter().all(|c| c.name == "tasks_make" && c.arguments.len() < 70_000));
    let mut ids: Vec<&str> = tool_calls.iter().map(|c| c.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let answered: Vec<&str> = messages[2..]
        .iter()
        .map(|m| if let Message::Tool { call_id, .. } = m { call_id.as_str() } else { "?" })
        .collect();
    assert_eq!(answered, tool_calls.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), "every call has one result");
}

#[test]
fn text_next_to_calls_is_kept_and_does_not_end_turn() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies_with(&reply("Let me look.", &[tool("1", "get_skill", &json!({}))]));
    assert!(w.finals(task).is_empty());
    assert!(matches!(&w.request().messages[1], Message::Assistant { text, .. } if text == "Let me look."));
}
