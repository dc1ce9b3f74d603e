//! The scheduler: decides which task's round runs next.
//!
//! Owns: the queue and its entries. Supervised by: the root. Survives its death: the granted permits, the gates,
//! windows and health of the backends (kept in `Leases`, beside the actor), and the tasks (in the store, from which the next
//! incarnation reads which tasks are suspended, deferred, deferred after a failure of their model (not on a shared store), or
//! waiting for other tasks; until then it grants only voice). Every caller that waited for a round asks the next incarnation
//! again. The scheduler does not poll: it acts on requests, on returned permits, and on one timer for changes that time alone
//! causes.

mod admission_queue;
mod admit;
mod answered;
mod choice;
mod gate;
mod interface;
mod known;
mod leases;
mod load;
mod messages;
mod outcomes;
mod permit;
mod routes;
mod show;
mod steer;
mod task_table;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use admit::Newcomer;
use annie_core::{
    event::Priority,
    ports::{Records, StoreError, StoreErrorKind},
    queue::{QueueLimits, Refusal, RefusalReason},
    time::Micros,
};
pub(crate) use choice::RoundChoice;
pub use gate::{GateGrant, GateRefusal};
pub(crate) use leases::is_answer;
pub use leases::{BackendLoad, Leases};
use load::TableReads;
pub(crate) use load::open_tasks;
pub use messages::{
    AdmissionMsg, BackendReport, GateMsg, QueuePosition, SchedulerMsg, StatusMsg, Steering, TableMsg, TaskStatus,
    TaskStatusState,
};
use messages::{Began, Found};
pub use permit::{NoPermit, Permit, PermitRequest, Verdict};
pub(crate) use permit::{RequestHandle, acquire, wait_to_work};
use serde_json::Value;
use steer::Steers;
use task_table::TaskTable;
use tokio::sync::oneshot;

use crate::{
    backend::BackendMsg,
    conversations::ConversationsMsg,
    observe::{Context, Handle, Node, NodeError},
    tasks::{Tasks, caught},
};

/// What the tree gives to each incarnation of the scheduler.
#[derive(Clone)]
pub(crate) struct SchedulerArgs {
    pub limits: QueueLimits,
    pub leases: Arc<Leases>,
    pub records: Arc<dyn Records>,
    /// Several nodes use the store.
    pub is_shared: bool,
    pub me: Handle<SchedulerMsg>,
    /// The parent of all Engines, which is notified of the tasks that may resume because their model answers.
    pub conversations: Handle<ConversationsMsg>,
    /// The actors of the backends, in the order of the backends. They are notified when their backend is to be checked.
    pub backends: Vec<Handle<BackendMsg>>,
}

/// Background tasks of the scheduler.
#[derive(PartialEq, Eq, Hash)]
enum Work {
    Timer,
    ReadTable,
    GatherHints,
}

/// The state of one incarnation. What must survive an incarnation is in [`Leases`] or in the store.
pub(crate) struct SchedulerState {
    args: SchedulerArgs,
    table: TaskTable,
    steers: Steers,
    reads: TableReads,
    /// Messages that arrived before the task table was read and need it, in order of arrival.
    early: Vec<SchedulerMsg>,
    work: Tasks<Work>,
    timer_at: Option<Micros>,
    /// By backend: whether it was up when its actor was last notified.
    notified_up: Vec<bool>,
    born_at: Micros,
}

/// The number of early messages from which on requests are turned away: `Admit` is refused; `Acquire` and `Works` are dropped, and
/// their callers ask again; `TaskStatus` is dropped, and its caller shows the task without a status. Messages that report
/// facts are kept beyond it, because they are not sent again.
const EARLY_MAX: u32 = 5_000;
/// Time limit of one reading of the task table, in milliseconds.
const READ_MS_MAX: u64 = 30_000;
/// Delay after a failed reading of the task table, in milliseconds.
const READ_AGAIN_MS: u64 = 1_000;

pub(crate) struct Scheduler;

impl Node for Scheduler {
    type Msg = SchedulerMsg;
    type Args = SchedulerArgs;
    type State = SchedulerState;
    const KIND: &'static str = "scheduler";
    const MAILBOX_MAX: usize = 100_000;

