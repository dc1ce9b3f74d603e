//! Faults are injected into every kind of actor at every step of a turn: one fault per run, at each fault point that an
//! undisturbed turn passes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use annie_core::{event::EventBody, faults::TASKS, hooks::OnFailure, ports::FaultAction};
use annie_testkit::{faults::FaultPlan, hooks::FakeHook, scripted_model::ScriptedModel};

use crate::world::{PATIENCE, World, WorldParts, ann, check_log, eventually, two_agents};

/// These actors run at their own times, not within a turn. `background_workers`, `deliveries` and `ownership` inject faults
/// into them.
const BACKGROUND_WORKERS: [&str; 10] = [
    "dead_letters",
    "notifier",
    "expiry",
    "schedules",
    "reminders",
    "channel",
    "node_lease",
    "ownership",
    "backend",
    "backends",
];

/// When a handler counts as stuck, in milliseconds: early, so that a hang is noticed.
const STUCK_MS: u64 = 150;

/// The last steps of the start of the tree. On a busy machine they come after the kernel is ready, and so beside the turn.
const START: [(&str, &str); 6] = [
    ("breakers", "after:LeftOpen"),
    ("conversations", "after:Opened"),
    ("conversations", "ready"),
    ("scheduler", "after:BackendChecked"),
    ("scheduler", "after:TableRead"),
    ("services", "ready"),
];

async fn start_with(plan: &Arc<FaultPlan>, stuck_ms_max: u64) -> (World, WorldParts) {
    plan.disarm();
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|r, _| Ok(two_agents(r))))).faults(plan.clone());
    parts.limits.stuck_ms_max = stuck_ms_max;
    // The calls of both agents wait for a hook.
    let hook = FakeHook::continuing().before_skill("guard", "test.*", OnFailure::Refuse);
    parts.hooks.outside.push(hook);
    let world = parts.start().await;
    let is_over = || START.iter().all(|(kind, point)| plan.has_passed(kind, point));
    eventually("the start of the tree is over", async || is_over().then_some(())).await;
    plan.arm();
    (world, parts)
}

/// A front end reports a message that was not stored, or may not have been. Its client sends the message again with the
/// same id.
async fn send(world: &World) -> annie_actors::Submitted {
    let mut last = None;
    let sending = async {
        loop {
            let mut message = annie_actors::Submission::new(ann(), "test", "do both");
            message.client_id = Some("the-message".to_owned());
            message.conversation = Some(annie_core::ids::ConversationId::for_key(&ann(), "k"));
            match world.kernel.submit(message).await {
                Ok(sent) => break sent,
                Err(e) => last = Some(e),
            }
        }
    };
    match tokio::time::timeout(PATIENCE, sending).await {
        Ok(sent) => sent,
        Err(_) => panic!("never accepted: {last:?}\ncrashes {:#?}\n{:#?}", world.kernel.crashes(), world.kernel.tree()),
    }
}

async fn steps() -> Vec<(String, String, usize)> {
    let plan = Arc::new(FaultPlan::recording());
    // A large limit keeps this run undisturbed on a busy machine.
    let (world, _parts) = start_with(&plan, 60_000).await;
    let sent = send(&world).await;
    world.answer(&sent).await;
    let hits = plan.hits();
    world.kernel.stop().await;
    let mut seen = BTreeSet::new();
    for (kind, point) in hits.into_iter().filter(|(kind, _)| !BACKGROUND_WORKERS.contains(&kind.as_str())) {
        // The first and the second pass of each point: with two agents that is one pass each.
        let nth = (0..2).find(|n| !seen.contains(&(kind.clone(), point.clone(), *n)));
        seen.extend(nth.map(|n| (kind, point, n)));
    }
    seen.into_iter().collect()
}

/// How long after the answer a step may come and still count as part of its turn.
const LATE_MAX: Duration = Duration::from_millis(500);

async fn inject_everywhere(action: FaultAction) {
    let steps = steps().await;
    assert!(steps.len() > 30, "only {} steps: {steps:?}", steps.len());
    let kinds: BTreeSet<&str> = steps.iter().map(|(kind, ..)| kind.as_str()).collect();
    for kind in ["breaker", "breakers", "conversations", "engine", "hook", "log_writer", "scheduler", "sub_agent"] {
        assert!(kinds.contains(kind), "the turn passes no fault point of {kind}");
    }
    let mut injected = 0;
    let mut missed = Vec::new();
    // Tasks wait for nothing between their steps, so that they do not hang there: see `Faults::in_task`.
    let can_inject = |kind: &str| action != FaultAction::Hang || !TASKS.contains(&kind);
    let steps: Vec<_> = steps.into_iter().filter(|(kind, ..)| can_inject(kind)).collect();
    let all = steps.len();
    for (kind, point, nth) in steps {
        let plan = Arc::new(FaultPlan::once_at(&kind, &point, nth, action));
        let (world, parts) = start_with(&plan, STUCK_MS).await;
        let sent = send(&world).await;
        let last = world.final_of(sent.conversation, sent.task).await;
        let context = format!("{action:?} in {kind} at {point} ({nth}), injected {:?}", plan.injected());
        assert!(matches!(last, EventBody::Answered { .. }), "{context}: {last:?}");
        assert!(parts.skills.most("test.send") <= 1, "{context}: a once effect happened twice");
        // A step after the answer may not have run yet.
        let is_injected = eventually("the fault is injected", async || (!plan.injected().is_empty()).then_some(()));
        let _ = tokio::time::timeout(LATE_MAX, is_injected).await;
        injected += usize::from(!plan.injected().is_empty());
        if plan.injected().is_empty() {
            missed.push(format!("{kind} {point} {nth}"));
        }
        plan.disarm();
        let log = world.log(sent.conversation).await;
        check_log(&log);
        // The conversation continues.
        let next_message = world.say_in(sent.conversation, "again");
        let next = tokio::time::timeout(PATIENCE, next_message)
            .await
            .unwrap_or_else(|_| panic!("{context}: the next message was never accepted"));
        world.answer(&next).await;
        eventually("the tree is whole again", async || world.kernel.health().await.ready.then_some(())).await;
        tokio::time::timeout(PATIENCE, world.kernel.stop())
            .await
            .unwrap_or_else(|_| panic!("{context}: does not stop; tree {:#?}", world.kernel.tree()));
    }
    // Agents run in parallel, so with another interleaving a second pass of a point may not occur.
    assert!(injected * 10 >= all * 9, "only {injected} of {all} faults injected, not at {missed:#?}");
    println!("{action:?} injected at {injected} of {all} steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actor_panic_at_any_step_loses_and_duplicates_nothing() {
    inject_everywhere(FaultAction::Panic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actor_kill_at_any_step_loses_and_duplicates_nothing() {
    inject_everywhere(FaultAction::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actor_hang_at_any_step_is_noticed_and_loses_nothing() {
    inject_everywhere(FaultAction::Hang).await;
}
