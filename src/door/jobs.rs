//! A user's open tasks, the same through every door: how they are told, and what may be asked of them.

use annie_actors::Control;
use annie_core::{
    event::Priority,
    ids::TaskId,
    jobs::{JobLine, Resolution, Style, say, understand},
};

use super::AppState;
use crate::{auth::Caller, error::Fault};

/// The order that asks for the list.
const LIST: &str = "/jobs";

/// Where a job stands, in the words of tasks.
pub const fn status_of(job: &JobLine) -> &'static str {
    match () {
        () if job.is_suspended() => "suspended",
        () if job.is_put_off => "deferred",
        () => job.state.as_str(),
    }
}

/// The list in words, as "what are you working on?" is answered.
pub fn told(jobs: &[JobLine], style: Style) -> String {
    understand(LIST).map_or_else(String::new, |command| say(&command, &Resolution::None, jobs, style))
}

/// Gives a task another class. False if it had ended before.
///
/// # Errors
/// If there is no such task of the caller, or the class is not one for tasks.
pub async fn set_priority(state: &AppState, caller: &Caller, id: TaskId, priority: Priority) -> Result<bool, Fault> {
    if priority == Priority::Realtime {
        return Err(Fault::invalid("`realtime` is kept for voice; use `high`").at("priority"));
    }
    Ok(state.kernel.control(caller.scope(), id, Control::Reprioritise(priority), &caller.name()).await?)
}
