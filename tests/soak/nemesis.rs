//! What kills: actors by weight, the process, the process while it starts, and a process that is frozen for a while. After
//! each stroke a message of its own shows how long it took until Annie answered again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use rustix::process::Signal;
use serde_json::json;

use super::{
    clients::{Saying, Voice},
    database::Database,
    history::Kind,
    pace::pause,
    site::{Site, signal},
};

/// One stroke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stroke {
    /// An actor is killed through the operator's door.
    Actor,
    /// SIGKILL, and a new life.
    Process,
    /// SIGKILL, and again while the new life starts.
    Start,
    /// SIGSTOP for a while, then SIGCONT. On SQLite a second process must be turned away meanwhile.
    Freeze,
    /// SIGSTOP, another process takes everything over, and then the frozen one wakes up.
    Takeover,
    /// The database is killed and started again.
    Database,
    /// The database is frozen for a while.
    DatabaseFreeze,
    /// Connections to the database are cut in the middle of what they carry.
    Cut,
    /// The disk is full for a while.
    Full,
}

impl Stroke {
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

/// Which actors are struck how often: part of the path, weight.
const TARGETS: &[(&str, u32)] = &[
    ("/conversations/engine:", 38),
    ("/agent:", 16),
    ("/infra/log", 8),
    ("/scheduler", 6),
    ("/breakers/breaker:", 9),
    ("/breakers", 3),
    ("/conversations", 3),
    ("/doors/service:http", 5),
    ("/resources/backends/backend:", 4),
    ("/infra/letters", 2),
    ("/infra/notifier", 2),
    ("/infra/expiry", 1),
    ("/infra/node", 1),
    ("/infra", 1),
    ("/doors", 1),
    ("/resources", 1),
];

/// What it did, and how long it took to recover, in milliseconds.
#[derive(Debug, Default)]
pub struct Deeds {
    pub strokes: BTreeMap<Stroke, u32>,
    pub actors: BTreeMap<String, u32>,
    /// The process ended though nobody had killed it.
    pub unasked_ends: u32,
    /// What it saw itself and must not be.
    pub wrong: Vec<String>,
    pub times_ms: BTreeMap<&'static str, Vec<f64>>,
}

/// Strikes.
pub struct Nemesis {
    pub site: Site,
    pub voice: Voice,
    pub database: Database,
    /// The data is in a folder, which one process has for itself.
    is_alone: bool,
    rng: StdRng,
    pub deeds: Deeds,
    rooms: u32,
}

impl Nemesis {
    pub fn new(site: Site, voice: Voice, database: Database, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed ^ 0x6e65_6d65);
        let is_alone = database.postgres.is_none();
        Self { site, voice, database, is_alone, rng, deeds: Deeds::default(), rooms: 0 }
    }

    /// Carries these strokes out, in any order, spread over so much time.
    pub async fn strike(&mut self, mut strokes: Vec<Stroke>, time: Duration) {
        strokes.shuffle(&mut self.rng);
        let from = Instant::now();
        let each = time / u32::try_from(strokes.len().max(1)).unwrap_or(u32::MAX);
        for (n, stroke) in strokes.into_iter().enumerate() {
            let due = each * u32::try_from(n).unwrap_or(u32::MAX) + each.mul_f64(self.rng.random_range(0.0..1.0));
            while from.elapsed() < due {
                self.look_after().await;
                pause((due - from.elapsed().min(due)).min(Duration::from_millis(20))).await;
            }
            self.look_after().await;
            self.carry_out(stroke).await;
            *self.deeds.strokes.entry(stroke).or_default() += 1;
        }
    }

    /// A process that ended by itself is started again, and counted.
    pub async fn look_after(&mut self) {
        if self.site.has_ended().is_some() {
            self.deeds.unasked_ends += 1;
            self.site.spawn();
            self.site.ready().await;
        }
    }

    fn took(&mut self, what: &'static str, since: Instant) {
        self.deeds.times_ms.entry(what).or_default().push(since.elapsed().as_secs_f64() * 1e3);
    }

