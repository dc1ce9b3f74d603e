//! Reminders whose time comes: the user is notified once, in the conversation, beside a running turn, and without a model.

use std::sync::Arc;

use annie_actors::{CommandCaller, Submission};
use annie_core::{
    event::{EventBody, Mode},
    ids::ConversationId,
    message::{Message, ModelError, ModelErrorKind},
    reminder::REMINDER,
};
use annie_testkit::{
    env::TestClock,
    model_server::{FakeModelServer, Reply},
    scripted_model::{calls, says},
};
use serde_json::json;

use super::{
    bad_models::server_with,
    schedules::{Nothing, notified, parts as clocked},
};
use crate::world::{World, WorldParts, ann, eventually, last_text};

/// Milliseconds of a minute.
pub const MINUTE_MS: i64 = 60_000;

/// Parts with the bundled skills and a clock that a test sets. It starts on a Wednesday at 14:05 UTC.
pub fn parts() -> (WorldParts, Arc<TestClock>) {
    let (mut parts, clock) = clocked();
    parts.sources.push(Arc::new(Nothing));
    (parts, clock)
}

fn by_ann() -> CommandCaller<'static> {
    CommandCaller { user: ann(), source: "test", may_approve: false, is_served: true, origins: Vec::new() }
}

/// Runs a skill for Ann by command, which makes the worker read the reminders.
pub async fn run(world: &World, command: &str, key: &str) -> String {
    let ran = world.kernel.run_skill(by_ann(), command, key, false).await.expect("the skill runs");
    assert!(ran.outcome.status.is_ok(), "{command}: {}", ran.outcome.data);
    ran.outcome.data
}

/// Makes the worker read the reminders and the clock: a change that does not apply.
pub async fn wake(world: &World) {
    let ran = world.kernel.run_skill(by_ann(), "tasks.update --id 999 --title x", "wake", false).await;
    assert!(!ran.expect("the skill runs").outcome.status.is_ok());
}

/// The ids and texts of the reminders in a conversation.
pub async fn sent(world: &World, conversation: ConversationId) -> Vec<(String, String)> {
    let log = world.log(conversation).await;
    let mut found = Vec::new();
    for event in &log {
        let EventBody::Received(inbound) = &event.body else { continue };
        if inbound.source == REMINDER {
            let answers = log.iter().filter(|other| other.task == event.task).filter_map(|other| {
                if let EventBody::Answered { text, .. } = &other.body { Some(text.clone()) } else { None }
            });
            found.extend(answers.map(|text| (inbound.client_id.clone(), text)));
        }
    }
    found
}

#[tokio::test]
async fn reminder_notifies_once_at_its_minute_and_is_snoozed_and_ended() {
    let (parts, clock) = parts();
    let world = parts.start().await;
    let set = run(&world, "tasks.remind --title Stretch --when \"in 10 minutes\"", "a").await;
    assert_eq!(set, "Set a reminder for 2026-02-18 14:15: task #1 Stretch");
    clock.set_by_ms(9 * MINUTE_MS);
    wake(&world).await;
    assert_eq!(world.kernel.reminders(&ann()).await.expect("readable").len(), 1, "not before its time");
    clock.set_by_ms(2 * MINUTE_MS);
    wake(&world).await;
    let all = notified(&world, 1).await;
    let text = "Reminder: Stretch (task #1, due 2026-02-18 14:15).";
    assert!(all[0].text.starts_with(text), "{}", all[0].text);
    eventually("the reminder has ended", async || world.kernel.reminders(&ann()).await.ok()?.is_empty().then_some(()))
        .await;

    world.kernel.snooze_reminder(&ann(), 1, 30).await.expect("the task is open");
    clock.set_by_ms(31 * MINUTE_MS);
    wake(&world).await;
    let all = notified(&world, 2).await;
    assert!(all.iter().all(|notice| notice.text.starts_with(text)), "{all:?}");

    world.kernel.snooze_reminder(&ann(), 1, 30).await.expect("the task is open");
    run(&world, "tasks.update --id 1 --status done", "done").await;
    assert!(world.kernel.reminders(&ann()).await.expect("readable").is_empty(), "a finished task reminds no more");
    world.kernel.snooze_reminder(&ann(), 1, 30).await.expect_err("it is done");
    clock.set_by_ms(60 * MINUTE_MS);
    wake(&world).await;
    assert_eq!(world.kernel.notifications(&ann(), 0, 100).await.expect("readable").len(), 2);
    world.kernel.stop().await;
}

