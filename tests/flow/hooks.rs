//! Rules of the operator that refuse a turn or a skill, through the configuration and the front ends.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};
use crate::server::Server;

const RULES: &str = r#"
mode = "single_loop"
[[hook]]
name = "read-only"
point = "before_skill"
kind = "refuse"
when = { skills = ["tasks.create", "weekly-review"] }
text = "Tasks are read-only this week."
[[hook]]
name = "no-voice"
point = "before_turn"
kind = "refuse"
when = { channels = ["voice"] }
text = "Please write to me."
"#;

fn decided(log: &Value) -> Vec<(String, String)> {
    let events = log["events"].as_array().expect("events");
    let of_hooks = events.iter().filter(|e| e["component"].as_str().is_some_and(|c| c.starts_with("hook ")));
    let text = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
    of_hooks.map(|event| (text(event, "component"), text(event, "decision"))).collect()
}

/// Whether a skill has run.
fn has_run(log: &Value, skill: &str) -> bool {
    let events = log["events"].as_array().expect("events");
    events.iter().any(|event| event["kind"] == "skill_finished" && event["skill"] == skill)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuse_rule_keeps_a_skill_from_running_and_tells_the_model() {
    let model = FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default()["content"].to_string();
        if last.contains("[refused]") {
            Reply::says("I may not add tasks this week.")
        } else {
            Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": "milk"}}))])
        }
    })
    .await;
    let (_folder, server) = server_with(&model, RULES).await;
    let sent = ask(&server, "Remind me to buy milk").await;
    assert_eq!(sent["answer"], "I may not add tasks this week.", "{sent}");
    let seen = model.requests().last().expect("a request").messages().last().cloned().unwrap_or_default();
    let seen = seen["content"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        seen,
        "[refused] The rule \"read-only\" does not allow tasks.create here: Tasks are read-only this week. Do not try it \
         again; tell the user."
    );
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    assert_eq!(decided(&log), [("hook read-only".to_owned(), "refuse tasks.create".to_owned())], "{log}");
    let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    let metrics = metrics.text().await.expect("text");
    let counted = "annie_hook_verdicts_total{hook=\"read-only\",point=\"before_skill\",verdict=\"refuse\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuse_rule_holds_for_slash_name_and_before_a_turn() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folder, server) = server_with(&model, RULES).await;
    let sent = ask(&server, "/weekly-review").await;
    assert_eq!(
        (&sent["answer"], &sent["outcome"]),
        (&json!("Tasks are read-only this week."), &json!("declined")),
        "{sent}"
    );
    assert_eq!(model.request_count(), 0, "no round began");
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    assert_eq!(decided(&log), [("hook read-only".to_owned(), "refuse weekly-review".to_owned())], "{log}");
    let voice = json!({"text": "hello", "source": "voice", "conversation_key": "v"});
    let (_, sent) = server.post("/api/v1/messages?wait=20", &voice).await.expect("the server answers");
    assert_eq!(sent["answer"], "Please write to me.", "{sent}");
    assert_eq!(model.request_count(), 0, "no round began");
    assert_eq!(ask(&server, "hello").await["answer"], "Fine.");
    let seen = model.requests().last().expect("a request").messages();
    let seen = serde_json::to_string(&seen).expect("JSON");
    assert!(seen.contains("/weekly-review") && seen.contains("Tasks are read-only"), "later turns know it: {seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_turn_with_a_format_fails() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folder, server) = server_with(&model, &RULES.replace("\"voice\"", "\"openai\"")).await;
    let format = json!({"type": "json_object"});
    let body = json!({"model": "annie", "messages": [{"role": "user", "content": "hello"}], "response_format": format});
    let (status, sent) = server.post("/v1/chat/completions", &body).await.expect("the server answers");
    assert_eq!((status, model.request_count()), (403, 0), "{sent}");
    assert_eq!(sent["error"]["message"], "Please write to me.", "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slash_name_in_a_thread_without_skills_asks_no_hook() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folder, server) = server_with(&model, RULES).await;
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    let body = json!({
        "model": "annie", "messages": [{"role": "user", "content": "/weekly-review"}], "tools": tools,
    });
    let (status, sent) = server.post("/v1/chat/completions", &body).await.expect("the server answers");
    assert_eq!((status, &sent["choices"][0]["message"]["content"]), (200, &json!("Fine.")), "{sent}");
}

/// A model that creates a task. If it may only dispatch agents, a sub-agent creates the task.
fn creates(seen: &Seen) -> Reply {
    let last = seen.messages().last().cloned().unwrap_or_default();
    let (is_result, last) = (last["role"] == "tool", last["content"].to_string());
    let tools = seen.tool_names();
    if is_result || last.contains("Created task") || last.contains("[refused]") {
        Reply::says("That is all.")
    } else if tools.is_empty() {
        Reply::says("```cmd\ntasks.create --title milk\n```")
    } else if tools.iter().any(|tool| tool == "dispatch_agent") {
        let mission = json!({"agent_id": "a", "mission": "create the task", "skills": ["tasks.create"]});
        Reply::calls([("dispatch_agent", mission), ("get_agent_results", json!({}))])
    } else {
        Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": "milk"}}))])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuse_rule_holds_for_its_users_agents_and_channels_only() {
    for (mode, when, is_refused) in [
        ("single_loop", "agents = \"main\"", true),
        ("single_loop", "agents = \"sub\"", false),
        ("multi_agent", "agents = \"sub\"", true),
        ("multi_agent", "agents = \"main\"", false),
        ("single_loop", "users = [\"me\"]", true),
        ("single_loop", "users = [\"bob\"]", false),
        ("multi_agent", "channels = [\"http\"]", true),
        ("multi_agent", "channels = [\"cli\"]", false),
    ] {
        let model = FakeModelServer::start(creates).await;
        let rule = "point = \"before_skill\"\nkind = \"refuse\"\ntext = \"No.\"";
        let rules = format!("mode = \"{mode}\"\n[[hook]]\nname = \"r\"\n{rule}\nwhen = {{ {when} }}\n");
        let (_folder, server) = server_with(&model, &rules).await;
        let sent = ask(&server, "remind me to buy milk").await;
        let conversation = sent["conversation_id"].as_str().expect("a conversation");
        let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
        let found = (!decided(&log).is_empty(), has_run(&log, "tasks.create"));
        assert_eq!(found, (is_refused, !is_refused), "{mode}, {when}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_logs_a_pattern_of_a_hook_that_matches_no_skill() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folder, server) = server_with(&model, &RULES.replace("weekly-review", "weekly-revue")).await;
    let idle: Vec<String> =
        server.log().into_iter().filter(|line| line.contains("no skill matches this pattern of a hook")).collect();
    let [line] = &idle[..] else { panic!("one line: {idle:?}") };
    assert!(line.contains("read-only") && line.contains("weekly-revue"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_planner_names_the_rule_that_refused_and_shows_no_words_for_models() {
    let data = tempfile::tempdir().expect("a folder");
    let config = data.path().join("annie.toml");
    std::fs::write(&config, RULES.replace("mode = \"single_loop\"\n", "")).expect("written");
    let server = Server::start(data.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    let sent = ask(&server, "Create a task to buy milk").await;
    assert_eq!(
        sent["answer"],
        "Not done: “Create a task to buy milk”. The reason: The rule \"read-only\" does not allow tasks.create here: Tasks are \
         read-only this week."
    );
}
