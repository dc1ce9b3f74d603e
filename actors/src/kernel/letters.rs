//! Dead letters as doors see them: what failed, what was tried, try again now, or give up.

use std::collections::HashMap;

use annie_core::{
    event::{Event, EventBody, Priority, Scope},
    ids::TaskId,
    letter::LetterState,
    ports::{Before, LetterFilter, LetterRow},
};
use serde::Serialize;

use super::{Kernel, KernelError, PAGE_MAX, Submitted};
use crate::letters::{again, each_event, make_due, message_of, move_to, tried};

/// Events of a failed task that are shown.
const EVENTS_MAX: usize = 500;
/// Earlier tries that are shown.
const BEFORE_MAX: usize = 100;

/// Dead letters that one call moves at most.
pub const LETTERS_AT_ONCE_MAX: u32 = 100;

/// Which waiting dead letters a call is about.
#[derive(Debug, Clone)]
pub struct ManyLetters {
    /// Whose.
    pub scope: Scope,
    /// Which of them; its state counts for nothing.
    pub filter: LetterFilter,
    /// How many at most.
    pub limit: u32,
    /// Without it they are only counted.
    pub is_confirmed: bool,
}

/// What became of many dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ManyDone {
    /// How many were meant before.
    pub matching: u64,
    /// How many it was done with.
    pub done: u32,
    /// How many are left that it was not done with.
    pub left: u64,
    /// Why it ended before its limit.
    pub stopped: Option<String>,
    /// The failed tasks that are tried again.
    pub tasks: Vec<TaskId>,
}

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
    /// The dead letters that are meant, newest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn letters(
        &self,
        scope: Scope,
        filter: LetterFilter,
        before: Before,
        limit: u32,
    ) -> Result<Vec<LetterRow>, KernelError> {
        Ok(self.wiring.store.letters(scope, filter, before, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// How many dead letters are meant.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn count_letters(&self, scope: Scope, filter: LetterFilter) -> Result<u64, KernelError> {
        Ok(self.wiring.store.count_letters(scope, filter).await?)
    }

    /// Makes the newest of the waiting letters that are meant due. The keeper of the letters sends them as there are places, in
    /// class BACKGROUND, so that they neither stop at a limit of the queue nor keep their user's own messages out. Letters that
    /// are due already are not meant.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn retry_letters(&self, wish: ManyLetters, by: &str) -> Result<ManyDone, KernelError> {
        let now = self.wiring.env.now();
        let wish = ManyLetters { filter: LetterFilter { not_due_at: Some(now), ..wish.filter }, ..wish };
        let mut done = ManyDone::default();
        for row in self.many(&wish, &mut done).await? {
            match make_due(&self.wiring, &row, now, by).await {
                Ok(()) => {
                    done.done += 1;
                    done.tasks.push(row.task);
                }
                Err(error) => {
                    done.stopped = Some(error.to_string());
                    break;
                }
            }
        }
        self.count_left(wish, done).await
    }

    /// Puts the newest of the waiting letters that are meant aside for good.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn discard_letters(&self, wish: ManyLetters, by: &str) -> Result<ManyDone, KernelError> {
        let mut done = ManyDone::default();
        for row in self.many(&wish, &mut done).await? {
            match self.discard_letter(wish.scope.clone(), row.task, by).await {
                Ok(is_done) => done.done += u32::from(is_done),
                Err(KernelError::NotFound(_)) => {}
                Err(error) => {
                    done.stopped = Some(error.to_string());
                    break;
                }
            }
        }
        self.count_left(wish, done).await
    }

    /// The letters that one call is about: none unless it was confirmed.
    async fn many(&self, wish: &ManyLetters, done: &mut ManyDone) -> Result<Vec<LetterRow>, KernelError> {
        let filter = LetterFilter { state: Some(LetterState::Waiting), ..wish.filter.clone() };
        done.matching = self.count_letters(wish.scope.clone(), filter.clone()).await?;
        if !wish.is_confirmed {
            return Ok(Vec::new());
        }
        let limit = wish.limit.clamp(1, LETTERS_AT_ONCE_MAX);
        self.letters(wish.scope.clone(), filter, Before::NEWEST, limit).await
    }

    async fn count_left(&self, wish: ManyLetters, done: ManyDone) -> Result<ManyDone, KernelError> {
        let filter = LetterFilter { state: Some(LetterState::Waiting), ..wish.filter };
        Ok(ManyDone { left: self.count_letters(wish.scope, filter).await?, ..done })
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
        let tried = tried(store, &row).await?;
        tracing::info!(%task, by, "a dead letter is tried again");
        self.submit(again(&row, tried, Priority::High)).await
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
