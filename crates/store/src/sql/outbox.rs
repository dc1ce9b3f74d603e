//! Final messages that await delivery, and the notifications that they became.

use annie_core::{
    ids::{ConversationId, OutboxId, TaskId, UserId},
    ports::{Fut, Notification, Outbox, OutboxRow, StoreError},
    time::Micros,
};

use super::{Cell, Columns, Database, SqlStore, signed};

pub const NOTIFICATIONS: &str = "SELECT id, user_id, text, tasks, at FROM notifications \
     WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3";
pub const LAST_NOTIFIED: &str = "SELECT at FROM notifications WHERE user_id = $1 ORDER BY id DESC LIMIT 1";

impl<D: Database> Outbox for SqlStore<D> {
    fn outbox(&self, limit: u32) -> Fut<'_, Result<Vec<OutboxRow>, StoreError>> {
        Box::pin(self.list("reading the outbox", D::OUTBOX, vec![limit.into()], outbox_row_of))
    }

    fn delivered(&self, ids: Vec<OutboxId>, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move { if ids.is_empty() { Ok(()) } else { self.db.deliver(ids, at).await } })
    }

    fn notify(
        &self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> Fut<'_, Result<Option<Notification>, StoreError>> {
        Box::pin(self.db.notify(user, text, words, at))
    }

    fn notifications(&self, user: UserId, after: u64, limit: u32) -> Fut<'_, Result<Vec<Notification>, StoreError>> {
        let bound = vec![Cell::from(&user), signed(after).into(), limit.into()];
        Box::pin(self.list("reading notifications", NOTIFICATIONS, bound, notification_of))
    }

    fn last_notified(&self, user: UserId) -> Fut<'_, Result<Option<Micros>, StoreError>> {
        let bound = vec![Cell::from(&user)];
        Box::pin(self.one("reading the last notification", LAST_NOTIFIED, bound, |row| row.at()))
    }

    fn sweep_outbox(&self, before: Micros) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.db.sweep(before))
    }
}

fn outbox_row_of(row: &mut Columns<'_>) -> Result<OutboxRow, StoreError> {
    Ok(OutboxRow {
        id: row.id(OutboxId::from_uuid)?,
        user: row.user()?,
        task: row.id(TaskId::from_uuid)?,
        conversation: row.id(ConversationId::from_uuid)?,
        title: row.text()?,
        priority: row.word()?,
        source: row.text()?,
        state: row.word()?,
        text: row.text()?,
        at: row.at()?,
    })
}

/// A notification from `id, user_id, text, tasks, at`.
pub fn notification_of(row: &mut Columns<'_>) -> Result<Notification, StoreError> {
    Ok(Notification { id: row.count()?, user: row.user()?, text: row.text()?, tasks: row.json()?, at: row.at()? })
}
