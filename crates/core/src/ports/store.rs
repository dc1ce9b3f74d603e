//! What is kept: the log, its projections, and the data of the built-in skills. One contract suite
//! (`crates/store/tests/contract`) says how every store must behave.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Before, Fut, Letters, Nodes, Operations, Outbox};
use crate::{
    breaker::BreakerRow,
    event::{AnswerOutcome, Event, NewEvent, Priority, Scope},
    ids::{ConversationId, Epoch, IntentId, NodeIncarnation, Seq, TaskId, UserId},
    skill::Effect,
    time::Micros,
};

/// What kind of trouble a store has; decides what a door answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// Another process holds the database for too long.
    Locked,
    /// No space left.
    Full,
    /// Cannot be reached or opened.
    Unavailable,
    /// A stored shape cannot be read.
    Corrupt,
    /// A bug: a statement or a bound was wrong.
    Internal,
}

/// A store that could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct StoreError {
    /// What kind.
    pub kind: StoreErrorKind,
    /// What was being done.
    pub what: &'static str,
    /// The database's words.
    pub detail: String,
}

impl StoreError {
    /// Whether the same may work later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Locked | StoreErrorKind::Full | StoreErrorKind::Unavailable)
    }
}

/// Who may write an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// Anyone: a door putting a message into the inbox. Creates the conversation if it is new.
    Inbox,
    /// Only the owner of this epoch; refused as [`AppendError::Fenced`] once somebody else has claimed it.
    Owner(Epoch),
}

/// Events of one conversation that are stored together or not at all, with their projections.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// Whose log.
    pub conversation: ConversationId,
    /// Whose conversation.
    pub user: UserId,
    /// Who may write.
    pub fence: Fence,
    /// What happened; at least one.
    pub events: Vec<NewEvent>,
}

/// An append that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The place of its first event; the others follow without gaps.
    pub first: Seq,
}

/// An append that is not stored. Nothing of it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Somebody else owns the conversation now: stop.
    #[error("fenced: the conversation has a new owner")]
    Fenced,
    /// This user already sent a message with this client id.
    #[error("duplicate: this client id was received before as {task}")]
    Duplicate {
        /// The task that it became.
        task: TaskId,
        /// In which conversation.
        conversation: ConversationId,
        /// Where.
        seq: Seq,
        /// Whether text and conversation are the same: a repeat. Otherwise the id was used for something else.
        same: bool,
    },
    /// The conversation is another user's; told to a caller as "not found".
    #[error("the conversation belongs to another user")]
    WrongOwner,
    /// A run was started before and may not be started again.
    #[error("intent {0} was already started")]
    AlreadyStarted(IntentId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Ownership of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The new epoch: what the owner writes with.
    pub epoch: Epoch,
    /// The last event's place.
    pub last: Seq,
}

/// A conversation's folded state at some event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last event in it.
    pub seq: Seq,
    /// Version of the state's shape.
    pub v: u16,
    /// The state as JSON.
    pub state: String,
}

/// The log: the authority.
pub trait Log: Send + Sync {
    /// Stores many appends in one transaction, each on its own terms: one that is refused does not hinder the others.
    /// Answers only after the commit, in the order of the appends. An error of the whole batch is repeated for each.
    fn commit(&self, batch: Vec<Append>) -> Fut<'_, Vec<Result<Appended, AppendError>>>;

