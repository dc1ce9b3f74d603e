//! The right to one round on one backend. Dropping the permit returns it, so it comes back however its holder ends.

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

use super::{AdmissionMsg, Leases, SchedulerMsg, choice::RoundChoice};
use crate::observe::Handle;

/// A request for the right to one round.
#[derive(Debug, Clone)]
pub struct PermitRequest {
    /// The task.
    pub task: TaskId,
    /// Its user.
    pub user: UserId,
    /// Its conversation.
    pub conversation: ConversationId,
    /// Its class, unless the scheduler already knows the task.
    pub priority: Priority,
    /// Since when this round waits. A time that differs from now moves the task among those of equal rank.
    pub since: Micros,
    /// Its first round starts when these tasks of the same user have ended, unless the scheduler already knows the task.
    pub after: Vec<TaskId>,
    /// Names of the backends that may run it, the preferred one first; empty means the first configured one.
    pub route: Vec<String>,
    /// Number of this round of the turn's own agent, and the maximum; `None` for a sub-agent's round.
    pub progress: Option<(u32, u32)>,
    /// Whether the round belongs to a task. Other rounds take no queue position: depth limits and estimates do not count them.
    pub is_task: bool,
}

/// No permit is available for this round, and waiting for one is useless.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPermit {
    /// No backend of the route exists.
    #[error("there is no backend {}", .0.join(", "))]
    UnknownBackend(Vec<String>),
    /// Every backend of the route refuses requests for longer than a person is kept waiting.
    #[error("{backend}: {shut}")]
    Shut {
        /// The backend that accepts requests again first.
        backend: String,
        /// Until when it refuses requests, and why.
        shut: Shut,
    },
}

impl NoPermit {
    /// The error with which the round fails.
    #[must_use]
    pub fn into_error(self, now: Micros) -> ModelError {
        let (kind, retry_after_ms) = match &self {
            Self::UnknownBackend(_) => (ModelErrorKind::Unavailable, None),
            Self::Shut { shut, .. } => (ModelErrorKind::RateLimited, Some(shut.until.since_ms(now))),
        };
        ModelError { retry_after_ms, ..ModelError::new(kind, self.to_string()) }
    }
}

/// Outcome of a round, as far as it concerns the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The round was answered.
    Fine,
    /// The round failed.
    Failed {
        /// The kind of error.
        kind: ModelErrorKind,
        /// When the provider accepts requests again, in milliseconds from now.
        retry_after_ms: Option<u64>,
    },
    /// The backend was not asked, or the round was cut off before it could answer.
    Unused,
}

impl Verdict {
    /// The verdict that follows from a round's result.
    #[must_use]
    pub fn of<T>(result: &Result<T, ModelError>) -> Self {
        match result {
            Ok(_) => Self::Fine,
            Err(e) => Self::Failed { kind: e.kind, retry_after_ms: e.retry_after_ms },
        }
    }
}

/// The right to one round. Dropping it returns it to the scheduler.
pub struct Permit {
    pub(super) id: u64,
    pub(super) backend: BackendId,
    pub(super) name: Arc<str>,
    pub(super) is_task: bool,
    pub(super) ran_ms: u64,
    pub(super) verdict: Verdict,
    pub(super) detail: String,
    /// Why the round was next, if others waited for the backend.
    pub(super) choice: Option<Box<RoundChoice>>,
    pub(super) leases: Arc<Leases>,
    pub(super) scheduler: Handle<SchedulerMsg>,
}

impl Permit {
    /// Name of the backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.name
    }

    /// Why the round was next, if others waited for the backend.
    pub(crate) fn take_choice(&mut self) -> Option<Box<RoundChoice>> {
        self.choice.take()
    }

    /// Keeps the text of a failed round for operators; it is reported with the verdict.
    #[must_use]
    pub fn explained<T>(mut self, result: &Result<T, ModelError>) -> Self {
        if let Err(error) = result {
            self.detail.clone_from(&error.detail);
        }
        self
    }

    /// Returns the permit with the duration of the round in milliseconds and its outcome: the scheduler learns from both.
    pub fn give_back(mut self, ran_ms: u64, verdict: Verdict) {
        (self.ran_ms, self.verdict) = (ran_ms, verdict);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // The verdict is recorded here, so that it is not lost with a message that no scheduler receives.
        self.leases.take_back(self.id, self.verdict, &self.detail);
        // If the scheduler is not running, its next incarnation reads the leases.
        let (backend, is_task, ran_ms, verdict) = (self.backend, self.is_task, self.ran_ms, self.verdict);
        self.scheduler.tell(SchedulerMsg::Released { backend, is_task, ran_ms, verdict });
    }
}

const OPEN: u8 = 0;
const MET: u8 = 1;
const WITHDRAWN: u8 = 2;

/// A request for a permit that its caller may withdraw. The request is met or withdrawn, and never both.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestHandle(Arc<AtomicU8>);

impl RequestHandle {
    /// Whether it is neither met nor withdrawn.
    pub fn is_open(&self) -> bool {
        self.0.load(Acquire) == OPEN
    }

    /// Withdraws the request, unless it was met: then its round may have begun.
    pub fn take_back(&self) -> bool {
        self.0.compare_exchange(OPEN, WITHDRAWN, AcqRel, Acquire).is_ok()
    }

    /// Meets the request, unless it was withdrawn. It stays met: its round may be tried on other backends.
    fn meet(&self) -> bool {
        self.0.compare_exchange(OPEN, MET, AcqRel, Acquire).map_or_else(|was| was == MET, |_| true)
    }
}

/// Waits for the right to one round, across crashes of the scheduler. Dropping the future leaves the queue. If the request is
/// withdrawn, the future never completes and is to be dropped.
///
/// # Errors
/// If no backend of the route exists, or all of them refuse requests for longer than the class is kept waiting.
pub(crate) async fn acquire(
    scheduler: &Handle<SchedulerMsg>,
    request: PermitRequest,
    handle: &RequestHandle,
) -> Result<Permit, NoPermit> {
    let answer = acquire_from(scheduler, request).await;
    if handle.meet() {
        return answer;
    }
    // Dropping the permit passes it to the next round.
    drop(answer);
    std::future::pending().await
}

/// Waits until nothing holds a task back that works without a round, across crashes of the scheduler: the tasks that it depends on
/// have ended. If the request is withdrawn, the future never completes and is to be dropped.
pub(crate) async fn wait_to_work(scheduler: &Handle<SchedulerMsg>, request: PermitRequest, handle: &RequestHandle) {
    let mut wait_ms = 5;
    loop {
        let (reply, answer) = oneshot::channel();
        let works = AdmissionMsg::Works { request: request.clone(), reply };
        if scheduler.cast(SchedulerMsg::Admission(works)).is_ok() && answer.await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(1_000);
    }
    if !handle.meet() {
        std::future::pending().await
    }
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
        // The scheduler is between two incarnations, or its mailbox is full.
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(1_000);
    }
}
