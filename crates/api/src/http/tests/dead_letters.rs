//! Dead letters over HTTP and gRPC.

use annie_core::message::{ModelError, ModelErrorKind};
use annie_testkit::{scripted_model::ScriptedModel, skills::FakeSkills};
use reqwest::Method;
use serde_json::json;

use super::world::{Server, read};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, dead_letters_client::DeadLettersClient},
};

/// A server whose model is unavailable.
async fn server_with_unavailable_model() -> Server {
    let model = ScriptedModel::new(|_, _| Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away")));
    Server::hasty(model, FakeSkills::obliging()).await
}

async fn failed(server: &Server, text: &str) -> String {
    let sent = server.say(json!({ "text": text, "priority": "normal" })).await;
    assert_eq!(sent["status"], "failed", "{sent}");
    sent["task_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn dead_letter_is_listed_read_retried_and_discarded() {
    let server = server_with_unavailable_model().await;
    let (one, two) = (failed(&server, "call Bob").await, failed(&server, "call Ann").await);
    let (_, list) = server.get("/api/v1/dead-letters?state=waiting&limit=1").await;
    assert_eq!(list["dead_letters"].as_array().unwrap().len(), 1, "{list}");
    let newest = &list["dead_letters"][0];
    assert_eq!((&newest["task_id"], &newest["state"]), (&json!(two), &json!("waiting")), "{newest}");
    assert_eq!(list["total"], 2, "{list}");
    let next = format!("/api/v1/dead-letters?next={}", list["next"].as_str().unwrap());
    assert_eq!(server.get(&next).await.1["dead_letters"][0]["task_id"], json!(one));
    assert_eq!(server.get("/api/v1/dead-letters?state=lost").await.0, 400);

    let (_, whole) = server.get(&format!("/api/v1/dead-letters/{one}")).await;
    assert_eq!((&whole["text"], &whole["before"]), (&json!("call Bob"), &json!([])), "{whole}");
    assert!(whole["tried"][0].as_str().unwrap().contains("the model is away"), "{whole}");
    assert_eq!(whole["events"].as_array().unwrap().last().unwrap()["kind"], "failed", "{whole}");

    let (status, again) = server.post(&format!("/api/v1/dead-letters/{one}/retry"), json!({})).await;
    assert_eq!((status, &again["repeated"], &again["priority"]), (200, &json!(false), &json!("high")), "{again}");
    let (_, repeat) = server.post(&format!("/api/v1/dead-letters/{one}/retry"), json!({})).await;
    assert_eq!((&repeat["repeated"], &repeat["task_id"]), (&json!(true), &again["task_id"]), "{repeat}");

    let discard = format!("/api/v1/dead-letters/{two}/discard");
    assert_eq!(server.post(&discard, json!({})).await.1, json!({ "discarded": true }));
    assert_eq!(server.post(&discard, json!({})).await.1, json!({ "discarded": false }));
    let (status, stale) = server.post(&format!("/api/v1/dead-letters/{two}/retry"), json!({})).await;
    assert_eq!((status, &stale["code"]), (409, &json!("stale")), "{stale}");
}

#[tokio::test]
async fn dead_letters_are_filtered_and_retried_or_discarded_in_bulk() {
    let server = server_with_unavailable_model().await;
    for text in ["call Bob", "call Ann"] {
        failed(&server, text).await;
    }
    let low = server.say(json!({ "text": "sort photos", "priority": "low" })).await;
    assert_eq!(low["status"], "failed", "{low}");
    let high_priority = server.say(json!({ "text": "hello", "priority": "high" })).await;
    assert_eq!(high_priority["status"], "failed", "{high_priority}");
    let count = async |query: &str| {
        let (status, list) = server.get(&format!("/api/v1/dead-letters?{query}")).await;
        assert_eq!(status, 200, "{query}: {list}");
        list["total"].as_u64().unwrap()
    };
    let now = server.state.kernel.now();
    let (past, future) = (now.plus_ms(-3_600_000), now.plus_ms(3_600_000));
    for (query, wanted) in [
        (String::new(), 3),
        ("priority=low".to_owned(), 1),
        ("error=model_unavailable".to_owned(), 3),
        ("error=context_overflow".to_owned(), 0),
        (format!("failed_before={past}"), 0),
        (format!("failed_from={past}&failed_before={future}"), 3),
        ("user=me&state=waiting".to_owned(), 3),
        ("user=ann".to_owned(), 0),
    ] {
        assert_eq!(count(&query).await, wanted, "{query}");
    }
    for wrong in ["failed_from=yesterday", "priority=urgent", "limit=0", "limit=501", "limit=-1", "next=x", "age=1"] {
        assert_eq!(server.get(&format!("/api/v1/dead-letters?{wrong}")).await.0, 400, "{wrong}");
    }

    let (_, counted) = server.post("/api/v1/dead-letters/discard", json!({ "priority": "normal" })).await;
    assert_eq!(
        counted,
        json!({ "matching": 2, "done": 0, "left": 2, "task_ids": [] }),
        "nothing is changed without confirmation"
    );
    let options = json!({ "priority": "normal", "limit": 1, "confirmed": true });
    let (_, done) = server.post("/api/v1/dead-letters/discard", options).await;
    assert_eq!(done, json!({ "matching": 2, "done": 1, "left": 1, "task_ids": [] }));
    assert_eq!(count("state=discarded").await, 1);
    let (_, retried) = server.post("/api/v1/dead-letters/retry", json!({ "confirmed": true })).await;
    assert_eq!((&retried["matching"], &retried["done"]), (&json!(2), &json!(2)), "{retried}");
    assert_eq!(retried["task_ids"].as_array().unwrap().len(), 2);
    for wrong in [json!({ "limit": 0 }), json!({ "limit": 101 }), json!({ "limit": -1 }), json!({ "confirm": true })] {
        assert_eq!(server.post("/api/v1/dead-letters/retry", wrong.clone()).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn dead_letter_is_visible_to_its_owner_only() {
    let server = server_with_unavailable_model().await;
    let scopes = [KeyScope::Chat, KeyScope::JobsRead, KeyScope::JobsControl];
    let (ann, bob) = (server.key("ann", &scopes).await, server.key("bob", &scopes).await);
    let sent = server.request(Method::POST, "/api/v1/messages?wait=20").bearer_auth(&ann);
    let (_, sent) = read(sent.json(&json!({ "text": "a secret", "priority": "normal" })).send().await.unwrap()).await;
    let path = format!("/api/v1/dead-letters/{}", sent["task_id"].as_str().unwrap());
    let get = async |key: &str, path: &str| {
        read(server.request(Method::GET, path).bearer_auth(key).send().await.unwrap()).await
    };
    assert_eq!((get(&ann, &path).await.0, get(&bob, &path).await.0), (200, 404));
    assert_eq!(get(&bob, "/api/v1/dead-letters").await.1, json!({ "dead_letters": [], "total": 0 }));
    assert_eq!(get(&bob, "/api/v1/dead-letters?user=ann").await.0, 403, "without the scope impersonate");
    for what in ["retry", "discard"] {
        let request = server.request(Method::POST, &format!("{path}/{what}")).bearer_auth(&bob);
        assert_eq!(request.send().await.unwrap().status(), 404, "{what}");
    }
}

#[tokio::test]
async fn dead_letters_are_the_same_over_grpc() {
    let server = server_with_unavailable_model().await;
    let task_id = failed(&server, "call Bob").await;
    let mut dead_letters = DeadLettersClient::connect(format!("http://{}", server.at)).await.unwrap();
    let ask = v1::ListDeadLettersRequest { state: v1::DeadLetterState::Waiting.into(), ..Default::default() };
    let list = dead_letters.list(ask).await.unwrap().into_inner();
    assert_eq!((list.total, list.next.as_str()), (1, ""));
    let other = v1::ListDeadLettersRequest { error: "context_overflow".into(), ..Default::default() };
    assert_eq!(dead_letters.list(other).await.unwrap().into_inner().total, 0);
    let options = v1::ManyDeadLettersRequest { error: "model_unavailable".into(), ..Default::default() };
    let counted = dead_letters.discard_many(options.clone()).await.unwrap().into_inner();
    assert_eq!((counted.matching, counted.done, counted.left), (1, 0, 1), "it was not confirmed");
    let counted = dead_letters.retry_many(options).await.unwrap().into_inner();
    assert_eq!((counted.matching, counted.done), (1, 0), "it was not confirmed");
    let large = dead_letters.list(v1::ListDeadLettersRequest { limit: 501, ..Default::default() }).await.unwrap_err();
    assert_eq!(large.code(), tonic::Code::InvalidArgument);
    assert!(large.message().contains("from 1 to 500"), "{large}");
    let list = list.dead_letters;
    assert_eq!((list.len(), &list[0].task_id, list[0].state()), (1, &task_id, v1::DeadLetterState::Waiting));
    let whole = dead_letters.get(v1::GetDeadLetterRequest { task_id: task_id.clone() }).await.unwrap().into_inner();
    assert_eq!((whole.text.as_str(), whole.events.last().unwrap().kind.as_str()), ("call Bob", "failed"));
    let again = dead_letters.retry(v1::RetryDeadLetterRequest { task_id: task_id.clone() }).await.unwrap().into_inner();
    assert!(!again.repeated && again.task_id != task_id);
    let gone = dead_letters.discard(v1::DiscardDeadLetterRequest { task_id }).await.unwrap().into_inner();
    assert!(!gone.discarded, "it is being retried");
    let unknown_id = annie_core::ids::TaskId::from_uuid(uuid::Uuid::nil()).to_string();
    let none = dead_letters.get(v1::GetDeadLetterRequest { task_id: unknown_id }).await.unwrap_err();
    assert_eq!(none.code(), tonic::Code::NotFound);
}
