//! Building a kernel out of its parts, and stopping it gracefully.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    event::{EventBody, Topics},
    hooks::Hooks,
    ids::NodeId,
    ports::{Catalog, ContextSource, Documents, Env, SkillRunner, Store, StoreError, Workflows},
    route::{BackendFacts, RouteMode, RouteTable},
};
use tokio::sync::watch;

use super::{Kernel, KernelError};
use crate::{
    backend::{self, BackendArgs, Backends},
    breaker::Breakers,
    conversations::Conversations,
    dead_letters::DeadLetters,
    expiry::Expiry,
    extensions::{
        Extensions, check_names, hook_set,
        nodes::{self as extension_nodes, EXTENSIONS},
    },
    fork_reports::{self, FORK_REPORTS},
    hook_breakers::HookBreakers,
    hub::Hub,
    log_writer::{LogArgs, LogWriter},
    node_lease::{Lease, NodeLease},
    notify::Notifier,
    observe::{Directory, Path, System},
    operations::{OperationKeys, SECRET},
    orders::StandingOrders,
    ownership::Ownership,
    reminders::Reminders,
    reply_cache::ReplyCache,
    root::{Root, RootArgs, StopReason},
    scheduler::{Leases, Scheduler, SchedulerArgs, SchedulerMsg, StatusMsg, TableMsg},
    schedules::Schedules,
    services::{MakeService, ServiceList, Services, ServicesMsg},
    skill_lists::SkillLists,
    spend::SpendLedger,
    subscriptions::{Stored, Subscription, Subscriptions},
    supervise::{BudgetLimits, ChildSpec, Supervisor, SupervisorArgs, stop_child},
    watchdog,
    wiring::{Backend, KernelLimits, Profiles, Routing, Wiring},
    worker::{Chore, Worker, WorkerMsg},
};

/// The actors that must run for the kernel to be healthy: the tree without [`WORKERS`] and the actors that are started on
/// demand.
const PERMANENT: [&str; 9] = [
    "/infra/log",
    "/infra/node",
    "/resources/services",
    "/resources/backends",
    "/scheduler",
    "/breakers",
    "/conversations",
    "/ownership",
    "/listeners",
];

/// The names of the background workers below `/infra`. They too must run for the kernel to be healthy.
const WORKERS: [&str; 6] =
    [Notifier::KIND, DeadLetters::KIND, Expiry::KIND, Schedules::KIND, Reminders::KIND, FORK_REPORTS];

/// Attempts of a start to read the standing orders, and the waits between them: the first one and the longest one, in milliseconds.
const ORDERS_TRIES_MAX: u32 = 8;
const ORDERS_WAIT_MS: (u64, u64) = (100, 2_000);

/// How often the start checks that the actors of extensions run, 5 ms apart. Then it goes on without them.
const EXTENSION_CHECKS_MAX: u32 = 200;

/// Time limit for the store to record that the process ends, in milliseconds.
const END_MS_MAX: u64 = 1_000;

/// The parts of a kernel.
pub struct Parts {
    /// Time, randomness, faults.
    pub env: Env,
    /// The id of this node among those that share its store: the same after a restart on the same data folder, and different
    /// from that of every other live process.
    pub node: NodeId,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The documents, among which are the schedules.
    pub documents: Arc<dyn Documents>,
    /// The skills.
    pub catalog: Arc<dyn Catalog>,
    /// Runs the skills.
    pub runner: Arc<dyn SkillRunner>,
    /// The workflows that messages may start.
    pub workflows: Arc<dyn Workflows>,
    /// The model backends; the first one is the default.
    pub backends: Vec<Backend>,
    /// The users' names and time zones.
    pub profiles: Profiles,
    /// Limits and modes.
    pub limits: KernelLimits,
    /// The rules by which a backend is chosen, and whether they are only suggested or applied.
    pub routing: (RouteTable, RouteMode),
    /// Chores and subscribers of extensions.
    pub extensions: Extensions,
    /// Policies that decide before a turn and before a skill: those of the configuration and those of extensions.
    pub hooks: Hooks,
    /// The context sources. Prompts show their texts in this order.
    pub context_sources: Vec<Arc<dyn ContextSource>>,
}

