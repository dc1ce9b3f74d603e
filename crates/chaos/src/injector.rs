//! The list of faults of one server. Actors query it as core's [`Faults`], the ports through their wrappers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use annie_core::{
    faults::{FaultKind, FaultLine, FaultSpec, Injection, Target, first_injection},
    ports::{Clock, FaultAction, Faults},
};

/// The maximum number of faults on the list.
pub const FAULTS_MAX: usize = 64;
/// The maximum number of points whose passes are counted. Further points are not recorded.
const POINTS_MAX: usize = 2_000;

/// A point where faults can be injected, with its counts since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointLine {
    /// The boundary.
    pub target: Target,
    /// The place at this boundary.
    pub place: String,
    /// The point in this place.
    pub point: String,
    /// How often it was passed.
    pub passed: u64,
    /// How often a fault was injected there.
    pub injected: u64,
}

/// Waits for the time that a fault names.
pub(super) async fn wait(injection: Injection) {
    tokio::time::sleep(Duration::from_millis(u64::from(injection.wait_ms))).await;
}

struct Fault {
    line: FaultLine,
    until_us: Option<u64>,
}

#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    points: BTreeMap<(Target, String, String), (u64, u64)>,
    next_id: u64,
}

/// The faults of one server.
pub struct Injector {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// The shift of the wall clock, in microseconds.
    off_us: AtomicI64,
    /// The number of active clock and file faults. Clock and files are queried often, so this avoids taking the lock when there
    /// are none.
    lasting: AtomicUsize,
}

impl Injector {
    /// An empty list. It measures time with this clock, which no fault shifts.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default(), off_us: AtomicI64::new(0), lasting: AtomicUsize::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic that a fault causes happens outside of the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a fault to the list. A fault of the process takes effect before this returns.
    ///
    /// # Errors
    /// The field that is wrong, and why; `faults` if the list is full.
    pub fn inject(&self, spec: FaultSpec) -> Result<FaultLine, (&'static str, String)> {
        spec.check_inside()?;
        tracing::warn!(?spec, "a fault is injected");
        metrics::counter!("annie_chaos_faults_total", "target" => spec.target.as_str()).increment(1);
        if spec.target == Target::Process {
            abort("asked for");
        }
        let now_us = self.clock.monotonic_us();
        let mut state = self.state();
        end_expired(&mut state, now_us);
        if state.faults.len() >= FAULTS_MAX {
            state.faults.retain(|f| !f.line.ended);
        }
        if state.faults.len() >= FAULTS_MAX {
            return Err(("faults", format!("{FAULTS_MAX} faults are on the list; clear some first")));
        }
        state.next_id += 1;
        let line = FaultLine::new(state.next_id, spec);
        let until_us = (line.spec.for_ms > 0).then(|| now_us.saturating_add(line.spec.for_ms.saturating_mul(1_000)));
        state.faults.push(Fault { line: line.clone(), until_us });
        self.settle(&state);
        Ok(line)
    }

