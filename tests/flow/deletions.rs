//! Conversations are deleted, restored and erased through the front ends.

use std::{path::Path, time::Duration};

use annie::grpc::v1::{
    ConversationRequest, DeleteConversationRequest, TrashRequest, conversations_client::ConversationsClient,
};
use annie_actors::{DeleteOptions, PAGE_MAX};
use annie_core::{
    event::{EventBody, Inbound, NewEvent, Scope},
    ids::{AgentId, ConversationId, TaskId, UserId},
    ports::{Append, Before, DeleteConversation, Deletions, Fence, Log, Records, Snapshot, Store},
    time::Micros,
};
use annie_store::{SqliteOptions, SqliteStore};
use annie_testkit::scripted_model::says;
use serde_json::{Value, json};
use uuid::Uuid;

use super::command_line::annie;
use crate::{
    server::Server,
    world::{WorldParts, ann, eventually},
};

/// In the message, and therefore in every table that has content.
const SECRET: &str = "pelican";
const DAY_US: i64 = 24 * 3_600_000_000;

async fn talked(data: &Path, server: &Server) -> String {
    let (code, _, err) =
        annie(data, &["ask", "--conversation", "home", "create a task to call the pelican"], &[]).await;
    assert_eq!(code, 0, "{err}");
    let (_, list) = server.get("/api/v1/conversations").await;
    list["conversations"][0]["id"].as_str().expect("a conversation").to_owned()
}

