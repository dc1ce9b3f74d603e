//! Many users at once on a few slots: nobody is lost, doubled, overtaken in its own lane, or starved.

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
    world::{WorldParts, check_log, come_back_after, eventually, kill},
};

const USERS: usize = 100;
/// Messages of each user: ten thousand altogether.
const EACH: usize = 100;
/// Conversations of each user.
const PLACES: usize = 3;
/// How often the scheduler is killed meanwhile.
const KILLS: u64 = 6;

/// Sends a message until it is taken, as a client does: it comes back when it is told to, and with the same id.
async fn send(kernel: &Kernel, who: &UserId, n: usize) -> (Submitted, u32) {
    let place = ConversationId::for_key(who, &format!("place {}", n % PLACES));
    let mut message = Submission::new(who.clone(), "test", format!("message {n}")).within(place);
    message.client_id = Some(format!("message {n}"));
    message.priority = Some([Priority::High, Priority::Normal, Priority::Low][n % 4 % 3]);
    let mut refused = 0;
    loop {
        match kernel.submit(message.clone()).await {
            Ok(submitted) => return (submitted, refused),
            Err(KernelError::Full(refusal)) => {
                refused += 1;
                assert!(refusal.retry_after_ms >= 1_000, "a hint that helps: {refusal:?}");
                come_back_after(refusal.retry_after_ms).await;
            }
            Err(KernelError::NotReady(_) | KernelError::Unavailable(_)) => come_back_after(20).await,
            Err(other) => panic!("{other}"),
        }
    }
}

async fn whole_log(kernel: &Kernel, who: &UserId, place: ConversationId) -> Vec<Event> {
    let mut log: Vec<Event> = Vec::new();
    loop {
        let after = log.last().map_or(Seq(0), |e| e.seq);
        let page = kernel.events(Scope::User(who.clone()), place, after, 500).await.expect("readable");
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
async fn thousands_of_tasks_of_a_hundred_users_all_end_in_order_though_the_scheduler_is_killed_again_and_again() {
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("done"))).without_recording());
    let mut parts = WorldParts::with_model(model.clone());
    parts.slots = 4;
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.stuck_ms_max = 30_000;
    // A new life of the scheduler guesses what a round takes: clients are not to stay away for a model that answers at once.
    parts.limits.queue.round_guess_ms = 1;
    let world = parts.start().await;
    let users: Vec<UserId> = (0..USERS).map(|n| user(&format!("user{n}"))).collect();
    let total = (USERS * EACH) as u64;
    let sending = join_all(users.iter().map(async |who| {
        let mut refused = 0;
        for n in 0..EACH {
            refused += send(&world.kernel, who, n).await.1;
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
    for who in &users {
        eventually("everything of a user has ended", async || {
            let open = world.kernel.tasks(Scope::User(who.clone()), true, world.kernel.now().into(), 10).await.ok()?;
            open.is_empty().then_some(())
        })
        .await;
    }
    for who in &users {
        let mut answered = 0;
        for place in 0..PLACES {
            let log = whole_log(&world.kernel, who, ConversationId::for_key(who, &format!("place {place}"))).await;
            check_log(&log);
            check_lanes(&log);
            answered += log.iter().filter(|e| matches!(e.body, EventBody::Answered { .. })).count();
        }
        assert_eq!(answered, EACH, "{who} is not served");
    }
    assert!(refused.iter().sum::<u32>() > 0, "nobody was ever refused: it is no load");
    assert_eq!(model.call_count(), total, "no round is run twice");
    let (_, root) = world.kernel.view("/").await.expect("it lives");
    let root = root.expect("it answers");
    let scheduler = root["children"].as_array().and_then(|all| all.iter().find(|child| child["name"] == "scheduler"));
    let restarts = scheduler.and_then(|child| child["restarts"].as_u64()).unwrap_or_default();
    assert!(restarts >= KILLS, "{restarts}");
    world.kernel.stop().await;
}

/// Until the end of a task, by the clock of the test alone; the time at which it was.
async fn ask(kernel: &Kernel, who: &str, text: &str, class: Priority) -> annie_core::time::Micros {
    let mut message = Submission::new(user(who), "test", text);
    message.priority = Some(class);
    let (said, mut follow) = kernel.ask(message).await.expect("taken");
    loop {
        match follow.next().await.expect("readable") {
            Some(StreamItem::Event(event)) if event.task == said.task && event.body.is_final() => return event.at,
            Some(_) => {}
            None => panic!("the kernel has ended"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn steady_high_load_holds_background_work_back_for_no_longer_than_aging_says() {
    const ROUND_MS: u64 = 5_000;
    let model = ScriptedModel::new(|_, _| Ok(says("done"))).taking(std::time::Duration::from_millis(ROUND_MS));
    let mut parts = WorldParts::with_model(Arc::new(model));
    parts.slots = 1;
    parts.limits.mode = Mode::SingleLoop;
    let aging_ms = u64::from(parts.limits.queue.aging_ms_per_class);
    let world = parts.start().await;
    let kernel = &world.kernel;
    // Three people, each of whom asks again as soon as there is an answer: two of them always wait.
    let people = join_all(["ann", "bob", "cid"].map(async |who| {
        loop {
            ask(kernel, who, "again", Priority::High).await;
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
    // From BACKGROUND to HIGH it ages three classes; then it is one of four who take turns.
    let aged_ms = 3 * aging_ms;
    assert!(ended_ms >= aged_ms, "HIGH went first for {ended_ms} ms only");
    assert!(ended_ms <= aged_ms + 5 * ROUND_MS, "it took {ended_ms} ms");
    world.kernel.stop().await;
}
