//! The worker of the reminders, and its process, die at each step of a reminder. The user is notified exactly once, also if two
//! processes send the reminder.

use std::sync::Arc;

use annie_core::ports::{Env, FaultAction};
use annie_core::{ids::ConversationId, reminder::RemindedTodo};
use annie_store::MemoryStore;
use annie_testkit::{env::SeededEntropy, faults::FaultPlan};

use crate::{
    flow::{
        reminders::{MINUTE_MS, parts, run, sent, wake},
        schedules::notified,
    },
    world::{World, ann, eventually, node, sleep_for_ms},
};

/// The named steps of a reminder.
const STEPS: [&str; 2] = ["claimed", "sent"];

async fn set(world: &World) -> RemindedTodo {
    run(world, "tasks.remind --title Stretch --when \"in 10 minutes\"", "a").await;
    world.kernel.reminders(&ann()).await.expect("readable").remove(0)
}

/// Waits until the reminder has ended, and checks that it was sent once.
async fn sent_once(world: &World, conversation: ConversationId, context: &str) {
    eventually(&format!("the reminder has ended: {context}"), async || {
        world.kernel.reminders(&ann()).await.ok()?.is_empty().then_some(())
    })
    .await;
    let all = notified(world, 1).await;
    assert_eq!(all.len(), 1, "{context}: {all:?}");
    assert_eq!(sent(world, conversation).await.len(), 1, "{context}");
}

async fn dies_at(kind: &str, point: &str, action: FaultAction) {
    let context = format!("{action:?} in {kind} at {point}");
    let plan = Arc::new(FaultPlan::once_at(kind, point, 0, action));
    plan.disarm();
    let (parts, clock) = parts();
    let world = parts.faults(plan.clone()).start().await;
    let todo = set(&world).await;
    plan.arm();
    clock.set_by_ms(11 * MINUTE_MS);
    wake(&world).await;
    sent_once(&world, todo.reminder.conversation, &context).await;
    eventually(&format!("injected: {context}"), async || (!plan.injected().is_empty()).then_some(())).await;
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminder_worker_that_dies_at_any_step_notifies_once() {
    for point in STEPS {
        for action in [FaultAction::Panic, FaultAction::Fail] {
            dies_at("reminder", point, action).await;
        }
    }
    for point in ["before:New", "after:New", "before:PassEnded", "after:PassEnded"] {
        for action in [FaultAction::Panic, FaultAction::Kill] {
            dies_at("reminders", point, action).await;
        }
    }
}

#[tokio::test]
async fn process_that_dies_at_any_step_of_a_reminder_notifies_once() {
    for point in STEPS {
        let plan = Arc::new(FaultPlan::by(move |kind, at, _| match (kind, at) {
            ("reminder", at) if at == point => FaultAction::Fail,
            _ => FaultAction::Pass,
        }));
        let (parts, clock) = parts();
        let mut parts = parts.faults(plan.clone());
        let world = parts.start().await;
        let todo = set(&world).await;
        clock.set_by_ms(11 * MINUTE_MS);
        wake(&world).await;
        eventually("the step is reached", async || (!plan.injected().is_empty()).then_some(())).await;
        world.kernel.crash().await;
        parts.env.faults = None;
        // Minutes later the text is the one that was claimed, although the reminder would be late now.
        clock.set_by_ms(5 * MINUTE_MS);
        let world = parts.start().await;
        sent_once(&world, todo.reminder.conversation, point).await;
        let text = sent(&world, todo.reminder.conversation).await.remove(0).1;
        assert!(text.starts_with("Reminder: Stretch") && !text.contains("late"), "{point}: {text}");
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn reminder_of_two_processes_notifies_once() {
    let (mut first, clock) = parts();
    let (mut second, _) = parts();
    let store = MemoryStore::new();
    second.env = Env { entropy: Arc::new(SeededEntropy::new(8)), ..first.env.clone() };
    second.node = node(8);
    for parts in [&mut first, &mut second] {
        parts.store = Arc::new(store.with_wakes(Arc::new(|| Box::pin(sleep_for_ms(50)))));
    }
    let worlds: [World; 2] = [first.start().await, second.start().await];
    let todo = set(&worlds[0]).await;
    clock.set_by_ms(11 * MINUTE_MS);
    tokio::join!(wake(&worlds[0]), wake(&worlds[1]));
    for world in &worlds {
        sent_once(world, todo.reminder.conversation, "two processes").await;
    }
    tokio::join!(wake(&worlds[0]), wake(&worlds[1]));
    sent_once(&worlds[1], todo.reminder.conversation, "a further pass of both").await;
    for world in worlds {
        world.kernel.stop().await;
    }
}
