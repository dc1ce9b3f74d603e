//! Other processes on the same database: who owns a conversation whose Engine was shut out, what they have stored for those
//! that are owned here, and what is left of those that are dead.

use std::{collections::BTreeMap, future::Future, time::Duration};

use annie_core::{
    event::Scope,
    ids::{ConversationId, Incarnation, NodeIncarnation, UserId},
    ports::{Before, Store, StoreError},
};

use super::{
    Conversations, ConversationsMsg, ConversationsState, DEPRIVED_MS_MAX, DEPRIVED_MS_MIN, Work, quarantine,
    room::{come_back, make_room},
    scan::{broken, scan},
    start_again, steady,
};
use crate::{engine::EngineMsg, hub::Live, observe::Context, scheduler::SchedulerMsg, tasks::caught};

/// How long the store may take to say whose a conversation is, in milliseconds.
const WHOSE_MS_MAX: u64 = 5_000;
/// From one hint of other processes to the next that is heeded, in milliseconds.
const WOKEN_MS_MIN: u64 = 100;
/// From a hint to the look which conversations are another's now, in milliseconds: one look for many hints.
const LOOK_MS: u64 = 1_000;
/// From one look for what dead processes left, or what was left unclaimed, to the next, in milliseconds: both are looked for
/// at once when a process is found dead, and this makes up for what was missed.
const LEFT_MS: u64 = 60_000;
/// Conversations among which it is looked for those that others have taken over lately: the newest of all.
const NEWEST_MAX: u32 = 500;

/// Who owns a conversation whose Engine was shut out, or was refused its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This process: only a former life of it shut the Engine out.
    Ours,
    /// Another process that lives.
    Anothers,
    /// A process that is dead.
    Nobodys,
    /// That is not this process's business: it was declared dead itself.
    Unknown,
}

/// What the store says of the conversations that are awake here: those that another process has now, by the life that does not
/// know of it.
#[derive(Debug, Default)]
pub struct Looked(Vec<(ConversationId, Incarnation)>);

/// Asks the store, within a time.
async fn ask<T>(what: &'static str, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(Duration::from_millis(WHOSE_MS_MAX), caught(call)).await {
        Ok(Ok(said)) => said,
        Ok(Err(panic)) => Err(broken(what, panic)),
        Err(_) => Err(broken(what, format!("no answer within {WHOSE_MS_MAX} ms"))),
    }
}

/// Asks who shut an Engine out. Until that is known it is not started, unless something arrives for it here.
pub(super) fn ask_whose(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    wait_ms: u64,
) {
    let (store, by, me) = (state.wiring.store.clone(), state.wiring.lease.incarnation(), ctx.me());
    state.tasks.spawn(Work::Whose(conversation), async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let whose = ask("conversation", whose(store.as_ref(), by, conversation)).await;
        me.tell(ConversationsMsg::Fenced { conversation, whose });
    });
}

async fn whose(store: &dyn Store, me: NodeIncarnation, conversation: ConversationId) -> Result<Whose, StoreError> {
    let owner = store.conversation(Scope::Operator, conversation).await?.and_then(|row| row.owner);
    let nodes = if store.is_shared() { store.nodes().await? } else { Vec::new() };
    let lives = |node| nodes.iter().any(|row| row.incarnation == node && row.ended_at.is_none());
    Ok(match owner {
        _ if store.is_shared() && !lives(me) => Whose::Unknown,
        None => Whose::Ours,
        Some(owner) if owner == me => Whose::Ours,
        // A data folder whose lock was lost: two that claimed from each other would get nothing done.
        Some(_) if !store.is_shared() => Whose::Anothers,
        Some(owner) if lives(owner) => Whose::Anothers,
        Some(_) => Whose::Nobodys,
    })
}

/// What a living process owns is left to it: it hears of the messages that came here. What shut an Engine out of this very
/// process was the last breath of a life before it, whose parent was killed: then it goes on, as after a death.
pub(super) async fn fenced(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    whose: Result<Whose, StoreError>,
) {
    state.tasks.remove(&Work::Whose(conversation));
    let Some(seat) = state.seats.get_mut(&conversation).filter(|seat| seat.addr.is_none()) else { return };
    match whose {
        Ok(Whose::Ours) => {
            if !start_again(ctx, state, conversation).await {
                quarantine(ctx, state, conversation);
                make_room(ctx, state).await;
            }
        }
        Ok(whose) => {
            metrics::counter!("annie_conversations_lost_total").increment(1);
            tracing::info!(%conversation, ?whose, "another process owns the conversation now");
            state.seats.remove(&conversation);
            if whose == Whose::Nobodys {
                doubt(ctx, state, conversation);
            }
            make_room(ctx, state).await;
        }
        Err(error) => {
            tracing::warn!(%conversation, %error, "it is not known who owns a conversation now");
            let wait_ms = seat.waits.died(ctx.now()).unwrap_or(DEPRIVED_MS_MAX);
            ask_whose(ctx, state, conversation, wait_ms.clamp(DEPRIVED_MS_MIN, DEPRIVED_MS_MAX));
        }
    }
}

