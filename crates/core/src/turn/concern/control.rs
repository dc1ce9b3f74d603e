//! Control: cancelling, suspending and resuming tasks.

use serde::{Deserialize, Serialize};

use crate::{
    ids::TaskId,
    turn::conversation::{Conversation, Turn},
};

/// What was requested for a turn since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Cancellation was requested.
    pub is_cancelled: bool,
    /// Suspended by its user: no further round starts.
    pub is_suspended: bool,
    /// The turn no longer blocks its lane: it was suspended or deferred once, or waits for other tasks.
    pub is_detached: bool,
}

impl Conversation {
    pub(in crate::turn) fn cancel(&mut self, task: TaskId) {
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) {
            turn.control.is_cancelled = true;
        } else if self.is_open(task)
            && !self.cancelled.contains(&task)
            && !self.owed.iter().any(|(owed, _)| *owed == task)
        {
            self.cancelled.push(task);
        }
    }

    /// Suspends or resumes a task. Resuming also ends a deferral. A turn that was suspended once does not block its lane again.
    pub(in crate::turn) fn set_suspended(&mut self, task: TaskId, is_suspended: bool) {
        let at = self.at;
        if is_suspended {
            self.return_unseen_steering(task);
        } else if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) {
            turn.lift_deferral(at);
        }
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task && t.control.is_suspended != is_suspended) {
            turn.control.is_suspended = is_suspended;
            turn.control.is_detached = true;
            turn.restart_clock(at);
        } else if let Some(pending) = self.inbox.iter_mut().find(|p| p.task == task && p.is_suspended != is_suspended) {
            pending.is_suspended = is_suspended;
            pending.at = pending.at.max(at);
        }
        self.start_clocks();
    }
}

impl Turn {
    /// Whether the turn is suspended and has no running work left.
    pub(in crate::turn) fn is_at_rest(&self) -> bool {
        let acts = self.agents.plan.running().next().is_some() || self.main.awaited_skills().next().is_some();
        self.control.is_suspended && !self.control.is_cancelled && !acts
    }
}
