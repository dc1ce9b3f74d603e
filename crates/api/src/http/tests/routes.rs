//! Every HTTP and gRPC route with every kind of caller: refused without a key, refused without its scope, and no access to data
//! of other users.

use annie_core::ids::{ConversationId, TaskId};
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{Server, echo, read};
use crate::{
    api::ApiLimits,
    auth::{KeyScope, Need},
    ops::RULES,
};

/// Calls a route. Returns the HTTP status; for gRPC, the HTTP status that corresponds to the gRPC status.
async fn call_route(server: &Server, method: &str, path: &str, key: Option<&str>, body: &Value) -> (u16, Value) {
    if method == "RPC" {
        return call_grpc(server, path, key).await;
    }
    let method: Method = method.parse().unwrap();
    let mut request = server.request(method.clone(), path).header("x-forwarded-for", "192.0.2.1");
    if method == Method::POST {
        request = request.json(body);
    }
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    let response = request.send().await.unwrap();
    let streams = response.headers().get("content-type").is_some_and(|t| t == "text/event-stream");
    if streams { (response.status().as_u16(), Value::Null) } else { read(response).await }
}

async fn call_grpc(server: &Server, path: &str, key: Option<&str>) -> (u16, Value) {
    let client = annie_llm::http_client().no_proxy().http2_prior_knowledge().build().unwrap();
    let mut request = client
        .post(format!("http://{}{path}", server.at))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(vec![0_u8; 5]);
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let status = response.headers().get("grpc-status").map(|v| v.to_str().unwrap().to_owned());
    let message = response.headers().get("grpc-message").map(|v| v.to_str().unwrap().to_owned());
    let code = match status.as_deref() {
        Some("16") => 401,
        Some("7") => 403,
        Some("12") => 404,
        _ => 200,
    };
    (code, json!({ "detail": message }))
}

/// A path with its parameters filled in.
fn filled(path: &str) -> String {
    let path = path.replace("{id}", "x").replace("{name}", "x").replace("{skill}", "x");
    path.replace("{number}", "1").replace("{*id}", "annie")
}

#[tokio::test]
async fn every_route_requires_a_key() {
    let limits = ApiLimits { wrong_keys_burst_max: 1_000, ..ApiLimits::default() };
    let server = Server::with(echo(), limits).await;
    server.key("ann", &[KeyScope::Chat]).await;
    for (method, path, need) in RULES.iter() {
        let (status, _) = call_route(&server, method, &filled(path), None, &json!({})).await;
        assert_eq!(status == 401, *need != Need::Nothing, "{method} {path} answered {status}");
        let forged = format!("annie_{}_{}", "a".repeat(12), "b".repeat(43));
        let (status, _) = call_route(&server, method, &filled(path), Some(&forged), &json!({})).await;
        assert_eq!(status == 401, *need != Need::Nothing, "{method} {path} answered {status} to a forged key");
    }
    let (status, _) = call_route(&server, "GET", "/api/v1/nowhere", None, &json!({})).await;
    assert_eq!(status, 401, "unauthenticated callers do not learn which routes exist");
}

#[tokio::test]
async fn every_route_requires_its_own_scope() {
    let server = Server::start(echo()).await;
    for scope in KeyScope::ALL {
        let key = server.key("ann", &[scope]).await;
        for (method, path, need) in RULES.iter() {
            let wanted = match need {
                Need::Scope(wanted) | Need::LocalOr(wanted) => *wanted,
                Need::Nothing | Need::AnyKey | Need::OperationKey => scope,
            };
            if *need == Need::OperationKey {
                continue;
            }
            let may = wanted == scope || (scope == KeyScope::Admin && wanted != KeyScope::Impersonate);
            let (status, body) = call_route(&server, method, &filled(path), Some(&key), &json!({})).await;
            assert_ne!(status, 401, "{method} {path}");
            assert_eq!(status == 403, !may, "{method} {path} with {scope} answered {status} {body}");
        }
    }
}

