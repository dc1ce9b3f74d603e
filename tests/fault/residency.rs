//! Capacity in memory: which conversations are evicted, which stay active, and which are activated again.

use std::{sync::Arc, time::Duration};

use annie_actors::{Submission, Submitted};
use annie_core::{
    event::{EventBody, Inbound, NewEvent, Priority, Scope},
    ids::{AgentId, NodeIncarnation, TaskId},
    ports::{Append, Fence},
};
use annie_store::MemoryStore;
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, says},
};

use crate::world::{World, WorldParts, ann, check_log, eventually, last_text, node, sleep_for_ms};

#[tokio::test]
async fn conversation_waiting_for_capacity_is_activated_when_another_is_passivated() {
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    parts.limits.engines_max = 1;
    parts.limits.passivate_after_ms = 20;
    let world = parts.start().await;
    let all = [world.say("1").await, world.say("2").await, world.say("3").await];
    for sent in &all {
        assert_eq!(world.answer(sent).await, "here");
    }
    world.kernel.stop().await;
}

/// Parts with capacity for `engines_max` active conversations, and a model whose rounds take `round_ms` milliseconds.
fn with_capacity(engines_max: usize, round_ms: u64) -> (WorldParts, Arc<ScriptedModel>) {
    let model = ScriptedModel::new(|_, _| Ok(says("here"))).taking(Duration::from_millis(round_ms));
    let model = Arc::new(model);
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.engines_max = engines_max;
    let depths = &mut parts.limits.queue.depth_per_user;
    (depths.high_max, depths.normal_max) = (100, 100);
    (parts, model)
}

async fn conversations(world: &World) -> serde_json::Value {
    eventually("the actor shows its state", async || world.kernel.view("/conversations").await.ok()?.1).await
}

