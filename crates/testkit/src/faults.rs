//! Fault plans: which fault is injected at which fault point. Every hit is counted and named, so that a test can first record
//! an undisturbed path, and then inject a fault at each step of it in turn.

use std::collections::HashSet;

use annie_core::ports::{FaultAction, Faults};
use parking_lot::Mutex;

/// A hit of a fault point: the actor's kind and the point, such as `engine` and `before:Wake`.
pub type Hit = (String, String);

type Choice = Box<dyn Fn(&str, &str, usize) -> FaultAction + Send + Sync>;

/// A plan of faults. It counts hits over all actors.
pub struct FaultPlan {
    choice: Choice,
    hits: Mutex<Vec<Hit>>,
    injected: Mutex<Vec<Hit>>,
    passed: Mutex<HashSet<Hit>>,
    armed: Mutex<bool>,
}

impl FaultPlan {
    /// A plan that a function makes from actor kind, point, and number of earlier hits.
    #[must_use]
    pub fn by(choice: impl Fn(&str, &str, usize) -> FaultAction + Send + Sync + 'static) -> Self {
        Self {
            choice: Box::new(choice),
            hits: Mutex::new(Vec::new()),
            injected: Mutex::new(Vec::new()),
            passed: Mutex::new(HashSet::new()),
            armed: Mutex::new(true),
        }
    }

    /// A plan that only records the hits.
    #[must_use]
    pub fn recording() -> Self {
        Self::by(|_, _, _| FaultAction::Pass)
    }

    /// A plan that injects one fault, at the `nth` hit (from 0) of this point of this kind of actor.
    #[must_use]
    pub fn once_at(kind: &str, point: &str, nth: usize, action: FaultAction) -> Self {
        let (kind, point) = (kind.to_owned(), point.to_owned());
        let seen = Mutex::new(0_usize);
        Self::by(move |k, p, _| {
            if k != kind || p != point {
                return FaultAction::Pass;
            }
            let mut seen = seen.lock();
            *seen += 1;
            if *seen == nth + 1 { action } else { FaultAction::Pass }
        })
    }

    /// From now on the plan neither records nor injects.
    pub fn disarm(&self) {
        *self.armed.lock() = false;
    }

    /// Records and injects from now on.
    pub fn arm(&self) {
        *self.armed.lock() = true;
    }

    /// All hits so far, in order.
    #[must_use]
    pub fn hits(&self) -> Vec<Hit> {
        self.hits.lock().clone()
    }

    /// The hits at which a fault was injected.
    #[must_use]
    pub fn injected(&self) -> Vec<Hit> {
        self.injected.lock().clone()
    }

    /// Whether any actor of this kind has been at this point, also while the plan was disarmed.
    #[must_use]
    pub fn has_passed(&self, kind: &str, point: &str) -> bool {
        self.passed.lock().contains(&(kind.to_owned(), point.to_owned()))
    }

    fn decide(&self, actor: &str, point: &str, counts: impl Fn(FaultAction) -> bool) -> FaultAction {
        self.passed.lock().insert((actor.to_owned(), point.to_owned()));
        if !*self.armed.lock() {
            return FaultAction::Pass;
        }
        let before = {
            let mut hits = self.hits.lock();
            hits.push((actor.to_owned(), point.to_owned()));
            hits.len() - 1
        };
        let action = (self.choice)(actor, point, before);
        if action != FaultAction::Pass && counts(action) {
            self.injected.lock().push((actor.to_owned(), point.to_owned()));
        }
        action
    }
}

impl Faults for FaultPlan {
    /// A hang is not possible in a task: it passes, and is not counted as injected.
    fn in_task(&self, task: &str, point: &str) -> FaultAction {
        match self.decide(task, point, |action| action != FaultAction::Hang) {
            FaultAction::Hang => FaultAction::Pass,
            action => action,
        }
    }

    fn at(&self, actor: &str, point: &str) -> FaultAction {
        self.decide(actor, point, |_| true)
    }
}
