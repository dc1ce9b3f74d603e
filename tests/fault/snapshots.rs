//! Snapshots of conversations that stay active: after a crash only the events behind the last snapshot are read, and a
//! store that cannot store snapshots does no harm.

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

use crate::world::{World, WorldParts, ann, check_log, eventually, kill, sleep_for_ms, two_agents};

/// More turns than fit between two snapshots.
const TURNS: usize = 70;
/// An idle time before passivation that no test reaches, in milliseconds.
const NEVER_MS: u64 = 1_000_000;
/// Number of turns of two agents that is enough for four snapshots: each turn has more than ten events.
const TURNS_OF_TWO_MAX: usize = 120;
/// Most events between two snapshots, including those that arrive while a snapshot is made.
const TAIL_MAX: u64 = 300;

async fn whole_log(store: &dyn Store, conversation: ConversationId) -> Vec<Event> {
    store.events(Scope::User(ann()), conversation, Seq(0), u32::MAX).await.expect("the log can be read")
}

/// Sends `turns` messages in one conversation and waits for each answer.
async fn talk(world: &World, turns: usize) -> Submitted {
    let mut sent = world.say("hello").await;
    world.answer(&sent).await;
    for _ in 1..turns {
        sent = world.say_in(sent.conversation, "and again").await;
        world.answer(&sent).await;
    }
    sent
}

/// The sequence number of the last snapshot, after a check that its state equals the folded log.
async fn snapshot_seq(store: &dyn Store, conversation: ConversationId) -> Option<u64> {
    let snapshot = store.snapshot(conversation).await.expect("readable")?;
    let mut replayed = Conversation::new(conversation, ann());
    for event in whole_log(store, conversation).await.iter().filter(|e| e.seq <= snapshot.seq) {
        replayed.apply(event);
    }
    let kept: Conversation = serde_json::from_str(&snapshot.state).expect("readable");
    assert_eq!(kept, replayed, "the snapshot at {} is not what the log says", snapshot.seq);
    Some(snapshot.seq.0)
}

#[tokio::test]
async fn engine_restart_reads_only_events_behind_the_last_snapshot() {
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == TURNS as u64));
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.passivate_after_ms = NEVER_MS;
    // Summaries would be model calls of their own.
    parts.limits.turn.compaction_messages = 0;
    let world = parts.start().await;
    let sent = talk(&world, TURNS).await;
    let engine = format!("/conversations/engine:{}", sent.conversation);
    let all = whole_log(&*parts.store, sent.conversation).await.len() as u64;
    assert!(all > TAIL_MAX, "only {all} events");
    eventually("a snapshot is stored", async || snapshot_seq(&*parts.store, sent.conversation).await).await;
    let open = world.say_in(sent.conversation, "and in the middle of this it dies").await;
    model.called(TURNS as u64 + 1).await;
    kill(&world, &engine).await;
    world.answer(&open).await;
    let (_, view) = world.kernel.view(&engine).await.expect("the actor is alive");
    let read = view.expect("a view")["read_at_birth"].as_u64().expect("a number");
    assert!((1..TAIL_MAX).contains(&read), "the Engine read {read} of {all} events");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_of_a_conversation_with_running_agents_equals_the_folded_log() {
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|r, _| Ok(two_agents(r)))));
    parts.limits.passivate_after_ms = NEVER_MS;
    let world = parts.start().await;
    let mut sent = world.say("do both").await;
    let mut snapshots = std::collections::BTreeSet::new();
    let mut turns = 0;
    while snapshots.len() < 4 {
        turns += 1;
        assert!(turns <= TURNS_OF_TWO_MAX, "only {snapshots:?}");
        world.answer(&sent).await;
        snapshots.extend(snapshot_seq(&*parts.store, sent.conversation).await);
        sent = world.say_in(sent.conversation, "do both").await;
    }
    world.answer(&sent).await;
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn snapshot_write_that_fails_does_no_harm_and_is_retried() {
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
        let sent = talk(&world, TURNS).await;
        eventually("a write was tried", async || (tries.load(Relaxed) > 0).then_some(())).await;
        // A write that does not return is abandoned.
        sleep_for_ms(20_000).await;
        well.store(true, Relaxed);
        for _ in 0..TURNS {
            let sent = world.say_in(sent.conversation, "go on").await;
            world.answer(&sent).await;
        }
        eventually("the next snapshot is stored", async || {
            let kept = snapshot_seq(&data, sent.conversation).await?;
            (kept > TAIL_MAX).then_some(())
        })
        .await;
        assert!(tries.load(Relaxed) < 4, "{fault:?}: a write was tried {} times", tries.load(Relaxed));
        assert!(world.kernel.crashes().is_empty(), "{fault:?}: {:?}", world.kernel.crashes());
        world.kernel.stop().await;
    }
}

