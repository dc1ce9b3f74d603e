//! Secrets and numbers of persons in a model's answer reach no front end: neither in the answer, nor in drafts, nor in the
//! history.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};

const KEY: &str = "sk-proj-abc123def456ghi789jkl";
const NUMBER: &str = "078-05-1120";
const MODE: &str = "mode = \"single_loop\"\n";

/// A model that repeats a key and a number, whatever it is asked.
async fn careless() -> FakeModelServer {
    FakeModelServer::start(|_| {
        Reply::says(format!("Your key is {KEY}, and your number is {NUMBER}. That is all."))
            .reasoning(&format!("The key {KEY} is asked for."))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_with_a_key_and_a_social_security_number_is_redacted_in_every_view() {
    let model = careless().await;
    let (_folder, server) = server_with(&model, MODE).await;
    let sent = ask(&server, "What are they?").await;
    let want = "Your key is [redacted: API key], and your number is [redacted: social security number]. That is all.";
    assert_eq!(sent["answer"], want, "{sent}");
    let conversation = sent["conversation_id"].as_str().expect("an id");
    let (_, messages) = server.get(&format!("/api/v1/conversations/{conversation}/messages")).await;
    assert!(messages.to_string().contains(want), "{messages}");
    assert!(!messages.to_string().contains(KEY) && !messages.to_string().contains(NUMBER), "{messages}");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let answered = |log: &Value| log["events"].as_array()?.iter().find(|event| event["kind"] == "answered").cloned();
    let answered = answered(&log).expect("the answer is an event");
    assert!(answered.to_string().contains(r#"["api_key","social_security_number"]"#), "{answered}");
    let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.expect("the server answers");
    let metrics = metrics.text().await.expect("metrics");
    assert!(metrics.contains("annie_answers_redacted_total{kind=\"api_key\"} 1"), "{metrics}");
    // The next request shows the model the redacted answer, not its own words.
    ask(&server, "Again, please.").await;
    let shown = model.requests().last().expect("a request").json().to_string();
    assert!(shown.contains("[redacted: API key]") && !shown.contains(KEY), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drafts_of_an_answer_are_redacted_in_a_stream() {
    let model = careless().await;
    let (_folder, server) = server_with(&model, MODE).await;
    let body = json!({"model": "annie", "stream": true, "messages": [{"role": "user", "content": "What are they?"}]});
    let url = format!("{}/v1/chat/completions", server.url);
    let reply = server.http.post(url).json(&body).send().await.expect("the server answers");
    let stream = reply.text().await.expect("a stream");
    let pieces = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let (mut text, mut reasoning) = (String::new(), String::new());
    for piece in pieces {
        let delta = &piece["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or_default());
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
    }
    let want = "Your key is [redacted: API key], and your number is [redacted: social security number]. That is all.";
    assert_eq!(text, want, "{stream}");
    assert!(!stream.contains("abc123def456"), "{stream}");
    assert!(reasoning.contains("The key [redacted: API key] is asked for."), "{stream}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_keeps_what_its_user_wrote_and_what_the_configuration_lets_through() {
    let model = careless().await;
    let (_folder, server) = server_with(&model, MODE).await;
    let sent = ask(&server, &format!("My number is {NUMBER}. What is my key?")).await;
    let want = format!("Your key is [redacted: API key], and your number is {NUMBER}. That is all.");
    assert_eq!(sent["answer"], want.as_str(), "{sent}");
    let (_folder, server) = server_with(&model, &format!("{MODE}[turn]\nredact = [\"pii\"]\n")).await;
    let sent = ask(&server, "What are they?").await;
    let want = format!("Your key is {KEY}, and your number is [redacted: social security number]. That is all.");
    assert_eq!(sent["answer"], want.as_str(), "{sent}");
}
