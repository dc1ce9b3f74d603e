//! The handle that front ends hold. Every operation of a front end goes through it with the caller's scope. What a caller
//! may not see is reported as not found (invariant 17).

mod agents;
mod approvals;
mod boot;
mod command_runs;
mod conversations;
mod data;
mod dead_letters;
mod deletions;
mod embed;
mod embed_slots;
mod inbox;
mod jobs;
mod notices;
mod operate;
mod operations;
mod orders;
mod reminders;
mod replay;
mod schedules;
mod skills;
mod state;
mod stream;
mod submit;
mod usage;
mod workflows;

use std::sync::Arc;

pub use agents::OpenAgent;
use annie_core::{
    event::{Event, Scope},
    ids::{ConversationId, Seq, TaskId},
    ports::{Before, Catalog, Store, StoreError, TaskRow},
    queue::Refusal,
    time::Micros,
};
pub use approvals::OpenApproval;
pub(crate) use approvals::open_approvals;
pub use boot::Parts;
pub use conversations::{FoundConversation, with_titles};
pub use dead_letters::{DEAD_LETTERS_AT_ONCE_MAX, DeadLetterDetail, ManyDeadLetters, ManyDone};
pub use deletions::DeleteOptions;
pub use embed::EmbedError;
pub(crate) use embed_slots::Embeddings;
pub use notices::NoticeStream;
pub use operate::{Health, Operation};
pub use operations::OperationResult;
pub use replay::{Copy, EXPORT_MARK, EXPORT_VERSION, ImportPart, ReplayRequest, Replayed};
pub use skills::{CommandCaller, SkillRun};
pub use state::StateChanged;
pub use stream::{Follow, StreamItem};
pub(crate) use submit::accept_message;
pub use submit::{Submission, Submitted, THREAD_BYTES_MAX};
use tokio::sync::watch;
pub use workflows::{KnownWorkflow, RunWorkflow, WorkflowState};

use crate::{log_writer::LogError, observe::SendError, root::StopReason, wiring::Wiring};

/// Why the kernel refused or failed a request. Front ends map these errors to their own codes, in one place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The request itself is wrong; the text says why and how to correct it.
    #[error("{0}")]
    Invalid(String),
    /// As `Invalid`, with the field of the request that is wrong, as the front ends name it.
    #[error("{why}")]
    InvalidField {
        /// The field.
        field: &'static str,
        /// Why, and how to correct it.
        why: String,
    },
    /// There is no such thing, or the caller may not see it.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The conversation was deleted. Until it is erased it can be restored.
    #[error("the conversation was deleted; `annie conversations trash` lists those that can be restored")]
    Deleted,
    /// The queue is full.
    #[error("{0}")]
    Full(Refusal),
    /// A running turn was steered a moment ago.
    #[error(
        "this conversation was steered a moment ago: try again in {retry_after_ms} ms, or send it as a message of its own"
    )]
    TooSoon {
        /// When the turn may be steered again, in milliseconds.
        retry_after_ms: u64,
    },
    /// The same client id was used for another message.
    #[error("this message id was already used for another message ({task})")]
    Conflict {
        /// The task of that other message.
        task: TaskId,
    },
    /// The state of the thing has changed, or is not the one that the caller expected.
    #[error("{0}")]
    Stale(String),
    /// The kernel is stopping or starting; the caller may try again shortly. The request may have taken effect.
    #[error("annie is not ready: {0}")]
    Unavailable(String),
    /// As `Unavailable`, but before anything was stored: the request has had no effect and will have none.
    #[error("annie is not ready: {0}")]
    NotReady(String),
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
}

impl KernelError {
    /// The error of a request with one wrong field.
    pub(crate) fn of_field(field: &'static str, why: impl Into<String>) -> Self {
        Self::InvalidField { field, why: why.into() }
    }
}

impl From<SendError> for KernelError {
    fn from(e: SendError) -> Self {
        Self::Unavailable(e.to_string())
    }
}

impl From<LogError> for KernelError {
    fn from(e: LogError) -> Self {
        use annie_core::ports::AppendError;
        match e {
            LogError::Refused(AppendError::WrongOwner) => Self::NotFound("conversation"),
            LogError::Refused(AppendError::Deleted) => Self::Deleted,
            LogError::Refused(AppendError::Duplicate { task, .. }) => Self::Conflict { task },
            LogError::Refused(AppendError::Store(e)) => Self::Store(e),
            LogError::Refused(e) => Self::Stale(e.to_string()),
            LogError::Lost(e) => {
                Self::Unavailable(format!("the log did not answer ({e}); send the message again with the same id"))
            }
        }
    }
}

/// A running kernel. Cheap to clone. Dropping the last clone does not stop it; [`Kernel::stop`] does.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) wiring: Arc<Wiring>,
    pub(crate) system: Arc<crate::observe::System>,
    pub(crate) root: crate::observe::Branch,
    pub(crate) ended: watch::Receiver<Option<StopReason>>,
    pub(crate) draining: Arc<std::sync::atomic::AtomicBool>,
}

/// Rows on one page, at most.
pub const PAGE_MAX: u32 = 500;

impl Kernel {
    /// The present time, for front ends.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.wiring.env.now()
    }

    /// The kernel's clock and randomness.
    #[must_use]
    pub fn env(&self) -> &annie_core::ports::Env {
        &self.wiring.env
    }

    /// The store, for front ends that serve its other data (keys).
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.wiring.store
    }

    /// Receives the number of commits of the log. Commits before this call count as seen.
    #[must_use]
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.wiring.hub.listen_for_commits()
    }

    /// The skills.
    #[must_use]
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.wiring.catalog
    }

    /// The model backends as (name, model, description).
    #[must_use]
    pub fn models(&self) -> Vec<(String, String, String)> {
        let all = self.wiring.backends.values();
        all.map(|b| (b.name.clone(), b.model.id().to_owned(), b.model.about())).collect()
    }

    /// Stored events after a sequence number, oldest first.
    ///
    /// # Errors
    /// If there is no such conversation that the scope sees.
    pub async fn events(
        &self,
        scope: Scope,
        id: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Event>, KernelError> {
        self.conversation(scope.clone(), id).await?;
        Ok(self.wiring.store.events(scope, id, after, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// As [`Self::events`], also of a deleted conversation: for the audit trail, which has no content.
    ///
    /// # Errors
    /// If there is no such conversation that the scope sees.
    pub async fn audited_events(
        &self,
        scope: Scope,
        id: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Event>, KernelError> {
        let row = self.wiring.store.conversation(scope.clone(), id).await?;
        row.ok_or(KernelError::NotFound("conversation"))?;
        Ok(self.wiring.store.events(scope, id, after, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// A task.
    ///
    /// # Errors
    /// If there is none that the scope sees.
    pub async fn task(&self, scope: Scope, id: TaskId) -> Result<TaskRow, KernelError> {
        self.wiring.store.task(scope, id).await?.ok_or(KernelError::NotFound("task"))
    }

    /// Tasks by the time at which they were received, newest first; with `open`, only those that have not ended.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn tasks(
        &self,
        scope: Scope,
        open: bool,
        before: Before,
        limit: u32,
    ) -> Result<Vec<TaskRow>, KernelError> {
        Ok(self.wiring.store.tasks(scope, open, before, limit.clamp(1, PAGE_MAX)).await?)
    }
}
