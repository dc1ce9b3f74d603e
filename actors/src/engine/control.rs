//! Controls of tasks, which the Engine of their conversation applies.

use annie_core::event::Priority;

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
