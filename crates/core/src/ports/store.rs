//! The store: the log, its projections, and what the kernel keeps beside them. One contract suite
//! (`crates/store/tests/contract`) specifies the behaviour of every store.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Before, DeadLetters, Deletions, Documents, Fut, Nodes, Operations, Outbox};
use crate::{
    breaker::BreakerRow,
    event::{AnswerOutcome, Event, NewEvent, Priority, Scope},
    ids::{ConversationId, Epoch, IntentId, NodeIncarnation, Seq, TaskId, UserId},
    skill::Effect,
    spend::{UsageQuery, UsageRow},
    time::Micros,
};

/// The kind of a store error. It determines the status that a front end returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// Another process holds the database's lock for too long.
    Locked,
    /// No disk space left.
    Full,
    /// The store cannot be reached or opened.
    Unavailable,
    /// Stored data cannot be decoded.
    Corrupt,
    /// A bug, such as an invalid statement or bound.
    Internal,
}

/// A failed operation of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct StoreError {
    /// The kind.
    pub kind: StoreErrorKind,
    /// The operation that failed.
    pub what: &'static str,
    /// The database's message.
    pub detail: String,
}

impl StoreError {
    /// Whether the same operation may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Locked | StoreErrorKind::Full | StoreErrorKind::Unavailable)
    }
}

/// The permission that an append requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// No ownership: a front end adds a message to the inbox. The conversation is created if it is new.
    Inbox,
    /// As `Inbox`; and if the conversation is new, this node owns it from the beginning, with [`Epoch::FIRST`]. Then the
    /// sequence number of the first event is 1.
    Opening(NodeIncarnation),
    /// Ownership with this epoch. Refused as [`AppendError::Fenced`] if the conversation has been claimed since.
    Owner(Epoch),
}

impl Fence {
    /// Whether a front end adds to the inbox, which needs no ownership.
    #[must_use]
    pub const fn is_inbox(self) -> bool {
        match self {
            Self::Inbox | Self::Opening(_) => true,
            Self::Owner(_) => false,
        }
    }
}

/// Events of one conversation that are stored atomically, with their projections.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// The conversation.
    pub conversation: ConversationId,
    /// The owner of the conversation's data.
    pub user: UserId,
    /// The required permission.
    pub fence: Fence,
    /// The events; at least one.
    pub events: Vec<NewEvent>,
}

/// A stored append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Sequence number of its first event. The others follow without gaps.
    pub first: Seq,
}

impl Appended {
    /// The node that owns the conversation because this append, under this fence, has created it.
    #[must_use]
    pub fn opened_by(&self, fence: Fence) -> Option<NodeIncarnation> {
        match fence {
            Fence::Opening(by) if self.first == Seq(1) => Some(by),
            Fence::Opening(_) | Fence::Inbox | Fence::Owner(_) => None,
        }
    }
}

/// A refused or failed append. Nothing of it is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Another Engine owns the conversation. The caller must stop.
    #[error("fenced: the conversation has a new owner")]
    Fenced,
    /// The user already sent a message with this client id.
    #[error("duplicate: this client id was received before as {task}")]
    Duplicate {
        /// The task of the earlier message.
        task: TaskId,
        /// The conversation.
        conversation: ConversationId,
        /// Sequence number of the earlier message.
        seq: Seq,
        /// Whether text and conversation are equal, so that the message is a repetition. Otherwise the id was reused.
        same: bool,
    },
    /// The conversation belongs to another user. Reported to clients as "not found".
    #[error("the conversation belongs to another user")]
    WrongOwner,
    /// The conversation was deleted.
    #[error("the conversation was deleted")]
    Deleted,
    /// A run was started before and must not be started again.
    #[error("intent {0} was already started")]
    AlreadyStarted(IntentId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Ownership of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The new epoch, with which the owner writes.
    pub epoch: Epoch,
    /// Sequence number of the last event.
    pub last: Seq,
}

/// A conversation's state, folded up to some event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Sequence number of the last folded event.
    pub seq: Seq,
    /// Version of the state's format.
    pub v: u16,
    /// The state as JSON.
    pub state: String,
}

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its sequence number.
    pub seq: Seq,
    /// Its time.
    pub at: Micros,
    /// The task that it belongs to.
    pub task: TaskId,
    /// The agent that it is about.
    pub agent: String,
    /// The JSON of its body, byte for byte.
    pub body: String,
    /// The SHA-256 of the body that the event had before its content was erased; `None` if it was not.
    pub erased: Option<[u8; 32]>,
    /// The text that the store keeps once for many events, if the row names one.
    pub text: Option<StoredText>,
}

