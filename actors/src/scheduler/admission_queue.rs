//! All waiting tasks, for every backend together: depth limits, detection of equal work, and estimates for new tasks use this
//! queue. No round is granted from it.

use std::collections::HashMap;

use annie_core::{
    event::Priority,
    ids::TaskId,
    queue::{Admission, BackendId, Queue, QueueLimits, Waiting},
    time::Micros,
};

use super::task_table::Entry;

/// The only backend of this queue.
const ALL: BackendId = BackendId(0);
/// A blocked task counts for the limits but precedes no other task: its time is never due.
const BLOCKED_UNTIL: Micros = Micros(i64::MAX / 4);

/// A task as it waits in the admission queue.
pub(super) struct Admitted(Waiting);

impl Admitted {
    /// Only work that could begin now, and has not begun, is joined by equal work.
    pub fn of(entry: &Entry) -> Self {
        let (not_before, work) = if entry.is_blocked() { (Some(BLOCKED_UNTIL), None) } else { (None, entry.work) };
        Self(Waiting { backend: ALL, not_before, work, ..entry.waiting.clone() })
    }
}

/// All waiting tasks.
pub(super) struct AdmissionQueue {
    queue: Queue,
    classes: HashMap<TaskId, (Priority, bool, bool)>,
    depths: [usize; 5],
}

impl AdmissionQueue {
    pub fn new(limits: QueueLimits, slots: u32) -> Self {
        let mut queue = Queue::new(limits);
        queue.set_slots(ALL, slots);
        Self { queue, classes: HashMap::new(), depths: [0; 5] }
    }

    pub fn set_slots(&mut self, slots: u32) {
        self.queue.set_slots(ALL, slots);
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Number of waiting tasks of a class.
    pub fn depth(&self, class: Priority) -> usize {
        self.depths.get(usize::from(class.level())).copied().unwrap_or(0)
    }

    /// Asks for admission; depth limits are applied here.
    pub fn admit(&mut self, admitted: Admitted, now: Micros) -> Admission {
        let (task, kind) = (admitted.0.task, kind(&admitted.0));
        let admission = self.queue.admit(admitted.0, now);
        match &admission {
            Admission::Queued => self.note(task, Some(kind)),
            Admission::Coalesced { into } => {
                if let Some(kind) = self.queue.get(*into).map(self::kind) {
                    self.note(*into, Some(kind));
                }
            }
            Admission::RunNow | Admission::Refused(_) => {}
        }
        admission
    }

    /// The class with which a task waits here: equal work may have lifted it.
    pub fn class_of(&self, task: TaskId) -> Option<Priority> {
        self.queue.get(task).map(|waiting| waiting.class)
    }

    /// Updates a task to its current state, or removes it.
    pub fn put(&mut self, task: TaskId, admitted: Option<Admitted>, now: Micros) {
        let kind = admitted.as_ref().map(|s| kind(&s.0));
        if kind == self.classes.get(&task).copied() {
            return;
        }
        self.queue.remove(task);
        if let Some(admitted) = admitted {
            self.queue.restore(admitted.0, now);
        }
        self.note(task, kind);
    }

    pub fn observe_round(&mut self, ran_ms: u64) {
        self.queue.observe_round(ALL, ran_ms);
    }

    /// The number of tasks that are at least served before a new one.
    pub fn ahead(&self, class: Priority) -> usize {
        self.queue.ahead(ALL, class)
    }

    /// When the task at this position may be expected to start, in milliseconds.
    pub fn start_in_ms(&self, position: usize) -> u64 {
        self.queue.start_in_ms(ALL, position)
    }

    fn note(&mut self, task: TaskId, kind: Option<(Priority, bool, bool)>) {
        let before = match kind {
            Some(kind) => self.classes.insert(task, kind),
            None => self.classes.remove(&task),
        };
        let (before, after) = (before.map(|k| k.0), kind.map(|k| k.0));
        if before == after {
            return;
        }
        for (class, is_in) in before.map(|c| (c, false)).into_iter().chain(after.map(|c| (c, true))) {
            if let Some(depth) = self.depths.get_mut(usize::from(class.level())) {
                *depth = if is_in { *depth + 1 } else { depth.saturating_sub(1) };
                #[expect(clippy::cast_precision_loss, reason = "a number of tasks")]
                metrics::gauge!("annie_queue_depth", "priority" => class.as_str()).set(*depth as f64);
            }
        }
    }
}

/// The properties that distinguish tasks here: the class, whether the task is blocked, whether it has begun.
const fn kind(waiting: &Waiting) -> (Priority, bool, bool) {
    (waiting.class, waiting.not_before.is_some(), waiting.rounds_done > 0)
}
