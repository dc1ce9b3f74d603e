//! Long-running operations, and the secret from which their keys are derived.

use annie_core::{
    event::Scope,
    ids::{ConversationId, IntentId, OperationId, TaskId},
    ports::{Before, Fut, OperationRow, Operations, StoreError},
    time::Micros,
};

use super::{Cell, Columns, Database, SqlStore, corrupt, user_of};

pub const OPERATION: &str = "SELECT id, user_id, conversation_id, task_id, intent_id, skill, opened_at, expires_at, \
     closed_by, closed_at FROM operations WHERE id = $1 AND ($2 IS NULL OR user_id = $2)";
pub const OPERATIONS: &str = "SELECT id, user_id, conversation_id, task_id, intent_id, skill, opened_at, expires_at, \
     closed_by, closed_at FROM operations WHERE (opened_at, id) < ($1, $2) AND (NOT $4 OR closed_by IS NULL) \
     ORDER BY opened_at DESC, id DESC LIMIT $3";
pub const OPERATIONS_OF_USER: &str = "SELECT id, user_id, conversation_id, task_id, intent_id, skill, opened_at, \
     expires_at, closed_by, closed_at FROM operations WHERE (opened_at, id) < ($1, $2) AND (NOT $4 OR closed_by IS NULL) \
     AND user_id = $5 ORDER BY opened_at DESC, id DESC LIMIT $3";
pub const EXPIRING_OPERATIONS: &str = "SELECT id, user_id, conversation_id, task_id, intent_id, skill, opened_at, \
     expires_at, closed_by, closed_at FROM operations WHERE closed_by IS NULL AND expires_at <= $1 \
     AND NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = operations.conversation_id) \
     ORDER BY expires_at, id LIMIT $2";
const KNOWN_SECRET: &str = "SELECT value FROM secrets WHERE name = $1";
/// Returns the stored secret, or stores the new one: the first one wins.
const SECRET: &str = "INSERT INTO secrets (name, value) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING value";

impl<D: Database> Operations for SqlStore<D> {
    fn operation(&self, scope: Scope, id: OperationId) -> Fut<'_, Result<Option<OperationRow>, StoreError>> {
        let bound = vec![id.uuid().into(), Cell::maybe_text(user_of(scope))];
        Box::pin(self.one("reading an operation", OPERATION, bound, operation_of))
    }

    fn operations(
        &self,
        scope: Scope,
        open: bool,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<OperationRow>, StoreError>> {
        let mut bound = vec![before.at.into(), before.id.into(), limit.into(), open.into()];
        let user = user_of(scope);
        let sql = if user.is_some() { OPERATIONS_OF_USER } else { OPERATIONS };
        bound.extend(user.map(Cell::Text));
        Box::pin(self.list("listing operations", sql, bound, operation_of))
    }

    fn expiring_operations(&self, until: Micros, limit: u32) -> Fut<'_, Result<Vec<OperationRow>, StoreError>> {
        let bound = vec![until.into(), limit.into()];
        Box::pin(self.list("listing operations that expire", EXPIRING_OPERATIONS, bound, operation_of))
    }

    fn known_secret(&self, name: &'static str) -> Fut<'_, Result<Option<[u8; 32]>, StoreError>> {
        Box::pin(self.one("reading a secret", KNOWN_SECRET, vec![name.into()], |row| row.sha256()))
    }

    fn secret(&self, name: &'static str, fresh: [u8; 32]) -> Fut<'_, Result<[u8; 32], StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "keeping a secret";
            // Read first: a start on a full disk must not need a write.
            if let Some(known) = self.known_secret(name).await? {
                return Ok(known);
            }
            let rows = self.execute(WHAT, SECRET, vec![name.into(), Cell::Bytes(fresh.to_vec())]).await?;
            let row = rows.first().ok_or_else(|| corrupt(WHAT, format!("{name} was not kept")))?;
            Columns::of(row).sha256()
        })
    }
}

fn operation_of(row: &mut Columns<'_>) -> Result<OperationRow, StoreError> {
    Ok(OperationRow {
        id: row.id(OperationId::from_uuid)?,
        user: row.user()?,
        conversation: row.id(ConversationId::from_uuid)?,
        task: row.id(TaskId::from_uuid)?,
        intent: row.id(IntentId::from_uuid)?,
        skill: row.text()?,
        opened_at: row.at()?,
        expires_at: row.at()?,
        closed_by: row.maybe_id(TaskId::from_uuid)?,
        closed_at: row.maybe_at()?,
    })
}
