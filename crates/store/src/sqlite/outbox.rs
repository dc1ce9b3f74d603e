//! Final messages that await delivery, and the notifications that they became.

use annie_core::{
    ids::{OutboxId, TaskId, UserId},
    ports::{Notification, StoreError},
    time::Micros,
};

use super::{Sqlite, statements::Statements};
use crate::sql::{Columns, corrupt, json, notification_of};

pub(super) const OUTBOX: &str = "SELECT o.id, o.user_id, o.task_id, o.conversation_id, t.title, t.priority, t.source, \
     t.state, o.text, o.at, o.channel, o.recipient, o.diverted \
     FROM outbox o CROSS JOIN tasks t ON t.id = o.task_id AND t.conversation_id = o.conversation_id \
     WHERE o.delivered_at IS NULL ORDER BY o.at, o.id LIMIT $1";
pub(super) const TO_NOTIFY: &str = "SELECT o.id, o.user_id, o.task_id, o.conversation_id, t.title, t.priority, t.source, \
     t.state, o.text, o.at, o.channel, o.recipient, o.diverted \
     FROM outbox o CROSS JOIN tasks t ON t.id = o.task_id AND t.conversation_id = o.conversation_id \
     WHERE o.delivered_at IS NULL AND (o.channel IS NULL OR o.diverted IS NOT NULL) ORDER BY o.at, o.id LIMIT $1";
/// A text is the next one of its address if the address has no older one.
pub(super) const TO_SEND: &str = "SELECT o.id, o.user_id, o.task_id, o.conversation_id, t.title, t.priority, t.source, \
     t.state, o.text, o.at, o.channel, o.recipient, o.diverted, \
     o.attempts, o.begun_by, o.begun_at, o.retry_at \
     FROM outbox o CROSS JOIN tasks t ON t.id = o.task_id AND t.conversation_id = o.conversation_id \
     WHERE o.delivered_at IS NULL AND o.channel IS NOT NULL AND o.diverted IS NULL AND o.channel = $1 \
     AND NOT EXISTS (SELECT 1 FROM outbox p WHERE p.delivered_at IS NULL AND p.channel IS NOT NULL \
         AND p.diverted IS NULL AND p.channel = o.channel AND p.recipient = o.recipient \
         AND (p.at, p.seq, p.id) < (o.at, o.seq, o.id)) \
     ORDER BY coalesce(o.retry_at, 0), o.at, o.seq, o.id LIMIT $2";
/// Ids are bound as one JSON list of hexadecimal texts, so that any number of them is the same statement.
pub(super) const DELIVERED: &str = "UPDATE outbox SET delivered_at = ? WHERE delivered_at IS NULL \
     AND id IN (SELECT unhex(value) FROM json_each(?));";
/// As [`DELIVERED`], but a text that a channel has to deliver stays undelivered.
pub(super) const RECEIVED: &str = "UPDATE outbox SET delivered_at = ? WHERE delivered_at IS NULL AND channel IS NULL \
     AND id IN (SELECT unhex(value) FROM json_each(?));";
pub(super) const WAITING: &str = "SELECT count(*) FROM outbox WHERE delivered_at IS NULL AND user_id = ? \
     AND (channel IS NULL OR diverted IS NOT NULL) \
     AND id IN (SELECT unhex(value) FROM json_each(?));";
const NOTIFY: &str = "INSERT INTO notifications (user_id, text, tasks, at) VALUES (?, ?, ?, ?) \
     RETURNING id, user_id, text, tasks, at;";
pub(super) const SWEEP_WORDS: &str = "UPDATE outbox SET text = '' WHERE delivered_at IS NOT NULL AND text <> '' \
     AND delivered_at < ?;";
const CHANGED: &str = "SELECT changes();";
pub(super) const SWEEP_NOTIFICATIONS: &str = "DELETE FROM notifications WHERE at < ?;";

impl Sqlite {
    pub(super) async fn mark_delivered(&self, ids: Vec<OutboxId>, at: Micros) -> Result<(), StoreError> {
        let mut statements = Statements::default();
        statements.push(RECEIVED).with(at.0).with(hex_list(ids.into_iter())?);
        self.write("marking deliveries", statements).await?;
        Ok(())
    }

    pub(super) async fn sweep_old(&self, before: Micros) -> Result<u64, StoreError> {
        let mut guard = self.lock_writer("sweeping the outbox").await?;
        let mut statements = Statements::begin();
        statements.push(SWEEP_WORDS).with(before.0).push(CHANGED);
        statements.push(SWEEP_NOTIFICATIONS).with(before.0).push(CHANGED);
        let swept = guard.begin(statements).await?;
        guard.commit(Statements::default()).await?;
        swept.iter().map(|row| Columns::of(row).count()).sum()
    }

    pub(super) async fn store_notification(
        &self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> Result<Option<Notification>, StoreError> {
        const WHAT: &str = "keeping a notification";
        let (ids, tasks): (std::collections::BTreeSet<_>, Vec<_>) = words.into_iter().unzip();
        let count = ids.len() as u64;
        let ids = hex_list(ids.into_iter())?;
        let mut guard = self.lock_writer(WHAT).await?;
        let mut statements = Statements::begin();
        statements.push(WAITING).with(user.as_str().to_owned()).with(ids.clone());
        let waiting = guard.begin(statements).await?.first().map(|row| Columns::of(row).count()).transpose()?;
        if waiting != Some(count) {
            guard.roll_back().await;
            return Ok(None);
        }
        let mut writes = Statements::default();
        writes.push(NOTIFY).with(user.as_str().to_owned()).with(text).with(json(&tasks)?).with(at.0);
        writes.push(DELIVERED).with(at.0).with(ids);
        let rows = guard.commit(writes).await?;
        let row = rows.first().ok_or_else(|| corrupt(WHAT, "it was not kept"))?;
        notification_of(&mut Columns::of(row)).map(Some)
    }
}

fn hex_list(ids: impl Iterator<Item = OutboxId>) -> Result<String, StoreError> {
    json(&ids.map(|id| id.uuid().simple().to_string()).collect::<Vec<_>>())
}
