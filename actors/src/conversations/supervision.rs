//! Supervision of the Engines: each is restarted within its own budget. A conversation whose Engine dies too often is
//! quarantined: it is stopped, shown to operators, and resumable. Nothing here depends on which Engines are in memory.

use std::time::Duration;

use annie_core::{
    event::ResumeCause,
    ids::{ConversationId, Seq, UserId},
};

use super::{
    messages::{ConversationsMsg, SupervisionMsg},
    state::{Conversations, ConversationsState, Work, new_child},
};
use crate::{
    engine::{AtWork, Engine, EngineArgs},
    fail_open::fail_open_turns,
    observe::Context,
    orders::OrderKind,
    ownership::read_owner,
    supervise::stop_child,
    tasks::caught,
};

/// Delay before the next attempt after an Engine could not be spawned, in milliseconds.
const START_AGAIN_MS: u64 = 200;
/// Minimum and maximum back-off of an Engine that stopped because the store was unavailable, in milliseconds.
const DEPRIVED_MS_MIN: u64 = 20;
const DEPRIVED_MS_MAX: u64 = 2_000;
/// Wait before a conversation is resumed whose failures could not be stored, in milliseconds.
const RESUME_DELAY_MS: u64 = 1_000;
/// How long an Engine may take to stop before it is killed, because an operator quarantines its conversation, in milliseconds.
const STOP_MS_MAX: u64 = 2_000;

/// Restarts an Engine after the wait that its budget asks for. Returns false if the budget is used up.
pub(super) async fn start_again(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
) -> bool {
    let Some(child) = state.children.get_mut(&conversation) else { return true };
    metrics::counter!("annie_actor_restarts_total", "kind" => "engine").increment(1);
    ctx.system.directory.pulse.actor_restarted(ctx.now());
    match child.budget.died(ctx.now()) {
        Some(0) => start(ctx, state, conversation).await,
        Some(wait_ms) => start_later(ctx, state, conversation, wait_ms),
        None => return false,
    }
    true
}

pub(super) async fn start(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    let Some(child) = state.children.get_mut(&conversation) else { return };
    let (user, cause, blamed) = (child.user.clone(), child.cause, child.blamed);
    child.at_work = AtWork::after(blamed);
    let at_work = child.at_work.clone();
    let takes_over = std::mem::take(&mut child.takes_over);
    let (wiring, opening) = (state.wiring.clone(), child.opening.take());
    let args = EngineArgs { wiring, conversation, user, cause, blamed, at_work, takes_over, opening };
    match ctx.spawn::<Engine>(&format!("engine:{conversation}"), args).await {
        Ok(addr) => {
            state.cells.insert(addr.cell.get_id(), conversation);
            child.wakes_sent = 0;
            (child.notified_seq, child.is_elsewhere) = (Seq(0), false);
            (child.cause, child.blamed) = (None, None);
            child.addr = Some(addr);
        }
        Err(e) => {
            tracing::warn!(%conversation, error = %e, "engine did not start");
            start_later(ctx, state, conversation, START_AGAIN_MS);
        }
    }
}

pub(super) fn start_later(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    wait_ms: u64,
) {
    let me = ctx.me();
    state.tasks.spawn(Work::Backoff(conversation), async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        me.tell(ConversationsMsg::Supervision(SupervisionMsg::StartAgain(conversation)));
    });
}

/// The back-off of an Engine that ended because the store was unavailable, in milliseconds. It is not charged to the restart
/// budget.
pub(super) fn deprived_ms(ctx: &Context<Conversations>, state: &mut ConversationsState, id: ConversationId) -> u64 {
    let waits = state.children.get_mut(&id).map(|child| &mut child.waits);
    let wait_ms = waits.and_then(|waits| waits.died(ctx.now())).unwrap_or(DEPRIVED_MS_MAX);
    wait_ms.clamp(DEPRIVED_MS_MIN, DEPRIVED_MS_MAX)
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
    state.tasks.spawn(Work::Owner(conversation), async move {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let owner = read_owner(store.as_ref(), by, conversation).await;
        me.tell(ConversationsMsg::Supervision(SupervisionMsg::Fenced { conversation, owner }));
    });
}

/// Quarantines a conversation whose restart budget is used up, and turns its open work into visible failures.
pub(super) fn quarantine(ctx: &Context<Conversations>, state: &mut ConversationsState, conversation: ConversationId) {
    let Some(child) = state.children.remove(&conversation) else { return };
    tracing::error!(%conversation, "the Engine exceeded its restart budget, the conversation is quarantined");
    metrics::counter!("annie_conversations_quarantined_total").increment(1);
    state.quarantine.insert(conversation, child.user);
    quarantine_open(ctx, state, conversation);
}

/// Quarantines a conversation because of the order of an operator: stops its Engine, and turns its open work into visible failures.
pub(super) async fn quarantine_by_order(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    user: UserId,
) {
    // Removed before the Engine ends, so that its end starts no other one.
    let child = state.children.remove(&conversation);
    state.tasks.remove(&Work::Backoff(conversation));
    if let Some(engine) = child.and_then(|child| child.addr) {
        state.cells.remove(&engine.cell.get_id());
        stop_child(&engine.cell, Duration::from_millis(STOP_MS_MAX)).await;
    }
    metrics::counter!("annie_conversations_quarantined_total").increment(1);
    state.quarantine.insert(conversation, user);
    quarantine_open(ctx, state, conversation);
}

/// Fails the open turns of a quarantined conversation: when it enters quarantine, and when a new message arrives for it.
pub(super) fn quarantine_open(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
) {
    let Some(user) = state.quarantine.get(&conversation).cloned() else { return };
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    state.tasks.spawn(Work::FailOpen(conversation), async move {
        let outcome = caught(fail_open_turns(&wiring, conversation, &user)).await.unwrap_or_else(Err);
        if outcome.is_err() {
            tokio::time::sleep(Duration::from_millis(RESUME_DELAY_MS)).await;
        }
        me.tell(ConversationsMsg::Supervision(SupervisionMsg::Quarantined { conversation, outcome }));
    });
}

/// Handles the result of failing the open turns. If the store cannot take the failures, it probably caused the crashes as
/// well, so the conversation leaves quarantine and is tried again.
pub(super) async fn quarantined(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    conversation: ConversationId,
    outcome: Result<(), String>,
) {
    state.tasks.remove(&Work::FailOpen(conversation));
    let Err(why) = outcome else { return };
    if state.wiring.leases.orders().find(OrderKind::Quarantine, &conversation.to_string()).is_some() {
        tracing::warn!(%conversation, why, "cannot store the failures of a quarantined conversation, trying again");
        return quarantine_open(ctx, state, conversation);
    }
    let Some(user) = state.quarantine.remove(&conversation) else { return };
    tracing::warn!(%conversation, why, "cannot store the failures of a quarantined conversation, resuming it");
    state.children.insert(conversation, new_child(user, Some(ResumeCause::Crash), 0));
    start(ctx, state, conversation).await;
}
