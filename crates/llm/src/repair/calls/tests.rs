//! Tests with every format in which calls were seen as text, and with texts that only resemble calls.

use super::{super::names::tests::names, *};

fn known() -> Names {
    names(&["get_skill", "use_skill"], &["tasks.create", "tasks.delete"])
}

fn parsed(text: &str) -> Option<Vec<(String, Value)>> {
    let parsed = parse_calls(text, &known())?;
    Some(parsed.calls.into_iter().map(|(name, text)| (name, serde_json::from_str(&text).unwrap())).collect())
}

#[test]
fn parser_finds_call_in_every_known_format() {
    let wanted = vec![("tasks.create".to_owned(), serde_json::json!({"title": "Buy milk"}))];
    for text in [
        r#"{"name": "tasks.create", "arguments": {"title": "Buy milk"}}"#,
        r#"{"name": "tasks_create", "parameters": {"title": "Buy milk"}}"#,
        r#"{"name": "tasks__create", "arguments": "{\"title\": \"Buy milk\"}"}"#,
        r#"{{"name": "tasks.create", "arguments": {{"title": "Buy milk"}}}}"#,
        r#"{{"name": "tasks.create", "arguments": {"title": "Buy milk"}}}"#,
        r#"[{"name": "tasks.create", "arguments": {"title": "Buy milk"}}]"#,
        r#"{"type": "function", "function": {"name": "tasks.create", "arguments": {"title": "Buy milk"}}}"#,
        r#"{"tool_calls": [{"id": "1", "function": {"name": "tasks.create", "arguments": "{\"title\": \"Buy milk\"}"}}]}"#,
        r#"{"tool": "tasks.create", "title": "Buy milk"}"#,
        "<tool_call>\n{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"Buy milk\"}}\n</tool_call>",
        "<tools>{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"Buy milk\"}}</tools>",
        "```json\n{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"Buy milk\"}}\n```",
        "```\n{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"Buy milk\"}\n```",
        "I will add it.\n\n{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"Buy milk\"}}",
        r#"[TOOL_CALLS][{"name": "tasks.create", "arguments": {"title": "Buy milk"}}]"#,
        r#"[TOOL_CALLS]tasks_create[ARGS]{"title": "Buy milk"}"#,
        r#"[Calling tool: tasks.create {"title": "Buy milk"}]"#,
        r#"[Calling tool: tasks.create({"title": "Buy milk"})]"#,
        "<function=tasks.create><parameter=title>Buy milk</parameter></function>",
        "<tool_call>\n<function=tasks.create>\n<parameter=title>\nBuy milk\n</parameter>\n</function>\n</tool_call>",
        "<function=tasks.create>\n<parameter=title>\nBuy milk\n",
        r#"<function=tasks.create>{"title": "Buy milk"}</function>"#,
        r#"<invoke name="tasks.create"><parameter name="title">Buy milk</parameter></invoke>"#,
        "<tool_call>tasks_create\n<arg_key>title</arg_key>\n<arg_value>Buy milk</arg_value>\n</tool_call>",
        r#"tasks_create {"title": "Buy milk"}"#,
        r#"tasks.create({"title": "Buy milk"})"#,
        "{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"Buy milk\", // what to buy\n}}",
        "{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"Buy milk\"}}\n</tool_call>}",
        "```cmd\ntasks.create --title \"Buy milk\"\n```",
        "I will add it.\n```cmd\ntasks.create --title='Buy milk'",
        "```cmd\ntasks_create title=\"Buy milk\"\n```\n",
        "``` cmd \r\ntasks_create title=\"Buy milk\"\r\n```\n",
    ] {
        assert_eq!(parsed(text), Some(wanted.clone()), "{text}");
    }
}

#[test]
fn parser_refuses_command_block_if_a_line_has_positional_arguments() {
    let two = parsed("```cmd\ntasks.create --title a\ntasks.delete --id 1\n```").unwrap();
    assert_eq!(two[1], ("tasks.delete".to_owned(), serde_json::json!({"id": "1"})));
    for text in ["tasks.create Buy milk", "tasks.create --title a\nlaunch --now", "tasks.create --help", "dir"] {
        assert_eq!(parsed(&format!("```cmd\n{text}\n```")), None, "{text}");
    }
}

#[test]
fn parser_keeps_every_value_of_a_repeated_flag() {
    let calls = parsed("```cmd\ntasks.delete --id 1 --id 2 --id 3\n```").unwrap();
    assert_eq!(
        calls[0].1,
        serde_json::json!({"id": ["1", "2", "3"]}),
        "the kernel refuses a list where one value is wanted"
    );
}

#[test]
fn parser_finds_several_calls_in_order() {
    let text = "<tool_call>{\"name\": \"get_skill\"}</tool_call>\n<tool_call>{\"name\": \"use_skill\", \"arguments\": {\"skill\": \"x\"}}</tool_call>";
    let names: Vec<String> = parsed(text).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["get_skill", "use_skill"]);
}

#[test]
fn parser_ignores_quoted_calls() {
    for text in [
        r#"You could call {"name": "tasks.delete", "arguments": {"id": 1}} to delete it."#,
        "For example:\n{\"name\": \"tasks.delete\", \"arguments\": {\"id\": 1}}",
        "The call would be this\n```json\n{\"name\": \"tasks.delete\", \"arguments\": {\"id\": 1}}\n```",
        "{\"name\": \"tasks.delete\", \"arguments\": {\"id\": 1}}\nThat deletes the task.",
        "First this.\nThen that.\n{\"name\": \"tasks.delete\", \"arguments\": {\"id\": 1}}",
        r#"{"name": "Bob", "arguments": {}}"#,
        r#"{"name": "tasks.drop", "arguments": {}}"#,
        r#"{"name": "tasks.delete", "arguments": [1]}"#,
        r#"{"name": "tasks.delete", "arguments": {"id": {"a": 1"#,
        "tasks.delete",
        "tasks.delete removes a task.",
        "```cmd\ntasks.delete 1\n```",
        "",
    ] {
        assert_eq!(parsed(text), None, "{text}");
    }
    let long = format!("{}\n{{\"name\": \"tasks.delete\", \"arguments\": {{}}}}", "x".repeat(201));
    assert_eq!(parsed(&long), None);
}

#[test]
fn arguments_of_native_calls_are_mended_within_limits() {
    assert_eq!(mended_arguments("{\"a\": 1}\n```").as_deref(), Some("{\"a\":1}"));
    assert_eq!(mended_arguments("{\"a\": {\"b\": 1}").as_deref(), Some("{\"a\":{\"b\":1}}"));
    assert_eq!(mended_arguments("{\"a\": {\"b\": {").as_deref(), None);
    assert_eq!(mended_arguments("{\"a\": 1} and then"), None);
    assert_eq!(mended_arguments("[1]"), None);
}
