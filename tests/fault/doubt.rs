//! States that are unknown for a while. (a) Messages that may or may not be stored: the store stored them without a
//! reply, or later than the caller waits. No client sends such a message again, and it is worked on all the same. (b)
//! Runs whose breaker died during them: the run may or may not have begun, and its outcome is what the log says.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use annie_actors::Submission;
use annie_core::{
    event::{EventBody, Scope},
    ids::{ConversationId, Seq},
    outcome::{Outcome, Status},
    ports::{Append, FaultAction, Log, StoreErrorKind},
};
use annie_store::{MemoryStore, StoreFault, StorePoint, StoreSide};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::says,
    skills::{FakeBehaviour, FakeSkills},
};

use super::hiccups::{breaker_state, calling, open_the_breaker, outcome_for, outcome_of};
use crate::world::{World, WorldParts, ann, eventually, kill, sleep_for_ms};

fn conversation(key: &str) -> ConversationId {
    ConversationId::for_key(&ann(), key)
}

/// Sends a message whose sender never retries.
async fn say_once(world: &World, key: &str) {
    let sent = world.kernel.submit(Submission::new(ann(), "test", "hello").within(conversation(key))).await;
    assert!(sent.is_err(), "it was acknowledged: {sent:?}");
}

async fn is_answered(world: &World, key: &str) {
    eventually("the message is answered", async || {
        let log = world.kernel.events(Scope::User(ann()), conversation(key), Seq(0), 500).await.ok()?;
        log.iter().any(|e| matches!(e.body, EventBody::Answered { .. })).then_some(())
    })
    .await;
}

fn contains_message(batch: &[Append], key: &str) -> bool {
    let is_message = |append: &Append| append.events.iter().any(|e| matches!(e.body, EventBody::Received(_)));
    batch.iter().any(|append| append.conversation == conversation(key) && is_message(append))
}

/// A kernel whose store stores the message of the conversation `lost` without a reply, and refuses those of `refused`.
async fn world(fault: impl Fn(StorePoint<'_>) -> StoreFault + Send + Sync + 'static, scan_ms: u64) -> World {
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    let store = MemoryStore::new().with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(batch) if contains_message(batch, "lost") => {
            StoreFault::LoseReply(StoreErrorKind::Unavailable)
        }
        StorePoint::Commit(batch) if contains_message(batch, "refused") => StoreFault::Fail(StoreErrorKind::Full),
        point => fault(point),
    }));
    parts.store = Arc::new(store.with_wait(Arc::new(move |point, side| {
        let is_slow = side == StoreSide::Before && matches!(point, StorePoint::Read("open_for"));
        Box::pin(sleep_for_ms(if is_slow { scan_ms } else { 0 }))
    })));
    parts.start().await
}

#[tokio::test(start_paused = true)]
async fn conversation_scan_starts_an_open_conversation_although_new_hints_keep_arriving() {
    let world = world(|_| StoreFault::Pass, 300).await;
    say_once(&world, "lost").await;
    let hints = async {
        loop {
            // Each of these messages leaves a doubt before the log has said what is open.
            say_once(&world, "refused").await;
            sleep_for_ms(50).await;
        }
    };
    tokio::select! {
        () = hints => {}
        () = is_answered(&world, "lost") => {}
    }
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn conversation_scan_that_hangs_is_repeated() {
    let (armed, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_armed, count) = (armed.clone(), asked.clone());
    let hangs = move |point: StorePoint<'_>| match point {
        StorePoint::Read("open_for") if is_armed.load(Relaxed) && count.fetch_add(1, Relaxed) == 0 => StoreFault::Hang,
        _ => StoreFault::Pass,
    };
    let world = world(hangs, 0).await;
    eventually("the first scan is over", async || world.kernel.health().await.ready.then_some(())).await;
    armed.store(true, Relaxed);
    say_once(&world, "lost").await;
    is_answered(&world, "lost").await;
    assert!(asked.load(Relaxed) > 1);
    world.kernel.stop().await;
}

/// A store that answers no commit of the conversation `late`, and the appends that it withholds.
fn late_store(data: &MemoryStore) -> (Arc<MemoryStore>, Arc<Mutex<Vec<Append>>>) {
    let withheld = Arc::new(Mutex::new(Vec::new()));
    let withheld_by_hook = withheld.clone();
    let store = data.with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(batch) if contains_message(batch, "late") => {
            withheld_by_hook.lock().expect("not poisoned").extend_from_slice(batch);
            StoreFault::Hang
        }
        _ => StoreFault::Pass,
    }));
    (Arc::new(store), withheld)
}

