//! Dead letters.

use annie_core::{
    dead_letter::{DeadLetter, DeadLetterState},
    event::{Priority, Scope},
    ids::{ConversationId, TaskId},
    ports::{Before, DeadLetterFilter, DeadLetterRow, DeadLetters, DeadLettersWaiting, Fut, StoreError},
    time::Micros,
};

use super::{Cell, Columns, Database, SqlStore, user_of};

// A dead letter's task always exists. The outer join is accepted by both databases, and keeps the dead letters as the first
// table, whose index has the order.
pub const DEAD_LETTER: &str = "SELECT l.task_id, l.user_id, l.conversation_id, t.title, t.priority, l.code, l.text, l.detail, \
     l.tried, l.since, l.retry_at, l.state, l.retried_by, l.failed_at, l.changed_at \
     FROM dead_letters l LEFT JOIN tasks t ON t.id = l.task_id WHERE l.task_id = $1 AND ($2 IS NULL OR l.user_id = $2)";
pub const DEAD_LETTERS: &str = "SELECT l.task_id, l.user_id, l.conversation_id, t.title, t.priority, l.code, l.text, l.detail, \
     l.tried, l.since, l.retry_at, l.state, l.retried_by, l.failed_at, l.changed_at \
     FROM dead_letters l LEFT JOIN tasks t ON t.id = l.task_id WHERE (l.failed_at, l.task_id) < ($1, $2) AND ($4 IS NULL OR l.state = $4) \
     AND ($5 IS NULL OR l.code = $5) AND l.failed_at >= $6 AND ($7 IS NULL OR t.priority = $7) \
     AND (l.retry_at IS NULL OR l.retry_at > $8) \
     AND ($9 OR NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = l.conversation_id)) \
     ORDER BY l.failed_at DESC, l.task_id DESC LIMIT $3";
pub const DEAD_LETTERS_OF_USER: &str = "SELECT l.task_id, l.user_id, l.conversation_id, t.title, t.priority, l.code, l.text, \
     l.detail, l.tried, l.since, l.retry_at, l.state, l.retried_by, l.failed_at, l.changed_at \
     FROM dead_letters l LEFT JOIN tasks t ON t.id = l.task_id \
     WHERE (l.failed_at, l.task_id) < ($1, $2) AND ($4 IS NULL OR l.state = $4) \
     AND ($5 IS NULL OR l.code = $5) AND l.failed_at >= $6 AND ($7 IS NULL OR t.priority = $7) \
     AND (l.retry_at IS NULL OR l.retry_at > $8) AND l.user_id = $10 \
     AND ($9 OR NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = l.conversation_id)) \
     ORDER BY l.failed_at DESC, l.task_id DESC LIMIT $3";
pub const COUNT_DEAD_LETTERS: &str = "SELECT count(*) FROM dead_letters l LEFT JOIN tasks t ON t.id = l.task_id \
     WHERE l.failed_at < $1 AND ($2 IS NULL OR l.state = $2) AND ($3 IS NULL OR l.code = $3) AND l.failed_at >= $4 \
     AND ($5 IS NULL OR t.priority = $5) AND (l.retry_at IS NULL OR l.retry_at > $6) \
     AND ($7 OR NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = l.conversation_id))";
pub const COUNT_DEAD_LETTERS_OF_USER: &str = "SELECT count(*) FROM dead_letters l LEFT JOIN tasks t ON t.id = l.task_id \
     WHERE l.failed_at < $1 AND ($2 IS NULL OR l.state = $2) AND ($3 IS NULL OR l.code = $3) AND l.failed_at >= $4 \
     AND ($5 IS NULL OR t.priority = $5) AND (l.retry_at IS NULL OR l.retry_at > $6) AND l.user_id = $8 \
     AND ($7 OR NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = l.conversation_id))";
pub const DUE_DEAD_LETTERS: &str = "SELECT l.task_id, l.user_id, l.conversation_id, t.title, t.priority, l.code, l.text, \
     l.detail, l.tried, l.since, l.retry_at, l.state, l.retried_by, l.failed_at, l.changed_at \
     FROM (SELECT task_id FROM dead_letters WHERE state = 'waiting' AND retry_at IS NOT NULL AND retry_at <= $1 \
         UNION SELECT task_id FROM dead_letters WHERE state = 'waiting' AND since < $2) due \
     LEFT JOIN dead_letters l ON l.task_id = due.task_id LEFT JOIN tasks t ON t.id = l.task_id \
     WHERE NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = l.conversation_id) \
     ORDER BY l.since, l.task_id LIMIT $3";
