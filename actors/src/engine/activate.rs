//! Activation: claim the conversation, read the log, take up what was open.

use std::{future::Future, time::Duration};

use annie_core::{
    event::{Event, EventBody, NewEvent, ResumeCause, Scope},
    ids::{AgentId, ConversationId, Seq, UserId},
    ports::{Claimed, Store, StoreError},
    turn::{Conversation, Deferral, STATE_VERSION, Turn},
};

use super::{Engine, EngineState, record};
use crate::{
    hub::Live,
    observe::{Context, NodeError},
    scheduler::{SchedulerMsg, StatusMsg},
};

/// Events read in one page.
const PAGE: u32 = 500;

/// Time limit of one call of the store, in milliseconds; longer than the stores' own lock timeouts.
const CALL_MS_MAX: u64 = 15_000;

/// Runs a store call with a time limit.
pub(super) async fn ask<T>(
    what: &str,
    call: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, NodeError> {
    match tokio::time::timeout(Duration::from_millis(CALL_MS_MAX), call).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) if error.is_retryable() => Err(NodeError::deprived(format!("{what}: {error}"))),
        Ok(Err(error)) => Err(NodeError::new(format!("{what}: {error}"))),
        Err(_) => Err(NodeError::deprived(format!("{what}: no answer within {CALL_MS_MAX} ms"))),
    }
}

pub(super) async fn activate(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let (store, id) = (state.wiring.store.clone(), state.conv.id);
    let claim = match ctx.wait_for(ask("cannot claim the conversation", claim(state))).await? {
        Claimed::Ours(claim) => claim,
        // A wake-up for a conversation that has no events: nothing to do.
        Claimed::Unknown => return Ok(()),
        Claimed::Refused => {
            tracing::debug!(conversation = %id, "a live node owns the conversation");
            state.fenced = true;
            ctx.stop();
            return Ok(());
        }
    };
    ctx.fault_point("claimed").await?;
    state.epoch = claim.epoch;
    let folded = ctx.wait_for(fold(store.as_ref(), id, state.conv.user.clone())).await?;
    (state.conv, state.snapshot_at, state.read_at_birth) = (folded.conv, folded.snapshot_at, folded.tail.len());
    state.read_to = state.conv.seq;
    // The previous owner may have stored an event and died before the listeners were notified.
    state.wiring.hub.publish(id, Live::Unsure);
    notify_scheduler(state);
    ctx.fault_point("folded").await?;
    // A suspended turn had no part in the crash.
    let resumed = state.cause.into_iter().flat_map(|cause| {
        let turns = state.conv.turns.iter().filter(|t| !t.control.is_suspended);
        let is_bystander = |turn: &Turn| state.blamed.is_some_and(|blamed| !turn.works_on(blamed));
        turns.map(move |turn| match cause {
            ResumeCause::Crash if is_bystander(turn) => (turn.task, ResumeCause::Bystander),
            cause => (turn.task, cause),
        })
    });
    let at = ctx.now();
    let events = resumed.map(|(task, cause)| NewEvent {
        at,
        task,
        agent: AgentId::orchestrator(),
        body: EventBody::Resumed { cause },
    });
    let events = events.collect();
    record::record_all(ctx, state, events).await
}

/// Claims the conversation; from a live node only if `takes_over` is set.
async fn claim(state: &EngineState) -> Result<Claimed, StoreError> {
    let (store, by) = (&state.wiring.store, state.wiring.lease.incarnation());
    if !state.takes_over {
        return store.claim_free(state.conv.id, by).await;
    }
    Ok(store.claim(state.conv.id, by).await?.map_or(Claimed::Unknown, Claimed::Ours))
}

/// Notifies the Scheduler of what is stored. The log writer does that after each commit, but may have died before it did.
fn notify_scheduler(state: &EngineState) {
    let tell = |news| state.wiring.scheduler.tell(news);
    for task in &state.conv.finished {
        tell(SchedulerMsg::Status(StatusMsg::Ended { task: *task }));
    }
    let turns = state.conv.turns.iter().map(|t| (t.task, t.control.is_suspended, Some(t.deferral), t.inbound.priority));
    let inbox = state.conv.inbox.iter().map(|p| (p.task, p.is_suspended, None, p.inbound.priority));
    for (task, held, deferral, priority) in turns.chain(inbox) {
        tell(SchedulerMsg::Status(StatusMsg::Hold { task, held }));
        tell(SchedulerMsg::Status(StatusMsg::Reprioritise { task, priority }));
        if let Some(Deferral { until: Some(until), after_failure, .. }) = deferral {
            tell(SchedulerMsg::Status(StatusMsg::Defer { task, until, after_failure }));
        }
    }
}

/// A conversation as folded from the log.
pub(super) struct Folded {
    pub conv: Conversation,
    /// The sequence number of the snapshot with which the fold began.
    pub snapshot_at: Seq,
    /// The events after the snapshot.
    pub tail: Vec<Event>,
}

/// Folds a conversation's log, from its last snapshot on.
pub(super) async fn fold(store: &dyn Store, id: ConversationId, user: UserId) -> Result<Folded, NodeError> {
    let snapshot = ask("cannot read the snapshot", store.snapshot(id)).await?;
    let known = snapshot.filter(|s| s.v == STATE_VERSION).and_then(|s| match serde_json::from_str(&s.state) {
        Ok(conv) => Some((conv, s.seq)),
        Err(e) => {
            // The log has everything; a snapshot only saves time.
            tracing::warn!(conversation = %id, error = %e, "unreadable snapshot, reading the whole log");
            None
        }
    });
    let (mut conv, snapshot_at): (Conversation, Seq) =
        known.unwrap_or_else(|| (Conversation::new(id, user.clone()), Seq(0)));
    let tail = read_after(store, id, &user, conv.seq).await?;
    for event in &tail {
        conv.apply(event);
    }
    Ok(Folded { conv, snapshot_at, tail })
}

/// Reads all events after a sequence number.
pub(super) async fn read_after(
    store: &dyn Store,
    id: ConversationId,
    user: &UserId,
    mut after: Seq,
) -> Result<Vec<Event>, NodeError> {
    let mut all = Vec::new();
    loop {
        let page = store.events(Scope::User(user.clone()), id, after, PAGE);
        let page = ask("cannot read the log", page).await?;
        let full = page.len() == PAGE as usize;
        after = page.last().map_or(after, |e| e.seq);
        all.extend(page);
        if !full {
            return Ok(all);
        }
    }
}

/// The part of the log after `read_to`.
pub(super) struct Read {
    pub messages: Vec<Event>,
    /// The sequence number of the last event.
    pub to: Seq,
}

/// Reads the messages after `read_to`.
pub(super) async fn received_since(ctx: &Context<Engine>, state: &EngineState) -> Result<Read, NodeError> {
    let store = state.wiring.store.clone();
    let read = read_after(store.as_ref(), state.conv.id, &state.conv.user, state.read_to);
    let mut messages = ctx.wait_for(read).await?;
    let to = messages.last().map_or(state.read_to, |event| event.seq);
    messages.retain(|e| matches!(e.body, EventBody::Received(_)));
    Ok(Read { messages, to })
}