#[tokio::test(start_paused = true)]
async fn message_stored_after_its_commit_was_abandoned_is_worked_on() {
    for after_ms in [200, 20_000, 70_000] {
        let data = MemoryStore::new();
        let mut parts = WorldParts::new(|_, _| Ok(says("here")));
        let (store, withheld) = late_store(&data);
        parts.store = store;
        let world = parts.start().await;
        say_once(&world, "late").await;
        sleep_for_ms(after_ms).await;
        let late = std::mem::take(&mut *withheld.lock().expect("not poisoned"));
        for stored in data.commit(late).await {
            stored.expect("stored");
        }
        is_answered(&world, "late").await;
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn message_stored_after_its_log_writer_died_is_worked_on() {
    let data = MemoryStore::new();
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    let (store, withheld) = late_store(&data);
    parts.store = store;
    let world = parts.start().await;
    let say = say_once(&world, "late");
    let die = async {
        eventually("the append has reached the store", async || (!withheld.lock().ok()?.is_empty()).then_some(()))
            .await;
        kill(&world, "/infra/log").await;
    };
    tokio::join!(say, die);
    // The next incarnation of the log writer has scanned the log.
    sleep_for_ms(2_000).await;
    let late = std::mem::take(&mut *withheld.lock().expect("not poisoned"));
    for stored in data.commit(late).await {
        stored.expect("stored");
    }
    is_answered(&world, "late").await;
    world.kernel.stop().await;
}

/// A plan that makes the first run panic at `point`, and after that fails every breaker that receives a run. An empty
/// `point` fails every breaker from the start.
fn no_breaker_survives(point: &'static str) -> Arc<FaultPlan> {
    let took_effect = AtomicBool::new(false);
    Arc::new(FaultPlan::by(move |kind, at, _| match (kind, at) {
        ("run", at) if at == point && !took_effect.swap(true, Relaxed) => FaultAction::Panic,
        ("breaker", "before:Run") if took_effect.load(Relaxed) || point.is_empty() => FaultAction::Fail,
        _ => FaultAction::Pass,
    }))
}

#[tokio::test(start_paused = true)]
async fn once_run_whose_breakers_died_is_unknown_only_if_one_of_them_began_it() {
    for (dies_at, status, effects) in [
        ("", Status::ErrorTransient, 0),
        ("starting", Status::ErrorTransient, 0),
        ("started", Status::Unknown, 0),
        ("ran", Status::Unknown, 1),
    ] {
        let plan = no_breaker_survives(dies_at);
        let parts = calling("test.send", |_| StoreFault::Pass).faults(plan.clone());
        let world = parts.start().await;
        let outcome = outcome_of(&world).await;
        assert_eq!((outcome.status, parts.skills.count("test.send")), (status, effects), "{dies_at:?}: {outcome:?}");
        assert!(plan.injected().len() >= 4, "{dies_at:?}: {:?}", plan.injected());
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn idempotent_run_whose_breakers_died_is_unknown_only_if_one_of_them_began_it() {
    for (dies_at, status, effects) in
        [("starting", Status::ErrorTransient, 0), ("started", Status::Unknown, 0), ("ran", Status::Unknown, 1)]
    {
        let plan = no_breaker_survives(dies_at);
        let parts = calling("test.put", |_| StoreFault::Pass).faults(plan.clone());
        let world = parts.start().await;
        let outcome = outcome_of(&world).await;
        assert_eq!((outcome.status, parts.skills.count("test.put")), (status, effects), "{dies_at:?}: {outcome:?}");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn idempotent_run_that_fails_after_a_breaker_died_during_it_is_unknown() {
    let plan = Arc::new(FaultPlan::once_at("run", "ran", 0, FaultAction::Panic));
    let mut parts = calling("test.put", |_| StoreFault::Pass).faults(plan.clone());
    parts.skills = Arc::new(FakeSkills::new(|_| FakeBehaviour::Answer(Outcome::transient("http_503", "down"))));
    let world = parts.start().await;
    let outcome = outcome_of(&world).await;
    assert_eq!((plan.injected().len(), parts.skills.count("test.put")), (1, 2));
    assert_eq!(outcome.status, Status::Unknown, "the first run may have taken effect: {outcome:?}");
    world.kernel.stop().await;
}

/// A breaker that died during a run may have let it take effect. As long as the log cannot be read, the run is neither
/// reported as not run nor repeated.
#[tokio::test(start_paused = true)]
async fn run_possibly_done_by_an_earlier_breaker_is_not_reported_as_never_begun() {
    for (unread, wanted) in [(3, "not known whether it took effect"), (usize::MAX, "may or may not have happened")] {
        let plan = Arc::new(FaultPlan::once_at("run", "ran", 0, FaultAction::Panic));
        let left = AtomicUsize::new(unread);
        let parts = calling("test.send", move |point| match point {
            StorePoint::Read("intents") if left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok() => {
                StoreFault::Fail(StoreErrorKind::Unavailable)
            }
            _ => StoreFault::Pass,
        });
        let parts = parts.faults(plan.clone());
        let world = parts.start().await;
        let outcome = outcome_of(&world).await;
        assert_eq!(plan.injected().len(), 1);
        assert_eq!(parts.skills.count("test.send"), 1);
        assert_eq!(outcome.status, Status::Unknown);
        assert!(outcome.data.contains(wanted), "{outcome:?}");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn run_whose_start_mark_the_second_breaker_could_not_store_did_not_happen() {
    let plan = Arc::new(FaultPlan::once_at("breaker", "before:Run", 0, FaultAction::Fail));
    let is_mark = |append: &Append| append.events.iter().any(|e| matches!(e.body, EventBody::SkillStarted { .. }));
    let parts = calling("test.send", move |point| match point {
        StorePoint::Commit(batch) if batch.iter().any(is_mark) => StoreFault::Fail(StoreErrorKind::Full),
        _ => StoreFault::Pass,
    });
    let parts = parts.faults(plan.clone());
    let world = parts.start().await;
    let outcome = outcome_of(&world).await;
    assert_eq!(plan.injected().len(), 1);
    assert_eq!(outcome.error_type.as_deref(), Some("not_started"), "{outcome:?}");
    assert_eq!(parts.skills.count("test.send"), 0);
    world.kernel.stop().await;
}

/// A hanging breaker still exists and may begin the run later.
#[tokio::test(start_paused = true)]
async fn call_held_by_a_hanging_breaker_is_neither_rerun_nor_reported_as_never_begun() {
    let plan = Arc::new(FaultPlan::once_at("breaker", "before:Run", 0, FaultAction::Hang));
    let parts = calling("test.send", |_| StoreFault::Pass).faults(plan.clone());
    let world = parts.start().await;
    let sent = world.say("go").await;
    // By then the caller has sent the call again.
    sleep_for_ms(65_000).await;
    kill(&world, "/breakers/breaker:test.send").await;
    assert_eq!(outcome_for(&world, &sent).await.status, Status::Unknown);
    assert_eq!(parts.skills.count("test.send"), 0);
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn breaker_that_is_open_refuses_a_call_that_its_former_incarnation_did_not_begin() {
    for skill in ["test.look", "test.put", "test.send"] {
        let plan = Arc::new(FaultPlan::once_at("breaker", "before:Run", 1, FaultAction::Fail));
        let mut parts = calling(skill, |_| StoreFault::Pass).faults(plan.clone());
        let world = open_the_breaker(&mut parts, skill).await;
        let refused = outcome_of(&world).await;
        assert_eq!(plan.injected().len(), 1);
        assert_eq!(refused.error_type.as_deref(), Some("breaker_open"), "{skill}: {refused:?}");
        assert_eq!(parts.skills.count(skill), 1, "the call went through an open breaker");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn breaker_uses_a_call_that_its_former_incarnation_did_not_begin_as_the_due_probe() {
    for skill in ["test.look", "test.put", "test.send"] {
        let plan = Arc::new(FaultPlan::once_at("breaker", "before:Run", 1, FaultAction::Fail));
        let mut parts = calling(skill, |_| StoreFault::Pass).faults(plan.clone());
        parts.limits.breaker.open_ms = 1_000;
        let world = open_the_breaker(&mut parts, skill).await;
        sleep_for_ms(1_000).await;
        assert_eq!(outcome_of(&world).await.status, Status::Success, "{skill}");
        assert_eq!(plan.injected().len(), 1);
        assert_eq!(breaker_state(&world, skill).await.as_deref(), Some("closed"), "{skill}");
        world.kernel.stop().await;
    }
}
