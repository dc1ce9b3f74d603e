//! Many users at once on a few slots: no task is lost, duplicated, overtaken in its own lane, or starved.

use std::sync::Arc;

use annie_actors::{Kernel, KernelError, StreamItem, Submission, Submitted};
use annie_core::{
    event::{Event, EventBody, Mode, Priority, Scope},
    ids::{ConversationId, Seq, TaskId, UserId},
};
use annie_testkit::scripted_model::{ScriptedModel, says};
use futures_util::future::join_all;

use crate::{
    flow::scheduling::{user, waiting},
    world::{WorldParts, check_log, eventually, kill, sleep_for_ms},
};

const USERS: usize = 100;
/// Messages of each user: ten thousand in total.
const EACH: usize = 100;
/// Conversations of each user.
const CONVERSATIONS: usize = 3;
/// How often the scheduler is killed meanwhile.
const KILLS: u64 = 6;

/// Sends a message until it is accepted, as a client does: it waits as long as a refusal asks and repeats the message
/// with the same id.
async fn send(kernel: &Kernel, user_id: &UserId, n: usize) -> (Submitted, u32) {
    let conversation = ConversationId::for_key(user_id, &format!("place {}", n % CONVERSATIONS));
    let mut message = Submission::new(user_id.clone(), "test", format!("message {n}")).within(conversation);
    message.client_id = Some(format!("message {n}"));
    message.priority = Some([Priority::High, Priority::Normal, Priority::Low][n % 4 % 3]);
    let mut refused = 0;
    loop {
        match kernel.submit(message.clone()).await {
            Ok(submitted) => return (submitted, refused),
            Err(KernelError::Full(refusal)) => {
                refused += 1;
                assert!(refusal.retry_after_ms >= 1_000, "a hint that helps: {refusal:?}");
                sleep_for_ms(refusal.retry_after_ms).await;
            }
            Err(KernelError::NotReady(_) | KernelError::Unavailable(_)) => sleep_for_ms(20).await,
            Err(other) => panic!("{other}"),
        }
    }
}

async fn whole_log(kernel: &Kernel, user_id: &UserId, conversation: ConversationId) -> Vec<Event> {
    let mut log: Vec<Event> = Vec::new();
    loop {
        let after = log.last().map_or(Seq(0), |e| e.seq);
        let page = kernel.events(Scope::User(user_id.clone()), conversation, after, 500).await.expect("readable");
        if page.is_empty() {
            return log;
        }
        log.extend(page);
    }
}

/// Messages of one lane are answered in the order in which they came.
fn check_lanes(log: &[Event]) {
    for waits in [true, false] {
        let received: Vec<TaskId> = log
            .iter()
            .filter(|e| matches!(&e.body, EventBody::Received(i) if (i.priority <= Priority::High) == waits))
            .map(|e| e.task)
            .collect();
        let finals: Vec<TaskId> =
            log.iter().filter(|e| e.body.is_final() && received.contains(&e.task)).map(|e| e.task).collect();
        assert_eq!(finals, received, "out of order");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduler_killed_repeatedly_under_load_ends_ten_thousand_tasks_in_order() {
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("done"))).without_recording());
    let mut parts = WorldParts::with_model(model.clone());
    parts.slots = 4;
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.stuck_ms_max = 30_000;
    // A new incarnation of the scheduler guesses how long a round takes. The guess is small because this model answers at
    // once, and clients must not wait long.
    parts.limits.queue.round_guess_ms = 1;
    // Summaries would be model calls of their own.
    parts.limits.turn.compaction_messages = 0;
    let world = parts.start().await;
    let users: Vec<UserId> = (0..USERS).map(|n| user(&format!("user{n}"))).collect();
    let total = (USERS * EACH) as u64;
    let sending = join_all(users.iter().map(async |user_id| {
        let mut refused = 0;
        for n in 0..EACH {
            refused += send(&world.kernel, user_id, n).await.1;
        }
        refused
    }));
    let killing = async {
        for n in 1..=KILLS {
            model.called(n * total / (KILLS + 1)).await;
            kill(&world, "/scheduler").await;
        }
    };
    let (refused, ()) = tokio::join!(sending, killing);
    for user_id in &users {
        eventually("everything of a user has ended", async || {
            let open =
                world.kernel.tasks(Scope::User(user_id.clone()), true, world.kernel.now().into(), 10).await.ok()?;
            open.is_empty().then_some(())
        })
        .await;
    }
    for user_id in &users {
        let mut answered = 0;
        for conversation in 0..CONVERSATIONS {
            let log =
                whole_log(&world.kernel, user_id, ConversationId::for_key(user_id, &format!("place {conversation}")))
                    .await;
            check_log(&log);
            check_lanes(&log);
            answered += log.iter().filter(|e| matches!(e.body, EventBody::Answered { .. })).count();
        }
        assert_eq!(answered, EACH, "{user_id} is not served");
    }
    assert!(refused.iter().sum::<u32>() > 0, "no message was ever refused, so there was no load");
    assert_eq!(model.call_count(), total, "a round ran twice");
    let (_, root) = world.kernel.view("/").await.expect("the actor is alive");
    let root = root.expect("the actor answers");
    let scheduler = root["children"].as_array().and_then(|all| all.iter().find(|child| child["name"] == "scheduler"));
    let restarts = scheduler.and_then(|child| child["restarts"].as_u64()).unwrap_or_default();
    assert!(restarts >= KILLS, "{restarts}");
    world.kernel.stop().await;
}

/// Sends a message and waits for its final event in virtual time. Returns the time of that event.
async fn ask(kernel: &Kernel, user_id: &str, text: &str, class: Priority) -> annie_core::time::Micros {
    let mut message = Submission::new(user(user_id), "test", text);
    message.priority = Some(class);
    let (sent, mut follow) = kernel.ask(message).await.expect("accepted");
    loop {
        match follow.next().await.expect("readable") {
            Some(StreamItem::Event(event)) if event.task == sent.task && event.body.is_final() => return event.at,
            Some(_) => {}
            None => panic!("the kernel has ended"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn background_task_under_steady_high_load_waits_no_longer_than_its_aging_time() {
    const ROUND_MS: u64 = 5_000;
    let model = ScriptedModel::new(|_, _| Ok(says("done"))).taking(std::time::Duration::from_millis(ROUND_MS));
    let mut parts = WorldParts::with_model(Arc::new(model));
    parts.slots = 1;
    parts.limits.mode = Mode::SingleLoop;
    let aging_ms = u64::from(parts.limits.queue.aging_ms_per_class);
    let world = parts.start().await;
    let kernel = &world.kernel;
    // Three users, each of whom sends the next message as soon as the answer is there, so two of them always wait.
    let people = join_all(["ann", "bob", "cid"].map(async |user_id| {
        loop {
            ask(kernel, user_id, "again", Priority::High).await;
        }
    }));
    let upkeep = async {
        waiting(&world, 2).await;
        let from = kernel.now();
        let at = ask(kernel, "system", "tidy up", Priority::Background).await;
        at.since_ms(from)
    };
    let ended_ms: u64 = tokio::select! {
        _ = people => panic!("people never end"),
        ms = upkeep => ms,
    };
    // The task ages three classes from BACKGROUND to HIGH. Then it takes turns with the three others.
    let aged_ms = 3 * aging_ms;
    assert!(ended_ms >= aged_ms, "HIGH went first for {ended_ms} ms only");
    assert!(ended_ms <= aged_ms + 5 * ROUND_MS, "the task took {ended_ms} ms");
    world.kernel.stop().await;
}
