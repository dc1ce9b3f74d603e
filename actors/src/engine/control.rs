//! Controls of tasks and decisions about approvals, which the Engine of their conversation applies.

use annie_core::{
    approval::ApprovalVerdict,
    event::Priority,
    ids::{AgentId, TaskId},
};

/// A control of a task, requested from outside the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// End the task.
    Cancel,
    /// Suspend the task: no further round of it starts until it is continued.
    Suspend,
    /// Continue a suspended or deferred task.
    Continue,
    /// Continue a task that was deferred because its model failed, now that the model answers again. No effect if the task
    /// is suspended.
    TryAgain,
    /// Change the class of the task.
    Reprioritise(Priority),
}

/// The result of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controlled {
    /// The control took effect, or had taken effect before.
    Done,
    /// The task had ended before.
    TooLate,
}

/// A person's decision about a request for an approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Decide {
    /// The number of the request. Absent means the only open request of the turn.
    pub number: Option<u32>,
    /// The decision.
    pub verdict: ApprovalVerdict,
    /// The name of the person, for the log.
    pub by: String,
}

/// The control of one sub-agent, requested by a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentControl {
    /// The agent.
    pub agent: AgentId,
    /// The task of its turn. Absent means the only turn with a running agent of this name.
    pub task: Option<TaskId>,
    /// The text that reaches it in its next round. Absent means that it is stopped.
    pub text: Option<String>,
    /// Why it is stopped; empty if no reason was given.
    pub reason: String,
    /// The name of the person, for the log.
    pub by: String,
}

/// Why a decision has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDecided {
    /// There is no such request, or no such agent.
    NotFound,
    /// The decision itself is wrong; the text says why and how to correct it.
    Invalid(String),
    /// The request is no longer open.
    Stale(String),
}
