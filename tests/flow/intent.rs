//! Small talk with a short prompt, and the rules of the operator, through the configuration and the front ends.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::Value;

use super::bad_models::{ask, server_with};
use crate::server::Server;

/// What the log says about the intent of the last turn; empty if nothing.
async fn intent(server: &Server, sent: &Value) -> String {
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let events = log["events"].as_array().expect("events");
    let last = events.iter().rfind(|event| event["component"] == "intent");
    last.map_or_else(String::new, |event| event["decision"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_talk_has_no_tools_if_configured_and_nothing_is_open() {
    let model = FakeModelServer::start(|seen| match seen.last_user_text().contains("Thanks") {
        true => Reply::says("You are welcome. What else can I do?"),
        false => Reply::says("Fine."),
    })
    .await;
    let (_folder, server) = server_with(&model, "[prompt]\nshort_for_small_talk = true\n").await;
    for (text, wanted, has_tools) in [
        ("Hello!", "simple", false),
        ("What is due?", "tool_use", true),
        ("Thanks", "simple", false),
        // The last answer asks something.
        ("Thank you", "tool_use", true),
    ] {
        let sent = ask(&server, text).await;
        assert_eq!(intent(&server, &sent).await, wanted, "{text}");
        let request = model.requests().pop().expect("a request").json();
        assert_eq!(request["tools"].as_array().is_some_and(|tools| !tools.is_empty()), has_tools, "{text}: {request}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_talk_has_the_whole_prompt_by_default_and_rules_are_in_it_if_configured() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folder, server) = server_with(&model, "[prompt]\nrules = [\"Never use emoji.\"]\n").await;
    let sent = ask(&server, "Hello!").await;
    assert_eq!(intent(&server, &sent).await, "");
    let request = model.requests().pop().expect("a request").json();
    assert!(request["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{request}");
    assert!(request["messages"].to_string().contains("- Never use emoji."), "{request}");
}
