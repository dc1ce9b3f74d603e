//! Lanes: which pending message begins its turn next, and since when a lane is free.

use serde::{Deserialize, Serialize};

use super::Pending;
use crate::{
    event::{Inbound, Priority},
    ids::TaskId,
    time::Micros,
    turn::conversation::Conversation,
};

/// Messages of one lane begin in order, one turn at a time. Two lanes ensure that work for which a user waits never queues
/// behind background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// REALTIME and HIGH.
    Front,
    /// All other classes, which run in the background.
    Back,
}

impl Lane {
    /// Both lanes.
    pub const ALL: [Self; 2] = [Self::Front, Self::Back];

    /// The lane of a class.
    #[must_use]
    pub const fn of(class: Priority) -> Self {
        match class {
            Priority::Realtime | Priority::High => Self::Front,
            Priority::Normal | Priority::Low | Priority::Background => Self::Back,
        }
    }
}

impl Conversation {
    /// The messages of a lane that are not suspended, oldest first; empty while a turn blocks the lane.
    pub(in crate::turn) fn ready_in(&self, lane: Lane) -> impl Iterator<Item = &Pending> {
        let is_free = !self.turns.iter().any(|t| t.lane == lane && !t.control.is_detached);
        self.inbox.iter().filter(move |p| is_free && !p.is_suspended && Lane::of(p.inbound.priority) == lane)
    }

    /// The message of a lane whose turn may begin now: the oldest that is due. A message that is not due does not block others.
    pub(in crate::turn) fn next_in(&self, lane: Lane, now: Micros) -> Option<&Pending> {
        self.ready_in(lane).find(|p| p.not_before().is_none_or(|at| at <= now))
    }

    /// The message, if its turn may begin once it is due. Only messages with a due time let later messages pass.
    #[must_use]
    pub fn may_begin(&self, task: TaskId) -> Option<&Inbound> {
        let next = |lane| {
            let mut blocked = false;
            self.ready_in(lane).find(move |p| {
                let is_task = p.task == task && !blocked;
                blocked |= p.not_before().is_none();
                is_task
            })
        };
        Lane::ALL.into_iter().find_map(next).map(|p| &p.inbound)
    }

    /// When the next message becomes due.
    #[must_use]
    pub fn next_due(&self, now: Micros) -> Option<Micros> {
        Lane::ALL
            .into_iter()
            .flat_map(|lane| self.ready_in(lane))
            .filter_map(Pending::not_before)
            .filter(|at| *at > now)
            .min()
    }

    /// Restarts the deadlines of messages whose lane has become free. `free_from` also covers messages that queued in the log at
    /// that time and are received later.
    pub(in crate::turn) fn start_clocks(&mut self) {
        for lane in Lane::ALL {
            if !self.turns.iter().any(|t| t.lane == lane && !t.control.is_detached) {
                self.free_from[lane as usize] = self.at;
            }
        }
        for pending in &mut self.inbox {
            pending.at = pending.at.max(self.free_from[Lane::of(pending.inbound.priority) as usize]);
        }
    }

    /// Changes a task's class. The task gets the lane and the deadlines of the new class, which count from now. Only voice is
    /// REALTIME: no task enters or leaves that class.
    pub(in crate::turn) fn reprioritise(&mut self, task: TaskId, priority: Priority) {
        for joined in self.joined.iter_mut().filter(|j| j.into == task) {
            // A joined message raises the class only once. A later change of the class is deliberate and stays.
            joined.lifts = None;
        }
        let at = self.at;
        let changes = |class: Priority| class != priority && ![class, priority].contains(&Priority::Realtime);
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task && changes(t.inbound.priority)) {
            turn.inbound.priority = priority;
            turn.lane = Lane::of(priority);
            turn.restart_clock(at);
        } else if let Some(pending) = self.inbox.iter_mut().find(|p| p.task == task && changes(p.inbound.priority)) {
            pending.inbound.priority = priority;
            pending.at = pending.at.max(at);
            pending.late = 0;
        }
        self.start_clocks();
    }
}
