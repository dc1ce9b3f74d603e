//! What is stored of a skill's breaker and of a run behind it, asked within a time.

use std::{future::Future, time::Duration};

use annie_core::{
    breaker::BreakerRow,
    ids::{IntentId, TaskId},
    ports::{IntentState, Store, StoreError},
};

use crate::tasks::caught;

/// How long the store may take to answer, in milliseconds. Callers wait for it, and ask again.
const ASK_MS_MAX: u64 = 5_000;

/// Why a run could not begin: the store does not say what has to be known first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NotBegun {
    what: String,
    /// Whether it may begin later: the store is away for now.
    pub is_passing: bool,
}

/// Asks the store, within a time.
async fn ask<T>(what: &str, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, NotBegun> {
    let away = |why: String| NotBegun { what: format!("{what}: {why}"), is_passing: true };
    match tokio::time::timeout(Duration::from_millis(ASK_MS_MAX), caught(call)).await {
        Ok(Ok(said)) => said.map_err(|e| NotBegun { is_passing: e.is_retryable(), ..away(e.to_string()) }),
        Ok(Err(panic)) => Err(away(panic)),
        Err(_) => Err(away(format!("no answer within {ASK_MS_MAX} ms"))),
    }
}

/// The breaker's row. The probe of a former life is lost with it.
pub(super) async fn row(store: &dyn Store, skill: String) -> Result<BreakerRow, NotBegun> {
    let row = ask("cannot read the breaker's row", store.breaker(skill)).await?;
    let mut row = row.unwrap_or_default();
    row.probe_lost();
    Ok(row)
}

/// Whether a run behind a door that is gone had begun. If not it never will: its task is gone with the door.
///
/// # Errors
/// If the store does not say.
pub(crate) async fn has_begun(store: &dyn Store, task: TaskId, intent: IntentId) -> Result<bool, NotBegun> {
    let intents = ask("cannot read what became of a run", store.intents(task)).await?;
    Ok(intents.iter().any(|i| i.id == intent && i.state != IntentState::Planned))
}
