//! Rules for the users' tasks, for every store: the text that is searched, the result of a change, and which tasks are overdue.

use annie_core::{
    ports::{NewTodo, Todo, TodoPatch, TodoQuery, TodoStatus},
    time::Micros,
};

/// The text that is searched: title, description and tags in lower case.
pub(crate) fn haystack(todo: &Todo) -> String {
    format!("{}\n{}\n{}", todo.title, todo.description, todo.tags.join("\n")).to_lowercase()
}

/// The words of a query, all of which a haystack must contain.
pub(crate) fn needles(query: &TodoQuery) -> Vec<String> {
    query.text.split_whitespace().map(str::to_lowercase).collect()
}

/// A new task with its number.
pub(crate) fn created(new: NewTodo, number: u64, at: Micros) -> Todo {
    let NewTodo { title, description, priority, due, tags } = new;
    let status = TodoStatus::default();
    Todo { number, title, description, status, priority, due, tags, created_at: at, updated_at: at }
}

/// The task with the changes applied.
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
