//! Replays, copies, the audit trail and the own key over HTTP and gRPC, and the borders between users.

use serde_json::json;

use super::world::{Server, echo};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, audit_client::AuditClient, keys_client::KeysClient, replay_client::ReplayClient},
};

/// A request over gRPC with a key.
fn with<T>(message: T, key: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

#[tokio::test]
async fn replay_and_copies_over_grpc_are_those_of_http_and_of_their_user_only() {
    let server = Server::start(echo()).await;
    let said = server.say(json!({ "text": "hello" })).await;
    let id = said["conversation_id"].as_str().unwrap().to_owned();
    let (status, replayed) = server.get(&format!("/api/v1/conversations/{id}/replay?check=true")).await;
    assert_eq!((status, &replayed["check"]["diverged"]), (200, &json!(0)), "{replayed}");
    let scopes = [KeyScope::Chat];
    let (own, bob) = (server.key("me", &scopes).await, server.key("bob", &scopes).await);
    let mut client = ReplayClient::connect(format!("http://{}", server.at)).await.unwrap();

    let ask = |until_seq| v1::ReplayRequest { conversation_id: id.clone(), until_seq, from_seq: 0, check: true };
    let shown = client.show(with(ask(0), &own)).await.unwrap().into_inner();
    assert_eq!((shown.agrees, json!(shown.last_seq)), (true, replayed["last_seq"].clone()));
    assert_eq!(client.show(with(ask(0), &bob)).await.unwrap_err().code(), tonic::Code::NotFound);
    assert_eq!(client.show(with(ask(9_999), &own)).await.unwrap_err().code(), tonic::Code::InvalidArgument);

    let fork = || v1::ForkRequest { conversation_id: id.clone(), at_seq: 0 };
    assert_eq!(client.fork(with(fork(), &bob)).await.unwrap_err().code(), tonic::Code::NotFound);
    let copy = client.fork(with(fork(), &own)).await.unwrap().into_inner();
    assert_ne!(copy.conversation_id, id);
    let events =
        server.request(reqwest::Method::GET, &format!("/api/v1/conversations/{}/events", copy.conversation_id));
    let (_, events) = super::world::read(events.bearer_auth(&own).send().await.unwrap()).await;
    assert_eq!(events["events"][0]["kind"], "copied", "{events}");

    let export = || v1::ExportConversationRequest { conversation_id: id.clone(), limit: 500, ..Default::default() };
    assert_eq!(client.export(with(export(), &bob)).await.unwrap_err().code(), tonic::Code::NotFound);
    let exported = client.export(with(export(), &own)).await.unwrap().into_inner();
    assert!(exported.next.is_empty() && exported.lines.len() > 2, "{exported:?}");
    let import = |lines: String| v1::ImportConversationRequest { lines, ..Default::default() };
    let imported = client.import(with(import(exported.lines.join("\n")), &bob)).await.unwrap().into_inner();
    assert_ne!(imported.conversation_id, id, "an import has an id of its own");
    let rubbish = client.import(with(import("rubbish".to_owned()), &bob)).await.unwrap_err();
    assert_eq!(rubbish.code(), tonic::Code::InvalidArgument, "{rubbish:?}");
}

#[tokio::test]
async fn fork_over_http_begins_a_copy_at_an_event_that_exists() {
    let server = Server::start(echo()).await;
    let said = server.say(json!({ "text": "hello" })).await;
    let id = said["conversation_id"].as_str().unwrap();
    let (status, copy) = server.post(&format!("/api/v1/conversations/{id}/fork"), json!({ "at": 1 })).await;
    assert_eq!(status, 200, "{copy}");
    assert_ne!(copy["conversation_id"], said["conversation_id"]);
    let (status, problem) = server.post(&format!("/api/v1/conversations/{id}/fork"), json!({ "at": 9_999 })).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("there is no event 9999"), "{problem}");
}

#[tokio::test]
async fn audit_trail_is_of_its_user_and_verification_needs_the_scope_of_operators() {
    let server = Server::start(echo()).await;
    let said = server.say(json!({ "text": "a secret" })).await;
    let id = said["conversation_id"].as_str().unwrap().to_owned();
    let (status, trail) = server.get(&format!("/api/v1/conversations/{id}/audit?limit=500")).await;
    let kinds = trail.to_string();
    assert!(status == 200 && kinds.contains("answered") && !kinds.contains("a secret"), "{trail}");
    let (status, verified) = server.get("/api/v1/audit/verify").await;
    assert_eq!((status, &verified["broken_total"]), (200, &json!(0)), "{verified}");

    let (own, bob) = (server.key("me", &[KeyScope::Chat]).await, server.key("bob", &[KeyScope::Chat]).await);
    let operator = server.key("ops", &[KeyScope::OpsRead]).await;
    let mut client = AuditClient::connect(format!("http://{}", server.at)).await.unwrap();
    let ask = || v1::AuditTrailRequest { conversation_id: id.clone(), limit: 500, ..Default::default() };
    let rows = client.trail(with(ask(), &own)).await.unwrap().into_inner().rows;
    assert!(rows.iter().any(|row| row.contains("answered")), "{rows:?}");
    assert_eq!(client.trail(with(ask(), &bob)).await.unwrap_err().code(), tonic::Code::NotFound);
    let verify = v1::VerifyAuditRequest::default;
    assert_eq!(client.verify(with(verify(), &bob)).await.unwrap_err().code(), tonic::Code::PermissionDenied);
    assert_eq!(client.verify(with(verify(), &operator)).await.unwrap().into_inner().broken_total, 0);
}

#[tokio::test]
async fn own_key_names_its_user_and_scopes_on_every_front_end() {
    let server = Server::start(echo()).await;
    let key = server.key("bob", &[KeyScope::Chat]).await;
    let own = server.request(reqwest::Method::GET, "/api/v1/keys/self").bearer_auth(&key);
    let (status, own) = super::world::read(own.send().await.unwrap()).await;
    assert_eq!((status, &own["user"]), (200, &json!("bob")), "{own}");
    let mut client = KeysClient::connect(format!("http://{}", server.at)).await.unwrap();
    let known = client.own(with(v1::OwnKeyRequest {}, &key)).await.unwrap().into_inner();
    assert_eq!((known.user.as_str(), json!(known.scopes)), ("bob", own["scopes"].clone()));
    let refused = client.own(with(v1::OwnKeyRequest {}, "no key")).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{refused:?}");
}
