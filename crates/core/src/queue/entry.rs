//! What goes into the queue and what comes out of it: plain data.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::limits::Refusal;
use crate::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    time::Micros,
};

/// A backend, by its place in the scheduler's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackendId(pub u16);

/// What a task is to do, for finding equal work: a digest of its name and input.
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

/// A task that waits for its next round. Serialisable: the task table keeps it, and a restart restores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The task.
    pub task: TaskId,
    /// Whose.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Its own class, before aging.
    pub class: Priority,
    /// Where its round is to run.
    pub backend: BackendId,
    /// Since when it waits: what its aging counts from.
    pub anchor: Micros,
    /// It does not start before this; its aging begins then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Micros>,
    /// Equal work of the same user that has not begun is done once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkKey>,
    /// Rounds it has run.
    #[serde(default)]
    pub rounds_done: u32,
    /// How often it was parked.
    #[serde(default)]
    pub parks: u8,
    /// When it was parked last: its turn among equals counts from then, its aging still from the anchor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked_at: Option<Micros>,
}

impl Waiting {
    /// A task that has not run yet and waits from `anchor` on.
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
            parks: 0,
            parked_at: None,
        }
    }
}

/// The answer to a task that wants a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// REALTIME: it does not wait, run it now.
    RunNow,
    /// It waits; [`Queue::position`] says where.
    Queued,
    /// The same work of the same user waits already: its answer is this one's answer too.
    Coalesced {
        /// The task that does it.
        into: TaskId,
    },
    /// No place.
    Refused(Refusal),
}

/// Why an entry stands where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// It is HIGH: only voice goes before its kind.
    Urgent,
    /// It waited so long that it counts as HIGH.
    Aged,
    /// Nothing is in the front band before it, and its class has the most urgent head or waits for that.
    ByClass,
    /// It is not due yet.
    Delayed {
        /// When it is.
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

/// Where a task stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Rank {
    /// The task.
    pub task: TaskId,
    /// Its own class.
    pub class: Priority,
    /// From 1; nothing while it is delayed.
    pub position: Option<usize>,
    /// Its class after aging.
    pub effective: f64,
    /// How long it has waited, in milliseconds.
    pub waited_ms: u64,
    /// Why it stands there.
    pub why: Why,
    /// When its round may be expected to start, in milliseconds from now, by the rounds seen so far.
    pub start_in_ms: u64,
}

/// A task whose round may start. It is out of the queue: give it back if it has more rounds to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The task.
    pub waiting: Waiting,
    /// Its class after aging.
    pub effective: f64,
    /// How long it waited, in milliseconds.
    pub waited_ms: u64,
    /// Why it was the next.
    pub why: Why,
}

/// Why a task's class was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReprioritiseError {
    /// It does not wait here.
    #[error("no such task is waiting")]
    NotWaiting,
    /// Nothing that waits can become REALTIME: voice alone is.
    #[error("only voice is realtime")]
    Realtime,
    /// Its user has enough waiting in the other class.
    #[error(transparent)]
    Refused(#[from] Refusal),
}