/// Takes a conversation up if something is open in it that this process may go on with.
fn doubt(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    state.wanted.doubted.insert(conversation);
    scan(ctx, state);
}

/// A life left something open when it left memory. That is no message for this process: if another one has taken the
/// conversation over meanwhile, it goes on there.
pub(super) async fn unfinished(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    match state.seats.get_mut(&conversation) {
        Some(seat) if seat.is_elsewhere => doubt(ctx, state, conversation),
        Some(seat) => {
            // Where nobody lives yet, whoever comes reads the log.
            if seat.addr.as_ref().is_some_and(|addr| addr.tell(EngineMsg::Wake(None))) {
                seat.wakes_sent += 1;
            }
        }
        None => come_back(ctx, state, conversation, user).await,
    }
}

/// Listens for what other processes store. The pause makes one hint of many.
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

/// Another process has stored something. What it says in a conversation that is not awake here is announced by nobody else.
pub(super) fn heard(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    let is_here =
        |id: ConversationId| state.seats.get(&id).is_some_and(|seat| seat.addr.is_some() && !seat.is_elsewhere);
    state.wiring.hub.unsure_of(|conversation| !is_here(conversation));
    // What they ended keeps no place here, and nobody waits for it. If nobody lives there, its next life reads the table.
    state.wiring.scheduler.tell(SchedulerMsg::Woken);
    if state.tasks.contains(&Work::Look) {
        state.look_again = true;
    } else {
        look(ctx, state);
    }
    let now = steady(ctx);
    let is_time = state.all_at.is_some_and(|at| now.since_ms(at) >= LEFT_MS);
    state.wanted.ours = true;
    state.wanted.claimed |= is_time;
    scan(ctx, state);
}

/// A process is dead, and what is open of it is anybody's: each of those that live takes what it is first to claim. It may
/// also have died between taking a message in and claiming its conversation.
pub(super) fn nodes_ended(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.wanted.all = true;
    scan(ctx, state);
}

/// Looks which conversations that are awake here another process has taken over.
fn look(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    state.look_again = false;
    let awake = state.seats.iter().filter_map(|(id, seat)| Some((*id, seat.addr.as_ref()?.incarnation)));
    let awake: BTreeMap<ConversationId, Incarnation> = awake.collect();
    if awake.is_empty() {
        return;
    }
    let (store, by, me) = (state.wiring.store.clone(), state.wiring.lease.incarnation(), ctx.me());
    state.tasks.spawn(Work::Look, async move {
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        let newest = ask("conversations", store.conversations(Scope::Operator, Before::NEWEST, NEWEST_MAX)).await;
        let elsewhere = newest.map(|rows| {
            let others = rows.into_iter().filter(|row| row.owner.is_some_and(|owner| owner != by));
            Looked(others.filter_map(|row| Some((row.id, *awake.get(&row.id)?))).collect())
        });
        me.tell(ConversationsMsg::Looked(elsewhere));
    });
}

/// A life that was shut out is left to find that out, or to leave memory; the next message for it goes to a new one.
pub(super) fn looked(ctx: &Context<Conversations>, state: &mut ConversationsState, seen: Result<Looked, StoreError>) {
    state.tasks.remove(&Work::Look);
    let Looked(elsewhere) = seen.unwrap_or_else(|error| {
        tracing::warn!(%error, "it is not known what other processes did");
        state.look_again = true;
        Looked::default()
    });
    for (conversation, incarnation) in elsewhere {
        let Some(seat) = state.seats.get_mut(&conversation) else { continue };
        if seat.addr.as_ref().is_some_and(|addr| addr.incarnation == incarnation) && !seat.is_elsewhere {
            seat.is_elsewhere = true;
            state.wiring.hub.publish(conversation, Live::Unsure);
        }
    }
    if state.look_again {
        look(ctx, state);
    }
}