    /// Takes ownership, whoever had it: the epoch rises by one and every earlier owner's writes are refused from now on.
    /// [`Nodes::claim_free`] spares living owners.
    fn claim(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Option<Claim>, StoreError>>;

    /// Events after a place, oldest first, at most `limit`; empty for an unknown conversation or a wrong owner.
    fn events(
        &self,
        scope: Scope,
        conversation: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Fut<'_, Result<Vec<Event>, StoreError>>;

    /// The newest snapshot.
    fn snapshot(&self, conversation: ConversationId) -> Fut<'_, Result<Option<Snapshot>, StoreError>>;

    /// Keeps a snapshot, if this epoch still owns the conversation.
    fn put_snapshot(
        &self,
        conversation: ConversationId,
        epoch: Epoch,
        snapshot: Snapshot,
    ) -> Fut<'_, Result<(), StoreError>>;

    /// Conversations with tasks that are not ended: what a boot must wake.
    fn open_conversations(&self) -> Fut<'_, Result<Vec<(ConversationId, UserId)>, StoreError>>;

    /// Whether the store answers.
    fn ping(&self) -> Fut<'_, Result<(), StoreError>>;
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Accepted, waiting.
    Queued,
    /// Its turn has begun.
    Running,
    /// Held back by its user, before its turn or between two rounds of it.
    Suspended,
    /// Ended with an answer.
    Completed,
    /// Ended with a visible failure.
    Failed,
    /// Ended at somebody's request.
    Cancelled,
}

impl TaskState {
    /// The wire word.
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

    /// Whether nothing more happens to it.
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

/// A task as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Its id.
    pub id: TaskId,
    /// Whose.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Where it stands.
    pub state: TaskState,
    /// Its class.
    pub priority: Priority,
    /// Through which door it came.
    pub source: String,
    /// The message's first 80 characters.
    pub title: String,
    /// When it was accepted.
    pub received_at: Micros,
    /// It goes on at this time at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Micros>,
    /// It starts when these have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskId>,
    /// It is an order about tasks: the kernel carries it out, without a place in the queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_order: bool,
    /// It joins the turn under way, and has no place of its own unless there is none that takes it in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_steer: bool,
    /// The task whose answer is its answer too, if that one was open when it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<TaskId>,
    /// When it was last held back or let go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_at: Option<Micros>,
    /// When its turn began.
    pub started_at: Option<Micros>,
    /// When it ended.
    pub ended_at: Option<Micros>,
    /// The failure's code, when it failed; of an answered task that was not carried out, the word of its outcome.
    pub error: Option<String>,
}

impl TaskRow {
    /// The failure's code, of a failed task.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.error.clone().filter(|_| self.state != TaskState::Completed)
    }

    /// What an answered task came to, as [`AnswerOutcome::word`] says it.
    #[must_use]
    pub fn outcome(&self) -> Option<String> {
        let word = || self.error.clone().unwrap_or_else(|| AnswerOutcome::DONE.to_owned());
        (self.state == TaskState::Completed).then(word)
    }
}

/// A conversation as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationRow {
    /// Its id.
    pub id: ConversationId,
    /// Whose.
    pub user: UserId,
    /// The first message's first 80 characters.
    pub title: String,
    /// The last event's place.
    pub last_seq: Seq,
    /// Which ownership is current.
    pub epoch: Epoch,
    /// The process that has it; nothing before the first claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<NodeIncarnation>,
    /// When it began.
    pub created_at: Micros,
    /// When something last happened.
    pub updated_at: Micros,
    /// All its messages are stateless calls, to which nobody comes back: lists leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
}

/// Where an intent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntentState {
    /// Recorded, not begun.
    Planned,
    /// Begun: from here on a `once` effect may have happened.
    Started,
    /// Its receipt is stored.
    Done,
    /// It was begun and nobody knows.
    Unknown,
}

impl IntentState {
    /// The wire word.
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

/// An intent and its receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentRow {
    /// Its id.
    pub id: IntentId,
    /// In which task.
    pub task: TaskId,
    /// Of which skill.
    pub skill: String,
    /// What a repetition would mean.
    pub effect: Effect,
    /// Where it stands.
    pub state: IntentState,
    /// How often it was started.
    pub attempts: u32,
}

/// An accepted message, as its front end's id for it finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// What it became.
    pub task: TaskId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Its place there.
    pub seq: Seq,
    /// What tells its text from another's: see [`crate::projection::text_sha256`].
    pub text_sha256: [u8; 32],
}

