//! Long-running operations as front ends see them: the open ones, the key of one, and the delivery of its result.

use annie_core::{
    event::Scope,
    ids::{OperationId, UserId},
    outcome::Outcome,
    ports::{Before, IntentRow, IntentState, OperationGrant, OperationRow, TaskRow},
    time::Micros,
};
use serde_json::Value;

use super::{Kernel, KernelError, PAGE_MAX, Submitted};
use crate::{expiry::about, task_log::message_of};

/// Tasks that are searched for the interrupted run that started an operation. Only a holder of a valid key can cause this
/// search.
const RUNS_TASKS_MAX: usize = 10_000;

/// The result of an operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperationResult {
    /// Whether the operation succeeded.
    pub ok: bool,
    /// The text of the result; together with `data` at most [`OperationResult::BYTES_MAX`] bytes.
    pub text: String,
    /// Structured data for the model; null for none.
    pub data: Value,
}

impl OperationResult {
    /// The longest result, in bytes: the limit of a skill's outcome.
    pub const BYTES_MAX: usize = Outcome::DATA_BYTES_MAX;

    /// The text of the message that the result becomes.
    fn message_text(&self, row: &OperationRow) -> Result<String, KernelError> {
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
    /// Takes in the result of an operation. The result becomes a message in the conversation that started the operation, and
    /// its user is notified of the answer. The same result again gets the same acknowledgement again.
    ///
    /// # Errors
    /// `NotFound` if there is no such operation or the key is not its key; `Unavailable` while the run that started it has
    /// no receipt; `Stale` if its time is up, or it had another result; otherwise as [`Kernel::submit`].
    pub async fn finish_operation(
        &self,
        id: OperationId,
        key: &str,
        result: OperationResult,
    ) -> Result<Submitted, KernelError> {
        if !self.wiring.operations.fits(id, key) {
            return Err(KernelError::NotFound("operation"));
        }
        let Some(row) = self.wiring.store.operation(Scope::Operator, id).await? else {
            return self.finish_broken_off(id, &result).await;
        };
        let text = result.message_text(&row)?;
        if row.closed_by.is_none() {
            if row.expires_at <= self.now() {
                return Err(expired(&row));
            }
            match self.submit(about(&self.wiring, &row, text.clone()).await?).await {
                // Another request closed the operation first: with the same result, with another one, or because it expired.
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
            _ => Err(had_another(id)),
        }
    }

    /// Takes in the result of an operation whose run broke off before its receipt said that the result comes later. What
    /// that run did is unknown, and the holder of the key knows it.
    async fn finish_broken_off(&self, id: OperationId, result: &OperationResult) -> Result<Submitted, KernelError> {
        let (task, intent) = self.run_of(id).await?.ok_or(KernelError::NotFound("operation"))?;
        match intent.state {
            IntentState::Done => return Err(KernelError::NotFound("operation")),
            IntentState::Planned | IntentState::Started if !task.state.is_ended() => {
                let why = "the run that started the operation is not over yet; send the result again";
                return Err(KernelError::Unavailable(why.to_owned()));
            }
            // The end of a run that was cut off with its agent or its turn was never recorded.
            IntentState::Planned | IntentState::Started | IntentState::Unknown => {}
        }
        let row = OperationRow {
            id,
            user: task.user,
            conversation: task.conversation,
            task: task.id,
            intent: intent.id,
            skill: intent.skill,
            opened_at: task.received_at,
            expires_at: Micros(i64::MAX),
            closed_by: None,
            closed_at: None,
        };
        match self.submit(about(&self.wiring, &row, result.message_text(&row)?).await?).await {
            Err(KernelError::Conflict { .. }) => Err(had_another(id)),
            taken => taken,
        }
    }

    /// The run that may have started an operation, searched for among the newest tasks.
    async fn run_of(&self, id: OperationId) -> Result<Option<(TaskRow, IntentRow)>, KernelError> {
        let (mut before, mut seen) = (Before::NEWEST, 0);
        while seen < RUNS_TASKS_MAX {
            let page = self.wiring.store.tasks(Scope::Operator, false, before, PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            before = last.page_start();
            seen += page.len();
            for task in page.into_iter().filter(|task| task.started_at.is_some()) {
                let intents = self.wiring.store.intents(task.id).await?;
                if let Some(intent) = intents.into_iter().find(|i| OperationId::for_intent(i.id) == id) {
                    return Ok(Some((task, intent)));
                }
            }
        }
        Ok(None)
    }

    /// An operation.
    ///
    /// # Errors
    /// If there is none that the scope sees.
    pub async fn operation(&self, scope: Scope, id: OperationId) -> Result<OperationRow, KernelError> {
        self.wiring.store.operation(scope, id).await?.ok_or(KernelError::NotFound("operation"))
    }

    /// Operations by the time of their start, newest first; with `open`, only those that have no result yet.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn operations(
        &self,
        scope: Scope,
        open: bool,
        before: Before,
        limit: u32,
    ) -> Result<Vec<OperationRow>, KernelError> {
        Ok(self.wiring.store.operations(scope, open, before, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// The path and the secret key for delivering an operation's result. Only the operation's user gets them.
    ///
    /// # Errors
    /// If the user has no such operation, or it has ended.
    pub async fn operation_key(&self, user: &UserId, id: OperationId) -> Result<OperationGrant, KernelError> {
        let row = self.operation(Scope::User(user.clone()), id).await?;
        if row.closed_by.is_some() {
            return Err(KernelError::Stale(format!("operation {id} has ended: its key opens nothing any more")));
        }
        Ok(self.wiring.operations.of(row.id))
    }
}

fn had_another(id: OperationId) -> KernelError {
    KernelError::Stale(format!("operation {id} has had another result already"))
}

fn expired(row: &OperationRow) -> KernelError {
    KernelError::Stale(format!(
        "operation {} brought no result in time: it was awaited until {}",
        row.id, row.expires_at
    ))
}
