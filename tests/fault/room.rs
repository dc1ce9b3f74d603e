//! Room in memory: who makes it, who keeps it, and who comes back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use annie_actors::{Submission, Submitted};
use annie_core::{
    event::{EventBody, Inbound, NewEvent, Priority, Scope},
    ids::{AgentId, NodeIncarnation, TaskId},
    ports::{Append, FaultAction, Fence},
};
use annie_store::MemoryStore;
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, says},
};

use crate::{
    flow::kernel::last_text,
    world::{World, WorldParts, ann, check_log, come_back_after, eventually, node},
};

#[tokio::test]
async fn a_conversation_that_waits_for_room_gets_it_when_another_leaves_memory() {
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    parts.limits.engines_max = 1;
    parts.limits.hibernate_ms = 20;
    let world = parts.start().await;
    let all = [world.say("1").await, world.say("2").await, world.say("3").await];
    for said in &all {
        assert_eq!(world.answer(said).await, "here");
    }
    world.kernel.stop().await;
}

/// So many conversations may be awake; and the rounds take so long, in milliseconds.
fn with_room_for(engines_max: usize, round_ms: u64) -> (WorldParts, Arc<ScriptedModel>) {
    let model = ScriptedModel::new(|_, _| Ok(says("here"))).taking(Duration::from_millis(round_ms));
    let model = Arc::new(model);
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.engines_max = engines_max;
    let depths = &mut parts.limits.queue.depth_per_user;
    (depths.high_max, depths.normal_max) = (100, 100);
    (parts, model)
}

async fn conversations(world: &World) -> serde_json::Value {
    eventually("it says what it is like", async || world.kernel.view("/conversations").await.ok()?.1).await
}

