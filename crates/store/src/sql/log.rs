//! Reading the log, claiming a conversation, and snapshots.

use std::time::Instant;

use annie_core::{
    event::{EVENT_VERSION, Event, EventBody, Scope},
    ids::{AgentId, ConversationId, Epoch, NodeIncarnation, Seq, TaskId, UserId},
    ports::{Append, AppendError, Appended, Claim, Fut, Log, Snapshot, StoreError, StoredEvent, StoredText},
};

use super::{Cell, Columns, Database, SqlStore, corrupt, signed};
use crate::admission::Head;

/// A claim succeeds for every previous owner: every later write compares the epoch.
const CLAIM: &str = "UPDATE conversations SET owner_node = $1, owner_epoch = owner_epoch + 1 WHERE id = $2 \
     AND deleted_at IS NULL RETURNING user_id, owner_epoch, next_seq, deleted_at";
const EVENTS: &str = "SELECT seq, at, task_id, agent_id, v, body, text_id, \
     (SELECT text FROM texts WHERE id = text_id) FROM events WHERE conversation_id = $1 AND seq > $2 \
     ORDER BY seq LIMIT $3";
const STORED_EVENTS: &str = "SELECT seq, at, task_id, agent_id, body, erased_sha256, text_id, \
     (SELECT text FROM texts WHERE id = text_id) FROM events \
     WHERE conversation_id = $1 AND seq > $2 ORDER BY seq LIMIT $3";
const EVENTS_OF_USER: &str = "SELECT seq, at, task_id, agent_id, v, body, text_id, \
     (SELECT text FROM texts WHERE id = text_id) FROM events WHERE conversation_id = $1 \
     AND seq > $2 AND EXISTS (SELECT 1 FROM conversations WHERE id = $1 AND user_id = $4) ORDER BY seq LIMIT $3";
const SNAPSHOT: &str = "SELECT seq, v, state FROM snapshots WHERE conversation_id = $1";
pub const OPEN_CONVERSATIONS: &str = "SELECT conversation_id, user_id FROM tasks \
     WHERE state IN ('queued', 'running', 'suspended') GROUP BY conversation_id, user_id \
     ORDER BY min(received_at), conversation_id";

/// A write that always changes a page, in a row that belongs to no skill: if it succeeds, a disk that was full accepts writes
/// again.
const TRY_A_WRITE: &str = "INSERT INTO breakers (skill, state, failures, opened_at, trips) \
     VALUES ('', 'closed', 0, 0, 0) ON CONFLICT (skill) DO UPDATE SET failures = 1 - breakers.failures";
const END_OF_TRY: &str = "DELETE FROM breakers WHERE skill = ''";

