//! The log lines of a server for programs: one JSON object each, with the ids of the work that they are about.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use crate::{server::Server, world::eventually};

/// A model that has an agent create a task. The agent's first round fails once.
fn dispatches(seen: &Seen, has_failed: &AtomicBool) -> Reply {
    let last = seen.messages().last().cloned().unwrap_or_default();
    let (is_result, text) = (last["role"] == "tool", last["content"].to_string());
    if seen.tool_names().iter().any(|tool| tool == "dispatch_agent") {
        let mission = json!({"agent_id": "helper", "mission": "create the task", "skills": ["tasks.create"]});
        return match is_result {
            true => Reply::says("It is there."),
            false => Reply::calls([("dispatch_agent", mission), ("get_agent_results", json!({}))]),
        };
    }
    if !has_failed.swap(true, Relaxed) {
        return Reply::error(500, "not now");
    }
    Reply::says(if text.contains("Created task") { "Done." } else { "```cmd\ntasks.create --title milk\n```" })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_as_json_name_the_request_conversation_task_and_agent() {
    let has_failed = AtomicBool::new(false);
    let model = FakeModelServer::start(move |seen| dispatches(seen, &has_failed)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let text = format!(
        "mode = \"multi_agent\"\n[log]\nformat = \"json\"\nlevel = \"info,annie_llm=debug\"\n[[backend]]\nname = \"gpu\"\n\
         base_url = \"{}\"\nmodel = \"m\"\nretry_wait_ms_min = 1\nretry_wait_ms_max = 5\n",
        model.base_url()
    );
    std::fs::write(&config, text).expect("written");
    let server = Server::start(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    let request = server.http.post(format!("{}/api/v1/messages?wait=20", server.url)).header("x-request-id", "abc-1");
    let sent = request.json(&json!({"text": "create a task"})).send().await.expect("an answer");
    let sent: Value = sent.json().await.expect("JSON");
    assert_eq!(sent["answer"], "It is there.", "{sent}");
    let lines: Vec<Value> = eventually("the log has the lines", async || {
        let lines = server.log();
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        let objects = lines.iter().filter(|line| line.starts_with('{'));
        (has("message accepted") && has("\"retrying\"")).then(|| objects.map(|line| as_json(line)).collect())
    })
    .await;
    let of = |message: &str, span: &str| {
        let line = lines.iter().find(|line| line["fields"]["message"] == message).expect("the line");
        let spans = line["spans"].as_array().expect("spans");
        spans.iter().find(|one| one["name"] == span).unwrap_or_else(|| panic!("no span {span}: {line}")).clone()
    };
    let (task, conversation) = (&sent["task_id"], &sent["conversation_id"]);
    let accepted = of("message accepted", "request");
    assert_eq!((&accepted["id"], &accepted["task"], &accepted["conversation"]), (&json!("abc-1"), task, conversation));
    let retried = of("retrying", "work");
    assert_eq!((&retried["agent"], &retried["task"], &retried["conversation"]), (&json!("helper"), task, conversation));
}

fn as_json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON: {error}: {line}"))
}
