//! The users' tasks.

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Fut, NewTodo, StoreError, Todo, TodoPatch, TodoQuery, TodoSummary, Todos},
    time::Micros,
};

use super::{PostgresStore, bound::Bound, errors::Failure, texts::within_json, transaction::Attempt};
use crate::{
    sql::{Cell, Columns, Database, corrupt, json, level, signed, summary_of, todo_of},
    todo_rules::{created, day_of, haystack, needles, patched},
};

const BY_INTENT: &str = "SELECT number, title, description, status, priority, due, tags, created_at, updated_at \
     FROM todos WHERE user_id = $1 AND intent_id = $2";
const NEXT_NUMBER: &str = "SELECT 1 + coalesce(max(number), 0) FROM todos WHERE user_id = $1";
const INSERT: &str = "INSERT INTO todos (user_id, number, title, description, status, priority, due, tags, haystack, \
     updated_at, created_at, intent_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
const BY_NUMBER: &str = "SELECT number, title, description, status, priority, due, tags, created_at, updated_at \
     FROM todos WHERE user_id = $1 AND number = $2 AND archived_at IS NULL";
const BY_NUMBER_LOCKED: &str = "SELECT number, title, description, status, priority, due, tags, created_at, updated_at \
     FROM todos WHERE user_id = $1 AND number = $2 AND archived_at IS NULL FOR UPDATE";
const UPDATE: &str = "UPDATE todos SET title = $3, description = $4, status = $5, priority = $6, due = $7, tags = $8, \
     haystack = $9, updated_at = $10 WHERE user_id = $1 AND number = $2";
const FIND: &str = "SELECT number, title, description, status, priority, due, tags, created_at, updated_at \
     FROM todos WHERE user_id = $1 AND archived_at IS NULL \
     AND NOT EXISTS (SELECT 1 FROM unnest($9::text[]) AS needle (word) WHERE strpos(haystack, needle.word) = 0) \
     AND ($2 IS NULL OR status = $2) AND (NOT $3 OR status IN ('todo', 'in_progress', 'blocked')) \
     AND ($4 IS NULL OR priority = $4) AND ($5 IS NULL OR due < $5) AND ($6 IS NULL OR due >= $6) \
     AND ($7 IS NULL OR EXISTS (SELECT 1 FROM json_array_elements_text(shown_body(tags)) AS tag (word) WHERE tag.word = $7)) \
     ORDER BY due IS NULL, due, priority DESC, number LIMIT $8";
/// A repetition with the same time finds the task that it archived.
const ARCHIVE: &str = "UPDATE todos SET archived_at = $1 WHERE user_id = $2 AND number = $3 \
     AND (archived_at IS NULL OR archived_at = $1) RETURNING number";
/// A due day is overdue when it has ended, a due time when it has passed.
const SUMMARY: &str = "WITH open AS (SELECT number, title, priority, due, \
         coalesce(due < CASE WHEN length(due) > 10 THEN $2 ELSE $3 END, false) AS overdue, \
         coalesce(substr(due, 1, 10) = $3, false) AS today \
         FROM todos WHERE user_id = $1 AND archived_at IS NULL AND status IN ('todo', 'in_progress', 'blocked')) \
     SELECT count(*), count(*) FILTER (WHERE overdue), count(*) FILTER (WHERE today AND NOT overdue), \
         (SELECT title FROM open ORDER BY overdue DESC, priority DESC, due IS NULL, due, number LIMIT 1) FROM open";

