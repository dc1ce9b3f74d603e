//! The list of faults of one server, and who asks it: actors as core's [`Faults`], the ports through their wrappers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use annie_core::ports::{Clock, FaultAction, Faults};

use super::fault::{Deed, FaultSpec, Target};

/// Faults that can be on the list at a time.
pub const FAULTS_MAX: usize = 64;
/// Places whose passings are counted; more are not told apart.
const POINTS_MAX: usize = 2_000;

/// A fault on the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultLine {
    /// Its number, for taking it off.
    pub id: u64,
    /// What was asked for.
    pub spec: FaultSpec,
    /// How often its place was passed.
    pub passed: u64,
    /// How often it struck.
    pub struck: u64,
    /// Whether it strikes no more.
    pub ended: bool,
}

/// A place where a fault can strike, and how often it was passed since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointLine {
    /// Which boundary.
    pub target: Target,
    /// Which one of them.
    pub place: String,
    /// Where in it.
    pub point: String,
    /// How often.
    pub passed: u64,
    /// How often a fault struck there.
    pub struck: u64,
}

/// What strikes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strike {
    /// What.
    pub deed: Deed,
    /// For how long, in milliseconds.
    pub wait_ms: u32,
}

impl Strike {
    /// Waits as long as it says.
    pub async fn wait(self) {
        tokio::time::sleep(Duration::from_millis(u64::from(self.wait_ms))).await;
    }
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
    /// How far the wall clock is off, in microseconds.
    off_us: AtomicI64,
    /// Clock and files are asked often: whether there is anything to look up.
    lasting: AtomicUsize,
}

impl Injector {
    /// An empty list. Its own time comes from this clock, which no fault moves.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default(), off_us: AtomicI64::new(0), lasting: AtomicUsize::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panics by a fault does so outside of the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a fault on the list; one for the process strikes before this returns.
    ///
    /// # Errors
    /// The field that is wrong, and why; `faults` if the list is full.
    pub fn inject(&self, spec: FaultSpec) -> Result<FaultLine, (&'static str, String)> {
        spec.check()?;
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
        let line = FaultLine { id: state.next_id, spec, passed: 0, struck: 0, ended: false };
        let until_us = (line.spec.for_ms > 0).then(|| now_us.saturating_add(line.spec.for_ms.saturating_mul(1_000)));
        state.faults.push(Fault { line: line.clone(), until_us });
        self.settle(&state);
        Ok(line)
    }

