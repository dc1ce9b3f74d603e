//! The open tasks of a user (jobs), independent of the front end: their status, their description in words, and commands on
//! them.

use annie_actors::Control;
use annie_core::{
    event::Priority,
    ids::TaskId,
    jobs::{JobLine, Resolution, Style, say, understand},
};

use super::AppState;
use crate::{auth::Caller, error::ApiError};

/// The job command that asks for the list.
const LIST: &str = "/jobs";

/// The status of a job, in the words used for tasks.
pub const fn status_of(job: &JobLine) -> &'static str {
    match () {
        () if job.is_suspended() => "suspended",
        () if job.is_deferred => "deferred",
        () => job.state.as_str(),
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
