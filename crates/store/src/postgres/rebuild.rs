//! Throws the projections away and folds the log again, in one transaction: whoever reads meanwhile sees the old tables,
//! whoever writes waits. What no event says is kept: whose a conversation is, who owns it, what was delivered, and the
//! notifications. A word that was delivered keeps its row, so that it is not delivered again.

use annie_core::{
    event::NewEvent,
    ids::{ConversationId, UserId},
    ports::StoreError,
    projection,
};
use uuid::Uuid;

use super::{Postgres, batch::Plan, bound::Bound, connections::Held, errors::Failure};
use crate::sql::{Columns, Writes, event_of, signed};

const WHAT: &str = "folding the log again";

/// Events that are read at once.
const PAGE_ROWS_MAX: u32 = 1_000;

/// Appends lock a conversation's row first, deliveries a word's: both wait here.
const CLEAR: &str = "SET LOCAL statement_timeout = 0; \
     LOCK TABLE conversations IN EXCLUSIVE MODE; LOCK TABLE outbox IN EXCLUSIVE MODE; \
     DELETE FROM tasks; DELETE FROM intents; DELETE FROM outbox WHERE delivered_at IS NULL; DELETE FROM letters; \
     DELETE FROM operations;";
pub(super) const EVENTS: &str = "SELECT e.conversation_id, c.user_id, e.seq, e.at, e.task_id, e.agent_id, e.v, e.body \
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
        held.control(CLEAR).await?;
        let (mut read, mut after) = (0, (Uuid::nil(), 0));
        while let Some((events, last)) = fold_page(&mut held, after).await? {
            read += events;
            after = last;
        }
        held.control(RENAME).await?;
        held.commit().await?;
        Ok(read)
    }
}

/// How many events were folded, and the place of the last one; nothing if there are no more.
async fn fold_page(held: &mut Held<'_>, after: (Uuid, i64)) -> Result<Option<(u64, (Uuid, i64))>, Failure> {
    let bound = Bound::default().with(after.0).with(after.1).with(PAGE_ROWS_MAX);
    let page = held.rows(EVENTS, bound.finish()?).await?;
    let mut writes = Writes::default();
    let mut last = None;
    for row in &page {
        let mut row = Columns::of(row);
        let conversation = row.id(ConversationId::from_uuid)?;
        let user: UserId = row.user()?;
        let event = event_of(conversation, &mut row)?;
        let seq = event.seq;
        let new = NewEvent { at: event.at, task: event.task, agent: event.agent, body: event.body };
        writes.project(conversation, &user, seq, &projection::changes(&new));
        last = Some((conversation.uuid(), signed(seq.0)));
    }
    for statement in Plan::of(writes.rows()).statements() {
        let statement = statement?;
        held.rows_of(statement.text, statement.bound).await?;
    }
    Ok(last.map(|last| (page.len() as u64, last)))
}
