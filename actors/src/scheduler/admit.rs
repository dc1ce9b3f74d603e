//! A place for a new task: coalesced, refused with a reason and a time to come back, or admitted.

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    queue::{Admission, Refusal, RefusalReason, Waiting, WorkKey},
    time::Micros,
};

use super::{
    desk::{Desk, Entry, id},
    lobby::Standing,
};

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// How many rounds start before this task's, at best, and one.
    pub position: usize,
    /// When its first round may be expected to start, in milliseconds.
    pub start_in_ms: u64,
    /// Equal work of the same user waits as this task, and has not begun: its answer is this one's answer too, and no place
    /// is taken.
    pub same_as: Option<TaskId>,
    /// The class to which that one is lifted by this one.
    pub lifts: Option<Priority>,
}

/// A task that wants a place.
#[derive(Debug, Clone)]
pub(super) struct Newcomer {
    pub task: TaskId,
    pub user: UserId,
    pub conversation: ConversationId,
    pub priority: Priority,
    pub work: Option<WorkKey>,
    pub not_before: Option<Micros>,
    pub after: Vec<TaskId>,
}

const AT_ONCE: Place = Place { position: 1, start_in_ms: 0, same_as: None, lifts: None };

impl Desk {
    pub fn admit(&mut self, new: Newcomer, now: Micros) -> Result<Place, Refusal> {
        let Newcomer { task, user, conversation, priority, work, not_before, after } = new;
        if self.entries.contains_key(&task) || self.has_ended(task) {
            // Asked again because the first answer was lost, or heard late.
            return Ok(self.place_of(priority, now));
        }
        let place = self.place_of(priority, now);
        if priority == Priority::Realtime {
            self.refuse_voice()?;
        }
        let mut waiting = Waiting::new(task, user.clone(), conversation, priority, id(0), now);
        waiting.work = work;
        let entry = self.enter(waiting, not_before, after, now);
        if priority == Priority::Realtime {
            if !entry.is_blocked() {
                self.leases.speak(0, task, now);
            }
            return Ok(AT_ONCE);
        }
        let (is_blocked, standing) = (entry.is_blocked(), Standing::of(entry));
        let put_off_ms = entry.until.map_or(0, |until| until.since_ms(now));
        let place = Place { start_in_ms: place.start_in_ms.max(put_off_ms), ..place };
        // A free slot is no queue: depth limits are for what has to wait.
        let has_room = !is_blocked && self.lobby.len() < self.free(priority, now);
        match self.lobby.admit(standing, now) {
            Admission::RunNow | Admission::Queued => Ok(place),
            Admission::Coalesced { into } => {
                self.leave(task, false, now);
                self.set_aside(task, user, now);
                Ok(self.join(into, now))
            }
            Admission::Refused(_) if has_room => {
                self.settle(task, now);
                Ok(AT_ONCE)
            }
            Admission::Refused(refusal) => {
                self.leave(task, false, now);
                refused(&refusal);
                Err(refusal)
            }
        }
    }

    /// Who wants the same joins it, and lifts it to its own class if there is room.
    fn join(&mut self, into: TaskId, now: Micros) -> Place {
        let class = self.lobby.class_of(into).unwrap_or_default();
        let lifts = self.entries.get(&into).is_some_and(|e| class < e.class()).then_some(class);
        self.reprioritise(into, class, now);
        Place { same_as: Some(into), lifts, ..self.place_of(class, now) }
    }

    /// Voice is bounded by who speaks now: a task that was never stored falls silent by itself.
    fn refuse_voice(&self) -> Result<(), Refusal> {
        let voices = self.leases.voices(0);
        if voices < self.limits.realtime_max as usize {
            return Ok(());
        }
        let refusal = Refusal {
            reason: RefusalReason::RealtimeFull,
            class: Priority::Realtime,
            limit: self.limits.realtime_max,
            position: voices + 1,
            retry_after_ms: self.lobby.start_in_ms(1).clamp(1_000, 60_000),
        };
        refused(&refusal);
        Err(refusal)
    }

    /// How many rounds of this class the first backend could begin now: none while somebody speaks there.
    fn free(&self, class: Priority, now: Micros) -> usize {
        let stance = self.leases.stance(0, class, now);
        if stance.waits() { 0 } else { self.leases.slots(0).saturating_sub(self.leases.count(0)) }
    }

    /// An estimate for a newcomer of this class, on the first backend.
    fn place_of(&self, class: Priority, now: Micros) -> Place {
        if class == Priority::Realtime {
            return AT_ONCE;
        }
        let (ahead, free) = (self.lobby.ahead(class), self.free(class, now));
        if ahead < free {
            return AT_ONCE;
        }
        let position = ahead + 1 - free;
        Place { position, start_in_ms: self.lobby.start_in_ms(position), same_as: None, lifts: None }
    }

    /// The tasks that earlier lives knew: from the task table.
    pub fn remember(&mut self, waiting: Waiting, stood: Stood, now: Micros) {
        let (task, class) = (waiting.task, waiting.class);
        if let Some(entry) = self.entries.get_mut(&task) {
            entry.stored_at.get_or_insert(now);
            return;
        }
        if self.has_ended(task) {
            return;
        }
        let entry: &mut Entry = self.enter(waiting, stood.not_before, stood.after, now);
        entry.is_held = stood.is_held;
        entry.stored_at = Some(now);
        if class == Priority::Realtime && !entry.is_blocked() {
            self.leases.speak(0, task, now);
        }
        self.settle(task, now);
    }
}

/// How a task stood in the table.
pub(super) struct Stood {
    pub is_held: bool,
    pub not_before: Option<Micros>,
    /// Open tasks of the same user.
    pub after: Vec<TaskId>,
}

fn refused(refusal: &Refusal) {
    metrics::counter!("annie_tasks_refused_total", "priority" => refusal.class.as_str()).increment(1);
}
