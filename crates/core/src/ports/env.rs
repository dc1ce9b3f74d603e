//! Everything that would make two runs of the same events differ, passed in as one value: clock, randomness, faults.

use std::{fmt, sync::Arc};

use uuid::Uuid;

use crate::time::Micros;

/// What time it is.
pub trait Clock: Send + Sync {
    /// The wall clock.
    fn now(&self) -> Micros;
    /// A clock that never goes back, in microseconds from an arbitrary start.
    fn monotonic_us(&self) -> u64;
}

/// Randomness.
pub trait Entropy: Send + Sync {
    /// The next 64 bits.
    fn next_u64(&self) -> u64;
}

/// What a fault point is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAction {
    /// Nothing.
    Pass,
    /// Panic here.
    Panic,
    /// Return an error here.
    Fail,
    /// Never return: somebody else must notice.
    Hang,
    /// Kill the actor from outside, as an operator would.
    Kill,
    /// Ask the actor to stop in good order, as an operator would; the message under way is still handled.
    Stop,
    /// Go on only after so many milliseconds.
    Slow {
        /// How many.
        wait_ms: u32,
    },
    /// Of a message on its way: it arrives twice.
    Twice,
}

/// Decides which fault strikes where. Absent outside tests and chaos runs.
pub trait Faults: Send + Sync {
    /// Called at every fault point; `actor` is the actor's kind, `point` says where in it: `before:Submit`, `after:Submit`.
    fn at(&self, actor: &str, point: &str) -> FaultAction;

    /// The same for an actor that says where it stands in the tree: so one of many can be meant.
    fn at_path(&self, actor: &str, path: &str, point: &str) -> FaultAction {
        let _ = path;
        self.at(actor, point)
    }

    /// Called between two steps of a task that works for an actor: a round, a run of a skill, a commit. A task ends its actor
    /// by a panic, so `Kill` and `Stop` are one there; its own steps wait for nothing, so `Hang` passes (what it waits for
    /// hangs by its own port).
    fn in_task(&self, task: &str, point: &str) -> FaultAction {
        self.at(task, point)
    }

    /// Called when a message is put into a mailbox (`mailbox:Submit`) and when an answer came back (`reply:Submit`). `Fail`
    /// is a full mailbox there and a lost answer here, `Slow` a late answer. A message that may arrive twice or late also
    /// asks with `arrival:Submit`: `Twice` and `Slow` strike there, and what is sent meanwhile overtakes what is late.
    /// Nothing else strikes.
    fn in_mail(&self, actor: &str, path: &str, point: &str) -> FaultAction {
        let _ = (actor, path, point);
        FaultAction::Pass
    }
}

/// The one source of time, randomness and faults.
#[derive(Clone)]
pub struct Env {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Fault injection, if any.
    pub faults: Option<Arc<dyn Faults>>,
}

impl Env {
    /// The wall clock.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// A fresh UUIDv7 out of this environment's own clock and randomness.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let ms = u64::try_from(self.now().0 / 1_000).unwrap_or(0);
        let (a, b) = (self.entropy.next_u64(), self.entropy.next_u64());
        let mut random = [0_u8; 10];
        random[..8].copy_from_slice(&a.to_be_bytes());
        random[8..].copy_from_slice(&b.to_be_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("faults", &self.faults.is_some()).finish_non_exhaustive()
    }
}
