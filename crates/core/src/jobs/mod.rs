//! Job commands in natural language: "what are you working on", "do that first", "cancel that" [S3 5.2.5] [S3 5.8].
//!
//! There are three steps, each usable alone and none with a model. [`understand`] detects that a whole message is a job
//! command, [`resolve`] finds the jobs that it refers to, and [`say`] phrases the answer. A phrase that could also be an
//! ordinary request is a job command only if it matches a job: see [`JobCommand::applies`].

mod grammar;
mod resolve;
mod say;
mod target;
#[cfg(test)]
mod tests;
mod understand;
pub(crate) mod words;

pub use resolve::{Resolution, resolve};
pub use say::{Style, say};
pub use understand::understand;

use crate::{
    event::Priority,
    ids::{ConversationId, TaskId},
    ports::TaskState,
    time::Micros,
};

/// Maximum length of a spoken command, in words. Longer messages are ordinary requests.
pub const SPOKEN_WORDS_MAX: usize = 12;

/// The words after a slash that are job commands in every front end. A prompt skill with such a name cannot be invoked by
/// it.
pub const SLASH_WORDS: [&str; 7] = ["jobs", "top", "first", "urgent", "cancel", "pause", "resume"];

/// The action of a job command [S3 5.2.5].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Run the job before all other waiting jobs: its class becomes HIGH, and it is resumed if it is suspended. Like Unix's
    /// `fg`.
    First,
    /// Raise its class to HIGH. A suspended job stays suspended. Like Unix's `nice`.
    Urgent,
    /// Cancel the job. Like Unix's `kill`.
    Cancel,
    /// Suspend the job at the end of its round. Like Unix's `Ctrl+Z`.
    Pause,
    /// Resume a suspended job. Also like Unix's `fg`.
    Resume,
}

impl Verb {
    /// The command's word after the slash.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Urgent => "urgent",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    /// Whether the action would change anything for this job.
    #[must_use]
    pub fn fits(self, job: &JobLine) -> bool {
        if job.state.is_ended() {
            return false;
        }
        let is_high = job.priority <= Priority::High;
        match self {
            Self::Cancel => true,
            Self::Pause => !job.is_suspended(),
            Self::Resume => job.is_suspended() || job.is_deferred,
            Self::Urgent => !is_high,
            Self::First => {
                !is_high || job.is_suspended() || job.is_deferred || (job.is_waiting() && job.position != Some(1))
            }
        }
    }
}

/// The job that a command refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// "that": the most likely job, see [`resolve`].
    That,
    /// All jobs.
    All,
    /// A job's number in the list, from 1.
    Number(usize),
    /// A task id.
    Id(TaskId),
    /// Words of the title in lower case, without the article: `video summary`.
    Words(String),
}

/// The request of a job command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum JobRequest {
    /// List the running and waiting jobs. Like Unix's `jobs`.
    List,
    /// Report the load. Like Unix's `top`.
    Busy,
    /// Apply an action to a job.
    Act {
        /// The action.
        verb: Verb,
        /// The job.
        target: Target,
    },
}

/// A message that is a job command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobCommand {
    /// The request.
    pub request: JobRequest,
    /// Whether a detailed answer was requested: `--all`, `--detail`, "in detail".
    pub is_detailed: bool,
    is_certain: bool,
}

impl JobCommand {
    /// Whether the phrase has no other meaning. All slash commands, lists, "number 2", "everything" and "cancel that" are
    /// certain. Titles in words are not certain ("cancel the research"). Neither are "task 2" and "all tasks", because the
    /// user's own tasks have numbers too; nor "stop it"; nor phrases that people also address to the assistant: "never
    /// mind", "stop", "start with that", and "resume", which continues a paused turn.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Whether to execute the command, given the resolution of its target. If false, the message is an ordinary request.
    #[must_use]
    pub fn applies(&self, found: &Resolution) -> bool {
        self.is_certain || *found != Resolution::None
    }
}

/// One job as shown in lists: an open task with its state in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobLine {
    /// Its number in the list, from 1.
    pub number: usize,
    /// The task.
    pub task: TaskId,
    /// The task's title.
    pub title: String,
    /// The task's state.
    pub state: TaskState,
    /// Time of the suspension, if it is suspended.
    pub suspended_at: Option<Micros>,
    /// Whether the task has begun and is deferred.
    pub is_deferred: bool,
    /// Whether a call of the task waits for the approval of a person.
    pub awaits_approval: bool,
    /// Whether the task is deferred because its model failed. False if the reason is unknown.
    pub has_model_failed: bool,
    /// The task's own class, before aging.
    pub priority: Priority,
    /// The position in the queue, from 1. Absent while the task runs, or is deferred or suspended.
    pub position: Option<usize>,
    /// The current round and the maximum number of rounds.
    pub round: Option<(u32, u32)>,
    /// Estimated time until its next round starts, in milliseconds from now.
    pub start_in_ms: Option<u64>,
    /// Until when it is deferred. Absent if it is not.
    pub deferred_until: Option<Micros>,
    /// The time in which its remaining rounds run if it uses all of them, in milliseconds. It may end sooner. Absent before its first
    /// round, and while it is deferred or suspended.
    pub ends_in_ms_max: Option<u64>,
    /// How long the task has run, in milliseconds. Absent while it waits for its first round or is deferred.
    pub running_ms: Option<u64>,
    /// The conversation.
    pub conversation: ConversationId,
}

impl JobLine {
    /// Whether the user paused the job.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.suspended_at.is_some() && !self.state.is_ended()
    }

    /// The part of its rounds that is done, in percent, if it uses all of them.
    #[must_use]
    pub fn percent(&self) -> Option<u32> {
        let (now, max) = self.round?;
        Some((now.saturating_sub(1).saturating_mul(100) / max.max(1)).min(100))
    }

    /// Whether the job is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == TaskState::Running && self.suspended_at.is_none() && !self.is_deferred
    }

    /// Whether the job waits for its turn to begin or to resume.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let waits = self.state == TaskState::Queued || (self.is_deferred && !self.state.is_ended());
        waits && self.suspended_at.is_none()
    }
}
