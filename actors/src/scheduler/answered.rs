//! A backend answers again: tasks that were deferred because its model failed resume.

use annie_core::ids::{ConversationId, TaskId, UserId};
use tokio::sync::oneshot;

use super::task_table::TaskTable;
use crate::{conversations::ConversationsMsg, engine::Control, observe::Handle};

/// The name in the log of the component that resumes the tasks.
const BY: &str = "model";

/// Resumes the tasks whose last round failed on this backend. Each task is notified once.
pub(super) fn resume(table: &mut TaskTable, backend: usize, conversations: &Handle<ConversationsMsg>) {
    for (conversation, user, task) in table.take_failed(backend) {
        // The reply is not needed: the events of the task show whether it resumed.
        let (reply, _) = oneshot::channel();
        let (control, by) = (Control::TryAgain, BY.to_owned());
        // If no actor receives this message, the task resumes when its deferral ends.
        let takes_over = false;
        conversations.tell(ConversationsMsg::Control { conversation, user, task, control, by, reply, takes_over });
    }
}

impl TaskTable {
    /// The tasks that are deferred because their last round failed on this backend. After a restart of the process or of the
    /// scheduler that backend is unknown, and an answer of any backend counts.
    fn take_failed(&mut self, backend: usize) -> Vec<(ConversationId, UserId, TaskId)> {
        let mut resumed = Vec::new();
        let entries = &mut self.entries;
        self.failed.retain(|task| {
            let Some(entry) = entries.get_mut(task).filter(|entry| entry.has_failed) else { return false };
            if entry.is_held || entry.ran_on.is_some_and(|n| n != backend) {
                return true;
            }
            entry.has_failed = false;
            resumed.push((entry.waiting.conversation, entry.waiting.user.clone(), *task));
            false
        });
        resumed
    }
}
