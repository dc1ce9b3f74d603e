//! The users' tasks: what a search looks in, what a change does, what is overdue. For every store.

use annie_core::{
    ports::{NewTodo, Todo, TodoPatch, TodoQuery, TodoStatus},
    time::Micros,
};

/// What a search looks in: title, description and tags in lower case.
pub(crate) fn haystack(todo: &Todo) -> String {
    format!("{}\n{}\n{}", todo.title, todo.description, todo.tags.join("\n")).to_lowercase()
}

/// The words of a query, all of which a haystack must hold.
pub(crate) fn needles(query: &TodoQuery) -> Vec<String> {
    query.text.split_whitespace().map(str::to_lowercase).collect()
}

/// A new one under its number.
pub(crate) fn created(new: NewTodo, number: u64, at: Micros) -> Todo {
    let NewTodo { title, description, priority, due, tags } = new;
    let status = TodoStatus::default();
    Todo { number, title, description, status, priority, due, tags, created_at: at, updated_at: at }
}

/// One with the changes made.
pub(crate) fn patched(mut todo: Todo, patch: TodoPatch, at: Micros) -> Todo {
    let TodoPatch { title, description, status, priority, due, tags } = patch;
    todo.title = title.unwrap_or(todo.title);
    todo.description = description.unwrap_or(todo.description);
    todo.status = status.unwrap_or(todo.status);
    todo.priority = priority.unwrap_or(todo.priority);
    todo.due = due.unwrap_or(todo.due);
    todo.tags = tags.unwrap_or(todo.tags);
    todo.updated_at = at;
    todo
}

/// The day of a local time.
pub(crate) fn day_of(local: &str) -> &str {
    local.get(..10).unwrap_or(local)
}
