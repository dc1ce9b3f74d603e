//! Operations of a user on tasks: list, suspend, continue, reprioritise and cancel them.

use std::time::Duration;

use annie_core::{
    event::Scope,
    ids::{TaskId, UserId},
    jobs::JobLine,
};

use super::{Kernel, KernelError};
use crate::{
    conversations::ConversationsMsg,
    engine::{Control, Controlled},
    jobs,
};

/// Time limit for an Engine to answer a control, in milliseconds.
const CONTROL_MS_MAX: u64 = 5_000;

impl Kernel {
    /// A user's open tasks, with their queue positions and expected times, in the order in which they will run.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn jobs(&self, user: &UserId) -> Result<Vec<JobLine>, KernelError> {
        Ok(jobs::lines(&self.wiring, user, None).await?)
    }

    /// Applies a control to a task. True if it took effect; false if the task had ended before.
    ///
    /// # Errors
    /// If there is no such task that the scope sees, or its Engine does not answer.
    pub async fn control(&self, scope: Scope, task: TaskId, control: Control, by: &str) -> Result<bool, KernelError> {
        let row = self.task(scope, task).await?;
        if row.state.is_ended() {
            return Ok(false);
        }
        let wait = Duration::from_millis(CONTROL_MS_MAX);
        let ask = |reply| ConversationsMsg::Control {
            conversation: row.conversation,
            user: row.user.clone(),
            task,
            control,
            by: by.to_owned(),
            reply,
            takes_over: true,
        };
        Ok(self.wiring.conversations.call(wait, ask).await? == Controlled::Done)
    }

    /// Cancels a task. True if it will end as cancelled; false if it had ended before.
    ///
    /// # Errors
    /// As [`Self::control`].
    pub async fn cancel(&self, scope: Scope, task: TaskId, by: &str) -> Result<bool, KernelError> {
        self.control(scope, task, Control::Cancel, by).await
    }
}
