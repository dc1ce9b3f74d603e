//! The environment of a run: the disk, the outside world, the clock, and one run of the process after another.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use annie_actors::{Backend, Extensions, Kernel, KernelLimits, LeaseLimits, Parts, Profile, Profiles};
use annie_core::{
    breaker::BreakerLimits,
    dead_letter::DeadLetterLimits,
    event::Priority,
    hooks::Hooks,
    ids::{ConversationId, NodeId, Seq, TaskId, UserId},
    notice::NotifyLimits,
    ports::{Env, Model, NoWorkflows},
    route::{BackendFacts, Privacy, RouteMode, RouteTable, default_rules},
};
use annie_store::MemoryStore;
use annie_testkit::{
    env::{SeededEntropy, TestClock},
    sim::{Dice, ModelWorld, Moment, Plan, Schedule, SimModel, SimSkills, SkillWorld, catalog},
};

use super::{
    disk::{Health, Run, disk},
    scenario::USERS,
    shared::Shared,
    watch::Watch,
};

/// How long a handler may take, in milliseconds.
const STUCK_MS: u64 = 1_000;
/// How often the service manager and the watchdog check, in milliseconds.
const CHECK_MS: u64 = 250;

/// Lets simulated time pass.
pub async fn pass_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// An acknowledged message.
#[derive(Debug, Clone)]
pub struct Acked {
    pub user: usize,
    pub task: TaskId,
    pub conversation: ConversationId,
}

/// The current process.
#[derive(Clone)]
pub struct Process {
    pub kernel: Kernel,
    pub run: Arc<Run>,
}

/// The configuration of a run's kernel.
struct Shape {
    backends: Vec<BackendFacts>,
    limits: KernelLimits,
}

/// Everything of one simulation run.
pub struct Town {
    pub dice: Dice,
    pub data: MemoryStore,
    pub clock: Arc<TestClock>,
    pub schedule: Arc<Schedule>,
    pub watch: Arc<Watch>,
    pub skills: Arc<SkillWorld>,
    models: Arc<ModelWorld>,
    env: Env,
    shape: Shape,
    process: Shared<Option<Process>>,
    runs: AtomicU32,
    /// The data folder of the next run of the process: the folder of a frozen process is locked.
    folder: AtomicU32,
    is_over: AtomicBool,
    acked: Mutex<Vec<Acked>>,
    received: Mutex<BTreeMap<u64, (ConversationId, Seq)>>,
    brought: Mutex<Vec<TaskId>>,
}

impl Town {
    pub fn new(seed: u64, plan: Plan) -> Arc<Self> {
        let dice = Dice::new(seed);
        let clock = Arc::new(TestClock::new());
        let data = MemoryStore::new();
        let shape = shape(dice.of("shape"));
        let users = USERS.iter().filter_map(|name| UserId::new(*name).ok()).collect();
        let slots: BTreeMap<String, u32> = shape.backends.iter().map(|b| (b.name.clone(), b.slots)).collect();
        let open_ms = shape.limits.breaker.open_ms;
        let watch = Arc::new(Watch::new(data.clone(), clock.clone(), users, slots, open_ms));
        let (rounds, runs, fault_at) = (watch.clone(), watch.clone(), watch.clone());
        let schedule = Schedule::new(dice.of("faults"), plan, clock.clone());
        let schedule = Arc::new(schedule.telling(move |fault| fault_at.injected(fault)));
        let models = Arc::new(ModelWorld::new(dice, schedule.clone(), move |round| rounds.round_begins(round)));
        let skills =
            Arc::new(SkillWorld::new(dice, schedule.clone(), clock.clone(), move |moment, call, run| match moment {
                Moment::Begins => runs.skill_begins(call, run),
                Moment::TakesEffect => runs.takes_effect(call),
                Moment::Ends => runs.skill_ends(call),
            }));
        let env = Env {
            clock: clock.clone(),
            entropy: Arc::new(SeededEntropy::new(dice.of("entropy").roll())),
            faults: Some(schedule.clone()),
        };
        Arc::new(Self {
            dice,
            data,
            clock,
            schedule,
            watch,
            skills,
            models,
            env,
            shape,
            process: Shared::new(None),
            runs: AtomicU32::new(0),
            folder: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            acked: Mutex::default(),
            received: Mutex::default(),
            brought: Mutex::default(),
        })
    }

