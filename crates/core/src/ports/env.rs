//! The sources of non-determinism, injected as one value: clock, randomness, faults.

use std::{fmt, sync::Arc};

use uuid::Uuid;

use crate::time::Micros;

/// Reads the time.
pub trait Clock: Send + Sync {
    /// The wall clock.
    fn now(&self) -> Micros;
    /// A monotonic clock, in microseconds from an arbitrary start.
    fn monotonic_us(&self) -> u64;
}

/// Randomness.
pub trait Entropy: Send + Sync {
    /// The next 64 bits.
    fn next_u64(&self) -> u64;
}

/// The action of a fault point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAction {
    /// Continue normally.
    Pass,
    /// Panic here.
    Panic,
    /// Return an error here.
    Fail,
    /// Never return. Another component must detect it.
    Hang,
    /// Kill the actor from outside, as an operator would.
    Kill,
    /// Ask the actor to stop gracefully, as an operator would. The current message is still handled.
    Stop,
    /// Continue after a delay.
    Slow {
        /// The delay, in milliseconds.
        wait_ms: u32,
    },
    /// For a message in transit: deliver it twice.
    Twice,
}

/// Decides which fault is injected where. Absent outside tests and chaos runs.
pub trait Faults: Send + Sync {
    /// Called at every fault point. `actor` is the actor's kind; `point` is the position in it: `before:Submit`,
    /// `after:Submit`.
    fn at(&self, actor: &str, point: &str) -> FaultAction;

    /// The same with the actor's path in the tree, so that one of several actors of a kind can be selected.
    fn at_path(&self, actor: &str, path: &str, point: &str) -> FaultAction {
        let _ = path;
        self.at(actor, point)
    }

    /// Called between two steps of a task that works for an actor: a round, a run of a skill, a commit. A task ends its
    /// actor by a panic, so `Kill` and `Stop` have the same effect there. The task's own steps do not wait for anything, so
    /// `Hang` is ignored; operations that it waits for hang through their own port.
    fn in_task(&self, task: &str, point: &str) -> FaultAction {
        self.at(task, point)
    }

    /// Called when a message is put into a mailbox (`mailbox:Submit`) and when a reply has arrived (`reply:Submit`). `Fail`
    /// means a full mailbox for the former and a lost reply for the latter; `Slow` means a late reply. For a message that
    /// may arrive twice or late, the method is also called with `arrival:Submit`: `Twice` and `Slow` are injected there, and
    /// messages sent in the meantime overtake a delayed one. Other actions are ignored.
    fn in_mail(&self, actor: &str, path: &str, point: &str) -> FaultAction {
        let _ = (actor, path, point);
        FaultAction::Pass
    }
}

/// The only source of time, randomness and faults.
#[derive(Clone)]
pub struct Env {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Fault injection, if enabled.
    pub faults: Option<Arc<dyn Faults>>,
}

impl Env {
    /// The wall clock.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// A new UUIDv7 from this environment's clock and randomness.
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
