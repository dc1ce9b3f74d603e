//! The health of a backend, derived from the results of its calls. Uses the breaker's count and times (five consecutive
//! failures close the backend for 60 s, then one probe decides [S0 5.4]), and classifies which errors count against a
//! backend at all.

use serde::{Deserialize, Serialize};

use crate::{
    breaker::{Admission, BreakerLimits, BreakerRow, BreakerState},
    message::ModelErrorKind as Kind,
    time::Micros,
};

/// The health of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum HealthState {
    /// Calls are admitted.
    Up,
    /// Calls are refused until a given time.
    Down {
        /// Time from which a probe may pass.
        until: Micros,
    },
    /// The next call is a probe, or a probe is running.
    Probing,
}

/// The state of a backend as shown to operators: its health, and whether its last rounds failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    /// Its last round did not fail.
    Up,
    /// Its last rounds failed, although it may be reachable.
    Failing,
    /// It receives no requests at present.
    Down,
}

impl BackendState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Up, Self::Failing, Self::Down];

    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Failing => "failing",
            Self::Down => "down",
        }
    }
}

/// The stored health of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    row: BreakerRow,
    /// The last failure that counted against the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<Kind>,
}

impl Health {
    /// The present health.
    #[must_use]
    pub const fn state(&self, limits: &BreakerLimits, now: Micros) -> HealthState {
        match self.row.state {
            BreakerState::Closed => HealthState::Up,
            BreakerState::HalfOpen => HealthState::Probing,
            BreakerState::Open if now.since_ms(self.row.opened_at) >= limits.open_ms => HealthState::Probing,
            BreakerState::Open => {
                let open_ms = if limits.open_ms > i64::MAX as u64 { i64::MAX } else { limits.open_ms.cast_signed() };
                HealthState::Down { until: self.row.opened_at.plus_ms(open_ms) }
            }
        }
    }

    /// The last failure that counted against the backend, until a success.
    #[must_use]
    pub const fn last_failure(&self) -> Option<Kind> {
        self.last
    }

    /// The breaker's row: consecutive failures, number of openings.
    #[must_use]
    pub const fn row(&self) -> &BreakerRow {
        &self.row
    }

    /// Decides whether one call may pass. The result of an [`Admission::Probe`] must be reported with `probe` true, or with
    /// [`Self::probe_lost`].
    pub fn admit(&mut self, limits: &BreakerLimits, now: Micros) -> Admission {
        self.row.admit(limits, now).0
    }

    /// Records a successful call.
    pub fn succeeded(&mut self, probe: bool) {
        self.row.succeeded(probe);
        if self.row.state == BreakerState::Closed {
            self.last = None;
        }
    }

    /// Records a failed call. Some failures are answers (too long, refused, invalid, rate limited): the backend that gives
    /// them is healthy, and its rate window decides when it is called again. A refused key or account affects every call and
    /// closes the backend at once.
    pub fn failed(&mut self, limits: &BreakerLimits, kind: Kind, probe: bool, now: Micros) {
        match kind {
            Kind::Content
            | Kind::InvalidRequest
            | Kind::ToolsUnsupported
            | Kind::MalformedCall
            | Kind::Overflow
            | Kind::RateLimited => self.succeeded(probe),
            // The backend was not called.
            Kind::TurnSpendCap | Kind::SpendCap | Kind::CallCap => {}
            Kind::Auth | Kind::Payment => {
                self.last = Some(kind);
                self.row.failed(&BreakerLimits { failures_max: 1, ..*limits }, probe, now);
            }
            Kind::Timeout | Kind::Truncated | Kind::Unavailable | Kind::Protocol | Kind::InDoubt => {
                self.last = Some(kind);
                self.row.failed(limits, probe, now);
            }
        }
    }

    /// Records that a probe was aborted without a result, so that the next call may probe again.
    pub fn probe_lost(&mut self) {
        self.row.probe_lost();
    }

    /// Marks the backend as healthy at an operator's request.
    pub fn reset(&mut self) {
        self.row.reset();
        self.last = None;
    }
}
