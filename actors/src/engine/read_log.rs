//! Reading the log of the Engine's conversation.

use std::{future::Future, time::Duration};

use annie_core::{
    event::{Event, EventBody, Scope},
    ids::{ConversationId, Seq, UserId},
    ports::{Store, StoreError},
    turn::{Conversation, STATE_VERSION},
};

use super::state::{Engine, EngineState, fold_message, mark_known_up_to};
use crate::observe::{Context, NodeError};

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
    let usable = snapshot.filter(|s| s.v == STATE_VERSION);
    let known = match &usable {
        Some(kept) => is_in_log(store, id, kept.seq).await?.then(|| Conversation::of_snapshot(kept, id, &user)),
        None => None,
    };
    let known = known.and_then(|read| match read {
        Ok(conv) => {
            let seq = conv.seq;
            Some((conv, seq))
        }
        Err(error) => {
            // The log has everything; a snapshot only saves time.
            tracing::warn!(conversation = %id, error, "unusable snapshot, reading the whole log");
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

/// Whether the log has an event with this sequence number. A snapshot beyond the end of the log, such as after the loss of its last
/// events, contains what never happened.
async fn is_in_log(store: &dyn Store, id: ConversationId, seq: Seq) -> Result<bool, NodeError> {
    let row = ask("cannot read the conversation", store.conversation(Scope::Operator, id)).await?;
    let is_in_log = row.is_some_and(|row| seq <= row.last_seq);
    if !is_in_log {
        tracing::warn!(conversation = %id, %seq, "the snapshot is newer than the log, reading the whole log");
    }
    Ok(is_in_log)
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

/// Takes in messages that are in the log and for which no wake-up arrived.
pub(super) async fn read_new_messages(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let read = received_since(ctx, state).await?;
    for event in &read.messages {
        fold_message(state, event);
    }
    mark_known_up_to(state, read.to);
    Ok(())
}