#[tokio::test(start_paused = true)]
async fn conversation_that_is_not_due_is_evicted_for_others_and_activated_when_due() {
    let (parts, model) = with_capacity(2, 10);
    let world = parts.start().await;
    let at = parts.env.now().plus_ms(30_000);
    let mut later = Vec::new();
    for n in 0..4 {
        let mut message = Submission::new(ann(), "test", format!("later {n}"));
        message.not_before = Some(at);
        later.push(world.kernel.submit(message).await.expect("the message is accepted"));
    }
    // Another way to wait: the end of this wait has no known time.
    let mut after = Submission::new(ann(), "test", "after that");
    after.after = vec![later[0].task];
    let after = world.kernel.submit(after).await.expect("the message is accepted");
    let mut urgent = Submission::new(ann(), "test", "now");
    urgent.priority = Some(Priority::High);
    let now = world.kernel.submit(urgent).await.expect("the message is accepted");
    assert_eq!(world.answer(&now).await, "here");
    assert!(parts.env.now() < at.plus_ms(-20_000), "the urgent message waited behind the deferred ones");
    let view = conversations(&world).await;
    assert!(view["passive"].as_u64() >= Some(3) && view["active"].as_u64() <= Some(2), "{view:#}");
    assert_eq!(model.call_count(), 1);
    for sent in later.iter().chain([&after]) {
        assert_eq!(world.answer(sent).await, "here");
        let log = world.log(sent.conversation).await;
        let begun = log.iter().find(|e| matches!(e.body, EventBody::TurnStarted { .. })).expect("the turn began");
        assert!(sent.task == after.task || begun.at >= at, "the turn began too early");
        check_log(&log);
    }
    assert!(parts.env.now() < at.plus_ms(10_000), "the conversations were not activated in time");
    assert_eq!(model.call_count(), 6, "no round was interrupted");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn message_activates_an_evicted_conversation() {
    let (parts, _) = with_capacity(1, 10);
    let world = parts.start().await;
    let mut message = Submission::new(ann(), "test", "later");
    message.not_before = Some(parts.env.now().plus_ms(3_600_000));
    let later = world.kernel.submit(message).await.expect("the message is accepted");
    world.answer(&world.say("now").await).await;
    assert_eq!(conversations(&world).await["passive"], 1);
    assert_eq!(world.answer(&world.say_in(later.conversation, "and there").await).await, "here");
    assert!(world.kernel.cancel(Scope::User(ann()), later.task, "ann").await.expect("it is there"));
    assert!(matches!(world.final_of(later.conversation, later.task).await, EventBody::Cancelled { .. }));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn eviction_request_is_repeated_after_the_engine_dies_on_it() {
    for kind in ["panic", "fail", "kill"] {
        let fault = format!("actor {kind} --at engine --point before:Evict --once");
        let plan = Arc::new(FaultPlan::of([fault.as_str()]));
        let (parts, _) = with_capacity(1, 10);
        let parts = parts.faults(plan.clone());
        let world = parts.start().await;
        let mut message = Submission::new(ann(), "test", "later");
        message.not_before = Some(parts.env.now().plus_ms(3_600_000));
        world.kernel.submit(message).await.expect("the message is accepted");
        assert_eq!(world.answer(&world.say("now").await).await, "here");
        assert_eq!(plan.injected().len(), 1);
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn task_chain_longer_than_the_capacity_completes_after_a_restart() {
    let store = MemoryStore::new();
    let start = async |seed, engines_max, hangs: bool| {
        let (mut parts, _) = with_capacity(engines_max, 10);
        parts.model = Arc::new(ScriptedModel::saying("here").hanging_when(move |_, _| hangs));
        (parts.store, parts.env) = (Arc::new(store.clone()), annie_testkit::env::env(seed));
        parts.start().await
    };
    let before = start(7, 100, true).await;
    let mut chain: Vec<Submitted> = Vec::new();
    for n in 0..5 {
        let mut message = Submission::new(ann(), "test", format!("link {n}"));
        message.after = chain.last().map(|last| last.task).into_iter().collect();
        chain.push(before.kernel.submit(message).await.expect("the message is accepted"));
    }
    before.kernel.crash().await;
    // The order of activation does not matter: at first the capacity goes to tasks that wait for others.
    let after = start(8, 2, false).await;
    for sent in &chain {
        assert_eq!(after.answer(sent).await, "here");
        check_log(&after.log(sent.conversation).await);
    }
    after.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn conversation_waiting_for_a_permit_is_evicted_and_no_round_begins_twice() {
    for acts in [false, true] {
        let (mut parts, model) = with_capacity(2, 8_000);
        (parts.slots, parts.acts) = (1, acts);
        let world = parts.start().await;
        let mut all = Vec::new();
        for n in 0..5 {
            all.push(say_as(&world, &n.to_string(), Priority::Normal).await);
        }
        eventually("a waiting conversation is evicted", async || {
            (conversations(&world).await["passive"].as_u64() >= Some(1)).then_some(())
        })
        .await;
        for sent in &all {
            assert_eq!(world.answer(sent).await, "here");
            check_log(&world.log(sent.conversation).await);
        }
        assert_eq!(model.call_count(), 5);
        world.kernel.stop().await;
    }
}

async fn say_as(world: &World, text: &str, priority: Priority) -> Submitted {
    let mut message = Submission::new(ann(), "test", text);
    message.priority = Some(priority);
    world.kernel.submit(message).await.expect("the message is accepted")
}

#[tokio::test(start_paused = true)]
async fn high_task_keeps_its_queue_position_although_others_wait_for_capacity() {
    let (mut parts, model) = with_capacity(2, 20_000);
    parts.slots = 1;
    let world = parts.start().await;
    let first = say_as(&world, "first", Priority::Normal).await;
    eventually("the first task runs", async || (model.call_count() == 1).then_some(())).await;
    let mine = say_as(&world, "mine", Priority::High).await;
    let last = say_as(&world, "last", Priority::Normal).await;
    for sent in [&first, &mine, &last] {
        assert_eq!(world.answer(sent).await, "here");
        check_log(&world.log(sent.conversation).await);
    }
    let order: Vec<String> = model.requests().iter().map(last_text).collect();
    assert_eq!(order, ["first", "mine", "last"]);
    world.kernel.stop().await;
}

/// A message that another process stored is that process's own work as long as it is alive.
#[tokio::test(start_paused = true)]
async fn engine_passivation_reclaims_nothing_from_the_new_owner() {
    let (mut parts, _) = with_capacity(10, 10);
    parts.limits.passivate_after_ms = 10_000;
    let world = parts.start().await;
    let sent = world.say("0").await;
    world.answer(&sent).await;
    let conversation = sent.conversation;
    for n in 1..30 {
        world.answer(&world.say_in(conversation, &n.to_string()).await).await;
    }
    assert!(world.log(conversation).await.len() > 100, "passivation writes a snapshot");
    let stranger = NodeIncarnation::from_uuid(parts.env.uuid());
    parts.store.register_node(node(99), stranger, 3_600_000).await.expect("the store works");
    parts.store.claim(conversation, stranger).await.expect("the store works").expect("it is there");
    let body = EventBody::Received(Inbound { text: "there".to_owned(), ..Inbound::default() });
    let task = TaskId::from_uuid(parts.env.uuid());
    let event = NewEvent { at: parts.env.now(), task, agent: AgentId::orchestrator(), body };
    let message = Append { conversation, user: ann(), fence: Fence::Inbox, events: vec![event] };
    for stored in parts.store.commit(vec![message]).await {
        stored.expect("stored");
    }
    eventually("the Engine is passivated", async || (conversations(&world).await["active"] == 0).then_some(())).await;
    sleep_for_ms(100_000).await;
    let row = parts.store.conversation(Scope::Operator, conversation).await.expect("the store works");
    assert_eq!(row.and_then(|row| row.owner), Some(stranger));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn merged_work_answers_more_messages_than_one_append_can_hold() {
    let (mut parts, model) = with_capacity(10, 30_000);
    parts.slots = 1;
    // An unoptimised build takes seconds for so many events in one append, and the watchdog uses real time.
    parts.limits.stuck_ms_max = 60_000;
    let world = parts.start().await;
    let before = say_as(&world, "before", Priority::High).await;
    eventually("the first task runs", async || (model.call_count() == 1).then_some(())).await;
    let mut all = Vec::new();
    for _ in 0..1_200 {
        let mut message = Submission::new(ann(), "test", "digest");
        (message.name, message.priority) = (Some("digest".to_owned()), Some(Priority::Normal));
        all.push(world.kernel.submit(message).await.expect("the message is accepted"));
    }
    world.answer(&before).await;
    for sent in &all {
        assert_eq!(world.answer(sent).await, "here");
    }
    assert_eq!(model.call_count(), 2, "the work is done once");
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    world.kernel.stop().await;
}
