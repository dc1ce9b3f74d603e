//! Skills of a simulated world. They differ in the effect of a repetition, in duration and in failures. Their effects are
//! counted outside of every process that is killed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use annie_core::{
    faults::{FaultKind, Target},
    ids::{ConversationId, IntentId, OperationId, UserId},
    outcome::{Operation, Outcome},
    ports::{Clock, Fut, SkillCall, SkillRunner},
    skill::{Effect, SkillSpec},
    time::Micros,
};
use parking_lot::Mutex;

use super::{Dice, Fault, Schedule};
use crate::skills::{FixedCatalog, skill};

/// An effect that a skill had on the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillEffect {
    /// The intent of the run.
    pub intent: IntentId,
    /// Name of the skill.
    pub skill: String,
    /// The user on whose behalf it ran.
    pub user: UserId,
    /// The conversation of the run.
    pub conversation: ConversationId,
    /// Number of the run of the process.
    pub run: u32,
    /// Time of the effect.
    pub at: Micros,
}

/// An operation that continues outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// The operation's id.
    pub id: OperationId,
    /// The key that its result must present.
    pub key: String,
    /// When the result is delivered.
    pub due: Micros,
}

/// A moment of a skill run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The run begins, without an effect so far.
    Begins,
    /// The run takes effect.
    TakesEffect,
    /// The run is over, in whatever way: it returned, failed, or was abandoned.
    Ends,
}

type Watcher = dyn Fn(Moment, &SkillCall, u32) + Send + Sync;

/// How long an outage of a skill lasts, in milliseconds: one of these each time.
const DOWN_MS: [u64; 3] = [1_000, 8_000, 40_000];
/// Probability per thousand that a skill has outages in a run, and that a call finds such a skill in a new outage. A run has
/// few calls, and a breaker opens only where several in a row fail.
const FRAIL_PER_MILLE: u64 = 300;
const OUTAGES_PER_MILLE: u64 = 250;

/// The outside world: it survives every process.
pub struct SkillWorld {
    dice: Dice,
    schedule: Arc<Schedule>,
    clock: Arc<dyn Clock>,
    watcher: Box<Watcher>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    effects: Vec<SkillEffect>,
    runs: BTreeMap<IntentId, u64>,
    outside: Vec<Outside>,
    /// Results that are being delivered now.
    in_hand: usize,
    /// End of the outages of skills, by the monotonic clock.
    down_until_us: BTreeMap<String, u64>,
}

impl SkillWorld {
    /// A world without effects. `watcher` is called at each moment of each skill run, with the number of the process run.
    pub fn new(
        dice: Dice,
        schedule: Arc<Schedule>,
        clock: Arc<dyn Clock>,
        watcher: impl Fn(Moment, &SkillCall, u32) + Send + Sync + 'static,
    ) -> Self {
        Self { dice: dice.of("skills"), schedule, clock, watcher: Box::new(watcher), state: Mutex::default() }
    }

    /// All effects, in order.
    #[must_use]
    pub fn effects(&self) -> Vec<SkillEffect> {
        self.state.lock().effects.clone()
    }

    /// Number of effects.
    #[must_use]
    pub fn effect_count(&self) -> usize {
        self.state.lock().effects.len()
    }

    /// Takes out the operations whose results are due. The caller passes each of them to `put_back`, or calls `brought`.
    pub fn due(&self, now: Micros) -> Vec<Outside> {
        let mut state = self.state.lock();
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut state.outside).into_iter().partition(|o| o.due <= now);
        state.outside = later;
        state.in_hand += due.len();
        due
    }

    /// Puts back an operation whose result could not be delivered.
    pub fn put_back(&self, operation: Outside) {
        let mut state = self.state.lock();
        state.in_hand -= 1;
        state.outside.push(operation);
    }

    /// A result was delivered, or is no longer wanted.
    pub fn brought(&self) {
        self.state.lock().in_hand -= 1;
    }

    /// Number of results still to be delivered.
    pub fn to_bring(&self) -> usize {
        let state = self.state.lock();
        state.outside.len() + state.in_hand
    }

    /// Whether a skill has an outage: then every call of it fails, which opens its breaker.
    fn is_down(&self, skill: &str) -> bool {
        let now_us = self.clock.monotonic_us();
        let per_mille = if self.dice.of("frail").of(skill).chance(FRAIL_PER_MILLE) { OUTAGES_PER_MILLE } else { 0 };
        let begins = self.schedule.pass_at(Target::Skill, skill, "outage", &[FaultKind::Fail], per_mille);
        let mut state = self.state.lock();
        if let Some(Fault { dice, .. }) = begins {
            state.down_until_us.insert(skill.to_owned(), now_us + 1_000 * dice.of("down").pick(&DOWN_MS));
        }
        state.down_until_us.get(skill).is_some_and(|until| now_us < *until)
    }

    fn does(&self, call: &SkillCall, run: u32) {
        (self.watcher)(Moment::TakesEffect, call, run);
        let at = self.clock.now();
        self.state.lock().effects.push(SkillEffect {
            intent: call.intent,
            skill: call.skill.clone(),
            user: call.user.clone(),
            conversation: call.conversation,
            run,
            at,
        });
    }
}

