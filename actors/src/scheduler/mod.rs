//! Whose round runs next.
//!
//! Owns: the queue and who stands in it. Supervised by: the root. Survives its death: the permits that are out, the gates,
//! windows and health of the backends (a table beside it), and the tasks (in the store, from which a new life reads who is
//! held back, put off or waits for others; until then nothing but voice is granted). Whoever waited for a round asks the
//! next life again. Nothing polls: it acts on requests, returned permits, and one timer for what changes by itself.

mod admit;
mod answered;
mod desk;
mod gate;
mod interface;
mod known;
mod leases;
mod load;
mod lobby;
mod outcomes;
mod permit;
mod routes;
mod show;
mod steer;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use admit::Newcomer;
pub use admit::Place;
use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    ports::{Records, StoreError, StoreErrorKind},
    queue::{BackendId, QueueLimits, Refusal, RefusalReason, WorkKey},
    time::Micros,
};
use desk::Desk;
pub use gate::{GateGrant, GateRefusal};
pub use leases::Leases;
pub(crate) use leases::is_answer;
pub(crate) use load::open_tasks;
use load::{Began, Found, Looks};
pub use permit::{NoPermit, Permit, PermitRequest, Verdict};
pub(crate) use permit::{Wish, acquire};
use serde_json::Value;
pub use show::{Stand, StandState};
pub use steer::Steering;
use steer::Steers;
use tokio::sync::oneshot;

use crate::{
    backend::BackendMsg,
    conversations::ConversationsMsg,
    observe::{Context, Handle, Named, Node, NodeError},
    tasks::{Tasks, caught},
};

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
        /// What it is to do, if equal work may be done once.
        work: Option<WorkKey>,
        /// Its first round starts at this time at the earliest.
        not_before: Option<Micros>,
        /// Its first round starts when these have ended.
        after: Vec<TaskId>,
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
        reply: oneshot::Sender<Result<Permit, NoPermit>>,
    },
    /// A permit came back.
    Released {
        /// On which backend.
        backend: BackendId,
        /// Whether it was a round of the backend's chat model for a task.
        is_task: bool,
        /// How long its round took, in milliseconds.
        ran_ms: u64,
        /// What became of it.
        verdict: Verdict,
    },
    /// A task has ended.
    Ended {
        /// Which.
        task: TaskId,
    },
    /// A task is held back by its user, or let go on. The round under way ends as it would.
    Hold {
        /// Which.
        task: TaskId,
        /// Whether it is held back.
        held: bool,
    },
    /// A task gets no further round before a time.
    Defer {
        /// Which.
        task: TaskId,
        /// Until when.
        until: Micros,
        /// Its model failed: it goes on as soon as that answers again, if this is sooner.
        after_failure: bool,
    },
    /// A task has another class from now on.
    Reprioritise {
        /// Which.
        task: TaskId,
        /// Its class.
        priority: Priority,
    },
    /// An order about tasks, which takes no place: others may wait for it.
    Order {
        /// Its task.
        task: TaskId,
        /// Whose.
        user: UserId,
    },
    /// Asks whether a conversation may be steered now.
    Steer {
        /// Which.
        conversation: ConversationId,
        /// By which task: it takes no place, unless it gets a turn of its own.
        task: TaskId,
        /// Whose.
        user: UserId,
        /// Whom to answer; if not, when to ask again, in milliseconds.
        reply: oneshot::Sender<Result<Steering, u64>>,
    },
    /// Something may be stored that it was not told of.
    Reread,
    /// Other processes may have stored something: it is read soon, and much of it at once.
    Woken,
    /// Asks how tasks stand.
    Stand {
        /// Which.
        tasks: Vec<TaskId>,
        /// Whom to answer; unknown ones are left out.
        reply: oneshot::Sender<Vec<Stand>>,
    },
    /// A backend was asked whether it is there.
    BackendChecked {
        /// Which.
        backend: String,
        /// Whether it is.
        up: bool,
    },
    /// A backend's server said how many rounds it takes at a time.
    BackendDescribed {
        /// Which.
        backend: String,
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
    /// Something may have changed by itself: a gate's term, a window, a task whose time has come.
    Due,
    /// The task table was read, or not.
    Looked(Result<Found, StoreError>),
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
            Self::Hold { .. } => "Hold",
            Self::Defer { .. } => "Defer",
            Self::Reprioritise { .. } => "Reprioritise",
            Self::Order { .. } => "Order",
            Self::Steer { .. } => "Steer",
            Self::Reread => "Reread",
            Self::Woken => "Woken",
            Self::Stand { .. } => "Stand",
            Self::BackendChecked { .. } => "BackendChecked",
            Self::BackendDescribed { .. } => "BackendDescribed",
            Self::HoldGate { .. } => "HoldGate",
            Self::ReleaseGate { .. } => "ReleaseGate",
            Self::Due => "Due",
            Self::Looked(_) => "Looked",
            Self::List { .. } => "List",
        }
    }

    fn again(&self) -> Option<Self> {
        match self {
            Self::Ended { task } => Some(Self::Ended { task: *task }),
            Self::Due => Some(Self::Due),
            _ => None,
        }
    }
}

