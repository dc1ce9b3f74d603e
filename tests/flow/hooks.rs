//! Rules of the operator that refuse a turn or a skill, through the configuration and the front ends.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};

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
async fn refused_turn_leaves_a_program_without_an_answer_and_a_thread_without_skills_alone() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folder, server) = server_with(&model, &RULES.replace("\"voice\"", "\"openai\"")).await;
    let format = json!({"type": "json_object"});
    let body = json!({"model": "annie", "messages": [{"role": "user", "content": "hello"}], "response_format": format});
    let (status, sent) = server.post("/v1/chat/completions", &body).await.expect("the server answers");
    assert_eq!((status, model.request_count()), (403, 0), "{sent}");
    assert_eq!(sent["error"]["message"], "Please write to me.", "{sent}");
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    let (_folder, server) = server_with(&model, &RULES.replace("\"voice\"", "\"grpc\"")).await;
    let body = json!({
        "model": "annie", "messages": [{"role": "user", "content": "/weekly-review"}], "tools": tools,
    });
    let (status, sent) = server.post("/v1/chat/completions", &body).await.expect("the server answers");
    assert_eq!((status, &sent["choices"][0]["message"]["content"]), (200, &json!("Fine.")), "{sent}");
}
