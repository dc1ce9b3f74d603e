//! Invariants that no single step of a turn shows: announced events are stored, other conversations are unaffected,
//! children end with their parents, one slot serves many agents.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::{KernelError, Operation, StreamItem};
use annie_core::{
    event::{EventBody, Scope},
    ids::Seq,
    ports::StoreErrorKind,
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, says},
};

use crate::world::{WorldParts, ann, check_log, eventually, last_text, two_agents};

#[tokio::test]
async fn scheduler_serves_an_orchestrator_and_its_agents_with_one_slot() {
    let mut parts = WorldParts::new(|request, _| Ok(two_agents(request)));
    parts.slots = 1;
    let world = parts.start().await;
    let sent = world.say("do both").await;
    world.answer(&sent).await;
    let queue = world.kernel.queue().await.expect("answered");
    assert_eq!(queue["running"].as_array().map(Vec::len), Some(0), "every permit came back: {queue}");
}

/// A listener receives events while the store refuses every third commit. Each received event is in the log.
#[tokio::test]
async fn listener_receives_no_event_before_it_is_stored() {
    let commits = AtomicU64::new(0);
    let data = MemoryStore::new();
    let mut parts = WorldParts::new(|request, _| Ok(two_agents(request)));
    parts.store = Arc::new(data.with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(_) if commits.fetch_add(1, Relaxed) % 3 == 2 => StoreFault::Fail(StoreErrorKind::Full),
        _ => StoreFault::Pass,
    })));
    parts.limits.turn.crashes_max = 100;
    let world = parts.start().await;
    let sent = world.say("do both").await;
    let mut follow = world.kernel.follow(Scope::User(ann()), sent.conversation, Seq(0)).await.expect("followed");
    let mut received = Vec::new();
    let ended = tokio::time::timeout(crate::world::PATIENCE, async {
        while let Ok(Some(item)) = follow.next().await {
            if let StreamItem::Event(event) = item {
                let stored =
                    annie_core::ports::Log::events(&data, Scope::Operator, sent.conversation, Seq(0), 500).await;
                assert!(stored.expect("readable").contains(&event), "announced and not stored: {event:?}");
                received.push(event.seq);
                if event.body.is_final() {
                    return;
                }
            }
        }
    });
    ended.await.expect("the turn ends with some final event");
    assert_eq!(received, (1..=received.len() as u64).map(Seq).collect::<Vec<_>>());
}

/// The Engine of one conversation dies at every attempt, and that conversation is quarantined. Another conversation keeps
/// its Engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_whose_engine_keeps_dying_is_quarantined_and_others_are_unaffected() {
    // An Engine that activates with an open turn panics. Once the plan is armed, these are the Engines of the sick
    // conversation.
    let plan = Arc::new(FaultPlan::of(["actor panic --at engine --point folded"]));
    plan.disarm();
    let parts = WorldParts::new(|request, _| Ok(says(format!("re: {}", last_text(request))))).faults(plan.clone());
    let world = parts.start().await;
    let well = world.say("well").await;
    world.answer(&well).await;
    let path = format!("/conversations/engine:{}", well.conversation);
    let before = world.kernel.view(&path).await.expect("the actor is alive").0.incarnation;
    plan.arm();
    let sick = world.say("sick").await;
    let end = world.final_of(sick.conversation, sick.task).await;
    assert!(matches!(&end, EventBody::Failed { code, .. } if code == "conversation_quarantined"), "{end:?}");
    plan.disarm();
    let again = world.say_in(well.conversation, "still well").await;
    world.answer(&again).await;
    assert_eq!(
        world.kernel.view(&path).await.expect("the actor is alive").0.incarnation,
        before,
        "the same incarnation"
    );
    check_log(&world.log(sick.conversation).await);
    // A quarantined conversation fails visibly until an operator resumes it.
    let refused = world.say_in(sick.conversation, "hello?").await;
    assert!(matches!(world.final_of(sick.conversation, refused.task).await, EventBody::Failed { .. }));
    world.kernel.resume_conversation(sick.conversation).await.expect("the conversation is quarantined");
    let resumed = world.say_in(sick.conversation, "and now").await;
    assert!(world.answer(&resumed).await.starts_with("re: "));
}

