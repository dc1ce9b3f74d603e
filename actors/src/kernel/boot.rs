//! Building a kernel out of its parts, and ending it in good order.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    ids::NodeId,
    ports::{Catalog, Env, SkillRunner, Store},
    route::{BackendFacts, RouteMode, RouteTable},
};
use tokio::sync::watch;

use super::{Kernel, KernelError};
use crate::{
    backend::{self, BackendArgs, Backends},
    breaker::Breakers,
    conversations::Conversations,
    expiry::Expiry,
    hub::Hub,
    letters::DeadLetters,
    log_writer::{Keepers, LogArgs, LogWriter},
    node_lease::{Lease, NodeLease},
    notify::Notifier,
    observe::{Directory, Path, System},
    operations::{OperationKeys, SECRET},
    root::{Root, RootArgs},
    scheduler::{Leases, Scheduler, SchedulerArgs},
    services::{MakeService, ServiceList, Services, ServicesMsg},
    supervise::{BudgetLimits, ChildSpec, Supervisor, SupervisorArgs, stop_child},
    watchdog,
    wiring::{Backend, KernelLimits, Profiles, Routing, Wiring},
};

/// Who must live for all to work: the tree without what it starts on demand.
const PERMANENT: [&str; 11] = [
    "/infra/log",
    "/infra/node",
    "/infra/notifier",
    "/infra/letters",
    "/infra/expiry",
    "/resources/services",
    "/resources/backends",
    "/scheduler",
    "/breakers",
    "/conversations",
    "/doors",
];

/// How long the store may take to take note that the process ends, in milliseconds.
const END_MS_MAX: u64 = 1_000;

/// What a kernel is made of.
pub struct Parts {
    /// Time, randomness, faults.
    pub env: Env,
    /// Which node this process is among those that share its store: the same after a restart on the same data folder, and
    /// no other living process's.
    pub node: NodeId,
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// The skills.
    pub catalog: Arc<dyn Catalog>,
    /// Who runs them.
    pub runner: Arc<dyn SkillRunner>,
    /// The models; the first is everybody's.
    pub backends: Vec<Backend>,
    /// How users are addressed.
    pub profiles: Profiles,
    /// Limits and choices.
    pub limits: KernelLimits,
    /// The rules by which a backend is chosen, and how far they are trusted.
    pub routing: (RouteTable, RouteMode),
}

/// Why a kernel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// As asked.
    Asked,
    /// The root used up its budget or died: the process should exit and be started again.
    Failed(String),
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("stopped as asked"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

impl Kernel {
    /// Starts the tree. When this returns, messages are taken.
    ///
    /// # Errors
    /// If a part is missing or an actor does not start.
    pub async fn start(parts: Parts) -> Result<Self, KernelError> {
        if parts.backends.is_empty() {
            return Err(KernelError::Invalid("no model backend is configured".to_owned()));
        }
        let system = Arc::new(System { env: parts.env.clone(), directory: Arc::new(Directory::new()) });
        let root = Path::root();
        let order =
            parts.backends.iter().map(|b| (BackendFacts { name: b.name.clone(), ..b.facts.clone() }, b.slots.max(1)));
        let order: Vec<(BackendFacts, u32)> = order.collect();
        let leases = Leases::new(parts.env.clock.clone(), parts.limits.breaker, parts.limits.deadlines, &order);
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
            lease: Arc::new(lease),
            env: parts.env,
            store: parts.store,
            catalog: parts.catalog,
            runner: parts.runner,
            backends: parts.backends.into_iter().map(|b| (b.name.clone(), b)).collect::<BTreeMap<_, _>>(),
            profiles: parts.profiles,
            limits: parts.limits,
            routing,
            operations: OperationKeys::new(secret),
            hub: Arc::new(Hub::default()),
            leases: Arc::new(leases),
            log: system.handle(&root.child("infra").child("log")),
            scheduler: system.handle(&root.child("scheduler")),
            breakers: system.handle(&root.child("breakers")),
            conversations: system.handle(&root.child("conversations")),
            resources: Arc::default(),
            doors: Arc::default(),
        });
        let (tell, ended) = watch::channel(None);
        let args = RootArgs { tree: tree(&wiring, order), ended: Arc::new(tell) };
        let started = crate::observe::spawn::<Root>(&system, root, args, None).await;
        let (_, root) = started.map_err(|e| KernelError::Unavailable(e.to_string()))?;
        let kernel = Self { wiring, system, root, ended, draining: Arc::new(AtomicBool::new(false)) };
        if let Err(e) = kernel.wait_until_up().await {
            // Nobody gets a handle to stop what did come up.
            kernel.crash().await;
            return Err(e);
        }
        watchdog::start(&kernel);
        Ok(kernel)
    }

    /// Waits until every permanent actor lives.
    async fn wait_until_up(&self) -> Result<(), KernelError> {
        for _ in 0..2_000 {
            if let Some(reason) = self.ended.borrow().clone() {
                return Err(KernelError::Unavailable(reason.to_string()));
            }
            if self.missing().next().is_none() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(KernelError::Unavailable("the tree did not come up within 10 s".to_owned()))
    }

    /// Permanent actors that do not live just now.
    pub(super) fn missing(&self) -> impl Iterator<Item = &'static str> {
        PERMANENT.into_iter().filter(|path| self.system.directory.get(&Path::parse(path)).is_none())
    }

    /// Runs long work of the resources as a part of the tree, restarted when it dies: the watcher of the skill folder.
    pub fn run_resource(&self, name: &str, make: MakeService) {
        self.wiring.resources.add(name, make);
        self.look("/resources/services");
    }

    /// Runs a door's listener as a part of the tree, restarted when it dies.
    pub fn run_door(&self, name: &str, make: MakeService) {
        self.wiring.doors.add(name, make);
        self.look("/doors");
    }

    fn look(&self, group: &str) {
        let group = self.system.handle::<ServicesMsg>(&Path::parse(group));
        // If nobody lives there, its next life looks by itself.
        group.tell(ServicesMsg::Look);
    }

    /// Stops taking messages; what was taken goes on.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Ends the tree in good order within 25 s, then closes the store. What is open goes on after the next start.
    pub async fn stop(&self) {
        self.drain();
        stop_child(&self.root.cell, Duration::from_secs(25)).await;
        // A store that does not answer tells the others nothing; the lease expires by itself.
        let end = self.wiring.lease.end(self.wiring.store.as_ref());
        if !matches!(tokio::time::timeout(Duration::from_millis(END_MS_MAX), end).await, Ok(Ok(()))) {
            tracing::warn!("other processes are not told that this one has ended");
        }
        self.wiring.store.close().await;
    }

    /// Ends everything at once, as a power cut would, for tests: nothing is told, nothing is closed.
    pub async fn crash(&self) {
        self.root.kill();
        let _ = self.root.cell.wait(Some(Duration::from_secs(5))).await;
    }

    /// Waits until the kernel has ended, and says why.
    pub async fn ended(&self) -> StopReason {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(StopReason::Asked),
            Err(_) => StopReason::Failed("the root was killed".to_owned()),
        }
    }
}