    /// The process, once there is one.
    pub async fn process(&self) -> Process {
        self.process.wait_for(Option::is_some).await.expect("a process exists")
    }

    /// The process, if there is one at the moment.
    pub fn present(&self) -> Option<Process> {
        self.process.get()
    }

    pub fn backends(&self) -> Vec<String> {
        self.shape.backends.iter().map(|b| b.name.clone()).collect()
    }

    pub fn passivate_after_ms(&self) -> u64 {
        self.shape.limits.passivate_after_ms
    }

    pub fn acked(&self) -> Vec<Acked> {
        self.acked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn acknowledges(&self, acked: Acked) {
        self.acked.lock().unwrap_or_else(PoisonError::into_inner).push(acked);
    }

    pub fn clock_now(&self) -> annie_core::time::Micros {
        self.env.now()
    }

    /// The number of runs of the process so far.
    pub fn run_count(&self) -> u32 {
        self.runs.load(SeqCst)
    }

    /// Records how far a listener has received.
    pub fn received_up_to(&self, listener: u64, conversation: ConversationId, seq: Seq) {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).insert(listener, (conversation, seq));
    }

    pub fn all_received(&self) -> BTreeMap<u64, (ConversationId, Seq)> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The result of an operation was acknowledged as this task.
    pub fn brought(&self, task: TaskId) {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// All acknowledged tasks, of users and of operations.
    pub fn all_acked(&self) -> Vec<TaskId> {
        let brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.acked().into_iter().map(|a| a.task).chain(brought).collect()
    }

    /// Whether no new run of the process is started any more.
    pub fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    pub fn ends(&self) {
        self.is_over.store(true, SeqCst);
    }

    /// Clients no longer reach this process, and the service manager starts another.
    pub fn lose(&self, process: &Process) {
        if self.present().is_some_and(|present| present.run.number == process.run.number) {
            self.process.set(None);
        }
    }

    /// The next run of the process has a data folder of its own, beside the former one.
    pub fn use_another_folder(&self) {
        self.folder.fetch_add(1, SeqCst);
    }

    /// Starts the process whenever there is none, and ends stuck actors.
    pub async fn manage(self: Arc<Self>) {
        while !self.is_over() {
            let Some(process) = self.present() else {
                self.start_a_run().await;
                continue;
            };
            let ended = tokio::time::timeout(Duration::from_millis(CHECK_MS), process.kernel.ended());
            if ended.await.is_ok() {
                process.run.set_health(Health::Dead);
                self.lose(&process);
                pass_ms(self.dice.of("down").nth(u64::from(process.run.number)).below(300)).await;
            } else {
                process.kernel.end_stuck(STUCK_MS);
            }
        }
    }

    async fn start_a_run(&self) {
        let run = Run::new(self.runs.fetch_add(1, SeqCst) + 1);
        let facts = &self.shape.backends;
        let backends = facts.iter().map(|facts| {
            let model: Arc<dyn Model> = Arc::new(SimModel::new(&facts.name, self.models.clone(), run.number));
            let (name, slots) = (facts.name.clone(), facts.slots);
            Backend { name, slots, facts: facts.clone(), model, round_ms_max: None }
        });
        let dice = self.dice.of("life").nth(u64::from(run.number));
        let store = disk(&self.data, &run, dice, &self.schedule, &self.watch);
        let parts = Parts {
            env: self.env.clone(),
            node: NodeId::from_uuid(uuid::Uuid::from_u128(u128::from(self.folder.load(SeqCst)))),
            context_sources: annie_skillkit::context_sources(store.clone(), annie_skillkit::MemoryDecay::OFF),
            documents: store.clone(),
            store,
            catalog: Arc::new(catalog()),
            runner: Arc::new(SimSkills::new(self.skills.clone(), run.number)),
            workflows: Arc::new(NoWorkflows),
            backends: backends.collect(),
            profiles: Profiles {
                by_user: BTreeMap::default(),
                default: Profile { name: String::new(), timezone: "UTC".to_owned() },
            },
            limits: self.shape.limits.clone(),
            routing: (RouteTable::new(default_rules(), facts).expect("the rules fit"), RouteMode::default()),
            extensions: Extensions::default(),
            hooks: Hooks::default(),
        };
        self.watch.gates_open();
        // A start may hang because of an injected fault, and there is no handle yet with which to end the stuck actor.
        match tokio::time::timeout(Duration::from_secs(30), Kernel::start(parts)).await {
            Ok(Ok(kernel)) => {
                self.process.set(Some(Process { kernel, run }));
            }
            Ok(Err(_)) | Err(_) => {
                run.set_health(Health::Dead);
                pass_ms(200).await;
            }
        }
    }
}

/// Backends, slots and limits of a run. The numbers are small, so that every limit is reached.
fn shape(dice: Dice) -> Shape {
    let slots = |n: u64| u32::try_from(dice.of("slots").nth(n).between(1, 4)).unwrap_or(1);
    let backend =
        |name: &str, n: u64| BackendFacts { name: name.to_owned(), slots: slots(n), ..BackendFacts::default() };
    let mut backends = vec![BackendFacts { privacy: Privacy::Local, ..backend("main", 0) }];
    if dice.of("spare").chance(500) {
        backends.push(backend("spare", 1));
    }
    if dice.of("agent").chance(400) {
        backends.push(BackendFacts { acts: true, called: vec!["claude".to_owned()], ..backend("agent", 2) });
    }
    let pick = |what: &str, from: &[u64]| dice.of(what).pick(from);
    let mut limits = KernelLimits {
        stuck_ms_max: 0,
        round_ms_max: pick("round", &[4_000, 15_000]),
        passivate_after_ms: pick("hibernate", &[5, 300, 5_000, 60_000]),
        engines_max: usize::try_from(pick("engines", &[2, 5, 1_000])).unwrap_or(2),
        breaker: BreakerLimits {
            failures_max: u32::try_from(pick("failures", &[2, 3, 5])).unwrap_or(5),
            open_ms: pick("open", &[500, 10_000, 60_000]),
        },
        notify: NotifyLimits { every_ms: pick("notify", &[100, 5_000]), ..NotifyLimits::default() },
        ..KernelLimits::default()
    };
    let lease_ms = pick("lease", &[400, 2_000, 10_000]);
    limits.lease = LeaseLimits { lease_ms, renew_ms: lease_ms / 4 };
    limits.turn.dead_letters = DeadLetterLimits {
        retry_after_ms: pick("retry", &[2_000, 30_000]),
        archive_after_ms: pick("archive", &[20_000, 90_000]),
        retry_from: dice.of("retry from").pick(&[Priority::High, Priority::Normal]),
    };
    limits.turn.defer_ms = pick("defer", &[1_000, 20_000]);
    limits.turn.agent_round_ms_max = pick("agent round", &[1_500, 30_000]);
    for (class, soft) in [
        (&mut limits.deadlines.high, pick("high", &[2_000, 30_000])),
        (&mut limits.deadlines.normal, pick("normal", &[5_000, 60_000])),
        (&mut limits.deadlines.low, pick("low", &[10_000, 90_000])),
        (&mut limits.deadlines.background, pick("background", &[20_000, 120_000])),
    ] {
        (class.soft_ms, class.hard_ms) = (soft, soft * 3);
    }
    Shape { backends, limits }
}
