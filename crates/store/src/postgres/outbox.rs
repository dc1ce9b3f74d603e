//! Final messages that await delivery, and the notifications that they became.

use annie_core::{
    ids::{OutboxId, TaskId, UserId},
    ports::{Notification, StoreError},
    time::Micros,
};
use uuid::Uuid;

use super::{Postgres, bound::Bound, errors::Failure, transaction::Attempt};
use crate::sql::{Cell, Columns, json, notification_of};

pub(super) const OUTBOX: &str = "SELECT o.id, o.user_id, o.task_id, o.conversation_id, t.title, t.priority, t.source, \
     t.state, o.text, o.at, o.channel, o.recipient, o.diverted \
     FROM outbox o JOIN tasks t ON t.id = o.task_id AND t.conversation_id = o.conversation_id \
     WHERE o.delivered_at IS NULL ORDER BY o.at, o.id LIMIT $1";
pub(super) const TO_NOTIFY: &str = "SELECT o.id, o.user_id, o.task_id, o.conversation_id, t.title, t.priority, t.source, \
     t.state, o.text, o.at, o.channel, o.recipient, o.diverted \
     FROM outbox o JOIN tasks t ON t.id = o.task_id AND t.conversation_id = o.conversation_id \
     WHERE o.delivered_at IS NULL AND (o.channel IS NULL OR o.diverted IS NOT NULL) ORDER BY o.at, o.id LIMIT $1";
/// A text is the next one of its address if the address has no older one.
pub(super) const TO_SEND: &str = "SELECT o.id, o.user_id, o.task_id, o.conversation_id, t.title, t.priority, t.source, \
     t.state, o.text, o.at, o.channel, o.recipient, o.diverted, \
     o.attempts, o.begun_by, o.begun_at, o.retry_at \
     FROM outbox o JOIN tasks t ON t.id = o.task_id AND t.conversation_id = o.conversation_id \
     WHERE o.delivered_at IS NULL AND o.channel IS NOT NULL AND o.diverted IS NULL AND o.channel = $1 \
     AND NOT EXISTS (SELECT 1 FROM outbox p WHERE p.delivered_at IS NULL AND p.channel IS NOT NULL \
         AND p.diverted IS NULL AND p.channel = o.channel AND p.recipient = o.recipient \
         AND (p.at, p.seq, p.id) < (o.at, o.seq, o.id)) \
     ORDER BY coalesce(o.retry_at, 0), o.at, o.seq, o.id LIMIT $2";
pub(super) const DELIVERED: &str = "UPDATE outbox SET delivered_at = $1 WHERE id IN (SELECT id FROM outbox \
     WHERE id = ANY($2) AND delivered_at IS NULL ORDER BY id FOR UPDATE)";
/// As [`DELIVERED`], but a text that a channel has to deliver stays undelivered.
pub(super) const RECEIVED: &str = "UPDATE outbox SET delivered_at = $1 WHERE id IN (SELECT id FROM outbox \
     WHERE id = ANY($2) AND delivered_at IS NULL AND channel IS NULL ORDER BY id FOR UPDATE)";
/// Locks the messages: another process that would deliver one of them waits, and then finds it delivered.
pub(super) const WAITING: &str = "SELECT id FROM outbox WHERE id = ANY($2) AND user_id = $1 AND delivered_at IS NULL \
     AND (channel IS NULL OR diverted IS NOT NULL) ORDER BY id FOR UPDATE";
const NOTIFY: &str = "INSERT INTO notifications (user_id, text, tasks, at) VALUES ($1, $2, $3, $4) \
     RETURNING id, user_id, text, tasks, at";
const NOTIFIED: &str = "SELECT id, user_id, text, tasks, at FROM notifications \
     WHERE user_id = $1 AND text = $2 AND tasks = $3 AND at = $4 ORDER BY id DESC LIMIT 1";
pub(super) const SWEEP: &str = "WITH words AS (UPDATE outbox SET text = '' WHERE delivered_at IS NOT NULL AND text <> '' \
         AND delivered_at < $1 RETURNING 1), \
     old AS (DELETE FROM notifications WHERE at < $1 RETURNING 1) \
     SELECT (SELECT count(*) FROM words) + (SELECT count(*) FROM old)";

impl Postgres {
    pub(super) async fn mark_delivered(&self, ids: Vec<OutboxId>, at: Micros) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        let bound = || Bound::default().with(at).ids(ids.clone());
        self.connections.rows("marking deliveries", RECEIVED, bound).await.map(drop)
    }

    pub(super) async fn sweep_old(&self, before: Micros) -> Result<u64, StoreError> {
        let rows = self.connections.rows("sweeping the outbox", SWEEP, || Bound::default().with(before)).await?;
        rows.first().map_or(Ok(0), |row| Columns::of(row).count())
    }

    pub(super) async fn store_notification(
        &self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> Result<Option<Notification>, StoreError> {
        let (ids, tasks): (std::collections::BTreeSet<_>, Vec<_>) = words.into_iter().unzip();
        let ids: Vec<Uuid> = ids.into_iter().map(OutboxId::uuid).collect();
        let notification = vec![Cell::from(&user), text.into(), json(&tasks)?.into(), at.into()];
        self.transaction("keeping a notification", |attempt| {
            let (user, ids, notification) = (user.clone(), ids.clone(), notification.clone());
            Box::pin(async move { notify(attempt, &user, ids, at, notification).await })
        })
        .await
    }
}

async fn notify(
    attempt: &mut Attempt<'_>,
    user: &UserId,
    ids: Vec<Uuid>,
    at: Micros,
    notification: Vec<Cell>,
) -> Result<Option<Notification>, Failure> {
    attempt.lock(format!("notifications of {user}")).await?;
    let waiting = attempt.rows(WAITING, Bound::default().with(user).ids(ids.clone())).await?;
    let rows = if waiting.len() == ids.len() {
        attempt.rows(DELIVERED, Bound::default().with(at).ids(ids)).await?;
        attempt.rows(NOTIFY, Bound::of(notification)).await?
    } else if attempt.is_repeated {
        attempt.rows(NOTIFIED, Bound::of(notification)).await?
    } else {
        Vec::new()
    };
    Ok(rows.first().map(|row| notification_of(&mut Columns::of(row))).transpose()?)
}