#[tokio::test(start_paused = true)]
async fn who_is_not_due_makes_room_for_others_and_comes_back_when_it_is() {
    let (parts, model) = with_room_for(2, 10);
    let world = parts.start().await;
    let at = parts.env.now().plus_ms(30_000);
    let mut later = Vec::new();
    for n in 0..4 {
        let mut message = Submission::new(ann(), "test", format!("later {n}"));
        message.not_before = Some(at);
        later.push(world.kernel.submit(message).await.expect("the message is taken"));
    }
    // Another way to wait: nothing is known of its time.
    let mut after = Submission::new(ann(), "test", "after that");
    after.after = vec![later[0].task];
    let after = world.kernel.submit(after).await.expect("the message is taken");
    let mut urgent = Submission::new(ann(), "test", "now");
    urgent.priority = Some(Priority::High);
    let now = world.kernel.submit(urgent).await.expect("the message is taken");
    assert_eq!(world.answer(&now).await, "here");
    assert!(parts.env.now() < at.plus_ms(-20_000), "it waited for those that only wait");
    let view = conversations(&world).await;
    assert!(view["sleeping"].as_u64() >= Some(3) && view["awake"].as_u64() <= Some(2), "{view:#}");
    assert_eq!(model.call_count(), 1);
    for said in later.iter().chain([&after]) {
        assert_eq!(world.answer(said).await, "here");
        let log = world.log(said.conversation).await;
        let begun = log.iter().find(|e| matches!(e.body, EventBody::TurnStarted { .. })).expect("it began");
        assert!(said.task == after.task || begun.at >= at, "it began too early");
        check_log(&log);
    }
    assert!(parts.env.now() < at.plus_ms(10_000), "nobody came back in time");
    assert_eq!(model.call_count(), 6, "no round was cut off");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_wakes_a_conversation_that_sleeps_for_want_of_room() {
    let (parts, _) = with_room_for(1, 10);
    let world = parts.start().await;
    let mut message = Submission::new(ann(), "test", "later");
    message.not_before = Some(parts.env.now().plus_ms(3_600_000));
    let later = world.kernel.submit(message).await.expect("the message is taken");
    world.answer(&world.say("now").await).await;
    assert_eq!(conversations(&world).await["sleeping"], 1);
    assert_eq!(world.answer(&world.say_in(later.conversation, "and there").await).await, "here");
    assert!(world.kernel.cancel(Scope::User(ann()), later.task, "ann").await.expect("it is there"));
    assert!(matches!(world.final_of(later.conversation, later.task).await, EventBody::Cancelled { .. }));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_dies_when_it_is_asked_for_its_room_is_asked_again() {
    for action in [FaultAction::Panic, FaultAction::Fail, FaultAction::Kill] {
        let is_struck = AtomicBool::new(false);
        let plan = Arc::new(FaultPlan::by(move |kind, point, _| match (kind, point) {
            ("engine", "before:Vacate") if !is_struck.swap(true, SeqCst) => action,
            _ => FaultAction::Pass,
        }));
        let (parts, _) = with_room_for(1, 10);
        let parts = parts.faults(plan.clone());
        let world = parts.start().await;
        let mut message = Submission::new(ann(), "test", "later");
        message.not_before = Some(parts.env.now().plus_ms(3_600_000));
        world.kernel.submit(message).await.expect("the message is taken");
        assert_eq!(world.answer(&world.say("now").await).await, "here");
        assert_eq!(plan.struck().len(), 1);
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_tasks_longer_than_there_is_room_comes_to_its_end_after_a_restart() {
    let store = MemoryStore::new();
    let start = async |seed, engines_max, hangs: bool| {
        let (mut parts, _) = with_room_for(engines_max, 10);
        parts.model = Arc::new(ScriptedModel::saying("here").hanging_when(move |_, _| hangs));
        (parts.store, parts.env) = (Arc::new(store.clone()), annie_testkit::env::env(seed));
        parts.start().await
    };
    let before = start(7, 100, true).await;
    let mut chain: Vec<Submitted> = Vec::new();
    for n in 0..5 {
        let mut message = Submission::new(ann(), "test", format!("link {n}"));
        message.after = chain.last().map(|last| last.task).into_iter().collect();
        chain.push(before.kernel.submit(message).await.expect("the message is taken"));
    }
    before.kernel.crash().await;
    // In whichever order they get their room: at first it is taken by those that wait for others.
    let after = start(8, 2, false).await;
    for said in &chain {
        assert_eq!(after.answer(said).await, "here");
        check_log(&after.log(said.conversation).await);
    }
    after.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_permit_makes_room_and_no_round_is_begun_twice() {
    for acts in [false, true] {
        let (mut parts, model) = with_room_for(2, 8_000);
        (parts.slots, parts.acts) = (1, acts);
        let world = parts.start().await;
        let mut all = Vec::new();
        for n in 0..5 {
            all.push(say_as(&world, &n.to_string(), Priority::Normal).await);
        }
        eventually("one that waits has made room", async || {
            (conversations(&world).await["sleeping"].as_u64() >= Some(1)).then_some(())
        })
        .await;
        for said in &all {
            assert_eq!(world.answer(said).await, "here");
            check_log(&world.log(said.conversation).await);
        }
        assert_eq!(model.call_count(), 5);
        world.kernel.stop().await;
    }
}

async fn say_as(world: &World, text: &str, priority: Priority) -> Submitted {
    let mut message = Submission::new(ann(), "test", text);
    message.priority = Some(priority);
    world.kernel.submit(message).await.expect("the message is taken")
}

#[tokio::test(start_paused = true)]
async fn what_a_person_waits_for_keeps_its_place_though_others_want_its_room() {
    let (mut parts, model) = with_room_for(2, 20_000);
    parts.slots = 1;
    let world = parts.start().await;
    let first = say_as(&world, "first", Priority::Normal).await;
    eventually("it runs", async || (model.call_count() == 1).then_some(())).await;
    let mine = say_as(&world, "mine", Priority::High).await;
    let last = say_as(&world, "last", Priority::Normal).await;
    for said in [&first, &mine, &last] {
        assert_eq!(world.answer(said).await, "here");
        check_log(&world.log(said.conversation).await);
    }
    let order: Vec<String> = model.requests().iter().map(last_text).collect();
    assert_eq!(order, ["first", "mine", "last"]);
    world.kernel.stop().await;
}

/// What another process stored here is its own work, as long as it lives.
#[tokio::test(start_paused = true)]
async fn an_engine_that_leaves_takes_nothing_back_from_the_process_that_has_its_conversation() {
    let (mut parts, _) = with_room_for(10, 10);
    parts.limits.hibernate_ms = 10_000;
    let world = parts.start().await;
    let said = world.say("0").await;
    world.answer(&said).await;
    let conversation = said.conversation;
    for n in 1..30 {
        world.answer(&world.say_in(conversation, &n.to_string()).await).await;
    }
    assert!(world.log(conversation).await.len() > 100, "a snapshot is worth it when it leaves");
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
    eventually("it has left", async || (conversations(&world).await["awake"] == 0).then_some(())).await;
    come_back_after(100_000).await;
    let row = parts.store.conversation(Scope::Operator, conversation).await.expect("the store works");
    assert_eq!(row.and_then(|row| row.owner), Some(stranger));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_answer_may_be_owed_to_more_messages_than_are_stored_at_once() {
    let (mut parts, model) = with_room_for(10, 30_000);
    parts.slots = 1;
    // So many events at once take an unoptimised build seconds, and the watchdog's clock is never paused.
    parts.limits.stuck_ms_max = 60_000;
    let world = parts.start().await;
    let before = say_as(&world, "before", Priority::High).await;
    eventually("it runs", async || (model.call_count() == 1).then_some(())).await;
    let mut all = Vec::new();
    for _ in 0..1_200 {
        let mut message = Submission::new(ann(), "test", "digest");
        (message.name, message.priority) = (Some("digest".to_owned()), Some(Priority::Normal));
        all.push(world.kernel.submit(message).await.expect("the message is taken"));
    }
    world.answer(&before).await;
    for said in &all {
        assert_eq!(world.answer(said).await, "here");
    }
    assert_eq!(model.call_count(), 2, "the work is done once");
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    world.kernel.stop().await;
}
