//! What outlives the scheduler: the permits that are out, and of every backend its gate, its rate window and its health. A
//! table beside the actor, so that a new life of it never gives out more than there are slots, lets nothing through a gate
//! that is held, and forgets no request that a provider has counted.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use annie_core::{
    breaker::{Admission, BreakerLimits},
    event::Priority,
    ids::TaskId,
    limits::Deadlines,
    message::ModelErrorKind,
    ports::{Clock, ServerFacts},
    queue::BackendId,
    route::{BackendFacts, Health, HealthState, Shut, Window},
    time::Micros,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    SchedulerMsg,
    gate::{Gate, GateGrant, GateRefusal},
    interface::Interface,
    known::Known,
    outcomes::Outcomes,
    permit::{Permit, Verdict},
};
use crate::observe::Handle;

/// Permits that are out and the state of the backends, of every life of the scheduler.
pub struct Leases {
    clock: Arc<dyn Clock>,
    breaker: BreakerLimits,
    deadlines: Deadlines,
    names: Vec<Arc<str>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    posts: Vec<Post>,
    out: BTreeMap<u64, Lease>,
    /// What a new life must know of a task that the log does not say.
    marks: HashMap<TaskId, Mark>,
    permits: u64,
    gate_epoch: u64,
    downtime: Option<Downtime>,
}

/// One backend.
struct Post {
    known: Known,
    running: usize,
    gate: Gate,
    window: Window,
    health: Health,
    /// Its endpoint did not answer when it was asked whether it is there.
    is_unreachable: bool,
    outcomes: Outcomes,
    /// The last value of its gauge `annie_backend_up`.
    published: Option<bool>,
    /// How its model calls skills, as far as that was found out.
    interface: Interface,
    /// How long its last rounds took, in milliseconds, oldest first.
    rounds: VecDeque<u64>,
}

/// Rounds of a backend that a new life learns from.
const ROUNDS_MAX: usize = 32;

struct Lease {
    backend: BackendId,
    task: TaskId,
    since: Micros,
    began: Began,
}

/// How its backend was when a round began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Began {
    Well,
    /// This round decides.
    Probe,
    /// It was down, and there was nobody else.
    Down,
}

/// Rounds that a task ran in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub rounds_done: u32,
    pub parks: u8,
    /// When its last round came back.
    pub back_at: Option<Micros>,
}

/// The time before this process in which nothing ran: no wait for those who came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Downtime {
    pub booted_at: Micros,
    /// In milliseconds.
    pub ms: u64,
}

/// What keeps a backend from taking a round of some class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stance {
    pub is_up: bool,
    pub is_closed: bool,
    pub shut: Option<Shut>,
    /// It takes no request for longer than this class is kept waiting.
    pub is_shut_too_long: bool,
}

impl Stance {
    /// It takes it, as soon as a slot is free.
    pub const fn takes(&self) -> bool {
        self.is_up && !self.waits()
    }

    /// It takes it later, however it is.
    pub const fn waits(&self) -> bool {
        self.is_closed || self.shut.is_some()
    }
}

