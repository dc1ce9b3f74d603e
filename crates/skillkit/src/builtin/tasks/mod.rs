//! The user's own tasks, over the `Documents` port. The code calls them to-dos, because a task is a unit of the scheduler.

pub(crate) mod create;
pub(crate) mod data;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod remind;
pub(crate) mod restore;
pub(crate) mod search;
pub(crate) mod update;

use annie_core::{ports::SkillCall, skill::ORIGIN_TAG, time::Micros};
use serde_json::{Value, json};

use crate::{
    error::SkillError,
    handler::Ctx,
    text,
    when::{self, When},
};
use data::{Status, Todo};

/// Length limit for a title, in characters.
const TITLE_CHARS_MAX: usize = 200;
/// Length limit for a description, in characters.
const DESCRIPTION_CHARS_MAX: usize = 10_000;

/// Joins the lines of a title: lists show one task per line.
fn one_line(title: &str) -> String {
    title.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads `--due`. Its text is the stored form.
fn due(ctx: &Ctx, text: &str) -> Result<When, SkillError> {
    // `next_monday`: small models write the values of flags as identifiers.
    when::resolve(&text.replace('_', " "), ctx.now())
        .map_err(|e| SkillError::argument("due", format!("does not fit: {e}")))
}

/// The instant that a text names, if it names one. The stored form of a due time is a time of the clock, which may occur twice.
fn exact(when: &When) -> Option<Micros> {
    when.instant.map(Micros::from_utc)
}

/// `#3 Review PR 42, due 2026-11-22 (tomorrow), priority medium`; with the status unless it is `todo`.
fn line(todo: &Todo, ctx: &Ctx) -> String {
    let now = ctx.local_now();
    let mut line = format!("#{} {}", todo.number, todo.title);
    if let Some(due) = &todo.due {
        line.push_str(&format!(", due {}", when::describe_due(due, todo.status.is_open(), now)));
    }
    line.push_str(&format!(", priority {}", todo.priority.as_str()));
    if todo.status != Status::Todo {
        line.push_str(&format!(", {}", todo.status.as_str().replace('_', " ")));
    }
    let tags: Vec<&str> = todo.tags.iter().map(String::as_str).filter(|tag| !tag.starts_with(ORIGIN_TAG)).collect();
    if !tags.is_empty() {
        line.push_str(&format!(" [{}]", tags.join(", ")));
    }
    if let Some(parent) = todo.parent {
        line.push_str(&format!(" (part of #{parent})"));
    }
    if let Some(at) = todo.remind_at {
        line.push_str(&format!(", reminder {}", minute(ctx, at)));
    }
    line
}

/// The local minute of an instant, as lists show it.
fn minute(ctx: &Ctx, at: Micros) -> String {
    at.to_utc().with_timezone(&ctx.zone()).format("%Y-%m-%d %H:%M").to_string()
}

/// The sentence about the open parts of a task that has ended or was deleted, empty if there are none, and the origins of their
/// titles.
async fn about_open_parts(ctx: &Ctx, of: u64) -> Result<(String, Vec<String>), SkillError> {
    let open = data::open_parts(&*ctx.tools.documents, &ctx.call.user, of).await?;
    if open.is_empty() {
        return Ok((String::new(), Vec::new()));
    }
    let parts: Vec<String> = open.iter().map(|todo| format!("#{} {}", todo.number, todo.title)).collect();
    let counted = text::count(open.len(), "part of it is", "parts of it are");
    Ok((format!("\n{counted} still open: {}", parts.join("; ")), origins(&open)))
}

/// The tags that record where the texts of a call come from. What an agent has read of the user's own to-dos has its origins there.
fn origin_tags(call: &SkillCall) -> Result<Vec<String>, SkillError> {
    let of_others: Vec<String> = call.origin.iter().filter(|origin| !origin.starts_with("tasks.")).cloned().collect();
    text::tags_from(&[], &of_others)
}

/// The origins of the texts of these to-dos.
fn origins(todos: &[Todo]) -> Vec<String> {
    text::origins_in(todos.iter().flat_map(|todo| &todo.tags))
}

fn lines(todos: &[Todo], ctx: &Ctx) -> String {
    todos.iter().map(|todo| format!("- {}", line(todo, ctx))).collect::<Vec<_>>().join("\n")
}

fn numbers(todos: &[Todo]) -> Value {
    json!({"count": todos.len(), "numbers": todos.iter().map(|t| t.number).collect::<Vec<_>>()})
}

fn missing(number: u64) -> SkillError {
    let near = vec!["tasks.search".to_owned()];
    SkillError::NotFound { what: format!("There is no task #{number}."), near }
}
