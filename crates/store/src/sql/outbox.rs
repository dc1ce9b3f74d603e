//! Final messages that await delivery, and the notifications that they became.

use annie_core::{
    ids::{ConversationId, NodeId, OutboxId, TaskId, UserId},
    ports::{Address, DeliveryEnd, DeliveryRow, Diverted, Fut, Notification, Outbox, OutboxRow, StoreError},
    time::Micros,
};

use super::{Cell, Columns, Database, SqlStore, corrupt, signed};

pub const NOTIFICATIONS: &str = "SELECT id, user_id, text, tasks, at FROM notifications \
     WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3";
pub const LAST_NOTIFIED: &str = "SELECT at FROM notifications WHERE user_id = $1 ORDER BY id DESC LIMIT 1";
pub const WAITING_CHANNELS: &str = "SELECT DISTINCT channel FROM outbox \
     WHERE delivered_at IS NULL AND channel IS NOT NULL AND diverted IS NULL";
/// The second condition on `attempts` recognises the same call, if the reply to the first one was lost.
pub const BEGIN_DELIVERY: &str = "UPDATE outbox SET attempts = $2 + 1, begun_by = $3, begun_at = $4 \
     WHERE id = $1 AND delivered_at IS NULL AND channel IS NOT NULL AND diverted IS NULL \
     AND (attempts = $2 OR (attempts = $2 + 1 AND begun_by = $3 AND begun_at = $4)) RETURNING id";
pub const END_DELIVERY: &str = "UPDATE outbox SET delivered_at = $3, retry_at = $4, diverted = $5, begun_by = NULL, \
     begun_at = NULL WHERE id = $1 AND attempts = $2 AND delivered_at IS NULL AND channel IS NOT NULL \
     AND diverted IS NULL RETURNING id";
pub const DIVERT_CHANNEL: &str = "UPDATE outbox SET \
     diverted = CASE WHEN begun_at IS NULL THEN 'no_channel' ELSE 'in_doubt' END, begun_by = NULL, begun_at = NULL \
     WHERE delivered_at IS NULL AND channel IS NOT NULL AND diverted IS NULL AND channel = $1 AND at < $2 RETURNING id";

impl<D: Database> Outbox for SqlStore<D> {
    fn outbox(&self, limit: u32) -> Fut<'_, Result<Vec<OutboxRow>, StoreError>> {
        Box::pin(self.list("reading the outbox", D::OUTBOX, vec![limit.into()], outbox_row_of))
    }

    fn to_notify(&self, limit: u32) -> Fut<'_, Result<Vec<OutboxRow>, StoreError>> {
        Box::pin(self.list("reading the outbox", D::TO_NOTIFY, vec![limit.into()], outbox_row_of))
    }

    fn waiting_channels(&self) -> Fut<'_, Result<Vec<String>, StoreError>> {
        Box::pin(self.list("reading the waiting channels", WAITING_CHANNELS, Vec::new(), |row| row.text()))
    }

    fn next_deliveries(&self, channel: String, limit: u32) -> Fut<'_, Result<Vec<DeliveryRow>, StoreError>> {
        Box::pin(self.list("reading deliveries", D::TO_SEND, vec![channel.into(), limit.into()], delivery_row_of))
    }

    fn begin_delivery(&self, id: OutboxId, attempts: u32, by: NodeId, at: Micros) -> Fut<'_, Result<bool, StoreError>> {
        let bound = vec![id.uuid().into(), attempts.into(), by.uuid().into(), at.into()];
        Box::pin(async move { Ok(!self.execute("beginning a delivery", BEGIN_DELIVERY, bound).await?.is_empty()) })
    }

    fn end_delivery(&self, id: OutboxId, attempts: u32, end: DeliveryEnd) -> Fut<'_, Result<bool, StoreError>> {
        let (delivered_at, retry_at, diverted) = match end {
            DeliveryEnd::Delivered(at) => (Some(at), None, None),
            DeliveryEnd::Retry(at) => (None, Some(at), None),
            DeliveryEnd::Diverted(why) => (None, None, Some(why.as_str())),
        };
        let ends = [Cell::maybe_at(delivered_at), Cell::maybe_at(retry_at), Cell::maybe_word(diverted)];
        let bound: Vec<Cell> = [Cell::from(id.uuid()), Cell::from(attempts)].into_iter().chain(ends).collect();
        Box::pin(async move { Ok(!self.execute("ending a delivery", END_DELIVERY, bound).await?.is_empty()) })
    }

    fn divert_channel(&self, channel: String, before: Micros) -> Fut<'_, Result<u64, StoreError>> {
        let bound = vec![channel.into(), before.into()];
        Box::pin(async move { Ok(self.execute("diverting a channel", DIVERT_CHANNEL, bound).await?.len() as u64) })
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
        reply_to: address_of(row)?,
        diverted: diverted_of(row)?,
    })
}

fn address_of(row: &mut Columns<'_>) -> Result<Option<Address>, StoreError> {
    let (channel, to) = (row.maybe_text()?, row.maybe_text()?);
    Ok(channel.zip(to).map(|(channel, to)| Address { channel, to }))
}

fn diverted_of(row: &mut Columns<'_>) -> Result<Option<Diverted>, StoreError> {
    let Some(word) = row.maybe_text()? else { return Ok(None) };
    let all = [Diverted::InDoubt, Diverted::Refused, Diverted::GivenUp, Diverted::NoChannel];
    let known = all.into_iter().find(|diverted| diverted.as_str() == word);
    known.map(Some).ok_or_else(|| corrupt("reading the outbox", format!("a text is diverted as {word:?}")))
}

fn delivery_row_of(row: &mut Columns<'_>) -> Result<DeliveryRow, StoreError> {
    let text = outbox_row_of(row)?;
    let attempts = row.small()?;
    let (by, at) = (row.maybe_id(NodeId::from_uuid)?, row.maybe_at()?);
    Ok(DeliveryRow { text, attempts, begun: by.zip(at), retry_at: row.maybe_at()? })
}

/// A notification from `id, user_id, text, tasks, at`.
pub fn notification_of(row: &mut Columns<'_>) -> Result<Notification, StoreError> {
    Ok(Notification { id: row.count()?, user: row.user()?, text: row.text()?, tasks: row.json()?, at: row.at()? })
}
