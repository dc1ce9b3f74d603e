//! Other nodes on the same database: who owns the conversation of a fenced Engine, what other nodes stored for conversations
//! owned here, and which open conversations dead nodes left behind.

use std::{collections::BTreeMap, future::Future, time::Duration};

use annie_core::{
    event::Scope,
    ids::{ConversationId, Incarnation, NodeIncarnation, UserId},
    ports::{Before, Store, StoreError},
};

use super::{
    Conversations, ConversationsMsg, ConversationsState, DEPRIVED_MS_MAX, DEPRIVED_MS_MIN, Work, quarantine,
    residency::{activate_again, activate_waiting},
    scan::{broken, scan},
    start_again, steady,
};
use crate::{
    engine::EngineMsg,
    hub::Live,
    observe::Context,
    scheduler::{SchedulerMsg, TableMsg},
    tasks::caught,
};

/// Time limit of one ownership query, in milliseconds.
const WHOSE_MS_MAX: u64 = 5_000;
/// Minimum interval between two hints of other nodes that are acted on, in milliseconds.
const WOKEN_MS_MIN: u64 = 100;
/// Delay from a hint to the check which conversations other nodes have claimed, in milliseconds: one check serves many
/// hints.
const LOOK_MS: u64 = 1_000;
/// Interval between two scans for conversations that dead nodes left or that no node has claimed, in milliseconds. Both are
/// scanned for at once when a node is declared dead; the periodic scan finds what was missed.
const LEFT_MS: u64 = 60_000;
/// How many conversations the ownership check reads: the most recently updated ones.
const NEWEST_MAX: u32 = 500;

/// The owner of a conversation whose Engine was fenced, or whose claim was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// This node: the Engine was fenced by an earlier incarnation of itself.
    Ours,
    /// Another live node.
    LiveNode,
    /// A dead node.
    DeadNode,
    /// Not to be decided by this process, because it was declared dead itself.
    Unknown,
}

/// The conversations active here that another node owns now, each with the incarnation of the Engine that does not know it.
#[derive(Debug, Default)]
pub struct Looked(Vec<(ConversationId, Incarnation)>);

/// Runs a store query with a time limit.
async fn ask<T>(what: &'static str, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(Duration::from_millis(WHOSE_MS_MAX), caught(call)).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(panic)) => Err(broken(what, panic)),
        Err(_) => Err(broken(what, format!("no answer within {WHOSE_MS_MAX} ms"))),
    }
}

/// Queries the owner of a fenced Engine's conversation. Until the answer arrives the Engine is not started, unless a message
/// arrives for it here.
pub(super) fn ask_owner(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    wait_ms: u64,
) {
    let (store, by, me) = (state.wiring.store.clone(), state.wiring.lease.incarnation(), ctx.me());
    state.tasks.spawn(Work::Ownership(conversation), async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let ownership = ask("conversation", ownership(store.as_ref(), by, conversation)).await;
        me.tell(ConversationsMsg::Fenced { conversation, ownership });
    });
}

async fn ownership(
    store: &dyn Store,
    me: NodeIncarnation,
    conversation: ConversationId,
) -> Result<Ownership, StoreError> {
    let owner = store.conversation(Scope::Operator, conversation).await?.and_then(|row| row.owner);
    let nodes = if store.is_shared() { store.nodes().await? } else { Vec::new() };
    let is_live = |node| nodes.iter().any(|row| row.incarnation == node && row.ended_at.is_none());
    Ok(match owner {
        _ if store.is_shared() && !is_live(me) => Ownership::Unknown,
        None => Ownership::Ours,
        Some(owner) if owner == me => Ownership::Ours,
        // On SQLite another owner means that the lock of the data folder was lost. Two processes claiming in turn would make
        // no progress.
        Some(_) if !store.is_shared() => Ownership::LiveNode,
        Some(owner) if is_live(owner) => Ownership::LiveNode,
        Some(_) => Ownership::DeadNode,
    })
}

/// A conversation that a live node owns is left to that node, which is notified of messages stored here. If this node is the
/// owner, an earlier incarnation whose parent was killed made a last write that fenced the Engine; the Engine is then
/// restarted as after a crash.
pub(super) async fn fenced(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    ownership: Result<Ownership, StoreError>,
) {
    state.tasks.remove(&Work::Ownership(conversation));
    let Some(child) = state.children.get_mut(&conversation).filter(|child| child.addr.is_none()) else { return };
    match ownership {
        Ok(Ownership::Ours) => {
            if !start_again(ctx, state, conversation).await {
                quarantine(ctx, state, conversation);
                activate_waiting(ctx, state).await;
            }
        }
        Ok(ownership) => {
            metrics::counter!("annie_conversations_lost_total").increment(1);
            tracing::info!(%conversation, ?ownership, "another node owns the conversation now");
            state.children.remove(&conversation);
            if ownership == Ownership::DeadNode {
                doubt(ctx, state, conversation);
            }
            activate_waiting(ctx, state).await;
        }
        Err(error) => {
            tracing::warn!(%conversation, %error, "cannot read the owner of a conversation, trying again");
            let wait_ms = child.waits.died(ctx.now()).unwrap_or(DEPRIVED_MS_MAX);
            ask_owner(ctx, state, conversation, wait_ms.clamp(DEPRIVED_MS_MIN, DEPRIVED_MS_MAX));
        }
    }
}

