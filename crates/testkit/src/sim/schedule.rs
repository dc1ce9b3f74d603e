//! Which faults are injected in a run, at two levels: the seed first chooses the sites at which faults are possible at all (so
//! that runs differ in kind and not only in number), and then each hit of such a site is a fault with a small probability.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use annie_core::{
    ports::{Clock, FaultAction, Faults},
    time::Micros,
};
use parking_lot::Mutex;

use super::Dice;

/// A fault that was injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// The site: `engine before:Wake`, `store commit`, `model main`.
    pub site: String,
    /// Number of the hit of that site, from 0.
    pub nth: u64,
    /// The fault.
    pub what: String,
    /// Time of the injection.
    pub at: Micros,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} #{}: {}", self.at, self.site, self.nth, self.what)
    }
}

/// How a schedule chooses faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Injects only these, as (site, hit number); `None` means that the seed decides.
    pub only: Option<BTreeSet<(String, u64)>>,
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
    actions: Vec<FaultAction>,
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

impl Schedule {
    /// The faults of a seed, armed.
    #[must_use]
    pub fn new(dice: Dice, plan: Plan, clock: Arc<dyn Clock>) -> Self {
        let all = [
            FaultAction::Panic,
            FaultAction::Fail,
            FaultAction::Hang,
            FaultAction::Kill,
            FaultAction::Stop,
            FaultAction::Slow { wait_ms: 1 },
        ];
        let mut actions: Vec<FaultAction> =
            (0..).zip(all).filter(|(n, _)| dice.of("actions").nth(*n).chance(600)).map(|(_, action)| action).collect();
        if actions.is_empty() {
            actions.push(FaultAction::Kill);
        }
        let state = Mutex::new(State { is_armed: true, ..State::default() });
        Self {
            dice,
            plan,
            clock,
            per_mille: dice.of("injections").pick(&FAULTS_PER_MILLE),
            actions,
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

    /// Whether faults are possible at a site in this run.
    #[must_use]
    pub fn may_inject(&self, site: &str) -> bool {
        let group = site.split(' ').next().unwrap_or(site);
        self.dice.of("group").of(group).chance(GROUP_PER_MILLE) && self.dice.of("site").of(site).chance(SITE_PER_MILLE)
    }

    /// A hit of a site: the fault to inject there, out of `kinds`, if any, and the dice for its details.
    pub fn pass<'a>(&self, site: &str, kinds: &[&'a str]) -> Option<(&'a str, Dice)> {
        let per_mille = if self.may_inject(site) { self.per_mille } else { 0 };
        self.pass_at(site, kinds, per_mille)
    }

    /// As `pass`, with a probability in a thousand that the caller chooses.
    pub fn pass_at<'a>(&self, site: &str, kinds: &[&'a str], per_mille: u64) -> Option<(&'a str, Dice)> {
        let dice = self.decide(site, per_mille)?;
        let kind = dice.of("kind").pick(kinds);
        self.note(site, kind.to_owned());
        Some((kind, dice))
    }

    fn decide(&self, site: &str, per_mille: u64) -> Option<Dice> {
        let mut state = self.state.lock();
        if !state.is_armed {
            return None;
        }
        let passed = state.passed.entry(site.to_owned()).or_default();
        let nth = *passed;
        *passed += 1;
        drop(state);
        let dice = self.dice.of("hit").of(site).nth(nth);
        let injections = match &self.plan.only {
            Some(only) => only.contains(&(site.to_owned(), nth)),
            None => dice.chance(per_mille),
        };
        injections.then_some(dice)
    }

    fn note(&self, site: &str, what: String) {
        let at = self.clock.now();
        let mut state = self.state.lock();
        let nth = state.passed.get(site).copied().unwrap_or(1) - 1;
        let injection = Injection { site: site.to_owned(), nth, what, at };
        if let Some(notified) = &self.notified {
            notified(&injection);
        }
        state.injected.push(injection);
    }
}

impl Schedule {
    fn act(&self, site: &str, actions: &[FaultAction]) -> FaultAction {
        let per_mille = if self.may_inject(site) { self.per_mille } else { 0 };
        let Some(dice) = self.decide(site, per_mille) else { return FaultAction::Pass };
        let action = match dice.of("kind").pick(actions) {
            FaultAction::Slow { .. } => {
                let longest_ms = dice.of("long").pick(&SLOW_MS);
                FaultAction::Slow { wait_ms: u32::try_from(dice.of("slow").between(1, longest_ms)).unwrap_or(1) }
            }
            action => action,
        };
        self.note(site, format!("{action:?}"));
        action
    }
}

impl Faults for Schedule {
    fn at(&self, actor: &str, point: &str) -> FaultAction {
        self.act(&format!("{actor} {point}"), &self.actions)
    }

    fn in_task(&self, task: &str, point: &str) -> FaultAction {
        let actions = self.actions.iter().copied().filter(|a| *a != FaultAction::Hang);
        let mut actions: Vec<FaultAction> = actions.collect();
        if actions.is_empty() {
            actions.push(FaultAction::Fail);
        }
        self.act(&format!("{task} {point}"), &actions)
    }

    fn in_mail(&self, actor: &str, _path: &str, point: &str) -> FaultAction {
        self.act(&format!("mail {actor} {point}"), &[FaultAction::Fail, FaultAction::Slow { wait_ms: 1 }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::TestClock;

    fn injections(seed: u64, plan: Plan) -> Vec<(String, u64)> {
        let schedule = Schedule::new(Dice::new(seed), plan, Arc::new(TestClock::new()));
        for n in 0..2_000 {
            schedule.at("engine", ["before:Wake", "after:Wake", "stored"][n % 3]);
            schedule.pass("store commit", &["Full", "Locked"]);
        }
        schedule.injected().into_iter().map(|s| (s.site, s.nth)).collect()
    }

    #[tokio::test]
    async fn schedule_repeats_the_faults_of_a_seed_and_injects_only_the_chosen_ones() {
        let all = (0..20)
            .map(|seed| injections(seed, Plan::default()))
            .find(|s| s.len() > 4)
            .expect("a seed injects several faults");
        let seed = (0..20).find(|seed| injections(*seed, Plan::default()) == all).expect("the seed");
        assert_eq!(injections(seed, Plan::default()), all);
        let few: BTreeSet<_> = all.iter().take(2).cloned().collect();
        let again = injections(seed, Plan { only: Some(few.clone()) });
        assert_eq!(again.into_iter().collect::<BTreeSet<_>>(), few);
    }

    #[tokio::test]
    async fn schedule_enables_different_sites_for_different_seeds() {
        let may = |seed| {
            let schedule = Schedule::new(Dice::new(seed), Plan::default(), Arc::new(TestClock::new()));
            ["engine stored", "store commit", "model main", "skill sim.send"].map(|site| schedule.may_inject(site))
        };
        let kinds: BTreeSet<_> = (0..100).map(may).collect();
        assert!(kinds.len() > 4, "{kinds:?}");
    }
}
