//! Long conversations against the real binary: a model summarises their older part while turns go on, and every front end shows
//! that in one line.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    command_line::annie,
};
use crate::{server::Server, world::eventually};

/// Whether the request asks for a summary.
pub fn asks_for_summary(seen: &Seen) -> bool {
    seen.texts_of("system").concat().contains("You write the summary")
}

async fn events(server: &Server, sent: &Value) -> Vec<Value> {
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events?limit=500")).await;
    log["events"].as_array().expect("events").clone()
}

/// The compactions of the conversation, once there are this many.
pub async fn compactions(server: &Server, sent: &Value, count: usize) -> Vec<Value> {
    eventually("the conversation is compacted", async || {
        let mut events = events(server, sent).await;
        events.retain(|event| event["kind"] == "compacted");
        (events.len() >= count).then_some(events)
    })
    .await
}

/// The prompt of the last turn.
fn last_prompt(model: &FakeModelServer) -> String {
    let requests = model.requests();
    let last = requests.iter().rev().find(|seen| !asks_for_summary(seen)).expect("a turn");
    Value::from(last.messages()).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_conversation_is_summarised_by_a_model_and_front_ends_show_it() {
    let model = FakeModelServer::start(|seen| {
        if asks_for_summary(seen) { Reply::says("SUMMARY: Ann counts.") } else { Reply::says("ok") }
    })
    .await;
    let more = "mode = \"single_loop\"\n[turn]\ncompaction_messages = 4\ncompaction_overlap_messages = 1\n";
    let (folder, server) = server_with(&model, more).await;
    ask(&server, "count ONE").await;
    let sent = ask(&server, "count TWO").await;
    let compacted = &compactions(&server, &sent, 1).await[0];
    assert_eq!((&compacted["messages"], &compacted["backend"]), (&json!(4), &json!("fake")), "{compacted}");
    assert_eq!(compacted["summary"], "SUMMARY: Ann counts.", "{compacted}");

    ask(&server, "count THREE").await;
    let prompt = last_prompt(&model);
    assert!(prompt.contains("SUMMARY: Ann counts.") && prompt.contains("count TWO"), "{prompt}");
    assert!(!prompt.contains("count ONE"), "{prompt}");

    let conversation = sent["conversation_id"].as_str().expect("an id");
    let (_, shown) = server.get(&format!("/api/v1/conversations/{conversation}/messages")).await;
    assert!(shown.to_string().contains("[compacted 4 messages"), "{shown}");
    let (_, out, _) = annie(folder.path(), &["conversations", "show", conversation], &[]).await;
    assert!(out.contains("compacted 4 messages") && out.contains("count ONE"), "{out}");
    let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    let metrics = metrics.text().await.expect("metrics");
    assert!(metrics.contains("annie_compactions_total{") && metrics.contains("by=\"model\""), "{metrics}");
    let (_, replayed) = server.get(&format!("/api/v1/conversations/{conversation}/replay?check=true")).await;
    assert_eq!(replayed["check"]["diverged"].as_u64().unwrap_or_default(), 0, "{replayed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_whose_model_fails_lists_requests_and_delays_no_turn() {
    let model =
        FakeModelServer::start(|seen| if asks_for_summary(seen) { Reply::error(400, "no") } else { Reply::says("ok") })
            .await;
    let more = "mode = \"single_loop\"\n[turn]\ncompaction_messages = 4\ncompaction_overlap_messages = 0\n";
    let (_folder, server) = server_with(&model, more).await;
    ask(&server, "count ONE").await;
    let sent = ask(&server, "count TWO").await;
    let compacted = &compactions(&server, &sent, 1).await[0];
    assert!(compacted["without_model"].as_str().is_some_and(|why| !why.is_empty()), "{compacted}");
    assert!(compacted["summary"].as_str().unwrap_or_default().contains("- The user: count ONE"), "{compacted}");
    assert_eq!(ask(&server, "count THREE").await["answer"], "ok");
    let prompt = last_prompt(&model);
    assert!(prompt.contains("- The user: count TWO") && prompt.contains("Summary of the earlier"), "{prompt}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_summary_is_not_used() {
    let model = FakeModelServer::start(|seen| {
        if asks_for_summary(seen) {
            Reply::says("The user counted ONE and").finish("length")
        } else {
            Reply::says("ok")
        }
    })
    .await;
    let more = "mode = \"single_loop\"\n[turn]\ncompaction_messages = 4\ncompaction_overlap_messages = 0\n";
    let (_folder, server) = server_with(&model, more).await;
    ask(&server, "count ONE").await;
    let sent = ask(&server, "count TWO").await;
    let compacted = &compactions(&server, &sent, 1).await[0];
    let summary = compacted["summary"].as_str().unwrap_or_default();
    assert!(!summary.contains("counted ONE and") && summary.contains("count TWO"), "{compacted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_is_not_compacted_if_that_is_switched_off() {
    let model = FakeModelServer::start(|_| Reply::says("ok")).await;
    let more = "mode = \"single_loop\"\n[turn]\ncompaction_messages = 0\n";
    let (_folder, server) = server_with(&model, more).await;
    let mut sent = Value::Null;
    for n in 0..12 {
        sent = ask(&server, &format!("count {n}!")).await;
    }
    assert!(last_prompt(&model).contains("count 0!"));
    assert!(!model.requests().iter().any(asks_for_summary));
    assert!(events(&server, &sent).await.iter().all(|event| event["kind"] != "compacted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_planner_is_not_asked_for_a_summary() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let text = "[turn]\ncompaction_messages = 4\ncompaction_overlap_messages = 2\n";
    std::fs::write(&config, text).expect("the configuration is written");
    let path = config.to_str().expect("a path").to_owned();
    let server = Server::start(folder.path(), &["--config", &path], &[]).await;
    ask(&server, "create a task to call Bob").await;
    let sent = ask(&server, "create a task to call Eve").await;
    let compacted = &compactions(&server, &sent, 1).await[0];
    let summary = compacted["summary"].as_str().unwrap_or_default();
    assert!(summary.contains("call Bob") && summary.contains("[done: "), "{compacted}");
    assert!(compacted.get("backend").is_none(), "{compacted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_that_a_server_refuses_as_too_long_is_compacted_and_sent_once_more() {
    let model = FakeModelServer::start(|seen| {
        let is_long = Value::from(seen.messages()).to_string().contains("\"count ONE\"");
        if is_long && seen.last_user_text().contains("count THREE") {
            Reply::overflow_vllm()
        } else {
            Reply::says("ok")
        }
    })
    .await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"\n").await;
    ask(&server, "count ONE").await;
    ask(&server, "count TWO").await;
    let before = model.request_count();
    let sent = ask(&server, "count THREE").await;
    assert_eq!(sent["answer"], "ok", "{sent}");
    assert_eq!(model.request_count() - before, 2, "one retry");
    let compacted = &compactions(&server, &sent, 1).await[0];
    assert_eq!((&compacted["cause"], &compacted["messages"]), (&json!("overflow"), &json!(4)), "{compacted}");
    assert!(last_prompt(&model).contains("- The user: count ONE"));
}
