//! Deletes the projections and folds the log again, in one transaction: concurrent readers see the old tables, writers wait.
//! Data that follows from no event is kept: the user and the owner of each conversation, deliveries, and notifications. A
//! conversation with an unreadable event keeps its rows unchanged, because an incomplete log would give wrong rows.

use std::collections::BTreeSet;

use annie_core::{
    event::NewEvent,
    ids::{ConversationId, UserId},
    ports::{StoreError, StoreErrorKind},
    projection,
};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Postgres, batch::Plan, bound::Bound, connections::Held, errors::Failure};
use crate::sql::{Columns, Writes, event_of};

const WHAT: &str = "folding the log again";

/// Events per read.
const PAGE_ROWS_MAX: u32 = 1_000;

/// Appends lock a conversation's row first, deliveries an outbox row: both wait here.
const LOCK: &str = "SET LOCAL statement_timeout = 0; \
     LOCK TABLE conversations IN EXCLUSIVE MODE; LOCK TABLE outbox IN EXCLUSIVE MODE;";
/// Deliveries are remembered until the end of the transaction.
const REMEMBER_DELIVERED: &str = "CREATE TEMP TABLE delivered ON COMMIT DROP AS \
     SELECT id, delivered_at, attempts, begun_by, begun_at, retry_at, diverted FROM outbox \
     WHERE delivered_at IS NOT NULL OR attempts > 0 OR diverted IS NOT NULL; ANALYZE pg_temp.delivered;";
const MARK_DELIVERED: &str = "UPDATE outbox SET delivered_at = d.delivered_at, attempts = d.attempts, \
     begun_by = d.begun_by, begun_at = d.begun_at, retry_at = d.retry_at, diverted = d.diverted \
     FROM pg_temp.delivered d WHERE d.id = outbox.id;";
/// Deletes all rows except those of the conversations that are left unchanged.
const CLEAR: [&str; 7] = [
    "DELETE FROM tasks WHERE conversation_id <> ALL($1)",
    "DELETE FROM usage_totals WHERE conversation_id <> ALL($1)",
    "DELETE FROM addresses WHERE conversation_id <> ALL($1)",
    "DELETE FROM intents WHERE conversation_id <> ALL($1)",
    "DELETE FROM outbox WHERE conversation_id <> ALL($1)",
    "DELETE FROM dead_letters WHERE conversation_id <> ALL($1)",
    "DELETE FROM operations WHERE conversation_id <> ALL($1)",
];
pub(super) const EVENTS: &str = "SELECT e.conversation_id, c.user_id, e.seq, e.at, e.task_id, e.agent_id, e.v, e.body, \
     e.text_id, (SELECT text FROM texts WHERE id = e.text_id) \
     FROM events e JOIN conversations c ON c.id = e.conversation_id WHERE (e.conversation_id, e.seq) > ($1, $2) \
     ORDER BY e.conversation_id, e.seq LIMIT $3";
const RENAME: &str = "UPDATE conversations SET \
     next_seq = 1 + coalesce((SELECT max(seq) FROM events e WHERE e.conversation_id = conversations.id), 0), \
     created_at = coalesce((SELECT at FROM events e WHERE e.conversation_id = conversations.id AND seq = 1), created_at), \
     updated_at = coalesce((SELECT max(at) FROM events e WHERE e.conversation_id = conversations.id), updated_at), \
     title = coalesce((SELECT title FROM tasks t WHERE t.conversation_id = conversations.id AND title <> '' \
         ORDER BY t.seq LIMIT 1), '');";

impl Postgres {
    pub(super) async fn fold_again(&self) -> Result<u64, StoreError> {
        let mut patience = self.connections.patience();
        loop {
            match self.fold().await {
                Ok(folded) => return Ok(folded),
                Err(failure) => patience.after(failure).await.map_err(|failure| failure.during(WHAT))?,
            }
        }
    }

    async fn fold(&self) -> Result<u64, Failure> {
        let mut held = self.connections.take().await?;
        held.wait_for_ever();
        held.begin().await?;
        held.control(LOCK).await?;
        held.control(REMEMBER_DELIVERED).await?;
        let unreadable = unreadable(&mut held).await?;
        for clear in CLEAR {
            let unchanged: Vec<Uuid> = unreadable.iter().map(|id| id.uuid()).collect();
            held.rows(clear, Bound::default().ids(unchanged).finish()?).await?;
        }
        let (mut read, mut after) = (0, START);
        loop {
            let page = page(&mut held, after).await?;
            let Some(last) = page.last() else { break };
            after = row_key_of(last)?;
            read += fold_page(&mut held, &page, &unreadable).await?;
        }
        held.control(RENAME).await?;
        held.control(MARK_DELIVERED).await?;
        held.commit().await?;
        Ok(read)
    }
}

/// A position in the whole log.
type RowKey = (Uuid, i64);

/// The position before all events.
const START: RowKey = (Uuid::nil(), 0);

/// The next events of the whole log after a position.
async fn page(held: &mut Held<'_>, (conversation, seq): RowKey) -> Result<Vec<PgRow>, Failure> {
    held.rows(EVENTS, Bound::default().with(conversation).with(seq).with(PAGE_ROWS_MAX).finish()?).await
}

fn row_key_of(row: &PgRow) -> Result<RowKey, StoreError> {
    let mut row = Columns::of(row);
    let conversation = row.id(ConversationId::from_uuid)?;
    row.user()?;
    Ok((conversation.uuid(), row.number()?))
}

/// The conversations with an unreadable event.
async fn unreadable(held: &mut Held<'_>) -> Result<BTreeSet<ConversationId>, Failure> {
    let mut unreadable = BTreeSet::new();
    let mut after = START;
    loop {
        let page = page(held, after).await?;
        let Some(last) = page.last() else { return Ok(unreadable) };
        after = row_key_of(last)?;
        for row in &page {
            let mut row = Columns::of(row);
            let conversation = row.id(ConversationId::from_uuid)?;
            row.user()?;
            match event_of(conversation, &mut row) {
                Err(error) if error.kind == StoreErrorKind::Corrupt => {
                    if unreadable.insert(conversation) {
                        tracing::error!(%conversation, %error, "a conversation with an unreadable event keeps its rows unchanged");
                    }
                }
                other => drop(other?),
            }
        }
    }
}

/// Folds a page; returns the number of folded events.
async fn fold_page(held: &mut Held<'_>, page: &[PgRow], unreadable: &BTreeSet<ConversationId>) -> Result<u64, Failure> {
    let mut writes = Writes::default();
    let mut folded = 0;
    for row in page {
        let mut row = Columns::of(row);
        let conversation = row.id(ConversationId::from_uuid)?;
        if unreadable.contains(&conversation) {
            continue;
        }
        let user: UserId = row.user()?;
        let event = event_of(conversation, &mut row)?;
        let new = NewEvent { at: event.at, task: event.task, agent: event.agent, body: event.body };
        writes.project(conversation, &user, event.seq, &projection::changes(&new));
        folded += 1;
    }
    for statement in Plan::of(writes.rows()).statements() {
        let statement = statement?;
        held.rows_of(statement.text, statement.bound).await?;
    }
    Ok(folded)
}
