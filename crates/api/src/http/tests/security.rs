//! Unauthenticated callers, wrong and revoked keys, and misbehaving connections.

use annie_core::ids::UserId;
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{Code, Request};

use super::world::{PATIENCE, Server, echo, read};
use crate::{
    api::ApiLimits,
    auth::KeyScope,
    grpc::v1::{self, actors_client::ActorsClient, chat_client::ChatClient, notifications_client::NotificationsClient},
};

/// A key of a user, with its id.
async fn key_of(server: &Server, user: &str, scopes: &[KeyScope]) -> (String, String) {
    let new = crate::auth::NewKey {
        name: user.to_owned(),
        user: UserId::new(user).unwrap(),
        scopes: scopes.to_vec(),
        expires_at: None,
    };
    let made = server.state.auth.create(new).await.unwrap();
    (made.key.id, made.secret)
}

/// The remaining text of a stream.
async fn rest(response: reqwest::Response) -> String {
    let mut bytes = response.bytes_stream();
    let mut text = String::new();
    let reading = async {
        while let Some(Ok(chunk)) = bytes.next().await {
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the stream ends");
    text
}

#[tokio::test]
async fn revoked_key_ends_its_open_http_streams_and_not_those_of_others() {
    let server = Server::start(echo()).await;
    let (ann_id, ann) = key_of(&server, "ann", &[KeyScope::Chat]).await;
    let (_, bob) = key_of(&server, "bob", &[KeyScope::Chat]).await;
    let conversation = async |key: &str| {
        let sent = server.request(Method::POST, "/api/v1/messages?wait=20").bearer_auth(key);
        let (_, sent) = read(sent.json(&json!({ "text": "hi" })).send().await.unwrap()).await;
        sent["conversation_id"].as_str().unwrap().to_owned()
    };
    let open = async |key: &str, path: &str| {
        let response = server.request(Method::GET, path).bearer_auth(key).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response
    };
    let (anns, bobs) = (conversation(&ann).await, conversation(&bob).await);
    let ann_chat = open(&ann, &format!("/api/v1/conversations/{anns}/stream")).await;
    let ann_notices = open(&ann, "/api/v1/notifications/stream").await;
    let bob_chat = open(&bob, &format!("/api/v1/conversations/{bobs}/stream?after=100")).await;
    server.state.auth.revoke(&ann_id).await.unwrap();
    for stream in [ann_chat, ann_notices] {
        let sent = rest(stream).await;
        assert!(sent.contains("event: error") && sent.contains("unauthenticated"), "{sent}");
    }
    let mut bob_chat = bob_chat.bytes_stream();
    conversation(&bob).await;
    let reset = async { while !String::from_utf8_lossy(&bob_chat.next().await.unwrap().unwrap()).contains("reset") {} };
    tokio::time::timeout(PATIENCE, reset).await.expect("the stream of another key goes on");
}

#[tokio::test]
async fn revoked_key_ends_its_open_grpc_streams() {
    let server = Server::start(echo()).await;
    let (id, key) = key_of(&server, "ann", &[KeyScope::Chat, KeyScope::OpsRead]).await;
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", server.at)).unwrap();
    let channel = channel.connect().await.unwrap();
    fn keyed<T>(key: &str, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        request
    }
    let mut chat = ChatClient::new(channel.clone());
    let sent = chat.submit(keyed(&key, v1::SubmitRequest { text: "hi".to_owned(), ..Default::default() }));
    let conversation_id = sent.await.unwrap().into_inner().conversation_id;
    let wanted = v1::StreamRequest { conversation_id, ..Default::default() };
    let mut items = chat.stream(keyed(&key, wanted)).await.unwrap().into_inner();
    let mut notices = NotificationsClient::new(channel.clone());
    let mut notices =
        notices.follow(keyed(&key, v1::FollowNotificationsRequest::default())).await.unwrap().into_inner();
    let mut actors = ActorsClient::new(channel);
    let watch = v1::WatchRequest { every_ms: 60_000, ..Default::default() };
    let mut tree = actors.watch(keyed(&key, watch)).await.unwrap().into_inner();
    tree.message().await.unwrap().unwrap();
    server.state.auth.revoke(&id).await.unwrap();
    let ended = async {
        let chat = loop {
            match items.message().await {
                Ok(item) => assert!(item.is_some(), "an end without a reason"),
                Err(status) => break status.code(),
            }
        };
        (chat, notices.message().await.unwrap_err().code(), tree.message().await.unwrap_err().code())
    };
    let codes = tokio::time::timeout(PATIENCE, ended).await.expect("the streams end");
    assert_eq!(codes, (Code::Unauthenticated, Code::Unauthenticated, Code::Unauthenticated));
}

#[tokio::test]
async fn creating_key_for_another_user_requires_scope_impersonate() {
    let server = Server::start(echo()).await;
    let (_, admin) = key_of(&server, "root", &[KeyScope::Admin]).await;
    let (_, both) = key_of(&server, "root", &[KeyScope::Admin, KeyScope::Impersonate]).await;
    let mint = async |key: &str, user: &str| {
        let options = json!({ "name": "x", "user": user, "scopes": ["chat"] });
        read(server.request(Method::POST, "/api/v1/keys").bearer_auth(key).json(&options).send().await.unwrap()).await
    };
    let (status, problem) = mint(&admin, "bob").await;
    assert_eq!((status, &problem["field"]), (403, &json!("user")));
    assert!(problem["detail"].as_str().unwrap().contains("impersonate"), "{problem}");
    assert_eq!(mint(&admin, "root").await.0, 201);
    let (status, made) = mint(&both, "bob").await;
    assert_eq!((status, &made["user"], &made["warning"]), (201, &json!("bob"), &Value::Null));
}

#[tokio::test]
async fn wrong_keys_are_throttled_by_address_and_a_valid_key_from_there_passes() {
    let limits = ApiLimits { wrong_keys_burst_max: 3, wrong_keys_per_minute_max: 1, ..ApiLimits::default() };
    let server = Server::with(echo(), limits).await;
    let (id, valid) = key_of(&server, "ann", &[KeyScope::Chat]).await;
    let ask = |key: &str| server.request(Method::GET, "/api/v1/conversations").bearer_auth(key).send();
    let forged = format!("annie_{id}_{}", "a".repeat(43));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(ask(&forged).await.unwrap().status().as_u16());
    }
    assert_eq!(seen, [401, 401, 401, 429]);
    assert!(ask("annie_nonsense").await.unwrap().headers().contains_key("retry-after"));
    assert_eq!(ask(&valid).await.unwrap().status(), 200);
}

#[tokio::test]
async fn server_without_keys_refuses_wrong_key_except_openai_placeholders() {
    let server = Server::start(echo()).await;
    let ask = async |path: &str, key: &str| {
        read(server.request(Method::GET, path).bearer_auth(key).send().await.unwrap()).await
    };
    let (status, problem) = ask("/api/v1/conversations", "annie_wrong").await;
    assert_eq!(status, 401);
    assert!(problem["detail"].as_str().unwrap().contains("has no keys"), "{problem}");
    assert_eq!(ask("/v1/models", "unused-on-loopback").await.0, 200);
    assert_eq!(ask("/v1/models", "annie_wrong").await.0, 401);
}

/// The first line of a server's response to these bytes.
async fn first_line(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.at).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    line(&mut stream).await
}

