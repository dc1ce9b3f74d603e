//! A skill's circuit breaker [S0 5.4]: five consecutive failures open it for 60 seconds. Then one probe may pass: its
//! success closes the breaker, its failure opens it again. The state machine is pure: the actor passes in the events and the
//! time.

use serde::{Deserialize, Serialize};

use crate::time::Micros;

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerLimits {
    /// Number of consecutive failures that open the breaker.
    pub failures_max: u32,
    /// How long the breaker stays open, in milliseconds.
    pub open_ms: u64,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self { failures_max: 5, open_ms: 60_000 }
    }
}

/// The three states of a breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls are admitted.
    #[default]
    Closed,
    /// Calls are refused until the open time is over.
    Open,
    /// One probe is running. Other calls are refused.
    HalfOpen,
}

impl BreakerState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The state of a breaker, in memory and in its database row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerRow {
    /// The state.
    pub state: BreakerState,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Time at which the breaker opened.
    pub opened_at: Micros,
    /// Number of times the breaker has opened.
    pub trips: u64,
}

/// Whether a call is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The call is admitted.
    Pass,
    /// The call is admitted, and its result decides the breaker's state.
    Probe,
    /// The call is refused.
    Refuse {
        /// Time until the next probe is allowed, in milliseconds; 1 s while a probe is running.
        retry_after_ms: u64,
    },
}

impl BreakerRow {
    /// Decides about one call. The flag is true if the row changed and must be stored.
    pub fn admit(&mut self, limits: &BreakerLimits, now: Micros) -> (Admission, bool) {
        match self.state {
            BreakerState::Closed => (Admission::Pass, false),
            BreakerState::HalfOpen => (Admission::Refuse { retry_after_ms: 1_000 }, false),
            BreakerState::Open => {
                let open_for_ms = now.since_ms(self.opened_at);
                if open_for_ms >= limits.open_ms {
                    self.state = BreakerState::HalfOpen;
                    (Admission::Probe, true)
                } else {
                    (Admission::Refuse { retry_after_ms: limits.open_ms - open_for_ms }, false)
                }
            }
        }
    }

    /// Records the success of an admitted call. Returns true if the row changed.
    pub fn succeeded(&mut self, probe: bool) -> bool {
        let before = *self;
        match self.state {
            BreakerState::Closed => self.failures = 0,
            BreakerState::HalfOpen if probe => *self = Self { trips: self.trips, ..Self::default() },
            // A call admitted before the breaker opened proves nothing about the present.
            BreakerState::HalfOpen | BreakerState::Open => {}
        }
        *self != before
    }

    /// Records the failure of an admitted call. Returns true if the row changed.
    pub fn failed(&mut self, limits: &BreakerLimits, probe: bool, now: Micros) -> bool {
        let before = *self;
        match self.state {
            BreakerState::Closed => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= limits.failures_max {
                    self.open(now);
                }
            }
            BreakerState::HalfOpen if probe => self.open(now),
            BreakerState::HalfOpen | BreakerState::Open => {}
        }
        *self != before
    }

    /// Records that a probe was aborted without a result, so that the next call may probe again. Returns true if the row
    /// changed.
    pub fn probe_lost(&mut self) -> bool {
        if self.state == BreakerState::HalfOpen {
            self.state = BreakerState::Open;
            return true;
        }
        false
    }

    /// Closes the breaker at an operator's request. Returns true if the row changed.
    pub fn reset(&mut self) -> bool {
        let before = *self;
        *self = Self { trips: self.trips, ..Self::default() };
        *self != before
    }

    fn open(&mut self, now: Micros) {
        self.state = BreakerState::Open;
        self.opened_at = now;
        self.trips += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits = BreakerLimits { failures_max: 5, open_ms: 60_000 };

    fn opened() -> BreakerRow {
        let mut row = BreakerRow::default();
        for _ in 0..5 {
            assert_eq!(row.admit(&LIMITS, Micros(0)).0, Admission::Pass);
            row.failed(&LIMITS, false, Micros(0));
        }
        row
    }

    #[test]
    fn breaker_opens_after_five_consecutive_failures_and_success_resets_count() {
        let mut row = BreakerRow::default();
        for _ in 0..4 {
            row.failed(&LIMITS, false, Micros(0));
        }
        row.succeeded(false);
        row.failed(&LIMITS, false, Micros(0));
        assert_eq!(row.state, BreakerState::Closed);
        assert_eq!(opened().state, BreakerState::Open);
    }

    #[test]
    fn breaker_open_refuses_until_open_time_ends_and_then_admits_one_probe() {
        let mut row = opened();
        assert_eq!(row.admit(&LIMITS, Micros(0).plus_ms(59_999)).0, Admission::Refuse { retry_after_ms: 1 });
        assert_eq!(row.admit(&LIMITS, Micros(0).plus_ms(60_000)), (Admission::Probe, true));
        assert!(matches!(row.admit(&LIMITS, Micros(0).plus_ms(99_000)).0, Admission::Refuse { .. }));
    }

    #[test]
    fn breaker_half_open_is_decided_by_probe_and_not_by_earlier_calls() {
        let mut row = opened();
        row.admit(&LIMITS, Micros(0).plus_ms(60_000));
        assert!(!row.succeeded(false));
        assert!(!row.failed(&LIMITS, false, Micros(1)));
        let mut failed = row;
        failed.failed(&LIMITS, true, Micros(0).plus_ms(60_001));
        assert_eq!((failed.state, failed.trips), (BreakerState::Open, 2));
        assert!(matches!(failed.admit(&LIMITS, Micros(0).plus_ms(120_000)).0, Admission::Refuse { .. }));
        row.succeeded(true);
        assert_eq!((row.state, row.failures), (BreakerState::Closed, 0));
    }

    #[test]
    fn breaker_admits_another_probe_after_lost_one() {
        let mut row = opened();
        row.admit(&LIMITS, Micros(0).plus_ms(60_000));
        assert!(row.probe_lost());
        assert_eq!(row.admit(&LIMITS, Micros(0).plus_ms(60_001)).0, Admission::Probe);
    }
}
