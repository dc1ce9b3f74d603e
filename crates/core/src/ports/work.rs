//! Stored data about work other than tasks: dead letters, long-running operations, undelivered final texts. All of it is
//! folded from the log, except delivery marks and notifications.

use serde::{Deserialize, Serialize};

use super::{Address, Before, DeliveryEnd, DeliveryRow, Diverted, Fut, StoreError, TaskState};
use crate::{
    dead_letter::{DeadLetter, DeadLetterState},
    event::{Priority, Scope},
    ids::{ConversationId, IntentId, NodeId, OperationId, OutboxId, TaskId, UserId},
    time::Micros,
};

/// A failed task that is kept for a retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRow {
    /// The task that failed.
    pub task: TaskId,
    /// The owner.
    pub user: UserId,
    /// The conversation.
    pub conversation: ConversationId,
    /// The first 80 characters of the message.
    pub title: String,
    /// The scheduling class.
    pub priority: Priority,
    /// The failure's code.
    pub code: String,
    /// The text that the user received.
    pub text: String,
    /// The details for the operator.
    pub detail: String,
    /// The failed attempts, and the time of the next retry.
    #[serde(flatten)]
    pub dead_letter: DeadLetter,
    /// The state.
    pub state: DeadLetterState,
    /// The task of the retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_by: Option<TaskId>,
    /// Time of the failure.
    pub failed_at: Micros,
    /// Time of the last change of state.
    pub changed_at: Micros,
}

/// A filter of dead letters. Absent fields match all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// The state.
    pub state: Option<DeadLetterState>,
    /// The code of the failure.
    pub code: Option<String>,
    /// The scheduling class.
    pub class: Option<Priority>,
    /// Matches failures at this instant or later.
    pub failed_from: Option<Micros>,
    /// Matches failures before this instant.
    pub failed_before: Option<Micros>,
    /// Matches dead letters without an automatic retry at or before this instant.
    pub not_due_at: Option<Micros>,
    /// Matches dead letters of deleted conversations too. Nothing can be done with them, so by default they are in no list.
    pub with_deleted: bool,
}

impl DeadLetterFilter {
    /// The dead letters in one state.
    #[must_use]
    pub fn in_state(state: DeadLetterState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Whether the filter matches a dead letter.
    #[must_use]
    pub fn takes(&self, row: &DeadLetterRow) -> bool {
        self.state.is_none_or(|state| state == row.state)
            && self.code.as_ref().is_none_or(|code| *code == row.code)
            && self.class.is_none_or(|class| class == row.priority)
            && self.failed_from.is_none_or(|from| row.failed_at >= from)
            && self.failed_before.is_none_or(|before| row.failed_at < before)
            && self.not_due_at.is_none_or(|now| row.dead_letter.retry_at.is_none_or(|at| at > now))
    }
}

/// Access to the dead letters. Pages are newest first.
pub trait DeadLetters: Send + Sync {
    /// One dead letter, if it is visible in the scope.
    fn dead_letter(&self, scope: Scope, task: TaskId) -> Fut<'_, Result<Option<DeadLetterRow>, StoreError>>;

    /// The matching dead letters, ordered by the time of their failure.
    fn dead_letters(
        &self,
        scope: Scope,
        filter: DeadLetterFilter,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<DeadLetterRow>, StoreError>>;

    /// The number of matching dead letters.
    fn count_dead_letters(&self, scope: Scope, filter: DeadLetterFilter) -> Fut<'_, Result<u64, StoreError>>;

    /// Waiting dead letters whose retry is due, or whose first failure was before `archive_before`; oldest first.
    fn due_dead_letters(
        &self,
        now: Micros,
        archive_before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<DeadLetterRow>, StoreError>>;

    /// The number of waiting dead letters and the times of the next work on them: the earliest retry and the earliest first
    /// failure.
    fn dead_letters_waiting(&self) -> Fut<'_, Result<DeadLettersWaiting, StoreError>>;
}

/// A summary of the waiting dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLettersWaiting {
    /// Their number.
    pub count: u64,
    /// Time of the earliest automatic retry.
    pub next_retry_at: Option<Micros>,
    /// Time of the earliest first failure.
    pub oldest_since: Option<Micros>,
}

/// A long-running operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRow {
    /// The id.
    pub id: OperationId,
    /// The owner.
    pub user: UserId,
    /// The conversation.
    pub conversation: ConversationId,
    /// The task whose skill started it.
    pub task: TaskId,
    /// The run that started it.
    pub intent: IntentId,
    /// The skill.
    pub skill: String,
    /// Time of the start.
    pub opened_at: Micros,
    /// Time until which its result is accepted.
    pub expires_at: Micros,
    /// The task that reported its result or its expiry. Absent while the operation is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<TaskId>,
    /// Time at which it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Micros>,
}

/// Access to the long-running operations. Pages are newest first.
pub trait Operations: Send + Sync {
    /// One operation, if it is visible in the scope.
    fn operation(&self, scope: Scope, id: OperationId) -> Fut<'_, Result<Option<OperationRow>, StoreError>>;