    async fn carry_out(&mut self, stroke: Stroke) {
        match stroke {
            Stroke::Actor => self.actor().await,
            Stroke::Process | Stroke::Start => self.process(stroke == Stroke::Start).await,
            Stroke::Freeze => self.freeze().await,
            Stroke::Takeover => self.takeover().await,
            Stroke::Database | Stroke::DatabaseFreeze | Stroke::Cut | Stroke::Full => self.database(stroke).await,
        }
    }

    async fn freeze(&mut self) {
        self.site.signal(Signal::STOP);
        pause(Duration::from_millis(self.rng.random_range(50..2_500))).await;
        if self.is_alone && self.rng.random_bool(0.3) && !self.site.turns_a_second_away().await {
            self.deeds.wrong.push("a second process was let into the folder of a frozen one".to_owned());
        }
        self.site.signal(Signal::CONT);
        let since = Instant::now();
        self.probe().await;
        self.took("SIGCONT to an answer", since);
    }

    async fn takeover(&mut self) {
        self.site.signal(Signal::STOP);
        let since = Instant::now();
        let frozen = self.site.change_guard();
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

    /// Sends a message of its own and waits for the answer.
    async fn probe(&mut self) {
        self.rooms += 1;
        let room = format!("probe-{}", self.rooms);
        self.ask(&room).await;
    }

    async fn ask(&self, room: &str) -> Option<String> {
        // A wait that ends with the process is asked again: the message is the same one.
        let saying = Saying { room, kind: Kind::Plain, class: "high", words: "", wait: true };
        let said = self.voice.say(&saying, false).await;
        said.acks.last().map(|a| a.conversation.clone())
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
            let struck = Instant::now();
            if self.kill(&path).await {
                self.probe().await;
                let what = match path.as_str() {
                    p if p.contains("/agent:") => "agent killed to an answer of another",
                    p if p.contains("/engine:") => "Engine killed to an answer of another",
                    _ => "other actor killed to an answer",
                };
                self.took(what, struck);
                return;
            }
        }
    }

    /// Kills the Engine of a conversation that was just spoken to, and speaks to it again.
    async fn own_engine(&mut self) -> bool {
        self.rooms += 1;
        let room = format!("engine-{}", self.rooms);
        let Some(conversation) = self.ask(&room).await else { return false };
        let struck = Instant::now();
        if !self.kill(&format!("/conversations/engine:{conversation}")).await {
            return false;
        }
        self.ask(&room).await;
        self.took("Engine killed to its own answer", struck);
        true
    }

    /// Chooses somebody who lives.
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
        let answer = self.site.operate("/api/v1/actors/kill", &json!({"path": path, "reason": "soak"})).await;
        // Whoever kills the door gets no answer through it.
        let is_door = path.starts_with("/doors");
        let is_done = answer.map_or(is_door, |(status, _)| status == 200);
        if is_done {
            let kind = path.rsplit('/').next().and_then(|p| p.split(':').next()).unwrap_or_default();
            *self.deeds.actors.entry(kind.to_owned()).or_default() += 1;
        }
        is_done
    }

    async fn database(&mut self, stroke: Stroke) {
        let hold = Duration::from_millis(self.rng.random_range(100..1_500));
        let bytes = self.rng.random_range(1..4_000);
        let database = &self.database;
        let since = Instant::now();
        match stroke {
            Stroke::Database => database.kill_and_start().await,
            Stroke::Cut => database.cut_after(bytes).await,
            Stroke::DatabaseFreeze => database.freeze(hold).await,
            _ => database.fill(hold).await,
        }
        let since = if matches!(stroke, Stroke::Full | Stroke::DatabaseFreeze) { Instant::now() } else { since };
        self.probe().await;
        let what = match stroke {
            Stroke::Database => "database killed to an answer",
            Stroke::Cut => "connections cut to an answer",
            Stroke::DatabaseFreeze => "database thawed to an answer",
            _ => "room again to an answer",
        };
        self.took(what, since);
    }
}

/// Whether the last part of a path begins so.
fn is_last(path: &str, part: &str) -> bool {
    path.rfind(part).is_some_and(|at| !path.get(at + part.len()..).unwrap_or_default().contains('/'))
}