impl Todos for PostgresStore {
    fn create_todo(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewTodo,
        at: Micros,
    ) -> Fut<'_, Result<Todo, StoreError>> {
        Box::pin(async move {
            self.db
                .transaction("making a task", |attempt| {
                    let (user, new) = (user.clone(), new.clone());
                    Box::pin(async move { create(attempt, &user, intent, new, at).await })
                })
                .await
        })
    }

    fn todo(&self, user: UserId, number: u64) -> Fut<'_, Result<Option<Todo>, StoreError>> {
        let bound = vec![Cell::from(&user), signed(number).into()];
        Box::pin(self.one("reading a task", BY_NUMBER, bound, todo_of))
    }

    fn find_todos(&self, user: UserId, query: TodoQuery) -> Fut<'_, Result<Vec<Todo>, StoreError>> {
        Box::pin(async move {
            let needles = needles(&query);
            let cells = vec![
                Cell::from(&user),
                Cell::maybe_word(query.status.map(|s| s.as_str())),
                query.open.into(),
                query.priority.map_or(Cell::Nothing, |p| level(p).into()),
                Cell::maybe_text(query.due_before),
                Cell::maybe_text(query.due_from),
                Cell::maybe_text(query.tag.map(within_json)),
                query.limit.into(),
            ];
            let bound = || Bound::of(cells.clone()).words(&needles);
            let rows = self.db.connections.read("searching tasks", FIND, bound).await?;
            rows.iter().map(|row| todo_of(&mut Columns::of(row))).collect()
        })
    }

    fn update_todo(
        &self,
        user: UserId,
        number: u64,
        patch: TodoPatch,
        at: Micros,
    ) -> Fut<'_, Result<Option<Todo>, StoreError>> {
        Box::pin(async move {
            self.db
                .transaction("changing a task", |attempt| {
                    let (user, patch) = (user.clone(), patch.clone());
                    Box::pin(async move { update(attempt, &user, number, patch, at).await })
                })
                .await
        })
    }

    fn delete_todo(&self, user: UserId, number: u64, at: Micros) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let bound = vec![at.into(), Cell::from(&user), signed(number).into()];
            Ok(!self.db.execute("archiving a task", ARCHIVE, bound).await?.is_empty())
        })
    }

    fn todo_summary(&self, user: UserId, local_now: String) -> Fut<'_, Result<TodoSummary, StoreError>> {
        Box::pin(async move {
            let today = day_of(&local_now).to_owned();
            let bound = vec![Cell::from(&user), local_now.into(), today.into()];
            Ok(self.one("counting tasks", SUMMARY, bound, summary_of).await?.unwrap_or_default())
        })
    }
}

async fn create(
    attempt: &mut Attempt<'_>,
    user: &UserId,
    intent: IntentId,
    new: NewTodo,
    at: Micros,
) -> Result<Todo, Failure> {
    attempt.lock(format!("todos of {user}")).await?;
    let made = attempt.rows(BY_INTENT, Bound::default().with(user).with(intent.uuid())).await?;
    if let Some(row) = made.first() {
        return Ok(todo_of(&mut Columns::of(row))?);
    }
    let next = attempt.rows(NEXT_NUMBER, Bound::default().with(user)).await?;
    let Some(row) = next.first() else { return Err(corrupt("making a task", "no next number").into()) };
    let todo = created(new, Columns::of(row).count()?, at);
    let bound = Bound::of(cells(user, &todo)?).with(todo.created_at).with(intent.uuid());
    attempt.rows(INSERT, bound).await?;
    Ok(todo)
}

async fn update(
    attempt: &mut Attempt<'_>,
    user: &UserId,
    number: u64,
    patch: TodoPatch,
    at: Micros,
) -> Result<Option<Todo>, Failure> {
    let rows = attempt.rows(BY_NUMBER_LOCKED, Bound::default().with(user).with(signed(number))).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let todo = patched(todo_of(&mut Columns::of(row))?, patch, at);
    attempt.rows(UPDATE, Bound::of(cells(user, &todo)?)).await?;
    Ok(Some(todo))
}

/// The values for user, number, title, description, status, priority, due, tags, haystack, updated_at.
fn cells(user: &UserId, todo: &Todo) -> Result<Vec<Cell>, StoreError> {
    Ok(vec![
        Cell::from(user),
        signed(todo.number).into(),
        todo.title.clone().into(),
        todo.description.clone().into(),
        todo.status.as_str().into(),
        level(todo.priority).into(),
        Cell::maybe_text(todo.due.clone()),
        json(&todo.tags)?.into(),
        haystack(todo).into(),
        todo.updated_at.into(),
    ])
}
