//! The settings: one struct per table of `annie.toml` with its defaults, and the checks between settings.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use annie_actors::{KernelLimits, RetentionRules};
use annie_core::{
    aloud::VoiceFormat,
    breaker::BreakerLimits,
    error_route::ErrorRules,
    event::{Mode, Priority},
    ids::UserId,
    limits::{Deadline, Deadlines, TurnLimits},
    notice::NotifyLimits,
    queue::QueueLimits,
    result_check::CheckRules,
    route::{BackendFacts, RouteRule, RouteTable, RouteTableError},
    spend::SpendLimits,
    workflow::{WORKFLOW, WorkflowLimits},
};
use annie_llm::Secret;
use serde::{Deserialize, Serialize};

use super::{
    approval::ApprovalSettings,
    backend::BackendConfig,
    cache::CacheSettings,
    channels::ChannelConfig,
    egress::EgressSettings,
    files::FileSettings,
    guard::GuardSettings,
    hooks::HookConfig,
    loop_guard::LoopGuardSettings,
    mcp::McpServerConfig,
    memory::MemorySettings,
    routing::{Routing, planner},
    sandbox::{SandboxSettings, SkillSettings},
    secrets::SecretSettings,
    server::Server,
    store::StoreSettings,
    sub_agent::SubAgent,
    telemetry::TelemetrySettings,
    typed::KeyError,
    values::is_log_level,
    web_search::WebSearchSettings,
};
use crate::api::ApiLimits;

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The mode of turns that do not choose one.
    pub mode: Mode,
    /// The IANA name of the time zone of users without one of their own; absent means the system's.
    pub timezone: Option<String>,
    /// The listening address and access.
    pub server: Server,
    /// Limits of the front ends.
    pub api: ApiLimits,
    /// The data folder.
    pub data: Data,
    /// The database.
    pub store: StoreSettings,
    /// Limits of the kernel.
    pub limits: Limits,
    /// Limits of one turn. Its `interface`, `agent_timeout_ms_max` and `agent_control` are set in `[sub_agent]`, `loop_guard`, `error_router`, `result_checks` and `voice` have tables of their own.
    pub turn: TurnLimits,
    /// Deadlines of tasks, by class.
    pub deadline: Deadlines,
    /// Limits of the queue.
    pub queue: QueueLimits,
    /// How often users are notified of ended background work.
    pub notify: NotifyLimits,
    /// The caps on what model calls spend.
    pub spend: SpendLimits,
    /// What prompts contain besides the kernel's own rules.
    pub prompt: PromptSettings,
    /// How routing rules are used.
    pub routing: Routing,
    /// When a skill's breaker opens.
    pub breaker: BreakerLimits,
    /// Settings of sub-agents.
    pub sub_agent: SubAgent,
    /// Names and time zones of users, by user id.
    pub user: BTreeMap<String, Person>,
    /// How the command line connects to a server.
    pub client: Client,
    /// Requests of skills to other machines.
    pub egress: EgressSettings,
    /// The files of this machine that skills may use.
    pub files: FileSettings,
    /// The search engine of `web.search`.
    pub web_search: WebSearchSettings,
    /// How programs of skills are run.
    pub sandbox: SandboxSettings,
    /// Settings of single skills.
    pub skills: SkillSettings,
    /// The key of stored secrets.
    pub secrets: SecretSettings,
    /// The audit chain.
    pub audit: Audit,
    /// How long data is kept.
    pub retention: Retention,
    /// The ranking of memories.
    pub memory: MemorySettings,
    /// Settings of the log output.
    pub log: Log,
    /// Settings of the metrics.
    pub metrics: Metrics,
    /// Where traces are sent.
    pub telemetry: TelemetrySettings,
    /// Settings of fault injection.
    pub chaos: ChaosSettings,
    /// Which calls of skills wait for a person.
    pub approval: ApprovalSettings,
    /// When the loop guard warns and refuses.
    pub loop_guard: LoopGuardSettings,
    /// The guards of input.
    pub guard: GuardSettings,
    /// Replies of models that are used again.
    pub cache: CacheSettings,
    /// The form of answers that are read aloud.
    pub voice: VoiceFormat,
    /// What follows failures of skills.
    pub error_router: ErrorRules,
    /// How results of skills are checked.
    pub result_checks: CheckRules,
    /// Limits of workflows.
    pub workflows: WorkflowLimits,
    /// The model backends (`[[backend]]`); an empty list means the offline planner. Read by [`super::typed`], which separates
    /// the pool's keys from the client's.
    #[serde(skip)]
    pub backend: Vec<BackendConfig>,
    /// The routing rules (`[[route]]`), before the built-in ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub route: Vec<RouteRule>,
    /// The decisions before a turn or a skill runs (`[[hook]]`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hook: Vec<HookConfig>,
    /// The channels to which answers are delivered (`[[channel]]`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channel: Vec<ChannelConfig>,
    /// The servers whose tools are skills (`[[mcp]]`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<McpServerConfig>,
}

