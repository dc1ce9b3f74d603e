//! Who may see and control running sub-agents.

use reqwest::Method;
use serde_json::json;

use super::world::{Server, echo, read};
use crate::auth::KeyScope;

#[tokio::test]
async fn agents_of_another_users_conversation_are_found_only_by_an_administrator() {
    let server = Server::start(echo()).await;
    let scopes = &[KeyScope::Chat, KeyScope::JobsRead, KeyScope::JobsControl];
    let (ann, bob) = (server.key("ann", scopes).await, server.key("bob", scopes).await);
    let (root, reader) = (server.key("root", &[KeyScope::Admin]).await, server.key("ann", &[KeyScope::JobsRead]).await);
    let sent = server.request(Method::POST, "/api/v1/messages?wait=20").bearer_auth(&ann);
    let (_, sent) = read(sent.json(&json!({ "text": "hello" })).send().await.unwrap()).await;
    let id = sent["conversation_id"].as_str().unwrap();
    for (key, whom) in [(&ann, "agent"), (&bob, "conversation"), (&root, "agent")] {
        for (path, body) in [
            (format!("/api/v1/agents/{id}/steer"), json!({"agent": "one", "text": "x"})),
            (format!("/api/v1/agents/{id}/stop"), json!({"agent": "one"})),
        ] {
            let asked = server.request(Method::POST, &path).bearer_auth(key);
            let (status, body) = read(asked.json(&body).send().await.unwrap()).await;
            assert!(status == 404 && body.to_string().contains(whom), "{path}: {body}");
        }
        let listed = server.request(Method::GET, &format!("/api/v1/agents?conversation_id={id}")).bearer_auth(key);
        let (status, body) = read(listed.send().await.unwrap()).await;
        assert_eq!(status, if whom == "agent" { 200 } else { 404 }, "{body}");
    }
    let asked = server.request(Method::POST, &format!("/api/v1/agents/{id}/stop")).bearer_auth(&reader);
    let (status, body) = read(asked.json(&json!({"agent": "one"})).send().await.unwrap()).await;
    assert_eq!(status, 403, "{body}");
}