/// A text that is stored once for many events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredText {
    /// Its id, which follows from the text ([`crate::event::shared_text_id`]).
    pub id: Uuid,
    /// The text; `None` if it is missing.
    pub text: Option<String>,
}

/// The log: the authority.
pub trait Log: Send + Sync {
    /// Stores many appends in one transaction. A refused append does not affect the others. Returns after the commit, with
    /// results in the order of the appends. An error of the whole batch is returned for each append.
    fn commit(&self, batch: Vec<Append>) -> Fut<'_, Vec<Result<Appended, AppendError>>>;

    /// Takes ownership from any previous owner: the epoch increases by one, and writes of earlier owners are refused from
    /// now on. [`Nodes::claim_free`] takes nothing from living owners.
    fn claim(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Option<Claim>, StoreError>>;

    /// Events after a sequence number, oldest first, at most `limit`. Empty if the conversation is unknown or not visible.
    fn events(
        &self,
        scope: Scope,
        conversation: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Fut<'_, Result<Vec<Event>, StoreError>>;

    /// The same events of any user, with their bodies as stored. For the audit chain, whose digests must not depend on how this
    /// version writes events.
    fn stored_events(
        &self,
        conversation: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Fut<'_, Result<Vec<StoredEvent>, StoreError>>;

    /// The newest snapshot.
    fn snapshot(&self, conversation: ConversationId) -> Fut<'_, Result<Option<Snapshot>, StoreError>>;

    /// Stores a snapshot, if this epoch still owns the conversation.
    fn put_snapshot(
        &self,
        conversation: ConversationId,
        epoch: Epoch,
        snapshot: Snapshot,
    ) -> Fut<'_, Result<(), StoreError>>;

    /// Conversations with open tasks, which must be activated at startup.
    fn open_conversations(&self) -> Fut<'_, Result<Vec<(ConversationId, UserId)>, StoreError>>;

    /// Checks whether the store responds.
    fn ping(&self) -> Fut<'_, Result<(), StoreError>>;
}

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Accepted, and its turn has not begun.
    Queued,
    /// Its turn has begun.
    Running,
    /// Suspended by its user, before its turn or between two of its rounds.
    Suspended,
    /// Ended with an answer.
    Completed,
    /// Ended with a failure that was reported to its user.
    Failed,
    /// Ended by a cancellation.
    Cancelled,
}

impl TaskState {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether this is a final state.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for TaskState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Queued, Self::Running, Self::Suspended, Self::Completed, Self::Failed, Self::Cancelled]
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| format!("unknown task state {text:?}"))
    }
}

/// A task as shown in lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// The id.
    pub id: TaskId,
    /// The owner.
    pub user: UserId,
    /// The conversation.
    pub conversation: ConversationId,
    /// The state.
    pub state: TaskState,
    /// The scheduling class.
    pub priority: Priority,
    /// The front end or channel of the message.
    pub source: String,
    /// The first 80 characters of the message.
    pub title: String,
    /// Time of acceptance.
    pub received_at: Micros,
    /// The earliest time at which the task starts or resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Micros>,
    /// The tasks that must end before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskId>,
    /// Whether this is a job command, which the kernel executes without queueing it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_job_command: bool,
    /// Whether the message joins the running turn. It is queued only if there is no turn that can accept it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_steer: bool,
    /// The task whose answer this one shares, if that task was open when the message arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<TaskId>,
    /// Time at which it was last suspended or resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_at: Option<Micros>,
    /// Whether it was last deferred because its model failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_model_failed: bool,
    /// Time at which its turn began.
    pub started_at: Option<Micros>,
    /// Time at which it ended.
    pub ended_at: Option<Micros>,
    /// The failure's code of a failed task. For an answered task that was not carried out, the name of its outcome.
    pub error: Option<String>,
}