/// `[data]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Data {
    /// The data folder; absent means `$XDG_DATA_HOME/annie`.
    pub folder: Option<PathBuf>,
    /// Allows a start although the database is empty and the mark of the folder says that it was not.
    pub accept_empty_database: bool,
    /// Whether every process on a shared database keeps notes of its own.
    pub separate_notes: bool,
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The maximum length of a message, in bytes.
    pub message_bytes_max: usize,
    /// The maximum duration of one model round after its permit, in milliseconds.
    pub round_ms_max: u64,
    /// The idle time after which a conversation is passivated, in milliseconds.
    pub passivate_after_ms: u64,
    /// The maximum number of conversations in memory.
    pub engines_max: usize,
    /// The duration of a handler after which its actor counts as stuck and is killed, in milliseconds.
    pub stuck_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let kernel = KernelLimits::default();
        Self {
            message_bytes_max: kernel.message_bytes_max,
            round_ms_max: kernel.round_ms_max,
            passivate_after_ms: kernel.passivate_after_ms,
            engines_max: kernel.engines_max,
            stuck_ms_max: kernel.stuck_ms_max,
        }
    }
}

/// `[prompt]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptSettings {
    /// Rules for all agents: one sentence each.
    pub rules: Vec<String>,
    /// Whether messages that are nothing but small talk get a short prompt without skills.
    pub short_for_small_talk: bool,
}

impl PromptSettings {
    /// The maximum number of rules. Each prompt contains all of them.
    const RULES_MAX: usize = 20;
    /// The maximum length of a rule, in characters.
    const RULE_CHARS_MAX: usize = 300;

    fn check(&self) -> Result<(), KeyError> {
        let path = ["prompt", "rules"];
        let (count, count_max) = (self.rules.len(), Self::RULES_MAX);
        if count > count_max {
            let what = format!("there are {count} rules, at most {count_max} are allowed");
            return Err(KeyError::value(&path, &what, "combine some of them"));
        }
        let is_wrong = |rule: &&String| rule.trim().is_empty() || rule.contains(char::is_control);
        if let Some(rule) = self.rules.iter().find(is_wrong) {
            return Err(KeyError::value(&path, &format!("{rule:?} is no line of text"), "write one sentence"));
        }
        let chars_max = Self::RULE_CHARS_MAX;
        if let Some(rule) = self.rules.iter().find(|rule| rule.chars().count() > chars_max) {
            let what = format!("a rule has {} characters, at most {chars_max} are allowed", rule.chars().count());
            return Err(KeyError::value(&path, &what, "shorten it"));
        }
        Ok(())
    }
}

/// `[user.<id>]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Person {
    /// The name with which the user is addressed.
    pub name: String,
    /// The IANA name of the user's time zone; absent means the general one.
    pub timezone: Option<String>,
}

/// `[client]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    /// The URL of the server; absent means the server that uses the data folder, or the one at `server.bind`.
    pub url: Option<String>,
    /// The API key that the command line sends.
    pub key: Option<Secret>,
    /// A file that contains the key.
    pub key_file: Option<PathBuf>,
}

/// `[audit]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// How often stored events are sealed, in milliseconds; 0 means never.
    pub seal_ms: u64,
}

impl Default for Audit {
    fn default() -> Self {
        // Sealing reads the new events once more. An hour bounds what can be changed without a trace.
        Self { seal_ms: 3_600_000 }
    }
}

/// `[retention]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// How long a deleted conversation can be restored, in days. Then its content is erased.
    pub trash_days: u32,
    /// After so many days without an event a conversation is erased; 0 means never.
    pub events_days: u32,
    /// After so many hours the working data of ended tasks is deleted; 0 means never.
    pub working_data_hours: u32,
    /// How often the erasure looks for what is due, in milliseconds.
    pub pass_ms: u64,
}

impl Default for Retention {
    fn default() -> Self {
        // The trash of skills keeps things for 30 days, too. A task's working data goes after a day [S3 5.9].
        Self { trash_days: 30, events_days: 0, working_data_hours: 24, pass_ms: 60_000 }
    }
}

