//! Deletions of conversations, and the erasure of their content. Each step is a transaction, and may be repeated: the
//! conditions of its statements find out what was done before.

use annie_core::{
    erasure::{ERASED, erased_body},
    event::{EVENT_VERSION, EventBody, NewEvent, Scope},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    ports::{DeleteConversation, Deleting, Deletion, Deletions, ErasedPart, Fut, StoreError},
    projection::{self, Change},
    time::Micros,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Cell, Columns, Database, SqlStore, json, signed, user_of};

/// A statement and its arguments.
pub type Step = (&'static str, Vec<Cell>);

const DELETION: &str = "SELECT d.conversation_id, d.user_id, CASE WHEN d.record_seq IS NULL THEN c.title ELSE '' END, \
     d.deleted_by, d.reason, d.deleted_at, d.erase_at, d.record_seq, d.erased_at FROM deletions d \
     JOIN conversations c ON c.id = d.conversation_id WHERE d.conversation_id = $1";
const RESTORABLE: &str = "SELECT d.conversation_id, d.user_id, c.title, d.deleted_by, d.reason, d.deleted_at, d.erase_at, \
     d.record_seq, d.erased_at FROM deletions d JOIN conversations c ON c.id = d.conversation_id \
     WHERE d.record_seq IS NULL AND ($1 IS NULL OR d.user_id = $1) ORDER BY d.deleted_at DESC, d.conversation_id LIMIT $2";
const DUE_ERASURES: &str = "SELECT d.conversation_id, d.user_id, '', d.deleted_by, d.reason, d.deleted_at, d.erase_at, \
     d.record_seq, d.erased_at FROM deletions d WHERE d.erased_at IS NULL AND (d.record_seq IS NOT NULL OR d.erase_at <= $1) \
     AND ($3 IS NULL OR d.user_id = $3) ORDER BY d.erase_at, d.conversation_id LIMIT $2";
const IS_THERE: &str = "SELECT 1 FROM conversations WHERE id = $1";

/// Only without an open task, and without a change since a time. The lock of the conversation's row excludes appends until the end of the transaction.
const DELETE: &str = "INSERT INTO deletions (conversation_id, user_id, deleted_by, reason, deleted_at, erase_at) \
     SELECT id, user_id, $2, $3, $4, $5 FROM conversations WHERE id = $1 AND deleted_at IS NULL AND updated_at < $6 \
     AND NOT EXISTS (SELECT 1 FROM tasks WHERE conversation_id = $1 AND state IN ('queued', 'running', 'suspended')) \
     ON CONFLICT DO NOTHING";
/// The epoch fences the former owner, and makes remembered heads outdated.
const HIDE: &str = "UPDATE conversations SET deleted_at = $2, owner_epoch = owner_epoch + 1, \
     owner_node = coalesce(owner_node, id) WHERE id = $1 AND deleted_at IS NULL \
     AND EXISTS (SELECT 1 FROM deletions WHERE conversation_id = $1)";
const DELIVER_NOTHING: &str = "UPDATE outbox SET delivered_at = $2, text = '' WHERE conversation_id = $1 \
     AND delivered_at IS NULL AND EXISTS (SELECT 1 FROM deletions WHERE conversation_id = $1)";
const UNDELETE: &str = "DELETE FROM deletions WHERE conversation_id = $1 AND record_seq IS NULL";
const SHOW: &str = "UPDATE conversations SET deleted_at = NULL, owner_epoch = owner_epoch + 1 WHERE id = $1 \
     AND deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM deletions WHERE conversation_id = $1) RETURNING id";

const RECORD: &str = "INSERT INTO events (conversation_id, seq, at, task_id, agent_id, kind, v, body) \
     SELECT c.id, c.next_seq, $2, $3, $4, $5, $6, $7 FROM conversations c \
     JOIN deletions d ON d.conversation_id = c.id WHERE c.id = $1 AND d.record_seq IS NULL";
const RECORDED: &str = "UPDATE deletions SET record_seq = (SELECT next_seq FROM conversations WHERE id = $1) \
     WHERE conversation_id = $1 AND record_seq IS NULL";
const AFTER_RECORD: &str = "UPDATE conversations SET next_seq = next_seq + 1, title = $3, \
     updated_at = CASE WHEN updated_at < $2 THEN $2 ELSE updated_at END \
     WHERE id = $1 AND next_seq = (SELECT record_seq FROM deletions WHERE conversation_id = $1)";
const NO_SNAPSHOT: &str = "DELETE FROM snapshots WHERE conversation_id = $1 \
     AND EXISTS (SELECT 1 FROM deletions WHERE conversation_id = $1)";

const PART: &str = "SELECT e.seq, e.at, e.task_id, e.agent_id, e.body FROM events e \
     JOIN deletions d ON d.conversation_id = e.conversation_id \
     WHERE e.conversation_id = $1 AND e.seq > d.erased_seq AND e.seq < d.record_seq ORDER BY e.seq LIMIT $2";
const ERASE: &str = "UPDATE events SET body = $3, erased_sha256 = $4, text_id = NULL \
     WHERE conversation_id = $1 AND seq = $2 AND erased_sha256 IS NULL";
const ERASED_UP_TO: &str = "UPDATE deletions SET erased_seq = $2 WHERE conversation_id = $1 AND erased_seq < $2";
const ALL_ERASED: &str = "UPDATE deletions SET erased_at = $2 WHERE conversation_id = $1 AND erased_at IS NULL";
const ERASE_TASK: &str = "UPDATE tasks SET client_id = $2, title = $3, text_sha256 = $4 WHERE id = $1";
const NO_ADDRESS: &str = "DELETE FROM addresses WHERE task_id = $1";
/// A notification about several tasks stays, without its text, for the others.
const ERASE_NOTIFICATION: &str = "UPDATE notifications SET text = $3, \
     tasks = replace(replace(replace(tasks, '\"' || $2 || '\",', ''), ',\"' || $2 || '\"', ''), '\"' || $2 || '\"', '') \
     WHERE user_id = $1 AND tasks LIKE '%' || $2 || '%'";
const NO_NOTIFICATION: &str = "DELETE FROM notifications WHERE user_id = $1 AND tasks = '[]'";
const ERASE_DEAD_LETTER: &str = "UPDATE dead_letters SET text = $2, detail = $3, tried = $4 WHERE task_id = $1";
const ERASE_OUTBOX: &str = "UPDATE outbox SET text = '', channel = NULL, recipient = NULL WHERE id = $1";

const UNNAMED_TEXTS: &str = "SELECT id FROM texts WHERE stored_at < $1 \
     AND id NOT IN (SELECT text_id FROM events WHERE text_id IS NOT NULL)";
const DELETE_TEXT: &str = "DELETE FROM texts WHERE id = $1 AND stored_at < $2";
const SWEEP_SNAPSHOTS: &str = "DELETE FROM snapshots WHERE conversation_id IN (SELECT s.conversation_id FROM snapshots s \
     JOIN conversations c ON c.id = s.conversation_id WHERE c.updated_at < $1 AND NOT EXISTS (SELECT 1 FROM tasks t \
     WHERE t.conversation_id = s.conversation_id AND t.state IN ('queued', 'running', 'suspended')) LIMIT $2) \
     RETURNING conversation_id";

const IDLE: &str = "SELECT id, user_id FROM conversations c WHERE updated_at < $1 AND deleted_at IS NULL AND NOT EXISTS \
     (SELECT 1 FROM tasks t WHERE t.conversation_id = c.id AND t.state IN ('queued', 'running', 'suspended')) \
     ORDER BY updated_at, id LIMIT $2";

impl<D: Database> Deletions for SqlStore<D> {
    fn delete_conversation(&self, request: DeleteConversation) -> Fut<'_, Result<Deleting, StoreError>> {
        Box::pin(async move {
            let DeleteConversation { conversation, by, reason, at, erase_at, unchanged_since } = request;
            let before = unchanged_since.unwrap_or(Micros(i64::MAX));
            let id = || Cell::from(conversation.uuid());
            let steps = vec![
                (D::LOCK_CONVERSATION, vec![id()]),
                (DELETE, vec![id(), by.into(), reason.into(), at.into(), erase_at.into(), before.into()]),
                (HIDE, vec![id(), at.into()]),
                (DELIVER_NOTHING, vec![id(), at.into()]),
            ];
            self.db.steps("deleting a conversation", steps).await?;
            if self.deletion(conversation).await?.is_some() {
                return Ok(Deleting::Deleted);
            }
            let is_there = !self.query("finding a conversation", IS_THERE, vec![id()]).await?.is_empty();
            Ok(if is_there { Deleting::Busy } else { Deleting::Unknown })
        })
    }

    fn restore_conversation(&self, conversation: ConversationId) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let id = || vec![Cell::from(conversation.uuid())];
            let steps = vec![(D::LOCK_CONVERSATION, id()), (UNDELETE, id()), (SHOW, id())];
            let rows = self.db.steps("restoring a conversation", steps).await?;
            Ok(rows.last().is_some_and(|shown| !shown.is_empty()))
        })
    }

    fn deletion(&self, conversation: ConversationId) -> Fut<'_, Result<Option<Deletion>, StoreError>> {
        Box::pin(self.one("reading a deletion", DELETION, vec![conversation.uuid().into()], deletion_of))
    }

    fn restorable(&self, scope: Scope, limit: u32) -> Fut<'_, Result<Vec<Deletion>, StoreError>> {
        let bound = vec![Cell::maybe_text(user_of(scope)), limit.into()];
        Box::pin(self.list("listing deleted conversations", RESTORABLE, bound, deletion_of))
    }

    fn due_erasures(&self, scope: Scope, now: Micros, limit: u32) -> Fut<'_, Result<Vec<Deletion>, StoreError>> {
        let bound = vec![now.into(), limit.into(), Cell::maybe_text(user_of(scope))];
        Box::pin(self.list("listing due erasures", DUE_ERASURES, bound, deletion_of))
    }

    fn erase_step(
        &self,
        conversation: ConversationId,
        record: NewEvent,
        events_max: u32,
    ) -> Fut<'_, Result<ErasedPart, StoreError>> {
        Box::pin(self.erase(conversation, record, events_max))
    }

    fn sweep_texts(&self, before: Micros) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            // An append names a text that it wrote at most an hour before, or writes it, so a text that was old and unnamed at the
            // time of this query and is old now is named by no event, also not by one of a commit under way.
            let id = |row: &mut Columns<'_>| row.id(|id| id);
            let unnamed: Vec<Uuid> =
                self.list("listing texts without events", UNNAMED_TEXTS, vec![before.into()], id).await?;
            let count = unnamed.len() as u64;
            for id in unnamed {
                self.execute("deleting a text", DELETE_TEXT, vec![id.into(), before.into()]).await?;
            }
            Ok(count)
        })
    }

    fn sweep_snapshots(&self, before: Micros, limit: u32) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            let bound = vec![before.into(), limit.into()];
            Ok(self.execute("deleting snapshots", SWEEP_SNAPSHOTS, bound).await?.len() as u64)
        })
    }

    fn idle_conversations(
        &self,
        before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<(ConversationId, UserId)>, StoreError>> {
        let idle = |row: &mut Columns<'_>| Ok((row.id(ConversationId::from_uuid)?, row.user()?));
        Box::pin(self.list("listing idle conversations", IDLE, vec![before.into(), limit.into()], idle))
    }

    fn compact(&self) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.db.compact())
    }
}

