//! Long-running operations over HTTP and gRPC. A result is delivered with the operation's own key.

use annie_core::{
    context::framed,
    ids::OperationId,
    message::Message,
    outcome::{Operation, Outcome},
};
use annie_testkit::{
    scripted_model::{ScriptedModel, calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{Server, last_text, read};
use crate::{
    api::ApiLimits,
    auth::KeyScope,
    grpc::v1::{self, operations_client::OperationsClient},
};

/// A server whose skill starts an operation of one day, and the id of such an operation.
async fn ordered() -> (Server, String) {
    let model = ScriptedModel::new(|request, _| {
        Ok(match request.messages.last() {
            Some(Message::Tool { text, .. }) => says(text.clone()),
            Some(Message::User { text, .. }) if text.starts_with('[') => says(format!("News: {text}")),
            _ => calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "the coffee"}}))]),
        })
    });
    let skills = FakeSkills::new(|call| {
        let operation = Operation { id: call.operation.id, expires_at: call.now.plus_ms(24 * 3_600_000) };
        FakeBehaviour::Answer(Outcome::pending(operation, "The coffee is ordered."))
    });
    let server = Server::hasty(model, skills).await;
    server.say(json!({ "text": "order coffee", "conversation_key": "home" })).await;
    let (_, list) = server.get("/api/v1/operations?open=true").await;
    let id = list["operations"][0]["id"].as_str().unwrap_or_else(|| panic!("{list}")).to_owned();
    (server, id)
}

#[tokio::test]
async fn operation_result_needs_its_own_key_and_is_accepted_once() {
    let (server, id) = ordered().await;
    let (_, one) = server.get(&format!("/api/v1/operations/{id}")).await;
    assert_eq!((&one["skill"], &one["open"]), (&json!("test.put"), &json!(true)), "{one}");
    let (_, grant) = server.get(&format!("/api/v1/operations/{id}/key")).await;
    let (path, key) = (grant["path"].as_str().unwrap().to_owned(), grant["key"].as_str().unwrap().to_owned());
    // From here on callers need keys; the external system that delivers the result has none.
    let owner = server.key("me", &[KeyScope::JobsRead, KeyScope::JobsControl]).await;
    let deliver = async |path: &str, header: &str, value: &str, body: &Value| {
        let request = server.request(Method::POST, path).header(header, value).header("x-forwarded-for", "192.0.2.1");
        read(request.json(body).send().await.unwrap()).await
    };
    let result = json!({ "ok": true, "text": "The coffee is here.", "data": { "cups": 2 } });
    let wrong = "0".repeat(key.len());
    let unknown = format!(
        "/api/v1/resume/{}",
        OperationId::for_intent(annie_core::ids::IntentId::for_call(
            annie_core::ids::TaskId::from_uuid(uuid::Uuid::nil()),
            &annie_core::ids::AgentId::orchestrator(),
            "x",
        ))
    );
    let refused = deliver(&path, "x-operation-key", &wrong, &result).await;
    let nothing = deliver(&unknown, "x-operation-key", &key, &result).await;
    assert_eq!((refused.0, nothing.0), (404, 404));
    assert_eq!(refused.1["detail"], nothing.1["detail"], "a wrong key does not reveal whether the operation exists");
    assert_eq!(deliver(&path, "x-other", "x", &result).await.0, 401);
    assert_eq!(deliver(&path, "x-operation-key", &key, &json!({ "ok": true })).await.0, 400);
    let (status, taken) = deliver(&path, "authorization", &format!("Bearer {key}"), &result).await;
    assert_eq!((status, &taken["repeated"]), (200, &json!(false)), "{taken}");
    server.model.called(3).await;
    let shown = last_text(server.model.requests().last().expect("three rounds"));
    assert!(shown.starts_with("[The test.put that was started earlier"), "{shown}");
    let texts: Vec<_> = framed(&shown, "result").into_iter().map(|frame| frame.text).collect();
    assert_eq!(texts, ["The coffee is here.\n{\"cups\":2}"], "the text of an outside party is in a frame: {shown}");
    let (status, again) = deliver(&path, "x-operation-key", &key, &result).await;
    assert_eq!((status, &again["repeated"], &again["task_id"]), (200, &json!(true), &taken["task_id"]), "{again}");
    let other = json!({ "ok": false, "text": "No coffee." });
    assert_eq!(deliver(&path, "x-operation-key", &key, &other).await.0, 409);

    let get = async |key: &str, path: &str| {
        read(server.request(Method::GET, path).bearer_auth(key).send().await.unwrap()).await
    };
    assert_eq!(get(&owner, &format!("/api/v1/operations/{id}")).await.1["closed_by"], taken["task_id"]);
    assert_eq!(get(&owner, &format!("/api/v1/operations/{id}/key")).await.0, 409, "the key is not valid any more");
    let bob = server.key("bob", &[KeyScope::JobsRead, KeyScope::JobsControl]).await;
    for path in [format!("/api/v1/operations/{id}"), format!("/api/v1/operations/{id}/key")] {
        assert_eq!(get(&bob, &path).await.0, 404, "{path}");
    }
    assert_eq!(get(&bob, "/api/v1/operations").await.1, json!({ "operations": [] }));
}

#[tokio::test]
async fn operation_key_attempts_are_rate_limited() {
    let limits = ApiLimits { requests_burst_max: 2, requests_per_minute_max: 60, ..ApiLimits::default() };
    let server = Server::with(super::world::echo(), limits).await;
    let id = annie_core::ids::TaskId::from_uuid(uuid::Uuid::nil()).to_string().replace("task_", "op_");
    let try_it = || {
        let request = server.request(Method::POST, &format!("/api/v1/resume/{id}")).header("x-operation-key", "00");
        request.json(&json!({ "ok": true, "text": "x" })).send()
    };
    for _ in 0..2 {
        assert_ne!(try_it().await.unwrap().status(), 429);
    }
    let third = try_it().await.unwrap();
    assert_eq!((third.status().as_u16(), third.headers().contains_key("retry-after")), (429, true));
}

#[tokio::test]
async fn operations_are_the_same_over_grpc() {
    let (server, id) = ordered().await;
    let mut operations = OperationsClient::connect(format!("http://{}", server.at)).await.unwrap();
    let list = operations.list(v1::ListOperationsRequest { open: true, ..Default::default() }).await.unwrap();
    assert_eq!(list.into_inner().operations[0].id, id);
    let grant = operations.key(v1::OperationKeyRequest { id: id.clone() }).await.unwrap().into_inner();
    let result = |key: &str, data: &str| v1::FinishOperationRequest {
        id: id.clone(),
        key: key.to_owned(),
        ok: true,
        text: "The coffee is here.".to_owned(),
        data_json: data.to_owned(),
    };
    for (wrong, code) in [
        (result("", ""), tonic::Code::Unauthenticated),
        (result("00", ""), tonic::Code::NotFound),
        (result(&grant.key, "{"), tonic::Code::InvalidArgument),
    ] {
        assert_eq!(operations.finish(wrong).await.unwrap_err().code(), code);
    }
    let taken = operations.finish(result(&grant.key, "{\"cups\": 2}")).await.unwrap().into_inner();
    let one = operations.get(v1::GetOperationRequest { id: id.clone() }).await.unwrap().into_inner();
    assert_eq!((one.open, one.closed_by), (false, taken.task_id));
}
