//! Which faults strike in a run, at two levels: the seed first chooses which sites may strike at all (so that runs differ in
//! kind and not only in number), and then each passing of such a site strikes with a small chance.

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

/// A fault that struck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// Where: `engine before:Wake`, `store commit`, `model main`.
    pub site: String,
    /// At which passing of that site, from 0.
    pub nth: u64,
    /// What happened.
    pub what: String,
    /// When.
    pub at: Micros,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} #{}: {}", self.at, self.site, self.nth, self.what)
    }
}

/// How a schedule chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Only these strike, as (site, passing); nothing means that the seed decides.
    pub only: Option<BTreeSet<(String, u64)>>,
}

/// Who hears of each fault as it strikes.
type Listener = Box<dyn Fn(&Strike) + Send + Sync>;

/// The faults of one run.
pub struct Schedule {
    dice: Dice,
    plan: Plan,
    clock: Arc<dyn Clock>,
    /// How often a passing of an enabled site strikes, in a thousand.
    per_mille: u64,
    actions: Vec<FaultAction>,
    told: Option<Listener>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_armed: bool,
    passed: BTreeMap<String, u64>,
    struck: Vec<Strike>,
}

/// Groups of sites: the first word of a site. A run without a group shows what the others do alone.
const GROUP_PER_MILLE: u64 = 600;
/// Sites of an enabled group that may strike.
const SITE_PER_MILLE: u64 = 350;
/// How often those strike, in a thousand: one of these for a run.
const STRIKES_PER_MILLE: [u64; 4] = [5, 15, 40, 120];
/// How long a slow step takes at most, in milliseconds: one of these each time.
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
        Self { dice, plan, clock, per_mille: dice.of("strikes").pick(&STRIKES_PER_MILLE), actions, told: None, state }
    }

    /// Tells of every strike when it happens.
    #[must_use]
    pub fn telling(mut self, told: impl Fn(&Strike) + Send + Sync + 'static) -> Self {
        self.told = Some(Box::new(told));
        self
    }

    /// Nothing strikes any more.
    pub fn disarm(&self) {
        self.state.lock().is_armed = false;
    }

    /// What struck so far, in order.
    #[must_use]
    pub fn struck(&self) -> Vec<Strike> {
        self.state.lock().struck.clone()
    }

    /// Whether a site may strike in this run.
    #[must_use]
    pub fn may_strike(&self, site: &str) -> bool {
        let group = site.split(' ').next().unwrap_or(site);
        self.dice.of("group").of(group).chance(GROUP_PER_MILLE) && self.dice.of("site").of(site).chance(SITE_PER_MILLE)
    }

    /// A site is passed: the name of what strikes there, out of these, if anything does, and the dice for its details.
    pub fn pass<'a>(&self, site: &str, kinds: &[&'a str]) -> Option<(&'a str, Dice)> {
        let per_mille = if self.may_strike(site) { self.per_mille } else { 0 };
        self.pass_at(site, kinds, per_mille)
    }

    /// The same where somebody else chose how often it strikes there, in a thousand.
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
        let strikes = match &self.plan.only {
            Some(only) => only.contains(&(site.to_owned(), nth)),
            None => dice.chance(per_mille),
        };
        strikes.then_some(dice)
    }

    fn note(&self, site: &str, what: String) {
        let at = self.clock.now();
        let mut state = self.state.lock();
        let nth = state.passed.get(site).copied().unwrap_or(1) - 1;
        let strike = Strike { site: site.to_owned(), nth, what, at };
        if let Some(told) = &self.told {
            told(&strike);
        }
        state.struck.push(strike);
    }
}

impl Schedule {
    fn act(&self, site: &str, actions: &[FaultAction]) -> FaultAction {
        let per_mille = if self.may_strike(site) { self.per_mille } else { 0 };
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

    fn strikes(seed: u64, plan: Plan) -> Vec<(String, u64)> {
        let schedule = Schedule::new(Dice::new(seed), plan, Arc::new(TestClock::new()));
        for n in 0..2_000 {
            schedule.at("engine", ["before:Wake", "after:Wake", "stored"][n % 3]);
            schedule.pass("store commit", &["Full", "Locked"]);
        }
        schedule.struck().into_iter().map(|s| (s.site, s.nth)).collect()
    }

    #[tokio::test]
    async fn a_seed_strikes_alike_each_time_and_a_chosen_few_strike_alone() {
        let all = (0..20).map(|seed| strikes(seed, Plan::default())).find(|s| s.len() > 4).expect("some strike");
        let seed = (0..20).find(|seed| strikes(*seed, Plan::default()) == all).expect("the seed");
        assert_eq!(strikes(seed, Plan::default()), all);
        let few: BTreeSet<_> = all.iter().take(2).cloned().collect();
        let again = strikes(seed, Plan { only: Some(few.clone()) });
        assert_eq!(again.into_iter().collect::<BTreeSet<_>>(), few);
    }

    #[tokio::test]
    async fn seeds_differ_in_what_may_strike() {
        let may = |seed| {
            let schedule = Schedule::new(Dice::new(seed), Plan::default(), Arc::new(TestClock::new()));
            ["engine stored", "store commit", "model main", "skill sim.send"].map(|site| schedule.may_strike(site))
        };
        let kinds: BTreeSet<_> = (0..100).map(may).collect();
        assert!(kinds.len() > 4, "{kinds:?}");
    }
}