/// Projections of the log, for lists and look-ups. Pages are newest first.
pub trait Records: Send + Sync {
    /// A conversation, if the scope sees it.
    fn conversation(&self, scope: Scope, id: ConversationId) -> Fut<'_, Result<Option<ConversationRow>, StoreError>>;

    /// Conversations by the time of their last change.
    fn conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>>;

    /// The same without those of stateless calls.
    fn listed_conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>>;

    /// A task, if the scope sees it.
    fn task(&self, scope: Scope, id: TaskId) -> Fut<'_, Result<Option<TaskRow>, StoreError>>;

    /// Tasks by the time at which they were received; only those not ended if `open`.
    fn tasks(&self, scope: Scope, open: bool, before: Before, limit: u32) -> Fut<'_, Result<Vec<TaskRow>, StoreError>>;

    /// The message of a user with this client id.
    fn message(&self, user: UserId, client_id: String) -> Fut<'_, Result<Option<MessageRow>, StoreError>>;

    /// The intents of a task, in the order in which they were planned. One that was begun and cut off with its task is
    /// `Unknown`.
    fn intents(&self, task: TaskId) -> Fut<'_, Result<Vec<IntentRow>, StoreError>>;

    /// Throws every projection away and folds the log again; answers how many events were read.
    fn rebuild(&self) -> Fut<'_, Result<u64, StoreError>>;
}

/// State rows of the circuit breakers.
pub trait Breakers: Send + Sync {
    /// One skill's row.
    fn breaker(&self, skill: String) -> Fut<'_, Result<Option<BreakerRow>, StoreError>>;
    /// The skills whose breaker is not closed, by name; at most this many.
    fn open_breakers(&self, limit: u32) -> Fut<'_, Result<Vec<String>, StoreError>>;
    /// Keeps one skill's row.
    fn put_breaker(&self, skill: String, row: BreakerRow) -> Fut<'_, Result<(), StoreError>>;
}

/// An API key as it is stored: never the secret, only its SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// The public part.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// Whose data it opens.
    pub user: UserId,
    /// SHA-256 of the secret part.
    pub secret_sha256: Vec<u8>,
    /// What it may do: `chat`, `jobs:read`, `jobs:control`, `ops:read`, `ops:control`, `admin`, `impersonate`.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Micros,
    /// When it ends.
    pub expires_at: Option<Micros>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Micros>,
    /// When it was revoked.
    pub revoked_at: Option<Micros>,
}

/// API keys.
pub trait Keys: Send + Sync {
    /// One key.
    fn key(&self, id: String) -> Fut<'_, Result<Option<ApiKey>, StoreError>>;
    /// All keys, oldest first.
    fn keys(&self) -> Fut<'_, Result<Vec<ApiKey>, StoreError>>;
    /// Adds or replaces a key. A key that is revoked stays so, with its first time: another process may have revoked it since
    /// the caller read it.
    fn put_key(&self, key: ApiKey) -> Fut<'_, Result<(), StoreError>>;
    /// Notes when a key was last used, and changes nothing else. An earlier time and an unknown key change nothing.
    fn note_key_use(&self, id: String, at: Micros) -> Fut<'_, Result<(), StoreError>>;
}

/// Where a user's task stands (the `tasks` skills; called todo in code, since a task is what the scheduler orders).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    #[default]
    Todo,
    /// Begun.
    InProgress,
    /// Waiting for something.
    Blocked,
    /// Finished.
    Done,
    /// Given up.
    Cancelled,
}

impl TodoStatus {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Todo => "todo",
            Self::InProgress => "in_progress",
            Self::Blocked => "blocked",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it still wants doing.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Todo | Self::InProgress | Self::Blocked)
    }
}

/// How much a user's task matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoPriority {
    /// Some day.
    Low,
    /// As usual.
    #[default]
    Medium,
    /// Soon.
    High,
    /// Now.
    Critical,
}

