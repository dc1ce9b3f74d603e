//! Messages, answers, history and tasks.

use annie_testkit::scripted_model::ScriptedModel;
use reqwest::Method;
use serde_json::json;

use super::world::{Server, delegating, echo, read};
use crate::api::ApiLimits;

#[tokio::test]
async fn message_is_acknowledged_and_wait_returns_answer() {
    let server = Server::start(echo()).await;
    let (status, accepted) = server.post("/api/v1/messages", json!({ "text": "hello" })).await;
    assert_eq!(status, 202);
    assert_eq!((&accepted["seq"], &accepted["repeated"], &accepted["position"]), (&json!(1), &json!(false), &json!(1)));
    let answer = server.say(json!({ "text": "again", "conversation_id": accepted["conversation_id"] })).await;
    assert_eq!((&answer["status"], &answer["answer"]), (&json!("completed"), &json!("You said: again")));
    assert_eq!(answer["conversation_id"], accepted["conversation_id"]);
}

#[tokio::test]
async fn message_wait_timeout_returns_acknowledgement() {
    let server = Server::start(ScriptedModel::saying("never").hanging_when(|_, _| true)).await;
    let (status, accepted) = server.post("/api/v1/messages?wait=1", json!({ "text": "hello" })).await;
    assert_eq!((status, accepted.get("status")), (202, None));
    let task = accepted["task_id"].as_str().unwrap();
    let (_, row) = server.get(&format!("/api/v1/tasks/{task}")).await;
    assert_eq!((&row["status"], &row["title"], &row["source"]), (&json!("running"), &json!("hello"), &json!("http")));
    let (_, open) = server.get("/api/v1/tasks?open=true").await;
    assert_eq!(open["tasks"][0]["id"], task);
    let (status, cancelled) = server.post(&format!("/api/v1/tasks/{task}/cancel"), json!({})).await;
    assert_eq!((status, &cancelled["cancelled"]), (200, &json!(true)));
    let (status, _) = server.post("/api/v1/messages?wait=9999", json!({ "text": "hello" })).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn message_repeat_is_acknowledged_and_reused_client_id_conflicts() {
    let server = Server::start(echo()).await;
    let first = server.say(json!({ "text": "once", "client_id": "m-1" })).await;
    let repeat = server.request(Method::POST, "/api/v1/messages?wait=20").header("idempotency-key", "m-1");
    let (status, repeat) = read(repeat.json(&json!({ "text": "once" })).send().await.unwrap()).await;
    assert_eq!((status, &repeat["repeated"], &repeat["task_id"]), (200, &json!(true), &first["task_id"]));
    assert_eq!((&repeat["answer"], server.model.call_count()), (&first["answer"], 1));
    let (status, clash) = server.post("/api/v1/messages", json!({ "text": "twice", "client_id": "m-1" })).await;
    assert_eq!((status, &clash["code"]), (409, &json!("conflict")));
    assert_eq!(clash["facts"]["task_id"], first["task_id"]);
    let both = server.request(Method::POST, "/api/v1/messages").header("idempotency-key", "a");
    let (status, both) = read(both.json(&json!({ "text": "x", "client_id": "b" })).send().await.unwrap()).await;
    assert_eq!((status, &both["field"]), (400, &json!("client_id")));
}

#[tokio::test]
async fn conversation_key_names_the_same_conversation() {
    let server = Server::start(echo()).await;
    let one = server.say(json!({ "text": "1", "conversation_key": "home" })).await;
    let two = server.say(json!({ "text": "2", "conversation_key": "home" })).await;
    assert_eq!(one["conversation_id"], two["conversation_id"]);
    let (_, list) = server.get("/api/v1/conversations").await;
    assert_eq!((list["conversations"].as_array().unwrap().len(), &list["conversations"][0]["title"]), (1, &json!("1")));
}

#[tokio::test]
async fn invalid_messages_are_refused_with_reason() {
    let limits = ApiLimits { body_bytes_max: 2_000, ..ApiLimits::default() };
    let server = Server::with(echo(), limits).await;
    let id = annie_core::ids::ConversationId::from_uuid(uuid::Uuid::nil()).to_string();
    let cases = [
        (json!({ "text": "  " }), 400, "empty"),
        (json!({}), 400, "missing field `text`"),
        (json!({ "text": 1 }), 400, "expected a string"),
        (json!({ "text": "x", "texd": 1 }), 400, "unknown field `texd`"),
        (json!({ "text": "x", "mode": "fast" }), 400, "multi_agent"),
        (json!({ "text": "x", "priority": "realtime" }), 400, "voice"),
        (json!({ "text": "x", "conversation_id": "abc" }), 400, "conv_"),
        (json!({ "text": "x", "conversation_id": id }), 404, "no such conversation"),
        (json!({ "text": "x", "conversation_id": id, "conversation_key": "k" }), 400, "not both"),
        (json!({ "text": "x", "conversation_key": "" }), 400, "1 to 512"),
        (json!({ "text": "x", "client_id": "" }), 400, "message id"),
        (json!({ "text": "x".repeat(2_000) }), 413, "2000 bytes"),
    ];
    for (body, status, word) in cases {
        let (got, problem) = server.post("/api/v1/messages", body.clone()).await;
        assert_eq!(got, status, "{body} {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{problem}");
    }
    assert_eq!(server.model.call_count(), 0);
}

#[tokio::test]
async fn non_json_body_is_refused() {
    let server = Server::start(echo()).await;
    for (kind, body, status, word) in [
        ("text/plain", b"{}".as_slice(), 415, "application/json"),
        ("application/json", b"{", 400, "EOF"),
        ("application/json", b"{\"text\": \"\xff\"}", 400, "UTF-8"),
        ("application/json", b"[\"x\"]", 400, "an object at the top level"),
    ] {
        let request = server.request(Method::POST, "/api/v1/messages").header("content-type", kind);
        let (got, problem) = read(request.body(body.to_vec()).send().await.unwrap()).await;
        assert_eq!(got, status, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{problem}");
    }
    // A chunked body without a length.
    let chunks = futures_util::stream::iter((0..3_000).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1_000])));
    let request = server.request(Method::POST, "/api/v1/messages").header("content-type", "application/json");
    let response = request.body(reqwest::Body::wrap_stream(chunks)).send().await.unwrap();
    assert_eq!(response.status(), 413);
}

