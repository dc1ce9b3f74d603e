//! Snapshots of conversations that never leave memory: a crash reads again only what came after, and a store that cannot
//! keep them harms nobody.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use annie_actors::Submitted;
use annie_core::{
    event::{Event, EventBody, NewEvent, Scope},
    ids::{ConversationId, Seq, TaskId},
    ports::{Append, FaultAction, Fence, Store, StoreErrorKind},
    turn::Conversation,
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, says},
};

use crate::{
    flow::kernel::two_agents,
    world::{World, WorldParts, ann, check_log, come_back_after, eventually, kill},
};

/// More than fit between two snapshots.
const TURNS: usize = 70;
/// After which these conversations leave memory, in milliseconds: not within a test.
const NEVER_MS: u64 = 1_000_000;
/// Turns of two agents in which four snapshots are surely made: each has more than ten events.
const TURNS_OF_TWO_MAX: usize = 120;
/// Events between two snapshots at most, with those that came while one was made.
const TAIL_MAX: u64 = 300;

async fn whole_log(store: &dyn Store, conversation: ConversationId) -> Vec<Event> {
    store.events(Scope::User(ann()), conversation, Seq(0), u32::MAX).await.expect("the log can be read")
}

/// Says something so often, in one conversation.
async fn talk(world: &World, turns: usize) -> Submitted {
    let mut said = world.say("hello").await;
    world.answer(&said).await;
    for _ in 1..turns {
        said = world.say_in(said.conversation, "and again").await;
        world.answer(&said).await;
    }
    said
}

/// The last snapshot, which says what the log says.
async fn snapshot_seq(store: &dyn Store, conversation: ConversationId) -> Option<u64> {
    let snapshot = store.snapshot(conversation).await.expect("it can be read")?;
    let mut replayed = Conversation::new(conversation, ann());
    for event in whole_log(store, conversation).await.iter().filter(|e| e.seq <= snapshot.seq) {
        replayed.apply(event);
    }
    let kept: Conversation = serde_json::from_str(&snapshot.state).expect("it can be read");
    assert_eq!(kept, replayed, "the snapshot at {} is not what the log says", snapshot.seq);
    Some(snapshot.seq.0)
}

#[tokio::test]
async fn a_crash_of_a_busy_conversation_reads_again_only_what_came_after_its_last_snapshot() {
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == TURNS as u64));
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.hibernate_ms = NEVER_MS;
    let world = parts.start().await;
    let said = talk(&world, TURNS).await;
    let engine = format!("/conversations/engine:{}", said.conversation);
    let all = whole_log(parts.store.as_ref(), said.conversation).await.len() as u64;
    assert!(all > TAIL_MAX, "only {all} events");
    eventually("a snapshot is kept", async || snapshot_seq(parts.store.as_ref(), said.conversation).await).await;
    let open = world.say_in(said.conversation, "and in the middle of this it dies").await;
    model.called(TURNS as u64 + 1).await;
    kill(&world, &engine).await;
    world.answer(&open).await;
    let (_, view) = world.kernel.view(&engine).await.expect("it lives");
    let read = view.expect("a view")["read_at_birth"].as_u64().expect("a number");
    assert!((1..TAIL_MAX).contains(&read), "it read {read} of {all} events");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_snapshot_of_a_conversation_with_agents_at_work_is_what_the_log_says() {
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|r, _| Ok(two_agents(r)))));
    parts.limits.hibernate_ms = NEVER_MS;
    let world = parts.start().await;
    let mut said = world.say("do both").await;
    let mut places = std::collections::BTreeSet::new();
    let mut turns = 0;
    while places.len() < 4 {
        turns += 1;
        assert!(turns <= TURNS_OF_TWO_MAX, "only {places:?}");
        world.answer(&said).await;
        places.extend(snapshot_seq(parts.store.as_ref(), said.conversation).await);
        said = world.say_in(said.conversation, "do both").await;
    }
    world.answer(&said).await;
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_keep_a_snapshot_harms_nobody_and_is_asked_again() {
    for fault in [StoreFault::Fail(StoreErrorKind::Full), StoreFault::Hang, StoreFault::HangAfter] {
        let mut parts = WorldParts::new(|_, _| Ok(says("here")));
        let (data, tries, well) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (tried, is_well) = (tries.clone(), well.clone());
        parts.store = Arc::new(data.with_hook(Arc::new(move |point| match point {
            StorePoint::Write("put_snapshot") if !is_well.load(Relaxed) => {
                tried.fetch_add(1, Relaxed);
                fault
            }
            _ => StoreFault::Pass,
        })));
        let world = parts.start().await;
        let said = talk(&world, TURNS).await;
        eventually("it was tried", async || (tries.load(Relaxed) > 0).then_some(())).await;
        // One that does not come back is given up.
        come_back_after(20_000).await;
        well.store(true, Relaxed);
        for _ in 0..TURNS {
            let said = world.say_in(said.conversation, "go on").await;
            world.answer(&said).await;
        }
        eventually("the next one is kept", async || {
            let kept = snapshot_seq(&data, said.conversation).await?;
            (kept > TAIL_MAX).then_some(())
        })
        .await;
        assert!(tries.load(Relaxed) < 4, "{fault:?}: it was tried {} times", tries.load(Relaxed));
        assert!(world.kernel.crashes().is_empty(), "{fault:?}: {:?}", world.kernel.crashes());
        world.kernel.stop().await;
    }
}

/// A conversation's first message once more, stored by another process whose hint is lost.
pub(super) async fn untold(parts: &WorldParts, world: &World, conversation: ConversationId) -> TaskId {
    let received = world.log(conversation).await.remove(0);
    let task = TaskId::from_uuid(parts.env.uuid());
    let mut body = received.body;
    if let EventBody::Received(inbound) = &mut body {
        inbound.client_id = "from another process".to_owned();
    }
    let event = NewEvent { at: parts.env.now(), task, agent: received.agent, body };
    let append = Append { conversation, user: ann(), fence: Fence::Inbox, events: vec![event] };
    parts.store.commit(vec![append]).await.remove(0).expect("stored");
    task
}

/// What another process stores for a conversation that is awake here, and whose hint is lost, must not vanish behind a
/// snapshot.
#[tokio::test(start_paused = true)]
async fn a_message_that_nobody_told_of_is_found_when_a_snapshot_is_made() {
    for (turns, leaves) in [(TURNS, false), (30, true)] {
        let mut parts = WorldParts::new(|_, _| Ok(says("here")));
        parts.limits.hibernate_ms = if leaves { 1_000 } else { NEVER_MS };
        let world = parts.start().await;
        let said = world.say("hello").await;
        world.answer(&said).await;
        let task = untold(&parts, &world, said.conversation).await;
        for _ in 1..turns {
            let said = world.say_in(said.conversation, "and again").await;
            world.answer(&said).await;
        }
        let last = world.final_of(said.conversation, task).await;
        assert!(last.is_final());
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_dies_over_its_snapshot_loses_nothing() {
    for point in ["before:SnapshotKept", "after:SnapshotKept"] {
        let plan = Arc::new(FaultPlan::once_at("engine", point, 0, FaultAction::Panic));
        let world = WorldParts::new(|_, _| Ok(says("here"))).faults(plan.clone()).start().await;
        let said = talk(&world, TURNS).await;
        check_log(&world.log(said.conversation).await);
        eventually("it died there", async || (!plan.struck().is_empty()).then_some(())).await;
        world.kernel.stop().await;
    }
}
