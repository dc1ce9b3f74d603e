//! The keepers of letters, of words and of operations are struck at every message: what they keep is tried again, told and
//! closed once all the same.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use annie_actors::{Submission, Submitted};
use annie_core::{
    event::{EventBody, Mode, Priority, Scope},
    message::{Message, ModelError, ModelErrorKind},
    outcome::{Operation, Outcome},
    ports::FaultAction,
    time::Micros,
};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{calls, says},
    skills::{Deed, FakeSkills},
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, eventually};

/// A model that fails three times, which is once in every way, and then starts an operation.
fn parts(plan: &Arc<FaultPlan>) -> WorldParts {
    let failures = AtomicUsize::new(0);
    let mut parts = WorldParts::new(move |request, _| match request.messages.last() {
        Some(Message::Tool { text, .. }) => Ok(says(text.clone())),
        Some(Message::User { text, .. }) if text.starts_with("[Operation") => Ok(says("Nothing came.")),
        _ if failures.fetch_add(1, Relaxed) < 3 => Err(ModelError::new(ModelErrorKind::Unavailable, "away")),
        _ => Ok(calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "coffee"}}))])),
    });
    parts.skills = Arc::new(FakeSkills::new(|call| {
        let operation = Operation { id: call.operation.id, expires_at: call.now.plus_ms(20) };
        Deed::Answer(Outcome::pending(operation, "The coffee is ordered."))
    }));
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.turn.defer_ms = 1;
    parts.limits.turn.letters.retry_after_ms = 10;
    parts.limits.notify.gather_ms = 1;
    parts.limits.notify.every_ms = 0;
    parts.faults(plan.clone())
}

/// The failure, the new try, and the end of the operation that it started.
async fn story(world: &World) -> Submitted {
    let mut message = Submission::new(ann(), "test", "order coffee");
    message.priority = Some(Priority::Normal);
    let said = world.kernel.submit(message).await.expect("taken");
    eventually("the operation is closed, and everything is told", async || {
        let mut all = world.kernel.operations(Scope::User(ann()), false, Micros(i64::MAX).into(), 10).await.ok()?;
        let closed = all.pop()?.closed_by?;
        let row = world.kernel.task(Scope::User(ann()), closed).await.ok()?;
        let is_told = world.kernel.store().outbox(10).await.ok()?.is_empty();
        (row.state.is_ended() && is_told).then_some(())
    })
    .await;
    said
}

async fn strike(kind: &str, point: &str, action: FaultAction) -> bool {
    let plan = Arc::new(FaultPlan::once_at(kind, point, 0, action));
    let mut parts = parts(&plan);
    parts.limits.stuck_ms_max = 150;
    let world = parts.start().await;
    let said = story(&world).await;
    let place = format!("{action:?} in {kind} at {point}");
    let log = world.log(said.conversation).await;
    check_log(&log);
    let of = |body: &EventBody| match body {
        EventBody::Received(inbound) => inbound.source.clone(),
        _ => String::new(),
    };
    let sources: Vec<String> = log.iter().map(|e| of(&e.body)).filter(|source| !source.is_empty()).collect();
    assert_eq!(sources, ["test", "dead_letter", "operation"], "{place}");
    let told = world.kernel.notifications(&ann(), 0, 100).await.expect("readable");
    let mut tasks: Vec<_> = told.iter().flat_map(|n| n.tasks.clone()).collect();
    tasks.sort();
    let count = tasks.len();
    tasks.dedup();
    assert_eq!((tasks.len(), count), (3, 3), "{place}: each ending is told once: {told:#?}");
    world.kernel.stop().await;
    !plan.struck().is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_of_a_keeper_at_any_step_loses_nothing_and_doubles_nothing() {
    for action in [FaultAction::Panic, FaultAction::Kill, FaultAction::Hang] {
        for kind in ["letters", "notifier", "expiry"] {
            for point in ["before:New", "after:New", "before:Clock", "after:Clock", "before:Looked", "after:Looked"] {
                assert!(strike(kind, point, action).await, "{kind} never passes {point}");
            }
        }
    }
}
