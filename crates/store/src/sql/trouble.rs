//! Which statements failed lately. A connection that answers `SELECT 1` may still refuse every write (a full disk) or every
//! read of one table (a damaged schema), and a store in that state is not ready.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use annie_core::ports::{StoreError, StoreErrorKind};
use parking_lot::Mutex;

/// How long a failure counts if the statement is not tried again. Long enough that what is tried every few seconds stays
/// visible, short enough that a rare statement which failed once does not keep the process out of service.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The last failure of each kind of statement that has not succeeded since.
#[derive(Default)]
pub struct Trouble {
    failed: Mutex<BTreeMap<&'static str, (StoreError, Instant)>>,
    has_any: AtomicBool,
}

impl Trouble {
    /// Takes note of how a statement ended.
    pub fn note(&self, what: &'static str, error: Option<&StoreError>, now: Instant) {
        match error {
            // Somebody else holds a lock for a moment; whether the database is there at all is asked by every ping.
            Some(error) if matches!(error.kind, StoreErrorKind::Locked | StoreErrorKind::Unavailable) => {}
            Some(error) => {
                self.failed.lock().insert(what, (error.clone(), now));
                self.has_any.store(true, Relaxed);
            }
            None if self.has_any.load(Relaxed) => {
                let mut failed = self.failed.lock();
                failed.remove(what);
                self.has_any.store(!failed.is_empty(), Relaxed);
            }
            None => {}
        }
    }

    /// A failure that still counts.
    pub fn present(&self, now: Instant) -> Option<StoreError> {
        if !self.has_any.load(Relaxed) {
            return None;
        }
        let mut failed = self.failed.lock();
        failed.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
        self.has_any.store(!failed.is_empty(), Relaxed);
        failed.values().next().map(|(error, _)| error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> StoreError {
        StoreError { kind: StoreErrorKind::Full, what: "committing", detail: "database or disk is full".to_owned() }
    }

    #[test]
    fn trouble_lasts_until_the_statement_succeeds_or_a_minute_has_passed() {
        let (trouble, now) = (Trouble::default(), Instant::now());
        assert_eq!(trouble.present(now), None);
        trouble.note("committing", Some(&full()), now);
        trouble.note("reading", None, now);
        assert_eq!(trouble.present(now), Some(full()));
        trouble.note("committing", None, now);
        assert_eq!(trouble.present(now), None);
        trouble.note("committing", Some(&full()), now);
        assert_eq!(trouble.present(now + REMEMBERED), None);
    }

    #[test]
    fn trouble_ignores_a_lock_that_another_process_holds_for_a_moment() {
        let (trouble, now) = (Trouble::default(), Instant::now());
        trouble.note("committing", Some(&StoreError { kind: StoreErrorKind::Locked, ..full() }), now);
        assert_eq!(trouble.present(now), None);
    }
}
