//! What ended while nobody waited: its user is told once, not too often, and whoever listens misses none.

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
    let said = texts.filter_map(|m| if let Message::User { text, .. } = m { Some(text.clone()) } else { None }).next();
    said.unwrap_or_default()
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
    world.kernel.submit(message).await.expect("taken")
}

/// It has ended, and nobody follows it meanwhile.
async fn ended(world: &World, said: &Submitted) {
    eventually("it has ended", async || {
        let row = world.kernel.task(Scope::User(ann()), said.task).await.ok()?;
        row.state.is_ended().then_some(())
    })
    .await;
}

async fn all_delivered(world: &World) {
    eventually("the outbox is empty", async || world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(()))
        .await;
}

async fn told(world: &World) -> Vec<Notification> {
    world.kernel.notifications(&ann(), 0, 100).await.expect("readable")
}

#[tokio::test]
async fn a_background_ending_is_told_and_an_awaited_answer_is_not() {
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
    assert_eq!(told(&world).await, [notice]);
    let silence = tokio::time::timeout(Duration::from_millis(20), bobs.next()).await;
    assert!(silence.is_err(), "another user hears nothing");
    world.kernel.stop().await;
    let end = tokio::time::timeout(PATIENCE, notices.next()).await.expect("in time");
    assert_eq!(end, Ok(None), "the stream ends with the kernel");
}

#[tokio::test]
async fn who_listens_to_the_conversation_is_not_told_again() {
    let world = parts().start().await;
    let mut message = Submission::new(ann(), "test", "research");
    message.priority = Some(Priority::Normal);
    let (said, follow) = world.kernel.ask(message).await.expect("taken");
    ended(&world, &said).await;
    all_delivered(&world).await;
    drop(follow);
    assert!(told(&world).await.is_empty());
    world.kernel.stop().await;
}

#[tokio::test]
async fn an_operator_who_looks_on_does_not_listen_for_the_user() {
    let world = parts().start().await;
    let first = say(&world, "hello", Priority::High).await;
    ended(&world, &first).await;
    let looks_on = world.kernel.follow(Scope::Operator, first.conversation, Seq(0)).await.expect("readable");
    let mut message = Submission::new(ann(), "test", "research").within(first.conversation);
    message.priority = Some(Priority::Normal);
    world.kernel.submit(message).await.expect("taken");
    eventually("it is told", async || (told(&world).await.len() == 1).then_some(())).await;
    drop(looks_on);
    world.kernel.stop().await;
}

#[tokio::test]
async fn what_was_heard_is_delivered_however_many_words_wait_before_it() {
    let mut parts = parts();
    parts.limits.notify.every_ms = 3_600_000;
    let world = parts.start().await;
    let bob = UserId::new("bob").expect("a user id");
    let mut first = Submission::new(bob.clone(), "test", "one");
    first.priority = Some(Priority::Normal);
    world.kernel.submit(first).await.expect("taken");
    eventually("bob is told, and not again for an hour", async || {
        let told = world.kernel.notifications(&bob, 0, 9).await.ok()?;
        (told.len() == 1).then_some(())
    })
    .await;
    let words = (0..1_001_u128).flat_map(|n| {
        let task = TaskId::from_uuid(uuid::Uuid::from_u128(n + 1));
        let said = Inbound { client_id: n.to_string(), priority: Priority::Normal, ..Inbound::default() };
        let answered = EventBody::answered("x");
        let new = move |body| NewEvent { at: Micros(1), task, agent: AgentId::orchestrator(), body };
        [new(EventBody::Received(said)), new(answered)]
    });
    let conversation = ConversationId::from_uuid(uuid::Uuid::from_u128(9));
    let what = Append { conversation, user: bob.clone(), fence: Fence::Inbox, events: words.collect() };
    world.kernel.store().commit(vec![what]).await.remove(0).expect("stored");
    let mut message = Submission::new(ann(), "test", "research");
    message.priority = Some(Priority::Normal);
    let (said, follow) = world.kernel.ask(message).await.expect("taken");
    ended(&world, &said).await;
    eventually("it is delivered", async || {
        let left = world.kernel.store().outbox(5_000).await.ok()?;
        (left.len() == 1_001 && left.iter().all(|word| word.user == bob)).then_some(())
    })
    .await;
    drop(follow);
    assert!(told(&world).await.is_empty());
    world.kernel.stop().await;
}