/// The skills as one run of the process runs them.
pub struct SimSkills {
    world: Arc<SkillWorld>,
    run: u32,
}

impl SimSkills {
    /// The skills for the run of the process with this number.
    #[must_use]
    pub const fn new(world: Arc<SkillWorld>, run: u32) -> Self {
        Self { world, run }
    }
}

/// `sim.look` and `sim.fetch` (read), `sim.put` and `sim.save` (idempotent), `sim.send`, `sim.ring` and `sim.order` (once;
/// the last is a long-running operation).
#[must_use]
pub fn catalog() -> FixedCatalog {
    let all = [
        ("sim.look", Effect::Read, false),
        ("sim.fetch", Effect::Read, true),
        ("sim.put", Effect::Idempotent, false),
        ("sim.save", Effect::Idempotent, true),
        ("sim.send", Effect::Once, true),
        ("sim.ring", Effect::Once, true),
        ("sim.order", Effect::Once, true),
    ];
    FixedCatalog::of(all.map(|(name, effect, external)| -> SkillSpec { skill(name, effect, external) }))
}

/// A skill run under way; its end is reported however it ends.
struct Run<'a> {
    world: &'a SkillWorld,
    call: &'a SkillCall,
    run: u32,
}

impl<'a> Run<'a> {
    fn begins(world: &'a SkillWorld, call: &'a SkillCall, run: u32) -> Self {
        (world.watcher)(Moment::Begins, call, run);
        Self { world, call, run }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        (self.world.watcher)(Moment::Ends, self.call, self.run);
    }
}

const TROUBLES: [FaultKind; 7] = [
    FaultKind::Fail,
    FaultKind::Permanent,
    FaultKind::RateLimited,
    FaultKind::Hang,
    FaultKind::HangAfter,
    FaultKind::Panic,
    FaultKind::PanicAfter,
];

impl SkillRunner for SimSkills {
    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        let world = &self.world;
        Box::pin(async move {
            let _run = Run::begins(world, &call, self.run);
            let nth = {
                let mut state = world.state.lock();
                let runs = state.runs.entry(call.intent).or_default();
                *runs += 1;
                *runs - 1
            };
            let dice = world.dice.of(&call.intent.to_string()).nth(nth);
            let trouble = world.schedule.pass(Target::Skill, &call.skill, "run", &TROUBLES).map(|fault| fault.kind);
            let trouble = if world.is_down(&call.skill) { Some(FaultKind::Fail) } else { trouble };
            let pause = |what: &str| {
                let ms = if dice.of(what).of("long").chance(100) { 900 } else { 15 };
                Duration::from_millis(dice.of(what).below(ms))
            };
            tokio::time::sleep(pause("before")).await;
            match trouble {
                Some(FaultKind::Hang) => std::future::pending().await,
                #[expect(clippy::panic, reason = "the fault that the schedule asks for")]
                Some(FaultKind::Panic) => panic!("injected panic in {}", call.skill),
                Some(FaultKind::Fail) => return Outcome::transient("unreachable", "The other side does not answer."),
                Some(FaultKind::Permanent) => return Outcome::permanent("not_found", "There is no such thing."),
                Some(FaultKind::RateLimited) => return Outcome::transient("rate_limited", "Too many requests."),
                _ => world.does(&call, self.run),
            }
            tokio::time::sleep(pause("after")).await;
            match trouble {
                Some(FaultKind::HangAfter) => std::future::pending().await,
                #[expect(clippy::panic, reason = "the fault that the schedule asks for")]
                Some(FaultKind::PanicAfter) => panic!("injected panic in {}", call.skill),
                _ => {}
            }
            if call.skill == "sim.order" {
                return self.start_operation(&call, dice);
            }
            let what = call.arguments["what"].as_str().unwrap_or("nothing");
            Outcome::success(format!("{} did {what} for @{}#", call.skill, call.user))
        })
    }

    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>> {
        Box::pin(async move {
            if self.world.dice.of("knows").of(&call.skill).chance(500) {
                return None;
            }
            let is_done = self.world.state.lock().effects.iter().any(|d| d.intent == call.intent);
            Some(if is_done {
                Outcome::success(format!("{} had taken effect", call.skill))
            } else {
                Outcome::transient("not_done", format!("{} had not taken effect", call.skill))
            })
        })
    }
}

impl SimSkills {
    fn start_operation(&self, call: &SkillCall, dice: Dice) -> Outcome {
        let now = self.world.clock.now();
        let after = |ms| now.plus_ms(i64::try_from(ms).unwrap_or(0));
        let expires_at = after(dice.of("expires").between(200, 60_000));
        // Some results never arrive, some arrive too late.
        if dice.of("comes").chance(800) {
            let due = after(dice.of("due").between(1, 80_000));
            let outside = Outside { id: call.operation.id, key: call.operation.key.clone(), due };
            self.world.state.lock().outside.push(outside);
        }
        Outcome::pending(Operation { id: call.operation.id, expires_at }, "It was started.")
    }
}
