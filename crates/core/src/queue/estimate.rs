//! Estimates of waiting times, from the observed durations of rounds on a backend.

/// Weight of the newest round in the moving average.
const NEWEST_SHARE: f64 = 0.125;
/// Longer rounds are counted as this, in milliseconds, so that one stuck call does not distort the estimates for an hour.
const ROUND_MS_MAX: f64 = 600_000.0;

/// The rounds of one backend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RoundTimes {
    mean_ms: f64,
    slots: u32,
}

impl RoundTimes {
    /// The estimate before any round was observed.
    pub fn guess(round_ms: u64) -> Self {
        Self { mean_ms: ms(round_ms), slots: 1 }
    }

    pub fn set_slots(&mut self, slots: u32) {
        self.slots = slots.max(1);
    }

    pub fn observe(&mut self, round_ms: u64) {
        self.mean_ms += (ms(round_ms) - self.mean_ms) * NEWEST_SHARE;
    }

    /// Mean duration of a round, in milliseconds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and ROUND_MS_MAX")]
    pub fn round_ms(&self) -> u64 {
        self.mean_ms.round() as u64
    }

    /// Estimated time until the task at this position (from 1) starts, in milliseconds, assuming that all slots were just
    /// taken.
    pub fn wait_ms(&self, position: usize) -> u64 {
        let laps = position.div_ceil(self.slots as usize);
        self.round_ms().saturating_mul(laps as u64)
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a round")]
fn ms(round_ms: u64) -> f64 {
    (round_ms as f64).min(ROUND_MS_MAX)
}
