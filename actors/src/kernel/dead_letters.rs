//! Dead letters as front ends see them: what failed, what was tried, retry now, or discard.

use std::collections::HashMap;

use annie_core::{
    dead_letter::DeadLetterState,
    event::{Event, EventBody, Priority, Scope},
    ids::TaskId,
    ports::{Before, DeadLetterFilter, DeadLetterRow},
};
use serde::Serialize;

use super::{Kernel, KernelError, PAGE_MAX, Submitted};
use crate::{
    dead_letters::{make_due, move_to, retry_message, tried},
    task_log::{each_event, message_of},
};

/// Events of a failed task that are shown.
const EVENTS_MAX: usize = 500;
/// Earlier attempts that are shown.
const BEFORE_MAX: usize = 100;

/// Dead letters that one call moves, at most.
pub const DEAD_LETTERS_AT_ONCE_MAX: u32 = 100;

/// A selection of waiting dead letters.
#[derive(Debug, Clone)]
pub struct ManyDeadLetters {
    /// The users whose dead letters may be selected.
    pub scope: Scope,
    /// The selection; its `state` is ignored.
    pub filter: DeadLetterFilter,
    /// The number of dead letters to process, at most.
    pub limit: u32,
    /// Without it the dead letters are only counted.
    pub is_confirmed: bool,
}

/// The result of a call about many dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ManyDone {
    /// How many dead letters matched before the call.
    pub matching: u64,
    /// How many were processed.
    pub done: u32,
    /// How many match and were not processed.
    pub left: u64,
    /// The error that ended the call before its limit.
    pub stopped: Option<String>,
    /// The failed tasks that are retried.
    pub tasks: Vec<TaskId>,
}

/// A dead letter with the full history of its attempts.
#[derive(Debug, Clone, Serialize)]
pub struct DeadLetterDetail {
    /// The failed task and the state of its dead letter.
    pub row: DeadLetterRow,
    /// The message.
    pub text: String,
    /// The tasks that tried before this one, oldest first.
    pub before: Vec<TaskId>,
    /// The events of the task, oldest first; of a long task the last 500.
    pub events: Vec<Event>,
}