impl Retention {
    /// The rules of the chore that erases.
    #[must_use]
    pub const fn rules(&self) -> RetentionRules {
        let Self { events_days, working_data_hours, pass_ms, .. } = *self;
        RetentionRules { events_days, working_data_hours, pass_ms }
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or levels per module: `info,annie_actors=debug`.
    pub level: String,
    /// The format of the lines.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Whether the server records metrics and serves `/metrics`.
    pub enabled: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// `[chaos]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChaosSettings {
    /// Whether admins may inject faults into this server. Allowed only on a loopback address.
    pub enabled: bool,
}

impl ChaosSettings {
    /// Refuses fault injection on addresses that other machines can reach.
    fn check(&self, bind: SocketAddr) -> Result<(), KeyError> {
        if self.enabled && !bind.ip().is_loopback() {
            let what = format!("faults may only be injected on a loopback address, and server.bind is {bind}");
            return Err(KeyError::value(
                &["chaos", "enabled"],
                &what,
                "set server.bind to 127.0.0.1:7420, or leave chaos off",
            ));
        }
        Ok(())
    }
}

impl Config {
    /// The kernel's limits.
    #[must_use]
    pub fn kernel_limits(&self) -> KernelLimits {
        KernelLimits {
            mode: self.mode,
            turn: TurnLimits {
                interface: self.sub_agent.interface,
                agent_timeout_ms_max: self.sub_agent.timeout_ms_max,
                agent_control: self.sub_agent.control,
                loop_guard: self.loop_guard.limits(),
                error_router: self.error_router.clone(),
                result_checks: self.result_checks.clone(),
                voice: self.voice,
                ..self.turn.clone()
            },
            agent_model: self.sub_agent.model.clone(),
            breaker: self.breaker,
            round_ms_max: self.limits.round_ms_max,
            passivate_after_ms: self.limits.passivate_after_ms,
            engines_max: self.limits.engines_max,
            stuck_ms_max: self.limits.stuck_ms_max,
            message_bytes_max: self.limits.message_bytes_max,
            deadlines: self.deadline,
            queue: self.queue.clone(),
            notify: self.notify.clone(),
            lease: self.store.lease(),
            spend: self.spend,
            rules: self.prompt.rules.clone(),
            is_small_talk_short: self.prompt.short_for_small_talk,
            guards: self.guard.compiled(),
            cache: self.cache.limits(),
            trash_ms: u64::from(self.retention.trash_days) * 24 * 3_600_000,
            workflow: self.workflows.clone(),
        }
    }

    /// The facts of the pool: the backends in their order, or the planner.
    #[must_use]
    pub fn facts(&self) -> Vec<BackendFacts> {
        if self.backend.is_empty() { vec![planner()] } else { self.backend.iter().map(BackendConfig::facts).collect() }
    }

    /// The errors that types cannot prevent. An error that only follows from another one is not listed.
    pub(super) fn problems(&self) -> Vec<KeyError> {
        let mut found = self.zeros();
        found.extend(self.store.check().err());
        found.extend(self.turn_problems());
        found.extend(self.deadline_problems());
        found.extend(self.people_problems());
        found.extend(self.client_problems());
        found.extend(self.spend_problem());
        found.extend(self.prompt.check().err());
        found.extend(self.chaos.check(self.server.bind).err());
        found.extend(self.hook_problems());
        found.extend(self.approval_problems());
        found.extend(self.guard_problems());
        found.extend(self.cache_problems());
        found.extend(self.loop_guard_problems());
        found.extend(self.error_router_problems());
        found.extend(self.result_check_problems());
        found.extend(self.channel_problems());
        found.extend(self.mcp_problems());
        found.extend(self.egress_problems());
        found.extend(self.web_search_problems());
        found.extend(self.file_problems());
        found.extend(self.sandbox_problems());
        found.extend(self.secrets.check().err());
        found.extend(self.telemetry_problems());
        let backends = self.backend_problems();
        // Rules are checked only if all backends are valid.
        if backends.is_empty() {
            let facts = self.facts();
            found.extend(self.check_routes(&facts).err());
            found.extend(self.preferred_model_problems(&facts));
        }
        found.extend(backends);
        found
    }

    fn client_problems(&self) -> Vec<KeyError> {
        let mut found = Vec::new();
        if let Some(url) = &self.client.url
            && !url.starts_with("http://")
            && !url.starts_with("https://")
        {
            let fix = "write it as http://127.0.0.1:7420";
            found.push(KeyError::value(&["client", "url"], "it does not begin with http:// or https://", fix));
        }
        if self.client.key.is_some() && self.client.key_file.is_some() {
            found.push(KeyError::value(&["client", "key"], "key_file is given too", "keep one of the two"));
        }
        if !is_log_level(&self.log.level) {
            let fix = "write error, warn, info, debug or trace, or for each module: info,annie_actors=debug";
            found.push(KeyError::value(&["log", "level"], "it is no log level", fix));
        }
        found
    }