impl TaskRow {
    /// The failure's code of a failed task.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.error.clone().filter(|_| self.state != TaskState::Completed)
    }

    /// The outcome of an answered task, as named by [`AnswerOutcome::word`].
    #[must_use]
    pub fn outcome(&self) -> Option<String> {
        let word = || self.error.clone().unwrap_or_else(|| AnswerOutcome::DONE.to_owned());
        (self.state == TaskState::Completed).then(word)
    }
}

/// A conversation as shown in lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationRow {
    /// The id.
    pub id: ConversationId,
    /// The owner.
    pub user: UserId,
    /// The first 80 characters of the first message.
    pub title: String,
    /// Sequence number of the last event.
    pub last_seq: Seq,
    /// The current epoch.
    pub epoch: Epoch,
    /// The incarnation that owns it. Absent before the first claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<NodeIncarnation>,
    /// Time of its first message.
    pub created_at: Micros,
    /// Time of its last event.
    pub updated_at: Micros,
    /// Whether all its messages are stateless calls, whose conversation is not continued. Lists omit it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// Time of its deletion. Lists of its user omit it from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Micros>,
}

/// State of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntentState {
    /// Planned, not started.
    Planned,
    /// Started: a `once` effect may have happened from here on.
    Started,
    /// Its receipt is stored.
    Done,
    /// Started, and its outcome is unknown.
    Unknown,
}

impl IntentState {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Started => "started",
            Self::Done => "done",
            Self::Unknown => "unknown",
        }
    }
}

impl std::str::FromStr for IntentState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Planned, Self::Started, Self::Done, Self::Unknown]
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| format!("unknown intent state {text:?}"))
    }
}

/// An intent, with the state of its receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentRow {
    /// The id.
    pub id: IntentId,
    /// The task.
    pub task: TaskId,
    /// The skill.
    pub skill: String,
    /// The consequence of running the skill twice.
    pub effect: Effect,
    /// The state.
    pub state: IntentState,
    /// Number of starts.
    pub attempts: u32,
}

/// An accepted message, found by its client id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// The task of the message.
    pub task: TaskId,
    /// The conversation.
    pub conversation: ConversationId,
    /// Sequence number of the message.
    pub seq: Seq,
    /// Fingerprint of the text: see [`crate::projection::text_sha256`].
    pub text_sha256: [u8; 32],
}

/// Projections of the log, for lists and look-ups. Pages are newest first.
pub trait Records: Send + Sync {
    /// A conversation, if the scope sees it.
    fn conversation(&self, scope: Scope, id: ConversationId) -> Fut<'_, Result<Option<ConversationRow>, StoreError>>;

    /// Conversations, ordered by the time of their last change. A user does not see deleted ones, the operator does.
    fn conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>>;

    /// The same without deleted conversations and those of stateless calls.
    fn listed_conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>>;

    /// A task, if it is visible in the scope.
    fn task(&self, scope: Scope, id: TaskId) -> Fut<'_, Result<Option<TaskRow>, StoreError>>;

    /// Tasks, ordered by the time of their acceptance; with `open`, only those that have not ended.
    fn tasks(&self, scope: Scope, open: bool, before: Before, limit: u32) -> Fut<'_, Result<Vec<TaskRow>, StoreError>>;

    /// The user's message with this client id.
    fn message(&self, user: UserId, client_id: String) -> Fut<'_, Result<Option<MessageRow>, StoreError>>;

    /// The intents of a task, in the order in which they were planned. An intent that was started and then interrupted with
    /// its task is `Unknown`.
    fn intents(&self, task: TaskId) -> Fut<'_, Result<Vec<IntentRow>, StoreError>>;

    /// Sums of recorded usage: those that cost most first, then those with most tokens, then by key; days newest first. A row
    /// without usage is not listed.
    fn usage(&self, query: UsageQuery) -> Fut<'_, Result<Vec<UsageRow>, StoreError>>;

    /// Deletes all projections and folds the log again. Returns the number of events read.
    fn rebuild(&self) -> Fut<'_, Result<u64, StoreError>>;
}

/// Rows of the circuit breakers.
pub trait Breakers: Send + Sync {
    /// One skill's row.
    fn breaker(&self, skill: String) -> Fut<'_, Result<Option<BreakerRow>, StoreError>>;
    /// The skills whose breaker is not closed, ordered by name; at most `limit`.
    fn open_breakers(&self, limit: u32) -> Fut<'_, Result<Vec<String>, StoreError>>;
    /// Stores one skill's row.
    fn put_breaker(&self, skill: String, row: BreakerRow) -> Fut<'_, Result<(), StoreError>>;
}

