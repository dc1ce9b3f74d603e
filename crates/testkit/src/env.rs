//! Time and randomness for tests: a clock that follows tokio's (so a paused runtime pauses it too), and seeded randomness.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use annie_core::{
    ports::{Clock, Entropy, Env, Faults},
    time::Micros,
};
use tokio::time::Instant;

/// A clock that starts at a fixed date and follows tokio's clock: on a paused runtime it stands still until the runtime
/// advances. It can also be set forward or back, as by an operator or a time server.
pub struct TestClock {
    start: Instant,
    epoch: Micros,
    shift_us: AtomicI64,
}

impl TestClock {
    /// 2026-02-18 14:05:00 UTC, a Wednesday.
    pub const START: Micros = Micros(1_771_423_500_000_000);

    /// A clock that starts now, inside a runtime.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now(), epoch: Self::START, shift_us: AtomicI64::new(0) }
    }

    /// Shifts the wall clock by `ms` milliseconds; the monotonic clock is not affected.
    pub fn set_by_ms(&self, ms: i64) {
        self.shift_us.fetch_add(ms * 1_000, Relaxed);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Micros {
        let passed = i64::try_from(self.monotonic_us()).unwrap_or(i64::MAX);
        Micros(self.epoch.0 + passed + self.shift_us.load(Relaxed))
    }

    fn monotonic_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Randomness that a seed fixes (SplitMix64).
pub struct SeededEntropy(AtomicU64);

impl SeededEntropy {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// An environment of this seed, without faults.
#[must_use]
pub fn env(seed: u64) -> Env {
    Env { clock: Arc::new(TestClock::new()), entropy: Arc::new(SeededEntropy::new(seed)), faults: None }
}

/// An environment of this seed with these faults.
#[must_use]
pub fn env_with(seed: u64, faults: Arc<dyn Faults>) -> Env {
    Env { faults: Some(faults), ..env(seed) }
}
