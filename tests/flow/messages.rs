//! A turn over Anthropic's Messages API with the real binary: an overloaded provider, a thinking block that must be sent
//! back, a skill, and a SIGKILL between the skill and the answer.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use crate::server::{Server, Sse};

const TEXT: &str = "remind me to buy milk";
const ANSWER: &str = "I added the task Buy milk.";

/// Refuses the first request. Then it thinks and calls a skill. The first round with the result stalls, the next one
/// answers.
fn by_tools(seen: &Seen) -> Reply {
    let arguments = json!({"skill": "tasks.create", "arguments": {"title": "Buy milk"}});
    match (seen.number, seen.texts_of("tool").is_empty()) {
        (0, _) => Reply::overloaded(),
        (_, true) => Reply::says_and_calls("I add it.", [("use_skill", arguments)]).reasoning("A reminder is a task."),
        (2, false) => Reply::says("never read").stall_after_events(1),
        (_, false) => Reply::says(ANSWER),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anthropic_turn_survives_an_overload_and_a_sigkill_and_sends_its_thinking_back() {
    let model = FakeModelServer::start(by_tools).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let config = format!(
        "mode = \"single_loop\"\n[[backend]]\nname = \"claude\"\nprofile = \"anthropic\"\nbase_url = {:?}\nmodel = \"m\"\n\
         api_key_env = \"CLAUDE_KEY\"\noutput_tokens_max = 4096\nretry_wait_ms_min = 1\nretry_wait_ms_max = 5\n\
         body = {{ thinking = {{ type = \"enabled\", budget_tokens = 1024 }} }}\n",
        model.base_url()
    );
    std::fs::write(&path, config).expect("the configuration is written");
    let arguments = ["--config", path.to_str().expect("a path")];
    let environment = [("CLAUDE_KEY", "sk-ant-1")];
    let mut server = Server::start(folder.path(), &arguments, &environment).await;
    let message = json!({"text": TEXT, "conversation_key": "k"});
    let (status, sent) = server.post("/api/v1/messages", &message).await.expect("accepted");
    assert_eq!(status, 202, "{sent}");
    model.arrived(3).await;
    server.kill();
    let server = server.again(folder.path(), &arguments, &environment).await;
    let conversation = sent["conversation_id"].as_str().expect("an id");
    let events = server.stream(conversation, 0, |seen| seen.last().is_some_and(Sse::is_final)).await;
    let last = events.last().expect("events");
    assert_eq!((last.event.as_str(), last.data["text"].as_str()), ("answered", Some(ANSWER)), "{last:?}");

    let requests: Vec<Value> = model.requests().iter().map(Seen::json).collect();
    assert_eq!(
        requests.len(),
        4,
        "the refused round, two rounds, and the repeated round that the kill had interrupted"
    );
    let exchange = |request: &Value| request["messages"].as_array().map(|m| m[m.len() - 2..].to_vec());
    assert_eq!(exchange(&requests[3]), exchange(&requests[2]), "the repeated round has the same messages");
    let exchange = exchange(&requests[3]).expect("messages");
    let kinds: Vec<&str> =
        exchange[0]["content"].as_array().expect("blocks").iter().filter_map(|b| b["type"].as_str()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"], "{exchange:?}");
    assert_eq!(exchange[0]["content"][0]["thinking"], "A reminder is a task.");
    let results = model.requests()[3].texts_of("tool");
    assert!(results.len() == 1 && results[0].contains("Created task #1"), "{results:?}");
    let limits = |request: &Value| (request["thinking"]["budget_tokens"].as_u64(), request["max_tokens"].as_u64());
    assert!(requests.iter().all(|request| limits(request) == (Some(1_024), Some(4_096))), "{requests:?}");
}
