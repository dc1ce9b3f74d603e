//! Reading the log, owning a conversation, and its snapshot.

use annie_core::{
    event::{EVENT_VERSION, Event, Scope},
    ids::{AgentId, ConversationId, Epoch, NodeIncarnation, Seq, TaskId, UserId},
    ports::{Append, AppendError, Appended, Claim, Fut, Log, Snapshot, StoreError},
};
use sqlx::sqlite::SqliteRow;

use super::{
    SqliteStore,
    errors::{corrupt, failed},
    rows::{Columns, signed},
    statements::{Statements, arguments},
};
use crate::admission::Head;

const CLAIM: &str = "UPDATE conversations SET owner_node = ?, owner_epoch = owner_epoch + 1 WHERE id = ? \
     RETURNING owner_epoch, next_seq, user_id";
const EVENTS: &str = "SELECT seq, at, task_id, agent_id, v, body FROM events WHERE conversation_id = $1 AND seq > $2 \
     ORDER BY seq LIMIT $3";
const EVENTS_OF_USER: &str = "SELECT seq, at, task_id, agent_id, v, body FROM events WHERE conversation_id = $1 \
     AND seq > $2 AND EXISTS (SELECT 1 FROM conversations WHERE id = $1 AND user_id = $4) ORDER BY seq LIMIT $3";
const SNAPSHOT: &str = "SELECT seq, v, state FROM snapshots WHERE conversation_id = $1";
const PUT_SNAPSHOT: &str = "INSERT INTO snapshots (conversation_id, seq, v, state) \
     SELECT id, $2, $3, $4 FROM conversations WHERE id = $1 AND owner_epoch = $5 \
     ON CONFLICT (conversation_id) DO UPDATE SET seq = excluded.seq, v = excluded.v, state = excluded.state \
     WHERE excluded.seq >= snapshots.seq";
pub(super) const OPEN_CONVERSATIONS: &str = "SELECT conversation_id, user_id FROM tasks \
     WHERE state IN ('queued', 'running', 'suspended') GROUP BY conversation_id, user_id \
     ORDER BY min(received_at), conversation_id";

impl Log for SqliteStore {
    fn commit(&self, batch: Vec<Append>) -> Fut<'_, Vec<Result<Appended, AppendError>>> {
        Box::pin(self.commit_batch(batch))
    }

    fn claim(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Option<Claim>, StoreError>> {
        Box::pin(async move {
            let mut statements = Statements::default();
            statements.say(CLAIM).with(by.uuid()).with(conversation.uuid());
            let mut pen = self.pen("claiming a conversation").await?;
            let rows = pen.send(statements).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let mut row = Columns::of(row);
            let (epoch, next) = (row.epoch()?, row.seq()?);
            pen.recent().learn_head(conversation, Head { user: row.user()?, epoch, next });
            Ok(Some(Claim { epoch, last: Seq(next.0.saturating_sub(1)) }))
        })
    }

    fn events(
        &self,
        scope: Scope,
        conversation: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Fut<'_, Result<Vec<Event>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "reading events";
            let bound = arguments().with(conversation.uuid()).with(signed(after.0)).with(i64::from(limit));
            let (sql, bound) = match scope {
                Scope::User(user) => (EVENTS_OF_USER, bound.with(user.as_str().to_owned())),
                Scope::Operator => (EVENTS, bound),
            };
            let rows = self.rows(WHAT, sql, bound.finish().map_err(failed(WHAT))?).await?;
            rows.iter().map(|row| event_of(conversation, row)).collect()
        })
    }

    fn snapshot(&self, conversation: ConversationId) -> Fut<'_, Result<Option<Snapshot>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "reading a snapshot";
            let bound = arguments().with(conversation.uuid()).finish().map_err(failed(WHAT))?;
            let rows = self.rows(WHAT, SNAPSHOT, bound).await?;
            rows.first()
                .map(|row| {
                    let mut row = Columns::of(row);
                    Ok(Snapshot { seq: row.seq()?, v: row.version()?, state: row.take()? })
                })
                .transpose()
        })
    }

    fn put_snapshot(
        &self,
        conversation: ConversationId,
        epoch: Epoch,
        snapshot: Snapshot,
    ) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let mut statements = Statements::default();
            statements.say(PUT_SNAPSHOT).with(conversation.uuid()).with(signed(snapshot.seq.0));
            statements.with(i64::from(snapshot.v)).with(snapshot.state).with(signed(epoch.0));
            self.write("keeping a snapshot", statements).await?;
            Ok(())
        })
    }

    fn open_conversations(&self) -> Fut<'_, Result<Vec<(ConversationId, UserId)>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "reading open conversations";
            let rows = self.rows(WHAT, OPEN_CONVERSATIONS, arguments().finish().map_err(failed(WHAT))?).await?;
            rows.iter()
                .map(|row| {
                    let mut row = Columns::of(row);
                    Ok((row.id(ConversationId::from_uuid)?, row.user()?))
                })
                .collect()
        })
    }

    fn ping(&self) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "asking the database";
            self.rows(WHAT, "SELECT 1", arguments().finish().map_err(failed(WHAT))?).await?;
            Ok(())
        })
    }
}

/// An event out of `seq, at, task_id, agent_id, v, body`.
pub(super) fn event_of(conversation: ConversationId, row: &SqliteRow) -> Result<Event, StoreError> {
    const WHAT: &str = "reading an event";
    let mut row = Columns::of(row);
    let seq = row.seq()?;
    let at = row.at()?;
    let task = row.id(TaskId::from_uuid)?;
    let agent: AgentId = row.word()?;
    let version = row.version()?;
    if version > EVENT_VERSION {
        let detail = format!("{conversation} event {seq} has version {version}; this Annie knows {EVENT_VERSION}");
        return Err(corrupt(WHAT, detail));
    }
    let body: &str = row.take()?;
    let body =
        serde_json::from_str(body).map_err(|error| corrupt(WHAT, format!("{conversation} event {seq}: {error}")))?;
    Ok(Event { conversation, seq, at, task, agent, body })
}