#[tokio::test]
async fn every_rule_has_a_route_and_every_documented_route_a_rule() {
    let server = Server::start(echo()).await;
    let key = server.key("root", &[KeyScope::Admin]).await;
    for (method, path, _) in RULES.iter() {
        let (status, body) = call_route(&server, method, &filled(path), Some(&key), &json!({})).await;
        let lost = body["detail"].as_str().unwrap_or_default();
        assert!(!lost.contains("nothing at this address") && status != 405, "{method} {path}: {status} {body}");
        assert!(*method != "RPC" || status != 404, "{path}");
    }
    let document = crate::http::document();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            assert!(crate::http::openapi::rule(method, path).is_some(), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn user_cannot_see_data_of_another_user() {
    let server = Server::start(echo()).await;
    let all = &KeyScope::ALL[..6];
    let (ann, bob) = (server.key("ann", all).await, server.key("bob", all).await);
    let sent = server.request(Method::POST, "/api/v1/messages?wait=20").bearer_auth(&ann);
    let (_, sent) = read(sent.json(&json!({ "text": "a secret" })).send().await.unwrap()).await;
    let conversation = sent["conversation_id"].as_str().unwrap();
    let task = sent["task_id"].as_str().unwrap();
    let mut looked = 0;
    // Key routes are for operators only; dead letters and operations are tested with data in their own tests.
    // So are deletions, which an operator may make for others: `tests/flow/deletions.rs`. Orders about conversations are in
    // `orders.rs`.
    let is_walked = |method: &str, path: &str| {
        let is_of_one = path.contains("/tasks/{id}") || path.contains("/conversations/{id}");
        let is_order = ["/suspend", "/continue", "/quarantine"].iter().any(|end| path.ends_with(end));
        let is_order = is_order && path.contains("/conversations/");
        is_of_one && method != "DELETE" && !path.ends_with("/restore") && !is_order
    };
    for (method, path, _) in RULES.iter().filter(|(method, path, _)| is_walked(method, path)) {
        let id = if path.contains("/tasks/") { task } else { conversation };
        let path = path.replace("{id}", id);
        let options = match path.rsplit('/').next() {
            Some("priority") => json!({ "priority": "low" }),
            Some("rename") => json!({ "title": "another one" }),
            _ => json!({}),
        };
        let (own, _) = call_route(&server, method, &path, Some(&ann), &options).await;
        let (others, body) = call_route(&server, method, &path, Some(&bob), &options).await;
        // Nothing is quarantined, so no conversation can be resumed.
        assert!(own < 300 || path.ends_with("resume"), "{method} {path} answered {own} to its owner");
        assert_eq!((others, &body["code"]), (404, &json!("not_found")), "{method} {path}");
        looked += 1;
    }
    assert_eq!(looked, 15);
    let within = json!({ "text": "hi", "conversation_id": conversation });
    assert_eq!(call_route(&server, "POST", "/api/v1/messages", Some(&bob), &within).await.0, 404);
    let openai = json!({"model": "annie", "messages": [{"role": "user", "content": "hi"}],
        "metadata": {"conversation_id": conversation}});
    assert_eq!(call_route(&server, "POST", "/v1/chat/completions", Some(&bob), &openai).await.0, 404);
    for list in ["/api/v1/conversations", "/api/v1/tasks", "/api/v1/jobs", "/api/v1/notifications"] {
        let (_, body) = call_route(&server, "GET", list, Some(&bob), &json!({})).await;
        assert!(!body.to_string().contains("secret"), "{body}");
    }
}

#[tokio::test]
async fn conversation_key_is_scoped_to_its_user() {
    let server = Server::start(echo()).await;
    let mut ids = Vec::new();
    for user in ["ann", "bob"] {
        let key = server.key(user, &[KeyScope::Chat]).await;
        let body = json!({ "text": "hi", "conversation_key": "home", "client_id": "1" });
        let (status, body) = call_route(&server, "POST", "/api/v1/messages", Some(&key), &body).await;
        assert_eq!(status, 202);
        ids.push(body["conversation_id"].as_str().unwrap().to_owned());
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn unknown_ids_are_not_found_and_malformed_ids_are_invalid() {
    let server = Server::start(echo()).await;
    let unknown_id = ConversationId::from_uuid(uuid::Uuid::nil());
    let (status, body) = server.get(&format!("/api/v1/conversations/{unknown_id}")).await;
    assert_eq!((status, &body["code"]), (404, &json!("not_found")));
    let task = TaskId::from_uuid(uuid::Uuid::nil());
    let (status, body) = server.get(&format!("/api/v1/conversations/{task}")).await;
    assert_eq!((status, &body["field"]), (400, &json!("id")));
    assert!(body["detail"].as_str().unwrap().contains("conv_"), "{body}");
}
