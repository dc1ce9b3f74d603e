//! State that outlives the scheduler: the granted permits, and for every backend its gate, its rate window and its health. The
//! table is kept beside the actor, so that a new incarnation never grants more rounds than there are slots, respects a closed
//! gate, and forgets no request that a provider has counted.

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
    route::{BackendFacts, BackendState, Health, HealthState, Shut, Window},
    time::Micros,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    SchedulerMsg,
    gate::{Gate, GateGrant, GateRefusal},
    interface::Interface,
    known::Known,
    outcomes::{Change, Outcomes},
    permit::{Permit, Verdict},
};
use crate::{observe::Handle, orders::StandingOrders};

/// The granted permits and the state of the backends, across all incarnations of the scheduler.
pub struct Leases {
    clock: Arc<dyn Clock>,
    breaker: BreakerLimits,
    deadlines: Deadlines,
    names: Vec<Arc<str>>,
    orders: Arc<StandingOrders>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    slots: Vec<BackendSlot>,
    out: BTreeMap<u64, Lease>,
    /// Facts about a task that a new incarnation needs and cannot read from the log.
    marks: HashMap<TaskId, Mark>,
    permits: u64,
    gate_epoch: u64,
    downtime: Option<Downtime>,
}

/// How much of a backend is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendLoad {
    /// The name of the backend.
    pub backend: String,
    /// The granted permits.
    pub permits: usize,
    /// The most permits.
    pub slots: usize,
    /// Whether voice keeps other rounds out.
    pub is_gate_closed: bool,
}

/// One backend.
struct BackendSlot {
    known: Known,
    running: usize,
    gate: Gate,
    window: Window,
    health: Health,
    /// Whether its endpoint failed the last check.
    is_unreachable: bool,
    outcomes: Outcomes,
    /// The last value of its gauge `annie_backend_up`.
    published: Option<bool>,
    /// How its model calls skills, as far as this is known.
    interface: Interface,
    /// Durations of its last rounds in milliseconds, oldest first.
    rounds: VecDeque<u64>,
}

/// Rounds of a backend from which a new incarnation learns.
const ROUNDS_MAX: usize = 32;

struct Lease {
    backend: BackendId,
    task: TaskId,
    since: Micros,
    began: Began,
}

/// State of the backend when a round began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Began {
    Well,
    /// The backend is half-open; this round decides.
    Probe,
    /// The backend was down, and no other one could run the round.
    Down,
}

/// Rounds that a task ran in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub rounds_done: u32,
    pub preemptions: u8,
    /// When its last round ended.
    pub back_at: Option<Micros>,
}

/// The time before this process in which nothing ran. It does not count as waiting for tasks that arrived before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Downtime {
    pub booted_at: Micros,
    /// Duration in milliseconds.
    pub ms: u64,
}

/// Reasons why a backend does not run a round of some class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stance {
    pub is_up: bool,
    pub is_closed: bool,
    pub shut: Option<Shut>,
    /// Whether it refuses requests for longer than this class is kept waiting.
    pub is_shut_too_long: bool,
}

impl Stance {
    /// Whether it runs the round as soon as a slot is free.
    pub const fn takes(&self) -> bool {
        self.is_up && !self.waits()
    }

    /// Whether it runs the round only later, whatever its health.
    pub const fn waits(&self) -> bool {
        self.is_closed || self.shut.is_some()
    }
}

