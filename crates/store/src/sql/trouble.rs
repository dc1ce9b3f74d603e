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
/// The least time between two tried writes.
const TRIES_APART: Duration = Duration::from_secs(1);

/// The last failure of each kind of statement that has not succeeded since.
#[derive(Default)]
pub struct Trouble {
    failed: Mutex<BTreeMap<&'static str, (StoreError, Instant)>>,
    has_any: AtomicBool,
    tried: Mutex<Option<Instant>>,
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

    /// Whether there is a failure that does not pass by itself: only a write that succeeds shows that the disk takes writes
    /// again.
    pub fn lasts(&self) -> bool {
        self.has_any.load(Relaxed) && self.failed.lock().values().any(|(error, _)| lasts(error))
    }

    /// Whether a write is to be tried now: a failure lasts, and none was tried within the last second. Whoever asks whether the
    /// store is ready may ask as often as they like.
    pub fn wants_a_try(&self, now: Instant) -> bool {
        if !self.lasts() {
            return false;
        }
        let mut tried = self.tried.lock();
        let is_due = tried.is_none_or(|at| now.duration_since(at) >= TRIES_APART);
        if is_due {
            *tried = Some(now);
        }
        is_due
    }

    /// A write has succeeded: the disk is not full any more. Of damage that says nothing: it stays until its statement succeeds,
    /// or a write does a minute or more after the statement failed last.
    pub fn wrote(&self, now: Instant) {
        let mut failed = self.failed.lock();
        failed.retain(|_, (error, at)| error.kind != StoreErrorKind::Full && now.duration_since(*at) < REMEMBERED);
        self.has_any.store(!failed.is_empty(), Relaxed);
    }

    /// A failure that still counts.
    pub fn present(&self, now: Instant) -> Option<StoreError> {
        if !self.has_any.load(Relaxed) {
            return None;
        }
        let mut failed = self.failed.lock();
        failed.retain(|_, (error, at)| lasts(error) || now.duration_since(*at) < REMEMBERED);
        self.has_any.store(!failed.is_empty(), Relaxed);
        failed.values().next().map(|(error, _)| error.clone())
    }
}

/// Whether a failure does not pass by itself.
const fn lasts(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::Full | StoreErrorKind::Corrupt)
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
        let other = StoreError { kind: StoreErrorKind::Internal, ..full() };
        trouble.note("committing", Some(&other), now);
        assert!(!trouble.lasts());
        assert_eq!(trouble.present(now + REMEMBERED), None);
    }

    #[test]
    fn full_disk_lasts_until_a_write_succeeds_however_long_that_takes() {
        let (trouble, now) = (Trouble::default(), Instant::now());
        trouble.note("committing", Some(&full()), now);
        assert!(trouble.lasts());
        assert_eq!(trouble.present(now + REMEMBERED * 10), Some(full()));
        trouble.wrote(now + REMEMBERED * 10);
        assert_eq!(trouble.present(now + REMEMBERED * 10), None);
        assert!(!trouble.lasts());
    }

    #[test]
    fn damage_lasts_until_a_write_succeeds_and_a_minute_has_passed() {
        let (trouble, now) = (Trouble::default(), Instant::now());
        let damage = StoreError { kind: StoreErrorKind::Corrupt, ..full() };
        trouble.note("reading", Some(&damage), now);
        trouble.wrote(now);
        assert_eq!(trouble.present(now), Some(damage));
        trouble.wrote(now + REMEMBERED);
        assert_eq!(trouble.present(now + REMEMBERED), None);
    }

    #[test]
    fn trouble_that_lasts_wants_one_tried_write_a_second() {
        let (trouble, now) = (Trouble::default(), Instant::now());
        assert!(!trouble.wants_a_try(now));
        trouble.note("committing", Some(&full()), now);
        let tries = [0, 1, 999, 1_000, 1_001, 2_000].map(|ms| trouble.wants_a_try(now + Duration::from_millis(ms)));
        assert_eq!(tries, [true, false, false, true, false, true]);
    }

    #[test]
    fn trouble_ignores_a_lock_that_another_process_holds_for_a_moment() {
        let (trouble, now) = (Trouble::default(), Instant::now());
        trouble.note("committing", Some(&StoreError { kind: StoreErrorKind::Locked, ..full() }), now);
        assert_eq!(trouble.present(now), None);
    }
}
