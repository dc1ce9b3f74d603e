//! Deletes the projections and folds the log again, in one transaction: concurrent readers see the old tables. Data that
//! follows from no event is kept: the user and the owner of each conversation, deliveries, and notifications. A conversation
//! with an unreadable event keeps its rows unchanged, because an incomplete log would give wrong rows.

use annie_core::{
    event::{Event, NewEvent},
    ids::{ConversationId, Seq, UserId},
    ports::{StoreError, StoreErrorKind},
    projection,
};

use super::{Sqlite, batch, statements::Statements, writer::WriterGuard};
use crate::sql::{Columns, Writes, event_of, signed};

const WHAT: &str = "folding the log again";

/// Events per read.
const PAGE_ROWS_MAX: i64 = 1_000;

const PREPARE: &str = "CREATE TEMP TABLE IF NOT EXISTS delivered (id BLOB, at INTEGER, attempts INTEGER, begun_by BLOB, \
     begun_at INTEGER, retry_at INTEGER, diverted TEXT); DELETE FROM temp.delivered; \
     INSERT INTO temp.delivered SELECT id, delivered_at, attempts, begun_by, begun_at, retry_at, diverted \
     FROM main.outbox WHERE delivered_at IS NOT NULL OR attempts > 0 OR diverted IS NOT NULL; \
     CREATE TEMP TABLE IF NOT EXISTS unreadable (id BLOB); DELETE FROM temp.unreadable;";
const UNREADABLE: &str = "INSERT INTO temp.unreadable VALUES (?);";
const CLEAR: &str = "DELETE FROM tasks WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM usage_totals WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM addresses WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM intents WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM outbox WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM dead_letters WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM operations WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable);";
const CONVERSATIONS: &str = "SELECT id, user_id FROM conversations WHERE id > ? ORDER BY id LIMIT ?;";
const EVENTS: &str = "SELECT seq, at, task_id, agent_id, v, body, text_id, \
     (SELECT text FROM texts WHERE id = text_id) FROM events WHERE conversation_id = ? AND seq > ? \
     ORDER BY seq LIMIT ?;";
const RENAME: &str = "UPDATE conversations SET \
     next_seq = 1 + coalesce((SELECT max(seq) FROM events e WHERE e.conversation_id = conversations.id), 0), \
     created_at = coalesce((SELECT at FROM events e WHERE e.conversation_id = conversations.id AND seq = 1), created_at), \
     updated_at = coalesce((SELECT max(at) FROM events e WHERE e.conversation_id = conversations.id), updated_at), \
     title = coalesce((SELECT title FROM tasks t WHERE t.conversation_id = conversations.id AND title <> '' \
         ORDER BY t.seq LIMIT 1), '');";
const MARK_DELIVERED: &str = "UPDATE outbox SET (delivered_at, attempts, begun_by, begun_at, retry_at, diverted) = \
     (SELECT at, attempts, begun_by, begun_at, retry_at, diverted FROM temp.delivered d WHERE d.id = outbox.id) \
     WHERE id IN (SELECT id FROM temp.delivered); DROP TABLE temp.delivered; \
     DROP TABLE temp.unreadable;";

impl Sqlite {
    pub(super) async fn fold_again(&self) -> Result<u64, StoreError> {
        let mut guard = self.lock_writer(WHAT).await?;
        let folded = fold(&mut guard).await;
        if folded.is_err() {
            guard.roll_back().await;
        }
        folded
    }
}

async fn fold(guard: &mut WriterGuard<'_>) -> Result<u64, StoreError> {
    let mut prepare = Statements::begin();
    prepare.push(PREPARE);
    guard.begin(prepare).await?;
    let conversations = conversations(guard).await?;
    let mut readable = Vec::new();
    for (conversation, user) in conversations {
        match check_conversation(guard, conversation).await {
            Ok(()) => readable.push((conversation, user)),
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                tracing::error!(%conversation, %error, "a conversation with an unreadable event keeps its rows unchanged");
                let mut keep = Statements::default();
                keep.push(UNREADABLE).with(conversation.uuid());
                guard.send(keep).await?;
            }
            Err(error) => return Err(error),
        }
    }
    let mut clear = Statements::default();
    clear.push(CLEAR);
    guard.send(clear).await?;
    let mut read = 0;
    for (conversation, user) in readable {
        read += fold_conversation(guard, conversation, &user).await?;
    }
    let mut finish = Statements::default();
    finish.push(RENAME).push(MARK_DELIVERED);
    guard.commit(finish).await?;
    Ok(read)
}

async fn conversations(guard: &mut WriterGuard<'_>) -> Result<Vec<(ConversationId, UserId)>, StoreError> {
    let mut all: Vec<(ConversationId, UserId)> = Vec::new();
    loop {
        let after = all.last().map_or_else(Vec::new, |(last, _)| last.uuid().as_bytes().to_vec());
        let mut statements = Statements::default();
        statements.push(CONVERSATIONS).with(after).with(PAGE_ROWS_MAX);
        let page = guard.send(statements).await?;
        if page.is_empty() {
            return Ok(all);
        }
        for row in &page {
            let mut row = Columns::of(row);
            all.push((row.id(ConversationId::from_uuid)?, row.user()?));
        }
    }
}

/// Fails if an event cannot be read.
async fn check_conversation(guard: &mut WriterGuard<'_>, conversation: ConversationId) -> Result<(), StoreError> {
    let mut last = Seq(0);
    while let Some(newest) = page(guard, conversation, last).await?.last() {
        last = newest.seq;
    }
    Ok(())
}

async fn fold_conversation(
    guard: &mut WriterGuard<'_>,
    conversation: ConversationId,
    user: &UserId,
) -> Result<u64, StoreError> {
    let mut last = Seq(0);
    let mut read = 0;
    loop {
        let events = page(guard, conversation, last).await?;
        let Some(newest) = events.last() else { return Ok(read) };
        last = newest.seq;
        read += events.len() as u64;
        let mut writes = Writes::default();
        for Event { seq, at, task, agent, body, .. } in events {
            writes.project(conversation, user, seq, &projection::changes(&NewEvent { at, task, agent, body }));
        }
        for statement in batch::statements(writes.rows()) {
            guard.send(statement).await?;
        }
    }
}

/// The next events after a sequence number.
async fn page(guard: &mut WriterGuard<'_>, conversation: ConversationId, after: Seq) -> Result<Vec<Event>, StoreError> {
    let mut statements = Statements::default();
    statements.push(EVENTS).with(conversation.uuid()).with(signed(after.0)).with(PAGE_ROWS_MAX);
    let rows = guard.send(statements).await?;
    rows.iter().map(|row| event_of(conversation, &mut Columns::of(row))).collect()
}
