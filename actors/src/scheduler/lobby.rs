//! Everybody who waits, whichever backend for: what depth limits are kept by, where equal work is found, and what an estimate
//! for a newcomer is made of. Nobody is served from here.

use std::collections::HashMap;

use annie_core::{
    event::Priority,
    ids::TaskId,
    queue::{Admission, BackendId, Queue, QueueLimits, Waiting},
    time::Micros,
};

use super::desk::Entry;

/// The one line of the lobby.
const ALL: BackendId = BackendId(0);
/// It counts, but stands before nobody: it is kept from asking.
const ASIDE: Micros = Micros(i64::MAX / 4);

/// How a task stands in the lobby.
pub(super) struct Standing(Waiting);

impl Standing {
    /// Only work that could begin now, and has not, is joined by its equals.
    pub fn of(entry: &Entry) -> Self {
        let (not_before, work) = if entry.is_blocked() { (Some(ASIDE), None) } else { (None, entry.work) };
        Self(Waiting { backend: ALL, not_before, work, ..entry.waiting.clone() })
    }
}

/// Everybody who waits.
pub(super) struct Lobby {
    queue: Queue,
    classes: HashMap<TaskId, (Priority, bool, bool)>,
    depths: [usize; 5],
}

impl Lobby {
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

    /// How many of a class wait.
    pub fn depth(&self, class: Priority) -> usize {
        self.depths.get(usize::from(class.level())).copied().unwrap_or(0)
    }

    /// Asks for a place; limits are kept here.
    pub fn admit(&mut self, standing: Standing, now: Micros) -> Admission {
        let (task, kind) = (standing.0.task, kind(&standing.0));
        let admission = self.queue.admit(standing.0, now);
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

    /// The class under which a task waits here: equal work may have lifted it.
    pub fn class_of(&self, task: TaskId) -> Option<Priority> {
        self.queue.get(task).map(|waiting| waiting.class)
    }

    /// Puts a task in, as it stands now, or takes it out.
    pub fn put(&mut self, task: TaskId, standing: Option<Standing>, now: Micros) {
        let kind = standing.as_ref().map(|s| kind(&s.0));
        if kind == self.classes.get(&task).copied() {
            return;
        }
        self.queue.remove(task);
        if let Some(standing) = standing {
            self.queue.restore(standing.0, now);
        }
        self.note(task, kind);
    }

    pub fn observe_round(&mut self, ran_ms: u64) {
        self.queue.observe_round(ALL, ran_ms);
    }

    /// How many would at least be served before a newcomer.
    pub fn ahead(&self, class: Priority) -> usize {
        self.queue.ahead(ALL, class)
    }

    /// When somebody at this place may expect to start, in milliseconds.
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

/// What makes a difference here: the class, whether it stands aside, whether it has begun.
const fn kind(waiting: &Waiting) -> (Priority, bool, bool) {
    (waiting.class, waiting.not_before.is_some(), waiting.rounds_done > 0)
}