#[tokio::test]
async fn history_lists_agents_and_skills_and_pages_backwards() {
    let server = Server::start(delegating()).await;
    let sent = server.say(json!({ "text": "do it", "conversation_key": "home" })).await;
    server.say(json!({ "text": "and again", "conversation_key": "home" })).await;
    let id = sent["conversation_id"].as_str().unwrap();
    let (_, page) = server.get(&format!("/api/v1/conversations/{id}/messages?limit=3")).await;
    let roles = |page: &serde_json::Value| -> Vec<String> {
        let texts = page["messages"].as_array().unwrap().iter();
        texts.map(|m| format!("{} {}", m["role"].as_str().unwrap(), m["text"].as_str().unwrap())).collect()
    };
    assert_eq!(roles(&page), ["assistant All is done.", "user and again", "assistant All is done."]);
    let answer = &page["messages"][0];
    assert_eq!((&answer["agents"][0]["agent"], &answer["agents"][0]["status"]), (&json!("doer"), &json!("completed")));
    assert_eq!(
        (&answer["skills"][0]["skill"], &answer["skills"][0]["status"]),
        (&json!("test.put"), &json!("success"))
    );
    let (_, older) =
        server.get(&format!("/api/v1/conversations/{id}/messages?next={}", page["next"].as_str().unwrap())).await;
    assert_eq!((roles(&older), older.get("next")), (vec!["user do it".to_owned()], None));
    let (_, events) = server.get(&format!("/api/v1/conversations/{id}/events?after=1&limit=2")).await;
    assert_eq!((&events["events"][0]["kind"], &events["next"]), (&json!("turn_started"), &json!("3")));
    let (status, problem) = server.post(&format!("/api/v1/conversations/{id}/resume"), json!({})).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("there is no such quarantined conversation")));
}

#[tokio::test]
async fn full_queue_returns_retry_after() {
    let server = Server::start(ScriptedModel::saying("never").hanging_when(|_, _| true)).await;
    let mut refused = None;
    for n in 0..20 {
        let body = json!({ "text": n.to_string(), "conversation_key": "one" });
        let response = server.request(Method::POST, "/api/v1/messages").json(&body).send().await.unwrap();
        if response.status() != 202 {
            refused = Some((response.headers().get("retry-after").cloned(), read(response).await));
            break;
        }
    }
    let (retry_after, (status, problem)) = refused.unwrap();
    assert_eq!((status, &problem["code"]), (429, &json!("queue_full")));
    assert!(retry_after.unwrap().to_str().unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(problem["facts"]["reason"], "user_depth");
}
