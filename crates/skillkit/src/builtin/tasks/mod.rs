//! The user's own tasks (todos in code, since a task is what the scheduler orders), over the `Todos` port.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod search;
pub(crate) mod update;

use annie_core::ports::{Todo, TodoPriority, TodoStatus};
use chrono::NaiveDateTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{error::SkillError, handler::Ctx, when};

/// The longest title, in characters.
const TITLE_CHARS_MAX: usize = 200;
/// The longest description, in characters.
const DESCRIPTION_CHARS_MAX: usize = 10_000;

/// A title on one line: lists show one task a line.
fn one_line(title: &str) -> String {
    title.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Priority {
    Low,
    Medium,
    High,
    Critical,
}

impl From<Priority> for TodoPriority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Low => Self::Low,
            Priority::Medium => Self::Medium,
            Priority::High => Self::High,
            Priority::Critical => Self::Critical,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Todo,
    InProgress,
    Blocked,
    Done,
    Cancelled,
}

impl From<Status> for TodoStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Todo => Self::Todo,
            Status::InProgress => Self::InProgress,
            Status::Blocked => Self::Blocked,
            Status::Done => Self::Done,
            Status::Cancelled => Self::Cancelled,
        }
    }
}

/// Reads `--due` into its stored form.
fn due(ctx: &Ctx, text: &str) -> Result<String, SkillError> {
    // `next_monday`: small models write flags' values as names.
    let when = when::resolve(&text.replace('_', " "), ctx.now())
        .map_err(|e| SkillError::argument("due", format!("does not fit: {e}")))?;
    Ok(when.to_string())
}

/// `#3 Review PR 42, due 2026-11-22 (tomorrow), priority medium`; the status only if there is something to tell.
fn line(todo: &Todo, now: NaiveDateTime) -> String {
    let mut line = format!("#{} {}", todo.number, todo.title);
    if let Some(due) = &todo.due {
        line.push_str(&format!(", due {}", when::describe_due(due, todo.status.is_open(), now)));
    }
    line.push_str(&format!(", priority {}", todo.priority.as_str()));
    if todo.status != TodoStatus::Todo {
        line.push_str(&format!(", {}", todo.status.as_str().replace('_', " ")));
    }
    if !todo.tags.is_empty() {
        line.push_str(&format!(" [{}]", todo.tags.join(", ")));
    }
    line
}

fn lines(todos: &[Todo], now: NaiveDateTime) -> String {
    todos.iter().map(|todo| format!("- {}", line(todo, now))).collect::<Vec<_>>().join("\n")
}

fn numbers(todos: &[Todo]) -> Value {
    json!({"count": todos.len(), "numbers": todos.iter().map(|t| t.number).collect::<Vec<_>>()})
}

fn missing(number: u64) -> SkillError {
    let near = vec!["tasks.search".to_owned()];
    SkillError::NotFound { what: format!("There is no task #{number}."), near }
}