    fn init(ctx: &Context<Self>, args: SchedulerArgs) -> Result<SchedulerState, NodeError> {
        let table = TaskTable::new(args.limits.clone(), args.leases.clone(), args.me.clone());
        Ok(SchedulerState {
            notified_up: vec![true; args.leases.len()],
            args,
            table,
            steers: Steers::default(),
            reads: TableReads::default(),
            early: Vec::new(),
            work: Tasks::of(ctx.branch()),
            timer_at: None,
            born_at: ctx.now(),
        })
    }

    async fn ready(ctx: &Context<Self>, state: &mut SchedulerState) -> Result<(), NodeError> {
        read_table(ctx, state, Duration::ZERO);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut SchedulerState, msg: SchedulerMsg) -> Result<(), NodeError> {
        let now = ctx.now();
        state.table.tick(now);
        match msg {
            SchedulerMsg::Table(TableMsg::TableRead(found)) => table_read(ctx, state, found, now),
            msg if !state.table.is_loaded && needs_table(&msg) => keep_early(state, msg, now),
            msg => act(ctx, state, msg, now),
        }
        state.table.dispatch(now);
        ctx.system.directory.pulse.tasks_wait(state.table.admission_queue.len(), now);
        notify_backends(state);
        set_timer(ctx, state, now);
        Ok(())
    }

    fn view(state: &SchedulerState) -> Value {
        state.table.view()
    }
}

fn act(ctx: &Context<Scheduler>, state: &mut SchedulerState, msg: SchedulerMsg, now: Micros) {
    let table = &mut state.table;
    match msg {
        SchedulerMsg::Admission(msg) => admission(ctx, state, msg, now),
        SchedulerMsg::Acquire { request, reply } => table.ask(request, reply, now),
        SchedulerMsg::Released { backend, is_task, ran_ms, verdict } => {
            // An embedding runs on another model: it says nothing about how long chat rounds take, and does not load the chat
            // model.
            if verdict == Verdict::Fine && is_task {
                table.observe(backend, ran_ms);
                let n = usize::from(backend.0);
                answered::resume(table, n, &state.args.conversations);
                if table.leases.is_to_be_asked_again(n)
                    && let Some(backend) = state.args.backends.get(n)
                {
                    // If the actor is between two incarnations, the next one checks the endpoint by itself.
                    backend.tell(BackendMsg::Loaded);
                }
            }
        }
        SchedulerMsg::Status(msg) => match msg {
            StatusMsg::Ended { task } => table.leave(task, true, now),
            StatusMsg::Hold { task, held } => table.hold(task, held, now),
            StatusMsg::Defer { task, until, after_failure } => table.defer(task, until, after_failure, now),
            StatusMsg::Reprioritise { task, priority } => table.reprioritise(task, priority, now),
        },
        SchedulerMsg::Table(TableMsg::Reread) => {
            state.work.remove(&Work::GatherHints);
            read_table_anew(ctx, state);
        }
        SchedulerMsg::Table(TableMsg::Woken) => gather_hints(ctx, state),
        SchedulerMsg::Table(TableMsg::TableRead(_)) => {}
        SchedulerMsg::Backend(report) => reported(state, &report),
        SchedulerMsg::Gate(msg) => gate(table, msg, now),
        SchedulerMsg::OrdersChanged => table.obey_orders(now),
        SchedulerMsg::Due => state.timer_at = None,
        SchedulerMsg::TaskStatus { tasks, reply } => drop(reply.send(table.statuses(&tasks, now))),
        SchedulerMsg::List { reply } => drop(reply.send(table.list(now))),
    }
    if std::mem::take(&mut state.table.is_unsure) {
        read_table_anew(ctx, state);
    }
    if state.table.is_loaded && state.reads.are_due(state.table.len()) {
        read_table(ctx, state, Duration::ZERO);
    }
}

