//! Throws the projections away and folds the log again, in one transaction: whoever reads meanwhile sees the old tables.
//! What no event says is kept: whose a conversation is, who owns it, what was delivered, and the notifications. A conversation
//! with an event that cannot be read keeps its rows as they are: half a log would tell a wrong story.

use annie_core::{
    event::{Event, NewEvent},
    ids::{ConversationId, Seq, UserId},
    ports::{StoreError, StoreErrorKind},
    projection,
};

use super::{Sqlite, batch, statements::Statements, writer::Pen};
use crate::sql::{Columns, Writes, event_of, signed};

const WHAT: &str = "folding the log again";

/// Events that are read at once.
const PAGE_ROWS_MAX: i64 = 1_000;

const PREPARE: &str = "CREATE TEMP TABLE IF NOT EXISTS delivered (id BLOB, at INTEGER); DELETE FROM temp.delivered; \
     INSERT INTO temp.delivered SELECT id, delivered_at FROM main.outbox WHERE delivered_at IS NOT NULL; \
     CREATE TEMP TABLE IF NOT EXISTS unreadable (id BLOB); DELETE FROM temp.unreadable;";
const UNREADABLE: &str = "INSERT INTO temp.unreadable VALUES (?);";
const CLEAR: &str = "DELETE FROM tasks WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM intents WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM outbox WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM letters WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable); \
     DELETE FROM operations WHERE conversation_id NOT IN (SELECT id FROM temp.unreadable);";
const CONVERSATIONS: &str = "SELECT id, user_id FROM conversations WHERE id > ? ORDER BY id LIMIT ?;";
const EVENTS: &str = "SELECT seq, at, task_id, agent_id, v, body FROM events WHERE conversation_id = ? AND seq > ? \
     ORDER BY seq LIMIT ?;";
const RENAME: &str = "UPDATE conversations SET \
     next_seq = 1 + coalesce((SELECT max(seq) FROM events e WHERE e.conversation_id = conversations.id), 0), \
     created_at = coalesce((SELECT at FROM events e WHERE e.conversation_id = conversations.id AND seq = 1), created_at), \
     updated_at = coalesce((SELECT max(at) FROM events e WHERE e.conversation_id = conversations.id), updated_at), \
     title = coalesce((SELECT title FROM tasks t WHERE t.conversation_id = conversations.id AND title <> '' \
         ORDER BY t.seq LIMIT 1), '');";
const MARK_DELIVERED: &str = "UPDATE outbox SET delivered_at = (SELECT at FROM temp.delivered d WHERE d.id = outbox.id) \
     WHERE id IN (SELECT id FROM temp.delivered); DROP TABLE temp.delivered; \
     DROP TABLE temp.unreadable;";

impl Sqlite {
    pub(super) async fn fold_again(&self) -> Result<u64, StoreError> {
        let mut pen = self.pen(WHAT).await?;
        let folded = fold(&mut pen).await;
        if folded.is_err() {
            pen.roll_back().await;
        }
        folded
    }
}

async fn fold(pen: &mut Pen<'_>) -> Result<u64, StoreError> {
    let mut prepare = Statements::begin();
    prepare.say(PREPARE);
    pen.begin(prepare).await?;
    let conversations = conversations(pen).await?;
    let mut readable = Vec::new();
    for (conversation, user) in conversations {
        match check_conversation(pen, conversation).await {
            Ok(()) => readable.push((conversation, user)),
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                tracing::error!(%conversation, %error, "a conversation is left as it is");
                let mut keep = Statements::default();
                keep.say(UNREADABLE).with(conversation.uuid());
                pen.send(keep).await?;
            }
            Err(error) => return Err(error),
        }
    }
    let mut clear = Statements::default();
    clear.say(CLEAR);
    pen.send(clear).await?;
    let mut read = 0;
    for (conversation, user) in readable {
        read += fold_conversation(pen, conversation, &user).await?;
    }
    let mut finish = Statements::default();
    finish.say(RENAME).say(MARK_DELIVERED);
    pen.commit(finish).await?;
    Ok(read)
}

async fn conversations(pen: &mut Pen<'_>) -> Result<Vec<(ConversationId, UserId)>, StoreError> {
    let mut all: Vec<(ConversationId, UserId)> = Vec::new();
    loop {
        let after = all.last().map_or_else(Vec::new, |(last, _)| last.uuid().as_bytes().to_vec());
        let mut ask = Statements::default();
        ask.say(CONVERSATIONS).with(after).with(PAGE_ROWS_MAX);
        let page = pen.send(ask).await?;
        if page.is_empty() {
            return Ok(all);
        }
        for row in &page {
            let mut row = Columns::of(row);
            all.push((row.id(ConversationId::from_uuid)?, row.user()?));
        }
    }
}

/// Whether all events can be read.
async fn check_conversation(pen: &mut Pen<'_>, conversation: ConversationId) -> Result<(), StoreError> {
    let mut last = Seq(0);
    while let Some(newest) = page(pen, conversation, last).await?.last() {
        last = newest.seq;
    }
    Ok(())
}

async fn fold_conversation(pen: &mut Pen<'_>, conversation: ConversationId, user: &UserId) -> Result<u64, StoreError> {
    let mut last = Seq(0);
    let mut read = 0;
    loop {
        let events = page(pen, conversation, last).await?;
        let Some(newest) = events.last() else { return Ok(read) };
        last = newest.seq;
        read += events.len() as u64;
        let mut writes = Writes::default();
        for Event { seq, at, task, agent, body, .. } in events {
            writes.project(conversation, user, seq, &projection::changes(&NewEvent { at, task, agent, body }));
        }
        for statement in batch::statements(writes.rows()) {
            pen.send(statement).await?;
        }
    }
}

/// The next events behind a place.
async fn page(pen: &mut Pen<'_>, conversation: ConversationId, after: Seq) -> Result<Vec<Event>, StoreError> {
    let mut ask = Statements::default();
    ask.say(EVENTS).with(conversation.uuid()).with(signed(after.0)).with(PAGE_ROWS_MAX);
    let rows = pen.send(ask).await?;
    rows.iter().map(|row| event_of(conversation, &mut Columns::of(row))).collect()
}
