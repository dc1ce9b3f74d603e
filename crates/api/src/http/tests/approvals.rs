//! Who may decide about calls that wait for a person.

use reqwest::Method;
use serde_json::json;

use super::world::{Server, echo, read};
use crate::auth::KeyScope;

#[tokio::test]
async fn approval_of_another_users_task_is_found_only_by_an_administrator() {
    let server = Server::start(echo()).await;
    let scopes = &[KeyScope::Chat, KeyScope::JobsRead, KeyScope::JobsControl];
    let (ann, bob) = (server.key("ann", scopes).await, server.key("bob", scopes).await);
    let root = server.key("root", &[KeyScope::Admin]).await;
    let sent = server.request(Method::POST, "/api/v1/messages?wait=20").bearer_auth(&ann);
    let (_, sent) = read(sent.json(&json!({ "text": "hello" })).send().await.unwrap()).await;
    let task = sent["task_id"].as_str().unwrap();
    // The task has ended, so for those who may see it none of its calls waits.
    for (key, wanted) in [(&ann, (409, "stale")), (&bob, (404, "not_found")), (&root, (409, "stale"))] {
        for path in [format!("/api/v1/approvals/{task}/approve"), format!("/api/v1/approvals/{task}/deny")] {
            let asked = server.request(Method::POST, &path).bearer_auth(key);
            let (status, body) = read(asked.json(&json!({})).send().await.unwrap()).await;
            assert_eq!((status, &body["code"]), (wanted.0, &json!(wanted.1)), "{path}: {body}");
        }
        let listed = server.request(Method::GET, "/api/v1/approvals").bearer_auth(key);
        let (status, body) = read(listed.send().await.unwrap()).await;
        assert_eq!((status, &body["approvals"]), (200, &json!([])));
    }
}