fn admission(ctx: &Context<Scheduler>, state: &mut SchedulerState, msg: AdmissionMsg, now: Micros) {
    let table = &mut state.table;
    match msg {
        AdmissionMsg::Admit { task, user, conversation, priority, work, not_before, after, reply } => {
            let new = Newcomer { task, user, conversation, priority, work, not_before, after };
            admit(ctx, state, new, reply, now);
        }
        AdmissionMsg::Works { request, reply } => table.works(&request, reply, now),
        AdmissionMsg::Forget { task } => table.leave(task, false, now),
        AdmissionMsg::JobCommand { task, user } => table.enter_unqueued(task, user, now),
        AdmissionMsg::Steer { conversation, task, user, reply } => {
            // The caller may have dropped its receiver. Then the task is never stored, and is forgotten.
            let _ = reply.send(state.steers.steer(table, conversation, task, user, now));
        }
    }
}

fn reported(state: &mut SchedulerState, report: &BackendReport) {
    let table = &mut state.table;
    match report {
        BackendReport::BackendChecked { backend, up } => {
            if let Some(n) = table.leases.find(backend)
                && table.leases.checked(n, *up)
            {
                answered::resume(table, n, &state.args.conversations);
            }
        }
        BackendReport::BackendDescribed { backend } => {
            if let Some(n) = table.leases.find(backend) {
                table.set_slots(n);
            }
        }
    }
}

fn gate(table: &TaskTable, msg: GateMsg, now: Micros) {
    match msg {
        GateMsg::HoldGate { backend, holder, ttl_ms, reply } => {
            let held = table.leases.hold_gate(backend_of(table, &backend), &holder, ttl_ms, now);
            let _ = reply.send(held);
        }
        GateMsg::ReleaseGate { backend, holder, reply } => {
            let _ = reply.send(table.leases.release_gate(backend_of(table, &backend), &holder, now));
        }
    }
}

fn admit(
    ctx: &Context<Scheduler>,
    state: &mut SchedulerState,
    new: Newcomer,
    reply: oneshot::Sender<Result<QueuePosition, Refusal>>,
    now: Micros,
) {
    if reply.is_closed() {
        return;
    }
    let task = new.task;
    let position = state.table.admit(new, now);
    if position.is_err() && state.table.is_loaded && state.reads.help(now) {
        read_table(ctx, state, Duration::ZERO);
    }
    // The caller may have dropped its receiver. Then the task is never stored, and its entry is removed.
    if reply.send(position).is_err() {
        state.table.leave(task, false, now);
    }
}

fn backend_of(table: &TaskTable, name: &str) -> Option<usize> {
    if name.is_empty() { (table.leases.len() > 0).then_some(0) } else { table.leases.find(name) }
}

// The task table

/// Whether a message can be handled only when all open tasks are known. A request of class realtime (voice) is handled
/// before that, because it precedes all other tasks.
const fn needs_table(msg: &SchedulerMsg) -> bool {
    match msg {
        SchedulerMsg::Admission(AdmissionMsg::Admit { priority, .. }) => !matches!(priority, Priority::Realtime),
        SchedulerMsg::Acquire { request, .. } | SchedulerMsg::Admission(AdmissionMsg::Works { request, .. }) => {
            !matches!(request.priority, Priority::Realtime)
        }
        SchedulerMsg::Admission(AdmissionMsg::Forget { .. })
        | SchedulerMsg::Status(_)
        | SchedulerMsg::TaskStatus { .. } => true,
        _ => false,
    }
}

/// Keeps a message until the task table is read, or turns it away: see [`EARLY_MAX`].
fn keep_early(state: &mut SchedulerState, msg: SchedulerMsg, now: Micros) {
    let is_full = state.early.len() >= EARLY_MAX as usize;
    match msg {
        SchedulerMsg::Admission(AdmissionMsg::Admit { priority: class, reply, .. }) if is_full => {
            let position = state.early.len() + 1;
            let reason = RefusalReason::QueueFull;
            let refusal = Refusal { reason, class, limit: EARLY_MAX, position, retry_after_ms: READ_AGAIN_MS };
            metrics::counter!("annie_tasks_refused_total", "priority" => class.as_str()).increment(1);
            let _ = reply.send(Err(refusal));
        }
        SchedulerMsg::Acquire { .. }
        | SchedulerMsg::Admission(AdmissionMsg::Works { .. })
        | SchedulerMsg::TaskStatus { .. }
            if is_full => {}
        SchedulerMsg::Status(StatusMsg::Ended { task }) => {
            // A voice task may be known already, and the task table may still show it as open.
            state.table.leave(task, true, now);
        }
        msg => state.early.push(msg),
    }
}

