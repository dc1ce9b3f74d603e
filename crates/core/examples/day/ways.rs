//! The compared scheduling policies.

use std::collections::{BTreeSet, VecDeque};

use annie_core::{
    event::Priority,
    queue::{Admission, BackendId, DepthLimits, Queue, QueueLimits, Waiting},
};

use crate::load::{Job, instant};

/// A scheduling policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In order of arrival; each task runs to its end.
    Fifo,
    /// The highest class first, before every round. Waiting time does not count.
    Strict,
    /// [`Queue`], consulted once per task: a task that has begun runs to its end.
    AgingWhole,
    /// [`Queue`], consulted before every round. A task that has run a round waits anew, whatever task runs in between.
    Aging,
    /// [`Queue`] as the scheduler uses it: a task that is preempted by a HIGH one keeps its anchor.
    Parking,
}

impl Way {
    pub const ALL: [Self; 5] = [Self::Fifo, Self::Strict, Self::AgingWhole, Self::Aging, Self::Parking];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "FIFO",
            Self::Strict => "strict",
            Self::AgingWhole => "aging, whole tasks",
            Self::Aging => "aging",
            Self::Parking => "aging and parking",
        }
    }
}

const GPU: BackendId = BackendId(0);

/// The queue of the GPU under one policy.
pub struct Line {
    way: Way,
    fifo: VecDeque<usize>,
    strict: BTreeSet<(Priority, u64, usize)>,
    queue: Queue,
    /// The task whose round runs, as the queue returned it.
    out: Option<Waiting>,
    /// The task that keeps the GPU.
    keeps: Option<usize>,
    pub preemptions: usize,
}

impl Line {
    pub fn new(way: Way) -> Self {
        let depth_per_user =
            DepthLimits { high_max: u32::MAX, normal_max: u32::MAX, low_max: u32::MAX, background_max: u32::MAX };
        let limits = QueueLimits { depth_per_user, waiting_max: u32::MAX, ..QueueLimits::default() };
        Self {
            way,
            fifo: VecDeque::new(),
            strict: BTreeSet::new(),
            queue: Queue::new(limits),
            out: None,
            keeps: None,
            preemptions: 0,
        }
    }

    /// Adds a task. Returns false if the task does not queue.
    pub fn arrive(&mut self, n: usize, job: &Job) -> bool {
        match self.way {
            Way::Fifo | Way::Strict if job.class == Priority::Realtime => return false,
            Way::Fifo => self.fifo.push_back(n),
            Way::Strict => {
                self.strict.insert((job.class, job.at_ms, n));
            }
            Way::AgingWhole | Way::Aging | Way::Parking => {
                return self.queue.admit(job.waiting.clone(), instant(job.at_ms)) != Admission::RunNow;
            }
        }
        true
    }

    /// The task that runs the next round.
    pub fn next(&mut self, now_ms: u64) -> Option<usize> {
        if let Some(n) = self.keeps.take() {
            return Some(n);
        }
        match self.way {
            Way::Fifo => self.fifo.pop_front(),
            Way::Strict => self.strict.pop_first().map(|(_, _, n)| n),
            Way::AgingWhole | Way::Aging | Way::Parking => {
                let grant = self.queue.pop(GPU, instant(now_ms))?;
                let n = usize::try_from(grant.waiting.task.uuid().as_u128()).ok();
                self.out = Some(grant.waiting);
                n
            }
        }
    }

    /// Returns a task to the queue after a round, because it has more rounds to run.
    pub fn back(&mut self, n: usize, job: &Job, now_ms: u64) {
        let now = instant(now_ms);
        match (self.way, self.out.take()) {
            (Way::Strict, _) => {
                self.strict.insert((job.class, job.at_ms, n));
            }
            (Way::Aging, Some(out)) => {
                self.queue.yield_back(out, now);
            }
            (Way::Parking, Some(out)) => {
                if self.queue.should_preempt(&out, now) {
                    self.preemptions += 1;
                    self.queue.preempt(out, now);
                } else {
                    self.queue.yield_back(out, now);
                }
            }
            _ => self.keeps = Some(n),
        }
    }
}
