//! How a keeper of stored work spends its time: it looks into the store when something new is there or something is due,
//! and sleeps in between. One look at a time, one timer; nothing polls.

use std::{collections::HashSet, fmt::Display, future::Future, hash::Hash, time::Duration};

use crate::observe::Branch;
use annie_core::time::Micros;
use serde_json::{Value, json};

use crate::tasks::{Tasks, caught};

/// How long one sleep is at most, in milliseconds: the wall clock may be set while it lasts.
const SLEEP_MS_MAX: u64 = 3_600_000;
/// How soon a look follows another, in milliseconds.
const REST_MS_MIN: i64 = 10;
/// How soon it looks again after a failure, in milliseconds; each further one doubles it, up to the second.
const AGAIN_MS: (u64, u64) = (1_000, 60_000);

/// Things that one look may find blocked; beyond these it ends.
const BLOCKED_MAX: usize = 10_000;
/// How long one look may take, in milliseconds; longer than what it waits for takes with all that stands before it.
const LOOK_MS_MAX: u64 = 300_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Look,
    Sleep,
}

/// When to look next.
pub(crate) struct Lookout {
    tasks: Tasks<Job>,
    next_at: Option<Micros>,
    /// What the timer is set to.
    set_to: Option<Micros>,
    failures: u32,
}

impl Lookout {
    /// Nothing is due.
    pub fn of(owner: Branch) -> Self {
        Self { tasks: Tasks::of(owner), next_at: None, set_to: None, failures: 0 }
    }

    /// A look is wanted at this time.
    pub fn want(&mut self, at: Micros) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }

    /// Sets the timer to the next time, if no look is under way; `ring` goes off then.
    pub fn wind(&mut self, now: Micros, ring: impl FnOnce() -> bool + Send + 'static) {
        let Some(at) = self.next_at.filter(|_| !self.tasks.contains(&Job::Look)) else { return };
        if self.set_to == Some(at) {
            return;
        }
        self.set_to = Some(at);
        let wait = Duration::from_micros(at.0.saturating_sub(now.0).max(0).unsigned_abs());
        self.tasks.spawn(Job::Sleep, async move {
            tokio::time::sleep(wait.min(Duration::from_millis(SLEEP_MS_MAX))).await;
            // False: this life is over, and the next one looks first of all.
            let _ = ring();
        });
    }

    /// The timer went off. True if it is time to look, and then nothing more is due.
    pub fn struck(&mut self, now: Micros) -> bool {
        self.set_to = None;
        self.tasks.remove(&Job::Sleep);
        let is_time = !self.tasks.contains(&Job::Look) && self.next_at.is_some_and(|at| at <= now);
        if is_time {
            self.next_at = None;
        }
        is_time
    }

    /// Looks.
    pub fn look(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(Job::Look, work);
    }

    /// The look is over, and says when something is due next.
    pub fn looked(&mut self, now: Micros, next: Option<Micros>) {
        self.failures = 0;
        self.tasks.remove(&Job::Look);
        if let Some(at) = next {
            self.want(at.max(now.plus_ms(REST_MS_MIN)));
        }
    }

    /// The look failed; another follows.
    pub fn failed(&mut self, now: Micros) {
        let (first, most) = AGAIN_MS;
        let wait = first.saturating_mul(1 << self.failures.min(10)).min(most);
        self.failures += 1;
        self.tasks.remove(&Job::Look);
        self.want(later(now, wait));
    }

    /// For views: whether it looks now, and when it looks next.
    pub fn view(&self) -> Value {
        json!({
            "is_looking": self.tasks.contains(&Job::Look), "next_at": self.next_at.map(|at| at.to_string()),
            "failures": self.failures
        })
    }
}

/// What a look came to, also if it broke down or never came back: whoever looks must be able to look again.
pub(crate) async fn outcome<T, E: Display>(look: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(Duration::from_millis(LOOK_MS_MAX), caught(look)).await {
        Ok(Ok(looked)) => looked.map_err(|e| e.to_string()),
        Ok(Err(panic)) => Err(panic),
        Err(_) => Err(format!("it did not come back within {LOOK_MS_MAX} ms")),
    }
}

/// What was due and could not be done: it stands in nobody's way, and is looked at again at its time.
pub(crate) struct Blocked<K> {
    those: HashSet<K>,
    until: Option<Micros>,
}

impl<K: Eq + Hash> Blocked<K> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { those: HashSet::new(), until: None }
    }

    /// How many rows to ask for, so that as many as a page has are new.
    pub fn rows(&self, page: u32) -> u32 {
        page.saturating_add(u32::try_from(self.those.len()).unwrap_or(u32::MAX))
    }

    /// Whether something is blocked.
    pub fn has(&self, key: &K) -> bool {
        self.those.contains(key)
    }

    /// Something could not be done, and may be tried again at a time.
    pub fn put(&mut self, key: K, until: Micros) {
        self.those.insert(key);
        self.until = earlier(self.until, Some(until));
    }

    /// Whether there is so much of it that the rest is left to the next look.
    pub fn is_full(&self) -> bool {
        self.those.len() >= BLOCKED_MAX
    }

    /// When to look again if something is due at this time: what is due and blocked must not make anybody look all the time.
    pub fn next(&self, due: Option<Micros>) -> Option<Micros> {
        due.map(|at| self.until.map_or(at, |until| at.max(until)))
    }
}

/// So many milliseconds from now.
pub(crate) fn later(now: Micros, ms: u64) -> Micros {
    now.later_ms(ms)
}

/// The earlier of two times, if there is any.
pub(crate) fn earlier(a: Option<Micros>, b: Option<Micros>) -> Option<Micros> {
    a.into_iter().chain(b).min()
}
