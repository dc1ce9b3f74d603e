//! Everyday requests in several messages, answered by the offline planner of a server without a model.

use annie::grpc::v1::{FaultSpec, InjectRequest, chaos_client::ChaosClient};
use serde_json::{Value, json};

use crate::server::Server;

/// A server without a model, whose faults can be injected.
async fn start() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[], &[("ANNIE__CHAOS__ENABLED", "true")]).await;
    (folder, server)
}

/// The whole answer to a message in the conversation with this key.
async fn say(server: &Server, key: &str, text: &str) -> Value {
    let body = json!({"text": text, "conversation_key": key});
    let (status, sent) = server.post("/api/v1/messages?wait=30", &body).await.expect("the server answers");
    assert_eq!(status, 200, "{sent}");
    sent
}

async fn answer(server: &Server, key: &str, text: &str) -> String {
    say(server, key, text).await["answer"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_is_created_after_the_users_own_tasks_were_read_and_deleted_by_its_number() {
    let (_folder, server) = start().await;
    answer(&server, "k", "create a task to call Bob").await;
    let due = answer(&server, "k", "what is due?").await;
    assert!(due.contains("Call Bob"), "{due}");
    let made = answer(&server, "k", "every day at 9 remind me to walk").await;
    assert!(made.contains("I created schedule #1"), "the user's own tasks are no texts of others: {made}");
    let gone = answer(&server, "other", "delete schedule 1").await;
    assert!(gone.contains("I cancelled schedule #1") || gone.contains("schedule #1"), "{gone}");
    let kept = answer(&server, "other", "forget everything about Bob").await;
    assert!(kept.contains("one memory at a time"), "{kept}");
    let none = answer(&server, "other", "show my schedules").await;
    assert!(none.contains("There are no schedules"), "{none}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminder_is_snoozed_from_its_own_time_and_its_date_is_corrected() {
    let (_folder, server) = start().await;
    let made = answer(&server, "k", "remind me tomorrow at 8 in the evening to call mom").await;
    assert!(made.contains("20:00"), "{made}");
    let later = answer(&server, "k", "snooze reminder 1 by 1 hour").await;
    assert!(later.contains("21:00: task #1 Call mom"), "an hour after its time, not after now: {later}");
    let moved = answer(&server, "k", "no, I meant 2031-05-06").await;
    assert!(moved.contains("2031-05-06"), "{moved}");
    let deleted = answer(&server, "k", "delete task 1").await;
    assert!(deleted.contains("I deleted task #1"), "{deleted}");
    let restored = answer(&server, "k", "undo that").await;
    assert!(restored.contains("task #1"), "{restored}");
    let list = answer(&server, "k", "list all my tasks").await;
    assert!(list.contains("Call mom"), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effect_of_unknown_outcome_is_not_reported_as_not_done() {
    let (_folder, server) = start().await;
    let [target, place, kind] = ["skill", "tasks.create", "unknown"].map(str::to_owned);
    let spec = FaultSpec { target, place, kind, ..FaultSpec::default() };
    let mut chaos = ChaosClient::connect(server.url.clone()).await.expect("the server listens");
    chaos.inject(InjectRequest { spec: Some(spec) }).await.expect("the fault is known");
    let said = answer(&server, "k", "create a task to call Bob").await;
    assert!(said.contains("I do not know whether this was done") && !said.contains("Not done"), "{said}");
}