impl TodoPriority {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// A user's task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    /// Its number, from 1 per user: what people and models call it by.
    pub number: u64,
    /// What is to be done.
    pub title: String,
    /// More about it.
    pub description: String,
    /// Where it stands.
    pub status: TodoStatus,
    /// How much it matters.
    pub priority: TodoPriority,
    /// When it is due, in the user's own time: `2026-02-28` or `2026-02-28T14:00`. Compares as text.
    pub due: Option<String>,
    /// Free words.
    pub tags: Vec<String>,
    /// When it was made.
    pub created_at: Micros,
    /// When it was last changed.
    pub updated_at: Micros,
}

/// A user's task to make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewTodo {
    /// See [`Todo`].
    pub title: String,
    /// See [`Todo`].
    pub description: String,
    /// See [`Todo`].
    pub priority: TodoPriority,
    /// See [`Todo`].
    pub due: Option<String>,
    /// See [`Todo`].
    pub tags: Vec<String>,
}

/// What to change in a user's task; `None` leaves a field alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TodoPatch {
    /// See [`Todo`].
    pub title: Option<String>,
    /// See [`Todo`].
    pub description: Option<String>,
    /// See [`Todo`].
    pub status: Option<TodoStatus>,
    /// See [`Todo`].
    pub priority: Option<TodoPriority>,
    /// `Some(None)` takes the date away.
    pub due: Option<Option<String>>,
    /// See [`Todo`].
    pub tags: Option<Vec<String>>,
}

/// Which of a user's tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TodoQuery {
    /// Words that title, description or tags must hold, all of them, in any case; empty means any.
    pub text: String,
    /// Only with this status.
    pub status: Option<TodoStatus>,
    /// Only open ones (todo, in progress, blocked).
    pub open: bool,
    /// Only with this priority.
    pub priority: Option<TodoPriority>,
    /// Only due before this local time (exclusive; compares as text).
    pub due_before: Option<String>,
    /// Only due at or after this local time.
    pub due_from: Option<String>,
    /// Only with this tag.
    pub tag: Option<String>,
    /// At most so many: due ones first by date, then by priority, then by number.
    pub limit: u32,
}

/// Counts for the prompt [S0 6.1].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoSummary {
    /// Open tasks.
    pub open: u64,
    /// Open and due before now.
    pub overdue: u64,
    /// Open and due before the end of today, overdue ones not counted.
    pub due_today: u64,
    /// Title of the most urgent open one: overdue first, then priority, then date.
    pub top: Option<String>,
}

/// The users' tasks.
pub trait Todos: Send + Sync {
    /// Makes one; the same intent again gives the one that it made.
    fn create_todo(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewTodo,
        at: Micros,
    ) -> Fut<'_, Result<Todo, StoreError>>;
    /// One by number.
    fn todo(&self, user: UserId, number: u64) -> Fut<'_, Result<Option<Todo>, StoreError>>;
    /// Those that fit a query.
    fn find_todos(&self, user: UserId, query: TodoQuery) -> Fut<'_, Result<Vec<Todo>, StoreError>>;
    /// Changes one; `None` if there is none.
    fn update_todo(
        &self,
        user: UserId,
        number: u64,
        patch: TodoPatch,
        at: Micros,
    ) -> Fut<'_, Result<Option<Todo>, StoreError>>;
    /// Archives one: it is never shown again. False if there is none.
    fn delete_todo(&self, user: UserId, number: u64, at: Micros) -> Fut<'_, Result<bool, StoreError>>;
    /// Counts, given the user's local time as `YYYY-MM-DDTHH:MM`.
    fn todo_summary(&self, user: UserId, local_now: String) -> Fut<'_, Result<TodoSummary, StoreError>>;
}