    /// Operations ordered by the time of their start; with `open`, only those without a result.
    fn operations(
        &self,
        scope: Scope,
        open: bool,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<OperationRow>, StoreError>>;

    /// Open operations that expire at or before an instant, ordered by their time of expiry.
    fn expiring_operations(&self, until: Micros, limit: u32) -> Fut<'_, Result<Vec<OperationRow>, StoreError>>;

    /// A stored secret of this installation, by name.
    fn known_secret(&self, name: &'static str) -> Fut<'_, Result<Option<[u8; 32]>, StoreError>>;

    /// A secret of this installation, 32 bytes: the stored one, or `fresh`, which is stored if there is none yet.
    fn secret(&self, name: &'static str, fresh: [u8; 32]) -> Fut<'_, Result<[u8; 32], StoreError>>;
}

/// A final text that is to be delivered to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxRow {
    /// The id, the same on every delivery attempt.
    pub id: OutboxId,
    /// The recipient.
    pub user: UserId,
    /// The task that it is about.
    pub task: TaskId,
    /// The conversation.
    pub conversation: ConversationId,
    /// The first 80 characters of the task's message.
    pub title: String,
    /// The task's class.
    pub priority: Priority,
    /// The front end or channel of the task.
    pub source: String,
    /// The final state of the task.
    pub state: TaskState,
    /// The text.
    pub text: String,
    /// Time of the final event.
    pub at: Micros,
    /// Where the text is delivered. Absent if the user reads it in the conversation or is notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Address>,
    /// Set if the channel of the address does not deliver the text. It follows from no event.
    #[serde(skip)]
    pub diverted: Option<Diverted>,
}

/// A message to a user outside of conversations: background work has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Sequence number among all notifications, from 1, increasing. Readers resume from it.
    pub id: u64,
    /// The recipient.
    pub user: UserId,
    /// The text.
    pub text: String,
    /// The tasks that it is about.
    pub tasks: Vec<TaskId>,
    /// Time of the notification.
    pub at: Micros,
}

/// Access to undelivered final texts and to notifications.
pub trait Outbox: Send + Sync {
    /// Undelivered final texts, oldest first.
    fn outbox(&self, limit: u32) -> Fut<'_, Result<Vec<OutboxRow>, StoreError>>;

    /// Undelivered final texts that no channel has to deliver, oldest first: those without an address, and those that were
    /// diverted.
    fn to_notify(&self, limit: u32) -> Fut<'_, Result<Vec<OutboxRow>, StoreError>>;

    /// The channels that have final texts to deliver, in no particular order.
    fn waiting_channels(&self) -> Fut<'_, Result<Vec<String>, StoreError>>;

    /// The oldest final text of each address of a channel that the channel has to deliver: those without a time for the next
    /// attempt first, then in the order of these times.
    fn next_deliveries(&self, channel: String, limit: u32) -> Fut<'_, Result<Vec<DeliveryRow>, StoreError>>;

    /// Stores that an attempt to deliver a text begins. `attempts` is the number of earlier attempts. If it is no longer that
    /// number, or the text is delivered or diverted, nothing is stored and the result is false: another node was first.
    /// The same call again has the same result.
    fn begin_delivery(&self, id: OutboxId, attempts: u32, by: NodeId, at: Micros) -> Fut<'_, Result<bool, StoreError>>;

    /// Stores the end of the attempt that made the number of attempts `attempts`. If another attempt has begun since, or the
    /// text is delivered or diverted, nothing is stored and the result is false.
    fn end_delivery(&self, id: OutboxId, attempts: u32, end: DeliveryEnd) -> Fut<'_, Result<bool, StoreError>>;

    /// Diverts the texts of a channel that ended before an instant: `NoChannel`, or `InDoubt` if an attempt has begun.
    /// Returns their number.
    fn divert_channel(&self, channel: String, before: Micros) -> Fut<'_, Result<u64, StoreError>>;

    /// Marks final texts without an address as delivered. Those already delivered keep their time.
    fn delivered(&self, ids: Vec<OutboxId>, at: Micros) -> Fut<'_, Result<(), StoreError>>;

    /// Stores a notification and marks its final texts as delivered, in one transaction. If one of the texts has been
    /// delivered before, or its channel has to deliver it, nothing is stored and the result is `None`, because no text is
    /// delivered twice.
    fn notify(
        &self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> Fut<'_, Result<Option<Notification>, StoreError>>;

    /// A user's notifications after a sequence number, oldest first.
    fn notifications(&self, user: UserId, after: u64, limit: u32) -> Fut<'_, Result<Vec<Notification>, StoreError>>;

    /// Time of the user's last notification.
    fn last_notified(&self, user: UserId) -> Fut<'_, Result<Option<Micros>, StoreError>>;

    /// Deletes delivered final texts and notifications that are older than an instant. Returns their number.
    fn sweep_outbox(&self, before: Micros) -> Fut<'_, Result<u64, StoreError>>;
}
