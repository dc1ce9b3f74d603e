//! A backend answers again: what was put off because its model failed goes on.

use annie_core::ids::{ConversationId, TaskId, UserId};
use tokio::sync::oneshot;

use super::desk::Desk;
use crate::{conversations::ConversationsMsg, engine::Control, observe::Handle};

/// Who lets them go on, as the log has it.
const BY: &str = "model";

/// Has the tasks go on whose last round failed on this backend. Each is told once.
pub(super) fn go_on(desk: &mut Desk, backend: usize, conversations: &Handle<ConversationsMsg>) {
    for (conversation, user, task) in desk.take_failed(backend) {
        // Whether it went on, its events tell.
        let (reply, _) = oneshot::channel();
        let (control, by) = (Control::TryAgain, BY.to_owned());
        // If nobody hears it, the task goes on when its time has come.
        let takes_over = false;
        conversations.tell(ConversationsMsg::Control { conversation, user, task, control, by, reply, takes_over });
    }
}

impl Desk {
    /// The tasks that are put off because their last round failed on this backend. After a restart of the process or of the
    /// scheduler it is not known which backend that was, and an answer of any counts.
    fn take_failed(&mut self, backend: usize) -> Vec<(ConversationId, UserId, TaskId)> {
        let mut go_on = Vec::new();
        let entries = &mut self.entries;
        self.failed.retain(|task| {
            let Some(entry) = entries.get_mut(task).filter(|entry| entry.has_failed) else { return false };
            if entry.is_held || entry.ran_on.is_some_and(|n| n != backend) {
                return true;
            }
            entry.has_failed = false;
            go_on.push((entry.waiting.conversation, entry.waiting.user.clone(), *task));
            false
        });
        go_on
    }
}
