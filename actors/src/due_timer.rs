//! The timing of a background worker: it reads the store when something new was announced or something is due, and is idle
//! in between. It runs one pass at a time and one timer, and does not poll.

use std::{collections::HashSet, fmt::Display, future::Future, hash::Hash, time::Duration};

use crate::observe::Branch;
use annie_core::time::Micros;
use serde_json::{Value, json};

use crate::tasks::{Tasks, caught};

/// Maximum length of one sleep, in milliseconds: the wall clock may be set meanwhile.
const SLEEP_MS_MAX: u64 = 3_600_000;
/// Minimum interval between two passes, in milliseconds.
const PASS_INTERVAL_MS_MIN: i64 = 10;
/// Back-off after a failed pass, in milliseconds: the first wait, and the maximum; each further failure doubles the wait.
const AGAIN_MS: (u64, u64) = (1_000, 60_000);

/// Blocked items in one pass; when this is reached the pass ends.
const BLOCKED_MAX: usize = 10_000;
/// Time limit of one pass, in milliseconds; longer than its longest wait, an append with all appends before it.
const PASS_MS_MAX: u64 = 300_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Work {
    Pass,
    Sleep,
}

/// When the next pass is due.
pub(crate) struct DueTimer {
    tasks: Tasks<Work>,
    next_at: Option<Micros>,
    /// The time to which the timer is set.
    set_to: Option<Micros>,
    /// The time had come when the timer was set, so that it rings at once.
    rings_at_once: bool,
    failures: u32,
}

impl DueTimer {
    /// No pass is due.
    pub fn of(owner: Branch) -> Self {
        Self { tasks: Tasks::of(owner), next_at: None, set_to: None, rings_at_once: false, failures: 0 }
    }

    /// Requests a pass at this time.
    pub fn request_pass(&mut self, at: Micros) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }

    /// Sets the timer to the time of the next pass, unless a pass is under way. The timer calls `ring`.
    pub fn set_timer(&mut self, now: Micros, ring: impl FnOnce() -> bool + Send + 'static) {
        let Some(at) = self.next_at.filter(|_| !self.tasks.contains(&Work::Pass)) else { return };
        // The wall clock may have been set forward, or the machine slept, since the timer was set.
        let has_come = at <= now;
        if self.set_to == Some(at) && (self.rings_at_once || !has_come) {
            return;
        }
        self.set_to = Some(at);
        self.rings_at_once = has_come;
        let wait = Duration::from_micros(at.0.saturating_sub(now.0).max(0).unsigned_abs());
        self.tasks.spawn(Work::Sleep, async move {
            tokio::time::sleep(wait.min(Duration::from_millis(SLEEP_MS_MAX))).await;
            // `ring` returns false if this incarnation has ended; the next one starts with a pass.
            let _ = ring();
        });
    }

    /// Handles the timer. Returns true if a pass must start now; then no further pass is due.
    pub fn fired(&mut self, now: Micros) -> bool {
        self.set_to = None;
        self.tasks.remove(&Work::Sleep);
        let is_due = !self.tasks.contains(&Work::Pass) && self.next_at.is_some_and(|at| at <= now);
        if is_due {
            self.next_at = None;
        }
        is_due
    }

    /// Starts a pass.
    pub fn start_pass(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(Work::Pass, work);
    }

    /// Waits for the end of the pass under way, at most this long; then aborts it. For an actor that stops.
    pub async fn finish_pass(&mut self, within: Duration) {
        self.tasks.finish(&Work::Pass, within).await;
    }

    /// Handles the end of a pass, and when the next item is due.
    pub fn pass_ended(&mut self, now: Micros, next: Option<Micros>) {
        self.failures = 0;
        self.tasks.remove(&Work::Pass);
        if let Some(at) = next {
            self.request_pass(at.max(now.plus_ms(PASS_INTERVAL_MS_MIN)));
        }
    }

    /// Handles a failed pass; another one follows after the back-off.
    pub fn pass_failed(&mut self, now: Micros) {
        let (first, most) = AGAIN_MS;
        let wait = first.saturating_mul(1 << self.failures.min(10)).min(most);
        self.failures += 1;
        self.tasks.remove(&Work::Pass);
        self.request_pass(later(now, wait));
    }

    /// For views: whether a pass is under way, and when the next one is due.
    pub fn view(&self) -> Value {
        json!({
            "has_pass": self.tasks.contains(&Work::Pass), "next_at": self.next_at.map(|at| at.to_string()),
            "failures": self.failures
        })
    }
}

/// The result of a pass, also if it panicked or timed out: the worker must be able to start the next one.
pub(crate) async fn outcome<T, E: Display>(pass: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(Duration::from_millis(PASS_MS_MAX), caught(pass)).await {
        Ok(Ok(result)) => result.map_err(|e| e.to_string()),
        Ok(Err(panic)) => Err(panic),
        Err(_) => Err(format!("it did not come back within {PASS_MS_MAX} ms")),
    }
}

/// Items that were due and could not be processed. They do not delay other items, and are tried again at a known time.
pub(crate) struct Blocked<K> {
    keys: HashSet<K>,
    until: Option<Micros>,
}

impl<K: Eq + Hash> Blocked<K> {
    /// No blocked items.
    pub fn new() -> Self {
        Self { keys: HashSet::new(), until: None }
    }

    /// How many rows to read, so that `page` rows remain after the blocked ones are skipped.
    pub fn rows(&self, page: u32) -> u32 {
        page.saturating_add(u32::try_from(self.keys.len()).unwrap_or(u32::MAX))
    }

    /// Whether an item is blocked.
    pub fn has(&self, key: &K) -> bool {
        self.keys.contains(key)
    }

    /// Adds an item that could not be processed, and when to try it again.
    pub fn put(&mut self, key: K, until: Micros) {
        self.keys.insert(key);
        self.until = earlier(self.until, Some(until));
    }

    /// Whether so many items are blocked that the rest is left to the next pass.
    pub fn is_full(&self) -> bool {
        self.keys.len() >= BLOCKED_MAX
    }

    /// When the next pass is due if the first item is due at `due`. Blocked items that are due must not cause passes without
    /// a pause.
    pub fn next(&self, due: Option<Micros>) -> Option<Micros> {
        due.map(|at| self.until.map_or(at, |until| at.max(until)))
    }
}

/// The time `ms` milliseconds after `now`.
pub(crate) fn later(now: Micros, ms: u64) -> Micros {
    now.later_ms(ms)
}

/// The earlier of two optional times.
pub(crate) fn earlier(a: Option<Micros>, b: Option<Micros>) -> Option<Micros> {
    a.into_iter().chain(b).min()
}
