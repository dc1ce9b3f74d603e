//! The right to one round on one backend. It comes back when it is dropped, however its holder ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::AcqRel, Ordering::Acquire},
    },
    time::Duration,
};

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    message::{ModelError, ModelErrorKind},
    queue::BackendId,
    route::Shut,
    time::Micros,
};
use tokio::sync::oneshot;

use super::{Leases, SchedulerMsg};
use crate::{observe::Handle, wiring::Wiring};

/// Whose round it is.
#[derive(Debug, Clone)]
pub struct PermitRequest {
    /// The task.
    pub task: TaskId,
    /// Whose.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Its class. What the scheduler knows of the task already counts more.
    pub priority: Priority,
    /// Since when this round waits. Earlier or later than now moves it among its equals.
    pub since: Micros,
    /// Its first round starts when these tasks of the same user have ended. What the scheduler knows already counts more.
    pub after: Vec<TaskId>,
    /// Backends that may run it, the one meant first; empty means the first configured.
    pub route: Vec<String>,
    /// Which round of the turn's own agent it is, and how many that may have; nothing for a sub-agent's.
    pub progress: Option<(u32, u32)>,
    /// Whether the round is a task's. Others take no place in the queue: limits of depth and estimates do not count them.
    pub is_task: bool,
}

/// There is no right to this round now, and waiting for one is no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPermit {
    /// Nothing of the route exists.
    #[error("there is no backend {}", .0.join(", "))]
    UnknownBackend(Vec<String>),
    /// No backend of the route takes requests for longer than a person is kept waiting.
    #[error("{backend}: {shut}")]
    Shut {
        /// The one that takes requests again first.
        backend: String,
        /// Until when, and why.
        shut: Shut,
    },
}

impl NoPermit {
    /// As the failure of the round.
    #[must_use]
    pub fn into_error(self, now: Micros) -> ModelError {
        let (kind, retry_after_ms) = match &self {
            Self::UnknownBackend(_) => (ModelErrorKind::Unavailable, None),
            Self::Shut { shut, .. } => (ModelErrorKind::RateLimited, Some(shut.until.since_ms(now))),
        };
        ModelError { retry_after_ms, ..ModelError::new(kind, self.to_string()) }
    }
}

/// What became of a round, as far as its backend goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was answered.
    Fine,
    /// It failed.
    Failed {
        /// How.
        kind: ModelErrorKind,
        /// When the provider wants to be asked again, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The backend was not asked, or was cut off before it could say anything.
    Unused,
}

impl Verdict {
    /// Out of a round's result.
    #[must_use]
    pub fn of<T>(result: &Result<T, ModelError>) -> Self {
        match result {
            Ok(_) => Self::Fine,
            Err(e) => Self::Failed { kind: e.kind, retry_after_ms: e.retry_after_ms },
        }
    }
}

/// The right to one round. Dropping it gives it back.
pub struct Permit {
    pub(super) id: u64,
    pub(super) backend: BackendId,
    pub(super) name: Arc<str>,
    pub(super) is_task: bool,
    pub(super) ran_ms: u64,
    pub(super) verdict: Verdict,
    pub(super) why: String,
    pub(super) leases: Arc<Leases>,
    pub(super) scheduler: Handle<SchedulerMsg>,
}

impl Permit {
    /// On which backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.name
    }

    /// Keeps the text of a round's failure for operators; given with the verdict.
    #[must_use]
    pub fn explained<T>(mut self, result: &Result<T, ModelError>) -> Self {
        if let Err(error) = result {
            self.why.clone_from(&error.detail);
        }
        self
    }

    /// Gives it back, saying how long the round took, in milliseconds, and what became of it: the scheduler learns from both.
    pub fn give_back(mut self, ran_ms: u64, verdict: Verdict) {
        (self.ran_ms, self.verdict) = (ran_ms, verdict);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // The verdict counts here already, so that it is not lost with a message that nobody hears.
        self.leases.take_back(self.id, self.verdict, &self.why);
        // If nobody is there, the next life looks into the table.
        let (backend, is_task, ran_ms, verdict) = (self.backend, self.is_task, self.ran_ms, self.verdict);
        self.scheduler.tell(SchedulerMsg::Released { backend, is_task, ran_ms, verdict });
    }
}

const OPEN: u8 = 0;
const MET: u8 = 1;
const TAKEN_BACK: u8 = 2;

/// A wish for a permit, which whoever has it may take back: it is met or taken back, and never both.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish(Arc<AtomicU8>);

impl Wish {
    /// Whether it is neither met nor taken back.
    pub fn is_open(&self) -> bool {
        self.0.load(Acquire) == OPEN
    }

    /// Takes it back, unless it was met: then its round may have begun.
    pub fn take_back(&self) -> bool {
        self.0.compare_exchange(OPEN, TAKEN_BACK, AcqRel, Acquire).is_ok()
    }

    /// Meets it, if it was not taken back. It stays met: its round may be tried on other backends.
    fn meet(&self) -> bool {
        self.0.compare_exchange(OPEN, MET, AcqRel, Acquire).map_or_else(|was| was == MET, |_| true)
    }
}

/// Waits for the right to one round, across deaths of the scheduler. Dropping the future leaves the queue. If the wish is
/// taken back it never comes, and the future is to be dropped.
///
/// # Errors
/// If no backend of the route exists, or all of them take no requests for longer than the class is kept waiting.
pub(crate) async fn acquire(wiring: &Wiring, request: PermitRequest, wish: &Wish) -> Result<Permit, NoPermit> {
    let answer = acquire_from(&wiring.scheduler, request).await;
    if wish.meet() {
        return answer;
    }
    // The next round gets it.
    drop(answer);
    std::future::pending().await
}

pub(super) async fn acquire_from(scheduler: &Handle<SchedulerMsg>, request: PermitRequest) -> Result<Permit, NoPermit> {
    let mut wait_ms = 5;
    loop {
        let (reply, answer) = oneshot::channel();
        if scheduler.cast(SchedulerMsg::Acquire { request: request.clone(), reply }).is_ok()
            && let Ok(answer) = answer.await
        {
            return answer;
        }
        // Between two lives of the scheduler, or its mailbox is full.
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(1_000);
    }
}
