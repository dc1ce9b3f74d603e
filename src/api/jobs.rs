//! The open tasks of a user (jobs), independent of the front end: their status, their description in words, and commands on
//! them.

use annie_actors::Control;
use annie_core::{
    event::Priority,
    ids::TaskId,
    jobs::{JobLine, Resolution, Style, say, understand},
    ports::TaskState,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use crate::{auth::Caller, error::ApiError};

/// The job command that asks for the list.
const LIST: &str = "/jobs";

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    Queued,
    Running,
    /// The job failed or reached its deadline, and continues later.
    Deferred,
    Suspended,
}

impl JobStatus {
    /// The status of a job. A job is an open task, so it has no final state.
    pub const fn of(job: &JobLine) -> Self {
        match job.state {
            _ if job.is_suspended() => Self::Suspended,
            _ if job.is_deferred => Self::Deferred,
            TaskState::Queued => Self::Queued,
            TaskState::Suspended => Self::Suspended,
            TaskState::Running | TaskState::Completed | TaskState::Failed | TaskState::Cancelled => Self::Running,
        }
    }
}

/// Why a job is deferred, if this is known.
pub fn reason_of(job: &JobLine) -> Option<String> {
    job.has_model_failed.then(|| "its model failed".to_owned())
}

/// The list in words, like the answer to "what are you working on?".
pub fn describe_jobs(jobs: &[JobLine], style: Style) -> String {
    understand(LIST).map_or_else(String::new, |command| say(&command, &Resolution::None, jobs, style))
}

/// Changes the class of a task. False if the task had ended before.
///
/// # Errors
/// If the caller has no such task, or the class cannot be assigned to tasks.
pub async fn set_priority(state: &AppState, caller: &Caller, id: TaskId, priority: Priority) -> Result<bool, ApiError> {
    if priority == Priority::Realtime {
        return Err(ApiError::invalid("`realtime` is reserved for voice; use `high`").at("priority"));
    }
    Ok(state.kernel.control(caller.scope(), id, Control::Reprioritise(priority), &caller.name()).await?)
}