    /// Limits that are 0 and would therefore block everything.
    fn zeros(&self) -> Vec<KeyError> {
        let at_least_1 = [
            ("limits", "message_bytes_max", self.limits.message_bytes_max as u64),
            ("limits", "round_ms_max", self.limits.round_ms_max),
            ("limits", "passivate_after_ms", self.limits.passivate_after_ms),
            ("limits", "engines_max", self.limits.engines_max as u64),
            ("limits", "stuck_ms_max", self.limits.stuck_ms_max),
            ("breaker", "failures_max", u64::from(self.breaker.failures_max)),
            ("breaker", "open_ms", self.breaker.open_ms),
            ("turn", "agents_max", u64::from(self.turn.agents_max)),
            ("turn", "skill_calls_max", u64::from(self.turn.skill_calls_max)),
            ("turn", "single_loop_calls_max", u64::from(self.turn.single_loop_calls_max)),
            ("turn", "agent_calls_max", u64::from(self.turn.agent_calls_max)),
            ("turn", "window_calls_max", u64::from(self.turn.window_calls_max)),
            ("api", "body_ms_max", self.api.body_ms_max),
            ("api", "head_ms_max", self.api.head_ms_max),
            ("api", "requests_per_connection_max", u64::from(self.api.requests_per_connection_max)),
            ("api", "grpc_request_bytes_max", self.api.grpc_request_bytes_max as u64),
            ("api", "grpc_response_bytes_max", self.api.grpc_response_bytes_max as u64),
            ("workflows", "steps_max", u64::from(self.workflows.steps_max)),
            ("workflows", "parallel_max", u64::from(self.workflows.parallel_max)),
            ("workflows", "loop_max", u64::from(self.workflows.loop_max)),
            ("workflows", "calls_max", u64::from(self.workflows.calls_max)),
            ("workflows", "value_bytes_max", u64::from(self.workflows.value_bytes_max)),
            ("turn", "iterations_max", u64::from(self.turn.iterations_max)),
            ("turn", "crashes_max", u64::from(self.turn.crashes_max)),
            ("turn", "restarts_max", u64::from(self.turn.restarts_max)),
            ("turn", "window_ms", self.turn.window_ms),
            ("turn", "agent_round_ms_max", self.turn.agent_round_ms_max),
            ("sub_agent", "timeout_ms_max", self.sub_agent.timeout_ms_max),
            ("turn", "defer_ms", self.turn.defer_ms),
            ("turn", "voice_response_tokens_max", u64::from(self.turn.voice_response_tokens_max)),
            ("notify", "keep_ms", self.notify.keep_ms),
            ("retention", "pass_ms", self.retention.pass_ms),
            ("api", "body_bytes_max", self.api.body_bytes_max as u64),
            ("api", "connections_max", self.api.connections_max as u64),
            ("api", "connections_per_address_max", self.api.connections_per_address_max as u64),
            ("api", "wrong_keys_per_minute_max", u64::from(self.api.wrong_keys_per_minute_max)),
            ("api", "wrong_keys_burst_max", u64::from(self.api.wrong_keys_burst_max)),
            ("api", "requests_max", self.api.requests_max as u64),
            ("api", "streams_max", self.api.streams_max as u64),
            ("api", "streams_per_user_max", self.api.streams_per_user_max as u64),
            ("api", "stream_ms_max", self.api.stream_ms_max),
            ("api", "requests_per_minute_max", u64::from(self.api.requests_per_minute_max)),
            ("api", "requests_burst_max", u64::from(self.api.requests_burst_max)),
            ("queue", "waiting_max", u64::from(self.queue.waiting_max)),
            ("queue", "aging_ms_per_class", u64::from(self.queue.aging_ms_per_class)),
        ];
        let zeros = at_least_1.iter().filter(|(_, _, value)| *value == 0);
        zeros.map(|(table, key, _)| KeyError::value(&[table, key], "it is 0", "give at least 1")).collect()
    }

