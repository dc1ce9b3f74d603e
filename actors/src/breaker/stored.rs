//! Reads what is stored of a skill's breaker and of its runs, with a time limit.

use std::{future::Future, time::Duration};

use annie_core::{
    breaker::BreakerRow,
    ids::{IntentId, TaskId},
    ports::{IntentState, Store, StoreError},
};

use crate::tasks::caught;

/// Time limit of a store query, in milliseconds. Callers wait for the answer, and repeat the query.
const ASK_MS_MAX: u64 = 5_000;

/// Why a run could not begin: the store did not provide what must be known first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NotBegun {
    what: String,
    /// Whether the run may begin later, because the store is unavailable for now.
    pub is_passing: bool,
}

/// Runs a store query with a time limit.
async fn ask<T>(what: &str, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, NotBegun> {
    let away = |why: String| NotBegun { what: format!("{what}: {why}"), is_passing: true };
    match tokio::time::timeout(Duration::from_millis(ASK_MS_MAX), caught(call)).await {
        Ok(Ok(reply)) => reply.map_err(|e| NotBegun { is_passing: e.is_retryable(), ..away(e.to_string()) }),
        Ok(Err(panic)) => Err(away(panic)),
        Err(_) => Err(away(format!("no answer within {ASK_MS_MAX} ms"))),
    }
}

/// The breaker's row. A probe of the previous incarnation is lost with that incarnation.
pub(super) async fn row(store: &dyn Store, skill: String) -> Result<BreakerRow, NotBegun> {
    let row = ask("cannot read the breaker's row", store.breaker(skill)).await?;
    let mut row = row.unwrap_or_default();
    row.probe_lost();
    Ok(row)
}

/// Whether a run of a dead breaker had begun. If not, it never will, because its task died with the breaker.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn has_begun(store: &dyn Store, task: TaskId, intent: IntentId) -> Result<bool, NotBegun> {
    let intents = ask("cannot read what became of a run", store.intents(task)).await?;
    Ok(intents.iter().any(|i| i.id == intent && i.state != IntentState::Planned))
}
