//! Processes on one database and their leases. The conversations of a live process are left to it. The open work of a
//! dead or frozen process is claimed in time. A frozen process that continues does nothing that must not happen twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::LeaseLimits;
use annie_core::{
    dead_letter::{DeadLetter, DeadLetterState},
    event::{EventBody, Inbound, NewEvent, Scope},
    ids::{AgentId, ConversationId, Epoch, NodeIncarnation, TaskId},
    outcome::Status,
    ports::{Append, Fence, Log, Nodes, Records, StoreErrorKind},
    time::Micros,
};
use annie_store::{MemoryStore, StoreFault, StorePoint, StoreSide};
use annie_testkit::{env, scripted_model::ScriptedModel};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use super::{
    incarnations::calling,
    two_processes::{TAKEOVER, epoch_of, one_of_two},
};
use crate::world::{World, WorldParts, ann, check_log, eventually, node, sleep_for_ms};

/// Longer than any lease here.
const LONG_ROUND: Duration = Duration::from_millis(100_000);

/// The same store as a frozen process sees it: every call waits while the flag is set. A call that fits `at` sets the
/// flag.
fn freezing(
    store: &MemoryStore,
    at: impl Fn(&StorePoint<'_>, StoreSide) -> bool + Send + Sync + 'static,
) -> (MemoryStore, Arc<watch::Sender<bool>>) {
    let is_frozen = Arc::new(watch::Sender::new(false));
    let frozen = is_frozen.clone();
    let store = store.with_wait(Arc::new(move |point, side| {
        if at(&point, side) {
            frozen.send_replace(true);
        }
        let mut frozen = frozen.subscribe();
        Box::pin(async move {
            let _ = frozen.wait_for(|is_frozen| !is_frozen).await;
        })
    }));
    (store, is_frozen)
}

async fn until_begun(world: &World, conversation: ConversationId, turns: usize) {
    eventually("the turns have begun", async || {
        let kinds = world.kinds(conversation).await;
        (kinds.iter().filter(|kind| kind.ends_with("turn_started")).count() == turns).then_some(())
    })
    .await;
}

async fn lease_of(world: &World) -> Value {
    eventually("the node shows its lease", async || world.kernel.view("/infra/node").await.ok()?.1).await
}

async fn owner_of(store: &MemoryStore, conversation: ConversationId) -> Option<NodeIncarnation> {
    store.conversation(Scope::Operator, conversation).await.expect("readable").expect("it is there").owner
}

/// Waits until these messages are answered, but no longer than a takeover takes.
async fn answered_soon(world: &World, sent: &[annie_actors::Submitted], text: &str) {
    let answers = async {
        for sent in sent {
            assert_eq!(world.answer(sent).await, text);
        }
    };
    tokio::time::timeout(TAKEOVER, answers).await.expect("no process claims the conversation");
}

#[tokio::test(start_paused = true)]
async fn node_that_starts_does_not_claim_the_work_of_a_live_node() {
    let store = MemoryStore::new();
    let slow = Arc::new(ScriptedModel::saying("there").taking(LONG_ROUND));
    let mut parts = WorldParts::with_model(slow.clone());
    (parts.store, parts.env, parts.node) = (Arc::new(store.clone()), env::env(7), node(7));
    let owner = parts.start().await;
    let first = owner.say("0").await;
    until_begun(&owner, first.conversation, 1).await;
    let second = owner.say_in(first.conversation, "1").await;
    for seed in 8..11 {
        let beside = one_of_two(seed, ScriptedModel::saying("here"), store.clone(), |_| {}).await;
        sleep_for_ms(20_000).await;
        if seed == 9 { beside.kernel.crash().await } else { beside.kernel.stop().await }
    }
    for sent in [&first, &second] {
        let patience = tokio::time::timeout(2 * LONG_ROUND, async {
            while !store.task(Scope::Operator, sent.task).await.expect("readable").is_some_and(|t| t.state.is_ended()) {
                sleep_for_ms(1_000).await;
            }
        });
        patience.await.expect("the task ends");
        assert_eq!(owner.answer(sent).await, "there");
    }
    assert_eq!(
        (slow.call_count(), epoch_of(&store, first.conversation).await),
        (2, Epoch(1)),
        "a round was interrupted"
    );
    owner.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_that_restarts_claims_the_work_of_its_previous_run_at_once() {
    let store = MemoryStore::new();
    let hangs = ScriptedModel::saying("never").hanging_when(|_, _| true);
    let before = one_of_two(7, hangs, store.clone(), |_| {}).await;
    let sent = before.say("hello").await;
    until_begun(&before, sent.conversation, 1).await;
    before.kernel.crash().await;
    let from = Instant::now();
    let after = one_of_two(8, ScriptedModel::saying("here"), store.clone(), |parts| parts.node = node(7)).await;
    assert_eq!(after.answer(&sent).await, "here");
    assert!(from.elapsed() < Duration::from_secs(1), "the claim took {:?}", from.elapsed());
    after.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn work_of_a_node_that_shuts_down_is_claimed_before_its_lease_expires() {
    let store = MemoryStore::new();
    let here = one_of_two(7, ScriptedModel::saying("here"), store.clone(), |_| {}).await;
    let hangs = ScriptedModel::saying("never").hanging_when(|_, _| true);
    let leaves = one_of_two(8, hangs, store.clone(), |_| {}).await;
    let sent = leaves.say("hello").await;
    until_begun(&leaves, sent.conversation, 1).await;
    leaves.kernel.stop().await;
    let (from, limits) = (Instant::now(), LeaseLimits::default());
    assert_eq!(here.answer(&sent).await, "here");
    assert!(from.elapsed() < Duration::from_millis(limits.renew_ms + 500), "it took {:?}", from.elapsed());
    here.kernel.stop().await;
}

/// Stores a dead letter that is due, as a node does that dies before it retries it. This node's worker is not notified.
async fn store_dead_letter(store: &MemoryStore, now: Micros) -> TaskId {
    let task = TaskId::from_uuid(uuid::Uuid::from_u128(7));
    let dead_letter = DeadLetter { tried: Vec::new(), since: now, retry_at: Some(now) };
    let (code, text) = ("model_unavailable".to_owned(), "Sorry.".to_owned());
    let failed = EventBody::Failed { code, text, detail: String::new(), dead_letter: Some(dead_letter) };
    let submitted = Inbound { client_id: "7".to_owned(), text: "Report".to_owned(), ..Inbound::default() };
    let event = |body| NewEvent { at: now, task, agent: AgentId::orchestrator(), body };
    let events = [EventBody::Received(submitted), failed].map(event).to_vec();
    let conversation = ConversationId::from_uuid(uuid::Uuid::from_u128(7));
    let append = Append { conversation, user: ann(), fence: Fence::Inbox, events };
    store.commit(vec![append]).await.remove(0).expect("stored");
    task
}

#[tokio::test(start_paused = true)]
async fn dead_letter_that_another_node_left_is_retried_when_that_node_ends_or_after_an_hour() {
    const HOUR_MS: u64 = 3_600_000;
    for is_announced in [true, false] {
        let store = MemoryStore::new();
        let no_watchdog = |parts: &mut WorldParts| parts.limits.stuck_ms_max = 0;
        let here = one_of_two(7, ScriptedModel::saying("here"), store.clone(), no_watchdog).await;
        eventually("the worker has made its first pass", async || {
            let timer = here.kernel.view("/infra/dead_letters").await.ok()?.1?["due_timer"].clone();
            let next = timer["next_at"].as_str()?;
            (timer["has_pass"] == false && next > here.kernel.now().to_string().as_str()).then_some(())
        })
        .await;
        let other = NodeIncarnation::from_uuid(uuid::Uuid::from_u128(99));
        if is_announced {
            store.register_node(node(99), other, HOUR_MS).await.expect("the store works");
        }
        let task = store_dead_letter(&store, here.kernel.now()).await;
        if is_announced {
            store.end_node(other).await.expect("the store works");
        } else {
            sleep_for_ms(HOUR_MS).await;
        }
        eventually("this node retries the dead letter", async || {
            let row = here.kernel.dead_letter(Scope::User(ann()), task).await.ok()?.row;
            (row.state == DeadLetterState::Retried).then_some(())
        })
        .await;
        here.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn frozen_node_loses_its_work_and_gets_a_new_lease_when_it_continues() {
    let store = MemoryStore::new();
    let here = one_of_two(7, ScriptedModel::saying("here"), store.clone(), |_| {}).await;
    let (cold, is_frozen) = freezing(&store, |_, _| false);
    let model = ScriptedModel::saying("there").hanging_when(|_, call| call == 1);
    let owner = one_of_two(8, model, cold, |_| {}).await;
    let first = owner.say("0").await;
    assert_eq!(owner.answer(&first).await, "there");
    let conversation = first.conversation;
    let second = owner.say_in(conversation, "1").await;
    until_begun(&owner, conversation, 2).await;
    is_frozen.send_replace(true);
    let third = here.say_in(conversation, "2").await;
    answered_soon(&here, &[second, third], "here").await;
    assert_eq!(epoch_of(&store, conversation).await, Epoch(2), "the conversation is claimed once");
    let length = here.log(conversation).await.len();
    is_frozen.send_replace(false);
    eventually("the node holds a new lease", async || {
        let lease = lease_of(&owner).await;
        (lease["losses"] == 1 && lease["is_held"] == true).then_some(())
    })
    .await;
    assert_eq!(owner.answer(&owner.say("after it").await).await, "there");
    check_log(&here.log(conversation).await);
    assert_eq!(here.log(conversation).await.len(), length, "the frozen process wrote after it continued");
    for world in [here, owner] {
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn message_is_left_to_a_live_owner_however_long_its_round_takes() {
    let store = MemoryStore::new();
    let here = one_of_two(7, ScriptedModel::saying("here"), store.clone(), |_| {}).await;
    let slow = ScriptedModel::saying("there").taking(LONG_ROUND);
    // This process reads the store only once a minute.
    let looks = store.with_wakes(Arc::new(|| Box::pin(sleep_for_ms(60_000))));
    let owner = one_of_two(8, slow, looks, |_| {}).await;
    let first = owner.say("0").await;
    until_begun(&owner, first.conversation, 1).await;
    let second = here.say_in(first.conversation, "1").await;
    for _ in 0..9 {
        sleep_for_ms(20_000).await;
        assert_eq!(epoch_of(&store, first.conversation).await, Epoch(1), "the round of the owner is interrupted");
    }
    for sent in [&first, &second] {
        assert_eq!(owner.answer(sent).await, "there");
    }
    assert_eq!(epoch_of(&store, first.conversation).await, Epoch(1));
    for world in [here, owner] {
        world.kernel.stop().await;
    }
}

/// When the database is back, all leases have expired, because no process could renew its lease.
#[tokio::test(start_paused = true)]
async fn database_unavailable_for_longer_than_a_lease_ends_no_live_node() {
    let store = MemoryStore::new();
    let start = async |seed| {
        let is_away = Arc::new(AtomicBool::new(false));
        let away = is_away.clone();
        let hooked = store.with_hook(Arc::new(move |_| {
            if away.load(Relaxed) { StoreFault::Fail(StoreErrorKind::Unavailable) } else { StoreFault::Pass }
        }));
        (one_of_two(seed, ScriptedModel::saying("here"), hooked, |_| {}).await, is_away)
    };
    let ((a, a_away), (b, b_away)) = (start(7).await, start(8).await);
    let sent = b.say("hello").await;
    assert_eq!(b.answer(&sent).await, "here");
    let owner = owner_of(&store, sent.conversation).await;
    sleep_for_ms(20_000).await;
    for away in [&a_away, &b_away] {
        away.store(true, Relaxed);
    }
    sleep_for_ms(60_000).await;
    a_away.store(false, Relaxed);
    sleep_for_ms(5_000).await;
    b_away.store(false, Relaxed);
    sleep_for_ms(60_000).await;
    for world in [&a, &b] {
        let lease = lease_of(world).await;
        assert_eq!((&lease["losses"], &lease["is_held"], &lease["dead_nodes"]), (&0.into(), &true.into(), &0.into()));
    }
    assert_eq!(owner_of(&store, sent.conversation).await, owner);
    assert_eq!(b.answer(&b.say_in(sent.conversation, "and again").await).await, "here");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

/// Either the start of the skill is refused, or the log has it and another process has reported the outcome as unknown.
#[tokio::test(start_paused = true)]
async fn once_skill_is_not_begun_by_a_node_frozen_for_longer_than_its_lease() {
    for side in [StoreSide::Before, StoreSide::After] {
        let (store, limits) = (MemoryStore::new(), LeaseLimits { lease_ms: 2_000, renew_ms: 500 });
        let is_mark = |append: &Append| append.events.iter().any(|e| matches!(e.body, EventBody::SkillStarted { .. }));
        let at = move |point: &StorePoint<'_>, now: StoreSide| {
            now == side && matches!(point, StorePoint::Commit(batch) if batch.iter().any(is_mark))
        };
        let (cold, is_frozen) = freezing(&store, at);
        let start = async |seed, store: MemoryStore| {
            let mut parts = calling("test.send");
            (parts.store, parts.env, parts.node) = (Arc::new(store), env::env(seed), node(seed));
            parts.limits.lease = limits;
            (parts.start().await, parts)
        };
        let (here, here_parts) = start(7, store.clone()).await;
        let (owner, owner_parts) = start(8, cold).await;
        let sent = owner.say("send it").await;
        eventually("the process is frozen", async || is_frozen.borrow().then_some(())).await;
        let end = tokio::time::timeout(TAKEOVER, here.final_of(sent.conversation, sent.task)).await;
        let end = end.expect("another process continues");
        is_frozen.send_replace(false);
        eventually("the node holds a new lease", async || (lease_of(&owner).await["losses"] == 1).then_some(())).await;
        sleep_for_ms(60_000).await;
        assert_eq!(
            owner_parts.skills.count("test.send"),
            0,
            "the skill began with an expired lease, {side:?} its mark"
        );
        let log = here.log(sent.conversation).await;
        check_log(&log);
        let outcomes: Vec<Status> = log
            .iter()
            .filter_map(|e| {
                let EventBody::SkillFinished { outcome, .. } = &e.body else { return None };
                Some(outcome.status)
            })
            .collect();
        let is_known = side == StoreSide::Before;
        assert_eq!(here_parts.skills.count("test.send"), u32::from(is_known), "{end:?}");
        assert_eq!(outcomes, [if is_known { Status::Success } else { Status::Unknown }], "{end:?}");
        for world in [here, owner] {
            world.kernel.stop().await;
        }
    }
}

/// The log says that the round began, so no other process begins it. In fact it did not begin, and its outcome is
/// reported to the user as unknown.
#[tokio::test(start_paused = true)]
async fn agentic_round_is_not_begun_by_a_node_frozen_for_longer_than_its_lease() {
    let (store, limits) = (MemoryStore::new(), LeaseLimits { lease_ms: 2_000, renew_ms: 500 });
    let is_mark = |append: &Append| append.events.iter().any(|e| matches!(e.body, EventBody::RoundBegan { .. }));
    let at = move |point: &StorePoint<'_>, side: StoreSide| {
        side == StoreSide::After && matches!(point, StorePoint::Commit(batch) if batch.iter().any(is_mark))
    };
    let (cold, is_frozen) = freezing(&store, at);
    let start = async |seed, store: MemoryStore| {
        let model = Arc::new(ScriptedModel::saying("the program did it"));
        let mut parts = WorldParts::with_model(model.clone());
        (parts.store, parts.env, parts.node, parts.acts) = (Arc::new(store), env::env(seed), node(seed), true);
        parts.limits.lease = limits;
        (parts.start().await, model)
    };
    let (here, here_model) = start(7, store.clone()).await;
    let (owner, owner_model) = start(8, cold).await;
    let sent = owner.say("do it").await;
    eventually("the process is frozen", async || is_frozen.borrow().then_some(())).await;
    let end = tokio::time::timeout(TAKEOVER, here.final_of(sent.conversation, sent.task)).await;
    let end = end.expect("another process continues");
    assert!(matches!(&end, EventBody::Failed { code, .. } if code == "model_in_doubt"), "{end:?}");
    is_frozen.send_replace(false);
    eventually("the node holds a new lease", async || (lease_of(&owner).await["losses"] == 1).then_some(())).await;
    sleep_for_ms(60_000).await;
    assert_eq!((owner_model.call_count(), here_model.call_count()), (0, 0), "the round began with an expired lease");
    check_log(&here.log(sent.conversation).await);
    for world in [here, owner] {
        world.kernel.stop().await;
    }
}
