//! Every kind of actor is struck at every step of a turn: once per run, at each fault point that the undisturbed turn passes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use annie_core::{event::EventBody, ports::FaultAction};
use annie_testkit::{faults::FaultPlan, scripted_model::ScriptedModel};

use crate::{
    flow::kernel::two_agents,
    world::{PATIENCE, World, WorldParts, ann, check_log, eventually},
};

/// They look around when they like, and not within a turn: `keepers` strikes them.
const KEEPERS: [&str; 6] = ["letters", "notifier", "expiry", "node_lease", "backend", "backends"];

/// Tasks between whose steps nothing waits: what they wait for hangs by its own port, see [`annie_core::ports::Faults::in_task`].
const TASKS: [&str; 4] = ["commit", "round", "run", "delivery"];

/// When a handler counts as stuck, in milliseconds: soon, so that a hang is noticed.
const STUCK_MS: u64 = 150;

async fn start_with(plan: &Arc<FaultPlan>, stuck_ms_max: u64) -> (World, WorldParts) {
    plan.disarm();
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|r, _| Ok(two_agents(r))))).faults(plan.clone());
    parts.limits.stuck_ms_max = stuck_ms_max;
    let world = parts.start().await;
    plan.arm();
    (world, parts)
}

/// A door whose message was not taken, or may not have been, says so; its client sends it again with the same id.
async fn send(world: &World) -> annie_actors::Submitted {
    let mut last = None;
    let sending = async {
        loop {
            let mut message = annie_actors::Submission::new(ann(), "test", "do both");
            message.client_id = Some("the-message".to_owned());
            message.conversation = Some(annie_core::ids::ConversationId::for_key(&ann(), "k"));
            match world.kernel.submit(message).await {
                Ok(said) => break said,
                Err(e) => last = Some(e),
            }
        }
    };
    match tokio::time::timeout(PATIENCE, sending).await {
        Ok(said) => said,
        Err(_) => panic!("never taken: {last:?}\ncrashes {:#?}\n{:#?}", world.kernel.crashes(), world.kernel.tree()),
    }
}

async fn steps() -> Vec<(String, String, usize)> {
    let plan = Arc::new(FaultPlan::recording());
    // Undisturbed also on a machine that is busy with something else.
    let (world, _parts) = start_with(&plan, 60_000).await;
    let said = send(&world).await;
    world.answer(&said).await;
    let hits = plan.hits();
    world.kernel.stop().await;
    let mut seen = BTreeSet::new();
    for (kind, point) in hits.into_iter().filter(|(kind, _)| !KEEPERS.contains(&kind.as_str())) {
        // The first and the second passing of each point: with two agents that is one of each.
        let nth = (0..2).find(|n| !seen.contains(&(kind.clone(), point.clone(), *n)));
        seen.extend(nth.map(|n| (kind, point, n)));
    }
    seen.into_iter().collect()
}

/// How long a step may come behind the answer and still count as one of its turn.
const LATE_MAX: Duration = Duration::from_millis(500);

async fn strike_everywhere(action: FaultAction) {
    let steps = steps().await;
    assert!(steps.len() > 30, "only {} steps: {steps:?}", steps.len());
    let kinds: BTreeSet<&str> = steps.iter().map(|(kind, ..)| kind.as_str()).collect();
    for kind in ["breaker", "breakers", "conversations", "engine", "log_writer", "scheduler", "sub_agent"] {
        assert!(kinds.contains(kind), "the turn passes no fault point of {kind}");
    }
    let mut struck = 0;
    let mut missed = Vec::new();
    let can_strike = |kind: &str| action != FaultAction::Hang || !TASKS.contains(&kind);
    let steps: Vec<_> = steps.into_iter().filter(|(kind, ..)| can_strike(kind)).collect();
    let all = steps.len();
    for (kind, point, nth) in steps {
        let plan = Arc::new(FaultPlan::once_at(&kind, &point, nth, action));
        let (world, parts) = start_with(&plan, STUCK_MS).await;
        let said = send(&world).await;
        let last = world.final_of(said.conversation, said.task).await;
        let place = format!("{action:?} in {kind} at {point} ({nth}), struck {:?}", plan.struck());
        assert!(matches!(last, EventBody::Answered { .. }), "{place}: {last:?}");
        assert!(parts.skills.most("test.send") <= 1, "{place}: a once effect happened twice");
        // A step beside the start of the tree or behind the answer may still be on its way.
        let is_struck = eventually("it is struck", async || (!plan.struck().is_empty()).then_some(()));
        let _ = tokio::time::timeout(LATE_MAX, is_struck).await;
        struck += usize::from(!plan.struck().is_empty());
        if plan.struck().is_empty() {
            missed.push(format!("{kind} {point} {nth}"));
        }
        plan.disarm();
        let log = world.log(said.conversation).await;
        check_log(&log);
        // The conversation goes on.
        let said_again = world.say_in(said.conversation, "again");
        let next = tokio::time::timeout(PATIENCE, said_again)
            .await
            .unwrap_or_else(|_| panic!("{place}: the next message was never taken"));
        world.answer(&next).await;
        eventually("the tree is whole again", async || world.kernel.health().await.ready.then_some(())).await;
        tokio::time::timeout(PATIENCE, world.kernel.stop())
            .await
            .unwrap_or_else(|_| panic!("{place}: does not stop; tree {:#?}", world.kernel.tree()));
    }
    // Agents run side by side, so a second passing of a point may fall away in another order of things.
    assert!(struck * 10 >= all * 9, "only {struck} of {all} faults struck, not at {missed:#?}");
    println!("{action:?} struck at {struck} of {all} steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_any_actor_at_any_step_loses_nothing_and_doubles_nothing() {
    strike_everywhere(FaultAction::Panic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_of_any_actor_at_any_step_loses_nothing_and_doubles_nothing() {
    strike_everywhere(FaultAction::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hang_of_any_actor_at_any_step_is_noticed_and_loses_nothing() {
    strike_everywhere(FaultAction::Hang).await;
}