    fn turn_problems(&self) -> Vec<KeyError> {
        let mut found = Vec::new();
        let turn = &self.turn;
        if turn.history_tokens_max() == 0 {
            let what = "it is not larger than system_tokens_reserve and response_tokens_reserve together";
            found.push(KeyError::value(&["turn", "context_tokens_max"], what, "raise it, or lower the reserves"));
        }
        if turn.agent_calls_default > turn.agent_calls_max {
            let what = "it is larger than agent_calls_max";
            found.push(KeyError::value(&["turn", "agent_calls_default"], what, "lower it, or raise agent_calls_max"));
        }
        if turn.compaction_messages > 0 && turn.compaction_overlap_messages >= turn.compaction_messages {
            let what = "it is not smaller than compaction_messages: nothing would be summarised";
            found.push(KeyError::value(
                &["turn", "compaction_overlap_messages"],
                what,
                "lower it, or raise compaction_messages",
            ));
        }
        let dead_letters = &turn.dead_letters;
        let archive = ["turn", "dead_letters", "archive_after_ms"];
        if dead_letters.retry_after_ms == 0 {
            found.push(KeyError::value(&["turn", "dead_letters", "retry_after_ms"], "it is 0", "give at least 1"));
        } else if dead_letters.archive_after_ms <= dead_letters.retry_after_ms {
            let what = "it is not longer than retry_after_ms: nothing would ever be tried again";
            found.push(KeyError::value(&archive, what, "raise it, or lower retry_after_ms"));
        }
        found
    }

    fn deadline_problems(&self) -> Vec<KeyError> {
        let voice = [(self.deadline.voice_simple, "voice_simple"), (self.deadline.voice_action, "voice_action")];
        let classes = Priority::ALL.map(|class| (self.deadline.of(class), class.as_str()));
        let wrong = |(deadline, name): (Deadline, &str)| {
            if deadline.soft_ms == 0 {
                return Some(KeyError::value(&["deadline", name, "soft_ms"], "it is 0", "give at least 1"));
            }
            let what = "it is not later than soft_ms";
            (deadline.hard_ms <= deadline.soft_ms)
                .then(|| KeyError::value(&["deadline", name, "hard_ms"], what, "raise it, or lower soft_ms"))
        };
        classes.into_iter().chain(voice).filter_map(wrong).collect()
    }

    fn people_problems(&self) -> Vec<KeyError> {
        let mut found = Vec::new();
        found.extend(self.timezone.as_ref().and_then(|zone| wrong_zone(&["timezone"], zone)));
        for (id, person) in &self.user {
            if UserId::new(id.as_str()).is_err() {
                let fix = "use 1 to 128 bytes without control characters";
                found.push(KeyError::value(&["user", id], "it cannot be a user id", fix));
            }
            found.extend(person.timezone.as_ref().and_then(|zone| wrong_zone(&["user", id, "timezone"], zone)));
        }
        found
    }

    /// The errors of all backends.
    fn backend_problems(&self) -> Vec<KeyError> {
        let each = self.backend.iter().enumerate();
        let found: Vec<KeyError> = each.flat_map(|(at, backend)| backend.problems(&at.to_string())).collect();
        if found.is_empty() { self.check_names().err().into_iter().collect() } else { found }
    }

    /// Checks that users and rules can distinguish the backends, each of which is valid by itself.
    fn spend_problem(&self) -> Option<KeyError> {
        let (key, usd) = self.spend.flaw()?;
        let what = format!("{usd} is no amount of money");
        Some(KeyError::value(&["spend", key], &what, "give US dollars, such as 2.5; 0 means no limit"))
    }

    fn check_names(&self) -> Result<(), KeyError> {
        let facts = self.facts();
        for (at, backend) in self.backend.iter().enumerate() {
            let index = at.to_string();
            if self.backend[..at].iter().any(|b| b.name() == backend.name()) {
                let what = format!("another backend is named {:?} too", backend.name());
                return Err(KeyError::value(&["backend", &index, "name"], &what, "give each its own name"));
            }
            if backend.name() == WORKFLOW {
                let what = format!("{WORKFLOW:?} is the name of replies that come from a workflow");
                return Err(KeyError::value(&["backend", &index, "name"], &what, "give it another name"));
            }
            // Each backend is valid and has a unique name: the remaining error is that two share a word in `called`.
            if let Err(RouteTableError::Backend { what, .. }) = RouteTable::new(Vec::new(), &facts[..=at]) {
                let fix = "let users call each by words of its own: called = [\"...\"]";
                return Err(KeyError::value(&["backend", &index, "called"], &what, fix));
            }
        }
        Ok(())
    }
}

fn wrong_zone(path: &[&str], zone: &str) -> Option<KeyError> {
    if zone.parse::<chrono_tz::Tz>().is_ok() {
        return None;
    }
    let what = format!("there is no time zone {zone:?}");
    Some(KeyError::value(path, &what, "write an IANA name, such as Europe/Prague or UTC"))
}
