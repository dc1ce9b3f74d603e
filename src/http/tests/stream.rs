//! The stream: from any place on, without a gap and without a repeat.

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

fn path(said: &Value, rest: &str) -> String {
    format!("/api/v1/conversations/{}/stream{rest}", said["conversation_id"].as_str().unwrap())
}

#[tokio::test]
async fn a_stream_replays_the_log_and_ends_with_its_task() {
    let server = Server::start(delegating()).await;
    let said = server.say(json!({ "text": "do it" })).await;
    let response =
        server.request(Method::GET, &path(&said, &format!("?task_id={}", said["task_id"].as_str().unwrap())));
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
async fn a_client_that_comes_back_goes_on_where_it_was() {
    let server = Server::start(delegating()).await;
    let said = server.say(json!({ "text": "do it" })).await;
    let task = format!("?task_id={}", said["task_id"].as_str().unwrap());
    let whole = text_until(server.request(Method::GET, &path(&said, &task)).send().await.unwrap(), |_| false).await;
    let whole = sse(&whole);
    for cut in 0..whole.len() {
        let last = whole[..cut].last().and_then(|e| e.0).unwrap_or(0);
        // The header wins over the address, which is older.
        let again = server.request(Method::GET, &path(&said, &format!("{task}&after=1")));
        let again = again.header("last-event-id", last).send().await.unwrap();
        assert_eq!(sse(&text_until(again, |_| false).await), whole[cut..], "after {last}");
    }
    let nothing = server.request(Method::GET, &path(&said, &format!("{task}&after={}", whole.len())));
    assert_eq!(sse(&text_until(nothing.send().await.unwrap(), |_| false).await), []);
}

#[tokio::test]
async fn a_live_stream_shows_drafts_without_ids_and_then_what_is_stored() {
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
async fn a_place_that_does_not_exist_is_a_reset() {
    let server = Server::start(echo()).await;
    let said = server.say(json!({ "text": "one" })).await;
    let response = server.request(Method::GET, &path(&said, "?after=99")).send().await.unwrap();
    let events = sse(&text_until(response, |text| text.contains("last_seq")).await);
    assert_eq!((events[0].1.as_str(), events[0].2.as_str()), ("reset", "{\"last_seq\":5}"));
}

#[tokio::test]
async fn a_stream_for_a_task_of_another_conversation_is_refused() {
    let server = Server::start(echo()).await;
    let (one, two) = (server.say(json!({ "text": "one" })).await, server.say(json!({ "text": "two" })).await);
    let (status, _) = server.get(&path(&one, &format!("?task_id={}", two["task_id"].as_str().unwrap()))).await;
    assert_eq!(status, 404);
    let (status, problem) = server.get(&path(&one, "?task_id=x")).await;
    assert_eq!((status, &problem["field"]), (400, &json!("task_id")));
}

#[tokio::test]
async fn a_server_that_stops_ends_its_streams_and_takes_nothing_more() {
    let mut server = Server::start(ScriptedModel::saying("x").hanging_when(|_, call| call > 0)).await;
    let said = server.say(json!({ "text": "one", "conversation_key": "home" })).await;
    let response = server.request(Method::GET, &path(&said, "?after=5")).send().await.unwrap();
    let waiting = server.request(Method::POST, "/api/v1/messages?wait=20").json(&json!({ "text": "two" })).send();
    let closing = async {
        server.model.called(2).await;
        server.state.doors.close(&server.state.kernel).await;
    };
    // The server stops while this waits for its answer, and the acknowledgement still arrives.
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
async fn a_user_has_so_many_streams_and_no_more() {
    let limits = crate::door::DoorLimits { streams_per_user_max: 1, ..Default::default() };
    let server = Server::with(echo(), limits).await;
    let (_, said) = server.post("/api/v1/messages", json!({ "text": "one" })).await;
    let open = server.request(Method::GET, &path(&said, "")).send().await.unwrap();
    let (status, problem) = server.get(&path(&said, "")).await;
    assert_eq!((status, &problem["code"]), (429, &json!("rate_limited")));
    let (status, said) = server.post("/api/v1/messages?wait=20", json!({ "text": "two" })).await;
    assert_eq!((status, &said["repeated"]), (202, &json!(false)), "it is stored");
    let why = said["not_waited"].as_str().unwrap_or_default();
    assert!(why.contains("streams"), "{said}");
    drop(open);
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_ended() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let limits = crate::door::DoorLimits { head_ms_max: 50, ..Default::default() };
    let server = Server::with(echo(), limits).await;
    // Silence, the beginning of either protocol, half a head, and a whole request with nothing behind it.
    for said in [
        "",
        "P",
        "PRI * HTTP",
        "GET /healthz HTTP/1.1\r\nhost: local",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let mut connection = tokio::net::TcpStream::connect(server.at).await.unwrap();
        connection.write_all(said.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut heard)).await;
        assert!(ended.is_ok(), "after {said:?}");
        assert_eq!(heard.starts_with(b"HTTP/1.1 200"), said.ends_with("\r\n\r\n"), "after {said:?}");
    }
    assert_eq!(server.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn connections_have_so_many_places() {
    use tokio::io::AsyncReadExt;
    let limits = crate::door::DoorLimits { connections_max: 1, head_ms_max: 300, ..Default::default() };
    let server = Server::with(echo(), limits).await;
    let mut silent = tokio::net::TcpStream::connect(server.at).await.unwrap();
    // Waits until the silent one has lost its place, and is then served.
    assert_eq!(server.get("/healthz").await.0, 200);
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
}
