//! Joins: messages for the same work as another task. They receive the answer of that task.

use serde::{Deserialize, Serialize};

use crate::{
    event::{EventBody, FinalEvent, Priority},
    ids::TaskId,
    turn::conversation::Conversation,
};

/// A message for the same work as another task, whose answer it receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its task.
    pub task: TaskId,
    /// The task whose answer it receives.
    pub into: TaskId,
    /// The class that the other task must still get if its own is less urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifts: Option<Priority>,
}

impl Conversation {
    /// The next message that must join another task, and that task. A message names only tasks that were accepted before it,
    /// so joins form no cycles.
    pub(in crate::turn) fn joining(&self) -> Option<(TaskId, TaskId)> {
        self.inbox.iter().find_map(|p| {
            let same = p.inbound.same_as.filter(|into| *into != p.task && self.is_open(*into));
            Some((p.task, same.or_else(|| self.steered_by(p))?))
        })
    }

    /// Joins a message to the task that the log names.
    pub(in crate::turn) fn join(&mut self, task: TaskId, into: TaskId) {
        let Some(index) = self.inbox.iter().position(|p| p.task == task) else { return };
        let Some(pending) = self.inbox.remove(index) else { return };
        let steers = pending.inbound.steer;
        if pending.inbound.same_as == Some(into) && self.is_open(into) {
            self.joined.push(Joined { task, into, lifts: pending.inbound.lifts });
        } else if let Some(turn) = self.turns.iter_mut().find(|t| t.task == into && steers) {
            turn.steering.unseen.push(pending);
        } else {
            self.enqueue(pending);
        }
    }

    /// A task that must get a more urgent class, that class, and the joined task that it comes from.
    pub(in crate::turn) fn priority_lift(&self) -> Option<(TaskId, Priority, TaskId)> {
        self.joined.iter().find_map(|j| {
            let class = j.lifts.filter(|class| *class != Priority::Realtime)?;
            let pending = || self.inbox.iter().find(|p| p.task == j.into).map(|p| p.inbound.priority);
            let own = self.turn(j.into).map(|t| t.inbound.priority).or_else(pending)?;
            (class < own).then_some((j.into, class, j.task))
        })
    }

    /// Schedules the final event of a task for all messages that joined it.
    pub(in crate::turn) fn release_joined(&mut self, task: TaskId, end: FinalEvent<'_>) {
        let (released, rest): (Vec<_>, Vec<_>) = self.joined.drain(..).partition(|j| j.into == task);
        self.joined = rest;
        self.owed.extend(released.into_iter().map(|j| (j.task, same_final(end))));
    }
}

/// The final event of a joined task, copied from the task that did the work.
pub(in crate::turn) fn same_final(end: FinalEvent<'_>) -> EventBody {
    match end {
        // The usage counts for the task that did the work, and the dead letter is stored once.
        FinalEvent::Answered { text, paused, outcome, finish, calls, redacted, spoken, usage: _ } => {
            EventBody::Answered {
                text: text.to_owned(),
                paused,
                usage: crate::message::Usage::default(),
                outcome,
                finish,
                calls: calls.to_vec(),
                redacted: redacted.to_vec(),
                spoken: spoken.to_vec(),
            }
        }
        FinalEvent::Failed { code, text, detail, dead_letter: _ } => EventBody::Failed {
            code: code.to_owned(),
            text: text.to_owned(),
            detail: detail.to_owned(),
            dead_letter: None,
        },
        FinalEvent::Cancelled { text } => EventBody::Cancelled { text: text.to_owned() },
    }
}
