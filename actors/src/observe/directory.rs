//! The directory of running actors: path to cell, incarnation and gauges. It is kept outside any actor, so that it answers
//! while actors are busy or dead. Ractor's own registry is not used: it is process-wide, and a killed actor frees its name
//! late, so that its next incarnation could not register.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use annie_core::{
    ids::Incarnation,
    ports::{Clock, FaultAction, Faults},
    time::Micros,
};
use dashmap::{DashMap, DashSet};
use parking_lot::Mutex;
use ractor::{ActorCell, ActorId};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use super::branch::Children;
use crate::pulse::Pulse;

/// The path of an actor in the tree: `/conversations/engine:conv_…/agent:search`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Path(Arc<str>);

impl Path {
    /// The root of the tree.
    #[must_use]
    pub fn root() -> Self {
        Self("/".into())
    }

    /// A path from its text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(text.into())
    }

    /// The path of a child.
    #[must_use]
    pub fn child(&self, segment: &str) -> Self {
        if self.0.as_ref() == "/" {
            Self(format!("/{segment}").into())
        } else {
            Self(format!("{}/{segment}", self.0).into())
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The measurements of one incarnation of an actor.
#[derive(Debug)]
pub(crate) struct Meter {
    pub depth: AtomicUsize,
    pub depth_high: AtomicUsize,
    pub handled: AtomicU64,
    pub refused: AtomicU64,
    pub busy_us: AtomicU64,
    /// Monotonic microseconds since which the current handler runs; 0 when idle.
    pub busy_since_us: AtomicU64,
    /// The handler waits for something that has a time limit of its own.
    pub is_waiting: AtomicBool,
    /// An operator ended the actor: its end is not counted as a crash.
    pub is_asked_to_end: AtomicBool,
    pub current: Mutex<&'static str>,
    pub recent: Mutex<VecDeque<&'static str>>,
    /// Faults for the actor's messages on their way; `None` outside tests and chaos runs.
    pub mail: Option<Mail>,
}

/// The source of faults for an actor's messages on their way.
pub(crate) struct Mail {
    pub faults: Arc<dyn Faults>,
    pub kind: &'static str,
    pub path: Path,
}

impl Mail {
    /// The fault to inject into this message, or into the answer to it.
    pub fn at(&self, way: &str, message: &str) -> FaultAction {
        self.faults.in_mail(self.kind, self.path.as_str(), &format!("{way}:{message}"))
    }
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Kinds of recent messages that are kept for a crash record.
const RECENT_MAX: usize = 20;

impl Meter {
    fn new(mail: Option<Mail>) -> Self {
        Self {
            mail,
            depth: AtomicUsize::new(0),
            depth_high: AtomicUsize::new(0),
            handled: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            busy_us: AtomicU64::new(0),
            busy_since_us: AtomicU64::new(0),
            is_waiting: AtomicBool::new(false),
            is_asked_to_end: AtomicBool::new(false),
            current: Mutex::new(""),
            recent: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn begin(&self, name: &'static str, now_us: u64) {
        *self.current.lock() = name;
        let mut recent = self.recent.lock();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(name);
        self.busy_since_us.store(now_us.max(1), Relaxed);
    }

    /// A wait within a handler. The waiting time does not count as busy, and afterwards the handler counts as if it had just
    /// begun.
    pub(crate) async fn wait<T>(&self, clock: &dyn Clock, work: impl Future<Output = T>) -> T {
        let since = self.busy_since_us.load(Relaxed);
        self.busy_us.fetch_add(clock.monotonic_us().saturating_sub(since), Relaxed);
        self.is_waiting.store(true, Relaxed);
        let out = work.await;
        self.busy_since_us.store(clock.monotonic_us().max(1), Relaxed);
        self.is_waiting.store(false, Relaxed);
        out
    }

    pub(crate) fn end(&self, now_us: u64) {
        let since = self.busy_since_us.swap(0, Relaxed);
        self.busy_us.fetch_add(now_us.saturating_sub(since), Relaxed);
        self.handled.fetch_add(1, Relaxed);
    }
}

/// Asks an actor for its view; `None` if it is gone.
type Ask = Arc<dyn Fn(oneshot::Sender<Value>) -> Option<()> + Send + Sync>;

/// The directory's entry of a running actor.
#[derive(Clone)]
pub(crate) struct Entry {
    pub cell: ActorCell,
    pub children: Children,
    pub kind: &'static str,
    pub incarnation: Incarnation,
    pub meter: Arc<Meter>,
    pub started_at: Micros,
    pub mailbox_max: usize,
    pub ask: Ask,
}

impl Entry {
    /// Kills the actor and everything below it.
    pub fn kill(&self) {
        self.cell.kill();
        self.children.kill();
    }
}

/// An actor as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeInfo {
    /// The path of the actor.
    pub path: Path,
    /// The kind of the actor: `engine`, `scheduler` …
    pub kind: &'static str,
    /// The incarnation of the actor. Commands name it, so that they never affect the next incarnation.
    pub incarnation: Incarnation,
    /// `starting`, `running`, `stopping`, `stopped`.
    pub status: String,
    /// When this incarnation started.
    #[serde(serialize_with = "annie_core::time::rfc3339")]
    pub started_at: Micros,
    /// Messages waiting in the mailbox.
    pub mailbox_depth: usize,
    /// The highest number of messages that ever waited.
    pub mailbox_depth_high: usize,
    /// The limit of waiting messages.
    pub mailbox_max: usize,
    /// Messages handled.
    pub handled: u64,
    /// Messages refused because the mailbox was full.
    pub refused: u64,
    /// Time spent in handlers, in microseconds.
    pub busy_us: u64,
    /// The message being handled, if any.
    pub current: Option<&'static str>,
    /// How long it has been handled, in milliseconds; 0 when idle.
    pub current_ms: u64,
}

/// A crash: an end that neither an operator nor the parent requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// The path of the actor.
    pub path: Path,
    /// The incarnation that crashed.
    pub incarnation: Incarnation,
    /// The kind of the actor.
    pub kind: &'static str,
    /// The panic's or error's text, or `killed`.
    pub reason: String,
    /// When the crash was recorded.
    #[serde(serialize_with = "annie_core::time::rfc3339")]
    pub at: Micros,
    /// The kinds of the last messages handled, oldest first.
    pub last_messages: Vec<&'static str>,
}

/// Crashes that are kept.
const CRASHES_MAX: usize = 200;

/// An end of an actor that an operator requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperatedActor {
    /// The path of the actor.
    pub path: Path,
    /// The incarnation that was ended.
    pub incarnation: Incarnation,
    /// The kind of the actor.
    pub kind: &'static str,
    /// `stop`, `kill` or `restart`.
    pub operation: &'static str,
    /// The operator, with the reason that was given.
    pub by: String,
    /// When it was requested.
    #[serde(serialize_with = "annie_core::time::rfc3339")]
    pub at: Micros,
}

/// Operations that are kept.
const OPERATED_MAX: usize = 200;

/// All running actors of one kernel.
pub struct Directory {
    entries: DashMap<Path, Entry>,
    /// The kinds of actors that have run here.
    kinds: DashSet<&'static str>,
    incarnations: AtomicU64,
    crashes: Mutex<VecDeque<Crash>>,
    crashes_total: AtomicU64,
    operated: Mutex<VecDeque<OperatedActor>>,
    /// The counts of the last hour.
    pub(crate) pulse: Arc<Pulse>,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            entries: DashMap::new(),
            kinds: DashSet::new(),
            incarnations: AtomicU64::new(0),
            crashes: Mutex::new(VecDeque::new()),
            crashes_total: AtomicU64::new(0),
            operated: Mutex::new(VecDeque::new()),
            pulse: Arc::default(),
        }
    }

    pub(crate) fn next_incarnation(&self) -> Incarnation {
        Incarnation(self.incarnations.fetch_add(1, Relaxed) + 1)
    }

    pub(crate) fn new_meter(mail: Option<Mail>) -> Arc<Meter> {
        Arc::new(Meter::new(mail))
    }

    pub(crate) fn insert(&self, path: Path, entry: Entry) {
        if !self.kinds.contains(entry.kind) && self.kinds.insert(entry.kind) {
            // A counter that first appears with the value 1 hides its first event from Prometheus' `increase`.
            metrics::counter!("annie_actor_crashes_total", "kind" => entry.kind).increment(0);
            metrics::counter!("annie_actors_stuck_total", "kind" => entry.kind).increment(0);
        }
        self.entries.insert(path, entry);
    }

    pub(crate) fn get(&self, path: &Path) -> Option<Entry> {
        self.entries.get(path).map(|e| e.clone())
    }

    /// Removes the incarnation with this cell; a later incarnation under the same path stays.
    pub(crate) fn remove(&self, path: &Path, cell: ActorId) {
        self.entries.remove_if(path, |_, e| e.cell.get_id() == cell);
    }

    pub(crate) fn crashed(&self, crash: Crash) {
        self.crashes_total.fetch_add(1, Relaxed);
        metrics::counter!("annie_actor_crashes_total", "kind" => crash.kind).increment(1);
        let mut crashes = self.crashes.lock();
        if crashes.len() == CRASHES_MAX {
            crashes.pop_front();
        }
        crashes.push_back(crash);
    }

    /// The last crashes, oldest first.
    #[must_use]
    pub fn crashes(&self) -> Vec<Crash> {
        self.crashes.lock().iter().cloned().collect()
    }

    pub(crate) fn operated(&self, operated: OperatedActor) {
        let mut all = self.operated.lock();
        if all.len() == OPERATED_MAX {
            all.pop_front();
        }
        all.push_back(operated);
    }

    /// The last ends that operators requested, oldest first.
    #[must_use]
    pub fn operations(&self) -> Vec<OperatedActor> {
        self.operated.lock().iter().cloned().collect()
    }

    /// All crashes since the start.
    #[must_use]
    pub fn crashes_total(&self) -> u64 {
        self.crashes_total.load(Relaxed)
    }

    /// How many actors of each kind are running, for all kinds seen so far.
    #[must_use]
    pub fn count_by_kind(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = self.kinds.iter().map(|kind| (*kind, 0)).collect();
        for entry in &self.entries {
            *counts.entry(entry.kind).or_default() += 1;
        }
        counts
    }

    /// The number of running actors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// One actor.
    #[must_use]
    pub fn info(&self, path: &Path, clock: &dyn Clock) -> Option<NodeInfo> {
        self.get(path).map(|e| describe(path.clone(), &e, clock.monotonic_us()))
    }

    /// All actors, sorted by path.
    #[must_use]
    pub fn list(&self, clock: &dyn Clock) -> Vec<NodeInfo> {
        let now_us = clock.monotonic_us();
        let mut all: Vec<NodeInfo> =
            self.entries.iter().map(|e| describe(e.key().clone(), e.value(), now_us)).collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// Actors whose current handler has run for longer than the limit, sorted by path, without those that wait with a time
    /// limit of their own.
    pub(crate) fn stuck(&self, now_us: u64, limit_us: u64) -> Vec<(Path, Entry)> {
        let mut stuck: Vec<(Path, Entry)> = self
            .entries
            .iter()
            .filter(|e| {
                let since = e.meter.busy_since_us.load(Relaxed);
                since > 0 && now_us.saturating_sub(since) > limit_us && !e.meter.is_waiting.load(Relaxed)
            })
            .map(|e| (e.key().clone(), e.value().clone()))
            .collect();
        stuck.sort_by(|(one, _), (other, _)| one.cmp(other));
        stuck
    }
}

fn describe(path: Path, entry: &Entry, now_us: u64) -> NodeInfo {
    let meter = &entry.meter;
    let since = meter.busy_since_us.load(Relaxed);
    NodeInfo {
        path,
        kind: entry.kind,
        incarnation: entry.incarnation,
        status: format!("{:?}", entry.cell.get_status()).to_lowercase(),
        started_at: entry.started_at,
        mailbox_depth: meter.depth.load(Relaxed),
        mailbox_depth_high: meter.depth_high.load(Relaxed),
        mailbox_max: entry.mailbox_max,
        handled: meter.handled.load(Relaxed),
        refused: meter.refused.load(Relaxed),
        busy_us: meter.busy_us.load(Relaxed),
        current: (since > 0).then(|| *meter.current.lock()),
        current_ms: if since > 0 { now_us.saturating_sub(since) / 1_000 } else { 0 },
    }
}