/// The sub-agents hang in their rounds when their Engine is killed. Within five seconds nothing of the former incarnation
/// is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_kill_ends_its_sub_agents_and_their_rounds() {
    let model = Arc::new(
        ScriptedModel::new(|request, _| Ok(two_agents(request))).hanging_when(|request, _| request.tools.is_empty()),
    );
    let world = WorldParts::with_model(model.clone()).start().await;
    let sent = world.say("do both").await;
    model.called(3).await;
    let agents = || world.kernel.tree().into_iter().filter(|n| n.kind == "sub_agent").collect::<Vec<_>>();
    eventually("both agents run", async || (agents().len() == 2).then_some(())).await;
    let former: Vec<_> = agents().into_iter().map(|n| n.incarnation).collect();
    let path = format!("/conversations/engine:{}", sent.conversation);
    world.kernel.operate(&path, None, Operation::Kill, "test").await.expect("the actor is alive");
    let gone = async {
        model.abandoned(2).await;
        eventually("the former agents are gone", async || {
            agents().iter().all(|n| !former.contains(&n.incarnation)).then_some(())
        })
        .await;
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.expect("within five seconds");
    // The next incarnation runs both agents again.
    model.called(5).await;
    world.kernel.crash().await;
    let all_gone = async {
        eventually("no round is left", async || (model.abandoned_count() >= 4).then_some(())).await;
    };
    tokio::time::timeout(Duration::from_secs(5), all_gone).await.expect("within five seconds");
}

/// A message that keeps killing its Engine fails, and the conversation continues with the next message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_keeps_killing_its_engine_fails_and_the_next_one_is_answered() {
    let plan = Arc::new(FaultPlan::of(["actor panic --at engine --point before:ModelReplied"]));
    let parts = WorldParts::new(|_, _| Ok(says("fine"))).faults(plan.clone());
    let world = parts.start().await;
    let poison = world.say("poison").await;
    let end = world.final_of(poison.conversation, poison.task).await;
    assert!(matches!(&end, EventBody::Failed { code, .. } if code == "engine_crashed"), "{end:?}");
    plan.disarm();
    let next = world.say_in(poison.conversation, "next").await;
    assert_eq!(world.answer(&next).await, "fine");
    check_log(&world.log(poison.conversation).await);
}

#[tokio::test]
async fn kernel_that_is_shutting_down_refuses_messages_as_not_ready() {
    let world = WorldParts::new(|_, _| Ok(says("fine"))).start().await;
    world.kernel.drain();
    let refused = world.kernel.submit(annie_actors::Submission::new(ann(), "test", "hello")).await;
    assert!(matches!(refused, Err(KernelError::NotReady(_))), "{refused:?}");
}

/// A conversation or task of another user is not found by any read or operation.
#[tokio::test]
async fn conversation_and_task_of_another_user_are_not_found() {
    let world = WorldParts::new(|_, _| Ok(says("fine"))).start().await;
    let sent = world.say("mine").await;
    world.answer(&sent).await;
    let eve = annie_core::ids::UserId::new("eve").expect("a user id");
    let scope = || Scope::User(eve.clone());
    let kernel = &world.kernel;
    assert!(matches!(kernel.conversation(scope(), sent.conversation).await, Err(KernelError::NotFound(_))));
    assert!(matches!(kernel.events(scope(), sent.conversation, Seq(0), 9).await, Err(KernelError::NotFound(_))));
    assert!(matches!(kernel.follow(scope(), sent.conversation, Seq(0)).await.err(), Some(KernelError::NotFound(_))));
    assert!(matches!(kernel.task(scope(), sent.task).await, Err(KernelError::NotFound(_))));
    assert!(matches!(kernel.cancel(scope(), sent.task, "eve").await, Err(KernelError::NotFound(_))));
    let intruding = annie_actors::Submission::new(eve, "test", "let me in").within(sent.conversation);
    assert!(matches!(kernel.submit(intruding).await, Err(KernelError::NotFound(_))));
    check_log(&world.log(sent.conversation).await);
}
