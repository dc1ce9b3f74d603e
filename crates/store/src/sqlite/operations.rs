//! Long-running operations, and the secret that their keys are made of.

use annie_core::{
    event::Scope,
    ids::{ConversationId, IntentId, OperationId, TaskId},
    ports::{Fut, OperationRow, Operations, StoreError},
    time::Micros,
};
use sqlx::sqlite::SqliteRow;

use super::{
    SqliteStore,
    errors::corrupt,
    records::user_of,
    rows::Columns,
    statements::{Statements, arguments},
};

pub(super) const OPERATION: &str = "SELECT id, user_id, conversation_id, task_id, intent_id, skill, opened_at, \
     expires_at, closed_by, closed_at FROM operations WHERE id = $1 AND ($2 IS NULL OR user_id = $2)";
pub(super) const OPERATIONS: &str = "SELECT id, user_id, conversation_id, task_id, intent_id, skill, opened_at, \
     expires_at, closed_by, closed_at FROM operations WHERE opened_at < $1 AND ($3 = 0 OR closed_by IS NULL) \
     ORDER BY opened_at DESC, id DESC LIMIT $2";
pub(super) const OPERATIONS_OF_USER: &str = "SELECT id, user_id, conversation_id, task_id, intent_id, skill, opened_at, \
     expires_at, closed_by, closed_at FROM operations WHERE opened_at < $1 AND ($3 = 0 OR closed_by IS NULL) \
     AND user_id = $4 ORDER BY opened_at DESC, id DESC LIMIT $2";
pub(super) const EXPIRING_OPERATIONS: &str = "SELECT id, user_id, conversation_id, task_id, intent_id, skill, opened_at, \
     expires_at, closed_by, closed_at FROM operations WHERE closed_by IS NULL AND expires_at <= $1 \
     ORDER BY expires_at, id LIMIT $2";
const KEEP_SECRET: &str = "INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?);";
const SECRET: &str = "SELECT value FROM secrets WHERE name = ?;";

impl Operations for SqliteStore {
    fn operation(&self, scope: Scope, id: OperationId) -> Fut<'_, Result<Option<OperationRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(id.uuid()).with(user_of(scope));
            Ok(self.list("reading an operation", OPERATION, bound, operation_of).await?.pop())
        })
    }

    fn operations(
        &self,
        scope: Scope,
        open: bool,
        before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<OperationRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(before.0).with(i64::from(limit)).with(open);
            let (sql, bound) = match user_of(scope) {
                Some(user) => (OPERATIONS_OF_USER, bound.with(user)),
                None => (OPERATIONS, bound),
            };
            self.list("listing operations", sql, bound, operation_of).await
        })
    }

    fn expiring_operations(&self, until: Micros, limit: u32) -> Fut<'_, Result<Vec<OperationRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(until.0).with(i64::from(limit));
            self.list("listing operations that expire", EXPIRING_OPERATIONS, bound, operation_of).await
        })
    }

    fn secret(&self, name: &'static str, fresh: [u8; 32]) -> Fut<'_, Result<[u8; 32], StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "reading a secret";
            let mut statements = Statements::default();
            statements.say(KEEP_SECRET).with(name).with(fresh.to_vec()).say(SECRET).with(name);
            let rows = self.write(WHAT, statements).await?;
            let row = rows.first().ok_or_else(|| corrupt(WHAT, format!("{name} was not kept")))?;
            Columns::of(row).sha256()
        })
    }
}

fn operation_of(row: &SqliteRow) -> Result<OperationRow, StoreError> {
    let mut row = Columns::of(row);
    Ok(OperationRow {
        id: row.id(OperationId::from_uuid)?,
        user: row.user()?,
        conversation: row.id(ConversationId::from_uuid)?,
        task: row.id(TaskId::from_uuid)?,
        intent: row.id(IntentId::from_uuid)?,
        skill: row.take()?,
        opened_at: row.at()?,
        expires_at: row.at()?,
        closed_by: row.maybe_id(TaskId::from_uuid)?,
        closed_at: row.maybe_at()?,
    })
}
