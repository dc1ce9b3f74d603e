//! Limits of the queue, and refusals, which contain the limit, the position and a retry time.

use serde::{Deserialize, Serialize};

use crate::event::Priority;

/// Limits and parameters of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueLimits {
    /// Maximum number of queued tasks per user and class [S3 5.3.2].
    pub depth_per_user: DepthLimits,
    /// Maximum number of queued tasks of all users.
    pub waiting_max: u32,
    /// Waiting time after which a task gains one class, in milliseconds [S3 5.3.4].
    pub aging_ms_per_class: u32,
    /// Maximum number of preemptions of one task. After that the task keeps its slot, so that a stream of HIGH tasks cannot
    /// starve it.
    pub preemptions_max: u8,
    /// Assumed duration of a round before any was observed, in milliseconds [S3 5.3.2].
    pub round_guess_ms: u64,
    /// Maximum number of open REALTIME tasks on one backend. They are not queued, so no other limit bounds them.
    pub realtime_max: u32,
}

/// Depth limits per user and class. REALTIME has none, because it is never queued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DepthLimits {
    /// HIGH.
    pub high_max: u32,
    /// NORMAL.
    pub normal_max: u32,
    /// LOW.
    pub low_max: u32,
    /// BACKGROUND.
    pub background_max: u32,
}

impl Default for DepthLimits {
    fn default() -> Self {
        Self { high_max: 3, normal_max: 5, low_max: 3, background_max: 5 }
    }
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            depth_per_user: DepthLimits::default(),
            waiting_max: 10_000,
            aging_ms_per_class: 300_000,
            preemptions_max: 3,
            round_guess_ms: 5_000,
            realtime_max: 4,
        }
    }
}

impl DepthLimits {
    /// The limit of a class; 0 for REALTIME.
    #[must_use]
    pub const fn of(&self, class: Priority) -> u32 {
        match class {
            Priority::Realtime => 0,
            Priority::High => self.high_max,
            Priority::Normal => self.normal_max,
            Priority::Low => self.low_max,
            Priority::Background => self.background_max,
        }
    }
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// The user's depth limit in this class.
    UserDepth,
    /// The limit of all users' queued tasks.
    QueueFull,
    /// The limit of concurrent REALTIME tasks on a backend.
    RealtimeFull,
}

/// A task was refused. Nothing was stored, and the caller may retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}; try again in {} s", self.what(), self.retry_after_ms.div_ceil(1_000))]
pub struct Refusal {
    /// The limit that was reached.
    pub reason: RefusalReason,
    /// The task's class.
    pub class: Priority,
    /// The limit's value.
    pub limit: u32,
    /// The best possible position of the task, from 1.
    pub position: usize,
    /// Estimated time until the queue has capacity, in milliseconds from now.
    pub retry_after_ms: u64,
}

impl Refusal {
    /// Bounds of the retry time, in milliseconds: an immediate retry would overload the server, and a later time would be a
    /// guess.
    pub(super) const RETRY_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;

    fn what(&self) -> String {
        match self.reason {
            RefusalReason::UserDepth => {
                format!("{} {} tasks of yours are waiting already, which is the most", self.limit, self.class.as_str())
            }
            RefusalReason::QueueFull => format!("{} tasks are waiting, which is the most", self.limit),
            RefusalReason::RealtimeFull => format!("{} voice tasks are under way, which is the most", self.limit),
        }
    }
}
