//! The worker of the schedules, and its process, die at each step of an occurrence. Its message is submitted exactly once,
//! also if two processes submit it.

use std::sync::Arc;

use annie_core::ports::{Env, FaultAction};
use annie_store::MemoryStore;
use annie_testkit::{env::SeededEntropy, faults::FaultPlan};

use crate::{
    flow::schedules::{HOUR_MS, created, notified, parts, submitted, until, wake},
    world::{World, ann, eventually, node, sleep_for_ms},
};

/// The named steps of an occurrence.
const STEPS: [&str; 2] = ["claimed", "submitted"];

async fn dies_at(kind: &str, point: &str, action: FaultAction) {
    let context = format!("{action:?} in {kind} at {point}");
    let plan = Arc::new(FaultPlan::once_at(kind, point, 0, action));
    plan.disarm();
    let (parts, clock) = parts();
    let world = parts.faults(plan.clone()).start().await;
    let made = created(&world, "every hour").await.schedule;
    plan.arm();
    clock.set_by_ms(HOUR_MS);
    wake(&world).await;
    until(&world, &context, |schedule| schedule.runs == 1 && schedule.claimed.is_none()).await;
    eventually(&format!("injected: {context}"), async || (!plan.injected().is_empty()).then_some(())).await;
    assert_eq!(submitted(&world, made.conversation).await.len(), 1, "{context}");
    assert_eq!(notified(&world, 1).await.len(), 1, "{context}");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_worker_that_dies_at_any_step_submits_the_occurrence_once() {
    for point in STEPS {
        for action in [FaultAction::Panic, FaultAction::Fail] {
            dies_at("schedule", point, action).await;
        }
    }
    for point in ["before:New", "after:New", "before:Clock", "after:Clock", "before:PassEnded", "after:PassEnded"] {
        for action in [FaultAction::Panic, FaultAction::Kill] {
            dies_at("schedules", point, action).await;
        }
    }
}

#[tokio::test]
async fn process_that_dies_at_any_step_of_an_occurrence_submits_it_once() {
    for point in STEPS {
        let plan = Arc::new(FaultPlan::by(move |kind, at, _| match (kind, at) {
            ("schedule", at) if at == point => FaultAction::Fail,
            _ => FaultAction::Pass,
        }));
        let (parts, clock) = parts();
        let mut parts = parts.faults(plan.clone());
        let world = parts.start().await;
        let made = created(&world, "every hour").await.schedule;
        clock.set_by_ms(HOUR_MS);
        wake(&world).await;
        eventually("the step is reached", async || (!plan.injected().is_empty()).then_some(())).await;
        world.kernel.crash().await;
        parts.env.faults = None;
        let world = parts.start().await;
        let ran = until(&world, "the next process has run it", |schedule| schedule.runs == 1).await;
        assert_eq!(ran.last_at, made.due_at, "{point}");
        assert_eq!(submitted(&world, made.conversation).await, [made.message_id(made.due_at.expect("due"))], "{point}");
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn schedule_of_two_processes_submits_each_occurrence_once() {
    let (mut first, clock) = parts();
    let (mut second, _) = parts();
    let store = MemoryStore::new();
    second.env = Env { entropy: Arc::new(SeededEntropy::new(8)), ..first.env.clone() };
    second.node = node(8);
    for parts in [&mut first, &mut second] {
        parts.store = Arc::new(store.with_wakes(Arc::new(|| Box::pin(sleep_for_ms(50)))));
    }
    let worlds: [World; 2] = [first.start().await, second.start().await];
    let made = created(&worlds[0], "every hour").await.schedule;
    clock.set_by_ms(HOUR_MS);
    tokio::join!(wake(&worlds[0]), wake(&worlds[1]));
    for world in &worlds {
        let ran = until(world, "the schedule has run", |schedule| schedule.runs >= 1).await;
        assert_eq!((ran.runs, ran.skipped), (1, 0));
    }
    // A further pass of both finds nothing.
    tokio::join!(wake(&worlds[0]), wake(&worlds[1]));
    assert_eq!(submitted(&worlds[1], made.conversation).await, [made.message_id(made.due_at.expect("due"))]);
    let all = notified(&worlds[0], 1).await;
    assert_eq!(all.len(), 1, "{all:?} of {}", ann());
    for world in worlds {
        world.kernel.stop().await;
    }
}
