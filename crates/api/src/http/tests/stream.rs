//! The stream: resumption after any sequence number, without gaps and repeats.

use annie_testkit::scripted_model::{ScriptedModel, says};
use futures_util::StreamExt;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::world::{PATIENCE, Server, delegating, echo, sse};

async fn text_until(response: Response, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut bytes = response.bytes_stream();
    let read = async {
        while let Some(Ok(chunk)) = bytes.next().await {
            text.push_str(&String::from_utf8_lossy(&chunk));
            if enough(&text) {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    text
}

fn path(sent: &Value, rest: &str) -> String {
    format!("/api/v1/conversations/{}/stream{rest}", sent["conversation_id"].as_str().unwrap())
}

#[tokio::test]
async fn stream_replays_log_and_ends_with_its_task() {
    let server = Server::start(delegating()).await;
    let sent = server.say(json!({ "text": "do it" })).await;
    let response =
        server.request(Method::GET, &path(&sent, &format!("?task_id={}", sent["task_id"].as_str().unwrap())));
    let response = response.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let text = text_until(response, |_| false).await;
    assert!(text.starts_with("retry: 2000"), "{text}");
    let events = sse(&text);
    let ids: Vec<u64> = events.iter().filter_map(|e| e.0).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    assert_eq!((events[0].1.as_str(), events.last().unwrap().1.as_str()), ("received", "answered"));
    let last: Value = serde_json::from_str(&events.last().unwrap().2).unwrap();
    assert_eq!((&last["text"], &last["kind"]), (&json!("All is done."), &json!("answered")));
}

#[tokio::test]
async fn stream_resumes_after_last_event_id() {
    let server = Server::start(delegating()).await;
    let sent = server.say(json!({ "text": "do it" })).await;
    let task = format!("?task_id={}", sent["task_id"].as_str().unwrap());
    let whole = text_until(server.request(Method::GET, &path(&sent, &task)).send().await.unwrap(), |_| false).await;
    let whole = sse(&whole);
    for cut in 0..whole.len() {
        let last = whole[..cut].last().and_then(|e| e.0).unwrap_or(0);
        // The header takes precedence over the URL, which is older.
        let again = server.request(Method::GET, &path(&sent, &format!("{task}&after=1")));
        let again = again.header("last-event-id", last).send().await.unwrap();
        assert_eq!(sse(&text_until(again, |_| false).await), whole[cut..], "after {last}");
    }
    let nothing = server.request(Method::GET, &path(&sent, &format!("{task}&after={}", whole.len())));
    assert_eq!(sse(&text_until(nothing.send().await.unwrap(), |_| false).await), []);
}

#[tokio::test]
async fn live_stream_sends_drafts_without_ids_then_stored_events() {
    let server = Server::start(ScriptedModel::new(|_, _| Ok(says("The answer.")))).await;
    let first = server.say(json!({ "text": "one", "conversation_key": "home" })).await;
    let response = server.request(Method::GET, &path(&first, "?after=5")).send().await.unwrap();
    server.say(json!({ "text": "two", "conversation_key": "home" })).await;
    let events = sse(&text_until(response, |text| text.contains("event: answered")).await);
    let stored: Vec<&str> = events.iter().filter(|e| e.0.is_some()).map(|e| e.1.as_str()).collect();
    assert_eq!(stored, ["received", "turn_started", "decided", "model_replied", "answered"]);
    let drafts: Vec<&(Option<u64>, String, String)> = events.iter().filter(|e| e.0.is_none()).collect();
    assert_eq!((drafts.len(), drafts[0].1.as_str()), (1, "draft"));
    let draft: Value = serde_json::from_str(&drafts[0].2).unwrap();
    assert_eq!((&draft["text"], &draft["round"]), (&json!("The answer."), &json!(1)));
}

#[tokio::test]
async fn stream_beyond_last_sequence_number_sends_reset() {
    let server = Server::start(echo()).await;
    let sent = server.say(json!({ "text": "one" })).await;
    let response = server.request(Method::GET, &path(&sent, "?after=99")).send().await.unwrap();
    let events = sse(&text_until(response, |text| text.contains("last_seq")).await);
    assert_eq!((events[0].1.as_str(), events[0].2.as_str()), ("reset", "{\"last_seq\":5}"));
}

#[tokio::test]
async fn stream_for_task_of_another_conversation_is_refused() {
    let server = Server::start(echo()).await;
    let (one, two) = (server.say(json!({ "text": "one" })).await, server.say(json!({ "text": "two" })).await);
    let (status, _) = server.get(&path(&one, &format!("?task_id={}", two["task_id"].as_str().unwrap()))).await;
    assert_eq!(status, 404);
    let (status, problem) = server.get(&path(&one, "?task_id=x")).await;
    assert_eq!((status, &problem["field"]), (400, &json!("task_id")));
}

#[tokio::test]
async fn stopping_server_ends_streams_and_refuses_messages() {
    let mut server = Server::start(ScriptedModel::saying("x").hanging_when(|_, call| call > 0)).await;
    let sent = server.say(json!({ "text": "one", "conversation_key": "home" })).await;
    let response = server.request(Method::GET, &path(&sent, "?after=5")).send().await.unwrap();
    let waiting = server.request(Method::POST, "/api/v1/messages?wait=20").json(&json!({ "text": "two" })).send();
    let closing = async {
        server.model.called(2).await;
        server.state.shared.close(Some(&server.state.kernel)).await;
    };
    // The server stops while this request waits for its answer; the acknowledgement must still arrive.
    let (waited, ()) = tokio::join!(waiting, closing);
    assert_eq!(waited.unwrap().status(), 202);
    let text = text_until(response, |_| false).await;
    assert!(text.contains("closing") && text.trim_end().ends_with("retry: 2000"), "{text}");
    let (status, problem) = server.post("/api/v1/messages", json!({ "text": "late" })).await;
    assert_eq!((status, &problem["code"]), (503, &json!("unavailable")));
    server.ask_to_stop();
    assert!(server.stopped().await.is_ok());
}

#[tokio::test]
async fn streams_per_user_are_limited() {
    let limits = crate::api::ApiLimits { streams_per_user_max: 1, ..Default::default() };
    let server = Server::with(echo(), limits).await;
    let (_, sent) = server.post("/api/v1/messages", json!({ "text": "one" })).await;
    let open = server.request(Method::GET, &path(&sent, "")).send().await.unwrap();
    let (status, problem) = server.get(&path(&sent, "")).await;
    assert_eq!((status, &problem["code"]), (429, &json!("rate_limited")));
    let (status, sent) = server.post("/api/v1/messages?wait=20", json!({ "text": "two" })).await;
    assert_eq!((status, &sent["repeated"]), (202, &json!(false)), "it is stored");
    let why = sent["not_waited"].as_str().unwrap_or_default();
    assert!(why.contains("streams"), "{sent}");
    drop(open);
}

#[tokio::test]
async fn silent_connection_is_closed() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let limits = crate::api::ApiLimits { head_ms_max: 50, ..Default::default() };
    let server = Server::with(echo(), limits).await;
    // No data, the start of either protocol, half a request head, and a complete request without a second one.
    for sent in [
        "",
        "P",
        "PRI * HTTP",
        "GET /healthz HTTP/1.1\r\nhost: local",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let mut connection = tokio::net::TcpStream::connect(server.at).await.unwrap();
        connection.write_all(sent.as_bytes()).await.unwrap();
        let mut received_bytes = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut received_bytes)).await;
        assert!(ended.is_ok(), "after {sent:?}");
        assert_eq!(received_bytes.starts_with(b"HTTP/1.1 200"), sent.ends_with("\r\n\r\n"), "after {sent:?}");
    }
    assert_eq!(server.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn connections_are_limited_and_silent_one_is_closed() {
    use tokio::io::AsyncReadExt;
    let limits = crate::api::ApiLimits { connections_max: 1, head_ms_max: 300, ..Default::default() };
    let server = Server::with(echo(), limits).await;
    let mut silent = tokio::net::TcpStream::connect(server.at).await.unwrap();
    // This request waits until the silent connection is closed.
    assert_eq!(server.get("/healthz").await.0, 200);
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
}
