//! The users' tasks.

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Fut, NewTodo, StoreError, Todo, TodoPatch, TodoQuery, TodoSummary, Todos},
    time::Micros,
};

use super::{
    SqliteStore,
    absence::{Absence, Gap},
    statements::Statements,
    writer::WriterGuard,
};
use crate::{
    sql::{Cell, Columns, corrupt, json, level, signed, summary_of, todo_of},
    todo_rules::{created, day_of, haystack, needles, patched},
};

const BY_INTENT_AND_NEXT: &str = "SELECT number, title, description, status, priority, due, tags, created_at, updated_at \
     FROM todos WHERE user_id = ? AND intent_id = ? \
     UNION ALL SELECT 1 + coalesce(max(number), 0), '', '', '', 0, NULL, '', 0, 0 FROM todos WHERE user_id = ?;";
const INSERT: &str = "INSERT INTO todos (user_id, number, intent_id, title, description, status, priority, due, tags, \
     haystack, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);";
const BY_NUMBER: &str = "SELECT number, title, description, status, priority, due, tags, created_at, updated_at \
     FROM todos WHERE user_id = $1 AND number = $2 AND archived_at IS NULL;";
const FIND: &str = "SELECT number, title, description, status, priority, due, tags, created_at, updated_at \
     FROM todos WHERE user_id = $1 AND archived_at IS NULL \
     AND NOT EXISTS (SELECT 1 FROM json_each($2) AS word WHERE instr(haystack, word.value) = 0) \
     AND ($3 IS NULL OR status = $3) AND (NOT $4 OR status IN ('todo', 'in_progress', 'blocked')) \
     AND ($5 IS NULL OR priority = $5) AND ($6 IS NULL OR due < $6) AND ($7 IS NULL OR due >= $7) \
     AND ($8 IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) AS tag WHERE tag.value = $8)) \
     ORDER BY due IS NULL, due, priority DESC, number LIMIT $9";
const UPDATE: &str = "UPDATE todos SET title = ?, description = ?, status = ?, priority = ?, due = ?, tags = ?, \
     haystack = ?, updated_at = ? WHERE user_id = ? AND number = ?;";
const ARCHIVE: &str = "UPDATE todos SET archived_at = ? WHERE user_id = ? AND number = ? AND archived_at IS NULL \
     RETURNING number";
/// A due day is overdue when it has ended, a due time when it has passed.
const SUMMARY: &str = "WITH open AS (SELECT number, title, priority, due, \
         coalesce(due < iif(length(due) > 10, $2, $3), 0) AS overdue, coalesce(substr(due, 1, 10) = $3, 0) AS today \
         FROM todos WHERE user_id = $1 AND archived_at IS NULL AND status IN ('todo', 'in_progress', 'blocked')) \
     SELECT count(*), coalesce(sum(overdue), 0), coalesce(sum(today AND NOT overdue), 0), \
         (SELECT title FROM open ORDER BY overdue DESC, priority DESC, due IS NULL, due, number LIMIT 1) FROM open";

impl Todos for SqliteStore {
    fn create_todo(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewTodo,
        at: Micros,
    ) -> Fut<'_, Result<Todo, StoreError>> {
        Box::pin(async move {
            let mut guard = self.db.lock_writer("making a task").await?;
            let mut statements = Statements::begin();
            statements.push(BY_INTENT_AND_NEXT).with(name(&user)).with(intent.uuid()).with(name(&user));
            let rows = guard.begin(statements).await?;
            if let [made, _next] = rows.as_slice() {
                guard.roll_back().await;
                return todo_of(&mut Columns::of(made));
            }
            let number = match rows.first() {
                Some(row) => Columns::of(row).count()?,
                None => return Err(corrupt("making a task", "no next number")),
            };
            let todo = created(new, number, at);
            let mut insert = Statements::default();
            insert.push(INSERT).with(name(&user)).with(signed(number)).with(intent.uuid());
            bind(&mut insert, &todo)?;
            insert.with(todo.created_at.0).with(todo.updated_at.0);
            commit(&mut guard, &self.db.no_open_todos, &user, insert).await?;
            Ok(todo)
        })
    }

    fn todo(&self, user: UserId, number: u64) -> Fut<'_, Result<Option<Todo>, StoreError>> {
        Box::pin(async move {
            let bound = vec![Cell::from(&user), signed(number).into()];
            self.one("reading a task", BY_NUMBER, bound, todo_of).await
        })
    }

    fn find_todos(&self, user: UserId, query: TodoQuery) -> Fut<'_, Result<Vec<Todo>, StoreError>> {
        Box::pin(async move {
            let bound = vec![
                Cell::from(&user),
                json(&needles(&query))?.into(),
                Cell::maybe_word(query.status.map(|s| s.as_str())),
                query.open.into(),
                query.priority.map_or(Cell::Nothing, |p| level(p).into()),
                Cell::maybe_text(query.due_before),
                Cell::maybe_text(query.due_from),
                Cell::maybe_text(query.tag),
                query.limit.into(),
            ];
            self.list("searching tasks", FIND, bound, todo_of).await
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
            let mut guard = self.db.lock_writer("changing a task").await?;
            let mut statements = Statements::begin();
            statements.push(BY_NUMBER).with(name(&user)).with(signed(number));
            let rows = guard.begin(statements).await?;
            let Some(row) = rows.first() else {
                guard.roll_back().await;
                return Ok(None);
            };
            let todo = patched(todo_of(&mut Columns::of(row))?, patch, at);
            let mut update = Statements::default();
            update.push(UPDATE);
            bind(&mut update, &todo)?;
            update.with(todo.updated_at.0).with(name(&user)).with(signed(number));
            commit(&mut guard, &self.db.no_open_todos, &user, update).await?;
            Ok(Some(todo))
        })
    }

    fn delete_todo(&self, user: UserId, number: u64, at: Micros) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let mut statements = Statements::default();
            statements.push(ARCHIVE).with(at.0).with(name(&user)).with(signed(number));
            Ok(!self.db.write("archiving a task", statements).await?.is_empty())
        })
    }

    fn todo_summary(&self, user: UserId, local_now: String) -> Fut<'_, Result<TodoSummary, StoreError>> {
        Box::pin(async move {
            if self.db.no_open_todos.is_known(&user, &Gap::all("todos")) {
                return Ok(TodoSummary::default());
            }
            let writes = self.db.no_open_todos.writes();
            let today = day_of(&local_now).to_owned();
            let bound = vec![Cell::from(&user), local_now.into(), today.into()];
            let summary = self.one("counting tasks", SUMMARY, bound, summary_of).await?.unwrap_or_default();
            if summary.open == 0 {
                self.db.no_open_todos.found(&user, Gap::all("todos"), writes);
            }
            Ok(summary)
        })
    }
}

async fn commit(
    guard: &mut WriterGuard<'_>,
    no_open_todos: &Absence,
    user: &UserId,
    statements: Statements,
) -> Result<(), StoreError> {
    no_open_todos.begins(user);
    let done = guard.commit(statements).await;
    if done.is_err() {
        guard.roll_back().await;
    }
    no_open_todos.ended();
    done.map(drop)
}

/// Binds title, description, status, priority, due, tags, haystack.
fn bind(statements: &mut Statements, todo: &Todo) -> Result<(), StoreError> {
    statements.with(todo.title.clone()).with(todo.description.clone()).with(todo.status.as_str());
    statements.with(level(todo.priority)).with(todo.due.clone()).with(json(&todo.tags)?).with(haystack(todo));
    Ok(())
}

fn name(user: &UserId) -> String {
    user.as_str().to_owned()
}
