//! Whose round runs next.
//!
//! Owns: the queue, the slots of every backend, the voice gate. Supervised by: the root. Survives its death: the permits that
//! are out (the lease table lives beside it), the tasks (in the store); whoever waited asks the next life again. Nothing
//! polls: it acts on requests, returned permits, and the one timer of a gate that runs out.

mod gate;
mod permit;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    queue::{Admission, BackendId, Queue, QueueLimits, Refusal, Waiting},
    time::Micros,
};
use gate::Gates;
pub use gate::{GateGrant, GateRefusal};
pub(crate) use permit::acquire;
pub use permit::{Leases, Permit, PermitRequest};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    observe::{Context, Handle, Named, Node, NodeError},
    tasks::Tasks,
};

/// A place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// How many rounds start before this task's, at best.
    pub position: usize,
    /// When its first round may be expected to start, in milliseconds.
    pub start_in_ms: u64,
}

/// What the scheduler hears.
pub enum SchedulerMsg {
    /// Asks for a place for a new task.
    Admit {
        /// The task.
        task: TaskId,
        /// Whose.
        user: UserId,
        /// In which conversation.
        conversation: ConversationId,
        /// Its class.
        priority: Priority,
        /// Whom to answer.
        reply: oneshot::Sender<Result<Place, Refusal>>,
    },
    /// A task that was admitted was not stored after all.
    Forget {
        /// Which.
        task: TaskId,
    },
    /// Asks for the right to one round.
    Acquire {
        /// For what.
        request: PermitRequest,
        /// Whom to give it.
        reply: oneshot::Sender<Permit>,
    },
    /// A permit came back.
    Released {
        /// On which backend.
        backend: BackendId,
        /// How long it was out, in milliseconds.
        ran_ms: u64,
    },
    /// A task has ended.
    Ended {
        /// Which.
        task: TaskId,
    },
    /// Closes the gate for everything but voice, or keeps it closed.
    HoldGate {
        /// On which backend.
        backend: String,
        /// Who holds it.
        holder: String,
        /// For how long unless renewed, in milliseconds.
        ttl_ms: u64,
        /// Whom to answer.
        reply: oneshot::Sender<Result<GateGrant, GateRefusal>>,
    },
    /// Opens the gate again.
    ReleaseGate {
        /// On which backend.
        backend: String,
        /// Who held it.
        holder: String,
        /// Whom to answer: whether it was held by them.
        reply: oneshot::Sender<bool>,
    },
    /// A gate may have run out.
    GateTimer,
    /// Who stands where.
    List {
        /// Whom to answer.
        reply: oneshot::Sender<Value>,
    },
}

impl Named for SchedulerMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Admit { .. } => "Admit",
            Self::Forget { .. } => "Forget",
            Self::Acquire { .. } => "Acquire",
            Self::Released { .. } => "Released",
            Self::Ended { .. } => "Ended",
            Self::HoldGate { .. } => "HoldGate",
            Self::ReleaseGate { .. } => "ReleaseGate",
            Self::GateTimer => "GateTimer",
            Self::List { .. } => "List",
        }
    }
}

/// What the scheduler starts from.
#[derive(Clone)]
pub(crate) struct SchedulerArgs {
    /// Backends in the order of their numbers: name and slots. The first is everybody's unless they say.
    pub backends: Vec<(String, u32)>,
    pub limits: QueueLimits,
    pub leases: Arc<Leases>,
    pub me: Handle<SchedulerMsg>,
}

struct Ticket {
    request: PermitRequest,
    reply: oneshot::Sender<Permit>,
}

/// The scheduler's state.
pub(crate) struct SchedulerState {
    args: SchedulerArgs,
    queue: Queue,
    /// Requests of tasks that wait in the queue, in the order in which they came.
    tickets: HashMap<TaskId, VecDeque<Ticket>>,
    /// Voice does not queue: only for a slot to be free.
    urgent: BTreeMap<BackendId, VecDeque<Ticket>>,
    /// Tasks whose round runs or which are between rounds: what the queue gave out.
    given: HashMap<TaskId, Waiting>,
    gates: Gates,
    timer: Tasks<()>,
    granted: u64,
}

/// The scheduler.
pub(crate) struct Scheduler;

/// A task that is admitted but has not asked for a round yet: it takes up a place and cannot be chosen.
const NOT_ASKING: Micros = Micros(i64::MAX / 4);

impl Node for Scheduler {
    type Msg = SchedulerMsg;
    type Args = SchedulerArgs;
    type State = SchedulerState;
    const KIND: &'static str = "scheduler";
    const MAILBOX_MAX: usize = 100_000;

