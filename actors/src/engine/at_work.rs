//! The task that an Engine works on, shared with its parent. When the Engine dies, the parent counts the death against the task
//! that caused it and no other.

use std::sync::Arc;

use annie_core::ids::TaskId;
use parking_lot::Mutex;

/// The work of one Engine incarnation, shared with the Engine's parent.
#[derive(Debug, Clone, Default)]
pub(crate) struct AtWork(Arc<Mutex<Work>>);

#[derive(Debug, Default)]
struct Work {
    now: Option<TaskId>,
    broke: Option<TaskId>,
}

impl AtWork {
    /// The work of a new incarnation, which starts with the task on which the previous one died.
    pub fn after(blamed: Option<TaskId>) -> Self {
        Self(Arc::new(Mutex::new(Work { now: blamed, broke: None })))
    }

    /// Sets the task that the Engine works on, if any. The value at the Engine's death is kept.
    pub fn on(&self, task: Option<TaskId>) {
        self.0.lock().now = task;
    }

    /// The task that the Engine works on now.
    pub fn now(&self) -> Option<TaskId> {
        self.0.lock().now
    }

    /// Records that a runtime task that worked for `task` panicked, which ends the Engine.
    pub fn broke(&self, task: TaskId) {
        self.0.lock().broke = Some(task);
    }

    /// The task on which the Engine died. `None` if it was killed from outside while it waited.
    pub fn blamed(&self) -> Option<TaskId> {
        let work = self.0.lock();
        work.broke.or(work.now)
    }
}
