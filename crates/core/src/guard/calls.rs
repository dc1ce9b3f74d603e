//! The cap on model calls of a conversation within a window of time. Calls are counted by the minute, so that a busy conversation
//! keeps few numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    message::{ModelError, ModelErrorKind},
    time::Micros,
};

const MINUTE_US: i64 = 60 * 1_000_000;
const MINUTE_MS: u64 = 60_000;

/// The cap on model calls of one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallCap {
    /// The maximum number of calls within the window. 0 means no limit.
    pub calls_max: u32,
    /// The length of the window, in milliseconds: whole minutes, at most a day.
    pub window_ms: u64,
}

impl Default for CallCap {
    fn default() -> Self {
        Self { calls_max: 0, window_ms: 3_600_000 }
    }
}

impl CallCap {
    /// The shortest window, in milliseconds.
    pub const WINDOW_MS_MIN: u64 = MINUTE_MS;
    /// The longest window, in milliseconds.
    pub const WINDOW_MS_MAX: u64 = CallTimes::MINUTES_MAX as u64 * MINUTE_MS;

    /// The number of minutes of the window, with the present one.
    const fn minutes(&self) -> i64 {
        (self.window_ms / MINUTE_MS) as i64
    }

    /// Why no further call may be made now, if so.
    #[must_use]
    pub fn refusal(&self, calls: &CallTimes, now: Micros) -> Option<CallRefusal> {
        if self.calls_max == 0 {
            return None;
        }
        let from = minute_of(now).saturating_sub(self.minutes());
        let within = || calls.0.range(from + 1..);
        let used: u32 = within().map(|(_, count)| *count).fold(0, u32::saturating_add);
        if used < self.calls_max {
            return None;
        }
        // The first minute whose end of the window leaves room for one call.
        let mut left = used;
        let frees = within().find_map(|(minute, count)| {
            left = left.saturating_sub(*count);
            (left < self.calls_max).then_some(*minute)
        });
        let free_at = frees.unwrap_or(from).saturating_add(self.minutes()).saturating_mul(MINUTE_US);
        Some(CallRefusal { cap: *self, used, free_in_ms: Micros(free_at).since_ms(now) })
    }
}

/// The cap that kept a call from being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRefusal {
    /// The cap.
    pub cap: CallCap,
    /// The calls within the window.
    pub used: u32,
    /// When the next call may be made, in milliseconds from now.
    pub free_in_ms: u64,
}

impl CallRefusal {
    /// The failure of the round.
    #[must_use]
    pub fn into_error(self) -> ModelError {
        ModelError { retry_after_ms: Some(self.free_in_ms), ..ModelError::new(ModelErrorKind::CallCap, self.text()) }
    }

    /// The refusal for the user.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "The limit of {} model calls of one conversation within {} (`model_calls_per_conversation_max` in `[guard]`) stopped \
             this: {} were made. The next one is free in {}.",
            self.cap.calls_max,
            minutes(self.cap.window_ms),
            self.used,
            minutes(self.free_in_ms)
        )
    }
}

/// A time in minutes, rounded up.
fn minutes(ms: u64) -> String {
    match ms.div_ceil(MINUTE_MS).max(1) {
        1 => "1 minute".to_owned(),
        count => format!("{count} minutes"),
    }
}

/// How many model calls a conversation made in each minute, for a day at most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallTimes(BTreeMap<i64, u32>);

impl CallTimes {
    /// Minutes that are kept: a day.
    const MINUTES_MAX: u32 = 24 * 60;

    /// Whether no calls are known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Learns what another source knows of the same calls. The source that knows more of them has seen all calls of the other one: they
    /// may count a call in different minutes, so that the two are not added up.
    pub fn learn(&mut self, known: &Self) {
        let total = |calls: &Self| calls.0.values().fold(0, |sum: u64, calls| sum + u64::from(*calls));
        if total(known) > total(self) {
            self.clone_from(known);
        }
    }

    /// Counts calls, and forgets those that no window reaches.
    pub fn count(&mut self, at: Micros, calls: u32) {
        if calls == 0 {
            return;
        }
        let minute = minute_of(at);
        let known = self.0.entry(minute).or_default();
        *known = known.saturating_add(calls);
        let from = minute.saturating_sub(i64::from(Self::MINUTES_MAX));
        if self.0.first_key_value().is_some_and(|(first, _)| *first < from) {
            self.0 = self.0.split_off(&from);
        }
    }
}

const fn minute_of(at: Micros) -> i64 {
    at.0.div_euclid(MINUTE_US)
}