    fn init(ctx: &Context<Self>, args: SchedulerArgs) -> Result<SchedulerState, NodeError> {
        let mut queue = Queue::new(args.limits.clone());
        for (n, (_, slots)) in (0_u16..).zip(&args.backends) {
            queue.set_slots(BackendId(n), *slots);
        }
        let gates = Gates::new(args.backends.len(), args.leases.next_gate_epoch());
        Ok(SchedulerState {
            args,
            queue,
            tickets: HashMap::new(),
            urgent: BTreeMap::new(),
            given: HashMap::new(),
            gates,
            timer: Tasks::of(ctx.cell()),
            granted: 0,
        })
    }

    async fn handle(ctx: &Context<Self>, state: &mut SchedulerState, msg: SchedulerMsg) -> Result<(), NodeError> {
        let now = ctx.now();
        match msg {
            SchedulerMsg::Admit { task, user, conversation, priority, reply } => {
                let place = admit(state, Waiting::new(task, user, conversation, priority, BackendId(0), now), now);
                // Whoever asked may have left; then the task is never stored and its place is forgotten.
                if reply.send(place).is_err() {
                    state.queue.remove(task);
                }
            }
            SchedulerMsg::Forget { task } | SchedulerMsg::Ended { task } => {
                state.queue.remove(task);
                state.given.remove(&task);
                state.tickets.remove(&task);
            }
            SchedulerMsg::Acquire { request, reply } => acquire_round(state, Ticket { request, reply }, now),
            SchedulerMsg::Released { backend, ran_ms } => {
                state.queue.observe_round(backend, ran_ms);
                dispatch(state, backend, now);
            }
            SchedulerMsg::HoldGate { backend, holder, ttl_ms, reply } => {
                let held = state.gates.hold(backend_of(state, &backend), &holder, ttl_ms, now);
                let _ = reply.send(held);
                // Another backend's gate may have run out just now, and its timer goes with the new one.
                dispatch_all(state, now);
                set_timer(ctx, state, now);
            }
            SchedulerMsg::ReleaseGate { backend, holder, reply } => {
                let at = backend_of(state, &backend);
                let _ = reply.send(state.gates.release(at, &holder, now));
                dispatch_all(state, now);
            }
            SchedulerMsg::GateTimer => {
                state.timer.remove(&());
                state.gates.expire(now);
                dispatch_all(state, now);
                set_timer(ctx, state, now);
            }
            SchedulerMsg::List { reply } => {
                let _ = reply.send(list(state, now));
            }
        }
        Ok(())
    }

    fn view(state: &SchedulerState) -> Value {
        let backends: Vec<Value> = (0_u16..)
            .zip(&state.args.backends)
            .map(|(n, (name, slots))| {
                json!({
                    "backend": name, "slots": slots, "running": state.args.leases.count(BackendId(n)),
                    "ready": state.queue.ready(BackendId(n)), "round_ms": state.queue.round_ms(BackendId(n)),
                    "gate": state.gates.view(usize::from(n))
                })
            })
            .collect();
        json!({"waiting": state.queue.len(), "granted": state.granted, "backends": backends})
    }
}

fn backend_of(state: &SchedulerState, name: &str) -> Option<usize> {
    if name.is_empty() {
        return (!state.args.backends.is_empty()).then_some(0);
    }
    state.args.backends.iter().position(|(n, _)| n == name)
}

fn admit(state: &mut SchedulerState, mut waiting: Waiting, now: Micros) -> Result<Place, Refusal> {
    if waiting.class == Priority::Realtime {
        return Ok(Place { position: 1, start_in_ms: 0 });
    }
    let (task, backend) = (waiting.task, waiting.backend);
    waiting.not_before = Some(NOT_ASKING);
    let slots = state.args.backends.first().map_or(1, |(_, slots)| *slots as usize);
    let busy = state.args.leases.count(backend) + state.queue.len();
    if busy < slots {
        // A free slot is no queue: depth limits are for what has to wait.
        state.queue.restore(waiting, now);
        return Ok(Place { position: 1, start_in_ms: 0 });
    }
    match state.queue.admit(waiting, now) {
        Admission::RunNow | Admission::Queued | Admission::Coalesced { .. } => {
            let ahead = busy + 1 - slots.min(busy);
            let rank = state.queue.position(task, now);
            Ok(Place { position: ahead, start_in_ms: rank.map_or(0, |_| state.queue.round_ms(backend) * ahead as u64) })
        }
        Admission::Refused(refusal) => {
            metrics::counter!("annie_tasks_refused_total", "priority" => refusal.class.as_str()).increment(1);
            Err(refusal)
        }
    }
}

