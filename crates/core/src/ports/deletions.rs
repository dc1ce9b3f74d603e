//! Deletions of conversations: first hidden and restorable, then erased.

use super::{Fut, StoreError};
use crate::{
    event::{NewEvent, Scope},
    ids::{ConversationId, Seq, UserId},
    time::Micros,
};

/// A request to delete a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteConversation {
    /// The conversation.
    pub conversation: ConversationId,
    /// The person, or the part of the kernel, that requests it.
    pub by: String,
    /// The reason; may be empty.
    pub reason: String,
    /// Time of the deletion.
    pub at: Micros,
    /// From this time on the content is erased. Until then the conversation can be restored.
    pub erase_at: Micros,
    /// The conversation is deleted only if it has not changed since this time. `None` if it does not matter.
    pub unchanged_since: Option<Micros>,
}

/// The result of a request to delete a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleting {
    /// It is deleted, now or before.
    Deleted,
    /// A task of it is open, or it has changed since the time that the request names. Nothing was changed.
    Busy,
    /// There is no such conversation.
    Unknown,
}

/// A deleted conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The conversation.
    pub conversation: ConversationId,
    /// Its user.
    pub user: UserId,
    /// The first 80 characters of its first message; empty once its erasure has begun.
    pub title: String,
    /// Who deleted it.
    pub by: String,
    /// The reason.
    pub reason: String,
    /// When it was deleted.
    pub at: Micros,
    /// From when on it is erased.
    pub erase_at: Micros,
    /// The event that records its erasure, which covers all events before it. Absent until the erasure begins.
    pub record: Option<Seq>,
    /// When all of its content was erased.
    pub erased_at: Option<Micros>,
}

impl Deletion {
    /// Whether it can be restored.
    #[must_use]
    pub const fn is_restorable(&self) -> bool {
        self.record.is_none()
    }
}

/// Progress of an erasure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErasedPart {
    /// The number of events that this step erased.
    pub events: u64,
    /// Whether nothing is left to erase.
    pub is_done: bool,
}

/// Deletions of conversations. A deleted conversation is in no list of its user, it has no owner, and nothing is appended to it.
pub trait Deletions: Send + Sync {
    /// Deletes a conversation that has no open task: later appends are refused as `Deleted`, former owners are fenced, and its final
    /// texts that are not delivered yet never are. A message that is committed at the same time is either refused, or makes the
    /// result `Busy`.
    fn delete_conversation(&self, request: DeleteConversation) -> Fut<'_, Result<Deleting, StoreError>>;

    /// Restores a deleted conversation whose erasure has not begun. False if there is none.
    fn restore_conversation(&self, conversation: ConversationId) -> Fut<'_, Result<bool, StoreError>>;

    /// The deletion of a conversation; `None` if it is not deleted.
    fn deletion(&self, conversation: ConversationId) -> Fut<'_, Result<Option<Deletion>, StoreError>>;

    /// The deleted conversations that can be restored, the last deleted ones first; at most `limit`.
    fn restorable(&self, scope: Scope, limit: u32) -> Fut<'_, Result<Vec<Deletion>, StoreError>>;

    /// Deletions whose erasure is due or has begun, and is not complete, the longest due ones first; at most `limit`.
    fn due_erasures(&self, scope: Scope, now: Micros, limit: u32) -> Fut<'_, Result<Vec<Deletion>, StoreError>>;

    /// Erases a part of a deleted conversation: at most `events_max` events. The first step appends `record` and empties the tables
    /// beside the log, also if `events_max` is 0; each step may be repeated, and several processes may erase the same conversation. `is_done` without a step
    /// if the conversation is not deleted.
    fn erase_step(
        &self,
        conversation: ConversationId,
        record: NewEvent,
        events_max: u32,
    ) -> Fut<'_, Result<ErasedPart, StoreError>>;

    /// Deletes shared texts of events that no event names any more and that were last written before this time. An append that
    /// names a text has written it at most an hour before. Returns their number.
    fn sweep_texts(&self, before: Micros) -> Fut<'_, Result<u64, StoreError>>;

    /// Deletes what only shortens a replay, the snapshots of conversations without open tasks that have not changed since `before`;
    /// at most `limit`. Returns their number.
    fn sweep_snapshots(&self, before: Micros, limit: u32) -> Fut<'_, Result<u64, StoreError>>;

    /// Conversations without open tasks that have not changed since `before` and are not deleted, the oldest first; at most `limit`.
    fn idle_conversations(
        &self,
        before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<(ConversationId, UserId)>, StoreError>>;

    /// Rewrites the database's files without the space of deleted rows, if the store has files.
    fn compact(&self) -> Fut<'_, Result<(), StoreError>>;
}
