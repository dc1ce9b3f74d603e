//! What the actors of one kernel hold in common: ports, handles, limits. Built once, at boot.

use std::{collections::BTreeMap, sync::Arc};

use annie_core::{
    breaker::BreakerLimits,
    event::Mode,
    limits::{Deadlines, TurnLimits},
    notice::NotifyLimits,
    ports::{Catalog, Env, Model, SkillRunner, Store},
    route::{BackendFacts, RouteMode, RouteTable},
};

use crate::{
    breaker::BreakersMsg,
    conversations::ConversationsMsg,
    hub::Hub,
    kernel::Embeddings,
    log_writer::LogMsg,
    node_lease::{Lease, LeaseLimits},
    observe::Handle,
    operations::OperationKeys,
    scheduler::{Leases, SchedulerMsg},
    services::ServiceList,
};

/// One model endpoint of the pool.
#[derive(Clone)]
pub struct Backend {
    /// Its name in the configuration.
    pub name: String,
    /// Rounds that it runs at a time: 1 for a single-request GPU.
    pub slots: u32,
    /// What the pool knows of it: capabilities, privacy, window …
    pub facts: BackendFacts,
    /// The endpoint.
    pub model: Arc<dyn Model>,
    /// How long one round may take after its permit, in milliseconds, where that is not the kernel's limit: a program works
    /// longer than a model.
    pub round_ms_max: Option<u64>,
}

/// How a user is addressed in prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// What the user is called; empty means that prompts do not say.
    pub name: String,
    /// IANA name of the user's time zone.
    pub timezone: String,
}

/// Limits and choices of a kernel.
#[derive(Debug, Clone)]
pub struct KernelLimits {
    /// The mode of turns that do not say.
    pub mode: Mode,
    /// What a turn may use up.
    pub turn: TurnLimits,
    /// When breakers open.
    pub breaker: BreakerLimits,
    /// How long one round may take after its permit, in milliseconds.
    pub round_ms_max: u64,
    /// After which an idle Engine leaves memory, in milliseconds.
    pub hibernate_ms: u64,
    /// Engines in memory at most.
    pub engines_max: usize,
    /// After which a stuck handler is killed, in milliseconds; 0 for no watchdog: see [`crate::Kernel::end_stuck`].
    pub stuck_ms_max: u64,
    /// The longest message, in bytes.
    pub message_bytes_max: usize,
    /// When tasks should have come to an end.
    pub deadlines: Deadlines,
    /// How many waiting tasks a user may have in each class, and all users together.
    pub queue: annie_core::queue::QueueLimits,
    /// How often users are notified of what ended while they did not wait.
    pub notify: NotifyLimits,
    /// How long this process counts as living without a word, where others share its store.
    pub lease: LeaseLimits,
}

impl Default for KernelLimits {
    fn default() -> Self {
        Self {
            mode: Mode::MultiAgent,
            turn: TurnLimits::default(),
            breaker: BreakerLimits::default(),
            round_ms_max: 120_000,
            hibernate_ms: 60_000,
            engines_max: 20_000,
            stuck_ms_max: 30_000,
            message_bytes_max: 256 * 1024,
            deadlines: Deadlines::default(),
            queue: annie_core::queue::QueueLimits::default(),
            notify: NotifyLimits::default(),
            lease: LeaseLimits::default(),
        }
    }
}

/// Shared by all actors of one kernel.
pub(crate) struct Wiring {
    /// The requests for embeddings under way.
    pub embeddings: Arc<Embeddings>,
    pub env: Env,
    pub lease: Arc<Lease>,
    pub store: Arc<dyn Store>,
    pub catalog: Arc<dyn Catalog>,
    pub runner: Arc<dyn SkillRunner>,
    pub backends: BTreeMap<String, Backend>,
    pub profiles: Profiles,
    pub limits: KernelLimits,
    pub routing: Routing,
    pub operations: OperationKeys,
    pub hub: Arc<Hub>,
    pub leases: Arc<Leases>,
    pub log: Handle<LogMsg>,
    pub scheduler: Handle<SchedulerMsg>,
    pub breakers: Handle<BreakersMsg>,
    pub conversations: Handle<ConversationsMsg>,
    /// Long-running work of the resources (the skill folder's watcher) and of the doors (listeners).
    pub resources: Arc<ServiceList>,
    pub doors: Arc<ServiceList>,
}

impl Wiring {
    /// The backends as the rules see them, with what their servers say of themselves where nothing is configured.
    pub fn known_facts(&self) -> Vec<BackendFacts> {
        let known = |facts: &BackendFacts| BackendFacts {
            context_tokens_max: self.leases.window(&facts.name).or(facts.context_tokens_max),
            ..facts.clone()
        };
        self.routing.facts.iter().map(known).collect()
    }
}

/// Who runs what.
#[derive(Debug, Clone)]
pub struct Routing {
    /// The rules.
    pub table: RouteTable,
    /// How far they are trusted.
    pub mode: RouteMode,
    /// The backends as the rules see them, in the order of the configuration.
    pub facts: Vec<BackendFacts>,
}

impl Routing {
    /// Whether a round on this route may run on a backend that works by itself. An empty route is the first backend.
    #[must_use]
    pub fn may_act(&self, route: &[String]) -> bool {
        let is_on = |name: &str| if route.is_empty() { self.is_first(name) } else { route.iter().any(|r| r == name) };
        self.facts.iter().any(|f| f.acts && is_on(&f.name))
    }

    fn is_first(&self, name: &str) -> bool {
        self.facts.first().is_some_and(|f| f.name == name)
    }
}

/// Profiles by user, and the one for everybody else.
#[derive(Debug, Clone)]
pub struct Profiles {
    /// Those that are configured.
    pub by_user: BTreeMap<String, Profile>,
    /// Everybody else's.
    pub default: Profile,
}

impl Profiles {
    /// A user's profile.
    #[must_use]
    pub fn of(&self, user: &annie_core::ids::UserId) -> &Profile {
        self.by_user.get(user.as_str()).unwrap_or(&self.default)
    }
}