impl<D: Database> SqlStore<D> {
    async fn erase(
        &self,
        conversation: ConversationId,
        record: NewEvent,
        events_max: u32,
    ) -> Result<ErasedPart, StoreError> {
        const WHAT: &str = "erasing a conversation";
        let Some(deletion) = self.deletion(conversation).await? else {
            return Ok(ErasedPart { events: 0, is_done: true });
        };
        let at = record.at;
        if deletion.record.is_none() {
            let mut steps = vec![(D::LOCK_CONVERSATION, vec![conversation.uuid().into()])];
            steps.extend(first_steps(conversation, &record)?);
            self.db.steps(WHAT, steps).await?;
        }
        let bound = vec![conversation.uuid().into(), events_max.into()];
        let part = self.list("reading events to erase", PART, bound, part_of).await?;
        let mut steps = vec![(D::LOCK_CONVERSATION, vec![conversation.uuid().into()])];
        for (seq, event) in &part {
            steps.extend(steps_of(conversation, &deletion.user, *seq, event)?);
        }
        let id = Cell::from(conversation.uuid());
        if let Some((last, _)) = part.last() {
            steps.push((ERASED_UP_TO, vec![id.clone(), signed(last.0).into()]));
        }
        let is_done = part.len() < events_max as usize;
        if is_done {
            steps.push((ALL_ERASED, vec![id, at.into()]));
        }
        self.db.steps(WHAT, steps).await?;
        Ok(ErasedPart { events: part.len() as u64, is_done })
    }
}

