//! What this process remembers of requests that were sent in numbered attempts and without an idempotency key: how many equal
//! ones came, which tasks somebody waits for, and which answers were given. All of it is a help: what a later attempt needs to
//! find the message of an earlier one is in the store.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use annie_core::ids::{TaskId, UserId};

/// Requests that are remembered, at most. A forgotten one costs a look into the store.
const REQUESTS_MAX: usize = 4_096;
/// Answers that are remembered as given, at most.
const ANSWERED_MAX: usize = 4_096;

/// A user's request, without its attempt: the SHA-256 of the surface, the conversation that it names, and its body.
pub type Fingerprint = [u8; 32];

/// See the module.
#[derive(Default)]
pub struct Attempts(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// How many equal requests of a user came in a window.
    equal: HashMap<(UserId, Fingerprint), (i64, u32)>,
    /// The last window in which a request was refused.
    refused: HashMap<(UserId, Fingerprint), i64>,
    /// How many responses wait for a task.
    waiting: HashMap<TaskId, u32>,
    /// Tasks whose answer was given, oldest first.
    answered: VecDeque<TaskId>,
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new request among the equal ones of its user in this window, from 0.
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

    /// A request was refused in this window, and nothing of it was stored.
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

    /// Such a request was stored after all.
    pub fn accept(&self, user: &UserId, fingerprint: Fingerprint) {
        self.lock().refused.remove(&(user.clone(), fingerprint));
    }

    /// Whether such a request was refused since this window began, as far as this process knows.
    pub fn was_refused(&self, user: &UserId, fingerprint: Fingerprint, since_window: i64) -> bool {
        self.lock().refused.get(&(user.clone(), fingerprint)).is_some_and(|window| *window >= since_window)
    }

    /// A response waits for this task.
    pub fn wait(&self, task: TaskId) {
        *self.lock().waiting.entry(task).or_insert(0) += 1;
    }

    /// A response does not wait for it any more.
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

    /// The answer of this task was given.
    pub fn answer(&self, task: TaskId) {
        let mut inner = self.lock();
        let answered = &mut inner.answered;
        if answered.len() == ANSWERED_MAX {
            answered.pop_front();
        }
        answered.push_back(task);
    }

    /// Whether the answer of this task was given, as far as this process knows.
    pub fn is_answered(&self, task: TaskId) -> bool {
        self.lock().answered.contains(&task)
    }
}