impl Kernel {
    /// Starts the tree. When this returns, the kernel accepts messages.
    ///
    /// # Errors
    /// If a part is missing or an actor does not start.
    pub async fn start(parts: Parts) -> Result<Self, KernelError> {
        if parts.backends.is_empty() {
            return Err(KernelError::Invalid("no model backend is configured".to_owned()));
        }
        let extensions = parts.extensions.install().map_err(KernelError::Invalid)?;
        let sources = parts.context_sources.iter().map(|source| format!("context:{}", source.name()));
        check_names(&sources.collect::<Vec<_>>()).map_err(KernelError::Invalid)?;
        let hooks = hook_set(parts.hooks).map_err(KernelError::Invalid)?;
        let system = Arc::new(System { env: parts.env.clone(), directory: Arc::new(Directory::new()) });
        let root = Path::root();
        let backends =
            parts.backends.iter().map(|b| (BackendFacts { name: b.name.clone(), ..b.facts.clone() }, b.slots.max(1)));
        let backends: Vec<(BackendFacts, u32)> = backends.collect();
        let leases = Leases::new(parts.env.clock.clone(), parts.limits.breaker, parts.limits.deadlines, &backends);
        load_orders(leases.orders(), parts.documents.as_ref()).await?;
        let fresh = std::array::from_fn(|_| parts.env.entropy.next_u64().to_le_bytes()[0]);
        let secret = parts.store.secret(SECRET, fresh).await?;
        let lease = Lease::register(parts.node, &parts.env, parts.store.as_ref(), parts.limits.lease).await?;
        let routing = Routing {
            table: parts.routing.0,
            mode: parts.routing.1,
            facts: parts.backends.iter().map(|b| b.facts.clone()).collect(),
        };
        let wiring = Arc::new(Wiring {
            embeddings: Arc::default(),
            extensions,
            hooks,
            hook_breakers: HookBreakers::default(),
            context_sources: parts.context_sources,
            lease: Arc::new(lease),
            env: parts.env,
            store: parts.store,
            documents: parts.documents,
            catalog: parts.catalog,
            skill_lists: SkillLists::default(),
            runner: parts.runner,
            workflows: parts.workflows,
            backends: parts.backends.into_iter().map(|b| (b.name.clone(), b)).collect::<BTreeMap<_, _>>(),
            profiles: parts.profiles,
            replies: ReplyCache::new(parts.limits.cache),
            spend: Arc::new(SpendLedger::new(parts.limits.spend)),
            limits: parts.limits,
            routing,
            operations: OperationKeys::new(secret),
            hub: Arc::new(Hub::counting(system.directory.pulse.clone())),
            leases: Arc::new(leases),
            log: system.handle(&root.child("infra").child("log")),
            scheduler: system.handle(&root.child("scheduler")),
            breakers: system.handle(&root.child("breakers")),
            conversations: system.handle(&root.child("conversations")),
            ownership: system.handle(&root.child("ownership")),
            resources: Arc::default(),
            listeners: Arc::default(),
        });
        let (end_sender, ended) = watch::channel(None);
        let args = RootArgs { tree: tree(&wiring, backends), ended: Arc::new(end_sender) };
        let started = crate::observe::spawn::<Root>(&system, root, args, None).await;
        let (_, root) = started.map_err(|e| KernelError::Unavailable(e.to_string()))?;
        let kernel = Self { wiring, system, root, ended, draining: Arc::new(AtomicBool::new(false)) };
        if let Err(e) = kernel.wait_until_up().await {
            // The caller gets no handle with which to stop the actors that did start.
            kernel.crash().await;
            return Err(e);
        }
        watchdog::start(&kernel);
        kernel.receive_from_channels();
        Ok(kernel)
    }

