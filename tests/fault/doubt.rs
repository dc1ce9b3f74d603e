//! What nobody knows for a while. Messages that may be stored or not: a store that stored them without a word, or later than
//! anybody waits. Nobody sends them again, and they are worked on all the same. Runs whose door died over them: they may have
//! begun or not, and what is said of them is what the log says.

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
    skills::{Deed, FakeSkills},
};

use super::hiccups::{breaker_state, calling, open_the_breaker, outcome_for, outcome_of};
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
        let is_slow = side == StoreSide::Before && matches!(point, StorePoint::Read("open_for"));
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
        StorePoint::Read("open_for") if is_armed.load(Relaxed) && count.fetch_add(1, Relaxed) == 0 => StoreFault::Hang,
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

/// A plan that kills the first run once it took effect, and then every door that is asked.
fn no_door_lives_on(point: &'static str) -> Arc<FaultPlan> {
    let took_effect = AtomicBool::new(false);
    Arc::new(FaultPlan::by(move |kind, at, _| match (kind, at) {
        ("run", at) if at == point && !took_effect.swap(true, Relaxed) => FaultAction::Panic,
        ("breaker", "before:Run") if took_effect.load(Relaxed) || point.is_empty() => FaultAction::Fail,
        _ => FaultAction::Pass,
    }))
}

#[tokio::test(start_paused = true)]
async fn a_once_run_that_no_door_lived_to_begin_did_not_happen_and_one_that_began_is_unknown() {
    for (dies_at, status, effects) in [
        ("", Status::ErrorTransient, 0),
        ("starting", Status::ErrorTransient, 0),
        ("started", Status::Unknown, 0),
        ("ran", Status::Unknown, 1),
    ] {
        let plan = no_door_lives_on(dies_at);
        let parts = calling("test.send", |_| StoreFault::Pass).faults(plan.clone());
        let world = parts.start().await;
        let outcome = outcome_of(&world).await;
        assert_eq!((outcome.status, parts.skills.count("test.send")), (status, effects), "{dies_at:?}: {outcome:?}");
        assert!(plan.struck().len() >= 4, "{dies_at:?}: {:?}", plan.struck());
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn idempotent_run_that_no_breaker_lived_to_finish_is_unknown_if_one_began_it() {
    for (dies_at, status, effects) in
        [("starting", Status::ErrorTransient, 0), ("started", Status::Unknown, 0), ("ran", Status::Unknown, 1)]
    {
        let plan = no_door_lives_on(dies_at);
        let parts = calling("test.put", |_| StoreFault::Pass).faults(plan.clone());
        let world = parts.start().await;
        let outcome = outcome_of(&world).await;
        assert_eq!((outcome.status, parts.skills.count("test.put")), (status, effects), "{dies_at:?}: {outcome:?}");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn idempotent_run_that_fails_after_a_breaker_died_over_it_is_unknown() {
    let plan = Arc::new(FaultPlan::once_at("run", "ran", 0, FaultAction::Panic));
    let mut parts = calling("test.put", |_| StoreFault::Pass).faults(plan.clone());
    parts.skills = Arc::new(FakeSkills::new(|_| Deed::Answer(Outcome::transient("http_503", "down"))));
    let world = parts.start().await;
    let outcome = outcome_of(&world).await;
    assert_eq!((plan.struck().len(), parts.skills.count("test.put")), (1, 2));
    assert_eq!(outcome.status, Status::Unknown, "the first run may have taken effect: {outcome:?}");
    world.kernel.stop().await;
}

/// A breaker that died over a run may have let it take effect, and nobody says that it was not run, nor runs it again, for as
/// long as the log does not say.
#[tokio::test(start_paused = true)]
async fn a_run_that_an_earlier_breaker_may_have_done_is_not_said_to_have_never_begun() {
    for (unread, says) in [(3, "not known whether it took effect"), (usize::MAX, "may or may not have happened")] {
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
        assert_eq!(plan.struck().len(), 1);
        assert_eq!(parts.skills.count("test.send"), 1);
        assert_eq!(outcome.status, Status::Unknown);
        assert!(outcome.data.contains(says), "{outcome:?}");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_could_not_be_marked_behind_the_second_door_did_not_happen() {
    let plan = Arc::new(FaultPlan::once_at("breaker", "before:Run", 0, FaultAction::Fail));
    let is_mark = |append: &Append| append.events.iter().any(|e| matches!(e.body, EventBody::SkillStarted { .. }));
    let parts = calling("test.send", move |point| match point {
        StorePoint::Commit(batch) if batch.iter().any(is_mark) => StoreFault::Fail(StoreErrorKind::Full),
        _ => StoreFault::Pass,
    });
    let parts = parts.faults(plan.clone());
    let world = parts.start().await;
    let outcome = outcome_of(&world).await;
    assert_eq!(plan.struck().len(), 1);
    assert_eq!(outcome.error_type.as_deref(), Some("not_started"), "{outcome:?}");
    assert_eq!(parts.skills.count("test.send"), 0);
    world.kernel.stop().await;
}

/// A door that hangs is not gone: it may begin the run yet.
#[tokio::test(start_paused = true)]
async fn what_lies_with_a_door_that_hangs_is_neither_run_by_another_nor_said_to_have_never_begun() {
    let plan = Arc::new(FaultPlan::once_at("breaker", "before:Run", 0, FaultAction::Hang));
    let parts = calling("test.send", |_| StoreFault::Pass).faults(plan.clone());
    let world = parts.start().await;
    let said = world.say("go").await;
    // By then its caller has asked again.
    come_back_after(65_000).await;
    kill(&world, "/breakers/breaker:test.send").await;
    assert_eq!(outcome_for(&world, &said).await.status, Status::Unknown);
    assert_eq!(parts.skills.count("test.send"), 0);
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_refuses_a_call_that_a_former_life_did_not_begin() {
    for skill in ["test.look", "test.put", "test.send"] {
        let plan = Arc::new(FaultPlan::once_at("breaker", "before:Run", 1, FaultAction::Fail));
        let mut parts = calling(skill, |_| StoreFault::Pass).faults(plan.clone());
        let world = open_the_breaker(&mut parts, skill).await;
        let refused = outcome_of(&world).await;
        assert_eq!(plan.struck().len(), 1);
        assert_eq!(refused.error_type.as_deref(), Some("breaker_open"), "{skill}: {refused:?}");
        assert_eq!(parts.skills.count(skill), 1, "it went through an open breaker");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_former_life_did_not_begin_is_the_probe_when_one_is_due() {
    for skill in ["test.look", "test.put", "test.send"] {
        let plan = Arc::new(FaultPlan::once_at("breaker", "before:Run", 1, FaultAction::Fail));
        let mut parts = calling(skill, |_| StoreFault::Pass).faults(plan.clone());
        parts.limits.breaker.open_ms = 1_000;
        let world = open_the_breaker(&mut parts, skill).await;
        come_back_after(1_000).await;
        assert_eq!(outcome_of(&world).await.status, Status::Success, "{skill}");
        assert_eq!(plan.struck().len(), 1);
        assert_eq!(breaker_state(&world, skill).await.as_deref(), Some("closed"), "{skill}");
        world.kernel.stop().await;
    }
}
