//! Replies that make no sense: each gets an answer that the model can correct, and the turn goes on.

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

/// What the orchestrator is told about one call, and that the turn goes on.
fn told(call: ToolCall) -> String {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies("", &[call]);
    let told = w.results().remove(0);
    w.replies("Sorry.", &[]);
    if w.finals(task).is_empty() {
        w.replies("Sorry.", &[]);
    }
    assert_eq!(w.answer(task), "Sorry.");
    told
}

#[test]
fn a_dispatch_that_is_not_sound_is_told_what_is_wrong_with_it() {
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
        let told = told(dispatch_of(&arguments));
        assert!(told.starts_with("Error: ") && told.contains(expected), "{arguments}: {told}");
    }
}

#[test]
fn other_calls_that_make_no_sense_are_told_so_too() {
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
        (raw("get_skill", "{\"search\": \"quantum\"}"), "{\"skills\":[]}"),
        (raw("use_skill", "{}"), "Error: there is no tool \"use_skill\""),
        (raw("", "{}"), "Error: there is no tool \"\""),
        (collect(&["ghost"]), "Error: no agent ghost was dispatched in this turn."),
        (collect(&["g h"]), "Error: agent_ids names \"g h\", which cannot be an agent's name."),
        (collect(&[]), "{\"agents\":[]}"),
    ];
    for (call, expected) in cases {
        let told = told(call.clone());
        assert!(told.starts_with(expected), "{call:?}: {told}");
    }
}

#[test]
fn circles_and_doubles_are_refused_and_the_sound_dispatches_of_the_same_reply_run() {
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
    let told = w.results();
    assert!(told[0].contains("goes in a circle") && told[1].contains("goes in a circle"), "{told:?}");
    assert!(told[2].contains("accepted") && told[3].contains("already used"), "{told:?}");
    assert!(told[4].starts_with("Error: depends_on"), "{told:?}");
    assert_eq!(w.running(), ["ok"]);
    w.replies("", &[dispatch("ok", &[])]);
    assert!(w.results()[0].contains("\"ok\" was already used in this turn; choose another"));
}

#[test]
fn of_too_many_calls_the_first_are_taken_and_the_rest_is_counted() {
    let mut w = World::new();
    let task = w.say("Do it");
    let calls: Vec<_> =
        (0..500).map(|n| tool(&n.to_string(), "get_skill", &json!({"search": n.to_string()}))).collect();
    w.replies("", &calls);
    let told = w.results();
    assert_eq!(told.len(), 33);
    assert!(told[31].starts_with("{\"skills\""));
    assert!(told[32].contains("32 were taken") && told[32].contains("(468 in all) were not run"), "{}", told[32]);
    w.replies("Fine.", &[]);
    assert_eq!(w.answer(task), "Fine.");
}

#[test]
fn what_is_sent_back_is_fit_to_be_sent() {
    let mut w = World::new();
    w.say("Do it");
    let odd = ToolCall { id: String::new(), name: "tasks.create ünd".to_owned(), arguments: "{".to_owned() };
    let long = ToolCall { id: "same".to_owned(), name: "x".repeat(5_000), arguments: "y".repeat(500_000) };
    let twin = ToolCall { id: "same".to_owned(), ..odd.clone() };
    w.replies(&"z".repeat(500_000), &[odd, long, twin]);
    let messages = w.request().messages;
    let Message::Assistant { text, tool_calls, .. } = &messages[1] else { panic!("{messages:?}") };
    assert!(tool_calls.is_empty(), "no provider takes these names back");
    assert!(text.contains(r#"{"name": "tasks.create ünd", "arguments": {}"#), "its own words stay");
    assert!(text.len() < 200_000);
    assert!(matches!(&messages[2..], [Message::User { text, .. }] if framed(text, "result").len() == 3));
    assert!(w.results().iter().all(|text| text.len() < 3_000), "a model's nonsense is not repeated at length");
}

#[test]
fn a_numbers_shape_is_forgiven_and_its_size_is_not() {
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
fn each_mode_says_which_tools_it_has() {
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
            assert!(!w.results()[0].contains("Call get_skill"), "it has none");
        }
    }
}

#[test]
fn a_reply_with_sound_names_is_sent_back_as_calls_with_one_result_each() {
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
fn text_beside_calls_is_kept_and_does_not_end_the_turn() {
    let mut w = World::new();
    let task = w.say("Do it");
    w.replies_with(&reply("Let me look.", &[tool("1", "get_skill", &json!({}))]));
    assert!(w.finals(task).is_empty());
    assert!(matches!(&w.request().messages[1], Message::Assistant { text, .. } if text == "Let me look."));
}
