//! The users' tasks.

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Fut, NewTodo, StoreError, StoreErrorKind, Todo, TodoPatch, TodoPriority, TodoQuery, TodoSummary, Todos},
    time::Micros,
};
use sqlx::sqlite::SqliteRow;

use super::{
    SqliteStore,
    errors::{corrupt, failed},
    rows::{Columns, json, signed},
    statements::{Statements, arguments},
    writer::Pen,
};
use crate::todo_rules::{created, day_of, haystack, needles, patched};

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
/// A due day is over at its end, a due time at once.
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
            let mut pen = self.pen("making a task").await?;
            let mut ask = Statements::begin();
            ask.say(BY_INTENT_AND_NEXT).with(name(&user)).with(intent.uuid()).with(name(&user));
            let rows = pen.begin(ask).await?;
            if let [made, _next] = rows.as_slice() {
                pen.roll_back().await;
                return todo_of(made);
            }
            let number = match rows.first() {
                Some(row) => Columns::of(row).count()?,
                None => return Err(corrupt("making a task", "no next number")),
            };
            let todo = created(new, number, at);
            let mut insert = Statements::default();
            insert.say(INSERT).with(name(&user)).with(signed(number)).with(intent.uuid());
            bind(&mut insert, &todo)?;
            insert.with(todo.created_at.0).with(todo.updated_at.0);
            let made = commit(&mut pen, insert).await;
            self.no_open_todos.written(&user);
            made?;
            Ok(todo)
        })
    }

    fn todo(&self, user: UserId, number: u64) -> Fut<'_, Result<Option<Todo>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "reading a task";
            let bound = arguments().with(name(&user)).with(signed(number)).finish().map_err(failed(WHAT))?;
            self.rows(WHAT, BY_NUMBER, bound).await?.first().map(todo_of).transpose()
        })
    }

    fn find_todos(&self, user: UserId, query: TodoQuery) -> Fut<'_, Result<Vec<Todo>, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "searching tasks";
            let bound = arguments()
                .with(name(&user))
                .with(json(&needles(&query))?)
                .with(query.status.map(|s| s.as_str()))
                .with(query.open)
                .with(query.priority.map(level))
                .with(query.due_before)
                .with(query.due_from)
                .with(query.tag)
                .with(i64::from(query.limit));
            let rows = self.rows(WHAT, FIND, bound.finish().map_err(failed(WHAT))?).await?;
            rows.iter().map(todo_of).collect()
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
            let mut pen = self.pen("changing a task").await?;
            let mut ask = Statements::begin();
            ask.say(BY_NUMBER).with(name(&user)).with(signed(number));
            let rows = pen.begin(ask).await?;
            let Some(row) = rows.first() else {
                pen.roll_back().await;
                return Ok(None);
            };
            let todo = patched(todo_of(row)?, patch, at);
            let mut update = Statements::default();
            update.say(UPDATE);
            bind(&mut update, &todo)?;
            update.with(todo.updated_at.0).with(name(&user)).with(signed(number));
            let changed = commit(&mut pen, update).await;
            self.no_open_todos.written(&user);
            changed?;
            Ok(Some(todo))
        })
    }

    fn delete_todo(&self, user: UserId, number: u64, at: Micros) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let mut statements = Statements::default();
            statements.say(ARCHIVE).with(at.0).with(name(&user)).with(signed(number));
            Ok(!self.write("archiving a task", statements).await?.is_empty())
        })
    }

    fn todo_summary(&self, user: UserId, local_now: String) -> Fut<'_, Result<TodoSummary, StoreError>> {
        Box::pin(async move {
            const WHAT: &str = "counting tasks";
            if self.no_open_todos.is_known(&user) {
                return Ok(TodoSummary::default());
            }
            let writes = self.no_open_todos.writes();
            let today = day_of(&local_now).to_owned();
            let bound = arguments().with(name(&user)).with(local_now).with(today).finish().map_err(failed(WHAT))?;
            let rows = self.rows(WHAT, SUMMARY, bound).await?;
            let Some(row) = rows.first() else { return Ok(TodoSummary::default()) };
            let mut row = Columns::of(row);
            let summary =
                TodoSummary { open: row.count()?, overdue: row.count()?, due_today: row.count()?, top: row.take()? };
            if summary.open == 0 {
                self.no_open_todos.found(&user, writes);
            }
            Ok(summary)
        })
    }
}

async fn commit(pen: &mut Pen<'_>, statements: Statements) -> Result<(), StoreError> {
    let done = pen.commit(statements).await;
    if done.is_err() {
        pen.roll_back().await;
    }
    done.map(drop)
}

/// title, description, status, priority, due, tags, haystack.
fn bind(statements: &mut Statements, todo: &Todo) -> Result<(), StoreError> {
    statements.with(todo.title.clone()).with(todo.description.clone()).with(todo.status.as_str());
    statements.with(level(todo.priority)).with(todo.due.clone()).with(json(&todo.tags)?).with(haystack(todo));
    Ok(())
}

fn todo_of(row: &SqliteRow) -> Result<Todo, StoreError> {
    let mut row = Columns::of(row);
    Ok(Todo {
        number: row.count()?,
        title: row.take()?,
        description: row.take()?,
        status: row.word()?,
        priority: priority_of(row.take()?)?,
        due: row.take()?,
        tags: row.json()?,
        created_at: row.at()?,
        updated_at: row.at()?,
    })
}

/// Priorities are kept as numbers, so that they can be sorted by.
const fn level(priority: TodoPriority) -> i64 {
    match priority {
        TodoPriority::Low => 0,
        TodoPriority::Medium => 1,
        TodoPriority::High => 2,
        TodoPriority::Critical => 3,
    }
}

fn priority_of(level: i64) -> Result<TodoPriority, StoreError> {
    match level {
        0 => Ok(TodoPriority::Low),
        1 => Ok(TodoPriority::Medium),
        2 => Ok(TodoPriority::High),
        3 => Ok(TodoPriority::Critical),
        _ => Err(StoreError {
            kind: StoreErrorKind::Corrupt,
            what: "reading a task",
            detail: format!("unknown priority {level}"),
        }),
    }
}

fn name(user: &UserId) -> String {
    user.as_str().to_owned()
}