/// The log, and who works on what is stored beside the conversations.
fn infra(wiring: &Arc<Wiring>) -> ChildSpec {
    let (wiring, has_lived) = (wiring.clone(), Arc::new(AtomicBool::new(false)));
    let infra = ChildSpec::permanent::<Supervisor>("infra", move || {
        let (node, notifier, letters, expiry) = (wiring.clone(), wiring.clone(), wiring.clone(), wiring.clone());
        let (wiring, has_lived) = (wiring.clone(), has_lived.clone());
        let log = ChildSpec::permanent::<LogWriter>("log", move || LogArgs {
            store: wiring.store.clone(),
            hub: wiring.hub.clone(),
            conversations: wiring.conversations.clone(),
            keepers: keepers(&wiring),
            has_lived: has_lived.clone(),
        });
        let children = vec![
            log,
            ChildSpec::permanent::<NodeLease>("node", move || node.clone()),
            ChildSpec::permanent::<Notifier>("notifier", move || notifier.clone()),
            ChildSpec::permanent::<DeadLetters>("letters", move || letters.clone()),
            ChildSpec::permanent::<Expiry>("expiry", move || expiry.clone()),
        ];
        SupervisorArgs { children, budget: BudgetLimits { restarts_max: 10, window_ms: 10_000 } }
    });
    infra.stop_within_ms(8_000)
}

/// Who hears of what is stored beside the conversations.
fn keepers(wiring: &Wiring) -> Keepers {
    let infra = Path::root().child("infra");
    Keepers {
        notifier: wiring.log.sibling(infra.child("notifier")),
        letters: wiring.log.sibling(infra.child("letters")),
        expiry: wiring.log.sibling(infra.child("expiry")),
        scheduler: wiring.scheduler.clone(),
    }
}

/// The permanent actors: what the root supervises from start to stop.
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
    let group = |name: &'static str, list: &Arc<ServiceList>| {
        let list = list.clone();
        ChildSpec::permanent::<Services>(name, move || list.clone())
    };
    let doors = group("doors", &wiring.doors);
    let resources = resources(wiring, names);
    SupervisorArgs {
        children: vec![infra, resources, scheduler, breakers, conversations, doors],
        budget: BudgetLimits { restarts_max: 20, window_ms: 30_000 },
    }
}

fn scheduler(wiring: &Arc<Wiring>, backends: Vec<String>) -> ChildSpec {
    let wiring = wiring.clone();
    ChildSpec::permanent::<Scheduler>("scheduler", move || SchedulerArgs {
        limits: wiring.limits.queue.clone(),
        leases: wiring.leases.clone(),
        records: wiring.store.clone(),
        me: wiring.scheduler.clone(),
        conversations: wiring.conversations.clone(),
        backends: backends.iter().map(|name| wiring.scheduler.sibling(backend_path(name))).collect(),
    })
}

/// Where a backend's actor stands.
fn backend_path(name: &str) -> Path {
    Path::parse("/resources/backends").child(&backend::segment(name))
}

/// Long-running work of the resources, and the backends' actors.
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
