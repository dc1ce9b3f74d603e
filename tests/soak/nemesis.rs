//! Fault injection: kills actors by weight, kills the process, kills it while it starts, and freezes it for a while.
//! After each disruption a probe message measures the time until Annie answers again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use annie_core::faults::{FaultKind, FaultSpec, Target};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use rustix::process::Signal;
use serde_json::json;

use super::{
    clients::{OutgoingMessage, Session},
    database::Database,
    history::Kind,
    pace::pause,
    site::{Site, signal},
};

/// One disruption: how the soak carries out a fault of its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disruption {
    /// An actor is killed through the operator API.
    Actor,
    /// SIGKILL and a new run.
    Process,
    /// SIGKILL, and another one while the new run starts.
    Start,
    /// SIGSTOP for a while, then SIGCONT. On SQLite a second process must be refused meanwhile.
    Freeze,
    /// SIGSTOP, another process claims everything, and then the frozen one continues.
    Takeover,
    /// The database is killed and started again.
    Database,
    /// The database is frozen for a while.
    DatabaseFreeze,
    /// Connections to the database are cut in the middle of a transfer.
    Cut,
    /// The disk is full for a while.
    Full,
}

impl Disruption {
    /// The disruption of a fault. The soak chooses which actor is killed and how long something is frozen, so that the fault
    /// names neither.
    ///
    /// # Panics
    /// If the soak cannot inject the fault.
    pub fn of(spec: &FaultSpec) -> Self {
        let FaultSpec { target, kind, place, point, wait_ms: 0, by_ms: 0, .. } = spec else {
            panic!("`{spec}`: the soak chooses all times")
        };
        match (target, kind, place.as_str(), point.as_str()) {
            (Target::Actor, FaultKind::Kill, "*", "*") => Self::Actor,
            (Target::Process, FaultKind::Kill, "*", "*") => Self::Process,
            (Target::Process, FaultKind::Kill, "*", "start") => Self::Start,
            (Target::Process, FaultKind::Freeze, "*", "*") => Self::Freeze,
            (Target::Process, FaultKind::Takeover, "*", "*") => Self::Takeover,
            (Target::Database, FaultKind::Kill, "*", "*") => Self::Database,
            (Target::Database, FaultKind::Freeze, "*", "*") => Self::DatabaseFreeze,
            (Target::Database, FaultKind::Cut, "*", "*") => Self::Cut,
            (Target::Database, FaultKind::Full, "*", "*") => Self::Full,
            _ => panic!("`{spec}`: the soak kills actors, and injects faults into the process and its database"),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Actor => "actor kills",
            Self::Process => "process kills",
            Self::Start => "process kills at the start",
            Self::Freeze => "freezes",
            Self::Takeover => "freezes with a takeover",
            Self::Database => "database kills",
            Self::DatabaseFreeze => "database freezes",
            Self::Cut => "connections cut",
            Self::Full => "full disks",
        }
    }
}

/// How often which actors are killed: part of the path, weight.
const TARGETS: &[(&str, u32)] = &[
    ("/conversations/engine:", 38),
    ("/agent:", 16),
    ("/infra/log", 8),
    ("/scheduler", 6),
    ("/breakers/breaker:", 9),
    ("/breakers", 3),
    ("/conversations", 3),
    ("/ownership", 1),
    ("/listeners/service:http", 5),
    ("/resources/backends/backend:", 4),
    ("/infra/dead_letters", 2),
    ("/infra/notifier", 2),
    ("/infra/expiry", 1),
    ("/infra/schedules", 1),
    ("/infra/node", 1),
    ("/infra", 1),
    ("/listeners", 1),
    ("/resources", 1),
];

/// What was injected, and the recovery times in milliseconds.
#[derive(Debug, Default)]
pub struct Injected {
    pub disruptions: BTreeMap<Disruption, u32>,
    pub actors: BTreeMap<String, u32>,
    /// Ends of the process that were not injected.
    pub unexpected_ends: u32,
    /// Violations that the injector itself has seen.
    pub wrong: Vec<String>,
    pub times_ms: BTreeMap<&'static str, Vec<f64>>,
}