    /// All faults on the list, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<FaultLine> {
        let mut state = self.state();
        end_expired(&mut state, self.clock.monotonic_us());
        self.settle(&state);
        state.faults.iter().map(|f| f.line.clone()).collect()
    }

    /// Removes one fault, or all; returns how many were removed.
    pub fn clear(&self, id: Option<u64>) -> usize {
        let mut state = self.state();
        let before = state.faults.len();
        state.faults.retain(|f| id.is_some_and(|id| f.line.id != id));
        self.settle(&state);
        let cleared = before - state.faults.len();
        tracing::warn!(cleared, "faults are cleared");
        cleared
    }

    /// The points that were passed since the start.
    #[must_use]
    pub fn points(&self) -> Vec<PointLine> {
        let state = self.state();
        let line = |((target, place, point), (passed, injected)): (&(Target, String, String), &(u64, u64))| PointLine {
            target: *target,
            place: place.clone(),
            point: point.clone(),
            passed: *passed,
            injected: *injected,
        };
        state.points.iter().map(line).collect()
    }

    /// The current shift of the wall clock, in microseconds.
    pub(super) fn off_us(&self) -> i64 {
        if self.lasting.load(Relaxed) > 0 {
            let mut state = self.state();
            if end_expired(&mut state, self.clock.monotonic_us()) {
                self.settle(&state);
            }
        }
        self.off_us.load(Relaxed)
    }

    /// Whether the skill files are missing now.
    pub(super) fn are_files_gone(&self) -> bool {
        self.lasting.load(Relaxed) > 0 && self.pass(Target::Files, "skills", "", "read", |_| true).is_some()
    }

    /// Records a pass of a point and returns the fault that takes effect, if any. `can` tells which kinds this point supports.
    pub(super) fn pass(
        &self,
        target: Target,
        place: &str,
        path: &str,
        point: &str,
        can: impl Fn(FaultKind) -> bool,
    ) -> Option<Injection> {
        let now_us = self.clock.monotonic_us();
        let injected = {
            let mut state = self.state();
            if end_expired(&mut state, now_us) {
                self.settle(&state);
            }
            let is_meant = |spec: &FaultSpec| can(spec.kind) && spec.means(target, place, path, point);
            let injection = first_injection(state.faults.iter_mut().map(|fault| &mut fault.line), is_meant);
            count(&mut state.points, (target, place, point), injection.is_some());
            injection
        };
        if let Some(injection) = injected {
            tracing::warn!(%target, place, path, point, kind = %injection.kind, "a fault takes effect");
            metrics::counter!("annie_chaos_injections_total", "target" => target.as_str(), "kind" => injection.kind.as_str())
                .increment(1);
        }
        injected
    }

    /// The action of an actor or a task for an injected fault. Faults of the whole thread or process take effect here.
    fn act(injection: Option<Injection>, place: &str, point: &str) -> FaultAction {
        let Some(injection) = injection else { return FaultAction::Pass };
        match injection.kind {
            FaultKind::Block => {
                block(injection.wait_ms);
                FaultAction::Pass
            }
            FaultKind::Abort => abort(&format!("{place} {point}")),
            _ => injection.action(),
        }
    }

    fn settle(&self, state: &State) {
        let lasting = |f: &&Fault| !f.line.ended && matches!(f.line.spec.target, Target::Clock | Target::Files);
        self.lasting.store(state.faults.iter().filter(lasting).count(), Relaxed);
        let jumps = state.faults.iter().filter(|f| !f.line.ended && f.line.spec.kind == FaultKind::Jump);
        self.off_us.store(jumps.fold(0, |sum, f| f.line.spec.by_ms.saturating_mul(1_000).saturating_add(sum)), Relaxed);
    }
}

impl Faults for Injector {
    fn at(&self, actor: &str, point: &str) -> FaultAction {
        self.at_path(actor, "", point)
    }

    fn at_path(&self, actor: &str, path: &str, point: &str) -> FaultAction {
        Self::act(self.pass(Target::Actor, actor, path, point, |_| true), actor, point)
    }

    fn in_task(&self, task: &str, point: &str) -> FaultAction {
        Self::act(self.pass(Target::Task, task, "", point, |_| true), task, point)
    }

    fn in_mail(&self, actor: &str, path: &str, point: &str) -> FaultAction {
        let way = point.split_once(':').map_or(point, |(way, _)| way);
        // A mailbox is full or not. A reply is lost or late. A message that must arrive can arrive twice or late.
        let can = |kind| match way {
            "mailbox" => kind == FaultKind::Fail,
            "reply" => kind != FaultKind::Twice,
            _ => kind != FaultKind::Fail,
        };
        Self::act(self.pass(Target::Mail, actor, path, point, can), actor, point)
    }
}

/// Ends the faults whose time is over; returns whether there were any.
fn end_expired(state: &mut State, now_us: u64) -> bool {
    let mut some = false;
    for fault in &mut state.faults {
        if !fault.line.ended && fault.until_us.is_some_and(|until| until <= now_us) {
            (fault.line.ended, some) = (true, true);
        }
    }
    some
}

fn count(points: &mut BTreeMap<(Target, String, String), (u64, u64)>, at: (Target, &str, &str), injected: bool) {
    let key = (at.0, at.1.to_owned(), at.2.to_owned());
    if points.len() >= POINTS_MAX && !points.contains_key(&key) {
        return;
    }
    let counts = points.entry(key).or_default();
    counts.0 += 1;
    counts.1 += u64::from(injected);
}

/// Blocks the thread, like a handler that computes for too long.
fn block(wait_ms: u32) {
    let until = Instant::now() + Duration::from_millis(u64::from(wait_ms));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Ends the process as SIGKILL would, without cleanup.
pub(super) fn abort(place: &str) -> ! {
    tracing::error!(place, "the process is aborted by a fault");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injector_refuses_faults_from_outside() {
        let faults = Injector::new(annie_testkit::env::env(1).clock);
        let (field, why) = faults.inject(FaultSpec::new(Target::Process, FaultKind::Kill)).unwrap_err();
        assert!(field == "kind" && why.contains("outside"), "{field}: {why}");
        assert!(faults.list().is_empty());
        faults.inject(FaultSpec::new(Target::Actor, FaultKind::Kill)).unwrap();
        assert_eq!(faults.list().len(), 1);
    }
}
