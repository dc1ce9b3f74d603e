//! Reminders over HTTP and gRPC: lists, changes, bad input, and the borders between users.

use std::{path::PathBuf, sync::Arc};

use annie_core::{
    ids::{AgentId, ConversationId, IntentId, OperationId, TaskId, UserId},
    outcome::Outcome,
    ports::{OperationGrant, SkillCall, SkillSource},
};
use annie_skillkit::{FileCatalog, FileRules, Runner, RunnerParts};
use annie_store::MemoryStore;
use serde_json::{Value, json};

use super::world::{Server, echo};
use crate::{
    api::ApiLimits,
    auth::KeyScope,
    grpc::v1::{self, reminders_client::RemindersClient},
};

/// A server on a store, with that store.
async fn started() -> (Server, MemoryStore) {
    let store = MemoryStore::new();
    (Server::on(store.clone(), echo(), ApiLimits::default()).await, store)
}

/// Runs the skill that sets reminders.
async fn remind(server: &Server, store: &MemoryStore, title: &str, when: &str) -> Outcome {
    let runner = Runner::new(RunnerParts {
        untrusted: annie_core::approval::UntrustedText::default(),
        memory_decay: annie_skillkit::MemoryDecay::OFF,
        documents: Arc::new(store.clone()),
        catalog: Arc::new(FileCatalog::bundled()),
        notes_folder: PathBuf::new(),
        are_notes_here: false,
        respects_robots: false,
        files: FileRules::default(),
        search: None,
        egress: None,
        secrets: None,
        programs: None,
        owner: UserId::new("ann").unwrap(),
    });
    let (user, agent) = (UserId::local(), AgentId::orchestrator());
    let conversation = ConversationId::for_key(&user, "test");
    let task = TaskId::from_uuid(conversation.uuid());
    let intent = IntentId::for_call(task, &agent, &format!("{title} {when}"));
    let call = SkillCall {
        intent,
        skill: "tasks.remind".to_owned(),
        arguments: json!({"title": title, "when": when}),
        origin: Vec::new(),
        user,
        conversation,
        task,
        agent,
        now: server.state.kernel.now(),
        timezone: "UTC".to_owned(),
        operation: OperationGrant { id: OperationId::for_intent(intent), key: String::new(), path: String::new() },
    };
    runner.run(call).await
}

/// Sets a reminder by the skill.
async fn set(server: &Server, store: &MemoryStore, title: &str, when: &str) {
    let outcome = remind(server, store, title, when).await;
    assert!(outcome.status.is_ok(), "{outcome:?}");
}

#[tokio::test]
async fn reminder_is_listed_snoozed_and_cancelled() {
    let (server, store) = started().await;
    set(&server, &store, "call Bob", "in 3 days").await;
    set(&server, &store, "stretch", "in 2 hours").await;
    let (status, list) = server.get("/api/v1/reminders").await;
    let titles: Vec<&Value> = list["reminders"].as_array().unwrap().iter().map(|row| &row["title"]).collect();
    assert_eq!((status, titles), (200, vec![&json!("stretch"), &json!("call Bob")]), "the next one first");
    let before = list["reminders"][0].clone();

    let (status, snoozed) = server.post("/api/v1/reminders/2/snooze", json!({"minutes": 60})).await;
    assert_eq!((status, &snoozed["number"], &snoozed["due"]), (200, &json!(2), &before["due"]), "{snoozed}");
    assert_ne!(snoozed["remind_at"], before["remind_at"]);
    let (status, cancelled) = server.post("/api/v1/reminders/2/cancel", json!({})).await;
    assert_eq!((status, cancelled.get("remind_at")), (200, None), "{cancelled}");
    let (status, problem) = server.post("/api/v1/reminders/2/cancel", json!({})).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("there is no such reminder")));
    let (_, list) = server.get("/api/v1/reminders").await;
    assert_eq!(list["reminders"].as_array().map(Vec::len), Some(1), "{list}");
}

#[tokio::test]
async fn reminder_request_that_is_wrong_says_what_is_accepted() {
    let (server, store) = started().await;
    set(&server, &store, "stretch", "in 2 hours").await;
    for minutes in [0, 525_601] {
        let (status, problem) = server.post("/api/v1/reminders/1/snooze", json!({"minutes": minutes})).await;
        assert_eq!(status, 400, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("1 to 525600 minutes"), "{problem}");
    }
    let (status, _) = server.post("/api/v1/reminders/1/snooze", json!({"hours": 1})).await;
    assert_eq!(status, 400);
    for path in ["/api/v1/reminders/7/snooze", "/api/v1/reminders/one/snooze"] {
        assert_eq!(server.post(path, json!({"minutes": 5})).await.0, 404, "{path}");
    }
    let past = remind(&server, &store, "x", "2 days ago").await;
    assert_eq!(past.error_type.as_deref(), Some("invalid_arguments"), "{past:?}");
    assert!(past.data.contains("must not be in the past"), "{past:?}");
}

#[tokio::test]
async fn reminder_of_another_user_is_not_found_and_grpc_has_the_same_reminders() {
    let (server, store) = started().await;
    set(&server, &store, "stretch", "in 2 hours").await;
    let scopes = [KeyScope::Chat, KeyScope::JobsRead];
    let owner = server.get("/api/v1/reminders").await.1["reminders"][0].clone();
    let (own, bob) = (server.key("me", &scopes).await, server.key("bob", &scopes).await);
    let mut client = RemindersClient::connect(format!("http://{}", server.at)).await.unwrap();
    let with = |key: &str| -> tonic::metadata::MetadataValue<tonic::metadata::Ascii> {
        format!("Bearer {key}").parse().unwrap()
    };
    let mut request = tonic::Request::new(v1::ListRemindersRequest {});
    request.metadata_mut().insert("authorization", with(&own));
    let listed = client.list(request).await.unwrap().into_inner().reminders;
    let found: Vec<(u64, &str)> = listed.iter().map(|row| (row.number, row.title.as_str())).collect();
    assert_eq!(found, [(1, "stretch")], "{owner}");
    let mut request = tonic::Request::new(v1::ListRemindersRequest {});
    request.metadata_mut().insert("authorization", with(&bob));
    assert!(client.list(request).await.unwrap().into_inner().reminders.is_empty());
    let mut request = tonic::Request::new(v1::ReminderRequest { number: 1 });
    request.metadata_mut().insert("authorization", with(&bob));
    assert_eq!(client.cancel(request).await.unwrap_err().code(), tonic::Code::NotFound);
    let mut request = tonic::Request::new(v1::SnoozeReminderRequest { number: 1, minutes: 5 });
    request.metadata_mut().insert("authorization", with(&bob));
    assert_eq!(client.snooze(request).await.unwrap_err().code(), tonic::Code::NotFound);
    let mut request = tonic::Request::new(v1::SnoozeReminderRequest { number: 1, minutes: 5 });
    request.metadata_mut().insert("authorization", with(&own));
    assert!(client.snooze(request).await.unwrap().into_inner().remind_at_us.is_some());
}