/// Injects the faults.
pub struct Nemesis {
    pub site: Site,
    pub session: Session,
    pub database: Database,
    /// The data is in a folder that one process has for itself.
    is_alone: bool,
    rng: StdRng,
    pub injected: Injected,
    channels: u32,
}

impl Nemesis {
    pub fn new(site: Site, session: Session, database: Database, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed ^ 0x6e65_6d65);
        let is_alone = database.postgres.is_none();
        Self { site, session, database, is_alone, rng, injected: Injected::default(), channels: 0 }
    }

    /// Injects these disruptions in random order, spread over this time.
    pub async fn inject_all(&mut self, mut disruptions: Vec<Disruption>, time: Duration) {
        disruptions.shuffle(&mut self.rng);
        let from = Instant::now();
        let each = time / u32::try_from(disruptions.len().max(1)).unwrap_or(u32::MAX);
        for (n, disruption) in disruptions.into_iter().enumerate() {
            let due = each * u32::try_from(n).unwrap_or(u32::MAX) + each.mul_f64(self.rng.random_range(0.0..1.0));
            while from.elapsed() < due {
                self.look_after().await;
                pause((due - from.elapsed().min(due)).min(Duration::from_millis(20))).await;
            }
            self.look_after().await;
            self.carry_out(disruption).await;
            *self.injected.disruptions.entry(disruption).or_default() += 1;
        }
    }

    /// Restarts and counts a process that ended by itself.
    pub async fn look_after(&mut self) {
        if self.site.has_ended().is_some() {
            self.injected.unexpected_ends += 1;
            self.site.spawn();
            self.site.ready().await;
        }
    }

    fn took(&mut self, what: &'static str, since: Instant) {
        self.injected.times_ms.entry(what).or_default().push(since.elapsed().as_secs_f64() * 1e3);
    }

    async fn carry_out(&mut self, disruption: Disruption) {
        match disruption {
            Disruption::Actor => self.actor().await,
            Disruption::Process | Disruption::Start => self.process(disruption == Disruption::Start).await,
            Disruption::Freeze => self.freeze().await,
            Disruption::Takeover => self.takeover().await,
            Disruption::Database | Disruption::DatabaseFreeze | Disruption::Cut | Disruption::Full => {
                self.database(disruption).await
            }
        }
    }

    async fn freeze(&mut self) {
        self.site.signal(Signal::STOP);
        pause(Duration::from_millis(self.rng.random_range(50..2_500))).await;
        if self.is_alone && self.rng.random_bool(0.3) && !self.site.refuses_a_second_process().await {
            self.injected.wrong.push("a second process started in the folder of a frozen one".to_owned());
        }
        self.site.signal(Signal::CONT);
        let since = Instant::now();
        self.probe().await;
        self.took("SIGCONT to an answer", since);
    }

    async fn takeover(&mut self) {
        self.site.signal(Signal::STOP);
        let since = Instant::now();
        let frozen = self.site.start_successor();
        self.site.ready().await;
        self.took("frozen to another's readiness", since);
        self.probe().await;
        self.took("frozen to another's answer", since);
        if let Some(mut frozen) = frozen {
            signal(&frozen, Signal::CONT);
            pause(Duration::from_millis(self.rng.random_range(200..3_000))).await;
            self.probe().await;
            let _ = frozen.kill();
            let _ = frozen.wait();
        }
    }

    /// Sends a probe message and waits for the answer.
    async fn probe(&mut self) {
        self.channels += 1;
        let channel = format!("probe-{}", self.channels);
        self.ask(&channel).await;
    }

    async fn ask(&self, channel: &str) -> Option<String> {
        // A wait that ends with the process is repeated: the message is the same one.
        let message = OutgoingMessage { channel, kind: Kind::Plain, class: "high", words: "", wait: true };
        let sent = self.session.say(&message, false).await;
        sent.acks.last().map(|a| a.conversation.clone())
    }

    async fn process(&mut self, at_the_start: bool) {
        let since = Instant::now();
        self.site.kill();
        self.site.spawn();
        if at_the_start {
            pause(Duration::from_millis(self.rng.random_range(0..120))).await;
            self.site.kill();
            self.site.spawn();
        }
        self.site.ready().await;
        if !at_the_start {
            self.took("SIGKILL to ready", since);
        }
        self.probe().await;
        if !at_the_start {
            self.took("SIGKILL to an answer", since);
        }
    }

    async fn actor(&mut self) {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(30) {
            self.look_after().await;
            if self.rng.random_range(0..8) == 0 {
                if self.own_engine().await {
                    return;
                }
                continue;
            }
            let Some(path) = self.target().await else {
                pause(Duration::from_millis(20)).await;
                continue;
            };
            let injected = Instant::now();
            if self.kill(&path).await {
                self.probe().await;
                let what = match path.as_str() {
                    p if p.contains("/agent:") => "agent killed to an answer of another",
                    p if p.contains("/engine:") => "Engine killed to an answer of another",
                    _ => "other actor killed to an answer",
                };
                self.took(what, injected);
                return;
            }
        }
    }

    /// Kills the Engine of a conversation right after a message to it, and sends another message to it.
    async fn own_engine(&mut self) -> bool {
        self.channels += 1;
        let channel = format!("engine-{}", self.channels);
        let Some(conversation) = self.ask(&channel).await else { return false };
        let injected = Instant::now();
        if !self.kill(&format!("/conversations/engine:{conversation}")).await {
            return false;
        }
        self.ask(&channel).await;
        self.took("Engine killed to its own answer", injected);
        true
    }

    /// Chooses a live actor by weight.
    async fn target(&mut self) -> Option<String> {
        let actors = self.site.actors().await;
        let sum: u32 = TARGETS.iter().map(|t| t.1).sum();
        let mut at = self.rng.random_range(0..sum);
        let (part, _) = TARGETS.iter().find(|(_, weight)| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        })?;
        let is_many = part.ends_with(':');
        let fits = |path: &&String| if is_many { is_last(path, part) } else { path == part };
        let all: Vec<&String> = actors.iter().filter(fits).collect();
        if all.is_empty() { None } else { Some(all[self.rng.random_range(0..all.len())].clone()) }
    }

    async fn kill(&mut self, path: &str) -> bool {
        let kill = json!({"path": path, "reason": "soak", "force": true});
        let answer = self.site.operate("/api/v1/actors/kill", &kill).await;
        // The kill of a listener also ends the connection that would carry its reply.
        let is_listener = path.starts_with("/listeners");
        let is_done = answer.map_or(is_listener, |(status, _)| status == 200);
        if is_done {
            let kind = path.rsplit('/').next().and_then(|p| p.split(':').next()).unwrap_or_default();
            *self.injected.actors.entry(kind.to_owned()).or_default() += 1;
        }
        is_done
    }

    async fn database(&mut self, disruption: Disruption) {
        let hold = Duration::from_millis(self.rng.random_range(100..1_500));
        let bytes = self.rng.random_range(1..4_000);
        let database = &self.database;
        let since = Instant::now();
        match disruption {
            Disruption::Database => database.kill_and_start().await,
            Disruption::Cut => database.cut_after(bytes).await,
            Disruption::DatabaseFreeze => database.freeze(hold).await,
            _ => database.fill(hold).await,
        }
        let since =
            if matches!(disruption, Disruption::Full | Disruption::DatabaseFreeze) { Instant::now() } else { since };
        self.probe().await;
        let what = match disruption {
            Disruption::Database => "database killed to an answer",
            Disruption::Cut => "connections cut to an answer",
            Disruption::DatabaseFreeze => "database resumed to an answer",
            _ => "space freed to an answer",
        };
        self.took(what, since);
    }
}

/// Whether the last part of a path begins with `part`.
fn is_last(path: &str, part: &str) -> bool {
    path.rfind(part).is_some_and(|at| !path.get(at + part.len()..).unwrap_or_default().contains('/'))
}
