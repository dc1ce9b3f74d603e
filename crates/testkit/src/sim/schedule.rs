//! Which faults are injected in a run, at two levels: the seed first chooses the sites at which faults are possible at all (so
//! that runs differ in kind and not only in number), and then each hit of such a site is a fault with a small probability.
//!
//! The faults of a run are reported in the plan grammar of [`annie_core::faults`], and a run can be given such a plan instead.

use std::{collections::BTreeMap, fmt, sync::Arc};

use annie_core::{
    faults::{FaultKind, FaultSpec, Target},
    ports::{Clock, FaultAction, Faults},
    time::Micros,
};
use parking_lot::Mutex;

use super::Dice;

/// A fault that was injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// The fault, with the number of the hits of its site that it skipped.
    pub spec: FaultSpec,
    /// Time of the injection.
    pub at: Micros,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.spec)
    }
}

/// A fault that takes effect now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The effect.
    pub kind: FaultKind,
    /// The duration of the wait in milliseconds, for kinds that wait.
    pub wait_ms: u32,
    /// The dice for its other details.
    pub dice: Dice,
}

/// How a schedule chooses faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Injects only these, each at the hit that follows the skipped ones; `None` means that the seed decides.
    pub only: Option<Vec<FaultSpec>>,
}

/// A place where faults are possible.
#[derive(Debug, Clone, Copy)]
struct Site<'a> {
    target: Target,
    place: &'a str,
    point: &'a str,
}

impl Site<'_> {
    /// The label by which the seed chooses for this site. Another label is another choice, for all seeds.
    fn label(&self) -> String {
        let Self { target, place, point } = self;
        match (target, *point) {
            (Target::Actor | Target::Task, point) => format!("{place} {point}"),
            (Target::Mail, point) => format!("mail {place} {point}"),
            (_, "call" | "run") => format!("{target} {place}"),
            (_, "outage") => format!("outage {place}"),
            (_, "nonsense") => format!("{target} nonsense"),
            (_, point) => format!("{target} {point} {place}"),
        }
    }
}

/// Is called for each fault at its injection.
type Listener = Box<dyn Fn(&Injection) + Send + Sync>;

/// The faults of one run.
pub struct Schedule {
    dice: Dice,
    plan: Plan,
    clock: Arc<dyn Clock>,
    /// Faults per thousand hits of an enabled site.
    per_mille: u64,
    /// The faults of actors and tasks that are possible in this run.
    kinds: Vec<FaultKind>,
    notified: Option<Listener>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_armed: bool,
    passed: BTreeMap<String, u64>,
    injected: Vec<Injection>,
}

/// Probability per thousand that a group of sites is enabled. A group is the first word of a site. A run without a group shows
/// what the others do alone.
const GROUP_PER_MILLE: u64 = 600;
/// Probability per thousand that a site of an enabled group is enabled.
const SITE_PER_MILLE: u64 = 350;
/// Faults per thousand hits of an enabled site: a run uses one of these.
const FAULTS_PER_MILLE: [u64; 4] = [5, 15, 40, 120];
/// The longest duration of a slow step in milliseconds: one of these each time.
const SLOW_MS: [u64; 3] = [3, 50, 3_000];
/// Possible stalls of the store, in milliseconds: longer than a commit may take, or just long.
const STALLS_MS: [u64; 3] = [300, 4_000, 17_000];

impl Schedule {
    /// The faults of a seed, armed.
    #[must_use]
    pub fn new(dice: Dice, plan: Plan, clock: Arc<dyn Clock>) -> Self {
        let all =
            [FaultKind::Panic, FaultKind::Fail, FaultKind::Hang, FaultKind::Kill, FaultKind::Stop, FaultKind::Slow];
        let mut kinds: Vec<FaultKind> =
            (0..).zip(all).filter(|(n, _)| dice.of("actions").nth(*n).chance(600)).map(|(_, kind)| kind).collect();
        if kinds.is_empty() {
            kinds.push(FaultKind::Kill);
        }
        let state = Mutex::new(State { is_armed: true, ..State::default() });
        Self {
            dice,
            plan,
            clock,
            per_mille: dice.of("injections").pick(&FAULTS_PER_MILLE),
            kinds,
            notified: None,
            state,
        }
    }

    /// Calls `notified` for every fault at its injection.
    #[must_use]
    pub fn telling(mut self, notified: impl Fn(&Injection) + Send + Sync + 'static) -> Self {
        self.notified = Some(Box::new(notified));
        self
    }

    /// Injects no further faults.
    pub fn disarm(&self) {
        self.state.lock().is_armed = false;
    }

    /// The faults so far, in order.
    #[must_use]
    pub fn injected(&self) -> Vec<Injection> {
        self.state.lock().injected.clone()
    }

    fn may_inject(&self, label: &str) -> bool {
        let group = label.split(' ').next().unwrap_or(label);
        self.dice.of("group").of(group).chance(GROUP_PER_MILLE) && self.dice.of("site").of(label).chance(SITE_PER_MILLE)
    }

    /// A hit of a site outside of the actors: the fault to inject there, out of `kinds`, if any.
    pub fn pass(&self, target: Target, place: &str, point: &str, kinds: &[FaultKind]) -> Option<Fault> {
        self.hit(Site { target, place, point }, kinds, None)
    }

    /// As `pass`, with a probability in a thousand that the caller chooses.
    pub fn pass_at(
        &self,
        target: Target,
        place: &str,
        point: &str,
        kinds: &[FaultKind],
        per_mille: u64,
    ) -> Option<Fault> {
        self.hit(Site { target, place, point }, kinds, Some(per_mille))
    }

