//! The process dies at every call of the store, or the store itself fails. The next run continues where the log ends.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use annie_actors::{Submission, Submitted};
use annie_core::{event::EventBody, ids::ConversationId, ports::StoreErrorKind};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::scripted_model::ScriptedModel;

use crate::world::{World, WorldParts, ann, check_log, two_agents};

fn message() -> Submission {
    let mut message = Submission::new(ann(), "test", "do both");
    message.client_id = Some("the-message".to_owned());
    message.conversation = Some(ConversationId::for_key(&ann(), "k"));
    message
}

fn parts(
    data: &MemoryStore,
    fault: impl Fn(usize, StorePoint<'_>) -> StoreFault + Send + Sync + 'static,
) -> WorldParts {
    let passed = AtomicUsize::new(0);
    let hook = move |point: StorePoint<'_>| match point {
        // Without these writes a process does not start at all.
        StorePoint::Write("secret" | "register_node") => StoreFault::Pass,
        point => fault(passed.fetch_add(1, Relaxed), point),
    };
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|r, _| Ok(two_agents(r)))));
    parts.store = Arc::new(data.with_hook(Arc::new(hook)));
    parts
}

async fn send_until_accepted(world: &World) -> Submitted {
    loop {
        if let Ok(submitted) = world.kernel.submit(message()).await {
            return submitted;
        }
    }
}

/// The number of store calls of an undisturbed turn.
async fn store_calls() -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let world = parts(&MemoryStore::new(), move |_, _| {
        counted.fetch_add(1, Relaxed);
        StoreFault::Pass
    });
    let world = world.start().await;
    let submitted = send_until_accepted(&world).await;
    world.answer(&submitted).await;
    let calls = count.load(Relaxed);
    world.kernel.stop().await;
    calls
}

async fn die_at_every_boundary(done_before_it_dies: bool) {
    let calls = store_calls().await;
    assert!(calls > 15, "a turn makes only {calls} calls of the store");
    // The first call reads the standing orders, without which a process does not start.
    for last in 1..calls {
        let data = MemoryStore::new();
        let first_run = parts(&data, move |n, _| match n.cmp(&last) {
            std::cmp::Ordering::Less => StoreFault::Pass,
            std::cmp::Ordering::Equal if done_before_it_dies => StoreFault::HangAfter,
            // A dead process does nothing more.
            _ => StoreFault::Hang,
        });
        let dead = Arc::new(tokio::sync::Notify::new());
        let world = first_run.start().await;
        let kernel = world.kernel.clone();
        let sent = tokio::select! {
            submitted = send_until_accepted(&world) => {
                // The message is acknowledged; later work dies with the store. Once no actor handles messages any more,
                // everything that could happen has happened.
                quiet(&world).await;
                Some(submitted)
            }
            () = async { quiet(&world).await; dead.notify_one(); } => None,
        };
        kernel.crash().await;
        let second_run = parts(&data, |_, _| StoreFault::Pass);
        let effects_before = first_run.skills.effects();
        let world = second_run.start().await;
        let submitted = match sent {
            Some(submitted) => submitted,
            // Not acknowledged, so its client sends the message again.
            None => send_until_accepted(&world).await,
        };
        let end = world.final_of(submitted.conversation, submitted.task).await;
        assert!(matches!(end, EventBody::Answered { .. }), "died at call {last}: {end:?}");
        let log = world.log(submitted.conversation).await;
        check_log(&log);
        for (intent, (skill, times)) in second_run.skills.effects() {
            let before = effects_before.get(&intent).map_or(0, |(_, n)| *n);
            assert!(skill != "test.send" || times + before <= 1, "died at call {last}: a once effect was repeated");
        }
        world.kernel.stop().await;
    }
}

/// Waits until the actors have stopped handling messages.
async fn quiet(world: &World) {
    let handled = || world.kernel.tree().iter().map(|n| n.handled).sum::<u64>();
    let mut before = handled();
    let mut still = 0;
    while still < 10 {
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        let now = handled();
        still = if now == before { still + 1 } else { 0 };
        before = now;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_dies_before_any_store_call_continues_in_its_next_run() {
    die_at_every_boundary(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_dies_after_any_store_call_continues_in_its_next_run() {
    die_at_every_boundary(true).await;
}

async fn fail_every_call_once(fault: StoreFault) {
    let calls = store_calls().await;
    for at in 0..calls {
        let data = MemoryStore::new();
        let parts = parts(&data, move |n, _| if n == at { fault } else { StoreFault::Pass });
        let world = parts.start().await;
        let submitted = send_until_accepted(&world).await;
        let end = world.final_of(submitted.conversation, submitted.task).await;
        assert!(matches!(end, EventBody::Answered { .. }), "{fault:?} at call {at}: {end:?}");
        assert!(parts.skills.most("test.send") <= 1, "{fault:?} at call {at}: a once effect was repeated");
        check_log(&world.log(submitted.conversation).await);
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_for_a_moment_delays_and_loses_nothing() {
    fail_every_call_once(StoreFault::Fail(StoreErrorKind::Full)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_whose_reply_is_lost_is_neither_lost_nor_duplicated() {
    fail_every_call_once(StoreFault::LoseReply(StoreErrorKind::Unavailable)).await;
}
