//! Which task an Engine works on, as its parent finds it when the Engine is dead: so that a death counts against the message
//! that brought it about, and no other.

use std::sync::Arc;

use annie_core::ids::TaskId;
use parking_lot::Mutex;

/// What one life of an Engine works on. Its parent has it too.
#[derive(Debug, Clone, Default)]
pub(crate) struct AtWork(Arc<Mutex<Work>>);

#[derive(Debug, Default)]
struct Work {
    now: Option<TaskId>,
    broke: Option<TaskId>,
}

impl AtWork {
    /// The work of a new life, which is about to take up what the former one died over.
    pub fn after(blamed: Option<TaskId>) -> Self {
        Self(Arc::new(Mutex::new(Work { now: blamed, broke: None })))
    }

    /// It works for this task now, or for none. What it works for when it dies stays.
    pub fn on(&self, task: Option<TaskId>) {
        self.0.lock().now = task;
    }

    /// What it works for now.
    pub fn now(&self) -> Option<TaskId> {
        self.0.lock().now
    }

    /// A task of the runtime broke down that worked for this one, and its Engine dies of that.
    pub fn broke(&self, task: TaskId) {
        self.0.lock().broke = Some(task);
    }

    /// Whose work it died over. Nothing if it was struck from outside while it waited.
    pub fn blamed(&self) -> Option<TaskId> {
        let work = self.0.lock();
        work.broke.or(work.now)
    }
}