fn acquire_round(state: &mut SchedulerState, ticket: Ticket, now: Micros) {
    let request = &ticket.request;
    let (task, backend) = (request.task, BackendId(0));
    if request.priority == Priority::Realtime {
        state.urgent.entry(backend).or_default().push_back(ticket);
        return dispatch(state, backend, now);
    }
    if let Some(tickets) = state.tickets.get_mut(&task) {
        tickets.push_back(ticket);
        return;
    }
    let fresh = Waiting::new(
        task,
        request.user.clone(),
        request.conversation,
        request.priority,
        backend,
        request.since.min(now),
    );
    state.tickets.insert(task, VecDeque::from([ticket]));
    match state.given.remove(&task) {
        // Between its rounds: parked if somebody urgent waits, otherwise at the end of its equals.
        Some(waiting) if state.queue.should_park(&waiting, now) => state.queue.park(waiting, now),
        Some(waiting) => state.queue.yield_back(waiting, now),
        None => {
            let waiting = state.queue.remove(task).map(|w| Waiting { not_before: None, anchor: fresh.anchor, ..w });
            state.queue.restore(waiting.unwrap_or(fresh), now)
        }
    };
    dispatch(state, backend, now);
}

fn dispatch_all(state: &mut SchedulerState, now: Micros) {
    for n in (0_u16..).take(state.args.backends.len()) {
        dispatch(state, BackendId(n), now);
    }
}

/// Gives out rounds while slots are free: voice first, and nothing else while the gate is closed (invariant 9).
fn dispatch(state: &mut SchedulerState, backend: BackendId, now: Micros) {
    let Some((name, slots)) = state.args.backends.get(usize::from(backend.0)).cloned() else { return };
    while state.args.leases.count(backend) < slots as usize {
        if let Some(ticket) = state.urgent.get_mut(&backend).and_then(VecDeque::pop_front) {
            give(state, backend, &name, ticket, now);
            continue;
        }
        if state.gates.is_closed(usize::from(backend.0), now) {
            break;
        }
        let Some(grant) = state.queue.pop(backend, now) else { break };
        let task = grant.waiting.task;
        let Some(tickets) = state.tickets.get_mut(&task) else { continue };
        let ticket = tickets.pop_front();
        if tickets.is_empty() {
            state.tickets.remove(&task);
            // Who asked may be dead, and its task at an end: then nobody tells of the end again.
            if ticket.as_ref().is_some_and(|t| !t.reply.is_closed()) {
                state.given.insert(task, grant.waiting);
            }
        } else {
            // A task with parallel agents: its other rounds stand where they stood.
            state.queue.restore(grant.waiting, now);
        }
        if let Some(ticket) = ticket {
            give(state, backend, &name, ticket, now);
        }
    }
}

fn give(state: &mut SchedulerState, backend: BackendId, name: &str, ticket: Ticket, now: Micros) {
    if ticket.reply.is_closed() {
        return;
    }
    #[expect(clippy::cast_precision_loss, reason = "a duration in a histogram")]
    metrics::histogram!("annie_queue_wait_seconds", "priority" => ticket.request.priority.as_str())
        .record(now.since_ms(ticket.request.since) as f64 / 1e3);
    state.granted += 1;
    let permit = state.args.leases.lease(backend, name, ticket.request.task, now, state.args.me.clone());
    // Whoever asked may have died just now: then the permit is dropped with the answer, and comes back.
    let _ = ticket.reply.send(permit);
}

fn set_timer(ctx: &Context<Scheduler>, state: &mut SchedulerState, now: Micros) {
    let Some(at) = state.gates.next_expiry() else { return };
    let me = ctx.me();
    let wait = Duration::from_millis(at.since_ms(now) + 1);
    state.timer.spawn((), async move {
        tokio::time::sleep(wait).await;
        me.tell(SchedulerMsg::GateTimer);
    });
}

fn list(state: &mut SchedulerState, now: Micros) -> Value {
    let mut waiting = Vec::new();
    for n in (0_u16..).take(state.args.backends.len()) {
        for rank in state.queue.list(BackendId(n), now) {
            let asking = state.tickets.contains_key(&rank.task);
            waiting.push(json!({
                "task": rank.task, "priority": rank.class, "position": rank.position,
                "effective": rank.effective, "waited_ms": if asking { rank.waited_ms } else { 0 },
                "start_in_ms": if asking { Some(rank.start_in_ms) } else { None },
                "why": if asking { rank.why.to_string() } else { "behind another message of its conversation, or just admitted".to_owned() },
            }));
        }
    }
    let running: Vec<Value> = state.args.leases.list();
    json!({"waiting": waiting, "running": running})
}
