//! Conversations that are passivated, and requests that arrive for them at that moment.

use annie_actors::Control;
use annie_core::event::{EventBody, Priority, Scope};

use crate::{
    flow::scheduling::{one_slot, rounds_begun, say, user},
    world::{PATIENCE, World, eventually, sleep_for_ms},
};

/// Idle time after which a conversation is passivated, in milliseconds.
const QUIET_MS: u64 = 50;

async fn control(world: &World, task: annie_core::ids::TaskId, what: Control) {
    assert_eq!(world.kernel.control(Scope::Operator, task, what, "a test").await, Ok(true));
}

async fn is_answered(world: &World, sent: &annie_actors::Submitted) {
    eventually("the message is answered", async || {
        let row = world.kernel.task(Scope::User(user("ann")), sent.task).await.ok()?;
        row.state.is_ended().then_some(())
    })
    .await;
    let log = world.log(sent.conversation).await;
    assert!(log.iter().any(|e| matches!(e.body, EventBody::Answered { .. })), "{log:#?}");
}

#[tokio::test(start_paused = true)]
async fn task_resumed_while_its_conversation_is_passivated_continues() {
    let (mut parts, order, gate) = one_slot();
    parts.limits.passivate_after_ms = QUIET_MS;
    let world = parts.start().await;
    let sent = say(&world, "ann", "work 2", Priority::Normal).await;
    rounds_begun(&order, 1).await;
    control(&world, sent.task, Control::Suspend).await;
    gate.add_permits(1);
    for _ in 0..20 {
        // Both happen at the same instant: the idle time is over, and the task is resumed.
        control(&world, sent.task, Control::Suspend).await;
        sleep_for_ms(QUIET_MS).await;
        control(&world, sent.task, Control::Continue).await;
        let begun = tokio::time::timeout(PATIENCE, rounds_begun(&order, 2)).await;
        assert!(begun.is_ok(), "the task was not resumed: {:#?}", world.kinds(sent.conversation).await);
    }
    gate.add_permits(1);
    is_answered(&world, &sent).await;
}

#[tokio::test(start_paused = true)]
async fn round_under_way_completes_although_its_task_is_suspended_longer_than_the_idle_time() {
    let (mut parts, order, gate) = one_slot();
    parts.limits.passivate_after_ms = QUIET_MS;
    let world = parts.start().await;
    let sent = say(&world, "ann", "work", Priority::Normal).await;
    rounds_begun(&order, 1).await;
    control(&world, sent.task, Control::Suspend).await;
    sleep_for_ms(QUIET_MS * 4).await;
    gate.add_permits(1);
    is_answered(&world, &sent).await;
    assert_eq!(order.lock().expect("not poisoned").len(), 1, "the model was called once");
}