impl Leases {
    /// Nothing is out.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        breaker: BreakerLimits,
        deadlines: Deadlines,
        backends: &[(BackendFacts, u32)],
    ) -> Self {
        let posts = backends.iter().map(|(facts, slots)| Post {
            known: Known::new(facts, *slots),
            running: 0,
            gate: Gate::new(deadlines.voice_hard_ms_max()),
            window: Window::new(facts.window),
            health: Health::default(),
            is_unreachable: false,
            outcomes: Outcomes::default(),
            published: None,
            interface: Interface::default(),
            rounds: VecDeque::new(),
        });
        let inner = Inner { posts: posts.collect(), ..Inner::default() };
        let names = backends.iter().map(|(facts, _)| facts.name.as_str().into()).collect();
        let leases = Self { clock, breaker, deadlines, names, inner: Mutex::new(inner) };
        for backend in 0..leases.len() {
            leases.publish_up(backend);
            register_outcomes(leases.name(backend));
        }
        leases
    }

    /// Sets the gauge `annie_backend_up` if it changed.
    pub(super) fn publish_up(&self, backend: usize) {
        let now = self.clock.now();
        let changed = self.with(backend, |post| {
            let up = post.is_up(&self.breaker, now) && !post.outcomes.is_failing();
            (post.published.replace(up) != Some(up)).then_some(up)
        });
        if let Some(Some(up)) = changed {
            metrics::gauge!("annie_backend_up", "backend" => self.name(backend).to_owned())
                .set(f64::from(u8::from(up)));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, backend: usize) -> &str {
        self.names.get(backend).map_or("", |name| name)
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n.as_ref() == name)
    }

    pub(super) fn slots(&self, backend: usize) -> usize {
        self.with(backend, |post| post.known.slots()).unwrap_or(0)
    }

    /// How many are out on a backend.
    pub(super) fn count(&self, backend: usize) -> usize {
        self.with(backend, |post| post.running).unwrap_or(0)
    }

    fn with<T>(&self, backend: usize, f: impl FnOnce(&mut Post) -> T) -> Option<T> {
        self.inner.lock().posts.get_mut(backend).map(f)
    }

    // Permits

    /// Lets a round begin.
    pub(super) fn lease(
        self: &Arc<Self>,
        backend: usize,
        (task, is_task): (TaskId, bool),
        now: Micros,
        scheduler: Handle<SchedulerMsg>,
    ) -> Option<Permit> {
        let name = self.names.get(backend)?.clone();
        let id = BackendId(u16::try_from(backend).ok()?);
        let mut inner = self.inner.lock();
        let post = inner.posts.get_mut(backend)?;
        post.running += 1;
        post.window.started(now);
        let began = match post.health.admit(&self.breaker, now) {
            Admission::Pass if !post.is_unreachable => Began::Well,
            Admission::Probe => Began::Probe,
            Admission::Pass | Admission::Refuse { .. } => Began::Down,
        };
        inner.permits += 1;
        let permit = inner.permits;
        inner.out.insert(permit, Lease { backend: id, task, since: now, began });
        drop(inner);
        Some(Permit {
            id: permit,
            backend: id,
            name,
            is_task,
            ran_ms: 0,
            verdict: Verdict::Unused,
            why: String::new(),
            leases: self.clone(),
            scheduler,
        })
    }

    /// Ends a round's permit. `why` is the failure's text, if it failed.
    pub(super) fn take_back(&self, permit: u64, verdict: Verdict, why: &str) {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let Some(lease) = inner.out.remove(&permit) else { return };
        if let Some(mark) = inner.marks.get_mut(&lease.task) {
            mark.back_at = Some(now);
        }
        let backend = usize::from(lease.backend.0);
        let Some(post) = inner.posts.get_mut(backend) else { return };
        post.running = post.running.saturating_sub(1);
        post.judge(&self.breaker, lease.began, verdict, now);
        let change = match verdict {
            Verdict::Unused => None,
            Verdict::Fine => post.outcomes.answered(),
            Verdict::Failed { kind, .. } => post.outcomes.failed(kind, why, now),
        };
        drop(inner);
        if let Some(change) = change {
            change.log(self.name(backend));
        }
        self.publish_up(backend);
    }

    /// Whether a round of this task runs.
    pub(crate) fn is_out(&self, task: TaskId) -> bool {
        self.inner.lock().out.values().any(|l| l.task == task)
    }

    /// All tasks with a round that runs, and where.
    pub(super) fn all_running(&self) -> HashMap<TaskId, usize> {
        self.inner.lock().out.values().map(|l| (l.task, usize::from(l.backend.0))).collect()
    }

    pub(super) fn list(&self) -> Vec<Value> {
        let inner = self.inner.lock();
        let one = |l: &Lease| json!({"task_id": l.task, "backend": self.name(usize::from(l.backend.0)), "since": l.since.to_string()});
        inner.out.values().map(one).collect()
    }

    // Health and window

    /// What keeps a backend from taking a round of this class.
    pub(super) fn stance(&self, backend: usize, class: Priority, now: Micros) -> Stance {
        self.with(backend, |post| {
            let shut = post.window.may_start(class, now).err();
            Stance {
                is_up: post.is_up(&self.breaker, now),
                is_closed: class != Priority::Realtime && post.gate.is_closed(),
                shut,
                is_shut_too_long: shut.is_some_and(|shut| self.outlasts(shut, class, now)),
            }
        })
        .unwrap_or(Stance { is_up: false, is_closed: true, shut: None, is_shut_too_long: false })
    }

    fn outlasts(&self, shut: Shut, class: Priority, now: Micros) -> bool {
        self.deadlines.patience_ms(class).is_some_and(|patience_ms| shut.until > now.later_ms(patience_ms))
    }

    /// When a backend that is down may be asked again.
    pub(super) fn down_until(&self, backend: usize, now: Micros) -> Option<Micros> {
        self.with(backend, |post| match post.health.state(&self.breaker, now) {
            HealthState::Down { until } => Some(until),
            HealthState::Up | HealthState::Probing => None,
        })
        .flatten()
    }

    /// Its endpoint was asked whether it is there; true if it was not before.
    pub(super) fn checked(&self, backend: usize, is_up: bool) -> bool {
        let is_back = self.with(backend, |post| {
            let is_back = is_up && post.is_unreachable;
            post.is_unreachable = !is_up;
            // An endpoint that was always there proves nothing about its calls, nor about a key that it refuses.
            let is_about_key =
                matches!(post.health.last_failure(), Some(ModelErrorKind::Auth | ModelErrorKind::Payment));
            if is_back && !is_about_key {
                post.health.reset();
            }
            is_back
        });
        self.publish_up(backend);
        is_back == Some(true)
    }

    /// What operators see of a backend.
    pub(crate) fn view(&self, backend: usize) -> Value {
        let now = self.clock.now();
        self.with(backend, |post| {
            let shut = |window: &mut Window, class| window.may_start(class, now).err().map(|shut| shut.to_string());
            let window = json!({
                "used": post.window.used(now), "urgent": shut(&mut post.window, Priority::High),
                "others": shut(&mut post.window, Priority::Normal),
            });
            let up = post.is_up(&self.breaker, now);
            let state = if !up {
                "down"
            } else if post.outcomes.is_failing() {
                "failing"
            } else {
                "up"
            };
            let mut view = json!({
                "running": post.running, "up": state == "up", "state": state,
                "reachable": !post.is_unreachable, "health": post.health.state(&self.breaker, now),
                "failures": post.health.row().failures, "trips": post.health.row().trips,
                "outcomes": post.outcomes.view(), "window": window, "gate": post.gate.view(now),
                "by_commands": post.interface.view(now),
            });
            if let (Some(view), Value::Object(known)) = (view.as_object_mut(), post.known.view()) {
                view.extend(known);
            }
            view
        })
        .unwrap_or(Value::Null)
    }

    // What servers say of themselves

    /// A backend's server said what it is and what it can.
    pub(crate) fn learn(&self, backend: &str, facts: ServerFacts) {
        let Some(learned) = self.find(backend).and_then(|at| self.with(at, |post| post.known.learn(facts))) else {
            return;
        };
        if let Some((configured, server)) = learned.too_large {
            tracing::warn!(
                backend,
                configured,
                server,
                "context_tokens_max is larger than the window of the server, which refuses or cuts longer prompts: lower it, or \
                 start the server with a larger window"
            );
        }
        if learned.knows_no_tools {
            self.use_commands(backend, "its server says that the model knows no tools");
        }
    }

    /// A backend's server was asked what it is, and gave no answer: it may be asked again when a round went well.
    pub(crate) fn learn_nothing(&self, backend: &str) {
        if let Some(at) = self.find(backend) {
            self.with(at, |post| post.known.learn_nothing());
        }
    }

    /// Whether a backend's server is to be asked again now that a round went well there.
    pub(super) fn is_to_be_asked_again(&self, backend: usize) -> bool {
        self.with(backend, |post| post.known.is_to_be_asked_again()).unwrap_or(false)
    }

    /// A backend's window in tokens, as it is configured or as its server says.
    pub(crate) fn window(&self, backend: &str) -> Option<u32> {
        self.find(backend).and_then(|at| self.with(at, |post| post.known.window())).flatten()
    }

    // Interface

    /// Whether turns on a backend are run by commands because its model cannot use tools.
    pub(crate) fn is_by_commands(&self, backend: &str) -> bool {
        let now = self.clock.now();
        let known = |at| self.with(at, |post| post.known.knows_no_tools() || post.interface.is_by_commands(now));
        self.find(backend).and_then(known).unwrap_or(false)
    }

    /// A turn on a backend had to change to commands because its calls had not the form of calls. Several such turns are
    /// taken for the backend's own way.
    pub(crate) fn note_unusable_turn(&self, backend: &str) {
        let now = self.clock.now();
        let note = |post: &mut Post| post.interface.note_unusable_turn(now);
        if self.find(backend).and_then(|at| self.with(at, note)).unwrap_or(false) {
            self.use_commands(backend, "several turns had no usable call");
        }
    }

    /// Turns on a backend begin with commands from now on, for an hour. Said once an hour.
    pub(crate) fn use_commands(&self, backend: &str, why: &str) {
        let now = self.clock.now();
        let change = |post: &mut Post| post.interface.use_commands(why, now);
        if self.find(backend).and_then(|at| self.with(at, change)).unwrap_or(false) {
            metrics::counter!("annie_interface_fallbacks_total", "backend" => backend.to_owned()).increment(1);
            tracing::warn!(
                backend,
                why,
                "its model cannot use tools: turns on it begin with commands for an hour; set interface = \"cmd\" for this \
                 backend to begin with them always"
            );
        }
    }

    // Gates

    pub(super) fn hold_gate(
        &self,
        backend: Option<usize>,
        holder: &str,
        ttl_ms: u64,
        now: Micros,
    ) -> Result<GateGrant, GateRefusal> {
        let mut inner = self.inner.lock();
        let Inner { posts, gate_epoch, .. } = &mut *inner;
        let post = backend.and_then(|b| posts.get_mut(b)).ok_or(GateRefusal::UnknownBackend)?;
        post.gate.hold(holder, ttl_ms, gate_epoch, now)
    }

    pub(super) fn release_gate(&self, backend: Option<usize>, holder: &str, now: Micros) -> bool {
        backend.and_then(|b| self.with(b, |post| post.gate.release(holder, now))).unwrap_or(false)
    }

    /// A REALTIME task is under way on a backend, and on no other.
    pub(super) fn speak(&self, backend: usize, task: TaskId, now: Micros) {
        for (at, post) in self.inner.lock().posts.iter_mut().enumerate() {
            if at == backend {
                post.gate.speak(task, now);
            } else {
                post.gate.fall_silent(task, now);
            }
        }
    }

    pub(super) fn fall_silent(&self, task: TaskId, now: Micros) {
        for post in &mut self.inner.lock().posts {
            post.gate.fall_silent(task, now);
        }
    }

    pub(super) fn voices(&self, backend: usize) -> usize {
        self.with(backend, |post| post.gate.voices()).unwrap_or(0)
    }

    /// Lets time pass at the gates.
    pub(super) fn tick(&self, now: Micros) {
        let mut inner = self.inner.lock();
        let Inner { posts, out, .. } = &mut *inner;
        for (at, post) in posts.iter_mut().enumerate() {
            post.gate.tick(now, |task| out.values().any(|l| l.task == task && usize::from(l.backend.0) == at));
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Micros> {
        self.inner.lock().posts.iter().filter_map(|post| post.gate.next_expiry()).min()
    }

    // Marks

    pub(super) fn mark(&self, task: TaskId, mark: Mark) {
        self.inner.lock().marks.insert(task, mark);
    }

    pub(super) fn marked(&self, task: TaskId) -> Option<Mark> {
        self.inner.lock().marks.get(&task).copied()
    }

    pub(super) fn unmark(&self, task: TaskId) {
        self.inner.lock().marks.remove(&task);
    }

    pub(super) fn keep_marks(&self, keep: impl Fn(TaskId) -> bool) {
        self.inner.lock().marks.retain(|task, _| keep(*task));
    }

    pub(super) fn downtime(&self) -> Option<Downtime> {
        self.inner.lock().downtime
    }

    /// A round took so long.
    pub(super) fn note_round(&self, backend: usize, ran_ms: u64) {
        if let Some(post) = self.inner.lock().posts.get_mut(backend) {
            if post.rounds.len() == ROUNDS_MAX {
                post.rounds.pop_front();
            }
            post.rounds.push_back(ran_ms);
        }
    }

    /// How long the last rounds took, oldest first.
    pub(super) fn last_rounds(&self, backend: usize) -> Vec<u64> {
        self.inner.lock().posts.get(backend).map(|post| post.rounds.iter().copied().collect()).unwrap_or_default()
    }

    /// Keeps the first that is told.
    pub(super) fn note_downtime(&self, downtime: Downtime) {
        self.inner.lock().downtime.get_or_insert(downtime);
    }
}

/// A counter that begins at one hides its first event from Prometheus' `increase`.
fn register_outcomes(backend: &str) {
    use ModelErrorKind as Kind;
    let failures = [Kind::RateLimited, Kind::Auth, Kind::Payment, Kind::Timeout, Kind::Truncated, Kind::Unavailable];
    let failures = failures.into_iter().chain([Kind::InvalidRequest, Kind::Protocol, Kind::Overflow, Kind::Content]);
    let failures = failures.chain([Kind::InDoubt, Kind::ToolsUnsupported]);
    for outcome in failures.map(|kind| kind.as_str()).chain(["ok"]) {
        let counter =
            metrics::counter!("annie_llm_requests_total", "backend" => backend.to_owned(), "outcome" => outcome);
        counter.increment(0);
    }
}

impl Post {
    /// Whether a round may be expected to be answered. While a probe is out nobody knows.
    fn is_up(&self, limits: &BreakerLimits, now: Micros) -> bool {
        use annie_core::breaker::BreakerState;
        let is_well = match self.health.state(limits, now) {
            HealthState::Up => true,
            HealthState::Probing => self.health.row().state != BreakerState::HalfOpen,
            HealthState::Down { .. } => false,
        };
        is_well && !self.is_unreachable
    }

    fn judge(&mut self, limits: &BreakerLimits, began: Began, verdict: Verdict, now: Micros) {
        let is_probe = began == Began::Probe;
        match verdict {
            Verdict::Unused if is_probe => self.health.probe_lost(),
            Verdict::Unused => {}
            Verdict::Fine => self.answered(began),
            Verdict::Failed { kind, retry_after_ms } => {
                if kind == ModelErrorKind::RateLimited {
                    self.window.rate_limited(retry_after_ms, now);
                }
                self.health.failed(limits, kind, is_probe, now);
                if is_answer(kind) {
                    self.answered(began);
                }
            }
        }
    }

    /// Whoever answers is there. A round that began while it was down is proof, unlike one from before.
    fn answered(&mut self, began: Began) {
        self.is_unreachable = false;
        if began == Began::Down {
            self.health.reset();
        } else {
            self.health.succeeded(began == Began::Probe);
        }
    }
}

/// Failures that only somebody who is well can tell of.
pub(crate) const fn is_answer(kind: ModelErrorKind) -> bool {
    kind.is_about_request() || matches!(kind, ModelErrorKind::RateLimited)
}
