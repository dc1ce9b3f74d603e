//! Which node owns a conversation, read from the store.

use std::{future::Future, time::Duration};

use annie_core::{
    event::Scope,
    ids::{ConversationId, NodeIncarnation},
    ports::{Store, StoreError, StoreErrorKind},
};

use crate::tasks::caught;

/// Time limit of one ownership query, in milliseconds.
const QUERY_MS_MAX: u64 = 5_000;

/// The owner of a conversation whose Engine was fenced, or whose claim was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This node: the Engine was fenced by an earlier incarnation of itself.
    ThisNode,
    /// Another live node.
    LiveNode,
    /// A dead node.
    DeadNode,
    /// Not to be decided by this process, because it was declared dead itself.
    Unknown,
}

/// Runs a store query with a time limit.
pub(super) async fn ask<T>(
    what: &'static str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(Duration::from_millis(QUERY_MS_MAX), caught(call)).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(panic)) => Err(broken(what, panic)),
        Err(_) => Err(broken(what, format!("no answer within {QUERY_MS_MAX} ms"))),
    }
}

pub(super) fn broken(what: &'static str, why: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Unavailable, what, detail: format!("the call failed: {why}") }
}

/// The owner of a conversation, as seen by the node `me`.
///
/// # Errors
/// If the store fails, or does not answer in time.
pub async fn read_owner(
    store: &dyn Store,
    me: NodeIncarnation,
    conversation: ConversationId,
) -> Result<Owner, StoreError> {
    ask("conversation", owner_in(store, me, conversation)).await
}

async fn owner_in(store: &dyn Store, me: NodeIncarnation, conversation: ConversationId) -> Result<Owner, StoreError> {
    let owner = store.conversation(Scope::Operator, conversation).await?.and_then(|row| row.owner);
    let nodes = if store.is_shared() { store.nodes().await? } else { Vec::new() };
    let is_live = |node| nodes.iter().any(|row| row.incarnation == node && row.ended_at.is_none());
    Ok(match owner {
        _ if store.is_shared() && !is_live(me) => Owner::Unknown,
        None => Owner::ThisNode,
        Some(owner) if owner == me => Owner::ThisNode,
        // On SQLite another owner means that the lock of the data folder was lost. Two processes claiming in turn would make
        // no progress.
        Some(_) if !store.is_shared() => Owner::LiveNode,
        Some(owner) if is_live(owner) => Owner::LiveNode,
        Some(_) => Owner::DeadNode,
    })
}
