//! Statements that failed lately. A connection that answers `SELECT 1` may still refuse every write (a full disk) or every read
//! of one table (a damaged schema), and a store in that state is not ready.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use annie_core::ports::{StoreError, StoreErrorKind};
use parking_lot::Mutex;

/// How long a failure counts if the statement does not run again. Long enough that a statement that runs every few seconds
/// stays visible, short enough that a rare statement which failed once does not keep the process out of service.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The least time between two probe writes.
const PROBES_APART: Duration = Duration::from_secs(1);

/// The last failure of each kind of statement that has not succeeded since.
#[derive(Default)]
pub struct Trouble {
    failed: Mutex<BTreeMap<&'static str, (StoreError, Instant)>>,
    has_any: AtomicBool,
    probed_at: Mutex<Option<Instant>>,
}

impl Trouble {
    /// Records the outcome of a statement.
    pub fn note(&self, what: &'static str, error: Option<&StoreError>, now: Instant) {
        match error {
            // Another process holds a lock for a moment, or the database is unavailable, which every ping detects anyway.
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

    /// Whether there is a failure that does not pass by itself. Only a write that succeeds proves that the disk accepts writes
    /// again.
    pub fn lasts(&self) -> bool {
        self.has_any.load(Relaxed) && self.failed.lock().values().any(|(error, _)| lasts(error))
    }

    /// Whether a probe write is due: a failure lasts, and there was none within the last second. Readiness may thus be queried
    /// as often as a client likes.
    pub fn needs_probe(&self, now: Instant) -> bool {
        if !self.lasts() {
            return false;
        }
        let mut probed_at = self.probed_at.lock();
        let is_due = probed_at.is_none_or(|at| now.duration_since(at) >= PROBES_APART);
        if is_due {
            *probed_at = Some(now);
        }
        is_due
    }

    /// A write has succeeded: the disk is not full any more. This proves nothing about damage, which counts until its statement
    /// succeeds, or until a write succeeds at least a minute after the statement's last failure.
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
    fn trouble_that_lasts_needs_one_probe_write_a_second() {
        let (trouble, now) = (Trouble::default(), Instant::now());
        assert!(!trouble.needs_probe(now));
        trouble.note("committing", Some(&full()), now);
        let tries = [0, 1, 999, 1_000, 1_001, 2_000].map(|ms| trouble.needs_probe(now + Duration::from_millis(ms)));
        assert_eq!(tries, [true, false, false, true, false, true]);
    }

    #[test]
    fn trouble_ignores_a_lock_that_another_process_holds_for_a_moment() {
        let (trouble, now) = (Trouble::default(), Instant::now());
        trouble.note("committing", Some(&StoreError { kind: StoreErrorKind::Locked, ..full() }), now);
        assert_eq!(trouble.present(now), None);
    }
}
