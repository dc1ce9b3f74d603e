//! The wall clock, shifted by faults. The monotonic clock is not shifted, because it continues on a real machine whose wall
//! clock is set.

use std::sync::Arc;

use annie_core::{ports::Clock, time::Micros};

use super::injector::Injector;

/// A wall clock that faults can shift.
pub(super) struct ChaosClock {
    inner: Arc<dyn Clock>,
    faults: Arc<Injector>,
}

impl ChaosClock {
    pub fn new(inner: Arc<dyn Clock>, faults: Arc<Injector>) -> Self {
        Self { inner, faults }
    }
}

impl Clock for ChaosClock {
    fn now(&self) -> Micros {
        Micros(self.inner.now().0.saturating_add(self.faults.off_us()))
    }

    fn monotonic_us(&self) -> u64 {
        self.inner.monotonic_us()
    }
}
