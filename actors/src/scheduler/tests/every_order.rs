//! All orders: every short sequence of events on permits and gate, including a crash of the scheduler, is compared with a model
//! that states exactly which tasks must run. It covers what the tests by example leave out.

use std::collections::{BTreeMap, BTreeSet};

use annie_core::event::Priority;

use super::{
    super::{GateMsg, Permit, SchedulerMsg, StatusMsg, Verdict},
    world::{Answer, New, Parts, World, task},
};

/// Number of steps in a sequence.
const STEPS: usize = 5;
/// Longer than any term of a gate, in milliseconds.
const LONG_MS: u64 = 61_000;
const HOLDER: &str = "a microphone";
/// The tasks, most urgent first: their number and class.
const TASKS: [(u32, Priority); 3] = [(1, Priority::Realtime), (2, Priority::High), (3, Priority::Normal)];
const VOICE: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// A task asks for a round.
    Ask(u32),
    /// A round ends.
    GiveBack(u32),
    /// The holder of a permit dies.
    Drop(u32),
    /// The caller of a waiting task goes away.
    Leave(u32),
    HoldGate,
    ReleaseGate,
    /// The voice task ends.
    FallSilent,
    /// A long time passes.
    Pass,
    /// The scheduler is killed.
    Die,
}

/// The expected state.
#[derive(Debug, Clone, Default)]
struct Model {
    slots: usize,
    runs: BTreeSet<u32>,
    waits: BTreeSet<u32>,
    is_held: bool,
    /// The voice task has asked, and has neither ended nor been silent for longer than a term.
    is_spoken: bool,
    /// The voice task has ended: it does not ask again.
    is_over: bool,
}

impl Model {
    fn allows(&self, step: Step) -> bool {
        match step {
            Step::Ask(n) => {
                let is_free = !self.runs.contains(&n) && !self.waits.contains(&n);
                is_free && (n != VOICE || !self.is_over)
            }
            Step::GiveBack(n) | Step::Drop(n) => self.runs.contains(&n),
            Step::Leave(n) => self.waits.contains(&n),
            Step::HoldGate => !self.is_held,
            Step::ReleaseGate => self.is_held,
            Step::FallSilent => self.is_spoken && !self.runs.contains(&VOICE) && !self.waits.contains(&VOICE),
            // In any other state no term can run out.
            Step::Pass => self.is_held || self.is_spoken,
            Step::Die => true,
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Ask(n) => {
                self.waits.insert(n);
                self.is_spoken |= n == VOICE;
            }
            Step::GiveBack(n) | Step::Drop(n) => drop(self.runs.remove(&n)),
            Step::Leave(n) => drop(self.waits.remove(&n)),
            Step::HoldGate => self.is_held = true,
            Step::ReleaseGate => self.is_held = false,
            Step::FallSilent => (self.is_spoken, self.is_over) = (false, true),
            Step::Pass => {
                self.is_held = false;
                self.is_spoken &= self.runs.contains(&VOICE);
            }
            Step::Die => {}
        }
        for (n, _) in TASKS {
            let may_start = n == VOICE || !(self.is_held || self.is_spoken);
            if self.waits.contains(&n) && may_start && self.runs.len() < self.slots {
                self.waits.remove(&n);
                self.runs.insert(n);
                self.is_spoken |= n == VOICE;
            }
        }
    }
}

fn every_step() -> impl Iterator<Item = Step> {
    let by_task = TASKS.iter().flat_map(|(n, _)| [Step::Ask(*n), Step::GiveBack(*n), Step::Drop(*n), Step::Leave(*n)]);
    by_task.chain([Step::HoldGate, Step::ReleaseGate, Step::FallSilent, Step::Pass, Step::Die])
}

/// Every sequence of steps that may follow each other; the shorter sequences are prefixes of these.
fn sequences(model: &Model, so_far: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
    if so_far.len() == STEPS {
        found.push(so_far.clone());
        return;
    }
    for step in every_step().filter(|step| model.allows(*step)) {
        let mut next = model.clone();
        next.apply(step);
        so_far.push(step);
        sequences(&next, so_far, found);
        so_far.pop();
    }
}

