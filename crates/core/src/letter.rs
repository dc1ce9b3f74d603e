//! Dead letters: work that failed in every way that was tried. The failure itself is an answer, once; the letter is
//! what is kept to try again, by itself for work that nobody waits for, or when somebody asks.

use serde::{Deserialize, Serialize};

use crate::{event::Priority, time::Micros};

/// How a turn that failed is tried again [S3 5.9], in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The same round on another backend, if there is one, else the same.
    OtherBackend,
    /// The same round, later.
    Later,
}

/// What goes into the dead letters with a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// What was tried, oldest first, one line each.
    pub tried: Vec<String>,
    /// When the first of the tries failed.
    pub since: Micros,
    /// When it is tried again by itself; nothing means that somebody has to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Micros>,
}

/// Where a dead letter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterState {
    /// It may be tried again.
    Waiting,
    /// It was, by a task of its own.
    Retried,
    /// Somebody did not want it any more.
    Discarded,
    /// Its time is up: 48 h after the first failure [S3 5.9].
    Archived,
}

impl LetterState {
    /// The wire word.
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

impl std::str::FromStr for LetterState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Waiting, Self::Retried, Self::Discarded, Self::Archived]
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| format!("unknown state of a dead letter {text:?}: waiting, retried, discarded or archived"))
    }
}

/// When dead letters are tried again and given up [S3 5.9].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LetterLimits {
    /// From a failure to the next try by itself, in milliseconds.
    pub retry_after_ms: u64,
    /// From the first failure to the archive, in milliseconds.
    pub archive_after_ms: u64,
    /// The most urgent class whose failures become dead letters and are tried again by themselves: who waits for an answer
    /// was told, and decides alone.
    pub retry_from: Priority,
}

impl Default for LetterLimits {
    fn default() -> Self {
        Self { retry_after_ms: 6 * 3_600_000, archive_after_ms: 48 * 3_600_000, retry_from: Priority::Normal }
    }
}

impl LetterLimits {
    /// Whether a failure of this class becomes a dead letter: only work that nobody waits for does, and what was tried again
    /// from a dead letter. A person who waits was told of the failure and asks again; a letter for each would bury the rest.
    #[must_use]
    pub fn keeps(&self, class: Priority, is_retry: bool) -> bool {
        is_retry || class >= self.retry_from
    }

    /// When a task that failed just now is tried again by itself.
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
    fn failure_of_a_waiting_person_is_no_dead_letter_and_a_retry_of_one_is() {
        let limits = LetterLimits::default();
        let kept = [Priority::Realtime, Priority::High, Priority::Normal, Priority::Low, Priority::Background];
        assert_eq!(kept.map(|class| limits.keeps(class, false)), [false, false, true, true, true]);
        assert!(limits.keeps(Priority::High, true));
    }

    #[test]
    fn work_that_nobody_waits_for_is_tried_again_until_its_archive_is_due() {
        let limits = LetterLimits::default();
        let hours = |h: i64| Micros(0).plus_ms(h * 3_600_000);
        assert_eq!(limits.retry_at(Priority::Normal, hours(0), hours(0)), Some(hours(6)));
        assert_eq!(limits.retry_at(Priority::Background, hours(0), hours(36)), Some(hours(42)));
        assert_eq!(limits.retry_at(Priority::Background, hours(0), hours(42)), None, "that would be at 48 h");
        assert_eq!(limits.retry_at(Priority::High, hours(0), hours(0)), None, "a person was told and decides");
    }
}
