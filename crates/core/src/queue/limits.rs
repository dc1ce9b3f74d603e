//! How much may wait, and how a refusal is told: with the limit, the place and a time to come back.

use serde::{Deserialize, Serialize};

use crate::event::Priority;

/// The queue's numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueLimits {
    /// How many tasks of one user may wait in each class [S3 5.3.2].
    pub depth_per_user: DepthLimits,
    /// How many tasks may wait altogether.
    pub waiting_max: u32,
    /// So long a wait is worth one class, in milliseconds [S3 5.3.4].
    pub aging_ms_per_class: u32,
    /// How often one task may be parked: after that it keeps its slot, so that a stream of HIGH tasks cannot starve it.
    pub parks_max: u8,
    /// What a round is thought to take before any was seen, in milliseconds [S3 5.3.2].
    pub round_guess_ms: u64,
    /// How many REALTIME tasks may be open on one backend: they do not queue, so nothing else bounds them.
    pub realtime_max: u32,
}

/// Per-user depth of each class. REALTIME has none: it is never queued.
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
            parks_max: 3,
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

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// This user has enough waiting in this class.
    UserDepth,
    /// Everybody together has.
    QueueFull,
    /// As many voices speak as a backend can serve.
    RealtimeFull,
}

/// Why a task was not taken in. Nothing was stored; the caller may come back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}; try again in {} s", self.what(), self.retry_after_ms.div_ceil(1_000))]
pub struct Refusal {
    /// Which limit.
    pub reason: RefusalReason,
    /// In which class it was to wait.
    pub class: Priority,
    /// The limit's value.
    pub limit: u32,
    /// The place it would have had at best, from 1.
    pub position: usize,
    /// When a place is likely to be free, in milliseconds from now.
    pub retry_after_ms: u64,
}

impl Refusal {
    /// Bounds of the hint: at once would hammer, later would be a guess.
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
