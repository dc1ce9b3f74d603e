//! Dead letters as doors see them: what failed, what was tried, try again now, or give up (S3 5.9).

use std::collections::HashMap;

use annie_core::{
    event::{Event, EventBody, Priority, Scope},
    ids::TaskId,
    letter::LetterState,
    ports::LetterRow,
    time::Micros,
};
use serde::Serialize;

use super::{Kernel, KernelError, PAGE_MAX, Submitted};
use crate::letters::{again, each_event, message_of, move_to};

/// Events of a failed task that are shown.
const EVENTS_MAX: usize = 500;
/// Earlier tries that are shown.
const BEFORE_MAX: usize = 100;

/// A dead letter with the full history of what was tried.
#[derive(Debug, Clone, Serialize)]
pub struct LetterDetail {
    /// What failed, and where the letter stands.
    pub row: LetterRow,
    /// The message.
    pub text: String,
    /// The tasks that tried before this one, oldest first.
    pub before: Vec<TaskId>,
    /// What happened in the task, oldest first; of a long one the last 500 events.
    pub events: Vec<Event>,
}

impl Kernel {
    /// Dead letters that failed before an instant, newest first; only those in this state if one is given.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn letters(
        &self,
        scope: Scope,
        state: Option<LetterState>,
        before: Micros,
        limit: u32,
    ) -> Result<Vec<LetterRow>, KernelError> {
        Ok(self.wiring.store.letters(scope, state, before, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// A dead letter with everything that was tried.
    ///
    /// # Errors
    /// If there is none that the scope sees.
    pub async fn letter(&self, scope: Scope, task: TaskId) -> Result<LetterDetail, KernelError> {
        let row = self.letter_row(scope, task).await?;
        let (mut text, mut events) = (String::new(), Vec::new());
        let mut tries: HashMap<TaskId, TaskId> = HashMap::new();
        each_event(self.wiring.store.as_ref(), row.conversation, |event| {
            if let EventBody::Received(inbound) = &event.body {
                if let Some(retry) = &inbound.retry {
                    tries.insert(event.task, retry.of);
                }
                if event.task == task {
                    text.clone_from(&inbound.text);
                }
            }
            if event.task == task {
                if events.len() == EVENTS_MAX {
                    events.remove(0);
                }
                events.push(event);
            }
            true
        })
        .await?;
        let mut before: Vec<TaskId> =
            std::iter::successors(tries.get(&task), |of| tries.get(*of)).take(BEFORE_MAX).copied().collect();
        before.reverse();
        Ok(LetterDetail { row, text, before, events })
    }

    /// Tries a dead letter again now, as something that a person waits for. One that is being tried again already gives
    /// that try's acknowledgement, as a repeat.
    ///
    /// # Errors
    /// If there is none that the scope sees, it was discarded or archived, or as [`Kernel::submit`].
    pub async fn retry_letter(&self, scope: Scope, task: TaskId, by: &str) -> Result<Submitted, KernelError> {
        let row = self.letter_row(scope, task).await?;
        let store = self.wiring.store.as_ref();
        match (row.state, row.retried_by) {
            (LetterState::Retried, Some(retried_by)) => {
                let retry = message_of(store, row.conversation, retried_by).await?;
                let retry = retry.ok_or(KernelError::NotFound("message"))?;
                return Ok(Submitted::repeat(retried_by, row.conversation, retry.seq, retry.inbound.priority));
            }
            (LetterState::Waiting | LetterState::Retried, _) => {}
            (state @ (LetterState::Discarded | LetterState::Archived), _) => {
                let state = state.as_str();
                return Err(KernelError::Stale(format!("this letter was {state}: send its message again instead")));
            }
        }
        let message = message_of(store, row.conversation, task).await?.ok_or(KernelError::NotFound("message"))?;
        tracing::info!(%task, by, "a dead letter is tried again");
        self.submit(again(&row, message.inbound, Priority::High)).await
    }

    /// Puts a dead letter aside for good. True if it is done; false if it did not wait any more.
    ///
    /// # Errors
    /// If there is none that the scope sees, or it cannot be stored.
    pub async fn discard_letter(&self, scope: Scope, task: TaskId, by: &str) -> Result<bool, KernelError> {
        let row = self.letter_row(scope.clone(), task).await?;
        if row.state != LetterState::Waiting {
            return Ok(false);
        }
        move_to(&self.wiring, &row, LetterState::Discarded, by).await?;
        // It may have been tried again in between.
        Ok(self.letter_row(scope, task).await?.state == LetterState::Discarded)
    }

    async fn letter_row(&self, scope: Scope, task: TaskId) -> Result<LetterRow, KernelError> {
        self.wiring.store.letter(scope, task).await?.ok_or(KernelError::NotFound("dead letter"))
    }
}
