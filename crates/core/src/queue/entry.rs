//! The data types of the queue's input and output.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::limits::Refusal;
use crate::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    time::Micros,
};

/// A backend, as an index in the scheduler's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackendId(pub u16);

/// Identity of a task's work, for finding equal work: a digest of its name and input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkKey([u8; 16]);

impl WorkKey {
    /// The key of this work.
    #[must_use]
    pub fn of(name: &str, input: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name.as_bytes());
        hash.update(input.as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        Self(key)
    }
}

/// A task that waits for its next round. Serialisable, because the task table stores it and restores it after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The task.
    pub task: TaskId,
    /// The task's user.
    pub user: UserId,
    /// The task's conversation.
    pub conversation: ConversationId,
    /// The task's own class, before aging.
    pub class: Priority,
    /// The backend of its next round.
    pub backend: BackendId,
    /// Start of its wait, from which aging counts.
    pub anchor: Micros,
    /// The earliest start time. Aging begins then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Micros>,
    /// The key of its work. Equal work of the same user that has not begun is done once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkKey>,
    /// Number of completed rounds.
    #[serde(default)]
    pub rounds_done: u32,
    /// Number of preemptions.
    #[serde(default)]
    pub preemptions: u8,
    /// Time of the last preemption. Its turn among equal tasks counts from then, but its aging still counts from the anchor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted_at: Option<Micros>,
}

impl Waiting {
    /// A task without completed rounds that waits since `anchor`.
    #[must_use]
    pub const fn new(
        task: TaskId,
        user: UserId,
        conversation: ConversationId,
        class: Priority,
        backend: BackendId,
        anchor: Micros,
    ) -> Self {
        Self {
            task,
            user,
            conversation,
            class,
            backend,
            anchor,
            not_before: None,
            work: None,
            rounds_done: 0,
            preemptions: 0,
            preempted_at: None,
        }
    }
}

/// The result of requesting admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The class is REALTIME: the caller runs the task at once.
    RunNow,
    /// The task is queued. [`Queue::position`] returns its position.
    Queued,
    /// An equal task of the same user is already queued. The new task shares its answer.
    Coalesced {
        /// The queued task.
        into: TaskId,
    },
    /// The task was refused.
    Refused(Refusal),
}

/// The reason for an entry's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// The class is HIGH: only voice precedes it.
    Urgent,
    /// The task has waited so long that it counts as HIGH.
    Aged,
    /// The front band has no entry before it, and its class has the most urgent head or waits for it.
    ByClass,
    /// The task is delayed.
    Delayed {
        /// The time at which it becomes ready.
        until: Micros,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Urgent => f.write_str("urgent: only voice goes before its kind"),
            Self::Aged => f.write_str("waited so long that it counts as urgent"),
            Self::ByClass => f.write_str("in the order of classes, each the more urgent the longer it waits"),
            Self::Delayed { until } => write!(f, "starts at {until} at the earliest"),
        }
    }
}

/// The position of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Rank {
    /// The task.
    pub task: TaskId,
    /// The task's own class.
    pub class: Priority,
    /// The position, from 1. Absent while the task is delayed.
    pub position: Option<usize>,
    /// The class after aging.
    pub effective: f64,
    /// Waiting time so far, in milliseconds.
    pub waited_ms: u64,
    /// The reason for the position.
    pub why: Why,
    /// Estimated time until its round starts, in milliseconds from now, based on the observed rounds.
    pub start_in_ms: u64,
}

/// A task whose round may start. It is no longer queued; the caller must return it if it has more rounds to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The task.
    pub waiting: Waiting,
    /// The class after aging.
    pub effective: f64,
    /// Waiting time, in milliseconds.
    pub waited_ms: u64,
    /// The reason why it was next.
    pub why: Why,
}

/// A task's class was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReprioritiseError {
    /// The task is not queued.
    #[error("no such task is waiting")]
    NotWaiting,
    /// REALTIME is reserved for voice: a queued task cannot become REALTIME.
    #[error("only voice is realtime")]
    Realtime,
    /// The user's depth limit in the new class is reached.
    #[error(transparent)]
    Refused(#[from] Refusal),
}
