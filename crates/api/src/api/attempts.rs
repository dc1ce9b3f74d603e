//! In-memory state about requests that a client sends in numbered attempts without an idempotency key: how many equal requests
//! arrived, for which tasks a response waits, and which answers were delivered. Losing this state costs only time: everything
//! that a later attempt needs to find the message of an earlier one is in the store.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use annie_core::ids::{TaskId, UserId};

/// The maximum number of remembered requests. A forgotten one costs a read of the store.
const REQUESTS_MAX: usize = 4_096;
/// The maximum number of tasks that are remembered as answered.
const ANSWERED_MAX: usize = 4_096;

/// Identifies a user's request without its attempt number: the SHA-256 of the API surface, the named conversation and the body.
pub type Fingerprint = [u8; 32];

/// The state of all attempts; see the module documentation.
#[derive(Default)]
pub struct Attempts(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The window and the count of equal requests of a user.
    equal: HashMap<(UserId, Fingerprint), (i64, u32)>,
    /// The last window in which such a request was refused.
    refused: HashMap<(UserId, Fingerprint), i64>,
    /// The number of responses that wait for a task.
    waiting: HashMap<TaskId, u32>,
    /// Tasks whose answer was delivered, oldest first.
    answered: VecDeque<TaskId>,
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new request among the equal requests of its user in this window, from 0.
    pub fn number(&self, user: &UserId, fingerprint: Fingerprint, window: i64) -> u32 {
        let mut inner = self.lock();
        let equal = &mut inner.equal;
        if equal.len() >= REQUESTS_MAX {
            equal.retain(|_, (of, _)| *of == window);
            if equal.len() >= REQUESTS_MAX {
                equal.clear();
            }
        }
        let (of, count) = equal.entry((user.clone(), fingerprint)).or_insert((window, 0));
        if *of != window {
            (*of, *count) = (window, 0);
        }
        *count = count.saturating_add(1);
        *count - 1
    }

    /// Records that a request was refused in this window and that nothing of it was stored.
    pub fn refuse(&self, user: &UserId, fingerprint: Fingerprint, window: i64) {
        let refused = &mut self.lock().refused;
        if refused.len() >= REQUESTS_MAX {
            refused.retain(|_, of| *of == window);
            if refused.len() >= REQUESTS_MAX {
                refused.clear();
            }
        }
        refused.insert((user.clone(), fingerprint), window);
    }

    /// Records that such a request was stored after a refusal.
    pub fn accept(&self, user: &UserId, fingerprint: Fingerprint) {
        self.lock().refused.remove(&(user.clone(), fingerprint));
    }

    /// Whether this process refused such a request since this window began.
    pub fn was_refused(&self, user: &UserId, fingerprint: Fingerprint, since_window: i64) -> bool {
        self.lock().refused.get(&(user.clone(), fingerprint)).is_some_and(|window| *window >= since_window)
    }

    /// Records that a response waits for this task.
    pub fn wait(&self, task: TaskId) {
        *self.lock().waiting.entry(task).or_insert(0) += 1;
    }

    /// Records that a response no longer waits for this task.
    pub fn leave(&self, task: TaskId) {
        let mut inner = self.lock();
        let waiting = &mut inner.waiting;
        if let Some(count) = waiting.get_mut(&task) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&task);
            }
        }
    }

    /// Whether a response waits for this task.
    pub fn is_waited_for(&self, task: TaskId) -> bool {
        self.lock().waiting.contains_key(&task)
    }

    /// Records that the answer of this task was delivered.
    pub fn answer(&self, task: TaskId) {
        let mut inner = self.lock();
        let answered = &mut inner.answered;
        if answered.len() == ANSWERED_MAX {
            answered.pop_front();
        }
        answered.push_back(task);
    }

    /// Whether this process delivered the answer of this task.
    pub fn is_answered(&self, task: TaskId) -> bool {
        self.lock().answered.contains(&task)
    }
}