/// What the scheduler starts from.
#[derive(Clone)]
pub(crate) struct SchedulerArgs {
    pub limits: QueueLimits,
    pub leases: Arc<Leases>,
    pub records: Arc<dyn Records>,
    pub me: Handle<SchedulerMsg>,
    /// Told which tasks may go on because their model answers again.
    pub conversations: Handle<ConversationsMsg>,
    /// The actors of the backends, in the backends' order: told when one is to be looked after.
    pub backends: Vec<Handle<BackendMsg>>,
}

/// The scheduler's own work.
#[derive(PartialEq, Eq, Hash)]
enum Work {
    Timer,
    Look,
    Gather,
}

/// The scheduler's state.
pub(crate) struct SchedulerState {
    args: SchedulerArgs,
    desk: Desk,
    steers: Steers,
    looks: Looks,
    /// What came before the task table was read and cannot be answered without it, in order.
    early: Vec<SchedulerMsg>,
    work: Tasks<Work>,
    timer_at: Option<Micros>,
    /// Which backends were up when their actors were last told.
    told_up: Vec<bool>,
    born_at: Micros,
}

/// Requests that may wait for the task table to be read; one more is refused.
const EARLY_MAX: u32 = 5_000;
/// How long the task table may take to be read, in milliseconds.
const LOOK_MS_MAX: u64 = 30_000;
/// After which a task table that could not be read is tried again, in milliseconds.
const LOOK_AGAIN_MS: u64 = 1_000;

/// The scheduler.
pub(crate) struct Scheduler;

impl Node for Scheduler {
    type Msg = SchedulerMsg;
    type Args = SchedulerArgs;
    type State = SchedulerState;
    const KIND: &'static str = "scheduler";
    const MAILBOX_MAX: usize = 100_000;

    fn init(ctx: &Context<Self>, args: SchedulerArgs) -> Result<SchedulerState, NodeError> {
        let desk = Desk::new(args.limits.clone(), args.leases.clone(), args.me.clone());
        Ok(SchedulerState {
            told_up: vec![true; args.leases.len()],
            args,
            desk,
            steers: Steers::default(),
            looks: Looks::default(),
            early: Vec::new(),
            work: Tasks::of(ctx.branch()),
            timer_at: None,
            born_at: ctx.now(),
        })
    }

    async fn ready(ctx: &Context<Self>, state: &mut SchedulerState) -> Result<(), NodeError> {
        look(ctx, state, Duration::ZERO);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut SchedulerState, msg: SchedulerMsg) -> Result<(), NodeError> {
        let now = ctx.now();
        state.desk.tick(now);
        match msg {
            SchedulerMsg::Looked(found) => looked(ctx, state, found, now),
            msg if !state.desk.is_loaded && needs_table(&msg) => keep(state, msg, now),
            msg => act(ctx, state, msg, now),
        }
        state.desk.dispatch(now);
        tell_backends(state);
        set_timer(ctx, state, now);
        Ok(())
    }

    fn view(state: &SchedulerState) -> Value {
        state.desk.view()
    }
}