impl Kernel {
    /// The dead letters that match the filter, newest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn dead_letters(
        &self,
        scope: Scope,
        filter: DeadLetterFilter,
        before: Before,
        limit: u32,
    ) -> Result<Vec<DeadLetterRow>, KernelError> {
        Ok(self.wiring.store.dead_letters(scope, filter, before, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// How many dead letters match the filter.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn count_dead_letters(&self, scope: Scope, filter: DeadLetterFilter) -> Result<u64, KernelError> {
        Ok(self.wiring.store.count_dead_letters(scope, filter).await?)
    }

    /// Makes the newest matching dead letters that wait due now. The dead letter worker sends them again in class BACKGROUND
    /// as the queue has capacity, so that they neither fail at a limit of the queue nor keep out their user's own messages.
    /// Dead letters that are due already do not match.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn retry_dead_letters(&self, options: ManyDeadLetters, by: &str) -> Result<ManyDone, KernelError> {
        let now = self.wiring.env.now();
        let options =
            ManyDeadLetters { filter: DeadLetterFilter { not_due_at: Some(now), ..options.filter }, ..options };
        let mut done = ManyDone::default();
        for row in self.many(&options, &mut done).await? {
            match make_due(&self.wiring, &row, now, by).await {
                Ok(()) => {
                    done.done += 1;
                    done.tasks.push(row.task);
                }
                // Its conversation was deleted since the list was read.
                Err(KernelError::Deleted) => {}
                Err(error) => {
                    done.stopped = Some(error.to_string());
                    break;
                }
            }
        }
        self.count_left(options, done).await
    }

    /// Discards the newest matching dead letters that wait.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn discard_dead_letters(&self, options: ManyDeadLetters, by: &str) -> Result<ManyDone, KernelError> {
        let mut done = ManyDone::default();
        for row in self.many(&options, &mut done).await? {
            match self.discard_dead_letter(options.scope.clone(), row.task, by).await {
                Ok(is_done) => done.done += u32::from(is_done),
                Err(KernelError::NotFound(_) | KernelError::Deleted) => {}
                Err(error) => {
                    done.stopped = Some(error.to_string());
                    break;
                }
            }
        }
        self.count_left(options, done).await
    }

    /// The dead letters to process: none unless the call is confirmed.
    async fn many(&self, options: &ManyDeadLetters, done: &mut ManyDone) -> Result<Vec<DeadLetterRow>, KernelError> {
        let filter = DeadLetterFilter { state: Some(DeadLetterState::Waiting), ..options.filter.clone() };
        done.matching = self.count_dead_letters(options.scope.clone(), filter.clone()).await?;
        if !options.is_confirmed {
            return Ok(Vec::new());
        }
        let limit = options.limit.clamp(1, DEAD_LETTERS_AT_ONCE_MAX);
        self.dead_letters(options.scope.clone(), filter, Before::NEWEST, limit).await
    }

    async fn count_left(&self, options: ManyDeadLetters, done: ManyDone) -> Result<ManyDone, KernelError> {
        let filter = DeadLetterFilter { state: Some(DeadLetterState::Waiting), ..options.filter };
        Ok(ManyDone { left: self.count_dead_letters(options.scope, filter).await?, ..done })
    }

    /// A dead letter with everything that was tried.
    ///
    /// # Errors
    /// If there is none that the scope sees; `Deleted` if its conversation is deleted.
    pub async fn dead_letter(&self, scope: Scope, task: TaskId) -> Result<DeadLetterDetail, KernelError> {
        let row = self.dead_letter_row(scope, task).await?;
        if self.wiring.store.deletion(row.conversation).await?.is_some() {
            return Err(KernelError::Deleted);
        }
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
        Ok(DeadLetterDetail { row, text, before, events })
    }

    /// Retries a dead letter now, as work for which a person waits. If a retry is under way already, its acknowledgement is
    /// returned as a repeat.
    ///
    /// # Errors
    /// If there is none that the scope sees, it was discarded or archived, or as [`Kernel::submit`].
    pub async fn retry_dead_letter(&self, scope: Scope, task: TaskId, by: &str) -> Result<Submitted, KernelError> {
        let row = self.dead_letter_row(scope, task).await?;
        let store = self.wiring.store.as_ref();
        match (row.state, row.retried_by) {
            (DeadLetterState::Retried, Some(retried_by)) => {
                let retry = message_of(store, row.conversation, retried_by).await?;
                let retry = retry.ok_or(KernelError::NotFound("message"))?;
                return Ok(Submitted::repeat(retried_by, row.conversation, retry.seq, retry.inbound.priority));
            }
            (DeadLetterState::Waiting | DeadLetterState::Retried, _) => {}
            (state @ (DeadLetterState::Discarded | DeadLetterState::Archived), _) => {
                let state = state.as_str();
                return Err(KernelError::Stale(format!(
                    "this dead letter was {state}: send its message again instead"
                )));
            }
        }
        let tried = tried(store, &row).await?;
        tracing::info!(%task, by, "retrying a dead letter");
        self.submit(retry_message(&row, tried, Priority::High)).await
    }

    /// Discards a dead letter. True if it is discarded; false if it was not waiting any more.
    ///
    /// # Errors
    /// If there is none that the scope sees, or it cannot be stored.
    pub async fn discard_dead_letter(&self, scope: Scope, task: TaskId, by: &str) -> Result<bool, KernelError> {
        let row = self.dead_letter_row(scope.clone(), task).await?;
        if row.state != DeadLetterState::Waiting {
            return Ok(false);
        }
        move_to(&self.wiring, &row, DeadLetterState::Discarded, by).await?;
        // It may have been retried in between.
        Ok(self.dead_letter_row(scope, task).await?.state == DeadLetterState::Discarded)
    }

    async fn dead_letter_row(&self, scope: Scope, task: TaskId) -> Result<DeadLetterRow, KernelError> {
        self.wiring.store.dead_letter(scope, task).await?.ok_or(KernelError::NotFound("dead letter"))
    }
}
