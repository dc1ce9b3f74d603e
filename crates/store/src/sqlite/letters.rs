//! Dead letters.

use annie_core::{
    event::Scope,
    ids::{ConversationId, TaskId},
    letter::{Letter, LetterState},
    ports::{Fut, LetterRow, Letters, LettersWaiting, StoreError},
    time::Micros,
};
use sqlx::sqlite::SqliteRow;

use super::{SqliteStore, records::user_of, rows::Columns, statements::arguments};

pub(super) const LETTER: &str = "SELECT l.task_id, l.user_id, l.conversation_id, t.title, t.priority, l.code, l.text, \
     l.detail, l.tried, l.since, l.retry_at, l.state, l.retried_by, l.failed_at, l.changed_at \
     FROM letters l CROSS JOIN tasks t ON t.id = l.task_id WHERE l.task_id = $1 AND ($2 IS NULL OR l.user_id = $2)";
pub(super) const LETTERS: &str = "SELECT l.task_id, l.user_id, l.conversation_id, t.title, t.priority, l.code, l.text, \
     l.detail, l.tried, l.since, l.retry_at, l.state, l.retried_by, l.failed_at, l.changed_at \
     FROM letters l CROSS JOIN tasks t ON t.id = l.task_id WHERE l.failed_at < $1 AND ($3 IS NULL OR l.state = $3) \
     ORDER BY l.failed_at DESC, l.task_id DESC LIMIT $2";
pub(super) const LETTERS_OF_USER: &str = "SELECT l.task_id, l.user_id, l.conversation_id, t.title, t.priority, l.code, \
     l.text, l.detail, l.tried, l.since, l.retry_at, l.state, l.retried_by, l.failed_at, l.changed_at \
     FROM letters l CROSS JOIN tasks t ON t.id = l.task_id \
     WHERE l.failed_at < $1 AND ($3 IS NULL OR l.state = $3) AND l.user_id = $4 \
     ORDER BY l.failed_at DESC, l.task_id DESC LIMIT $2";
pub(super) const DUE_LETTERS: &str = "SELECT l.task_id, l.user_id, l.conversation_id, t.title, t.priority, l.code, \
     l.text, l.detail, l.tried, l.since, l.retry_at, l.state, l.retried_by, l.failed_at, l.changed_at \
     FROM (SELECT task_id FROM letters WHERE state = 'waiting' AND retry_at IS NOT NULL AND retry_at <= $1 \
         UNION SELECT task_id FROM letters WHERE state = 'waiting' AND since < $2) due \
     CROSS JOIN letters l ON l.task_id = due.task_id CROSS JOIN tasks t ON t.id = l.task_id \
     ORDER BY l.since, l.task_id LIMIT $3";
pub(super) const LETTERS_WAITING: &str = "SELECT (SELECT count(*) FROM letters WHERE state = 'waiting'), \
     (SELECT min(retry_at) FROM letters WHERE state = 'waiting' AND retry_at IS NOT NULL), \
     (SELECT min(since) FROM letters WHERE state = 'waiting')";

impl Letters for SqliteStore {
    fn letter(&self, scope: Scope, task: TaskId) -> Fut<'_, Result<Option<LetterRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(task.uuid()).with(user_of(scope));
            Ok(self.list("reading a dead letter", LETTER, bound, letter_of).await?.pop())
        })
    }

    fn letters(
        &self,
        scope: Scope,
        state: Option<LetterState>,
        before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<LetterRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(before.0).with(i64::from(limit)).with(state.map(LetterState::as_str));
            let (sql, bound) = match user_of(scope) {
                Some(user) => (LETTERS_OF_USER, bound.with(user)),
                None => (LETTERS, bound),
            };
            self.list("listing dead letters", sql, bound, letter_of).await
        })
    }

    fn due_letters(
        &self,
        now: Micros,
        archive_before: Micros,
        limit: u32,
    ) -> Fut<'_, Result<Vec<LetterRow>, StoreError>> {
        Box::pin(async move {
            let bound = arguments().with(now.0).with(archive_before.0).with(i64::from(limit));
            self.list("listing due dead letters", DUE_LETTERS, bound, letter_of).await
        })
    }

    fn letters_waiting(&self) -> Fut<'_, Result<LettersWaiting, StoreError>> {
        Box::pin(async move {
            let waiting = |row: &SqliteRow| {
                let mut row = Columns::of(row);
                Ok(LettersWaiting {
                    count: row.count()?,
                    next_retry_at: row.maybe_at()?,
                    oldest_since: row.maybe_at()?,
                })
            };
            let rows = self.list("counting dead letters", LETTERS_WAITING, arguments(), waiting).await?;
            Ok(rows.first().copied().unwrap_or_default())
        })
    }
}

fn letter_of(row: &SqliteRow) -> Result<LetterRow, StoreError> {
    let mut row = Columns::of(row);
    Ok(LetterRow {
        task: row.id(TaskId::from_uuid)?,
        user: row.user()?,
        conversation: row.id(ConversationId::from_uuid)?,
        title: row.take()?,
        priority: row.word()?,
        code: row.take()?,
        text: row.take()?,
        detail: row.take()?,
        letter: Letter { tried: row.json()?, since: row.at()?, retry_at: row.maybe_at()? },
        state: row.word()?,
        retried_by: row.maybe_id(TaskId::from_uuid)?,
        failed_at: row.at()?,
        changed_at: row.at()?,
    })
}