/// An API key as stored: without the secret, of which only the SHA-256 is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// The public part of the key.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// The user whose data the key gives access to.
    pub user: UserId,
    /// SHA-256 of the secret part.
    pub secret_sha256: Vec<u8>,
    /// Permissions: `chat`, `jobs:read`, `jobs:control`, `ops:read`, `ops:control`, `admin`, `impersonate`.
    pub scopes: Vec<String>,
    /// Time of creation.
    pub created_at: Micros,
    /// Time of expiry.
    pub expires_at: Option<Micros>,
    /// Time of the last use, rounded to the minute.
    pub last_used_at: Option<Micros>,
    /// Time of the revocation.
    pub revoked_at: Option<Micros>,
}

/// API keys.
pub trait Keys: Send + Sync {
    /// One key.
    fn key(&self, id: String) -> Fut<'_, Result<Option<ApiKey>, StoreError>>;
    /// All keys, oldest first.
    fn keys(&self) -> Fut<'_, Result<Vec<ApiKey>, StoreError>>;
    /// Adds or replaces a key. A revoked key stays revoked, with its first time of revocation, because another process may
    /// have revoked it since the caller read it.
    fn put_key(&self, key: ApiKey) -> Fut<'_, Result<(), StoreError>>;
    /// Records the time of a key's last use and changes nothing else. Ignores an earlier time and an unknown key.
    fn note_key_use(&self, id: String, at: Micros) -> Fut<'_, Result<(), StoreError>>;
}

/// A secret as it is stored. Only the key with this id opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// The user that the secret belongs to; `None` for a secret of the installation.
    pub user: Option<UserId>,
    /// The name, at most 64 bytes of `a-z 0-9 - _ .`.
    pub name: String,
    /// Identifies the key that seals the secret.
    pub key_id: String,
    /// The nonce, different for every sealing.
    pub nonce: Vec<u8>,
    /// The sealed text with its tag.
    pub sealed: Vec<u8>,
    /// Time of the last change.
    pub updated_at: Micros,
}

/// Stored secrets of users and of the installation. A rebuild does not touch them.
pub trait SealedSecrets: Send + Sync {
    /// One secret, of this user or of the installation.
    fn sealed_secret(&self, user: Option<UserId>, name: String) -> Fut<'_, Result<Option<SealedSecret>, StoreError>>;
    /// All secrets: those of the installation first, then by user, each by name.
    fn sealed_secrets(&self) -> Fut<'_, Result<Vec<SealedSecret>, StoreError>>;
    /// Adds or replaces a secret.
    fn put_sealed_secret(&self, secret: SealedSecret) -> Fut<'_, Result<(), StoreError>>;
    /// Deletes a secret. Returns false if there was none.
    fn delete_sealed_secret(&self, user: Option<UserId>, name: String) -> Fut<'_, Result<bool, StoreError>>;
}

/// A complete store of the kernel.
pub trait Store:
    Log + Nodes + Records + Deletions + DeadLetters + Operations + Outbox + Breakers + Keys + SealedSecrets
{
    /// The kind of store: `sqlite`, `memory` …
    fn name(&self) -> &'static str;
    /// Waits until another process may have stored new work, such as a message in an inbox. This is a hint: several hints
    /// become one, a hint that arrives while nothing waits ends the next wait at once, and a hint may be lost together with
    /// its sender. Therefore the caller looks for open work after each wait and also periodically. Only one caller at a time
    /// may wait. A store that only this process writes never ends the wait.
    fn woken(&self) -> Fut<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Whether other processes may write to the store. If so, this process registers as a node and renews its lease
    /// ([`Nodes`]).
    fn is_shared(&self) -> bool {
        true
    }

    /// Checks the integrity of the database's files, if the store has files. Each line of the result names one damage. Reads
    /// all of the data.
    ///
    /// # Errors
    /// If the files cannot be read.
    fn verify_files(&self) -> Fut<'_, Result<Vec<String>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Finishes pending operations and closes the store.
    fn close(&self) -> Fut<'_, ()>;
}

/// A database: the kernel's store, and the documents of skills beside it. The kernel gets the store only.
pub trait Storage: Store + Documents {}

impl<T: Store + Documents> Storage for T {}
