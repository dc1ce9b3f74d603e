//! Lists and look-ups in the log's projections.

use annie_core::{
    event::Scope,
    ids::{ConversationId, IntentId, NodeIncarnation, TaskId, UserId},
    ports::{Before, ConversationRow, Fut, IntentRow, MessageRow, Records, StoreError, TaskRow},
    spend::{UsageQuery, UsageRow},
};

use super::{Cell, Columns, Database, SqlStore, user_of};

const CONVERSATION: &str = "SELECT id, user_id, title, next_seq - 1, owner_epoch, owner_node, created_at, updated_at, \
     stateless, deleted_at FROM conversations WHERE id = $1 AND ($2 IS NULL OR user_id = $2)";
const CONVERSATIONS: &str = "SELECT id, user_id, title, next_seq - 1, owner_epoch, owner_node, created_at, updated_at, \
     stateless, deleted_at FROM conversations WHERE (updated_at, id) < ($1, $2) ORDER BY updated_at DESC, id DESC LIMIT $3";
const CONVERSATIONS_OF_USER: &str = "SELECT id, user_id, title, next_seq - 1, owner_epoch, owner_node, created_at, updated_at, \
     stateless, deleted_at FROM conversations WHERE (updated_at, id) < ($1, $2) AND user_id = $4 \
     AND deleted_at IS NULL ORDER BY updated_at DESC, id DESC LIMIT $3";

const LISTED: &str = "SELECT id, user_id, title, next_seq - 1, owner_epoch, owner_node, created_at, updated_at, \
     stateless, deleted_at FROM conversations WHERE (updated_at, id) < ($1, $2) AND NOT stateless \
     AND deleted_at IS NULL ORDER BY updated_at DESC, id DESC LIMIT $3";
const LISTED_OF_USER: &str = "SELECT id, user_id, title, next_seq - 1, owner_epoch, owner_node, created_at, updated_at, \
     stateless, deleted_at FROM conversations WHERE (updated_at, id) < ($1, $2) AND NOT stateless AND user_id = $4 \
     AND deleted_at IS NULL ORDER BY updated_at DESC, id DESC LIMIT $3";

const TASK: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, not_before, \
     after_ids, is_order, is_steer, joins, held_at, has_model_failed, started_at, ended_at, error FROM tasks \
     WHERE id = $1 AND ($2 IS NULL OR user_id = $2)";
const MESSAGE: &str = "SELECT id, conversation_id, seq, text_sha256 FROM tasks WHERE user_id = $1 AND client_id = $2";
const TASKS: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, not_before, \
     after_ids, is_order, is_steer, joins, held_at, has_model_failed, started_at, ended_at, error FROM tasks \
     WHERE (received_at, id) < ($1, $2) ORDER BY received_at DESC, id DESC LIMIT $3";
const TASKS_OF_USER: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, \
     not_before, after_ids, is_order, is_steer, joins, held_at, has_model_failed, started_at, ended_at, error FROM tasks \
     WHERE (received_at, id) < ($1, $2) AND user_id = $4 ORDER BY received_at DESC, id DESC LIMIT $3";
pub const OPEN_TASKS: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, \
     not_before, after_ids, is_order, is_steer, joins, held_at, has_model_failed, started_at, ended_at, error FROM tasks \
     WHERE (received_at, id) < ($1, $2) AND state IN ('queued', 'running', 'suspended') ORDER BY received_at DESC, id DESC LIMIT $3";
const OPEN_TASKS_OF_USER: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, \
     not_before, after_ids, is_order, is_steer, joins, held_at, has_model_failed, started_at, ended_at, error FROM tasks \
     WHERE (received_at, id) < ($1, $2) AND user_id = $4 AND state IN ('queued', 'running', 'suspended') \
     ORDER BY received_at DESC, id DESC LIMIT $3";

const INTENTS: &str = "SELECT i.id, i.task_id, i.skill, i.effect, CASE WHEN i.state = 'started' AND \
     t.ended_at IS NOT NULL THEN 'unknown' ELSE i.state END AS state, i.attempts FROM intents i \
     LEFT JOIN tasks t ON t.id = i.task_id WHERE i.task_id = $1 ORDER BY i.seq, i.place";

