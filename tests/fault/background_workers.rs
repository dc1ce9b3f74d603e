//! Faults are injected into the background workers (dead letters, notifications, operations) at every message. What they
//! manage is still retried, notified and closed exactly once.

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
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, eventually};

/// A model that fails three times, which means one failure in each path, and then starts an operation.
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
        FakeBehaviour::Answer(Outcome::pending(operation, "The coffee is ordered."))
    }));
    parts.limits.mode = Mode::SingleLoop;
    parts.limits.turn.defer_ms = 1;
    parts.limits.turn.dead_letters.retry_after_ms = 10;
    parts.limits.notify.gather_ms = 1;
    parts.limits.notify.every_ms = 0;
    parts.faults(plan.clone())
}

/// Sends a message that fails, is retried, and starts an operation. Waits for the end of that operation.
async fn story(world: &World) -> Submitted {
    let mut message = Submission::new(ann(), "test", "order coffee");
    message.priority = Some(Priority::Normal);
    let sent = world.kernel.submit(message).await.expect("accepted");
    eventually("the operation is closed, and all notifications are delivered", async || {
        let mut all = world.kernel.operations(Scope::User(ann()), false, Micros(i64::MAX).into(), 10).await.ok()?;
        let closed = all.pop()?.closed_by?;
        let row = world.kernel.task(Scope::User(ann()), closed).await.ok()?;
        let is_notified = world.kernel.store().outbox(10).await.ok()?.is_empty();
        (row.state.is_ended() && is_notified).then_some(())
    })
    .await;
    sent
}

async fn inject(kind: &str, point: &str, action: FaultAction) -> bool {
    let plan = Arc::new(FaultPlan::once_at(kind, point, 0, action));
    let mut parts = parts(&plan);
    parts.limits.stuck_ms_max = 150;
    let world = parts.start().await;
    let sent = story(&world).await;
    let context = format!("{action:?} in {kind} at {point}");
    let log = world.log(sent.conversation).await;
    check_log(&log);
    let of = |body: &EventBody| {
        if let EventBody::Received(inbound) = body { inbound.source.clone() } else { String::new() }
    };
    let sources: Vec<String> = log.iter().map(|e| of(&e.body)).filter(|source| !source.is_empty()).collect();
    assert_eq!(sources, ["test", "dead_letter", "operation"], "{context}");
    let user_notifications = world.kernel.notifications(&ann(), 0, 100).await.expect("readable");
    let mut tasks: Vec<_> = user_notifications.iter().flat_map(|n| n.tasks.clone()).collect();
    tasks.sort();
    let count = tasks.len();
    tasks.dedup();
    assert_eq!((tasks.len(), count), (3, 3), "{context}: each end is notified once: {user_notifications:#?}");
    world.kernel.stop().await;
    !plan.injected().is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_worker_that_dies_at_any_step_loses_and_duplicates_nothing() {
    for action in [FaultAction::Panic, FaultAction::Kill, FaultAction::Hang] {
        for kind in ["dead_letters", "notifier", "expiry"] {
            for point in
                ["before:New", "after:New", "before:Clock", "after:Clock", "before:PassEnded", "after:PassEnded"]
            {
                assert!(inject(kind, point, action).await, "{kind} never passes {point}");
            }
        }
    }
}