    /// Waits until every permanent actor runs, and a short time for the extensions.
    async fn wait_until_up(&self) -> Result<(), KernelError> {
        for check in 0..2_000 {
            if let Some(reason) = self.ended.borrow().clone() {
                return Err(KernelError::Unavailable(reason.to_string()));
            }
            let is_patient = check < EXTENSION_CHECKS_MAX && self.missing_extensions().next().is_some();
            if self.missing().next().is_none() && !is_patient {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(KernelError::Unavailable("the tree did not come up within 10 s".to_owned()))
    }

    /// Permanent actors that are not running now.
    pub(super) fn missing(&self) -> impl Iterator<Item = String> {
        let workers = WORKERS.into_iter().map(|name| format!("/infra/{name}"));
        PERMANENT.into_iter().map(str::to_owned).chain(workers).filter(|path| !self.runs(path))
    }

    /// Actors of extensions that are not running now. The kernel accepts messages without them.
    pub(super) fn missing_extensions(&self) -> impl Iterator<Item = String> {
        let paths = self.wiring.extensions.names().map(|name| format!("/infra/{EXTENSIONS}/{name}"));
        paths.filter(|path| !self.runs(path))
    }

    fn runs(&self, path: &str) -> bool {
        self.system.directory.get(&Path::parse(path)).is_some()
    }

    /// Runs a long-running service of the resources, such as the watcher of the skill folder, as a part of the tree. It is
    /// restarted when it dies.
    pub fn run_resource(&self, name: &str, make: MakeService) {
        self.wiring.resources.add(name, make);
        self.start_new_services("/resources/services");
    }

    /// Runs a front end's listening socket as a part of the tree. It is restarted when it dies.
    pub fn run_listener(&self, name: &str, make: MakeService) {
        self.wiring.listeners.add(name, make);
        self.start_new_services("/listeners");
    }

    fn start_new_services(&self, group: &str) {
        let group = self.system.handle::<ServicesMsg>(&Path::parse(group));
        // If the group is dead, its next incarnation starts all services of its list.
        group.tell(ServicesMsg::StartNew);
    }

    /// Stops accepting messages; accepted ones continue.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Stops the tree gracefully within 25 s, then closes the store. Open work continues after the next start.
    pub async fn stop(&self) {
        self.drain();
        stop_child(&self.root.cell, Duration::from_secs(25)).await;
        // If the store does not answer, other nodes are not notified of the end; the lease expires on its own.
        let end = self.wiring.lease.end(self.wiring.store.as_ref());
        if !matches!(tokio::time::timeout(Duration::from_millis(END_MS_MAX), end).await, Ok(Ok(()))) {
            tracing::warn!("could not end the lease of this node, other nodes wait until it expires");
        }
        self.wiring.store.close().await;
    }

    /// Ends everything at once, as a power cut would, for tests: no node is notified, and the store is not closed.
    pub async fn crash(&self) {
        self.root.kill();
        let _ = self.root.cell.wait(Some(Duration::from_secs(5))).await;
    }

    /// Waits until the kernel has ended, and returns the reason.
    pub async fn ended(&self) -> StopReason {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(StopReason::Asked),
            Err(_) => StopReason::Failed("the root was killed".to_owned()),
        }
    }
}

/// The log writer, and the actors that process what is stored outside the conversations.
fn infra(wiring: &Arc<Wiring>) -> ChildSpec {
    let (wiring, has_run_before) = (wiring.clone(), Arc::new(AtomicBool::new(false)));
    let infra = ChildSpec::permanent::<Supervisor>("infra", move || {
        let (args, has_run_before, node) = (wiring.clone(), has_run_before.clone(), wiring.clone());
        let log = ChildSpec::permanent::<LogWriter>("log", move || LogArgs {
            store: args.store.clone(),
            hub: args.hub.clone(),
            conversations: args.conversations.clone(),
            ownership: args.ownership.clone(),
            subscriptions: subscriptions(&args),
            has_run_before: has_run_before.clone(),
        });
        let mut children = vec![
            log,
            ChildSpec::permanent::<NodeLease>("node", move || node.clone()),
            worker::<Notifier>(&wiring),
            worker::<DeadLetters>(&wiring),
            worker::<Expiry>(&wiring),
            worker::<Schedules>(&wiring),
            worker::<Reminders>(&wiring),
            fork_reports::worker(&wiring),
        ];
        if !wiring.extensions.is_empty() {
            children.push(extension_nodes::supervisor(&wiring));
        }
        SupervisorArgs { children, budget: BudgetLimits { restarts_max: 10, window_ms: 10_000 } }
    });
    infra.stop_within_ms(8_000)
}

fn worker<C: Chore<Config = ()>>(wiring: &Arc<Wiring>) -> ChildSpec {
    let wiring = wiring.clone();
    ChildSpec::permanent::<Worker<C>>(C::KIND, move || ((), wiring.clone()))
}

/// The subscriptions to the log of the actors outside the conversations. The workers get a hint that rows were stored with an
/// event, and read these rows themselves. The Scheduler keeps the order of rounds in memory.
fn subscriptions(wiring: &Arc<Wiring>) -> Subscriptions {
    let infra = Path::root().child("infra");
    let hub = wiring.hub.clone();
    let received = move |stored: &Stored<'_>| {
        let is_received = stored.event.body.is_final() && hub.is_followed_by(stored.conversation, stored.user);
        is_received.then_some(stored.event.task)
    };
    let mut all = vec![
        Subscription::of_actor(
            Topics::STATUS,
            wiring.scheduler.clone(),
            |stored| {
                let change = stored.event.body.status_change()?;
                Some(SchedulerMsg::Status(StatusMsg::of(stored.event.task, change)))
            },
            || SchedulerMsg::Table(TableMsg::Reread),
        ),
        Subscription::of_actor(
            Topics::FINAL_TEXT,
            wiring.log.sibling::<WorkerMsg<Notifier>>(infra.child(Notifier::KIND)),
            move |stored| Some(WorkerMsg::New(received(stored))),
            || WorkerMsg::New(None),
        ),
        Subscription::of_actor(
            Topics::DEAD_LETTER,
            wiring.log.sibling::<WorkerMsg<DeadLetters>>(infra.child(DeadLetters::KIND)),
            |_| Some(WorkerMsg::New(())),
            || WorkerMsg::New(()),
        ),
        Subscription::of_actor(
            Topics::OPERATION,
            wiring.log.sibling::<WorkerMsg<Expiry>>(infra.child(Expiry::KIND)),
            |_| Some(WorkerMsg::New(())),
            || WorkerMsg::New(()),
        ),
        Subscription::of_actor(
            Topics::SKILL_RUN,
            wiring.log.sibling::<WorkerMsg<Schedules>>(infra.child(Schedules::KIND)),
            |stored| {
                let EventBody::SkillFinished { skill, .. } = &stored.event.body else { return None };
                skill.starts_with("schedules.").then_some(WorkerMsg::New(()))
            },
            || WorkerMsg::New(()),
        ),
        Subscription::of_actor(
            Topics::SKILL_RUN,
            wiring.log.sibling::<WorkerMsg<Reminders>>(infra.child(Reminders::KIND)),
            |stored| {
                let EventBody::SkillFinished { skill, .. } = &stored.event.body else { return None };
                skill.starts_with("tasks.").then_some(WorkerMsg::New(()))
            },
            || WorkerMsg::New(()),
        ),
    ];
    all.push(fork_reports::subscription(wiring, &infra));
    all.extend(extension_nodes::subscriptions(&wiring.extensions, &wiring.log, &infra));
    Subscriptions::new(all)
}