impl Leases {
    /// A table without granted permits.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        breaker: BreakerLimits,
        deadlines: Deadlines,
        backends: &[(BackendFacts, u32)],
    ) -> Self {
        let slots = backends.iter().map(|(facts, slots)| BackendSlot {
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
        let inner = Inner { slots: slots.collect(), ..Inner::default() };
        let names = backends.iter().map(|(facts, _)| facts.name.as_str().into()).collect();
        let leases = Self { clock, breaker, deadlines, names, orders: Arc::default(), inner: Mutex::new(inner) };
        for backend in 0..leases.len() {
            leases.publish_up(backend);
            register_outcomes(leases.name(backend));
        }
        leases
    }

    /// Sets the gauge `annie_backend_up` if it changed.
    pub(super) fn publish_up(&self, backend: usize) {
        let now = self.clock.now();
        let changed = self.with(backend, |slot| {
            let up = slot.is_up(&self.breaker, now) && !slot.outcomes.is_failing();
            (slot.published.replace(up) != Some(up)).then_some(up)
        });
        if let Some(Some(up)) = changed {
            metrics::gauge!("annie_backend_up", "backend" => self.name(backend).to_owned())
                .set(f64::from(u8::from(up)));
        }
    }

    /// The orders of operators.
    pub(crate) const fn orders(&self) -> &Arc<StandingOrders> {
        &self.orders
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
        self.with(backend, |slot| slot.known.slots()).unwrap_or(0)
    }

    /// How much of each backend is in use.
    pub(crate) fn loads(&self) -> Vec<BackendLoad> {
        let inner = self.inner.lock();
        let load = |(name, slot): (&Arc<str>, &BackendSlot)| BackendLoad {
            backend: name.to_string(),
            permits: slot.running,
            slots: slot.known.slots(),
            is_gate_closed: slot.gate.is_closed(),
        };
        self.names.iter().zip(&inner.slots).map(load).collect()
    }

    /// Number of granted permits on a backend.
    pub(super) fn count(&self, backend: usize) -> usize {
        self.with(backend, |slot| slot.running).unwrap_or(0)
    }

    fn with<T>(&self, backend: usize, f: impl FnOnce(&mut BackendSlot) -> T) -> Option<T> {
        self.inner.lock().slots.get_mut(backend).map(f)
    }

    // Permits

    /// Grants a permit for a round.
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
        let slot = inner.slots.get_mut(backend)?;
        slot.running += 1;
        slot.window.started(now);
        let began = match slot.health.admit(&self.breaker, now) {
            Admission::Pass if !slot.is_unreachable => Began::Well,
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
            detail: String::new(),
            choice: None,
            leases: self.clone(),
            scheduler,
        })
    }

    /// Ends a round's permit. `detail` is the error text if the round failed.
    pub(super) fn take_back(&self, permit: u64, verdict: Verdict, detail: &str) {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let Some(lease) = inner.out.remove(&permit) else { return };
        if let Some(mark) = inner.marks.get_mut(&lease.task) {
            mark.back_at = Some(now);
        }
        let backend = usize::from(lease.backend.0);
        let Some(slot) = inner.slots.get_mut(backend) else { return };
        slot.running = slot.running.saturating_sub(1);
        slot.judge(&self.breaker, lease.began, verdict, now);
        let change = slot.note(verdict, detail, lease.since, now);
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

    /// All tasks with a running round, and the backend of each.
    pub(super) fn all_running(&self) -> HashMap<TaskId, usize> {
        self.inner.lock().out.values().map(|l| (l.task, usize::from(l.backend.0))).collect()
    }

    pub(super) fn list(&self) -> Vec<Value> {
        let inner = self.inner.lock();
        let one = |l: &Lease| json!({"task_id": l.task, "backend": self.name(usize::from(l.backend.0)), "since": l.since.to_string()});
        inner.out.values().map(one).collect()
    }

    // Health and window

    /// Reasons why a backend does not run a round of this class.
    pub(super) fn stance(&self, backend: usize, class: Priority, now: Micros) -> Stance {
        self.with(backend, |slot| {
            let shut = slot.window.may_start(class, now).err();
            Stance {
                is_up: slot.is_up(&self.breaker, now),
                is_closed: class != Priority::Realtime && slot.gate.is_closed(),
                shut,
                is_shut_too_long: shut.is_some_and(|shut| self.outlasts(shut, class, now)),
            }
        })
        .unwrap_or(Stance { is_up: false, is_closed: true, shut: None, is_shut_too_long: false })
    }

    fn outlasts(&self, shut: Shut, class: Priority, now: Micros) -> bool {
        self.deadlines.patience_ms(class).is_some_and(|patience_ms| shut.until > now.later_ms(patience_ms))
    }

    /// When a backend that is down may be tried again.
    pub(super) fn down_until(&self, backend: usize, now: Micros) -> Option<Micros> {
        self.with(backend, |slot| match slot.health.state(&self.breaker, now) {
            HealthState::Down { until } => Some(until),
            HealthState::Up | HealthState::Probing => None,
        })
        .flatten()
    }

    /// Records a check of its endpoint; true if it answers now and did not before.
    pub(super) fn checked(&self, backend: usize, is_up: bool) -> bool {
        let is_reachable_again = self.with(backend, |slot| {
            let is_reachable_again = is_up && slot.is_unreachable;
            slot.is_unreachable = !is_up;
            // A reachable endpoint says nothing about failing calls, nor about a key that it rejects.
            let is_about_key =
                matches!(slot.health.last_failure(), Some(ModelErrorKind::Auth | ModelErrorKind::Payment));
            if is_reachable_again && !is_about_key {
                slot.health.reset();
            }
            is_reachable_again
        });
        self.publish_up(backend);
        is_reachable_again == Some(true)
    }

    /// The state of a backend as shown to operators.
    pub(crate) fn view(&self, backend: usize) -> Value {
        let now = self.clock.now();
        self.with(backend, |slot| {
            let shut = |window: &mut Window, class| window.may_start(class, now).err().map(|shut| shut.to_string());
            let window = json!({
                "used": slot.window.used(now), "urgent": shut(&mut slot.window, Priority::High),
                "others": shut(&mut slot.window, Priority::Normal),
            });
            let up = slot.is_up(&self.breaker, now);
            let state = if !up {
                BackendState::Down
            } else if slot.outcomes.is_failing() {
                BackendState::Failing
            } else {
                BackendState::Up
            };
            let mut view = json!({
                "running": slot.running, "up": state == BackendState::Up, "state": state,
                "reachable": !slot.is_unreachable, "health": slot.health.state(&self.breaker, now),
                "failures": slot.health.row().failures, "trips": slot.health.row().trips,
                "outcomes": slot.outcomes.view(), "window": window, "gate": slot.gate.view(now),
                "by_commands": slot.interface.view(now),
            });
            if let (Some(view), Value::Object(known)) = (view.as_object_mut(), slot.known.view()) {
                view.extend(known);
            }
            view
        })
        .unwrap_or(Value::Null)
    }

    // Reports of the servers about themselves

    /// Stores what a backend's server reported about itself.
    pub(crate) fn learn(&self, backend: &str, facts: ServerFacts) {
        let Some(learned) = self.find(backend).and_then(|at| self.with(at, |slot| slot.known.learn(facts))) else {
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

    /// A backend's server gave no answer about itself: it may be asked again after the next round that succeeds.
    pub(crate) fn learn_nothing(&self, backend: &str) {
        if let Some(at) = self.find(backend) {
            self.with(at, |slot| slot.known.learn_nothing());
        }
    }

    /// Whether a backend's server is to be asked again now that a round succeeded there.
    pub(super) fn is_to_be_asked_again(&self, backend: usize) -> bool {
        self.with(backend, |slot| slot.known.is_to_be_asked_again()).unwrap_or(false)
    }

    /// A backend's window in tokens, as configured or as its server reports.
    pub(crate) fn window(&self, backend: &str) -> Option<u32> {
        self.find(backend).and_then(|at| self.with(at, |slot| slot.known.window())).flatten()
    }

    // Interface

    /// Whether turns on a backend are run by commands because its model cannot use tools.
    pub(crate) fn is_by_commands(&self, backend: &str) -> bool {
        let now = self.clock.now();
        let known = |at| self.with(at, |slot| slot.known.knows_no_tools() || slot.interface.is_by_commands(now));
        self.find(backend).and_then(known).unwrap_or(false)
    }

    /// A turn on a backend had to change to commands because its calls did not have the form of calls. Several such turns count
    /// as a property of the backend.
    pub(crate) fn note_unusable_turn(&self, backend: &str) {
        let now = self.clock.now();
        let note = |slot: &mut BackendSlot| slot.interface.note_unusable_turn(now);
        if self.find(backend).and_then(|at| self.with(at, note)).unwrap_or(false) {
            self.use_commands(backend, "several turns had no usable call");
        }
    }

    /// Turns on a backend begin with commands from now on, for an hour. Logged once an hour.
    pub(crate) fn use_commands(&self, backend: &str, why: &str) {
        let now = self.clock.now();
        let change = |slot: &mut BackendSlot| slot.interface.use_commands(why, now);
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
        let Inner { slots, gate_epoch, .. } = &mut *inner;
        let slot = backend.and_then(|b| slots.get_mut(b)).ok_or(GateRefusal::UnknownBackend)?;
        slot.gate.hold(holder, ttl_ms, gate_epoch, now)
    }

    pub(super) fn release_gate(&self, backend: Option<usize>, holder: &str, now: Micros) -> bool {
        backend.and_then(|b| self.with(b, |slot| slot.gate.release(holder, now))).unwrap_or(false)
    }

    /// A REALTIME task is under way on this backend, and on no other.
    pub(super) fn speak(&self, backend: usize, task: TaskId, now: Micros) {
        for (at, slot) in self.inner.lock().slots.iter_mut().enumerate() {
            if at == backend {
                slot.gate.speak(task, now);
            } else {
                slot.gate.fall_silent(task, now);
            }
        }
    }

    pub(super) fn fall_silent(&self, task: TaskId, now: Micros) {
        for slot in &mut self.inner.lock().slots {
            slot.gate.fall_silent(task, now);
        }
    }

    pub(super) fn voices(&self, backend: usize) -> usize {
        self.with(backend, |slot| slot.gate.voices()).unwrap_or(0)
    }

    /// Applies the passing of time to the gates.
    pub(super) fn tick(&self, now: Micros) {
        let mut inner = self.inner.lock();
        let Inner { slots, out, .. } = &mut *inner;
        for (at, slot) in slots.iter_mut().enumerate() {
            slot.gate.tick(now, |task| out.values().any(|l| l.task == task && usize::from(l.backend.0) == at));
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Micros> {
        self.inner.lock().slots.iter().filter_map(|slot| slot.gate.next_expiry()).min()
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

    /// Records the duration of a round, in milliseconds.
    pub(super) fn note_round(&self, backend: usize, ran_ms: u64) {
        if let Some(slot) = self.inner.lock().slots.get_mut(backend) {
            if slot.rounds.len() == ROUNDS_MAX {
                slot.rounds.pop_front();
            }
            slot.rounds.push_back(ran_ms);
        }
    }

    /// Durations of the last rounds in milliseconds, oldest first.
    pub(super) fn last_rounds(&self, backend: usize) -> Vec<u64> {
        self.inner.lock().slots.get(backend).map(|slot| slot.rounds.iter().copied().collect()).unwrap_or_default()
    }

    /// Keeps the first value; later ones are ignored.
    pub(super) fn note_downtime(&self, downtime: Downtime) {
        self.inner.lock().downtime.get_or_insert(downtime);
    }
}

/// Registers all outcome counters with zero: a counter that begins at one hides its first event from Prometheus' `increase`.
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

impl BackendSlot {
    /// Whether a round may be expected to be answered. While a probe is under way this is unknown, and the answer is false.
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

    /// Records the outcome of a judged round that began at `began_at`; returns the change to log.
    fn note(&mut self, verdict: Verdict, detail: &str, began_at: Micros, now: Micros) -> Option<Change> {
        match verdict {
            Verdict::Unused => None,
            Verdict::Fine => self.outcomes.answered(began_at),
            Verdict::Failed { kind: ModelErrorKind::RateLimited, .. } => {
                let shut = self.window.may_start(Priority::Normal, now).err();
                self.outcomes.rate_limited(shut.map_or(0, |shut| shut.until.since_ms(now)), now)
            }
            Verdict::Failed { kind, .. } => self.outcomes.failed(kind, detail, began_at, now),
        }
    }

    /// A backend that answers is reachable. A round that began while the backend was down proves its health, unlike one from
    /// before.
    fn answered(&mut self, began: Began) {
        self.is_unreachable = false;
        if began == Began::Down {
            self.health.reset();
        } else {
            self.health.succeeded(began == Began::Probe);
        }
    }
}

/// Whether a failure proves that the backend is working.
pub(crate) const fn is_answer(kind: ModelErrorKind) -> bool {
    kind.is_about_request() || matches!(kind, ModelErrorKind::RateLimited)
}
