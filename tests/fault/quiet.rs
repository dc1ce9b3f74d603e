//! Conversations that leave memory, and what comes for them just then.

use annie_actors::Control;
use annie_core::event::{EventBody, Priority, Scope};

use crate::{
    flow::scheduling::{one_slot, rounds_begun, say, user},
    world::{PATIENCE, World, come_back_after, eventually},
};

/// After which a conversation leaves memory, in milliseconds.
const QUIET_MS: u64 = 50;

async fn control(world: &World, task: annie_core::ids::TaskId, what: Control) {
    assert_eq!(world.kernel.control(Scope::Operator, task, what, "a test").await, Ok(true));
}

async fn is_answered(world: &World, said: &annie_actors::Submitted) {
    eventually("it is answered", async || {
        let row = world.kernel.task(Scope::User(user("ann")), said.task).await.ok()?;
        row.state.is_ended().then_some(())
    })
    .await;
    let log = world.log(said.conversation).await;
    assert!(log.iter().any(|e| matches!(e.body, EventBody::Answered { .. })), "{log:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_on_that_is_let_go_on_as_its_conversation_leaves_memory() {
    let (mut parts, order, gate) = one_slot();
    parts.limits.hibernate_ms = QUIET_MS;
    let world = parts.start().await;
    let said = say(&world, "ann", "work 2", Priority::Normal).await;
    rounds_begun(&order, 1).await;
    control(&world, said.task, Control::Suspend).await;
    gate.add_permits(1);
    for _ in 0..20 {
        // Both happen at the same instant: its quiet time is over, and it is to go on.
        control(&world, said.task, Control::Suspend).await;
        come_back_after(QUIET_MS).await;
        control(&world, said.task, Control::Continue).await;
        let begun = tokio::time::timeout(PATIENCE, rounds_begun(&order, 2)).await;
        assert!(begun.is_ok(), "it was left lying: {:#?}", world.kinds(said.conversation).await);
    }
    gate.add_permits(1);
    is_answered(&world, &said).await;
}

#[tokio::test(start_paused = true)]
async fn a_round_under_way_ends_as_it_would_though_its_task_is_held_back_for_longer_than_a_quiet_time() {
    let (mut parts, order, gate) = one_slot();
    parts.limits.hibernate_ms = QUIET_MS;
    let world = parts.start().await;
    let said = say(&world, "ann", "work", Priority::Normal).await;
    rounds_begun(&order, 1).await;
    control(&world, said.task, Control::Suspend).await;
    come_back_after(QUIET_MS * 4).await;
    gate.add_permits(1);
    is_answered(&world, &said).await;
    assert_eq!(order.lock().expect("not poisoned").len(), 1, "it was asked once");
}
