//! The parts that the actors of one kernel share: ports, handles, limits. Built once, at boot.

use std::{collections::BTreeMap, sync::Arc};

use annie_core::{
    breaker::BreakerLimits,
    event::Mode,
    guard::Guards,
    hooks::HookSet,
    limits::{Deadlines, TurnLimits},
    notice::NotifyLimits,
    ports::{Catalog, ContextSource, Documents, Env, Model, SkillRunner, Store, Workflows},
    route::{BackendFacts, RouteMode, RouteTable},
    spend::SpendLimits,
    workflow::WorkflowLimits,
};

use crate::{
    breaker::BreakersMsg,
    conversations::ConversationsMsg,
    extensions::Installed,
    hook_breakers::HookBreakers,
    hub::Hub,
    kernel::Embeddings,
    log_writer::LogMsg,
    node_lease::{Lease, LeaseLimits},
    observe::Handle,
    operations::OperationKeys,
    ownership::OwnershipMsg,
    reply_cache::{CacheLimits, ReplyCache},
    scheduler::{Leases, SchedulerMsg},
    services::ServiceList,
    skill_lists::SkillLists,
    spend::SpendLedger,
};

/// One model endpoint of the pool.
#[derive(Clone)]
pub struct Backend {
    /// Its name in the configuration.
    pub name: String,
    /// Concurrent rounds: 1 for a GPU that serves one request at a time.
    pub slots: u32,
    /// Properties for routing: capabilities, privacy, window …
    pub facts: BackendFacts,
    /// The client of the endpoint.
    pub model: Arc<dyn Model>,
    /// Time limit of one round, in milliseconds, without the wait for its permit; `None` for the kernel's limit. An agentic
    /// backend works longer than a model.
    pub round_ms_max: Option<u64>,
}

/// The name and time zone of a user, for prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The user's name; empty if prompts must not contain it.
    pub name: String,
    /// IANA name of the user's time zone.
    pub timezone: String,
}

/// Limits and modes of a kernel.
#[derive(Debug, Clone)]
pub struct KernelLimits {
    /// The mode of turns whose message requests none.
    pub mode: Mode,
    /// Limits of a turn.
    pub turn: TurnLimits,
    /// The backend, or the capability, that sub-agents prefer unless their dispatch names one; empty if there is none.
    pub agent_model: String,
    /// When breakers open.
    pub breaker: BreakerLimits,
    /// Time limit of one round, in milliseconds, without the wait for its permit.
    pub round_ms_max: u64,
    /// How long an Engine is idle before it leaves memory, in milliseconds.
    pub passivate_after_ms: u64,
    /// Engines in memory, at most.
    pub engines_max: usize,
    /// After this time a stuck handler is killed, in milliseconds; 0 for no watchdog: see [`crate::Kernel::end_stuck`].
    pub stuck_ms_max: u64,
    /// The longest message, in bytes.
    pub message_bytes_max: usize,
    /// The soft and hard deadlines of tasks.
    pub deadlines: Deadlines,
    /// Limits on waiting tasks, per user and class and in total.
    pub queue: annie_core::queue::QueueLimits,
    /// How often users are notified of work that ended while they did not follow it.
    pub notify: NotifyLimits,
    /// The lease of this node, where others share its store.
    pub lease: LeaseLimits,
    /// The caps on what rounds spend.
    pub spend: SpendLimits,
    /// Rules of the operator that the prompts of all agents contain.
    pub rules: Vec<String>,
    /// Whether small talk gets a short prompt without skills.
    pub is_small_talk_short: bool,
    /// The guards of input. They are compiled once.
    pub guards: Arc<Guards>,
    /// How long replies of models are used again.
    pub cache: CacheLimits,
    /// How long a deleted conversation can be restored, in milliseconds.
    pub trash_ms: u64,
    /// The limits of workflows.
    pub workflow: WorkflowLimits,
}

