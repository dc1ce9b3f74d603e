//! What is kept of work besides its tasks: dead letters, long-running operations, final words on their way to a person.
//! All of it is folded from the log, except what was delivered and the notifications themselves.

use serde::{Deserialize, Serialize};

use super::{Before, Fut, StoreError, TaskState};
use crate::{
    event::{Priority, Scope},
    ids::{ConversationId, IntentId, OperationId, OutboxId, TaskId, UserId},
    letter::{Letter, LetterState},
    time::Micros,
};

/// A failed task that is kept to be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterRow {
    /// The task that failed.
    pub task: TaskId,
    /// Whose.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// The message's first 80 characters.
    pub title: String,
    /// Its class.
    pub priority: Priority,
    /// The failure's code.
    pub code: String,
    /// What the user was told.
    pub text: String,
    /// What the operator is told.
    pub detail: String,
    /// What was tried, since when, and when it is tried again.
    #[serde(flatten)]
    pub letter: Letter,
    /// Where it stands.
    pub state: LetterState,
    /// The task that tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_by: Option<TaskId>,
    /// When it failed.
    pub failed_at: Micros,
    /// When its state last changed.
    pub changed_at: Micros,
}

/// Which dead letters are meant. What is not given takes all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// In this state.
    pub state: Option<LetterState>,
    /// That failed with this code.
    pub code: Option<String>,
    /// Of this class.
    pub class: Option<Priority>,
    /// That failed at this instant or later.
    pub failed_from: Option<Micros>,
    /// That failed before this instant.
    pub failed_before: Option<Micros>,
    /// That are not to be tried again by themselves at this instant.
    pub not_due_at: Option<Micros>,
}

impl LetterFilter {
    /// Those in one state.
    #[must_use]
    pub fn in_state(state: LetterState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Whether a letter is meant.
    #[must_use]
    pub fn takes(&self, row: &LetterRow) -> bool {
        self.state.is_none_or(|state| state == row.state)
            && self.code.as_ref().is_none_or(|code| *code == row.code)
            && self.class.is_none_or(|class| class == row.priority)
            && self.failed_from.is_none_or(|from| row.failed_at >= from)
            && self.failed_before.is_none_or(|before| row.failed_at < before)
            && self.not_due_at.is_none_or(|now| row.letter.retry_at.is_none_or(|at| at > now))
    }
}

/// Dead letters. Pages are newest first.
pub trait Letters: Send + Sync {
    /// One, if the scope sees it.
    fn letter(&self, scope: Scope, task: TaskId) -> Fut<'_, Result<Option<LetterRow>, StoreError>>;

    /// Those that are meant, by the time of their failure.
    fn letters(
        &self,
        scope: Scope,
        filter: LetterFilter,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<LetterRow>, StoreError>>;

    /// How many are meant.
    fn count_letters(&self, scope: Scope, filter: LetterFilter) -> Fut<'_, Result<u64, StoreError>>;

    /// Waiting letters whose time to be tried again has come, or that failed first before `archive_before`: oldest first.
    fn due_letters(
        &self,
        now: Micros,
        archive_before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<LetterRow>, StoreError>>;

    /// How many wait, and when something is next to be done about one: the earliest time to try again, and the earliest
    /// first failure.
    fn letters_waiting(&self) -> Fut<'_, Result<LettersWaiting, StoreError>>;
}

/// The waiting dead letters at a glance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LettersWaiting {
    /// How many.
    pub count: u64,
    /// The earliest time at which one is tried again by itself.
    pub next_retry_at: Option<Micros>,
    /// The earliest first failure of one.
    pub oldest_since: Option<Micros>,
}

/// A long-running operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRow {
    /// Its id.
    pub id: OperationId,
    /// Whose.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// The task whose skill started it.
    pub task: TaskId,
    /// The run that started it.
    pub intent: IntentId,
    /// Of which skill.
    pub skill: String,
    /// When it was started.
    pub opened_at: Micros,
    /// Until when its result is awaited.
    pub expires_at: Micros,
    /// The task that told of its result or of its end; nothing while it is awaited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<TaskId>,
    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Micros>,
}

/// Long-running operations. Pages are newest first.
pub trait Operations: Send + Sync {
    /// One, if the scope sees it.
    fn operation(&self, scope: Scope, id: OperationId) -> Fut<'_, Result<Option<OperationRow>, StoreError>>;

    /// Those by the time of their start; only those that are awaited if `open`.
    fn operations(
        &self,
        scope: Scope,
        open: bool,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<OperationRow>, StoreError>>;

    /// Awaited operations that expire at or before an instant, those that expire first before the others.
    fn expiring_operations(&self, until: Micros, limit: u32) -> Fut<'_, Result<Vec<OperationRow>, StoreError>>;

    /// A secret of this installation, if there is one of this name.
    fn known_secret(&self, name: &'static str) -> Fut<'_, Result<Option<[u8; 32]>, StoreError>>;

    /// A secret of this installation, 32 bytes: the stored one, or `fresh` if there is none yet, which is stored.
    fn secret(&self, name: &'static str, fresh: [u8; 32]) -> Fut<'_, Result<[u8; 32], StoreError>>;
}

/// A final word on its way to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxRow {
    /// Its id: the same on every delivery attempt.
    pub id: OutboxId,
    /// To whom.
    pub user: UserId,
    /// About which task.
    pub task: TaskId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// The task's first 80 characters.
    pub title: String,
    /// The task's class.
    pub priority: Priority,
    /// Through which door the task came.
    pub source: String,
    /// How the task ended.
    pub state: TaskState,
    /// What is said.
    pub text: String,
    /// When it was said.
    pub at: Micros,
}

/// What a user is told beside the conversations: that background work ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Its place among all notifications, from 1, rising: what a reader resumes from.
    pub id: u64,
    /// To whom.
    pub user: UserId,
    /// What is said.
    pub text: String,
    /// About which tasks.
    pub tasks: Vec<TaskId>,
    /// When.
    pub at: Micros,
}

/// Final words to deliver, and the notifications they became.
pub trait Outbox: Send + Sync {
    /// Undelivered final words, oldest first.
    fn outbox(&self, limit: u32) -> Fut<'_, Result<Vec<OutboxRow>, StoreError>>;

    /// Marks final words as delivered; those that were before stay as they are.
    fn delivered(&self, ids: Vec<OutboxId>, at: Micros) -> Fut<'_, Result<(), StoreError>>;

    /// Stores a notification and marks the final words in it as delivered, together. Words that were delivered before are
    /// not delivered again: if one of these is, nothing happens and the answer is nothing.
    fn notify(
        &self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> Fut<'_, Result<Option<Notification>, StoreError>>;

    /// A user's notifications after a place, oldest first.
    fn notifications(&self, user: UserId, after: u64, limit: u32) -> Fut<'_, Result<Vec<Notification>, StoreError>>;

    /// When a user was last notified.
    fn last_notified(&self, user: UserId) -> Fut<'_, Result<Option<Micros>, StoreError>>;

    /// Throws away final words that were delivered, and notifications that are older than an instant; how many.
    fn sweep_outbox(&self, before: Micros) -> Fut<'_, Result<u64, StoreError>>;
}
