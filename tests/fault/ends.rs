//! A task that waits for another task is notified of its end, even if actors die before they can notify it.

use std::sync::Arc;

use annie_actors::{Submission, Submitted};
use annie_core::{ids::TaskId, message::Message, ports::FaultAction};
use annie_testkit::{faults::FaultPlan, scripted_model::says};

use crate::world::{World, WorldParts, ann, check_log, eventually, kill};

async fn say_after(world: &World, text: &str, after: Vec<TaskId>) -> Submitted {
    let mut message = Submission::new(ann(), "test", text);
    message.after = after;
    world.kernel.submit(message).await.expect("accepted")
}

/// Two conversations. The second task waits for the first. `inject` runs once the end of the first task is stored.
async fn story(plan: Arc<FaultPlan>, inject: impl AsyncFn(&World)) {
    plan.disarm();
    let armed = plan.clone();
    let parts = WorldParts::new(move |request, _| {
        match request.messages.last() {
            Some(Message::User { text, .. }) if text == "first" => armed.arm(),
            _ => {}
        }
        Ok(says("done"))
    });
    let world = parts.faults(plan.clone()).start().await;
    // While the voice gate is held, new tasks wait.
    world.kernel.hold_gate("", "the microphone", 60_000).await.expect("free");
    let first = say_after(&world, "first", Vec::new()).await;
    let second = say_after(&world, "second", vec![first.task]).await;
    world.kernel.release_gate("", "the microphone").await.expect("answered");
    eventually("the end is stored and the fault is injected", async || (!plan.injected().is_empty()).then_some(()))
        .await;
    plan.disarm();
    inject(&world).await;
    assert_eq!(world.answer(&second).await, "done");
    assert_eq!(world.answer(&first).await, "done");
    for sent in [first, second] {
        check_log(&world.log(sent.conversation).await);
    }
    world.kernel.stop().await;
}

/// The next incarnation of Conversations scans for open conversations only, and this conversation is not open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduler_learns_of_a_task_end_although_its_engine_and_all_conversations_die() {
    let plan = Arc::new(FaultPlan::once_at("engine", "stored", 0, FaultAction::Hang));
    story(plan, async |world| kill(world, "/conversations").await).await;
}

/// The scheduler reads from the table the ends that the log writer stored without notifying it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduler_learns_of_a_task_end_although_log_writer_and_all_conversations_die() {
    let plan = Arc::new(FaultPlan::once_at("commit", "after", 0, FaultAction::Slow { wait_ms: 600_000 }));
    story(plan, async |world| {
        kill(world, "/conversations").await;
        kill(world, "/infra/log").await;
    })
    .await;
}
