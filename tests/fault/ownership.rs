//! Faults of the ownership actor, which finds the messages whose wake was lost.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use annie_actors::Submission;
use annie_core::{event::EventBody, ids::ConversationId, ports::FaultAction};
use annie_testkit::{faults::FaultPlan, scripted_model::says};

use crate::world::{WorldParts, ann, check_log, eventually};

/// The log writer dies between the commit of a message and its wake. The ownership actor dies as well, at a step of the scan
/// that finds the message.
async fn lose_a_wake(point: &'static str, action: FaultAction) {
    let (is_wake_lost, is_injected) = (AtomicBool::new(false), AtomicBool::new(false));
    let plan = Arc::new(FaultPlan::by(move |kind, at, _| match (kind, at) {
        ("commit", "after") if !is_wake_lost.swap(true, Relaxed) => FaultAction::Panic,
        ("ownership", at) if at == point && !is_injected.swap(true, Relaxed) => action,
        _ => FaultAction::Pass,
    }));
    plan.disarm();
    let mut parts = WorldParts::new(|_, _| Ok(says("here"))).faults(plan.clone());
    parts.limits.stuck_ms_max = 150;
    let world = parts.start().await;
    eventually("the first scan is over", async || {
        let (_, view) = world.kernel.view("/conversations").await.ok()?;
        (view?["booted"] == true).then_some(())
    })
    .await;
    plan.arm();
    let conversation = ConversationId::for_key(&ann(), "k");
    let mut message = Submission::new(ann(), "test", "hello");
    message.conversation = Some(conversation);
    // The front end gets an error, and this client does not send the message again.
    let refused = world.kernel.submit(message).await.expect_err("the log writer dies");
    let context = format!("{action:?} at {point}, after {refused}: injected {:?}", plan.injected());
    let answer = eventually("the message is answered", async || {
        let log = world.log(conversation).await;
        log.iter().any(|event| matches!(event.body, EventBody::Answered { .. })).then_some(log)
    });
    check_log(&answer.await);
    assert_eq!(plan.injected().len(), 2, "{context}, then {:?}", plan.injected());
    eventually("the tree is whole again", async || world.kernel.health().await.ready.then_some(())).await;
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ownership_actor_that_dies_at_any_step_finds_the_message_whose_wake_was_lost() {
    for action in [FaultAction::Panic, FaultAction::Kill, FaultAction::Hang] {
        for point in ["before:Rescan", "after:Rescan", "before:Scanned", "after:Scanned"] {
            lose_a_wake(point, action).await;
        }
    }
}
