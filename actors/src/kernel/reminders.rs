//! Reminders of to-dos as front ends see them.

use annie_core::{
    ids::{ConversationId, TaskId, UserId},
    reminder::{REMINDER, RemindedTodo, Reminder, ReminderChange, SNOOZE_MINUTES_MAX, TODOS, pending},
};

use super::{Kernel, KernelError};
use crate::{
    observe::Path,
    reminders::{Reminders, change},
    worker::{Chore, WorkerMsg},
};

impl Kernel {
    /// A user's to-dos that have a reminder to come, the next one first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn reminders(&self, user: &UserId) -> Result<Vec<RemindedTodo>, KernelError> {
        let hits = self.wiring.documents.find_documents(user.clone(), &TODOS, pending()).await?;
        let mut found = Vec::new();
        for hit in hits {
            found.extend(RemindedTodo::of(&hit.document)?);
        }
        found.sort_by_key(|todo| (todo.remind_at, todo.number));
        Ok(found)
    }

    /// Cancels the reminder of a to-do. The to-do stays in the list.
    ///
    /// # Errors
    /// `NotFound` if the user has no such reminder to come.
    pub async fn cancel_reminder(&self, user: &UserId, number: u64) -> Result<RemindedTodo, KernelError> {
        let changed = change(&self.wiring, user, number, ReminderChange::Cancel).await?;
        changed.ok_or(KernelError::NotFound("reminder"))
    }

    /// Reminds the user of an open to-do in so many minutes, instead of at the time of its reminder.
    ///
    /// # Errors
    /// `Invalid` for a wrong number of minutes; `NotFound` if the user has no such open to-do.
    pub async fn snooze_reminder(&self, user: &UserId, number: u64, minutes: u32) -> Result<RemindedTodo, KernelError> {
        if minutes == 0 || minutes > SNOOZE_MINUTES_MAX {
            return Err(KernelError::Invalid(format!("a reminder is postponed by 1 to {SNOOZE_MINUTES_MAX} minutes")));
        }
        let new = Reminder {
            id: self.wiring.env.uuid(),
            conversation: ConversationId::for_key(user, REMINDER),
            // No task has this id: the reminder is not delivered to an address.
            task: TaskId::from_uuid(self.wiring.env.uuid()),
            timezone: self.timezone(user).to_owned(),
            claimed: None,
            reminded_at: None,
        };
        let until = self.now().later_ms(u64::from(minutes) * 60_000);
        let changed = change(&self.wiring, user, number, ReminderChange::Snooze { until, new }).await?;
        self.reminders_changed();
        changed.ok_or(KernelError::NotFound("open task"))
    }

    /// Makes the worker read the reminders.
    pub(super) fn reminders_changed(&self) {
        let path = Path::root().child("infra").child(Reminders::KIND);
        self.system.handle::<WorkerMsg<Reminders>>(&path).tell(WorkerMsg::New(()));
    }
}