/// What kind of thing a memory is [S0 14.3].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryCategory {
    /// What somebody prefers.
    Preference,
    /// What is so.
    Fact,
    /// What was decided.
    Decision,
    /// What is wanted.
    Goal,
    /// How people relate.
    Relationship,
    /// Anything else.
    #[default]
    Context,
    /// What the user told the assistant to do.
    Instruction,
}

impl MemoryCategory {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preference => "preference",
            Self::Fact => "fact",
            Self::Decision => "decision",
            Self::Goal => "goal",
            Self::Relationship => "relationship",
            Self::Context => "context",
            Self::Instruction => "instruction",
        }
    }
}

/// A memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Its number, from 1 per user.
    pub number: u64,
    /// What is remembered: a clear, standalone statement.
    pub content: String,
    /// Free words, lower case.
    pub tags: Vec<String>,
    /// What kind of thing.
    pub category: MemoryCategory,
    /// 0 to 1.
    pub importance: f64,
    /// When it was made.
    pub created_at: Micros,
    /// When it was last changed.
    pub updated_at: Micros,
    /// When it was last found by a search.
    pub accessed_at: Option<Micros>,
}

/// A memory to keep.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMemory {
    /// See [`Memory`].
    pub content: String,
    /// See [`Memory`].
    pub tags: Vec<String>,
    /// See [`Memory`].
    pub category: MemoryCategory,
    /// See [`Memory`].
    pub importance: f64,
}

/// What became of a memory to keep.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// As it is now.
    pub memory: Memory,
    /// Whether it was merged into one that says nearly the same.
    pub merged: bool,
}

/// Which memories.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryQuery {
    /// Words to look for, any of them; empty means any memory.
    pub text: String,
    /// At least one of these tags; empty means any.
    pub tags: Vec<String>,
    /// Only of this kind.
    pub category: Option<MemoryCategory>,
    /// Only at least this important.
    pub min_importance: Option<f64>,
    /// At most so many, best first: text rank times importance.
    pub limit: u32,
}

/// A memory that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryHit {
    /// The memory.
    pub memory: Memory,
    /// Text rank times importance; only its order means something.
    pub rank: f64,
}

/// The users' memories.
pub trait Memories: Send + Sync {
    /// Keeps one, or merges it into a near-duplicate of the same user and category: tags joined, the higher importance,
    /// the longer text. The same intent again changes nothing more.
    fn save_memory(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewMemory,
        at: Micros,
    ) -> Fut<'_, Result<Saved, StoreError>>;
    /// Those that fit a query.
    fn find_memories(&self, user: UserId, query: MemoryQuery) -> Fut<'_, Result<Vec<MemoryHit>, StoreError>>;
    /// Notes that these were found.
    fn touch_memories(&self, user: UserId, numbers: Vec<u64>, at: Micros) -> Fut<'_, Result<(), StoreError>>;
}

/// Everything that is kept.
pub trait Store: Log + Nodes + Records + Letters + Operations + Outbox + Breakers + Keys + Todos + Memories {
    /// `sqlite`, `memory` …
    fn name(&self) -> &'static str;
    /// Waits until another process may have stored something that wants doing: a message into an inbox. It is a hint: several
    /// become one, what came while nobody waited ends the next wait at once, and one may be lost with whoever was to give it.
    /// Whoever waits looks for open work then, and from time to time. One at a time waits. A store that only this process
    /// writes never wakes anybody.
    fn woken(&self) -> Fut<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Whether other processes may write to it. Then this one registers as a node and renews its lease ([`Nodes`]).
    fn is_shared(&self) -> bool {
        true
    }

    /// Checks the database's own files from end to end, where the store has files: each line names damage that was found.
    /// Takes as long as reading all of it.
    ///
    /// # Errors
    /// If they cannot be read at all.
    fn verify_files(&self) -> Fut<'_, Result<Vec<String>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Finishes what is under way and closes.
    fn close(&self) -> Fut<'_, ()>;
}
