//! The messages of the Scheduler and the answers to them.

use annie_core::{
    event::{Priority, StatusChange},
    ids::{ConversationId, TaskId, UserId},
    ports::{StoreError, TaskRow},
    queue::{BackendId, Refusal, WorkKey},
    time::Micros,
};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    gate::{GateGrant, GateRefusal},
    leases::Downtime,
    permit::{NoPermit, Permit, PermitRequest, Verdict},
};
use crate::observe::Named;

/// A message to the scheduler.
pub enum SchedulerMsg {
    /// A new task asks for admission, or enters without a queue position.
    Admission(AdmissionMsg),
    /// Asks for the right to one round.
    Acquire {
        /// The round.
        request: PermitRequest,
        /// Receives the permit.
        reply: oneshot::Sender<Result<Permit, NoPermit>>,
    },
    /// A permit was returned.
    Released {
        /// Its backend.
        backend: BackendId,
        /// Whether it was a round of the backend's chat model for a task.
        is_task: bool,
        /// Duration of the round in milliseconds.
        ran_ms: u64,
        /// Outcome of the round.
        verdict: Verdict,
    },
    /// The log has a new status of an open task.
    Status(StatusMsg),
    /// Reading of the task table.
    Table(TableMsg),
    /// A backend's actor reports about its endpoint.
    Backend(BackendReport),
    /// The voice gate of a backend.
    Gate(GateMsg),
    /// Operators gave or lifted standing orders.
    OrdersChanged,
    /// The timer: a gate's term, a rate window or a deferral may have ended.
    Due,
    /// Asks for the status of tasks.
    TaskStatus {
        /// The tasks.
        tasks: Vec<TaskId>,
        /// Receives the statuses; unknown tasks are left out.
        reply: oneshot::Sender<Vec<TaskStatus>>,
    },
    /// Lists the waiting tasks and the running rounds.
    List {
        /// Receives the list.
        reply: oneshot::Sender<Value>,
    },
}

impl Named for SchedulerMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Admission(msg) => msg.name(),
            Self::Acquire { .. } => "Acquire",
            Self::Released { .. } => "Released",
            Self::Status(msg) => msg.name(),
            Self::Table(msg) => msg.name(),
            Self::Backend(msg) => msg.name(),
            Self::Gate(msg) => msg.name(),
            Self::OrdersChanged => "OrdersChanged",
            Self::Due => "Due",
            Self::TaskStatus { .. } => "TaskStatus",
            Self::List { .. } => "List",
        }
    }

    fn again(&self) -> Option<Self> {
        match self {
            Self::Status(StatusMsg::Ended { task }) => Some(Self::Status(StatusMsg::Ended { task: *task })),
            Self::Due => Some(Self::Due),
            _ => None,
        }
    }
}

/// Messages about tasks that are about to be stored: they ask for admission, or enter without a queue position.
pub enum AdmissionMsg {
    /// Asks for admission of a new task.
    Admit {
        /// The task.
        task: TaskId,
        /// Its user.
        user: UserId,
        /// Its conversation.
        conversation: ConversationId,
        /// Its class.
        priority: Priority,
        /// Key for finding equal work, if equal work may be done once.
        work: Option<WorkKey>,
        /// Its first round starts at this time at the earliest.
        not_before: Option<Micros>,
        /// Its first round starts when these tasks have ended.
        after: Vec<TaskId>,
        /// Receives the queue position or the refusal.
        reply: oneshot::Sender<Result<QueuePosition, Refusal>>,
    },
    /// A task is to work without a permit. It needs no place in the queue until it asks for one, but it waits for the tasks that it
    /// depends on, as a round does.
    Works {
        /// The task as it would ask for a round.
        request: PermitRequest,
        /// Receives the answer once nothing holds the task back.
        reply: oneshot::Sender<()>,
    },
    /// A task that was admitted was not stored after all.
    Forget {
        /// The task.
        task: TaskId,
    },
    /// A job command. It takes no queue position, but other tasks may wait for it.
    JobCommand {
        /// The task of the command.
        task: TaskId,
        /// Its user.
        user: UserId,
    },
    /// Asks whether a conversation may be steered now.
    Steer {
        /// The conversation.
        conversation: ConversationId,
        /// The task of the steering message. It takes no queue position, unless it gets a turn of its own.
        task: TaskId,
        /// Its user.
        user: UserId,
        /// Receives the decision; on refusal the milliseconds after which to ask again.
        reply: oneshot::Sender<Result<Steering, u64>>,
    },
}

impl Named for AdmissionMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Admit { .. } => "Admit",
            Self::Works { .. } => "Works",
            Self::Forget { .. } => "Forget",
            Self::JobCommand { .. } => "JobCommand",
            Self::Steer { .. } => "Steer",
        }
    }
}

/// Stored changes of a task that decide when its next round may start.
pub enum StatusMsg {
    /// A task has ended.
    Ended {
        /// The task.
        task: TaskId,
    },
    /// A user suspended or resumed a task. The round under way is not cut off.
    Hold {
        /// The task.
        task: TaskId,
        /// Whether it is suspended.
        held: bool,
    },
    /// Defers a task: no further round of it starts before a time.
    Defer {
        /// The task.
        task: TaskId,
        /// The earliest time of its next round.
        until: Micros,
        /// Whether its model failed. Then the task resumes as soon as that model answers again, if this is sooner.
        after_failure: bool,
    },
    /// Changes a task's class.
    Reprioritise {
        /// The task.
        task: TaskId,
        /// Its new class.
        priority: Priority,
    },
}

