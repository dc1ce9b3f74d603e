//! Messages of which nobody knows for a while whether they are stored: a store that stored them without a word, or later than
//! anybody waits. Nobody sends them again, and they are worked on all the same.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use annie_actors::Submission;
use annie_core::{
    event::{EventBody, Mode, Scope},
    ids::{ConversationId, Seq},
    message::Message,
    ports::{Append, FaultAction, Log, StoreErrorKind},
};
use annie_store::{MemoryStore, StoreFault, StorePoint, StoreSide};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{calls, says},
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, come_back_after, eventually, kill};

fn conversation(key: &str) -> ConversationId {
    ConversationId::for_key(&ann(), key)
}

/// A message whose sender never asks again.
async fn say_once(world: &World, key: &str) {
    let said = world.kernel.submit(Submission::new(ann(), "test", "hello").within(conversation(key))).await;
    assert!(said.is_err(), "it was acknowledged: {said:?}");
}

async fn is_answered(world: &World, key: &str) {
    eventually("it is answered", async || {
        let log = world.kernel.events(Scope::User(ann()), conversation(key), Seq(0), 500).await.ok()?;
        log.iter().any(|e| matches!(e.body, EventBody::Answered { .. })).then_some(())
    })
    .await;
}

fn brings(batch: &[Append], key: &str) -> bool {
    let is_message = |append: &Append| append.events.iter().any(|e| matches!(e.body, EventBody::Received(_)));
    batch.iter().any(|append| append.conversation == conversation(key) && is_message(append))
}

/// A kernel whose store takes in the message of the conversation `lost` without a word, and none of `refused`.
async fn world(fault: impl Fn(StorePoint<'_>) -> StoreFault + Send + Sync + 'static, scan_ms: u64) -> World {
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    let store = MemoryStore::new().with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(batch) if brings(batch, "lost") => StoreFault::LoseReply(StoreErrorKind::Unavailable),
        StorePoint::Commit(batch) if brings(batch, "refused") => StoreFault::Fail(StoreErrorKind::Full),
        point => fault(point),
    }));
    parts.store = Arc::new(store.with_wait(Arc::new(move |point, side| {
        let is_slow = side == StoreSide::Before && matches!(point, StorePoint::Read("open_conversations"));
        Box::pin(come_back_after(if is_slow { scan_ms } else { 0 }))
    })));
    parts.start().await
}

#[tokio::test(start_paused = true)]
async fn hints_that_keep_coming_do_not_hold_back_an_open_conversation() {
    let world = world(|_| StoreFault::Pass, 300).await;
    say_once(&world, "lost").await;
    let hints = async {
        loop {
            // Each leaves a doubt behind, sooner than the log says what is open.
            say_once(&world, "refused").await;
            come_back_after(50).await;
        }
    };
    tokio::select! {
        () = hints => {}
        () = is_answered(&world, "lost") => {}
    }
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_never_says_what_is_open_is_asked_again() {
    let (armed, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_armed, count) = (armed.clone(), asked.clone());
    let hangs = move |point: StorePoint<'_>| match point {
        StorePoint::Read("open_conversations") if is_armed.load(Relaxed) && count.fetch_add(1, Relaxed) == 0 => {
            StoreFault::Hang
        }
        _ => StoreFault::Pass,
    };
    let world = world(hangs, 0).await;
    eventually("the first look is over", async || world.kernel.health().await.ready.then_some(())).await;
    armed.store(true, Relaxed);
    say_once(&world, "lost").await;
    is_answered(&world, "lost").await;
    assert!(asked.load(Relaxed) > 1);
    world.kernel.stop().await;
}

/// A store that answers no commit of the conversation `late`, and the appends that it holds back.
fn late_store(data: &MemoryStore) -> (Arc<MemoryStore>, Arc<Mutex<Vec<Append>>>) {
    let held = Arc::new(Mutex::new(Vec::new()));
    let holds = held.clone();
    let store = data.with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(batch) if brings(batch, "late") => {
            holds.lock().expect("not poisoned").extend_from_slice(batch);
            StoreFault::Hang
        }
        _ => StoreFault::Pass,
    }));
    (Arc::new(store), held)
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_stored_after_its_commit_was_given_up_is_worked_on() {
    for after_ms in [200, 20_000, 70_000] {
        let data = MemoryStore::new();
        let mut parts = WorldParts::new(|_, _| Ok(says("here")));
        let (store, held) = late_store(&data);
        parts.store = store;
        let world = parts.start().await;
        say_once(&world, "late").await;
        come_back_after(after_ms).await;
        let late = std::mem::take(&mut *held.lock().expect("not poisoned"));
        for stored in data.commit(late).await {
            stored.expect("stored");
        }
        is_answered(&world, "late").await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_stored_after_its_log_writer_died_is_worked_on() {
    let data = MemoryStore::new();
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    let (store, held) = late_store(&data);
    parts.store = store;
    let world = parts.start().await;
    let say = say_once(&world, "late");
    let die = async {
        eventually("it is with the store", async || (!held.lock().ok()?.is_empty()).then_some(())).await;
        kill(&world, "/infra/log").await;
    };
    tokio::join!(say, die);
    // The next life has looked.
    come_back_after(2_000).await;
    let late = std::mem::take(&mut *held.lock().expect("not poisoned"));
    for stored in data.commit(late).await {
        stored.expect("stored");
    }
    is_answered(&world, "late").await;
    world.kernel.stop().await;
}

/// A breaker that died over a run may have let it take effect; the next one must not say that it was not run only because it
/// cannot mark it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_an_earlier_breaker_may_have_done_is_not_said_to_have_never_begun() {
    let struck = AtomicUsize::new(0);
    let plan = FaultPlan::by(move |kind, point, _| match (kind, point, struck.load(Relaxed)) {
        // It took effect, and its breaker dies before it can say so.
        ("run", "ran", 0) => {
            struck.store(1, Relaxed);
            FaultAction::Panic
        }
        // The next one cannot mark it: nobody says what became of the commit.
        ("run", "starting", 1) => {
            struck.store(2, Relaxed);
            FaultAction::Pass
        }
        ("commit", "before", 2) => {
            struck.store(3, Relaxed);
            FaultAction::Fail
        }
        _ => FaultAction::Pass,
    });
    let plan = Arc::new(plan);
    let told = Arc::new(Mutex::new(String::new()));
    let hears = told.clone();
    let mut parts = WorldParts::new(move |request, _| {
        Ok(match request.messages.last() {
            Some(Message::Tool { text, .. }) => {
                hears.lock().expect("not poisoned").clone_from(text);
                says("over")
            }
            _ => calls([("use_skill", json!({"skill": "test.send", "arguments": {"what": "x"}}))]),
        })
    })
    .faults(plan.clone());
    parts.limits.mode = Mode::SingleLoop;
    let world = parts.start().await;
    let said = world.say("send it").await;
    world.answer(&said).await;
    assert_eq!(plan.struck().len(), 2, "{:?}", plan.struck());
    assert_eq!(parts.skills.count("test.send"), 1);
    let told = told.lock().expect("not poisoned").clone();
    assert!(told.contains("not known whether it took effect"), "{told}");
    world.kernel.stop().await;
}