#[tokio::test]
async fn what_was_put_off_is_told_however_urgent_it_was() {
    let world = parts().start().await;
    let mut message = Submission::new(ann(), "test", "in a moment");
    message.priority = Some(Priority::High);
    message.not_before = Some(world.kernel.now().plus_ms(20));
    let said = world.kernel.submit(message).await.expect("taken");
    ended(&world, &said).await;
    eventually("it is told", async || (told(&world).await.len() == 1).then_some(())).await;
    world.kernel.stop().await;
}

#[tokio::test]
async fn several_endings_within_the_pause_become_one_notification() {
    let mut parts = parts();
    parts.limits.notify.every_ms = 1_000;
    let world = parts.start().await;
    say(&world, "one", Priority::Normal).await;
    eventually("the first is told", async || (told(&world).await.len() == 1).then_some(())).await;
    for text in ["two", "three"] {
        let said = say(&world, text, Priority::Normal).await;
        ended(&world, &said).await;
    }
    // The pause lasts beyond a life of the notifier.
    world.kernel.operate("/infra/notifier", None, Operation::Kill, "a test").await.expect("it lives");
    let told = eventually("the others are told", async || {
        let told = told(&world).await;
        (told.len() > 1).then_some(told)
    })
    .await;
    assert_eq!(told.len(), 2, "{told:#?}");
    assert_eq!(told[1].text, "I finished 2 things: \"two\" and \"three\".");
    assert!(told[1].at.since_ms(told[0].at) >= 1_000, "not more often than the setting says [S3 5.8]");
    world.kernel.stop().await;
}

#[tokio::test]
async fn a_death_while_a_notification_is_stored_neither_loses_nor_doubles_it() {
    for fault in [StoreFault::Hang, StoreFault::HangAfter] {
        let struck = Arc::new(AtomicUsize::new(0));
        let count = struck.clone();
        let mut parts = parts();
        parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(move |point| match point {
            StorePoint::Write("notify") if count.fetch_add(1, Relaxed) == 0 => fault,
            _ => StoreFault::Pass,
        })));
        let world = parts.start().await;
        let mut notices = world.kernel.follow_notifications(&ann(), 0);
        let said = say(&world, "research", Priority::Normal).await;
        ended(&world, &said).await;
        eventually("it is being stored", async || (struck.load(Relaxed) > 0).then_some(())).await;
        world.kernel.operate("/infra/notifier", None, Operation::Kill, "a test").await.expect("it lives");
        all_delivered(&world).await;
        let notice = tokio::time::timeout(PATIENCE, notices.next()).await.expect("in time").expect("readable");
        let all = told(&world).await;
        assert_eq!(all.len(), 1, "{fault:?}: {all:#?}");
        assert_eq!(notice.as_ref(), all.first());
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn a_follower_goes_on_where_it_was_after_a_death_of_the_process() {
    let mut parts = parts();
    // The first life dies before it tells of the second.
    parts.limits.notify.every_ms = 600;
    let world = parts.start().await;
    let first = say(&world, "one", Priority::Normal).await;
    eventually("the first is told", async || (told(&world).await.len() == 1).then_some(())).await;
    let second = say(&world, "two", Priority::Normal).await;
    ended(&world, &second).await;
    let seen = told(&world).await[0].id;
    world.kernel.crash().await;
    let world = parts.start().await;
    let mut notices = world.kernel.follow_notifications(&ann(), seen);
    let notice = tokio::time::timeout(PATIENCE, notices.next()).await.expect("in time").expect("readable");
    let notice = notice.expect("the kernel runs");
    assert_eq!(notice.tasks, [second.task], "{notice:?}");
    assert_eq!(notices.seen(), notice.id);
    let all: Vec<_> = told(&world).await.into_iter().flat_map(|n| n.tasks).collect();
    assert_eq!(all, [first.task, second.task]);
    let log = world.kernel.events(Scope::User(ann()), second.conversation, Seq(0), 500).await.expect("readable");
    crate::world::check_log(&log);
    world.kernel.stop().await;
}