impl StatusMsg {
    /// The message about a stored change of a task. The log writer sends it and not the caller of the append, because the caller
    /// may be dead by now, and tasks that wait for this one would wait for ever.
    #[must_use]
    pub const fn of(task: TaskId, change: StatusChange) -> Self {
        match change {
            StatusChange::Ended => Self::Ended { task },
            StatusChange::Suspended => Self::Hold { task, held: true },
            StatusChange::Resumed => Self::Hold { task, held: false },
            StatusChange::Deferred { until, after_failure } => Self::Defer { task, until, after_failure },
            StatusChange::Reprioritised(priority) => Self::Reprioritise { task, priority },
        }
    }
}

impl Named for StatusMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "Ended",
            Self::Hold { .. } => "Hold",
            Self::Defer { .. } => "Defer",
            Self::Reprioritise { .. } => "Reprioritise",
        }
    }
}

/// Messages about the task table.
pub enum TableMsg {
    /// Reads the task table again: tasks may have been stored of which the scheduler was not notified.
    Reread,
    /// Other processes may have stored tasks. The task table is read soon, once for many of these messages.
    Woken,
    /// The result of reading the task table.
    TableRead(Result<Found, StoreError>),
}

impl Named for TableMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Reread => "Reread",
            Self::Woken => "Woken",
            Self::TableRead(_) => "TableRead",
        }
    }
}

/// Reports of a backend's actor.
pub enum BackendReport {
    /// The endpoint of a backend was checked.
    BackendChecked {
        /// The backend.
        backend: String,
        /// Whether the endpoint answered.
        up: bool,
    },
    /// A backend's server reported how many rounds it runs at a time.
    BackendDescribed {
        /// The backend.
        backend: String,
    },
}

impl Named for BackendReport {
    fn name(&self) -> &'static str {
        match self {
            Self::BackendChecked { .. } => "BackendChecked",
            Self::BackendDescribed { .. } => "BackendDescribed",
        }
    }
}

/// Messages about the voice gate of a backend.
pub enum GateMsg {
    /// Closes the voice gate of a backend, or renews its lease.
    HoldGate {
        /// The backend.
        backend: String,
        /// The holder of the gate.
        holder: String,
        /// Term of the lease, unless renewed, in milliseconds.
        ttl_ms: u64,
        /// Receives the lease or the refusal.
        reply: oneshot::Sender<Result<GateGrant, GateRefusal>>,
    },
    /// Opens the voice gate again.
    ReleaseGate {
        /// The backend.
        backend: String,
        /// The holder of the gate.
        holder: String,
        /// Receives whether this holder held the gate.
        reply: oneshot::Sender<bool>,
    },
}

impl Named for GateMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::HoldGate { .. } => "HoldGate",
            Self::ReleaseGate { .. } => "ReleaseGate",
        }
    }
}

/// The queue position of an admitted task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePosition {
    /// Position in the queue, from 1: one more than the number of rounds that at least start before this task's.
    pub position: usize,
    /// Estimated time until its first round starts, in milliseconds.
    pub start_in_ms: u64,
    /// The waiting task with equal work of the same user that has not begun. Its answer is also the answer of this task, which
    /// takes no queue position.
    pub same_as: Option<TaskId>,
    /// The class to which this task lifts the task in `same_as`.
    pub lifts: Option<Priority>,
}

/// Outcome of a steering message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steering {
    /// It joins the turn under way, and takes no queue position.
    Joins,
    /// No turn is under way that could receive it: it starts a turn of its own, and needs a queue position like any other
    /// message.
    OwnTurn,
}

/// Scheduling state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatusState {
    /// One of its rounds runs.
    Running,
    /// Between two rounds: its skills or its agents work.
    Between,
    /// It waits for its next round, or behind another message of its conversation.
    Waiting,
    /// Its user suspended it.
    Held,
    /// It waits for a time, or for other tasks.
    Delayed,
}

/// Status of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskStatus {
    /// The task.
    pub task: TaskId,
    /// Its scheduling state.
    pub state: TaskStatusState,
    /// Position in the queue, from 1; `None` while it does not ask for a round.
    pub position: Option<usize>,
    /// When its next round may be expected to start, in milliseconds. For a deferred task this is the end of the deferral.
    /// `None` while it does not ask for a round.
    pub start_in_ms: Option<u64>,
    /// The typical round on the backend where it waits or runs, in milliseconds.
    pub round_ms: u64,
    /// Rounds that it has begun in this process; at least 1 if it began in an earlier one.
    pub rounds_done: u32,
    /// The current round of its turn, and the maximum, once it has asked for one in this process.
    pub progress: Option<(u32, u32)>,
    /// Whether it is deferred because its model failed. On a shared store, a new incarnation of the Scheduler knows this only of
    /// tasks whose Engine has been activated on this node since.
    pub has_model_failed: bool,
    /// Why it is in this state, as text.
    pub why: String,
}

/// The result of reading the task table.
pub struct Found {
    /// All open tasks, newest first.
    pub(super) rows: Vec<TaskRow>,
    /// The downtime before this process, if this is its first reading.
    pub(super) downtime: Option<Downtime>,
    pub(super) began: Began,
}

/// The state in which a reading of the task table began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began {
    pub at: Micros,
    /// Number of tasks entered by then. The reading may miss what later tasks wait for.
    pub seen: u64,
}