/// The record, and the tables of the conversation as a whole.
fn first_steps(conversation: ConversationId, record: &NewEvent) -> Result<Vec<Step>, StoreError> {
    let id = || Cell::from(conversation.uuid());
    let event = vec![
        id(),
        record.at.into(),
        record.task.uuid().into(),
        record.agent.as_str().to_owned().into(),
        Cell::Word(record.body.kind()),
        Cell::Number(EVENT_VERSION.into()),
        json(&record.body)?.into(),
    ];
    Ok(vec![
        (RECORD, event),
        (RECORDED, vec![id()]),
        (AFTER_RECORD, vec![id(), record.at.into(), Cell::Word(ERASED)]),
        (NO_SNAPSHOT, vec![id()]),
    ])
}

/// An event whose content is to be erased: its time, task, agent and stored body.
type Stored = (Micros, TaskId, AgentId, String);

fn part_of(row: &mut Columns<'_>) -> Result<(Seq, Stored), StoreError> {
    Ok((row.seq()?, (row.at()?, row.id(TaskId::from_uuid)?, row.word()?, row.text()?)))
}

/// What erases an event, and what the tables have of it.
fn steps_of(
    conversation: ConversationId,
    user: &UserId,
    seq: Seq,
    (at, task, agent, body): &Stored,
) -> Result<Vec<Step>, StoreError> {
    let erased = erased_body(body, *task);
    let digest = Sha256::digest(body.as_bytes()).to_vec();
    let changed = vec![conversation.uuid().into(), signed(seq.0).into(), erased.clone().into(), Cell::Bytes(digest)];
    let mut steps = vec![(ERASE, changed)];
    let Ok(body) = serde_json::from_str::<EventBody>(&erased) else { return Ok(steps) };
    let event = NewEvent { at: *at, task: *task, agent: agent.clone(), body };
    for change in projection::changes(&event) {
        match change {
            Change::TaskOpened { task, client_id, text_sha256, title, .. } => {
                let row = vec![task.uuid().into(), client_id.into(), title.into(), Cell::Bytes(text_sha256.to_vec())];
                steps.push((ERASE_TASK, row));
                steps.push((NO_ADDRESS, vec![task.uuid().into()]));
                let notification = vec![Cell::from(user), task.to_string().into(), Cell::Word(ERASED)];
                steps.push((ERASE_NOTIFICATION, notification));
                steps.push((NO_NOTIFICATION, vec![Cell::from(user)]));
            }
            Change::DeadLetterPut { task, dead_letter, text, detail, .. } => {
                let tried = json(&dead_letter.tried)?;
                steps.push((ERASE_DEAD_LETTER, vec![task.uuid().into(), text.into(), detail.into(), tried.into()]));
            }
            Change::OutboxPut { id, .. } => steps.push((ERASE_OUTBOX, vec![id.uuid().into()])),
            Change::TaskMoved { .. }
            | Change::IntentPlanned { .. }
            | Change::IntentStarted { .. }
            | Change::IntentClosed { .. }
            | Change::TaskReprioritised { .. }
            | Change::TaskHeld { .. }
            | Change::TaskDeferred { .. }
            | Change::DeadLetterDue { .. }
            | Change::DeadLetterMoved { .. }
            | Change::OperationOpened { .. }
            | Change::OperationClosed { .. }
            | Change::UsageAdded { .. }
            | Change::AddressPut { .. } => {}
        }
    }
    Ok(steps)
}

fn deletion_of(row: &mut Columns<'_>) -> Result<Deletion, StoreError> {
    Ok(Deletion {
        conversation: row.id(ConversationId::from_uuid)?,
        user: row.user()?,
        title: row.text()?,
        by: row.text()?,
        reason: row.text()?,
        at: row.at()?,
        erase_at: row.at()?,
        record: row.maybe_seq()?,
        erased_at: row.maybe_at()?,
    })
}
