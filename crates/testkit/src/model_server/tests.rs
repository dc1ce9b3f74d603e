//! The fake model server does what a test asks, down to the packets.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;

/// Sends one completion request over a raw socket and reads until the server closes the connection or `until` has arrived.
async fn ask(server: &FakeModelServer, body: &str, until: Option<&str>) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut got = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        match socket.read(&mut buffer).await {
            Ok(0) => break,
            Ok(n) => got.extend_from_slice(&buffer[..n]),
            Err(error) => {
                got.extend_from_slice(format!("<{}>", error.kind()).as_bytes());
                break;
            }
        }
        if until.is_some_and(|u| String::from_utf8_lossy(&got).contains(u)) {
            break;
        }
    }
    (socket, String::from_utf8_lossy(&got).into_owned())
}

#[tokio::test]
async fn fake_server_passes_the_exact_bytes_to_the_script_and_follows_the_requested_format() {
    let server = FakeModelServer::start(|seen| Reply::says(format!("you said {}", seen.last_user_text()))).await;
    let body = r#"{"stream":true,  "messages":[{"role":"user","content":"hi"}]}"#;
    let (_, streamed) = ask(&server, body, None).await;
    assert!(streamed.contains("text/event-stream") && streamed.contains("data: [DONE]"), "{streamed}");
    let (_, whole) = ask(&server, r#"{"messages":[{"role":"user","content":[{"text":"ho"}]}]}"#, None).await;
    assert!(whole.contains(r#""content":"you said ho""#), "{whole}");
    let seen = server.requests();
    assert_eq!(&seen[0].body[..], body.as_bytes());
    assert_eq!((seen[0].number, seen[1].number, server.request_count()), (0, 1, 2));
}

#[tokio::test]
async fn fake_server_resets_the_connection_of_the_client() {
    let server = FakeModelServer::queue([Reply::says("hello").reset_after_events(1)]).await;
    let (_, got) = ask(&server, r#"{"stream":true}"#, None).await;
    assert!(!got.contains("[DONE]"), "{got}");
    assert!(got.contains("connection reset") || !got.ends_with("0\r\n\r\n"), "{got}");
}

#[tokio::test]
async fn fake_server_counts_a_client_that_disconnects_during_a_stall() {
    let server = FakeModelServer::queue([Reply::says("hello").stall_after_events(2)]).await;
    let (socket, got) = ask(&server, r#"{"stream":true}"#, Some("hello")).await;
    assert!(got.contains("hello"));
    drop(socket);
    server.hung_up(1).await;
}

#[tokio::test]
async fn fake_server_splits_packets_within_a_character() {
    let reply = Reply::says("žluťoučký").split_every_bytes(1);
    let (_, actions) = wire::render(&reply, Spoken::Completions, true);
    let sent: Vec<Bytes> =
        actions.into_iter().filter_map(|a| if let Action::Send(bytes) = a { Some(bytes) } else { None }).collect();
    assert!(sent.iter().all(|b| b.len() == 1));
    assert!(sent.iter().any(|b| std::str::from_utf8(b).is_err()));
}

#[tokio::test]
async fn fake_server_answers_with_an_error_after_the_last_queued_reply() {
    let server = FakeModelServer::queue([Reply::calls([("a", json!({}))]).first_after(Duration::from_millis(5))]).await;
    let (_, first) = ask(&server, "{}", None).await;
    assert!(first.contains("tool_calls"), "{first}");
    let (_, second) = ask(&server, "{}", None).await;
    assert!(second.starts_with("HTTP/1.1 500") && second.contains("used up"), "{second}");
}

#[tokio::test]
async fn fake_server_answers_messages_in_their_protocol_and_enforces_its_rules() {
    let server = FakeModelServer::start(|seen| Reply::says(format!("you said {}", seen.last_user_text()))).await;
    let send = async |version: &str, body: &str| {
        let mut socket = TcpStream::connect(server.addr).await.unwrap();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: k\r\n{version}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut got = String::new();
        socket.read_to_string(&mut got).await.unwrap();
        got
    };
    let version = "anthropic-version: 2023-06-01\r\n";
    let good = r#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let got = send(version, good).await;
    assert!(got.contains("event: message_start") && got.contains("you said hi"), "{got}");
    assert!(send("", good).await.starts_with("HTTP/1.1 400"));
    let bad = r#"{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":"hi"}]}"#;
    let got = send(version, bad).await;
    assert!(got.contains("invalid_request_error") && got.contains("user"), "{got}");
}