    /// The list, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<FaultLine> {
        let mut state = self.state();
        end_expired(&mut state, self.clock.monotonic_us());
        self.settle(&state);
        state.faults.iter().map(|f| f.line.clone()).collect()
    }

    /// Takes one off the list, or all; says how many.
    pub fn clear(&self, id: Option<u64>) -> usize {
        let mut state = self.state();
        let before = state.faults.len();
        state.faults.retain(|f| id.is_some_and(|id| f.line.id != id));
        self.settle(&state);
        let cleared = before - state.faults.len();
        tracing::warn!(cleared, "faults are cleared");
        cleared
    }

    /// The places that were passed since the start.
    #[must_use]
    pub fn points(&self) -> Vec<PointLine> {
        let state = self.state();
        let line = |((target, place, point), (passed, struck)): (&(Target, String, String), &(u64, u64))| PointLine {
            target: *target,
            place: place.clone(),
            point: point.clone(),
            passed: *passed,
            struck: *struck,
        };
        state.points.iter().map(line).collect()
    }

    /// How far the wall clock is off now, in microseconds.
    pub(super) fn off_us(&self) -> i64 {
        if self.lasting.load(Relaxed) > 0 {
            let mut state = self.state();
            if end_expired(&mut state, self.clock.monotonic_us()) {
                self.settle(&state);
            }
        }
        self.off_us.load(Relaxed)
    }

    /// Whether the skill files are gone now.
    pub(super) fn are_files_gone(&self) -> bool {
        self.lasting.load(Relaxed) > 0 && self.pass(Target::Files, "skills", "", "read", |_| true).is_some()
    }

    /// Somebody passes a place: what strikes there, if anything does. `can` says what the place is able to do.
    pub(super) fn pass(
        &self,
        target: Target,
        place: &str,
        path: &str,
        point: &str,
        can: impl Fn(Deed) -> bool,
    ) -> Option<Strike> {
        let now_us = self.clock.monotonic_us();
        let struck = {
            let mut state = self.state();
            if end_expired(&mut state, now_us) {
                self.settle(&state);
            }
            let strike =
                first_strike(&mut state.faults, |spec| can(spec.deed) && spec.means(target, place, path, point));
            count(&mut state.points, (target, place, point), strike.is_some());
            strike
        };
        if let Some(strike) = struck {
            tracing::warn!(%target, place, path, point, deed = %strike.deed, "a fault strikes");
            metrics::counter!("annie_chaos_strikes_total", "target" => target.as_str(), "deed" => strike.deed.as_str())
                .increment(1);
        }
        struck
    }

    /// What an actor or a task does about a strike. What takes the whole thread or process is done here.
    fn act(strike: Option<Strike>, place: &str, point: &str) -> FaultAction {
        let Some(Strike { deed, wait_ms }) = strike else { return FaultAction::Pass };
        match deed {
            Deed::Panic => FaultAction::Panic,
            Deed::Kill => FaultAction::Kill,
            Deed::Stop => FaultAction::Stop,
            Deed::Fail => FaultAction::Fail,
            Deed::Hang => FaultAction::Hang,
            Deed::Slow => FaultAction::Slow { wait_ms },
            Deed::Twice => FaultAction::Twice,
            Deed::Block => {
                block(wait_ms);
                FaultAction::Pass
            }
            Deed::Abort => abort(&format!("{place} {point}")),
            _ => FaultAction::Pass,
        }
    }

    fn settle(&self, state: &State) {
        let lasting = |f: &&Fault| !f.line.ended && matches!(f.line.spec.target, Target::Clock | Target::Files);
        self.lasting.store(state.faults.iter().filter(lasting).count(), Relaxed);
        let jumps = state.faults.iter().filter(|f| !f.line.ended && f.line.spec.deed == Deed::Jump);
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
        // A mailbox is full or not. An answer is lost or late. What must arrive can arrive twice, or late.
        let can = |deed| match way {
            "mailbox" => deed == Deed::Fail,
            "reply" => deed != Deed::Twice,
            _ => deed != Deed::Fail,
        };
        Self::act(self.pass(Target::Mail, actor, path, point, can), actor, point)
    }
}

/// The first fault that is meant, has its turn and is due.
fn first_strike(faults: &mut [Fault], is_meant: impl Fn(&FaultSpec) -> bool) -> Option<Strike> {
    for fault in faults.iter_mut().filter(|f| !f.line.ended) {
        let FaultLine { spec, passed, struck, ended, .. } = &mut fault.line;
        if !is_meant(spec) {
            continue;
        }
        *passed += 1;
        if *passed <= spec.skip || mixed(spec.seed, *passed) % 1_000 >= u64::from(spec.chance_permille) {
            continue;
        }
        *struck += 1;
        *ended = spec.strikes_max > 0 && *struck >= spec.strikes_max;
        return Some(Strike { deed: spec.deed, wait_ms: spec.wait_ms });
    }
    None
}

/// Whether any came to its end.
fn end_expired(state: &mut State, now_us: u64) -> bool {
    let mut some = false;
    for fault in &mut state.faults {
        if !fault.line.ended && fault.until_us.is_some_and(|until| until <= now_us) {
            (fault.line.ended, some) = (true, true);
        }
    }
    some
}

fn count(points: &mut BTreeMap<(Target, String, String), (u64, u64)>, at: (Target, &str, &str), struck: bool) {
    let key = (at.0, at.1.to_owned(), at.2.to_owned());
    if points.len() >= POINTS_MAX && !points.contains_key(&key) {
        return;
    }
    let counts = points.entry(key).or_default();
    counts.0 += 1;
    counts.1 += u64::from(struck);
}

/// A number out of a seed and a place in its sequence (splitmix64).
fn mixed(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Holds the thread, as a handler does that computes for too long.
fn block(wait_ms: u32) {
    let until = Instant::now() + Duration::from_millis(u64::from(wait_ms));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Ends the process as SIGKILL would: nothing is cleared up.
pub(super) fn abort(place: &str) -> ! {
    tracing::error!(place, "the process is aborted by a fault");
    std::process::abort()
}