/// Stores a copy of a conversation's first message as another process does whose notification is lost.
pub(super) async fn store_unannounced_message(
    parts: &WorldParts,
    world: &World,
    conversation: ConversationId,
) -> TaskId {
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

/// A message that another process stored for a conversation that is active here, and whose notification is lost, must not
/// be lost behind a snapshot.
#[tokio::test(start_paused = true)]
async fn unannounced_message_is_found_when_a_snapshot_is_made() {
    for (turns, leaves) in [(TURNS, false), (30, true)] {
        let mut parts = WorldParts::new(|_, _| Ok(says("here")));
        parts.limits.passivate_after_ms = if leaves { 1_000 } else { NEVER_MS };
        let world = parts.start().await;
        let sent = world.say("hello").await;
        world.answer(&sent).await;
        let task = store_unannounced_message(&parts, &world, sent.conversation).await;
        for _ in 1..turns {
            let sent = world.say_in(sent.conversation, "and again").await;
            world.answer(&sent).await;
        }
        let last = world.final_of(sent.conversation, task).await;
        assert!(last.is_final());
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_that_dies_while_storing_its_snapshot_loses_nothing() {
    for point in ["before:SnapshotKept", "after:SnapshotKept"] {
        let plan = Arc::new(FaultPlan::once_at("engine", point, 0, FaultAction::Panic));
        let world = WorldParts::new(|_, _| Ok(says("here"))).faults(plan.clone()).start().await;
        let sent = talk(&world, TURNS).await;
        check_log(&world.log(sent.conversation).await);
        eventually("the Engine died at that point", async || (!plan.injected().is_empty()).then_some(())).await;
        world.kernel.stop().await;
    }
}

/// A snapshot of another conversation, of another user or beyond the log must not become the state of an Engine.
#[tokio::test]
async fn engine_ignores_a_snapshot_that_is_not_of_its_log() {
    for (damage, what) in [("id", "of another conversation"), ("user", "of another user"), ("seq", "beyond the log")] {
        let parts = WorldParts::new(|_, _| Ok(says("here")));
        let world = parts.start().await;
        let sent = world.say("hello").await;
        world.answer(&sent).await;
        let foreign = world.say("elsewhere").await;
        world.answer(&foreign).await;
        let log = whole_log(&*parts.store, sent.conversation).await;
        let mut state = Conversation::new(sent.conversation, ann());
        log.iter().for_each(|event| state.apply(event));
        // With this history the model would see a message that was never sent.
        let mut json = serde_json::to_value(&state).expect("JSON");
        json["history"]["past"][0]["user"] = "never sent".into();
        match damage {
            "id" => json["id"] = foreign.conversation.to_string().into(),
            "user" => json["user"] = "bob".into(),
            _ => json["seq"] = 9_999.into(),
        }
        let seq = Seq(json["seq"].as_u64().expect("a number"));
        let snapshot = annie_core::ports::Snapshot { seq, v: annie_core::turn::STATE_VERSION, state: json.to_string() };
        let row = parts.store.conversation(Scope::Operator, sent.conversation).await.expect("readable").expect("a row");
        parts.store.put_snapshot(sent.conversation, row.epoch, snapshot).await.expect("stored");
        kill(&world, &format!("/conversations/engine:{}", sent.conversation)).await;
        let again = world.say_in(sent.conversation, "and again").await;
        world.answer(&again).await;
        let engine = format!("/conversations/engine:{}", sent.conversation);
        let (_, view) = world.kernel.view(&engine).await.expect("the actor is alive");
        let read = view.expect("a view")["read_at_birth"].as_u64().expect("a number");
        assert!(read as usize >= log.len(), "{what}: the Engine read only {read} of {} events", log.len());
        world.kernel.stop().await;
    }
}
