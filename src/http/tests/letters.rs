//! Dead letters through both doors.

use annie_core::message::{ModelError, ModelErrorKind};
use annie_testkit::{scripted_model::ScriptedModel, skills::FakeSkills};
use reqwest::Method;
use serde_json::json;

use super::world::{Server, read};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, dead_letters_client::DeadLettersClient},
};

/// A server whose model is away.
async fn away() -> Server {
    let model = ScriptedModel::new(|_, _| Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away")));
    Server::hasty(model, FakeSkills::obliging()).await
}

async fn failed(server: &Server, text: &str) -> String {
    let said = server.say(json!({ "text": text })).await;
    assert_eq!(said["status"], "failed", "{said}");
    said["task_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_letter_is_listed_read_tried_again_and_put_aside() {
    let server = away().await;
    let (one, two) = (failed(&server, "call Bob").await, failed(&server, "call Ann").await);
    let (_, list) = server.get("/api/v1/dead-letters?state=waiting&limit=1").await;
    assert_eq!(list["dead_letters"].as_array().unwrap().len(), 1, "{list}");
    let newest = &list["dead_letters"][0];
    assert_eq!((&newest["task_id"], &newest["state"]), (&json!(two), &json!("waiting")), "{newest}");
    let next = format!("/api/v1/dead-letters?before={}", newest["failed_us"]);
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
async fn a_letter_is_its_owners_alone() {
    let server = away().await;
    let scopes = [KeyScope::Chat, KeyScope::JobsRead, KeyScope::JobsControl];
    let (ann, bob) = (server.key("ann", &scopes).await, server.key("bob", &scopes).await);
    let said = server.request(Method::POST, "/api/v1/messages?wait=20").bearer_auth(&ann);
    let (_, said) = read(said.json(&json!({ "text": "a secret" })).send().await.unwrap()).await;
    let path = format!("/api/v1/dead-letters/{}", said["task_id"].as_str().unwrap());
    let get = async |key: &str, path: &str| {
        read(server.request(Method::GET, path).bearer_auth(key).send().await.unwrap()).await
    };
    assert_eq!((get(&ann, &path).await.0, get(&bob, &path).await.0), (200, 404));
    assert_eq!(get(&bob, "/api/v1/dead-letters").await.1, json!({ "dead_letters": [] }));
    for what in ["retry", "discard"] {
        let request = server.request(Method::POST, &format!("{path}/{what}")).bearer_auth(&bob);
        assert_eq!(request.send().await.unwrap().status(), 404, "{what}");
    }
}

#[tokio::test]
async fn letters_are_the_same_over_grpc() {
    let server = away().await;
    let task_id = failed(&server, "call Bob").await;
    let mut letters = DeadLettersClient::connect(format!("http://{}", server.at)).await.unwrap();
    let ask = v1::ListLettersRequest { state: v1::LetterState::Waiting.into(), ..Default::default() };
    let list = letters.list(ask).await.unwrap().into_inner().dead_letters;
    assert_eq!((list.len(), &list[0].task_id, list[0].state()), (1, &task_id, v1::LetterState::Waiting));
    let whole = letters.get(v1::GetLetterRequest { task_id: task_id.clone() }).await.unwrap().into_inner();
    assert_eq!((whole.text.as_str(), whole.events.last().unwrap().kind.as_str()), ("call Bob", "failed"));
    let again = letters.retry(v1::RetryLetterRequest { task_id: task_id.clone() }).await.unwrap().into_inner();
    assert!(!again.repeated && again.task_id != task_id);
    let gone = letters.discard(v1::DiscardLetterRequest { task_id }).await.unwrap().into_inner();
    assert!(!gone.discarded, "it is being tried again");
    let nobodys = annie_core::ids::TaskId::from_uuid(uuid::Uuid::nil()).to_string();
    let none = letters.get(v1::GetLetterRequest { task_id: nobodys }).await.unwrap_err();
    assert_eq!(none.code(), tonic::Code::NotFound);
}