impl<D: Database> Log for SqlStore<D> {
    fn commit(&self, batch: Vec<Append>) -> Fut<'_, Vec<Result<Appended, AppendError>>> {
        Box::pin(async move {
            let verdicts = self.db.commit(batch).await;
            let failed = verdicts.iter().find_map(|verdict| match verdict {
                Err(AppendError::Store(error)) => Some(error),
                _ => None,
            });
            self.trouble.note("committing appends", failed, Instant::now());
            verdicts
        })
    }

    fn claim(&self, conversation: ConversationId, by: NodeIncarnation) -> Fut<'_, Result<Option<Claim>, StoreError>> {
        Box::pin(async move {
            let head = self.db.claim(CLAIM, conversation, by).await?;
            Ok(head.map(|head| Claim { epoch: head.epoch, last: Seq(head.next.0.saturating_sub(1)) }))
        })
    }

    fn events(
        &self,
        scope: Scope,
        conversation: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Fut<'_, Result<Vec<Event>, StoreError>> {
        let mut bound = vec![conversation.uuid().into(), signed(after.0).into(), limit.into()];
        let sql = match scope {
            Scope::User(user) => {
                bound.push(Cell::from(&user));
                EVENTS_OF_USER
            }
            Scope::Operator => EVENTS,
        };
        Box::pin(self.list("reading events", sql, bound, move |row| event_of(conversation, row)))
    }

    fn stored_events(
        &self,
        conversation: ConversationId,
        after: Seq,
        limit: u32,
    ) -> Fut<'_, Result<Vec<StoredEvent>, StoreError>> {
        let bound = vec![conversation.uuid().into(), signed(after.0).into(), limit.into()];
        let stored = |row: &mut Columns<'_>| {
            let (seq, at, task) = (row.seq()?, row.at()?, row.id(TaskId::from_uuid)?);
            let (agent, body, erased) = (row.text()?, row.text()?, row.maybe_sha256()?);
            let text = row.maybe_id(|id| id)?.map(|id| Ok(StoredText { id, text: row.maybe_text()? })).transpose()?;
            Ok(StoredEvent { seq, at, task, agent, body, erased, text })
        };
        Box::pin(self.list("reading stored events", STORED_EVENTS, bound, stored))
    }

    fn snapshot(&self, conversation: ConversationId) -> Fut<'_, Result<Option<Snapshot>, StoreError>> {
        let snapshot = |row: &mut Columns<'_>| Ok(Snapshot { seq: row.seq()?, v: row.version()?, state: row.text()? });
        Box::pin(self.one("reading a snapshot", SNAPSHOT, vec![conversation.uuid().into()], snapshot))
    }

    fn put_snapshot(
        &self,
        conversation: ConversationId,
        epoch: Epoch,
        snapshot: Snapshot,
    ) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let bound = vec![
                conversation.uuid().into(),
                signed(snapshot.seq.0).into(),
                u32::from(snapshot.v).into(),
                snapshot.state.into(),
                signed(epoch.0).into(),
            ];
            self.execute("keeping a snapshot", D::PUT_SNAPSHOT, bound).await?;
            Ok(())
        })
    }

    fn open_conversations(&self) -> Fut<'_, Result<Vec<(ConversationId, UserId)>, StoreError>> {
        let open = |row: &mut Columns<'_>| Ok((row.id(ConversationId::from_uuid)?, row.user()?));
        Box::pin(async move {
            // A caller that abandoned a commit calls this to find out what was stored. The answer must wait until that commit
            // is decided.
            self.db.settle().await?;
            self.list("reading open conversations", OPEN_CONVERSATIONS, Vec::new(), open).await
        })
    }

    fn ping(&self) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.query("asking the database", "SELECT 1", Vec::new()).await?;
            if self.trouble.needs_probe(Instant::now())
                && self.execute("trying a write", TRY_A_WRITE, Vec::new()).await.is_ok()
            {
                self.execute("removing the row of a tried write", END_OF_TRY, Vec::new()).await?;
                self.trouble.wrote(Instant::now());
            }
            self.trouble.present(Instant::now()).map_or(Ok(()), Err)
        })
    }
}

/// A conversation's head from `user_id, owner_epoch, next_seq, deleted_at`.
pub fn head_of(row: &mut Columns<'_>) -> Result<Head, StoreError> {
    Ok(Head { user: row.user()?, epoch: row.epoch()?, next: row.seq()?, is_deleted: row.maybe_at()?.is_some() })
}

/// An event from `seq, at, task_id, agent_id, v, body, text_id` and the text with that id.
pub fn event_of(conversation: ConversationId, row: &mut Columns<'_>) -> Result<Event, StoreError> {
    const WHAT: &str = "reading an event";
    let seq = row.seq()?;
    let at = row.at()?;
    let task = row.id(TaskId::from_uuid)?;
    let agent: AgentId = row.word()?;
    let version = row.version()?;
    if version > EVENT_VERSION {
        let detail = format!("{conversation} event {seq} has version {version}; this Annie knows {EVENT_VERSION}");
        return Err(corrupt(WHAT, detail));
    }
    let mut body: EventBody = serde_json::from_str(&row.str()?)
        .map_err(|error| corrupt(WHAT, format!("{conversation} event {seq}: {error}")))?;
    let (named, id) = (body.named_text(), row.maybe_id(|id| id)?);
    if let Some(missing) = named.filter(|_| named != id) {
        return Err(corrupt(WHAT, format!("{conversation} event {seq}: its row does not name its text {missing}")));
    }
    if let Some(id) = id {
        let text = row.maybe_text()?;
        if !text.is_some_and(|text| body.put_shared_text(text)) {
            return Err(corrupt(WHAT, format!("{conversation} event {seq}: its text {id} is missing")));
        }
    }
    Ok(Event { conversation, seq, at, task, agent, body })
}