/// Reads the task table as of now. If a reading is under way, another one follows it.
fn read_table_anew(ctx: &Context<Scheduler>, state: &mut SchedulerState) {
    state.reads.owe();
    read_table(ctx, state, Duration::ZERO);
}

/// Reads the task table after a delay that gathers further hints.
fn gather_hints(ctx: &Context<Scheduler>, state: &mut SchedulerState) {
    if state.work.contains(&Work::GatherHints) {
        return;
    }
    let (me, wait) = (ctx.me(), Duration::from_millis(TableReads::gather_ms(state.table.len())));
    state.work.spawn(Work::GatherHints, async move {
        tokio::time::sleep(wait).await;
        // If this fails, the incarnation has ended, and the next one reads the table first.
        me.tell(SchedulerMsg::Table(TableMsg::Reread));
    });
}

/// Reads the task table, unless a reading is under way.
fn read_table(ctx: &Context<Scheduler>, state: &mut SchedulerState, wait: Duration) {
    if state.work.contains(&Work::ReadTable) {
        return;
    }
    let now = ctx.now();
    state.reads.begin(state.table.len(), now);
    let (me, records, is_shared) = (ctx.me(), state.args.records.clone(), state.args.is_shared);
    let began = Began { at: now, seen: state.table.seen };
    // The downtime ends with the start of this process and begins with the last write before it. Only the first reading
    // finds that write, because later this process has written, too.
    let booted_at = (!state.table.is_loaded && state.table.leases.downtime().is_none()).then_some(state.born_at);
    state.work.spawn(Work::ReadTable, async move {
        tokio::time::sleep(wait).await;
        let wait = Duration::from_millis(READ_MS_MAX);
        let reading = caught(load::read_open_tasks(records, is_shared, booted_at, began));
        let found = match tokio::time::timeout(wait, reading).await {
            Ok(Ok(found)) => found,
            Ok(Err(panic)) => Err(unread(panic)),
            Err(_) => Err(unread(format!("it did not come back within {READ_MS_MAX} ms"))),
        };
        me.tell(SchedulerMsg::Table(TableMsg::TableRead(found)));
    });
}

fn unread(detail: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Unavailable, what: "the open tasks", detail }
}

fn table_read(ctx: &Context<Scheduler>, state: &mut SchedulerState, found: Result<Found, StoreError>, now: Micros) {
    state.work.remove(&Work::ReadTable);
    match found {
        Ok(found) => {
            state.table.apply(found, now);
            state.reads.end(state.table.len(), now);
            for msg in std::mem::take(&mut state.early) {
                act(ctx, state, msg, now);
            }
            if state.reads.is_owed() {
                read_table(ctx, state, Duration::ZERO);
            }
        }
        Err(e) => {
            let hint = if state.table.is_loaded { "" } else { "; until it can be read, only voice runs" };
            tracing::warn!(error = %e, "cannot read the task table{hint}");
            read_table(ctx, state, Duration::from_millis(READ_AGAIN_MS));
        }
    }
}

// Timer and notification of the backends

fn set_timer(ctx: &Context<Scheduler>, state: &mut SchedulerState, now: Micros) {
    let at = state.table.next_due();
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

/// Notifies the actor of a backend that went down, once; the actor checks the endpoint and reports when it answers again.
fn notify_backends(state: &mut SchedulerState) {
    for ((usable, notified), backend) in state.table.usable.iter().zip(&mut state.notified_up).zip(&state.args.backends)
    {
        if usable.is_up != *notified {
            *notified = usable.is_up;
            if !usable.is_up {
                // If the actor is not running, its next incarnation checks the endpoint by itself.
                backend.tell(BackendMsg::Check);
            }
        }
    }
}
