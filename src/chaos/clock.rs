//! The wall clock, as far off as the faults say. What measures spans is left alone: it goes on in a machine whose clock is set.

use std::sync::Arc;

use annie_core::{ports::Clock, time::Micros};

use super::injector::Injector;

/// A clock that faults move.
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