fn act(ctx: &Context<Scheduler>, state: &mut SchedulerState, msg: SchedulerMsg, now: Micros) {
    let desk = &mut state.desk;
    match msg {
        SchedulerMsg::Admit { task, user, conversation, priority, work, not_before, after, reply } => {
            let new = Newcomer { task, user, conversation, priority, work, not_before, after };
            admit(ctx, state, new, reply, now);
        }
        SchedulerMsg::Forget { task } => desk.leave(task, false, now),
        SchedulerMsg::Ended { task } => desk.leave(task, true, now),
        SchedulerMsg::Hold { task, held } => desk.hold(task, held, now),
        SchedulerMsg::Defer { task, until, after_failure } => desk.defer(task, until, after_failure, now),
        SchedulerMsg::Reprioritise { task, priority } => desk.reprioritise(task, priority, now),
        SchedulerMsg::Acquire { request, reply } => desk.ask(request, reply, now),
        SchedulerMsg::Released { backend, is_task, ran_ms, verdict } => {
            // An embedding runs on another model: it says nothing of how long rounds take, and loads no chat model.
            if verdict == Verdict::Fine && is_task {
                desk.observe(backend, ran_ms);
                let n = usize::from(backend.0);
                answered::go_on(desk, n, &state.args.conversations);
                if desk.leases.is_to_be_asked_again(n)
                    && let Some(backend) = state.args.backends.get(n)
                {
                    // If the actor is between two lives, the next one asks by itself.
                    backend.tell(BackendMsg::Loaded);
                }
            }
        }
        SchedulerMsg::HoldGate { backend, holder, ttl_ms, reply } => {
            let held = desk.leases.hold_gate(backend_of(desk, &backend), &holder, ttl_ms, now);
            let _ = reply.send(held);
        }
        SchedulerMsg::ReleaseGate { backend, holder, reply } => {
            let _ = reply.send(desk.leases.release_gate(backend_of(desk, &backend), &holder, now));
        }
        SchedulerMsg::BackendChecked { backend, up } => {
            if let Some(n) = desk.leases.find(&backend)
                && desk.leases.checked(n, up)
            {
                answered::go_on(desk, n, &state.args.conversations);
            }
        }
        SchedulerMsg::BackendDescribed { backend } => {
            if let Some(n) = desk.leases.find(&backend) {
                desk.set_slots(n);
            }
        }
        SchedulerMsg::Order { task, user } => desk.set_aside(task, user, now),
        SchedulerMsg::Steer { conversation, task, user, reply } => {
            // Whoever asked may have left; then the task is never stored, and is forgotten.
            let _ = reply.send(state.steers.steer(desk, conversation, task, user, now));
        }
        SchedulerMsg::Reread => {
            state.work.remove(&Work::Gather);
            look_anew(ctx, state);
        }
        SchedulerMsg::Woken => gather(ctx, state),
        SchedulerMsg::Stand { tasks, reply } => drop(reply.send(desk.stands(&tasks, now))),
        SchedulerMsg::List { reply } => drop(reply.send(desk.list(now))),
        SchedulerMsg::Due => state.timer_at = None,
        SchedulerMsg::Looked(_) => {}
    }
    if std::mem::take(&mut state.desk.is_unsure) {
        look_anew(ctx, state);
    }
    if state.desk.is_loaded && state.looks.are_due(state.desk.len()) {
        look(ctx, state, Duration::ZERO);
    }
}

fn admit(
    ctx: &Context<Scheduler>,
    state: &mut SchedulerState,
    new: Newcomer,
    reply: oneshot::Sender<Result<Place, Refusal>>,
    now: Micros,
) {
    if reply.is_closed() {
        return;
    }
    let task = new.task;
    let place = state.desk.admit(new, now);
    if place.is_err() && state.desk.is_loaded && state.looks.help(now) {
        look(ctx, state, Duration::ZERO);
    }
    // Whoever asked may have left; then the task is never stored and its place is forgotten.
    if reply.send(place).is_err() {
        state.desk.leave(task, false, now);
    }
}

fn backend_of(desk: &Desk, name: &str) -> Option<usize> {
    if name.is_empty() { (desk.leases.len() > 0).then_some(0) } else { desk.leases.find(name) }
}

// The task table

/// Whether a message can be answered only by somebody who knows all open tasks. Voice never waits.
const fn needs_table(msg: &SchedulerMsg) -> bool {
    match msg {
        SchedulerMsg::Admit { priority, .. } => !matches!(priority, Priority::Realtime),
        SchedulerMsg::Acquire { request, .. } => !matches!(request.priority, Priority::Realtime),
        SchedulerMsg::Forget { .. }
        | SchedulerMsg::Ended { .. }
        | SchedulerMsg::Hold { .. }
        | SchedulerMsg::Defer { .. }
        | SchedulerMsg::Reprioritise { .. }
        | SchedulerMsg::Stand { .. } => true,
        _ => false,
    }
}