/// The scheduler under test, with its outstanding requests and permits.
struct Real {
    world: World,
    waits: BTreeMap<u32, Answer>,
    runs: BTreeMap<u32, Permit>,
}

impl Real {
    async fn ask(&mut self, n: u32) {
        let class = TASKS.iter().find(|(m, _)| *m == n).map_or(Priority::Normal, |(_, class)| *class);
        let answer = self.world.ask(n, class, &[]).await;
        self.waits.insert(n, answer);
    }

    async fn apply(&mut self, step: Step) {
        match step {
            Step::Ask(n) => {
                if n == VOICE {
                    self.world.admit(New::of(n, Priority::Realtime)).await.expect("capacity");
                }
                self.ask(n).await;
            }
            Step::GiveBack(n) => self.runs.remove(&n).expect("it runs").give_back(100, Verdict::Fine),
            Step::Drop(n) => drop(self.runs.remove(&n)),
            Step::Leave(n) => drop(self.waits.remove(&n)),
            Step::HoldGate => self.hold().await,
            Step::ReleaseGate => self.release().await,
            Step::FallSilent => self.world.tell(SchedulerMsg::Status(StatusMsg::Ended { task: task(VOICE) })),
            Step::Pass => self.world.pass_ms(LONG_MS).await,
            Step::Die => self.die().await,
        }
        self.world.processed().await;
        for n in self.waits.keys().copied().collect::<Vec<_>>() {
            if let Some(Ok(Ok(permit))) = self.waits.get_mut(&n).map(|answer| answer.try_recv()) {
                self.waits.remove(&n);
                self.runs.insert(n, permit);
            }
        }
    }

    async fn hold(&self) {
        let wait = std::time::Duration::from_secs(1);
        let hold = |reply| {
            SchedulerMsg::Gate(GateMsg::HoldGate {
                backend: String::new(),
                holder: HOLDER.to_owned(),
                ttl_ms: 20_000,
                reply,
            })
        };
        self.world.scheduler.call(wait, hold).await.expect("answered").expect("free");
    }

    async fn release(&self) {
        let wait = std::time::Duration::from_secs(1);
        let release = |reply| {
            SchedulerMsg::Gate(GateMsg::ReleaseGate { backend: String::new(), holder: HOLDER.to_owned(), reply })
        };
        assert_eq!(self.world.scheduler.call(wait, release).await, Ok(true));
    }

    /// The next incarnation does not know the waiting callers: they ask again, the least urgent first.
    async fn die(&mut self) {
        self.world.kill().await;
        self.world.loaded().await;
        for n in self.waits.keys().rev().copied().collect::<Vec<_>>() {
            self.ask(n).await;
        }
    }
}

async fn run_sequence(sequence: &[Step], mut model: Model) {
    let slots = u32::try_from(model.slots).expect("few");
    let world = Parts::of(&[("gpu", slots)]).start().await;
    let mut real = Real { world, waits: BTreeMap::new(), runs: BTreeMap::new() };
    for (at, step) in sequence.iter().enumerate() {
        model.apply(*step);
        real.apply(*step).await;
        let runs: BTreeSet<u32> = real.runs.keys().copied().collect();
        assert_eq!(runs, model.runs, "after step {at} of {sequence:?}");
    }
}

fn run_all(slots: usize) {
    let beginning = Model { slots, ..Model::default() };
    let mut all = Vec::new();
    sequences(&beginning, &mut Vec::new(), &mut all);
    assert!(all.len() > 5_000, "{}", all.len());
    for sequence in all {
        // A runtime of its own ends the whole world with its timers.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(run_sequence(&sequence, beginning.clone()));
    }
}

#[test]
fn scheduler_grants_one_slot_correctly_in_every_order_of_events() {
    run_all(1);
}

#[test]
fn scheduler_grants_two_slots_correctly_in_every_order_of_events() {
    run_all(2);
}
