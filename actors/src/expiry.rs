//! Expiry of long-running operations: their conversation gets the message that no result came in time.
//!
//! Owns: when the next operation expires. Supervised by: infra. Survives its death: the operations, which are folded from
//! the log. The message has the same id as the one that a result would have brought, so that only one of the two is stored.

use std::sync::Arc;

use annie_core::{
    event::Priority,
    inbound::OPERATION,
    ports::{OperationRow, StoreError},
    time::Micros,
};
use serde_json::{Map, Value};

use crate::{
    due_timer::Blocked,
    kernel::{KernelError, Submission, accept_message},
    observe::Branch,
    task_log::message_of,
    wiring::Wiring,
    worker::{Chore, Pass, wait_for},
};

/// Operations that are read at once.
const OPERATIONS_MAX: u32 = 100;

/// The chore of the worker for operations that expire.
pub(crate) struct Expiry {
    expired: u64,
}

impl Chore for Expiry {
    const KIND: &'static str = "expiry";
    const SUBJECT: &'static str = "the operations";
    type Config = ();
    type Hint = ();
    type Batch = ();
    /// How many operations have expired.
    type Done = u64;

    fn new((): (), _wiring: Arc<Wiring>, _owner: Branch) -> Self {
        Self { expired: 0 }
    }

    fn take_hint(&mut self, (): ()) -> u64 {
        0
    }

    fn batch(&mut self) {}

    async fn pass(wiring: &Wiring, (): &()) -> Result<Pass<u64>, String> {
        process_due(wiring).await.map_err(|error| error.to_string())
    }

    fn passed(&mut self, expired: u64) {
        self.expired += expired;
    }

    fn view(&self) -> Map<String, Value> {
        [("expired".to_owned(), self.expired.into())].into_iter().collect()
    }
}

/// Stores a message for every operation that has expired.
async fn process_due(wiring: &Wiring) -> Result<Pass<u64>, StoreError> {
    let mut expired = 0;
    let mut blocked = Blocked::new();
    loop {
        let rows = blocked.rows(OPERATIONS_MAX);
        let due = wiring.store.expiring_operations(wiring.env.now(), rows).await?;
        let is_last = due.len() < rows as usize;
        for row in due.into_iter().filter(|row| !blocked.has(&row.id)).collect::<Vec<_>>() {
            match expire(wiring, &row).await {
                Ok(()) => expired += 1,
                Err(error) => blocked.put(row.id, wait_for(wiring, row.id, &error)),
            }
        }
        if is_last || blocked.is_full() {
            break;
        }
    }
    let first = wiring.store.expiring_operations(Micros(i64::MAX), 1).await?;
    Ok(Pass { next: blocked.next(first.first().map(|row| row.expires_at)), done: expired })
}

async fn expire(wiring: &Wiring, row: &OperationRow) -> Result<(), KernelError> {
    let text = format!("[Operation {} of {} brought no result until {}.]", row.id, row.skill, row.expires_at);
    accept_message(wiring, about(wiring, row, text).await?).await?;
    metrics::counter!("annie_operations_expired_total").increment(1);
    Ok(())
}

/// The one message that an operation brings into its conversation, with the privacy and mode of the task that started it.
///
/// # Errors
/// If the store fails.
pub(crate) async fn about(wiring: &Wiring, row: &OperationRow, text: String) -> Result<Submission, StoreError> {
    let original = message_of(wiring.store.as_ref(), row.conversation, row.task).await?.map(|found| found.inbound);
    let mut message = Submission::new(row.user.clone(), OPERATION, text).within(row.conversation);
    message.client_id = Some(format!("{OPERATION}:{}", row.id));
    message.priority = Some(Priority::Normal);
    message.mode = original.as_ref().and_then(|inbound| inbound.mode);
    message.channel = original.as_ref().map(|inbound| inbound.channel().to_owned()).unwrap_or_default();
    message.reply_to = original.as_ref().and_then(|inbound| inbound.reply_to.clone());
    message.private = original.is_some_and(|inbound| inbound.private);
    message.verbatim = true;
    message.resumes = Some(row.id);
    Ok(message)
}
