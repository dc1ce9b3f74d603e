//! Fault plans: which fault is injected at which fault point, in the plan grammar of [`annie_core::faults`]. Every hit is
//! counted and named, so that a test can first record an undisturbed path, and then inject a fault at each step of it in turn.

use std::collections::HashSet;

use annie_core::{
    faults::{FaultKind, FaultLine, FaultSpec, Injection, TASKS, Target, first_injection},
    ports::{FaultAction, Faults},
};
use parking_lot::Mutex;

/// A hit of a fault point: the actor's kind and the point, such as `engine` and `before:Wake`.
pub type Hit = (String, String);

/// A pass of a fault point by an actor or a task.
struct Pass<'a> {
    target: Target,
    kind: &'a str,
    path: &'a str,
    point: &'a str,
    /// The number of earlier hits of any point.
    before: usize,
}

type Choice = Box<dyn Fn(&Pass<'_>) -> FaultAction + Send + Sync>;

/// A plan of faults. It counts hits over all actors.
pub struct FaultPlan {
    choice: Choice,
    hits: Mutex<Vec<Hit>>,
    injected: Mutex<Vec<Hit>>,
    passed: Mutex<HashSet<Hit>>,
    armed: Mutex<bool>,
}

impl FaultPlan {
    /// A plan whose faults depend on what happened before, so that no list can say them: a function of actor kind, point, and
    /// number of earlier hits. Other plans are made with [`FaultPlan::of`].
    #[must_use]
    pub fn by(choice: impl Fn(&str, &str, usize) -> FaultAction + Send + Sync + 'static) -> Self {
        Self::choosing(move |pass| choice(pass.kind, pass.point, pass.before))
    }

    /// A plan with these faults of actors and tasks. The first fault of the list that matches a hit is injected.
    #[must_use]
    pub fn with(faults: impl IntoIterator<Item = FaultSpec>) -> Self {
        let lines: Vec<FaultLine> = (1..).zip(faults).map(|(id, spec)| FaultLine::new(id, spec)).collect();
        let is_known = lines.iter().all(|line| matches!(line.spec.target, Target::Actor | Target::Task));
        assert!(is_known, "a plan injects faults into actors and tasks; the other faults have ports of their own");
        let lines = Mutex::new(lines);
        Self::choosing(move |pass| {
            let is_meant = |spec: &FaultSpec| spec.means(pass.target, pass.kind, pass.path, pass.point);
            first_injection(lines.lock().iter_mut(), is_meant).map_or(FaultAction::Pass, Injection::action)
        })
    }

    /// The same from text, such as `["actor panic --at engine --point stored --once"]`.
    ///
    /// # Panics
    /// If a line is not a fault of an actor or a task.
    #[must_use]
    #[expect(clippy::panic, reason = "a plan that is wrong ends its test")]
    pub fn of<const N: usize>(lines: [&str; N]) -> Self {
        Self::with(lines.map(|line| line.parse::<FaultSpec>().unwrap_or_else(|why| panic!("{line}: {why}"))))
    }

    fn choosing(choice: impl Fn(&Pass<'_>) -> FaultAction + Send + Sync + 'static) -> Self {
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

    /// A plan that injects one fault, at the `nth` hit (from 0) of this point of this kind of actor or task.
    #[must_use]
    pub fn once_at(kind: &str, point: &str, nth: usize, action: FaultAction) -> Self {
        let target = if TASKS.contains(&kind) { Target::Task } else { Target::Actor };
        let (fault, wait_ms) = match action {
            FaultAction::Pass => return Self::recording(),
            FaultAction::Panic => (FaultKind::Panic, 0),
            FaultAction::Fail => (FaultKind::Fail, 0),
            FaultAction::Hang => (FaultKind::Hang, 0),
            FaultAction::Kill => (FaultKind::Kill, 0),
            FaultAction::Stop => (FaultKind::Stop, 0),
            FaultAction::Slow { wait_ms } => (FaultKind::Slow, wait_ms),
            FaultAction::Twice => (FaultKind::Twice, 0),
        };
        let spec = FaultSpec { wait_ms, skip: nth as u64, ..FaultSpec::new(target, fault).at(kind, point).once() };
        Self::with([spec])
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

    fn decide(&self, at: (Target, &str, &str), point: &str, counts: impl Fn(FaultAction) -> bool) -> FaultAction {
        let (target, actor, path) = at;
        self.passed.lock().insert((actor.to_owned(), point.to_owned()));
        if !*self.armed.lock() {
            return FaultAction::Pass;
        }
        let before = {
            let mut hits = self.hits.lock();
            hits.push((actor.to_owned(), point.to_owned()));
            hits.len() - 1
        };
        let action = (self.choice)(&Pass { target, kind: actor, path, point, before });
        if action != FaultAction::Pass && counts(action) {
            self.injected.lock().push((actor.to_owned(), point.to_owned()));
        }
        action
    }
}

impl Faults for FaultPlan {
    /// A hang is not possible in a task: it passes, and is not counted as injected.
    fn in_task(&self, task: &str, point: &str) -> FaultAction {
        match self.decide((Target::Task, task, ""), point, |action| action != FaultAction::Hang) {
            FaultAction::Hang => FaultAction::Pass,
            action => action,
        }
    }

    fn at(&self, actor: &str, point: &str) -> FaultAction {
        self.at_path(actor, "", point)
    }

    fn at_path(&self, actor: &str, path: &str, point: &str) -> FaultAction {
        self.decide((Target::Actor, actor, path), point, |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_plan_injects_its_lines_into_actors_by_kind_or_path_and_into_tasks() {
        let plan = FaultPlan::of([
            "actor fail --at /conversations/engine:* --point stored --once",
            "task panic --at run --point ran --skip 1 --once",
        ]);
        let at = |path| plan.at_path("engine", path, "stored");
        assert_eq!(
            [at("/other"), at("/conversations/engine:1"), at("/conversations/engine:1")],
            [FaultAction::Pass, FaultAction::Fail, FaultAction::Pass]
        );
        let tasks: Vec<FaultAction> = (0..3).map(|_| plan.in_task("run", "ran")).collect();
        assert_eq!(tasks, [FaultAction::Pass, FaultAction::Panic, FaultAction::Pass]);
        assert_eq!(plan.injected().len(), 2);
    }

    #[test]
    fn fault_plan_injects_once_at_the_hit_that_it_was_made_for() {
        let plan = FaultPlan::once_at("engine", "stored", 1, FaultAction::Slow { wait_ms: 5 });
        plan.disarm();
        assert_eq!(plan.at("engine", "stored"), FaultAction::Pass, "a disarmed plan counts no hits");
        plan.arm();
        let hits: Vec<FaultAction> = (0..3).map(|_| plan.at("engine", "stored")).collect();
        assert_eq!(hits, [FaultAction::Pass, FaultAction::Slow { wait_ms: 5 }, FaultAction::Pass]);
        assert!(plan.has_passed("engine", "stored") && !plan.has_passed("engine", "ready"));
    }
}
