//! Dead letters: tasks that failed with every strategy. The user receives the failure once, as the task's final text. The
//! dead letter keeps the task for a retry: automatic for background work, otherwise on request.

use serde::{Deserialize, Serialize};

use crate::{event::Priority, time::Micros};

/// How a failed turn is retried [S3 5.9], in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The same round on another backend, or on the same one if there is no other.
    OtherBackend,
    /// The same round at a later time; repeated with growing waits.
    Later,
}

/// The data that a failed task leaves for its retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The failed attempts, oldest first, one line each.
    pub tried: Vec<String>,
    /// Time of the first failure.
    pub since: Micros,
    /// Time of the automatic retry. Absent if a retry must be requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Micros>,
}

/// State of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterState {
    /// It may be retried.
    Waiting,
    /// It was retried by another task.
    Retried,
    /// It was discarded on request.
    Discarded,
    /// It exceeded its maximum age, 48 h after the first failure [S3 5.9].
    Archived,
}

impl DeadLetterState {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Retried => "retried",
            Self::Discarded => "discarded",
            Self::Archived => "archived",
        }
    }
}

impl std::str::FromStr for DeadLetterState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Waiting, Self::Retried, Self::Discarded, Self::Archived]
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| format!("unknown state of a dead letter {text:?}: waiting, retried, discarded or archived"))
    }
}

/// When dead letters are retried and archived [S3 5.9].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetterLimits {
    /// Time from a failure to the automatic retry, in milliseconds.
    pub retry_after_ms: u64,
    /// Time from the first failure to the archiving, in milliseconds.
    pub archive_after_ms: u64,
    /// The most urgent class whose failures become dead letters and are retried automatically. A user of a more urgent class
    /// was notified of the failure and decides about a retry.
    pub retry_from: Priority,
}

impl Default for DeadLetterLimits {
    fn default() -> Self {
        Self { retry_after_ms: 6 * 3_600_000, archive_after_ms: 48 * 3_600_000, retry_from: Priority::Normal }
    }
}

impl DeadLetterLimits {
    /// Whether a failure of this class becomes a dead letter. Only background work and retries of dead letters do. A user
    /// who waits is notified of the failure and can repeat the request; a dead letter for each such failure would bury the
    /// others.
    #[must_use]
    pub fn keeps(&self, class: Priority, is_retry: bool) -> bool {
        is_retry || class >= self.retry_from
    }

    /// Time of the automatic retry of a task that failed just now; `None` if there is none.
    #[must_use]
    pub fn retry_at(&self, class: Priority, since: Micros, now: Micros) -> Option<Micros> {
        let at = now.later_ms(self.retry_after_ms);
        (class >= self.retry_from && at < since.later_ms(self.archive_after_ms)).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letter_limits_keep_background_failures_and_failed_retries() {
        let limits = DeadLetterLimits::default();
        let kept = [Priority::Realtime, Priority::High, Priority::Normal, Priority::Low, Priority::Background];
        assert_eq!(kept.map(|class| limits.keeps(class, false)), [false, false, true, true, true]);
        assert!(limits.keeps(Priority::High, true));
    }

    #[test]
    fn dead_letter_limits_retry_background_work_until_archive_time() {
        let limits = DeadLetterLimits::default();
        let hours = |h: i64| Micros(0).plus_ms(h * 3_600_000);
        assert_eq!(limits.retry_at(Priority::Normal, hours(0), hours(0)), Some(hours(6)));
        assert_eq!(limits.retry_at(Priority::Background, hours(0), hours(36)), Some(hours(42)));
        assert_eq!(limits.retry_at(Priority::Background, hours(0), hours(42)), None, "that would be at 48 h");
        assert_eq!(
            limits.retry_at(Priority::High, hours(0), hours(0)),
            None,
            "the waiting user was notified and decides"
        );
    }
}