pub const DEAD_LETTERS_WAITING: &str = "SELECT (SELECT count(*) FROM dead_letters l WHERE state = 'waiting' \
         AND NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = l.conversation_id)), \
     (SELECT retry_at FROM dead_letters l WHERE state = 'waiting' AND retry_at IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = l.conversation_id) ORDER BY retry_at LIMIT 1), \
     (SELECT since FROM dead_letters l WHERE state = 'waiting' \
         AND NOT EXISTS (SELECT 1 FROM deletions d WHERE d.conversation_id = l.conversation_id) ORDER BY since LIMIT 1)";

impl<D: Database> DeadLetters for SqlStore<D> {
    fn dead_letter(&self, scope: Scope, task: TaskId) -> Fut<'_, Result<Option<DeadLetterRow>, StoreError>> {
        let bound = vec![task.uuid().into(), Cell::maybe_text(user_of(scope))];
        Box::pin(self.one("reading a dead letter", DEAD_LETTER, bound, dead_letter_of))
    }

    fn dead_letters(
        &self,
        scope: Scope,
        filter: DeadLetterFilter,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<DeadLetterRow>, StoreError>> {
        let before = filter.failed_before.map_or(before, |at| before.min(at.into()));
        let mut bound: Vec<Cell> = vec![before.at.into(), before.id.into(), limit.into()];
        bound.extend(cells_of_filter(filter));
        let user = user_of(scope);
        let sql = if user.is_some() { DEAD_LETTERS_OF_USER } else { DEAD_LETTERS };
        bound.extend(user.map(Cell::Text));
        Box::pin(self.list("listing dead letters", sql, bound, dead_letter_of))
    }

    fn count_dead_letters(&self, scope: Scope, filter: DeadLetterFilter) -> Fut<'_, Result<u64, StoreError>> {
        let mut bound: Vec<Cell> = vec![filter.failed_before.unwrap_or(Micros(i64::MAX)).into()];
        bound.extend(cells_of_filter(filter));
        let user = user_of(scope);
        let sql = if user.is_some() { COUNT_DEAD_LETTERS_OF_USER } else { COUNT_DEAD_LETTERS };
        bound.extend(user.map(Cell::Text));
        Box::pin(async move {
            let count = self.one("counting dead letters", sql, bound, |row| row.count()).await?;
            Ok(count.unwrap_or_default())
        })
    }

    fn due_dead_letters(
        &self,
        now: Micros,
        archive_before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<DeadLetterRow>, StoreError>> {
        let bound = vec![now.into(), archive_before.into(), limit.into()];
        Box::pin(self.list("listing due dead letters", DUE_DEAD_LETTERS, bound, dead_letter_of))
    }

    fn dead_letters_waiting(&self) -> Fut<'_, Result<DeadLettersWaiting, StoreError>> {
        Box::pin(async move {
            let waiting = |row: &mut Columns<'_>| {
                Ok(DeadLettersWaiting {
                    count: row.count()?,
                    next_retry_at: row.maybe_at()?,
                    oldest_since: row.maybe_at()?,
                })
            };
            let row = self.one("counting dead letters", DEAD_LETTERS_WAITING, Vec::new(), waiting).await?;
            Ok(row.unwrap_or_default())
        })
    }
}

/// State, code, earliest failure, class, the time at which no retry is due, and whether those of deleted conversations match, in the order in which the queries bind them.
fn cells_of_filter(filter: DeadLetterFilter) -> [Cell; 6] {
    let DeadLetterFilter { state, code, class, failed_from, failed_before: _, not_due_at, with_deleted } = filter;
    [
        Cell::maybe_word(state.map(DeadLetterState::as_str)),
        Cell::maybe_text(code),
        failed_from.unwrap_or(Micros(i64::MIN)).into(),
        Cell::maybe_word(class.map(Priority::as_str)),
        not_due_at.unwrap_or(Micros(i64::MIN)).into(),
        Cell::Flag(with_deleted),
    ]
}

fn dead_letter_of(row: &mut Columns<'_>) -> Result<DeadLetterRow, StoreError> {
    Ok(DeadLetterRow {
        task: row.id(TaskId::from_uuid)?,
        user: row.user()?,
        conversation: row.id(ConversationId::from_uuid)?,
        title: row.text()?,
        priority: row.word()?,
        code: row.text()?,
        text: row.text()?,
        detail: row.text()?,
        dead_letter: DeadLetter { tried: row.json()?, since: row.at()?, retry_at: row.maybe_at()? },
        state: row.word()?,
        retried_by: row.maybe_id(TaskId::from_uuid)?,
        failed_at: row.at()?,
        changed_at: row.at()?,
    })
}
