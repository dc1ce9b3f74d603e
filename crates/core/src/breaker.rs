//! A skill's circuit breaker [S0 5.4]: five failures in a row open it for 60 seconds, then one probe may pass; its success
//! closes the breaker, its failure opens it again. Pure: the actor tells it what happened and when.

use serde::{Deserialize, Serialize};

use crate::time::Micros;

/// When a breaker opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerLimits {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// How long it stays open, in milliseconds.
    pub open_ms: u64,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self { failures_max: 5, open_ms: 60_000 }
    }
}

/// The three states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls pass.
    #[default]
    Closed,
    /// Nothing passes until the time is up.
    Open,
    /// One probe is out; nothing else passes.
    HalfOpen,
}

impl BreakerState {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What is kept of a breaker, in memory and in its row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerRow {
    /// Its state.
    pub state: BreakerState,
    /// Failures in a row.
    pub failures: u32,
    /// Since when it is open.
    pub opened_at: Micros,
    /// How often it has opened.
    pub trips: u64,
}

/// Whether a call may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Pass,
    /// It may, and decides over the breaker.
    Probe,
    /// It may not; ask again in so many milliseconds.
    Refuse {
        /// Until the next probe is allowed; 1 s while a probe is out.
        retry_after_ms: u64,
    },
}

impl BreakerRow {
    /// Asks for one call to pass. `true` beside the admission means that the row changed and must be kept.
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

    /// A call that had passed worked. True if the row changed.
    pub fn succeeded(&mut self, probe: bool) -> bool {
        let before = *self;
        match self.state {
            BreakerState::Closed => self.failures = 0,
            BreakerState::HalfOpen if probe => *self = Self { trips: self.trips, ..Self::default() },
            // A straggler from before it opened proves nothing about now.
            BreakerState::HalfOpen | BreakerState::Open => {}
        }
        *self != before
    }

    /// A call that had passed failed. True if the row changed.
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

    /// A probe was cut off before it could say anything: the next call may probe again. True if the row changed.
    pub fn probe_lost(&mut self) -> bool {
        if self.state == BreakerState::HalfOpen {
            self.state = BreakerState::Open;
            return true;
        }
        false
    }

    /// An operator closes it. True if the row changed.
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
    fn five_failures_in_a_row_open_it_and_a_success_between_starts_the_count_again() {
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
    fn open_lets_nothing_through_until_its_time_is_up_and_then_exactly_one_probe() {
        let mut row = opened();
        assert_eq!(row.admit(&LIMITS, Micros(0).plus_ms(59_999)).0, Admission::Refuse { retry_after_ms: 1 });
        assert_eq!(row.admit(&LIMITS, Micros(0).plus_ms(60_000)), (Admission::Probe, true));
        assert!(matches!(row.admit(&LIMITS, Micros(0).plus_ms(99_000)).0, Admission::Refuse { .. }));
    }

    #[test]
    fn the_probe_decides_and_stragglers_do_not() {
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
    fn a_lost_probe_is_replaced() {
        let mut row = opened();
        row.admit(&LIMITS, Micros(0).plus_ms(60_000));
        assert!(row.probe_lost());
        assert_eq!(row.admit(&LIMITS, Micros(0).plus_ms(60_001)).0, Admission::Probe);
    }
}