#[tokio::test]
async fn task_with_a_due_minute_reminds_in_its_conversation_while_the_model_is_away() {
    let (mut parts, clock) = parts();
    parts.model = WorldParts::new(|request, _| match request.messages.last() {
        Some(Message::Tool { text, .. }) => Ok(says(text.clone())),
        _ if last_text(request).contains("call Bob") => Ok(calls([(
            "use_skill",
            json!({"skill": "tasks.create", "arguments": {"title": "call Bob", "due": "2026-02-18 15:00"}}),
        )])),
        _ => Err(ModelError::new(ModelErrorKind::Unavailable, "away")),
    })
    .model;
    parts.limits.mode = Mode::SingleLoop;
    let world = parts.start().await;
    let made = world.kernel.submit(Submission::new(ann(), "test", "call Bob at 15:00")).await.expect("accepted");
    let answer = world.answer(&made).await;
    assert!(answer.contains("reminder 2026-02-18 15:00"), "{answer}");
    // A turn that does not end for now: its model is away.
    let mut stuck = Submission::new(ann(), "test", "hello").within(made.conversation);
    stuck.priority = Some(annie_core::event::Priority::Normal);
    world.kernel.submit(stuck).await.expect("accepted");
    clock.set_by_ms(56 * MINUTE_MS);
    wake(&world).await;
    let found = eventually("the reminder is in the conversation", async || {
        let found = sent(&world, made.conversation).await;
        (!found.is_empty()).then_some(found)
    })
    .await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.starts_with("Reminder: call Bob (task #1, due 2026-02-18 15:00)."), "{found:?}");
    notified(&world, 1).await;
    world.kernel.stop().await;
}

#[tokio::test]
async fn reminder_that_was_missed_is_sent_once_with_its_true_time() {
    let (parts, clock) = parts();
    let world = parts.start().await;
    run(&world, "tasks.remind --title Stretch --when \"in 10 minutes\"", "a").await;
    world.kernel.stop().await;
    clock.set_by_ms(600 * MINUTE_MS);
    let world = parts.start().await;
    let all = notified(&world, 1).await;
    let late = "This reminder is late: it was set for 2026-02-18 14:15 UTC";
    assert!(all.len() == 1 && all[0].text.contains(late), "{all:?}");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminder_of_a_message_with_an_address_is_delivered_there() {
    let model = FakeModelServer::queue([
        Reply::calls([(
            "use_skill",
            json!({"skill": "tasks.remind", "arguments": {"title": "stretch", "when": "in 0 minutes"}}),
        )]),
        Reply::says("I set it."),
    ])
    .await;
    let receiver = FakeModelServer::queue([Reply::says("ok"), Reply::says("ok")]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, "0123456789abcdef0123456789abcdef\n").expect("written");
    let table = format!(
        "mode = \"single_loop\"\n[[channel]]\nname = \"helpdesk\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_file = \
         {path:?}\nusers = [\"me\"]\n",
        receiver.base_url()
    );
    let (_folder, server) = server_with(&model, &table).await;
    let reply_to = json!({"channel": "helpdesk", "to": "ticket-7"});
    let body = json!({"text": "remind me to stretch in 0 minutes", "reply_to": reply_to});
    assert_eq!(server.post("/api/v1/messages", &body).await.expect("the server answers").0, 202);
    let posted = eventually("the reminder is delivered", async || {
        let texts: Vec<String> = receiver.requests().iter().map(|seen| seen.json().to_string()).collect();
        texts.iter().any(|text| text.contains("Reminder: stretch (task #1")).then_some(texts)
    })
    .await;
    assert!(posted.iter().all(|text| text.contains("ticket-7")), "{posted:?}");
    let (_, list) = server.get("/api/v1/notifications").await;
    assert_eq!(list["notifications"], json!([]), "what reached its address is no notification");
}
