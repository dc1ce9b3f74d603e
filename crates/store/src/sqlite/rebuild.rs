//! Throws the projections away and folds the log again, in one transaction: whoever reads meanwhile sees the old tables.
//! What no event says is kept: whose a conversation is, who owns it, what was delivered, and the notifications.

use annie_core::{
    event::{Event, NewEvent},
    ids::{ConversationId, Seq, UserId},
    ports::StoreError,
    projection,
};

use super::{Sqlite, batch, statements::Statements, writer::Pen};
use crate::sql::{Columns, Writes, event_of, signed};

const WHAT: &str = "folding the log again";

/// Events that are read at once.
const PAGE_ROWS_MAX: i64 = 1_000;

const CLEAR: &str = "CREATE TEMP TABLE IF NOT EXISTS delivered (id BLOB, at INTEGER); DELETE FROM temp.delivered; \
     INSERT INTO temp.delivered SELECT id, delivered_at FROM main.outbox WHERE delivered_at IS NOT NULL; \
     DELETE FROM tasks; DELETE FROM intents; DELETE FROM outbox; DELETE FROM letters; DELETE FROM operations;";
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
     WHERE id IN (SELECT id FROM temp.delivered); DROP TABLE temp.delivered;";

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
    let mut clear = Statements::begin();
    clear.say(CLEAR);
    pen.begin(clear).await?;
    let mut read = 0;
    let mut after: Vec<u8> = Vec::new();
    loop {
        let mut ask = Statements::default();
        ask.say(CONVERSATIONS).with(after.clone()).with(PAGE_ROWS_MAX);
        let page = pen.send(ask).await?;
        for row in &page {
            let mut row = Columns::of(row);
            let (conversation, user) = (row.id(ConversationId::from_uuid)?, row.user()?);
            read += fold_conversation(pen, conversation, &user).await?;
            after = conversation.uuid().as_bytes().to_vec();
        }
        if page.is_empty() {
            break;
        }
    }
    let mut finish = Statements::default();
    finish.say(RENAME).say(MARK_DELIVERED);
    pen.commit(finish).await?;
    Ok(read)
}

async fn fold_conversation(pen: &mut Pen<'_>, conversation: ConversationId, user: &UserId) -> Result<u64, StoreError> {
    let mut last = Seq(0);
    let mut read = 0;
    loop {
        let mut ask = Statements::default();
        ask.say(EVENTS).with(conversation.uuid()).with(signed(last.0)).with(PAGE_ROWS_MAX);
        let page = pen.send(ask).await?;
        if page.is_empty() {
            return Ok(read);
        }
        let mut writes = Writes::default();
        for row in &page {
            let Event { seq, at, task, agent, body, .. } = event_of(conversation, &mut Columns::of(row))?;
            writes.project(conversation, user, seq, &projection::changes(&NewEvent { at, task, agent, body }));
            last = seq;
        }
        for statement in batch::statements(writes.rows()) {
            pen.send(statement).await?;
        }
        read += page.len() as u64;
    }
}
