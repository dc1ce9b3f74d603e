//! Admission of a new task: coalesced with equal work, refused with a reason and a retry time, or admitted.

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    queue::{Admission, Refusal, RefusalReason, Waiting, WorkKey},
    time::Micros,
};

use tokio::sync::oneshot;

use super::{
    PermitRequest,
    admission_queue::Admitted,
    messages::QueuePosition,
    task_table::{Entry, TaskTable, id},
};

/// A task that asks for admission.
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

const AT_ONCE: QueuePosition = QueuePosition { position: 1, start_in_ms: 0, same_as: None, lifts: None };

impl TaskTable {
    pub fn admit(&mut self, new: Newcomer, now: Micros) -> Result<QueuePosition, Refusal> {
        let Newcomer { task, user, conversation, priority, work, not_before, after } = new;
        if self.entries.contains_key(&task) || self.has_ended(task) {
            // The caller asks again, because the first answer was lost or received late.
            return Ok(self.position_of(priority, now));
        }
        let position = self.position_of(priority, now);
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
        let (is_blocked, admitted) = (entry.is_blocked(), Admitted::of(entry));
        let deferred_ms = entry.until.map_or(0, |until| until.since_ms(now));
        let position = QueuePosition { start_in_ms: position.start_in_ms.max(deferred_ms), ..position };
        // Depth limits apply only to tasks that have to wait: a free slot is not part of the queue.
        let has_capacity = !is_blocked && self.admission_queue.len() < self.free(priority, now);
        match self.admission_queue.admit(admitted, now) {
            Admission::RunNow | Admission::Queued => Ok(position),
            Admission::Coalesced { into } => {
                self.leave(task, false, now);
                self.enter_unqueued(task, user, now);
                Ok(self.join(into, now))
            }
            Admission::Refused(_) if has_capacity => {
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

    /// Enters a task that asks for a round and is not known.
    pub fn enter_unknown(&mut self, request: &PermitRequest, now: Micros) {
        if !self.entries.contains_key(&request.task) {
            let PermitRequest { task, user, conversation, priority, since, .. } = request.clone();
            let waiting = Waiting::new(task, user, conversation, priority, id(0), since.min(now));
            self.enter(waiting, None, request.after.clone(), now).is_task = request.is_task;
        }
    }

    /// A task is to work without a round. The answer comes once nothing holds it back.
    pub fn works(&mut self, request: &PermitRequest, reply: oneshot::Sender<()>, now: Micros) {
        let task = request.task;
        if self.has_ended(task) {
            // Without an answer the caller asks again as long as it runs.
            return;
        }
        self.enter_unknown(request, now);
        if let Some(entry) = self.entries.get_mut(&task) {
            entry.stored_at.get_or_insert(now);
            entry.works = Some(reply);
            self.settle(task, now);
        }
    }

    /// The task joins a waiting task with equal work, and lifts that one to its own class if the limits allow it.
    fn join(&mut self, into: TaskId, now: Micros) -> QueuePosition {
        let class = self.admission_queue.class_of(into).unwrap_or_default();
        let lifts = self.entries.get(&into).is_some_and(|e| class < e.class()).then_some(class);
        self.reprioritise(into, class, now);
        QueuePosition { same_as: Some(into), lifts, ..self.position_of(class, now) }
    }

    /// The number of spoken tasks is limited. One that was never stored ends by itself when its gate term runs out.
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
            retry_after_ms: self.admission_queue.start_in_ms(1).clamp(1_000, 60_000),
        };
        refused(&refusal);
        Err(refusal)
    }

    /// How many rounds of this class the first backend could begin now: none while its voice gate is closed.
    fn free(&self, class: Priority, now: Micros) -> usize {
        let stance = self.leases.stance(0, class, now);
        if stance.waits() { 0 } else { self.leases.slots(0).saturating_sub(self.leases.count(0)) }
    }

    /// An estimate for a new task of this class, on the first backend.
    fn position_of(&self, class: Priority, now: Micros) -> QueuePosition {
        if class == Priority::Realtime {
            return AT_ONCE;
        }
        let (ahead, free) = (self.admission_queue.ahead(class), self.free(class, now));
        if ahead < free {
            return AT_ONCE;
        }
        let position = ahead + 1 - free;
        QueuePosition { position, start_in_ms: self.admission_queue.start_in_ms(position), same_as: None, lifts: None }
    }

    /// Enters a task that the task table shows as open: an earlier incarnation knew it.
    pub fn remember(&mut self, waiting: Waiting, stored: StoredState, now: Micros) {
        let (task, class) = (waiting.task, waiting.class);
        if let Some(entry) = self.entries.get_mut(&task) {
            entry.stored_at.get_or_insert(now);
            return;
        }
        if self.has_ended(task) {
            return;
        }
        let entry: &mut Entry = self.enter(waiting, stored.not_before, stored.after, now);
        entry.is_held = stored.is_held;
        entry.stored_at = Some(now);
        entry.has_failed = stored.has_model_failed && entry.until.is_some();
        let (has_failed, is_blocked) = (entry.has_failed, entry.is_blocked());
        if has_failed {
            self.failed.insert(task);
        }
        if class == Priority::Realtime && !is_blocked {
            self.leases.speak(0, task, now);
        }
        self.settle(task, now);
    }
}

/// The scheduling state of a task in the task table.
pub(super) struct StoredState {
    pub is_held: bool,
    pub not_before: Option<Micros>,
    /// Whether it was last deferred because its model failed.
    pub has_model_failed: bool,
    /// Open tasks of the same user that it waits for.
    pub after: Vec<TaskId>,
}

fn refused(refusal: &Refusal) {
    metrics::counter!("annie_tasks_refused_total", "priority" => refusal.class.as_str()).increment(1);
}
