//! Long-running operations as doors see them (S3 6.5): what is awaited, the key of one, and the result that comes.

use annie_core::{
    event::Scope,
    ids::{OperationId, UserId},
    outcome::Outcome,
    ports::{OperationGrant, OperationRow},
    time::Micros,
};
use serde_json::Value;

use super::{Kernel, KernelError, PAGE_MAX, Submitted};
use crate::{expiry::about, letters::message_of};

/// What came of an operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperationResult {
    /// Whether it worked.
    pub ok: bool,
    /// What is told: together with the data at most [`OperationResult::BYTES_MAX`] bytes.
    pub text: String,
    /// What belongs to it, for the model; null for nothing.
    pub data: Value,
}

impl OperationResult {
    /// The longest result, in bytes: as much as a skill's outcome may have.
    pub const BYTES_MAX: usize = Outcome::DATA_BYTES_MAX;

    /// The message that it becomes.
    fn told(&self, row: &OperationRow) -> Result<String, KernelError> {
        let data = if self.data.is_null() { String::new() } else { format!("\n{}", self.data) };
        let body = format!("{}{data}", self.text.trim());
        if body.trim().is_empty() {
            return Err(KernelError::Invalid("the result is empty: say in `text` what came of it".to_owned()));
        }
        if body.len() > Self::BYTES_MAX {
            let (len, max) = (body.len(), Self::BYTES_MAX);
            let why = format!("the result has {len} bytes, and at most {max} are allowed: say where the rest is");
            return Err(KernelError::Invalid(why));
        }
        let how = if self.ok { "has finished" } else { "has failed" };
        Ok(format!("[The {} that was started earlier (operation {}) {how}]\n{body}", row.skill, row.id))
    }
}

impl Kernel {
    /// Takes in the result of an operation: it becomes a message in the conversation that the operation was started in,
    /// and its user is told of the answer. The same result again is acknowledged again.
    ///
    /// # Errors
    /// `NotFound` if there is no such operation or the key is not its key, or nothing of it is stored yet; `Stale` if
    /// its time is up, or it had another result; otherwise as [`Kernel::submit`].
    pub async fn finish_operation(
        &self,
        id: OperationId,
        key: &str,
        result: OperationResult,
    ) -> Result<Submitted, KernelError> {
        if !self.wiring.operations.fits(id, key) {
            return Err(KernelError::NotFound("operation"));
        }
        let row = self.operation(Scope::Operator, id).await?;
        let text = result.told(&row)?;
        if row.closed_by.is_none() {
            if row.expires_at <= self.now() {
                return Err(expired(&row));
            }
            match self.submit(about(&self.wiring, &row, text.clone()).await?).await {
                // Somebody was faster: with the same, with another result, or with the end of its time.
                Err(KernelError::Conflict { .. }) => {}
                taken => return taken,
            }
        }
        let row = self.operation(Scope::Operator, id).await?;
        let task = row.closed_by.ok_or_else(|| {
            KernelError::Unavailable("the operation is being closed; send the result again".to_owned())
        })?;
        let first = message_of(self.wiring.store.as_ref(), row.conversation, task).await?;
        match first {
            Some(first) if first.inbound.text == text => {
                Ok(Submitted::repeat(task, row.conversation, first.seq, first.inbound.priority))
            }
            _ if row.closed_at.is_some_and(|at| at >= row.expires_at) => Err(expired(&row)),
            _ => Err(KernelError::Stale(format!("operation {id} has had another result already"))),
        }
    }

    /// An operation.
    ///
    /// # Errors
    /// If there is none that the scope sees.
    pub async fn operation(&self, scope: Scope, id: OperationId) -> Result<OperationRow, KernelError> {
        self.wiring.store.operation(scope, id).await?.ok_or(KernelError::NotFound("operation"))
    }

    /// Operations started before an instant, newest first; only those that are awaited if `open`.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn operations(
        &self,
        scope: Scope,
        open: bool,
        before: Micros,
        limit: u32,
    ) -> Result<Vec<OperationRow>, KernelError> {
        Ok(self.wiring.store.operations(scope, open, before, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// What whoever brings an operation's result needs: the path and the key, a secret. For its owner alone.
    ///
    /// # Errors
    /// If the user has no such operation, or it is not awaited any more.
    pub async fn operation_key(&self, user: &UserId, id: OperationId) -> Result<OperationGrant, KernelError> {
        let row = self.operation(Scope::User(user.clone()), id).await?;
        if row.closed_by.is_some() {
            return Err(KernelError::Stale(format!("operation {id} has ended: its key opens nothing any more")));
        }
        Ok(self.wiring.operations.of(row.id))
    }
}

fn expired(row: &OperationRow) -> KernelError {
    KernelError::Stale(format!(
        "operation {} brought no result in time: it was awaited until {}",
        row.id, row.expires_at
    ))
}