async fn line(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4_096];
    let count = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8_lossy(&bytes[..count]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn request_must_have_exactly_one_host_header() {
    let server = Server::start(echo()).await;
    server.key("ann", &[KeyScope::Chat]).await;
    let ask = async |hosts: &str| first_line(&server, &format!("GET /healthz HTTP/1.1\r\n{hosts}\r\n")).await;
    assert!(ask("Host: localhost\r\n").await.contains("200"));
    assert!(ask("Host: localhost\r\nHost: evil.example\r\n").await.contains("400"));
    assert!(ask("").await.contains("400"));
}

#[tokio::test]
async fn compressed_body_is_refused() {
    let server = Server::start(echo()).await;
    for path in ["/api/v1/messages", "/v1/chat/completions"] {
        let request = server.request(Method::POST, path).header("content-encoding", "gzip");
        let response = request.header("content-type", "application/json").body("\x1f\u{8b}").send().await.unwrap();
        assert_eq!(response.status(), 415, "{path}");
    }
}

#[tokio::test]
async fn idle_connections_of_one_address_do_not_block_other_clients() {
    let limits =
        ApiLimits { connections_max: 8, connections_per_address_max: 6, head_ms_max: 600_000, ..ApiLimits::default() };
    let server = Server::with(echo(), limits).await;
    let (_, key) = key_of(&server, "ann", &[KeyScope::Chat]).await;
    let mut known = TcpStream::connect(server.at).await.unwrap();
    let ask = format!("GET /api/v1/conversations HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n");
    known.write_all(ask.as_bytes()).await.unwrap();
    assert!(line(&mut known).await.contains("200"));
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(server.at).await.unwrap());
    }
    assert!(first_line(&server, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.contains("200"));
    // A connection that has shown a key is not closed in favour of connections without one.
    known.write_all(ask.as_bytes()).await.unwrap();
    assert!(line(&mut known).await.contains("200"));
    // The oldest idle connection was closed.
    let end = tokio::time::timeout(PATIENCE, idle[0].read(&mut [0; 1])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}
