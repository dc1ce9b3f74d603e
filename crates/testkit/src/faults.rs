//! Fault plans: which fault strikes at which fault point. Every hit is counted and named, so that a test can first walk a
//! path undisturbed, and then strike at each step of it in turn.

use annie_core::ports::{FaultAction, Faults};
use parking_lot::Mutex;

/// Where a fault point was passed: the actor's kind and the point, `engine before:Wake`.
pub type Hit = (String, String);

type Choice = Box<dyn Fn(&str, &str, usize) -> FaultAction + Send + Sync>;

/// A plan of faults. Counts hits over all actors.
pub struct FaultPlan {
    choice: Choice,
    hits: Mutex<Vec<Hit>>,
    struck: Mutex<Vec<Hit>>,
    armed: Mutex<bool>,
}

impl FaultPlan {
    /// A plan by a function of actor kind, point, and how many hits came before.
    #[must_use]
    pub fn by(choice: impl Fn(&str, &str, usize) -> FaultAction + Send + Sync + 'static) -> Self {
        Self {
            choice: Box::new(choice),
            hits: Mutex::new(Vec::new()),
            struck: Mutex::new(Vec::new()),
            armed: Mutex::new(true),
        }
    }

    /// A plan that only records the way.
    #[must_use]
    pub fn recording() -> Self {
        Self::by(|_, _, _| FaultAction::Pass)
    }

    /// A plan that strikes once, at the `nth` passing (from 0) of this point of this kind of actor.
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

    /// From now on nothing is recorded or struck.
    pub fn disarm(&self) {
        *self.armed.lock() = false;
    }

    /// Records and strikes from now on.
    pub fn arm(&self) {
        *self.armed.lock() = true;
    }

    /// All hits so far, in order.
    #[must_use]
    pub fn hits(&self) -> Vec<Hit> {
        self.hits.lock().clone()
    }

    /// Where it struck.
    #[must_use]
    pub fn struck(&self) -> Vec<Hit> {
        self.struck.lock().clone()
    }

    fn strike(&self, actor: &str, point: &str, counts: impl Fn(FaultAction) -> bool) -> FaultAction {
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
            self.struck.lock().push((actor.to_owned(), point.to_owned()));
        }
        action
    }
}

impl Faults for FaultPlan {
    /// A hang passes there and is not counted as a strike.
    fn in_task(&self, task: &str, point: &str) -> FaultAction {
        match self.strike(task, point, |action| action != FaultAction::Hang) {
            FaultAction::Hang => FaultAction::Pass,
            action => action,
        }
    }

    fn at(&self, actor: &str, point: &str) -> FaultAction {
        self.strike(actor, point, |_| true)
    }
}