async fn delete(server: &Server, key: &str, path: &str) -> (u16, Value) {
    let request = server.http.delete(format!("{}{path}", server.url)).bearer_auth(key);
    let answer = request.timeout(Duration::from_secs(30)).send().await.expect("the server answers");
    (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
}

async fn send(server: &Server, conversation: &str) -> (u16, Value) {
    let body = json!({"text": "what is due?", "conversation_id": conversation});
    server.post("/api/v1/messages", &body).await.expect("the server answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_conversation_is_hidden_refuses_messages_and_is_restored_on_every_front_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = Server::start(data, &[], &[]).await;
    let id = talked(data, &server).await;
    let (code, _, err) = annie(data, &["conversations", "delete", &id], &[]).await;
    assert!(code != 0 && err.contains("--yes"), "nothing is deleted unasked: {err}");
    let arguments = ["conversations", "delete", &id, "--yes", "--reason", "too private"];
    let (code, out, err) = annie(data, &arguments, &[]).await;
    assert!(code == 0 && out.contains("is deleted; until"), "{out} {err}");
    let (_, list) = server.get("/api/v1/conversations").await;
    assert_eq!(list["conversations"], json!([]));
    for path in ["", "/messages", "/events", "/replay"] {
        let (status, problem) = server.get(&format!("/api/v1/conversations/{id}{path}")).await;
        assert_eq!((status, &problem["code"]), (410, &json!("deleted")), "{path}: {problem}");
    }
    let (status, problem) = send(&server, &id).await;
    assert!(status == 410 && problem["detail"].as_str().is_some_and(|text| text.contains("trash")), "{problem}");
    let (status, trail) = server.get(&format!("/api/v1/conversations/{id}/audit")).await;
    assert!(status == 200 && !trail["rows"].as_array().expect("rows").is_empty(), "{trail}");
    let (_, trash) = server.get("/api/v1/conversations/trash").await;
    let row = &trash["conversations"][0];
    assert_eq!((&row["id"], &row["reason"]), (&json!(id), &json!("too private")), "{trash}");
    assert!(row["erase_at"].as_str() > row["deleted_at"].as_str(), "{row}");
    let (code, out, _) = annie(data, &["conversations", "trash"], &[]).await;
    assert!(code == 0 && out.contains(SECRET), "{out}");
    let (code, _, err) = annie(data, &["conversations", "restore", &id], &[]).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(send(&server, &id).await.0, 202);
    let again = format!("/api/v1/conversations/{id}/restore");
    assert_eq!(server.post(&again, &json!({})).await.expect("an answer").0, 409, "it is not deleted");
    over_grpc(&server, &id).await;
    assert_eq!(annie(data, &["conversations", "delete", &id, "--yes", "--force"], &[]).await.0, 0);
    let body = json!({"text": "what is due?", "conversation_key": "home"});
    let (status, sent) = server.post("/api/v1/messages", &body).await.expect("the server answers");
    assert!(status == 202 && sent["conversation_id"] != json!(id), "the key has a new conversation: {sent}");
    let (_, again) = server.post("/api/v1/messages", &body).await.expect("the server answers");
    assert_eq!(again["conversation_id"], sent["conversation_id"]);
    let (code, out, err) = annie(data, &["ask", "--conversation", "home", "what is due?"], &[]).await;
    assert_eq!(code, 0, "{out} {err}");
}

async fn over_grpc(server: &Server, id: &str) {
    let mut client = ConversationsClient::connect(server.url.clone()).await.expect("connected");
    let request = DeleteConversationRequest { id: id.to_owned(), force: true, reason: String::new() };
    let deleted = client.delete(request).await.expect("deleted").into_inner();
    assert!(deleted.id == id && deleted.erase_at_us > deleted.deleted_at_us, "{deleted:?}");
    let trash = client.trash(TrashRequest { limit: 0 }).await.expect("listed").into_inner();
    assert_eq!(trash.conversations.len(), 1);
    let shown = client.get(ConversationRequest { id: id.to_owned() }).await.expect_err("hidden");
    assert_eq!(shown.code(), tonic::Code::FailedPrecondition, "{shown}");
    client.restore(ConversationRequest { id: id.to_owned() }).await.expect("restored");
    client.get(ConversationRequest { id: id.to_owned() }).await.expect("shown again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_needs_the_owner_or_an_operator_and_no_open_task_or_force() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let key = async |name: &str, scope: &str, user: &str| {
        let file = data.join(name);
        let path = file.to_str().expect("a path");
        let arguments = ["key", "create", name, "--scope", scope, "--user", user, "--out", path];
        let made = annie(data, &arguments, &[]).await;
        assert_eq!(made.0, 0, "{}", made.2);
        std::fs::read_to_string(&file).expect("the key").trim().to_owned()
    };
    let ann = key("ann", "chat", "ann").await;
    let bob = key("bob", "chat", "bob").await;
    let reader = key("reader", "jobs:read", "ann").await;
    let operator = key("operator", "ops:control,chat", "bob").await;
    let server = Server::start(data, &[], &[]).await;
    let body = json!({"text": "what is due?", "conversation_key": "k", "delay_ms": 3_600_000});
    let sent = server.http.post(format!("{}/api/v1/messages", server.url)).bearer_auth(&ann).json(&body);
    let sent: Value = sent.send().await.expect("sent").json().await.expect("JSON");
    let id = sent["conversation_id"].as_str().expect("a conversation");
    let path = format!("/api/v1/conversations/{id}");
    assert_eq!(delete(&server, &bob, &path).await.0, 404);
    assert_eq!(delete(&server, &reader, &path).await.0, 403);
    assert_eq!(delete(&server, "wrong", &path).await.0, 401);
    let long = format!("{path}?reason={}", "x".repeat(501));
    assert_eq!(delete(&server, &ann, &long).await.0, 400);
    assert_eq!(delete(&server, &ann, &format!("{path}?nonsense=1")).await.0, 400);
    assert_eq!(delete(&server, &ann, "/api/v1/conversations/conv_01980000000070008000000000000000").await.0, 404);
    let (status, problem) = delete(&server, &ann, &path).await;
    assert!(status == 409 && problem["detail"].as_str().is_some_and(|text| text.contains("force")), "{problem}");
    let (status, deleted) = delete(&server, &operator, &format!("{path}?force=true&reason=law")).await;
    assert_eq!((status, &deleted["title"]), (200, &json!("")), "{deleted}");
    let trash = server.http.get(format!("{}/api/v1/conversations/trash", server.url)).bearer_auth(&ann);
    let trash: Value = trash.send().await.expect("sent").json().await.expect("JSON");
    assert_eq!(trash["conversations"][0]["reason"], "law", "{trash}");
    let restore = server.http.post(format!("{}{path}/restore", server.url)).bearer_auth(&bob).json(&json!({}));
    assert_eq!(restore.send().await.expect("sent").status(), 404);
}

/// The words of the database's files.
fn has_secret(data: &Path) -> bool {
    let secret = SECRET.as_bytes();
    ["annie.db", "annie.db-wal"]
        .iter()
        .any(|name| std::fs::read(data.join(name)).unwrap_or_default().windows(secret.len()).any(|part| part == secret))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_conversation_leaves_no_words_in_the_files_and_the_audit_chain_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let settings =
        [("ANNIE__AUDIT__SEAL_MS", "20"), ("ANNIE__RETENTION__TRASH_DAYS", "0"), ("ANNIE__RETENTION__PASS_MS", "20")];
    let mut server = Server::start(data, &[], &settings).await;
    let id = talked(data, &server).await;
    let value = json!({"value": "heron", "conversation_id": id});
    let (status, set) = server.post("/api/v1/state/topic", &value).await.expect("an answer");
    assert_eq!(status, 200, "{set}");
    let value = json!({"value": "osprey", "conversation_id": id});
    assert_eq!(server.post("/api/v1/state/bird", &value).await.expect("an answer").0, 200);
    let of = json!({"conversation_id": id});
    assert_eq!(server.post("/api/v1/state/bird/delete", &of).await.expect("an answer").0, 200);
    let (code, _, err) = annie(data, &["conversations", "rename", &id, "about", "the", SECRET], &[]).await;
    assert_eq!(code, 0, "{err}");
    let verified = async |server: &Server, erased: u64| {
        eventually("the seals are verified", async || {
            let (_, page) = server.get("/api/v1/audit/verify").await;
            assert_eq!(page["broken_total"], 0, "{page}");
            let is_sealed = page["events"].as_u64() > Some(erased) && page["erased"].as_u64() >= Some(erased);
            is_sealed.then(|| page["erased"].as_u64().unwrap_or_default())
        })
        .await
    };
    verified(&server, 0).await;
    let (code, _, err) = annie(data, &["conversations", "delete", &id, "--yes", "--reason", "asked"], &[]).await;
    assert_eq!(code, 0, "{err}");
    let erased = verified(&server, 5).await;
    assert!(erased > 5, "{erased}");
    let (code, out, err) = annie(data, &["audit", "verify"], &[]).await;
    assert!(code == 0 && out.contains("events was erased"), "{out} {err}");
    let (_, trail) = server.get(&format!("/api/v1/conversations/{id}/audit?limit=500")).await;
    let record = trail["rows"].as_array().and_then(|rows| rows.last()).expect("a row");
    assert_eq!(record["component"], "erasure", "{record}");
    assert!(record["reasoning"].as_str().is_some_and(|text| text.contains("asked")), "{record}");
    assert_eq!(send(&server, &id).await.0, 410);
    let path = format!("/api/v1/conversations/{id}/restore");
    assert_eq!(server.post(&path, &json!({})).await.expect("an answer").0, 410, "what is erased is not restored");
    // The to-do that the turn created is not a part of the conversation.
    let (_, kept) = server.get("/api/v1/data?kind=todos").await;
    assert!(kept.to_string().contains(SECRET), "{kept}");
    assert_eq!(annie(data, &["todos", "delete", "1"], &[]).await.0, 0);
    server.stop().await;
    let (code, exported, err) = annie(data, &["data", "export", "--user", "me"], &[]).await;
    assert!(code == 0 && exported.contains(SECRET) && !exported.contains("heron"), "{exported} {err}");
    assert!(!exported.contains("osprey"), "a deleted value is erased too: {exported}");
    let (code, out, err) = annie(data, &["data", "delete", "--user", "me", "--yes"], &[]).await;
    assert_eq!(code, 0, "{out} {err}");
    assert!(!has_secret(data), "the files have the words of an erased conversation");
    let server = server.again(data, &[], &settings).await;
    assert!(verified(&server, 5).await >= erased);
    let (code, out, err) = annie(data, &["conversations", "list"], &[]).await;
    assert!(code == 0 && !out.contains(SECRET), "{out} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_a_user_contains_the_conversations_and_is_erased_with_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut server = Server::start(data, &[], &[]).await;
    let id = talked(data, &server).await;
    assert_eq!(annie(data, &["memory", "add", "The pelican eats fish"], &[]).await.0, 0);
    assert_eq!(annie(data, &["conversations", "delete", &id, "--yes"], &[]).await.0, 0);
    let body = json!({"text": "another pelican", "conversation_key": "k", "delay_ms": 3_600_000});
    assert_eq!(server.post("/api/v1/messages", &body).await.expect("sent").0, 202);
    server.stop().await;
    assert!(has_secret(data));
    let (_, before, _) = annie(data, &["data", "export", "--user", "me"], &[]).await;
    let events = before.lines().filter(|line| line.contains("\"event\"")).count();
    assert!(events > 5 && before.contains("another pelican") && before.contains(&id), "{before}");
    let (code, out, err) = annie(data, &["data", "delete", "--user", "me"], &[]).await;
    assert!(code == 0 && err.contains("2 conversations, add --yes"), "{out} {err}");
    let (code, _, err) = annie(data, &["data", "delete", "--user", "me", "--yes"], &[]).await;
    assert!(code == 0 && err.contains("conversations erased: 2"), "{err}");
    let (_, after, _) = annie(data, &["data", "export", "--user", "me"], &[]).await;
    assert_eq!(after, "");
    assert!(!has_secret(data), "the files have the words of an erased conversation or of a memory");
    let (code, out, err) = annie(data, &["ask", "--conversation", "home", "what is due?"], &[]).await;
    assert_eq!(code, 0, "the key has a new conversation, also without a server: {out} {err}");
    let server = server.again(data, &[], &[]).await;
    let (_, jobs) = server.get("/api/v1/jobs").await;
    assert!(!jobs.to_string().contains(SECRET), "{jobs}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_with_the_id_of_an_erased_one_stops_no_erasure() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let settings = [("ANNIE__RETENTION__TRASH_DAYS", "0"), ("ANNIE__RETENTION__PASS_MS", "20")];
    let server = Server::start(data, &[], &settings).await;
    let say = async |key: &str, client_id: &str| {
        let body = json!({"text": "what is due?", "conversation_key": key, "client_id": client_id});
        server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers")
    };
    let (status, first) = say("first", "one").await;
    assert_eq!(status, 200, "{first}");
    let task = first["task_id"].as_str().expect("a task");
    let (status, second) = say("second", &format!("erased:{task}")).await;
    assert_eq!(status, 200, "{second}");
    let (status, problem) = say("third", &format!("\u{1}erased:{task}")).await;
    assert!(status == 400 && problem["detail"].as_str().is_some_and(|why| why.contains("control")), "{problem}");
    // The second one still has its id when the first one is erased.
    for (sent, count) in [(&first, 1), (&second, 2)] {
        let path = format!("/api/v1/conversations/{}", sent["conversation_id"].as_str().expect("a conversation"));
        let request = server.http.delete(format!("{}{path}", server.url)).send().await.expect("the server answers");
        assert_eq!(request.status(), 200);
        eventually("the conversation is erased", async || {
            let erased = server.log().iter().filter(|line| line.contains("deleted conversation was erased")).count();
            (erased == count).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_delete_finishes_an_erasure_that_was_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let now = annie::system::env().now();
    let store = SqliteStore::open(data, SqliteOptions::default()).await.expect("opened");
    let id = stored(&store, 1, now).await;
    let (by, reason, at, erase_at) = ("me".to_owned(), String::new(), now, now);
    let request = DeleteConversation { conversation: id, by, reason, at, erase_at, unchanged_since: None };
    store.delete_conversation(request).await.expect("deleted");
    let record = annie_core::erasure::record(TaskId::from_uuid(id.uuid()), "me", "", now);
    assert!(!store.erase_step(id, record, 1).await.expect("begun").is_done);
    store.close().await;
    assert!(has_secret(data), "its answer is not erased yet");
    let (code, out, err) = annie(data, &["data", "delete", "--user", "me"], &[]).await;
    assert!(code == 0 && err.contains("1 conversations, add --yes"), "{out} {err}");
    let (code, out, err) = annie(data, &["data", "delete", "--user", "me", "--yes"], &[]).await;
    assert!(code == 0 && err.contains("conversations erased: 1"), "{out} {err}");
    assert!(!has_secret(data));
}

/// Stores an answered conversation that ended so long ago, with a snapshot.
async fn stored(store: &SqliteStore, n: u128, at: Micros) -> ConversationId {
    let (id, task) = (ConversationId::from_uuid(Uuid::from_u128(n)), TaskId::from_uuid(Uuid::from_u128(100 + n)));
    let user = UserId::local();
    let new = |body| NewEvent { at, task, agent: AgentId::orchestrator(), body };
    let text = format!("about a {SECRET}");
    let inbound = Inbound { client_id: n.to_string(), text, source: "http".to_owned(), ..Inbound::default() };
    let append = |fence, body| Append { conversation: id, user: user.clone(), fence, events: vec![new(body)] };
    store.commit(vec![append(Fence::Inbox, EventBody::Received(inbound))]).await.remove(0).expect("stored");
    let claim = store.claim(id, annie_core::ids::NodeIncarnation::from_uuid(Uuid::from_u128(9))).await;
    let epoch = claim.expect("the store works").expect("claimed").epoch;
    let answered = append(Fence::Owner(epoch), EventBody::answered(SECRET));
    store.commit(vec![answered]).await.remove(0).expect("stored");
    let snapshot = Snapshot { seq: annie_core::ids::Seq(2), v: 1, state: "{}".to_owned() };
    store.put_snapshot(id, epoch, snapshot).await.expect("stored");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_erases_old_conversations_and_working_data_and_keeps_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let now = annie::system::env().now();
    let store = SqliteStore::open(data, SqliteOptions::default()).await.expect("opened");
    let old = stored(&store, 1, Micros(now.0 - 40 * DAY_US)).await;
    let recent = stored(&store, 2, Micros(now.0 - 3 * DAY_US)).await;
    let new = stored(&store, 3, now).await;
    store.close().await;
    let settings = [("ANNIE__RETENTION__EVENTS_DAYS", "30"), ("ANNIE__RETENTION__PASS_MS", "20")];
    let mut server = Server::start(data, &[], &settings).await;
    eventually("the old conversation is erased", async || {
        let (status, _) = server.get(&format!("/api/v1/conversations/{old}")).await;
        let is_swept = server.log().iter().any(|line| line.contains("working data of ended tasks"));
        (status == 410 && is_swept).then_some(())
    })
    .await;
    server.stop().await;
    let store = SqliteStore::open(data, SqliteOptions::default()).await.expect("opened");
    let deletion = store.deletion(old).await.expect("read").expect("deleted");
    assert_eq!(deletion.by, "retention");
    let rows = store.conversations(Scope::User(UserId::local()), Before::NEWEST, 9).await.expect("read");
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [new, recent]);
    assert_eq!(store.snapshot(recent).await.expect("read"), None, "working data of a task that ended days ago");
    assert!(store.snapshot(new).await.expect("read").is_some());
    store.close().await;
    let log = server.log().join("\n");
    assert!(log.contains("older than the retention allows"), "{log}");
}

#[tokio::test]
async fn forced_deletion_cancels_a_task_behind_more_than_a_page_of_newer_ones() {
    let parts = WorldParts::new(|_, _| Ok(says("done")));
    let now = parts.env.now();
    let new = |conversation: ConversationId, n: u128| {
        let (text, client_id) = ("later".to_owned(), n.to_string());
        let not_before = Some(now.plus_ms(24 * 3_600_000));
        let inbound = Inbound { client_id, text, source: "http".to_owned(), not_before, ..Inbound::default() };
        let (task, agent) = (TaskId::from_uuid(Uuid::from_u128(100 + n)), AgentId::orchestrator());
        let event = NewEvent { at: Micros(now.0 + n as i64), task, agent, body: EventBody::Received(inbound) };
        Append { conversation, user: ann(), fence: Fence::Inbox, events: vec![event] }
    };
    let [old, other] = [1, 2].map(|n| ConversationId::from_uuid(Uuid::from_u128(n)));
    let appends = std::iter::once(new(old, 0)).chain((1..=u128::from(PAGE_MAX)).map(|n| new(other, n))).collect();
    parts.store.commit(appends).await.into_iter().for_each(|stored| assert!(stored.is_ok()));
    let world = parts.start().await;
    let options = DeleteOptions { by: "ann".to_owned(), force: true, ..DeleteOptions::default() };
    let deleted = world.kernel.delete_conversation(Scope::User(ann()), old, options).await;
    assert!(deleted.is_ok(), "{deleted:?}");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_of_a_deleted_conversation_is_paused_with_the_reason() {
    use super::schedules::{HOUR_MS, created, notified, parts, until, wake};
    let (parts, clock) = parts();
    let world = parts.start().await;
    let made = created(&world, "every hour").await.schedule;
    clock.set_by_ms(HOUR_MS);
    wake(&world).await;
    until(&world, "it ran once", |schedule| schedule.runs == 1).await;
    assert_eq!(notified(&world, 1).await.len(), 1, "its task has ended");
    let options = annie_actors::DeleteOptions { by: "ann".to_owned(), ..Default::default() };
    world.kernel.delete_conversation(Scope::Operator, made.conversation, options).await.expect("deleted");
    clock.set_by_ms(2 * HOUR_MS);
    wake(&world).await;
    let paused = until(&world, "it is paused", |schedule| schedule.paused.is_some()).await;
    assert!(paused.paused.is_some_and(|why| why.contains("was deleted")));
    let log = world.kernel.store().events(Scope::Operator, made.conversation, annie_core::ids::Seq(0), 500).await;
    let received = log.expect("read").iter().filter(|event| matches!(event.body, EventBody::Received(_))).count();
    assert_eq!(received, 1);
    world.kernel.stop().await;
}
