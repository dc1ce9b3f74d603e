//! Lists and look-ups out of the log's projections.

use annie_core::{
    event::Scope,
    ids::{ConversationId, IntentId, TaskId, UserId},
    ports::{ConversationRow, Fut, IntentRow, MessageRow, Records, StoreError, TaskRow},
    time::Micros,
};
use sqlx::sqlite::SqliteRow;

use super::{
    SqliteStore,
    errors::failed,
    rows::Columns,
    statements::{Bound, arguments},
};

const CONVERSATION: &str = "SELECT id, user_id, title, next_seq - 1, owner_epoch, created_at, updated_at \
     FROM conversations WHERE id = $1 AND ($2 IS NULL OR user_id = $2)";
const CONVERSATIONS: &str = "SELECT id, user_id, title, next_seq - 1, owner_epoch, created_at, updated_at \
     FROM conversations WHERE updated_at < $1 ORDER BY updated_at DESC, id DESC LIMIT $2";
const CONVERSATIONS_OF_USER: &str = "SELECT id, user_id, title, next_seq - 1, owner_epoch, created_at, updated_at \
     FROM conversations WHERE updated_at < $1 AND user_id = $3 ORDER BY updated_at DESC, id DESC LIMIT $2";

const TASK: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, not_before, \
     after_ids, is_order, is_steer, joins, held_at, started_at, ended_at, error FROM tasks WHERE id = $1 AND ($2 IS NULL OR user_id = $2)";
const MESSAGE: &str = "SELECT id, conversation_id, seq, text_sha256 FROM tasks WHERE user_id = $1 AND client_id = $2";
const TASKS: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, not_before, \
     after_ids, is_order, is_steer, joins, held_at, started_at, ended_at, error FROM tasks WHERE received_at < $1 ORDER BY received_at DESC, id DESC LIMIT $2";
const TASKS_OF_USER: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, \
     not_before, after_ids, is_order, is_steer, joins, held_at, started_at, ended_at, error FROM tasks WHERE received_at < $1 AND user_id = $3 \
     ORDER BY received_at DESC, id DESC LIMIT $2";
pub(super) const OPEN_TASKS: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, \
     not_before, after_ids, is_order, is_steer, joins, held_at, started_at, ended_at, error FROM tasks WHERE received_at < $1 \
     AND state IN ('queued', 'running', 'suspended') ORDER BY received_at DESC, id DESC LIMIT $2";
const OPEN_TASKS_OF_USER: &str = "SELECT id, user_id, conversation_id, state, priority, source, title, received_at, \
     not_before, after_ids, is_order, is_steer, joins, held_at, started_at, ended_at, error FROM tasks WHERE received_at < $1 AND user_id = $3 \
     AND state IN ('queued', 'running', 'suspended') ORDER BY received_at DESC, id DESC LIMIT $2";

const INTENTS: &str = "SELECT id, task_id, skill, effect, state, attempts FROM intents WHERE task_id = $1 \
     ORDER BY seq, place";

impl SqliteStore {
    /// The rows of a question, each read by `read`.
    pub(super) async fn list<T>(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Bound,
        read: impl Fn(&SqliteRow) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.rows(what, sql, bound.finish().map_err(failed(what))?).await?;
        rows.iter().map(read).collect()
    }
}

impl Records for SqliteStore {
    fn conversation(&self, scope: Scope, id: ConversationId) -> Fut<'_, Result<Option<ConversationRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(id.uuid()).with(user_of(scope));
            Ok(self.list("reading a conversation", CONVERSATION, bound, conversation_of).await?.pop())
        })
    }

    fn conversations(
        &self,
        scope: Scope,
        before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(before.0).with(i64::from(limit));
            let (sql, bound) = match user_of(scope) {
                Some(user) => (CONVERSATIONS_OF_USER, bound.with(user)),
                None => (CONVERSATIONS, bound),
            };
            self.list("listing conversations", sql, bound, conversation_of).await
        })
    }

    fn task(&self, scope: Scope, id: TaskId) -> Fut<'_, Result<Option<TaskRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(id.uuid()).with(user_of(scope));
            Ok(self.list("reading a task", TASK, bound, task_of).await?.pop())
        })
    }

    fn tasks(&self, scope: Scope, open: bool, before: Micros, limit: u32) -> Fut<'_, Result<Vec<TaskRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(before.0).with(i64::from(limit));
            let (sql, bound) = match (user_of(scope), open) {
                (Some(user), false) => (TASKS_OF_USER, bound.with(user)),
                (Some(user), true) => (OPEN_TASKS_OF_USER, bound.with(user)),
                (None, false) => (TASKS, bound),
                (None, true) => (OPEN_TASKS, bound),
            };
            self.list("listing tasks", sql, bound, task_of).await
        })
    }

    fn message(&self, user: UserId, client_id: String) -> Fut<'_, Result<Option<MessageRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(user.as_str().to_owned()).with(client_id);
            Ok(self.list("reading a message", MESSAGE, bound, message_of).await?.pop())
        })
    }

    fn intents(&self, task: TaskId) -> Fut<'_, Result<Vec<IntentRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(task.uuid());
            self.list("reading intents", INTENTS, bound, intent_of).await
        })
    }

    fn rebuild(&self) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(self.fold_again())
    }
}

pub(super) fn user_of(scope: Scope) -> Option<String> {
    match scope {
        Scope::User(user) => Some(user.as_str().to_owned()),
        Scope::Operator => None,
    }
}

fn message_of(row: &SqliteRow) -> Result<MessageRow, StoreError> {
    let mut row = Columns::of(row);
    Ok(MessageRow {
        task: row.id(TaskId::from_uuid)?,
        conversation: row.id(ConversationId::from_uuid)?,
        seq: row.seq()?,
        text_sha256: row.sha256()?,
    })
}

fn conversation_of(row: &SqliteRow) -> Result<ConversationRow, StoreError> {
    let mut row = Columns::of(row);
    Ok(ConversationRow {
        id: row.id(ConversationId::from_uuid)?,
        user: row.user()?,
        title: row.take()?,
        last_seq: row.seq()?,
        epoch: row.epoch()?,
        created_at: row.at()?,
        updated_at: row.at()?,
    })
}

fn task_of(row: &SqliteRow) -> Result<TaskRow, StoreError> {
    let mut row = Columns::of(row);
    Ok(TaskRow {
        id: row.id(TaskId::from_uuid)?,
        user: row.user()?,
        conversation: row.id(ConversationId::from_uuid)?,
        state: row.word()?,
        priority: row.word()?,
        source: row.take()?,
        title: row.take()?,
        received_at: row.at()?,
        not_before: row.maybe_at()?,
        after: row.maybe_json()?.unwrap_or_default(),
        is_order: row.take()?,
        is_steer: row.take()?,
        joins: row.maybe_id(TaskId::from_uuid)?,
        held_at: row.maybe_at()?,
        started_at: row.maybe_at()?,
        ended_at: row.maybe_at()?,
        error: row.take()?,
    })
}

fn intent_of(row: &SqliteRow) -> Result<IntentRow, StoreError> {
    let mut row = Columns::of(row);
    Ok(IntentRow {
        id: row.id(IntentId::from_uuid)?,
        task: row.id(TaskId::from_uuid)?,
        skill: row.take()?,
        effect: row.word()?,
        state: row.word()?,
        attempts: row.small()?,
    })
}