/// Takes up a conversation if it has open work that this node may continue.
fn doubt(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    state.wanted.doubted.insert(conversation);
    scan(ctx, state);
}

/// Handles open work that a passivating Engine left. This is not a message that arrived on this node: if another node has
/// claimed the conversation meanwhile, that node continues it.
pub(super) async fn unfinished(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    match state.children.get_mut(&conversation) {
        Some(child) if child.is_elsewhere => doubt(ctx, state, conversation),
        Some(child) => {
            // If no Engine runs yet, the next one reads the log when it activates.
            if child.addr.as_ref().is_some_and(|addr| addr.tell(EngineMsg::Wake(None))) {
                child.wakes_sent += 1;
            }
        }
        None => activate_again(ctx, state, conversation, user).await,
    }
}

/// Listens for hints that other nodes stored something. The pause merges many hints into one.
pub(super) fn listen(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let (store, me) = (state.wiring.store.clone(), ctx.me());
    state.tasks.spawn(Work::Listen, async move {
        loop {
            store.woken().await;
            me.tell(ConversationsMsg::Woken);
            tokio::time::sleep(Duration::from_millis(WOKEN_MS_MIN)).await;
        }
    });
}

/// Handles a hint that another node stored something. No local Engine announces events of conversations that are not active
/// here, so their listeners must read the log.
pub(super) fn on_hint(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let is_here =
        |id: ConversationId| state.children.get(&id).is_some_and(|child| child.addr.is_some() && !child.is_elsewhere);
    state.wiring.hub.unsure_of(|conversation| !is_here(conversation));
    // Tasks that other nodes ended must leave the queue here and unblock the tasks that wait for them. If the Scheduler is
    // down, its next incarnation reads the task table.
    state.wiring.scheduler.tell(SchedulerMsg::Table(TableMsg::Woken));
    if state.tasks.contains(&Work::CheckOwnership) {
        state.check_again = true;
    } else {
        check_ownership(ctx, state);
    }
    let now = steady(ctx);
    let is_scan_due = state.all_at.is_some_and(|at| now.since_ms(at) >= LEFT_MS);
    state.wanted.ours = true;
    state.wanted.claimed |= is_scan_due;
    scan(ctx, state);
}

/// Handles the death of a node. Every live node takes the dead node's open conversations that it is first to claim. The dead
/// node may also have stored a message without having claimed the conversation.
pub(super) fn nodes_ended(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.wanted.all = true;
    scan(ctx, state);
}

/// Checks which conversations active here another node has claimed.
fn check_ownership(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.check_again = false;
    let active = state.children.iter().filter_map(|(id, child)| Some((*id, child.addr.as_ref()?.incarnation)));
    let active: BTreeMap<ConversationId, Incarnation> = active.collect();
    if active.is_empty() {
        return;
    }
    let (store, by, me) = (state.wiring.store.clone(), state.wiring.lease.incarnation(), ctx.me());
    state.tasks.spawn(Work::CheckOwnership, async move {
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        let newest = ask("conversations", store.conversations(Scope::Operator, Before::NEWEST, NEWEST_MAX)).await;
        let elsewhere = newest.map(|rows| {
            let others = rows.into_iter().filter(|row| row.owner.is_some_and(|owner| owner != by));
            Looked(others.filter_map(|row| Some((row.id, *active.get(&row.id)?))).collect())
        });
        me.tell(ConversationsMsg::Looked(elsewhere));
    });
}

/// Marks the conversations that another node owns. Their Engines are left to notice the fence or to passivate; the next
/// message for such a conversation goes to a new Engine.
pub(super) fn looked(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    checked: Result<Looked, StoreError>,
) {
    state.tasks.remove(&Work::CheckOwnership);
    let Looked(elsewhere) = checked.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read which conversations other nodes own, trying again");
        state.check_again = true;
        Looked::default()
    });
    for (conversation, incarnation) in elsewhere {
        let Some(child) = state.children.get_mut(&conversation) else { continue };
        if child.addr.as_ref().is_some_and(|addr| addr.incarnation == incarnation) && !child.is_elsewhere {
            child.is_elsewhere = true;
            state.wiring.hub.publish(conversation, Live::Unsure);
        }
    }
    if state.check_again {
        check_ownership(ctx, state);
    }
}
