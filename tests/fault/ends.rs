//! Who waits for a task hears of its end, whoever dies before he could tell of it.

use std::sync::Arc;

use annie_actors::{Submission, Submitted};
use annie_core::{ids::TaskId, message::Message, ports::FaultAction};
use annie_testkit::{faults::FaultPlan, scripted_model::says};

use crate::world::{World, WorldParts, ann, check_log, eventually, kill};

async fn say_after(world: &World, text: &str, after: Vec<TaskId>) -> Submitted {
    let mut message = Submission::new(ann(), "test", text);
    message.after = after;
    world.kernel.submit(message).await.expect("taken")
}

/// Two conversations; the second task waits for the first, whose end is stored when `strike` falls.
async fn story(plan: Arc<FaultPlan>, strike: impl AsyncFn(&World)) {
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
    // While somebody speaks, what comes waits.
    world.kernel.hold_gate("", "the microphone", 60_000).await.expect("free");
    let first = say_after(&world, "first", Vec::new()).await;
    let second = say_after(&world, "second", vec![first.task]).await;
    world.kernel.release_gate("", "the microphone").await.expect("answered");
    eventually("the end is stored and somebody is struck", async || (!plan.struck().is_empty()).then_some(())).await;
    plan.disarm();
    strike(&world).await;
    assert_eq!(world.answer(&second).await, "done");
    assert_eq!(world.answer(&first).await, "done");
    for said in [first, second] {
        check_log(&world.log(said.conversation).await);
    }
    world.kernel.stop().await;
}

/// The next life of Conversations looks for open conversations only, and this one is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_task_is_heard_of_if_its_engine_and_all_conversations_die_with_it() {
    let plan = Arc::new(FaultPlan::once_at("engine", "stored", 0, FaultAction::Hang));
    story(plan, async |world| kill(world, "/conversations").await).await;
}

/// What the log writer stored and did not tell, the scheduler reads in the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_task_is_heard_of_if_the_log_writer_dies_over_it_with_all_conversations() {
    let plan = Arc::new(FaultPlan::once_at("commit", "after", 0, FaultAction::Slow { wait_ms: 600_000 }));
    story(plan, async |world| {
        kill(world, "/conversations").await;
        kill(world, "/infra/log").await;
    })
    .await;
}