/// The permanent actors, which the root supervises from start to stop.
fn tree(wiring: &Arc<Wiring>, backends: Vec<(BackendFacts, u32)>) -> SupervisorArgs {
    let infra = infra(wiring);
    let names: Vec<String> = backends.into_iter().map(|(facts, _)| facts.name).collect();
    let scheduler = scheduler(wiring, names.clone());
    let breakers = {
        let wiring = wiring.clone();
        ChildSpec::permanent::<Breakers>("breakers", move || wiring.clone())
    };
    let conversations = {
        let wiring = wiring.clone();
        ChildSpec::permanent::<Conversations>("conversations", move || wiring.clone()).stop_within_ms(15_000)
    };
    let ownership = {
        let wiring = wiring.clone();
        ChildSpec::permanent::<Ownership>("ownership", move || wiring.clone())
    };
    let group = |name: &'static str, list: &Arc<ServiceList>| {
        let list = list.clone();
        ChildSpec::permanent::<Services>(name, move || list.clone())
    };
    let listeners = group("listeners", &wiring.listeners);
    let resources = resources(wiring, names);
    SupervisorArgs {
        children: vec![infra, resources, scheduler, breakers, conversations, ownership, listeners],
        budget: BudgetLimits { restarts_max: 20, window_ms: 30_000 },
    }
}

fn scheduler(wiring: &Arc<Wiring>, backends: Vec<String>) -> ChildSpec {
    let wiring = wiring.clone();
    ChildSpec::permanent::<Scheduler>("scheduler", move || SchedulerArgs {
        limits: wiring.limits.queue.clone(),
        leases: wiring.leases.clone(),
        records: wiring.store.clone(),
        is_shared: wiring.store.is_shared(),
        me: wiring.scheduler.clone(),
        conversations: wiring.conversations.clone(),
        backends: backends.iter().map(|name| wiring.scheduler.sibling(backend_path(name))).collect(),
    })
}

/// The path of a backend's actor.
fn backend_path(name: &str) -> Path {
    Path::parse("/resources/backends").child(&backend::segment(name))
}

/// The services of the resources, and the backends' actors.
fn resources(wiring: &Arc<Wiring>, backends: Vec<String>) -> ChildSpec {
    let wiring = wiring.clone();
    ChildSpec::permanent::<Supervisor>("resources", move || {
        let list = wiring.resources.clone();
        let services = ChildSpec::permanent::<Services>("services", move || list.clone());
        let (wiring, backends) = (wiring.clone(), backends.clone());
        let backends = ChildSpec::permanent::<Backends>("backends", move || {
            let args = |name: &String| {
                let model = wiring.backends.get(name)?.model.clone();
                let (leases, scheduler) = (wiring.leases.clone(), wiring.scheduler.clone());
                Some(BackendArgs { name: name.clone(), model, leases, scheduler })
            };
            backends.iter().filter_map(args).collect()
        });
        SupervisorArgs {
            children: vec![services, backends],
            budget: BudgetLimits { restarts_max: 10, window_ms: 10_000 },
        }
    })
}

/// Reads the standing orders. A store that fails for a moment must not keep a process from starting, and a process that does not know
/// the orders must not start.
async fn load_orders(orders: &StandingOrders, documents: &dyn Documents) -> Result<(), StoreError> {
    let (mut wait_ms, longest_ms) = ORDERS_WAIT_MS;
    for _ in 1..ORDERS_TRIES_MAX {
        match orders.load(documents).await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::warn!(%error, wait_ms, "the standing orders cannot be read, trying again"),
        }
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(longest_ms);
    }
    orders.load(documents).await
}