    fn hit(&self, site: Site<'_>, kinds: &[FaultKind], per_mille: Option<u64>) -> Option<Fault> {
        let label = site.label();
        let mut state = self.state.lock();
        if !state.is_armed {
            return None;
        }
        let passed = state.passed.entry(label.clone()).or_default();
        let nth = *passed;
        *passed += 1;
        drop(state);
        let dice = self.dice.of("hit").of(&label).nth(nth);
        let (kind, wait_ms) = match &self.plan.only {
            Some(only) => {
                let is_here = |spec: &&FaultSpec| {
                    spec.skip == nth
                        && kinds.contains(&spec.kind)
                        && spec.means(site.target, site.place, "", site.point)
                };
                only.iter().find(is_here).map(|spec| (spec.kind, spec.wait_ms))?
            }
            None => {
                let per_mille = per_mille.unwrap_or_else(|| if self.may_inject(&label) { self.per_mille } else { 0 });
                if !dice.chance(per_mille) {
                    return None;
                }
                let kind = dice.of("kind").pick(kinds);
                (kind, wait_ms(site.target, kind, dice))
            }
        };
        self.note(FaultSpec {
            wait_ms,
            skip: nth,
            ..FaultSpec::new(site.target, kind).at(site.place, site.point).once()
        });
        Some(Fault { kind, wait_ms, dice })
    }

    fn note(&self, spec: FaultSpec) {
        let injection = Injection { spec, at: self.clock.now() };
        let mut state = self.state.lock();
        if let Some(notified) = &self.notified {
            notified(&injection);
        }
        state.injected.push(injection);
    }

    fn action(&self, site: Site<'_>, kinds: &[FaultKind]) -> FaultAction {
        let fault = self.hit(site, kinds, None);
        fault.and_then(|fault| fault.kind.action(fault.wait_ms)).unwrap_or(FaultAction::Pass)
    }
}

/// How long a fault waits, in milliseconds; 0 for kinds that do not wait.
fn wait_ms(target: Target, kind: FaultKind, dice: Dice) -> u32 {
    let wait_ms = match target {
        _ if !kind.waits() => 0,
        Target::Store => dice.of("stall").pick(&STALLS_MS),
        _ => {
            let longest_ms = dice.of("long").pick(&SLOW_MS);
            dice.of("slow").between(1, longest_ms)
        }
    };
    u32::try_from(wait_ms).unwrap_or(1)
}

impl Faults for Schedule {
    fn at(&self, actor: &str, point: &str) -> FaultAction {
        self.action(Site { target: Target::Actor, place: actor, point }, &self.kinds)
    }

    /// A task ends its actor by a panic: `kill` and `stop` are panics there.
    fn in_task(&self, task: &str, point: &str) -> FaultAction {
        let kinds = self.kinds.iter().filter(|kind| **kind != FaultKind::Hang).map(|kind| match kind {
            FaultKind::Kill | FaultKind::Stop => FaultKind::Panic,
            other => *other,
        });
        let mut kinds: Vec<FaultKind> = kinds.collect();
        if kinds.is_empty() {
            kinds.push(FaultKind::Fail);
        }
        self.action(Site { target: Target::Task, place: task, point }, &kinds)
    }

    fn in_mail(&self, actor: &str, _path: &str, point: &str) -> FaultAction {
        self.action(Site { target: Target::Mail, place: actor, point }, &[FaultKind::Fail, FaultKind::Slow])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::TestClock;

    fn injections(seed: u64, plan: Plan) -> Vec<FaultSpec> {
        let schedule = Schedule::new(Dice::new(seed), plan, Arc::new(TestClock::new()));
        for n in 0..2_000 {
            schedule.at("engine", ["before:Wake", "after:Wake", "stored"][n % 3]);
            schedule.pass(Target::Store, "commit", "call", &[FaultKind::Full, FaultKind::Slow]);
        }
        schedule.injected().into_iter().map(|injection| injection.spec).collect()
    }

    #[tokio::test]
    async fn schedule_repeats_the_faults_of_a_seed_and_injects_only_the_chosen_ones() {
        let all = (0..20)
            .map(|seed| injections(seed, Plan::default()))
            .find(|s| s.len() > 4)
            .expect("a seed injects several faults");
        let seed = (0..20).find(|seed| injections(*seed, Plan::default()) == all).expect("the seed");
        assert_eq!(injections(seed, Plan::default()), all);
        let few: Vec<FaultSpec> = all.iter().take(2).cloned().collect();
        assert_eq!(injections(seed, Plan { only: Some(few.clone()) }), few);
    }

    #[tokio::test]
    async fn schedule_reports_faults_that_can_be_written_and_read() {
        for spec in (0..20).flat_map(|seed| injections(seed, Plan::default())) {
            let read = spec.to_string().parse::<FaultSpec>();
            assert_eq!(read, Ok(spec));
        }
    }

    #[tokio::test]
    async fn schedule_enables_different_sites_for_different_seeds() {
        let may = |seed| {
            let schedule = Schedule::new(Dice::new(seed), Plan::default(), Arc::new(TestClock::new()));
            ["engine stored", "store commit", "model main", "skill sim.send"].map(|label| schedule.may_inject(label))
        };
        let kinds: std::collections::BTreeSet<_> = (0..100).map(may).collect();
        assert!(kinds.len() > 4, "{kinds:?}");
    }
}
