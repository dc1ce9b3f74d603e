//! How a backend is, learned from what became of its calls: the breaker's count and times (five failures in a row
//! shut it for 60 s, then one probe decides [S0 5.4]) with a judgement of which errors speak against a backend at all.

use serde::{Deserialize, Serialize};

use crate::{
    breaker::{Admission, BreakerLimits, BreakerRow, BreakerState},
    message::ModelErrorKind as Kind,
    time::Micros,
};

/// How a backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum HealthState {
    /// Calls pass.
    Up,
    /// Nothing passes until then.
    Down {
        /// When a probe may pass.
        until: Micros,
    },
    /// The next call decides, or one is out that does.
    Probing,
}

/// What is kept of a backend's health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    row: BreakerRow,
    /// The last failure that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<Kind>,
}

impl Health {
    /// How it is now.
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

    /// The last failure that counted against it, until a success.
    #[must_use]
    pub const fn last_failure(&self) -> Option<Kind> {
        self.last
    }

    /// The breaker's row: failures in a row, how often it opened.
    #[must_use]
    pub const fn row(&self) -> &BreakerRow {
        &self.row
    }

    /// Asks for one call to pass. A [`Admission::Probe`] is told back with `probe` true, or as [`Self::probe_lost`].
    pub fn admit(&mut self, limits: &BreakerLimits, now: Micros) -> Admission {
        self.row.admit(limits, now).0
    }

    /// A call was answered.
    pub fn succeeded(&mut self, probe: bool) {
        self.row.succeeded(probe);
        if self.row.state == BreakerState::Closed {
            self.last = None;
        }
    }

    /// A call failed. Some failures are answers (too long, refused, wrong, too many): whoever says that is well, and its
    /// window says when to come again. A key or an account that is refused is so for every call, and shuts at once.
    pub fn failed(&mut self, limits: &BreakerLimits, kind: Kind, probe: bool, now: Micros) {
        match kind {
            Kind::Content | Kind::InvalidRequest | Kind::ToolsUnsupported | Kind::Overflow | Kind::RateLimited => {
                self.succeeded(probe)
            }
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

    /// A probe was cut off before it could say anything: the next call may probe again.
    pub fn probe_lost(&mut self) {
        self.row.probe_lost();
    }

    /// An operator says that it is well.
    pub fn reset(&mut self) {
        self.row.reset();
        self.last = None;
    }
}
