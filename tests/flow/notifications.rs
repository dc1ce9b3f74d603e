//! Tasks that end while no client waits: their user is notified once, not too often, and no follower misses a
//! notification.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::{Operation, Submission, Submitted};
use annie_core::{
    event::{EventBody, Inbound, Mode, NewEvent, Priority, Scope},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    message::{Message, ModelRequest},
    ports::{Append, Fence, Notification},
    time::Micros,
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::scripted_model::says;

use crate::world::{PATIENCE, World, WorldParts, ann, eventually};

fn first_text(request: &ModelRequest) -> String {
    let texts = request.messages.iter().rev();
    let sent = texts.filter_map(|m| if let Message::User { text, .. } = m { Some(text.clone()) } else { None }).next();
    sent.unwrap_or_default()
}

fn parts() -> WorldParts {
    let mut parts = WorldParts::new(|request, _| Ok(says(format!("{} is done", first_text(request)))));
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.notify.gather_ms = 5;
    parts.limits.notify.every_ms = 0;
    parts
}

async fn say(world: &World, text: &str, class: Priority) -> Submitted {
    let mut message = Submission::new(ann(), "test", text);
    message.priority = Some(class);
    world.kernel.submit(message).await.expect("accepted")
}

/// Waits for the end of a task without following its conversation.
async fn ended(world: &World, sent: &Submitted) {
    eventually("the task has ended", async || {
        let row = world.kernel.task(Scope::User(ann()), sent.task).await.ok()?;
        row.state.is_ended().then_some(())
    })
    .await;
}

async fn all_delivered(world: &World) {
    eventually("the outbox is empty", async || world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(()))
        .await;
}

async fn sent_notifications(world: &World) -> Vec<Notification> {
    world.kernel.notifications(&ann(), 0, 100).await.expect("readable")
}

#[tokio::test]
async fn notification_is_sent_for_a_background_end_and_not_for_an_awaited_answer() {
    let world = parts().start().await;
    let mut notices = world.kernel.follow_notifications(&ann(), 0);
    let mut bobs = world.kernel.follow_notifications(&UserId::new("bob").expect("a user id"), 0);
    let urgent = say(&world, "urgent", Priority::High).await;
    ended(&world, &urgent).await;
    all_delivered(&world).await;
    let work = say(&world, "research", Priority::Normal).await;
    let notice = tokio::time::timeout(PATIENCE, notices.next()).await.expect("in time").expect("readable");
    let notice = notice.expect("the kernel runs");
    assert_eq!(notice.text, "I finished \"research\": research is done");
    assert_eq!(notice.tasks, [work.task]);
    assert_eq!(sent_notifications(&world).await, [notice]);
    let silence = tokio::time::timeout(Duration::from_millis(20), bobs.next()).await;
    assert!(silence.is_err(), "another user receives nothing");
    world.kernel.stop().await;
    let end = tokio::time::timeout(PATIENCE, notices.next()).await.expect("in time");
    assert_eq!(end, Ok(None), "the stream ends with the kernel");
}

#[tokio::test]
async fn notification_is_not_sent_while_the_user_follows_the_conversation() {
    let world = parts().start().await;
    let mut message = Submission::new(ann(), "test", "research");
    message.priority = Some(Priority::Normal);
    let (sent, follow) = world.kernel.ask(message).await.expect("accepted");
    ended(&world, &sent).await;
    all_delivered(&world).await;
    drop(follow);
    assert!(sent_notifications(&world).await.is_empty());
    world.kernel.stop().await;
}

#[tokio::test]
async fn notification_is_sent_although_an_operator_follows_the_conversation() {
    let world = parts().start().await;
    let first = say(&world, "hello", Priority::High).await;
    ended(&world, &first).await;
    let looks_on = world.kernel.follow(Scope::Operator, first.conversation, Seq(0)).await.expect("readable");
    let mut message = Submission::new(ann(), "test", "research").within(first.conversation);
    message.priority = Some(Priority::Normal);
    world.kernel.submit(message).await.expect("accepted");
    eventually("the user is notified", async || (sent_notifications(&world).await.len() == 1).then_some(())).await;
    drop(looks_on);
    world.kernel.stop().await;
}

#[tokio::test]
async fn outbox_entry_that_was_received_live_is_delivered_past_many_waiting_entries() {
    let mut parts = parts();
    parts.limits.notify.every_ms = 3_600_000;
    let world = parts.start().await;
    let bob = UserId::new("bob").expect("a user id");
    let mut first = Submission::new(bob.clone(), "test", "one");
    first.priority = Some(Priority::Normal);
    world.kernel.submit(first).await.expect("accepted");
    eventually("bob is notified, and not again for an hour", async || {
        let sent_notifications = world.kernel.notifications(&bob, 0, 9).await.ok()?;
        (sent_notifications.len() == 1).then_some(())
    })
    .await;
    let entries = (0..1_001_u128).flat_map(|n| {
        let task = TaskId::from_uuid(uuid::Uuid::from_u128(n + 1));
        let sent = Inbound { client_id: n.to_string(), priority: Priority::Normal, ..Inbound::default() };
        let answered = EventBody::answered("x");
        let new = move |body| NewEvent { at: Micros(1), task, agent: AgentId::orchestrator(), body };
        [new(EventBody::Received(sent)), new(answered)]
    });
    let conversation = ConversationId::from_uuid(uuid::Uuid::from_u128(9));
    let append = Append { conversation, user: bob.clone(), fence: Fence::Inbox, events: entries.collect() };
    world.kernel.store().commit(vec![append]).await.remove(0).expect("stored");
    let mut message = Submission::new(ann(), "test", "research");
    message.priority = Some(Priority::Normal);
    let (sent, follow) = world.kernel.ask(message).await.expect("accepted");
    ended(&world, &sent).await;
    eventually("the received answer is delivered", async || {
        let left = world.kernel.store().outbox(5_000).await.ok()?;
        (left.len() == 1_001 && left.iter().all(|entry| entry.user == bob)).then_some(())
    })
    .await;
    drop(follow);
    assert!(sent_notifications(&world).await.is_empty());
    world.kernel.stop().await;
}

#[tokio::test]
async fn notification_is_sent_for_a_deferred_task_of_any_class() {
    let world = parts().start().await;
    let mut message = Submission::new(ann(), "test", "in a moment");
    message.priority = Some(Priority::High);
    message.not_before = Some(world.kernel.now().plus_ms(20));
    let sent = world.kernel.submit(message).await.expect("accepted");
    ended(&world, &sent).await;
    eventually("the user is notified", async || (sent_notifications(&world).await.len() == 1).then_some(())).await;
    world.kernel.stop().await;
}

#[tokio::test]
async fn notifications_within_the_pause_are_merged_into_one() {
    let mut parts = parts();
    parts.limits.notify.every_ms = 1_000;
    let world = parts.start().await;
    say(&world, "one", Priority::Normal).await;
    eventually("the user is notified of the first end", async || {
        (sent_notifications(&world).await.len() == 1).then_some(())
    })
    .await;
    for text in ["two", "three"] {
        let sent = say(&world, text, Priority::Normal).await;
        ended(&world, &sent).await;
    }
    // The pause between notifications outlasts an incarnation of the notifier.
    world.kernel.operate("/infra/notifier", None, Operation::Kill, "a test").await.expect("the actor is alive");
    let sent_notifications = eventually("the user is notified of the others", async || {
        let sent_notifications = sent_notifications(&world).await;
        (sent_notifications.len() > 1).then_some(sent_notifications)
    })
    .await;
    assert_eq!(sent_notifications.len(), 2, "{sent_notifications:#?}");
    assert_eq!(
        sent_notifications[1].text,
        "I finished 2 things: \"two\" and \"three\".\n\"two\": two is done\n\"three\": three is done"
    );
    assert!(
        sent_notifications[1].at.since_ms(sent_notifications[0].at) >= 1_000,
        "not more often than the setting says [S3 5.8]"
    );
    world.kernel.stop().await;
}

#[tokio::test]
async fn notifier_death_during_a_write_neither_loses_nor_duplicates_the_notification() {
    for fault in [StoreFault::Hang, StoreFault::HangAfter] {
        let injected = Arc::new(AtomicUsize::new(0));
        let count = injected.clone();
        let mut parts = parts();
        parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(move |point| match point {
            StorePoint::Write("notify") if count.fetch_add(1, Relaxed) == 0 => fault,
            _ => StoreFault::Pass,
        })));
        let world = parts.start().await;
        let mut notices = world.kernel.follow_notifications(&ann(), 0);
        let sent = say(&world, "research", Priority::Normal).await;
        ended(&world, &sent).await;
        eventually("the notification is being stored", async || (injected.load(Relaxed) > 0).then_some(())).await;
        world.kernel.operate("/infra/notifier", None, Operation::Kill, "a test").await.expect("the actor is alive");
        all_delivered(&world).await;
        let notice = tokio::time::timeout(PATIENCE, notices.next()).await.expect("in time").expect("readable");
        let all = sent_notifications(&world).await;
        assert_eq!(all.len(), 1, "{fault:?}: {all:#?}");
        assert_eq!(notice.as_ref(), all.first());
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn notification_follower_continues_at_its_position_after_a_crash() {
    let mut parts = parts();
    // The first run dies before it notifies the user of the second task.
    parts.limits.notify.every_ms = 600;
    let world = parts.start().await;
    let first = say(&world, "one", Priority::Normal).await;
    eventually("the user is notified of the first end", async || {
        (sent_notifications(&world).await.len() == 1).then_some(())
    })
    .await;
    let second = say(&world, "two", Priority::Normal).await;
    ended(&world, &second).await;
    let seen = sent_notifications(&world).await[0].id;
    world.kernel.crash().await;
    let world = parts.start().await;
    let mut notices = world.kernel.follow_notifications(&ann(), seen);
    let notice = tokio::time::timeout(PATIENCE, notices.next()).await.expect("in time").expect("readable");
    let notice = notice.expect("the kernel runs");
    assert_eq!(notice.tasks, [second.task], "{notice:?}");
    assert_eq!(notices.seen(), notice.id);
    let all: Vec<_> = sent_notifications(&world).await.into_iter().flat_map(|n| n.tasks).collect();
    assert_eq!(all, [first.task, second.task]);
    let log = world.kernel.events(Scope::User(ann()), second.conversation, Seq(0), 500).await.expect("readable");
    crate::world::check_log(&log);
    world.kernel.stop().await;
}