/// Keeps a message until the task table is read. Facts are never refused; what may be asked again is, if there is too much.
fn keep(state: &mut SchedulerState, msg: SchedulerMsg, now: Micros) {
    let is_full = state.early.len() >= EARLY_MAX as usize;
    match msg {
        SchedulerMsg::Admit { priority: class, reply, .. } if is_full => {
            let position = state.early.len() + 1;
            let reason = RefusalReason::QueueFull;
            let refusal = Refusal { reason, class, limit: EARLY_MAX, position, retry_after_ms: LOOK_AGAIN_MS };
            metrics::counter!("annie_tasks_refused_total", "priority" => class.as_str()).increment(1);
            let _ = reply.send(Err(refusal));
        }
        SchedulerMsg::Acquire { .. } | SchedulerMsg::Stand { .. } if is_full => {}
        SchedulerMsg::Ended { task } => {
            // A voice may be known already; and the table may still say that it is open.
            state.desk.leave(task, true, now);
        }
        msg => state.early.push(msg),
    }
}

/// Reads the task table from now on: if it is being read, once more after that.
fn look_anew(ctx: &Context<Scheduler>, state: &mut SchedulerState) {
    state.looks.owe();
    look(ctx, state, Duration::ZERO);
}

/// Reads it soon.
fn gather(ctx: &Context<Scheduler>, state: &mut SchedulerState) {
    if state.work.contains(&Work::Gather) {
        return;
    }
    let (me, wait) = (ctx.me(), Duration::from_millis(Looks::gather_ms(state.desk.len())));
    state.work.spawn(Work::Gather, async move {
        tokio::time::sleep(wait).await;
        // If it fails this life is over, and the next one reads it first of all.
        me.tell(SchedulerMsg::Reread);
    });
}

/// Reads the task table, if it is not being read.
fn look(ctx: &Context<Scheduler>, state: &mut SchedulerState, wait: Duration) {
    if state.work.contains(&Work::Look) {
        return;
    }
    let now = ctx.now();
    state.looks.begin(state.desk.len(), now);
    let (me, records) = (ctx.me(), state.args.records.clone());
    let began = Began { at: now, heard: state.desk.heard };
    // Only the first reading of a process can know what was before it.
    let booted_at = (!state.desk.is_loaded && state.desk.leases.downtime().is_none()).then_some(state.born_at);
    state.work.spawn(Work::Look, async move {
        tokio::time::sleep(wait).await;
        let wait = Duration::from_millis(LOOK_MS_MAX);
        let found = match tokio::time::timeout(wait, caught(load::look(records, booted_at, began))).await {
            Ok(Ok(found)) => found,
            Ok(Err(panic)) => Err(unread(panic)),
            Err(_) => Err(unread(format!("it did not come back within {LOOK_MS_MAX} ms"))),
        };
        me.tell(SchedulerMsg::Looked(found));
    });
}

fn unread(detail: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Unavailable, what: "the open tasks", detail }
}

fn looked(ctx: &Context<Scheduler>, state: &mut SchedulerState, found: Result<Found, StoreError>, now: Micros) {
    state.work.remove(&Work::Look);
    match found {
        Ok(found) => {
            state.desk.apply(found, now);
            state.looks.end(state.desk.len(), now);
            for msg in std::mem::take(&mut state.early) {
                act(ctx, state, msg, now);
            }
            if state.looks.is_owed() {
                look(ctx, state, Duration::ZERO);
            }
        }
        Err(e) => {
            let hint = if state.desk.is_loaded { "" } else { "; nothing but voice runs until it can" };
            tracing::warn!(error = %e, "the task table cannot be read{hint}");
            look(ctx, state, Duration::from_millis(LOOK_AGAIN_MS));
        }
    }
}

// What changes by itself, and whom it concerns

fn set_timer(ctx: &Context<Scheduler>, state: &mut SchedulerState, now: Micros) {
    let at = state.desk.next_due();
    if at == state.timer_at {
        return;
    }
    state.timer_at = at;
    let Some(at) = at else {
        state.work.remove(&Work::Timer);
        return;
    };
    let me = ctx.me();
    let wait = Duration::from_millis(at.since_ms(now) + 1);
    state.work.spawn(Work::Timer, async move {
        tokio::time::sleep(wait).await;
        me.tell(SchedulerMsg::Due);
    });
}

/// The actor of a backend that went down looks after it. Told once; it tells when the backend is there again.
fn tell_backends(state: &mut SchedulerState) {
    for ((usable, told), backend) in state.desk.usable.iter().zip(&mut state.told_up).zip(&state.args.backends) {
        if usable.is_up != *told {
            *told = usable.is_up;
            if !usable.is_up {
                // If nobody is there, its next life looks by itself.
                backend.tell(BackendMsg::Look);
            }
        }
    }
}
