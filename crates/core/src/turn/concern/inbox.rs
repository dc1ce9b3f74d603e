//! The inbox: accepted messages whose turns have not begun.

use serde::{Deserialize, Serialize};

use super::{JobCommand, Lane};
use crate::{
    dead_letter::DeadLetterLimits,
    event::Inbound,
    guard,
    ids::{Seq, TaskId},
    time::Micros,
    turn::conversation::Conversation,
};

/// An accepted message whose turn has not begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Its task.
    pub task: TaskId,
    /// Its sequence number in the log, which is also its queue position.
    pub seq: Seq,
    /// The message.
    pub inbound: Inbound,
    /// When the message was accepted.
    pub accepted_at: Micros,
    /// The time from which its deadlines count: its acceptance, its due time, or when it was resumed.
    pub at: Micros,
    /// Suspended by its user: its turn does not begin.
    pub is_suspended: bool,
    /// How often its hard deadline has passed.
    pub late: u32,
    /// The limits for its dead letter, from its last missed deadline.
    pub dead_letters: DeadLetterLimits,
    /// A guard found something in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::turn) is_flagged: bool,
}

impl Pending {
    /// A message that was accepted at `accepted_at`. Its lane is free since `free_from`, as far as the state knows.
    fn new(task: TaskId, seq: Seq, inbound: Inbound, accepted_at: Micros, free_from: Micros) -> Self {
        let at = inbound.not_before.map_or(accepted_at, |due| due.max(accepted_at)).max(free_from);
        Self {
            task,
            seq,
            inbound,
            accepted_at,
            at,
            is_suspended: false,
            late: 0,
            dead_letters: DeadLetterLimits::default(),
            is_flagged: false,
        }
    }

    /// When the message is due, if it has a due time.
    #[must_use]
    pub const fn not_before(&self) -> Option<Micros> {
        self.inbound.not_before
    }
}

impl Conversation {
    /// Queues a message of the log. A live Engine may receive it late, a replay receives it at its position in the log. Both
    /// reach the same state, because the sequence number gives the queue position, and the task that the message joins is
    /// decided on reception and stored as an event.
    pub(in crate::turn) fn received(&mut self, seq: Seq, at: Micros, task: TaskId, inbound: &Inbound) {
        if self.is_open(task) || self.finished.contains(&task) {
            return;
        }
        self.is_listed |= !inbound.stateless;
        if inbound.order {
            let index = self.job_commands.partition_point(|o| o.seq <= seq);
            self.job_commands.insert(index, JobCommand { task, seq, inbound: inbound.clone(), meant: None });
        } else {
            let free_from = self.free_from[Lane::of(inbound.priority) as usize];
            self.enqueue(Pending::new(task, seq, inbound.clone(), at, free_from));
        }
    }

    /// Records a decision about a message whose turn has not begun. The event of the turn says what a guard found in the message, but
    /// a message that is answered without a turn has no such event.
    pub(in crate::turn) fn decided_by(&mut self, task: TaskId, component: &str) {
        if component == guard::component(guard::INJECTION)
            && let Some(pending) = self.inbox.iter_mut().find(|pending| pending.task == task)
        {
            pending.is_flagged = true;
        }
    }

    pub(in crate::turn) fn enqueue(&mut self, pending: Pending) {
        debug_assert!(!self.is_open(pending.task), "{} is queued, and is open already", pending.task);
        let index = self.inbox.partition_point(|p| p.seq <= pending.seq);
        self.inbox.insert(index, pending);
    }

    /// Returns a steering message that the model did not see to its old queue position. It steers no other turn.
    pub(in crate::turn) fn return_to_inbox(&mut self, mut unseen: Pending) {
        unseen.at = self.at.max(unseen.at);
        unseen.inbound.steer = false;
        self.enqueue(unseen);
    }

    /// Removes the message whose turn has begun. Whether the turn was allowed to begin was checked when it began: a message that
    /// precedes it now may have been received only later.
    pub(in crate::turn) fn take_out(&mut self, task: TaskId) -> Option<Pending> {
        let at = self.inbox.iter().position(|p| p.task == task)?;
        self.inbox.remove(at)
    }
}