impl Default for KernelLimits {
    fn default() -> Self {
        Self {
            mode: Mode::MultiAgent,
            turn: TurnLimits::default(),
            agent_model: String::new(),
            breaker: BreakerLimits::default(),
            round_ms_max: 120_000,
            passivate_after_ms: 60_000,
            engines_max: 20_000,
            stuck_ms_max: 30_000,
            message_bytes_max: 256 * 1024,
            deadlines: Deadlines::default(),
            queue: annie_core::queue::QueueLimits::default(),
            notify: NotifyLimits::default(),
            lease: LeaseLimits::default(),
            spend: SpendLimits::default(),
            rules: Vec::new(),
            is_small_talk_short: false,
            guards: Arc::default(),
            cache: CacheLimits::default(),
            trash_ms: 30 * 24 * 3_600_000,
            workflow: WorkflowLimits::default(),
        }
    }
}

pub(crate) struct Wiring {
    /// The limits on concurrent requests for embeddings.
    pub embeddings: Arc<Embeddings>,
    pub extensions: Installed,
    /// Policies that decide before a turn and before a skill.
    pub hooks: HookSet,
    /// The hooks outside the kernel that failed lately.
    pub hook_breakers: HookBreakers,
    pub context_sources: Vec<Arc<dyn ContextSource>>,
    pub env: Env,
    pub lease: Arc<Lease>,
    pub store: Arc<dyn Store>,
    pub documents: Arc<dyn Documents>,
    pub catalog: Arc<dyn Catalog>,
    /// The lists of the catalogue's skills for prompts.
    pub skill_lists: SkillLists,
    pub runner: Arc<dyn SkillRunner>,
    pub workflows: Arc<dyn Workflows>,
    pub backends: BTreeMap<String, Backend>,
    pub profiles: Profiles,
    pub limits: KernelLimits,
    pub routing: Routing,
    pub operations: OperationKeys,
    pub hub: Arc<Hub>,
    pub leases: Arc<Leases>,
    /// Replies of models that are used again.
    pub replies: ReplyCache,
    /// What rounds spend, and the caps on it.
    pub spend: Arc<SpendLedger>,
    pub log: Handle<LogMsg>,
    pub scheduler: Handle<SchedulerMsg>,
    pub breakers: Handle<BreakersMsg>,
    pub conversations: Handle<ConversationsMsg>,
    pub ownership: Handle<OwnershipMsg>,
    /// Services of the resources (the watcher of the skill folder) and of the front ends (listening sockets).
    pub resources: Arc<ServiceList>,
    pub listeners: Arc<ServiceList>,
}

impl Wiring {
    /// The facts about the backends for routing. A window that is not configured is the one that the server reports.
    pub fn known_facts(&self) -> Vec<BackendFacts> {
        let known = |facts: &BackendFacts| BackendFacts {
            context_tokens_max: self.leases.window(&facts.name).or(facts.context_tokens_max),
            ..facts.clone()
        };
        self.routing.facts.iter().map(known).collect()
    }
}

/// The routing of rounds to backends.
#[derive(Debug, Clone)]
pub struct Routing {
    /// The rules.
    pub table: RouteTable,
    /// Whether the rules only suggest a route or decide it.
    pub mode: RouteMode,
    /// The facts about the backends, in the order of the configuration.
    pub facts: Vec<BackendFacts>,
}

impl Routing {
    /// Whether a round on this route may run on an agentic backend. An empty route means the first backend.
    #[must_use]
    pub fn may_act(&self, route: &[String]) -> bool {
        let is_on = |name: &str| if route.is_empty() { self.is_first(name) } else { route.iter().any(|r| r == name) };
        self.facts.iter().any(|f| f.acts && is_on(&f.name))
    }

    fn is_first(&self, name: &str) -> bool {
        self.facts.first().is_some_and(|f| f.name == name)
    }
}

/// Profiles by user, and the default one.
#[derive(Debug, Clone)]
pub struct Profiles {
    /// The configured profiles, by user id.
    pub by_user: BTreeMap<String, Profile>,
    /// The profile of all other users.
    pub default: Profile,
}

impl Profiles {
    /// A user's profile.
    #[must_use]
    pub fn of(&self, user: &annie_core::ids::UserId) -> &Profile {
        self.by_user.get(user.as_str()).unwrap_or(&self.default)
    }
}
