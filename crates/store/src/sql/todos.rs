//! The users' tasks as rows.

use annie_core::ports::{StoreError, Todo, TodoPriority, TodoSummary};

use super::{Columns, corrupt};

/// A user's task from `number, title, description, status, priority, due, tags, created_at, updated_at`.
pub fn todo_of(row: &mut Columns<'_>) -> Result<Todo, StoreError> {
    Ok(Todo {
        number: row.count()?,
        title: row.text()?,
        description: row.text()?,
        status: row.word()?,
        priority: priority_of(row.number()?)?,
        due: row.maybe_text()?,
        tags: row.json()?,
        created_at: row.at()?,
        updated_at: row.at()?,
    })
}

/// A summary from the numbers of open, overdue and due-today tasks and the title of the most urgent one.
pub fn summary_of(row: &mut Columns<'_>) -> Result<TodoSummary, StoreError> {
    Ok(TodoSummary { open: row.count()?, overdue: row.count()?, due_today: row.count()?, top: row.maybe_text()? })
}

/// Priorities are stored as numbers, so that rows can be sorted by them.
pub const fn level(priority: TodoPriority) -> i64 {
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
        _ => Err(corrupt("reading a task", format!("unknown priority {level}"))),
    }
}
