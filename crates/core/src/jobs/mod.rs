//! Job control in plain words: "what are you working on", "do that first", "cancel that" [S3 5.2.5] [S3 5.8].
//!
//! Three steps, each usable alone and none with a model: [`understand`] knows when a whole message is such a phrase,
//! [`resolve`] finds which jobs it means, [`say`] puts the answer into words. A phrase that could as well be an ordinary
//! request is a job command only if a job answers to it: see [`JobCommand::applies`].

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

/// The longest spoken command, in words. Whoever says more asks for something else.
pub const SPOKEN_WORDS_MAX: usize = 12;

/// The words after a slash that are job commands in every door. A prompt skill of such a name cannot be invoked by it.
pub const SLASH_WORDS: [&str; 7] = ["jobs", "top", "first", "urgent", "cancel", "pause", "resume"];

/// What is to be done with a job [S3 5.2.5].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Before everything else that waits; its class becomes HIGH. One that is suspended goes on. Unix's `fg`.
    First,
    /// Its class becomes HIGH. One that is suspended stays so. Unix's `nice`.
    Urgent,
    /// End it. Unix's `kill`.
    Cancel,
    /// Suspend it at the end of its round. Unix's `Ctrl+Z`.
    Pause,
    /// A suspended one goes on. Unix's `fg` again.
    Resume,
}

impl Verb {
    /// The word after the slash.
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

    /// Whether it would change anything for this job.
    #[must_use]
    pub fn fits(self, job: &JobLine) -> bool {
        if job.state.is_ended() {
            return false;
        }
        let is_high = job.priority <= Priority::High;
        match self {
            Self::Cancel => true,
            Self::Pause => !job.is_suspended(),
            Self::Resume => job.is_suspended() || job.is_put_off,
            Self::Urgent => !is_high,
            Self::First => {
                !is_high || job.is_suspended() || job.is_put_off || (job.is_waiting() && job.position != Some(1))
            }
        }
    }
}

/// Which job is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// "that": the one that comes to mind first, see [`resolve`].
    That,
    /// All of them.
    All,
    /// By its number in the list, from 1.
    Number(usize),
    /// By its id.
    Id(TaskId),
    /// By words of its title, small letters, without article: `video summary`.
    Words(String),
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum JobRequest {
    /// What runs and what waits. Unix's `jobs`.
    List,
    /// How much there is to do. Unix's `top`.
    Busy,
    /// Do something with a job.
    Act {
        /// What.
        verb: Verb,
        /// With which.
        target: Target,
    },
}

/// A message that is a job command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobCommand {
    /// What is asked for.
    pub request: JobRequest,
    /// Whether everything is to be told: `--all`, `--detail`, "in detail".
    pub is_detailed: bool,
    is_certain: bool,
}

impl JobCommand {
    /// Whether it can mean nothing else. All slash forms, lists, "number 2", "everything" and "cancel that" are certain.
    /// Titles in words are not ("cancel the research"), nor are "task 2" and "all tasks" (the user's own tasks have numbers
    /// too), "stop it", nor what people also say to the assistant itself: "never mind", "stop", "start with that", and
    /// "resume", which lets a paused turn go on.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Whether it is to be carried out, now that its target was looked for. If not, the message is an ordinary one.
    #[must_use]
    pub fn applies(&self, found: &Resolution) -> bool {
        self.is_certain || *found != Resolution::None
    }
}

/// One job as lists show it: an open task with what the queue knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobLine {
    /// Its number in the list, from 1.
    pub number: usize,
    /// The task.
    pub task: TaskId,
    /// What it is about.
    pub title: String,
    /// Where it stands.
    pub state: TaskState,
    /// Since when it is suspended, if it is.
    pub suspended_at: Option<Micros>,
    /// It has begun, and goes on at a later time.
    pub is_put_off: bool,
    /// Its own class, before aging.
    pub priority: Priority,
    /// Its place in the queue, from 1; nothing while it runs, is delayed or suspended.
    pub position: Option<usize>,
    /// The round that it is in, and how many it may have.
    pub round: Option<(u32, u32)>,
    /// When its next round may be expected to start, in milliseconds from now.
    pub start_in_ms: Option<u64>,
    /// How long it has run, in milliseconds.
    pub running_ms: Option<u64>,
    /// In which conversation.
    pub conversation: ConversationId,
}

impl JobLine {
    /// Whether somebody paused it.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.suspended_at.is_some() && !self.state.is_ended()
    }

    /// Whether it is being worked on.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == TaskState::Running && self.suspended_at.is_none() && !self.is_put_off
    }

    /// Whether it waits for its turn to begin, or to go on.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let waits = self.state == TaskState::Queued || (self.is_put_off && !self.state.is_ended());
        waits && self.suspended_at.is_none()
    }
}