impl<D: Database> Records for SqlStore<D> {
    fn conversation(&self, scope: Scope, id: ConversationId) -> Fut<'_, Result<Option<ConversationRow>, StoreError>> {
        let bound = vec![id.uuid().into(), Cell::maybe_text(user_of(scope))];
        Box::pin(self.one("reading a conversation", CONVERSATION, bound, conversation_of))
    }

    fn conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>> {
        let mut bound = vec![before.at.into(), before.id.into(), limit.into()];
        let user = user_of(scope);
        let sql = if user.is_some() { CONVERSATIONS_OF_USER } else { CONVERSATIONS };
        bound.extend(user.map(Cell::Text));
        Box::pin(self.list("listing conversations", sql, bound, conversation_of))
    }

    fn listed_conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>> {
        let mut bound = vec![before.at.into(), before.id.into(), limit.into()];
        let user = user_of(scope);
        let sql = if user.is_some() { LISTED_OF_USER } else { LISTED };
        bound.extend(user.map(Cell::Text));
        Box::pin(self.list("listing conversations", sql, bound, conversation_of))
    }

    fn task(&self, scope: Scope, id: TaskId) -> Fut<'_, Result<Option<TaskRow>, StoreError>> {
        let bound = vec![id.uuid().into(), Cell::maybe_text(user_of(scope))];
        Box::pin(self.one("reading a task", TASK, bound, task_of))
    }

    fn tasks(&self, scope: Scope, open: bool, before: Before, limit: u32) -> Fut<'_, Result<Vec<TaskRow>, StoreError>> {
        let mut bound = vec![before.at.into(), before.id.into(), limit.into()];
        let user = user_of(scope);
        let sql = match (&user, open) {
            (Some(_), false) => TASKS_OF_USER,
            (Some(_), true) => OPEN_TASKS_OF_USER,
            (None, false) => TASKS,
            (None, true) => OPEN_TASKS,
        };
        bound.extend(user.map(Cell::Text));
        Box::pin(self.list("listing tasks", sql, bound, task_of))
    }

    fn message(&self, user: UserId, client_id: String) -> Fut<'_, Result<Option<MessageRow>, StoreError>> {
        let bound = vec![Cell::from(&user), client_id.into()];
        Box::pin(self.one("reading a message", MESSAGE, bound, message_of))
    }

    fn intents(&self, task: TaskId) -> Fut<'_, Result<Vec<IntentRow>, StoreError>> {
        Box::pin(self.list("reading intents", INTENTS, vec![task.uuid().into()], intent_of))
    }

    fn usage(&self, query: UsageQuery) -> Fut<'_, Result<Vec<UsageRow>, StoreError>> {
        Box::pin(super::usage::usage(self, query))
    }

    fn rebuild(&self) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.db.rebuild())
    }
}

fn message_of(row: &mut Columns<'_>) -> Result<MessageRow, StoreError> {
    Ok(MessageRow {
        task: row.id(TaskId::from_uuid)?,
        conversation: row.id(ConversationId::from_uuid)?,
        seq: row.seq()?,
        text_sha256: row.sha256()?,
    })
}

fn conversation_of(row: &mut Columns<'_>) -> Result<ConversationRow, StoreError> {
    Ok(ConversationRow {
        id: row.id(ConversationId::from_uuid)?,
        user: row.user()?,
        title: row.text()?,
        last_seq: row.seq()?,
        epoch: row.epoch()?,
        owner: row.maybe_id(NodeIncarnation::from_uuid)?,
        created_at: row.at()?,
        updated_at: row.at()?,
        stateless: row.flag()?,
        deleted_at: row.maybe_at()?,
    })
}

fn task_of(row: &mut Columns<'_>) -> Result<TaskRow, StoreError> {
    Ok(TaskRow {
        id: row.id(TaskId::from_uuid)?,
        user: row.user()?,
        conversation: row.id(ConversationId::from_uuid)?,
        state: row.word()?,
        priority: row.word()?,
        source: row.text()?,
        title: row.text()?,
        received_at: row.at()?,
        not_before: row.maybe_at()?,
        after: row.maybe_json()?.unwrap_or_default(),
        is_job_command: row.flag()?,
        is_steer: row.flag()?,
        joins: row.maybe_id(TaskId::from_uuid)?,
        held_at: row.maybe_at()?,
        has_model_failed: row.flag()?,
        started_at: row.maybe_at()?,
        ended_at: row.maybe_at()?,
        error: row.maybe_text()?,
    })
}

fn intent_of(row: &mut Columns<'_>) -> Result<IntentRow, StoreError> {
    Ok(IntentRow {
        id: row.id(IntentId::from_uuid)?,
        task: row.id(TaskId::from_uuid)?,
        skill: row.text()?,
        effect: row.word()?,
        state: row.word()?,
        attempts: row.small()?,
    })
}
