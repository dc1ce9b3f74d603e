//! The users' tasks.

use std::cmp::Reverse;

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Fut, NewTodo, StoreError, Todo, TodoPatch, TodoQuery, TodoSummary, Todos},
    time::Micros,
};

use super::{
    MemoryStore,
    data::{Data, KeptTodo},
};
use crate::todo_rules::{created, day_of, haystack, needles, patched};

impl Todos for MemoryStore {
    fn create_todo(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewTodo,
        at: Micros,
    ) -> Fut<'_, Result<Todo, StoreError>> {
        Box::pin(self.write("create_todo", move |data| {
            if let Some(made) = all(data, &user).find(|kept| kept.intent == intent) {
                return made.todo.clone();
            }
            let number = all(data, &user).map(|kept| kept.todo.number).max().unwrap_or(0) + 1;
            let todo = created(new, number, at);
            data.todos.insert((user, number), KeptTodo { intent, todo: todo.clone(), archived: false });
            todo
        }))
    }

    fn todo(&self, user: UserId, number: u64) -> Fut<'_, Result<Option<Todo>, StoreError>> {
        Box::pin(self.read("todo", move |data| {
            data.todos.get(&(user, number)).filter(|kept| !kept.archived).map(|kept| kept.todo.clone())
        }))
    }

    fn find_todos(&self, user: UserId, query: TodoQuery) -> Fut<'_, Result<Vec<Todo>, StoreError>> {
        Box::pin(self.read("find_todos", move |data| {
            let needles = needles(&query);
            let mut found: Vec<Todo> =
                shown(data, &user).filter(|todo| fits(todo, &query, &needles)).cloned().collect();
            found.sort_by(|a, b| {
                let order = |t: &Todo| (t.due.is_none(), t.due.clone(), Reverse(t.priority), t.number);
                order(a).cmp(&order(b))
            });
            found.truncate(query.limit as usize);
            found
        }))
    }

    fn update_todo(
        &self,
        user: UserId,
        number: u64,
        patch: TodoPatch,
        at: Micros,
    ) -> Fut<'_, Result<Option<Todo>, StoreError>> {
        Box::pin(self.write("update_todo", move |data| {
            data.todos.get_mut(&(user, number)).filter(|kept| !kept.archived).map(|kept| {
                kept.todo = patched(kept.todo.clone(), patch, at);
                kept.todo.clone()
            })
        }))
    }

    fn delete_todo(&self, user: UserId, number: u64, _at: Micros) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(self.write("delete_todo", move |data| {
            let kept = data.todos.get_mut(&(user, number)).filter(|kept| !kept.archived);
            kept.map(|kept| kept.archived = true).is_some()
        }))
    }

    fn todo_summary(&self, user: UserId, local_now: String) -> Fut<'_, Result<TodoSummary, StoreError>> {
        Box::pin(self.read("todo_summary", move |data| {
            let open: Vec<&Todo> = shown(data, &user).filter(|todo| todo.status.is_open()).collect();
            let overdue = |todo: &&&Todo| is_overdue(todo, &local_now);
            let today = |todo: &&&Todo| todo.due.as_deref().is_some_and(|due| day_of(due) == day_of(&local_now));
            let urgent = |t: &&&Todo| {
                (!is_overdue(t, &local_now), Reverse(t.priority), t.due.is_none(), t.due.clone(), t.number)
            };
            TodoSummary {
                open: open.len() as u64,
                overdue: open.iter().filter(overdue).count() as u64,
                due_today: open.iter().filter(|todo| today(todo) && !overdue(todo)).count() as u64,
                top: open.iter().min_by_key(urgent).map(|todo| todo.title.clone()),
            }
        }))
    }
}

fn all<'a>(data: &'a Data, user: &UserId) -> impl Iterator<Item = &'a KeptTodo> + use<'a> {
    data.todos.range((user.clone(), 0)..=(user.clone(), u64::MAX)).map(|(_, kept)| kept)
}

fn shown<'a>(data: &'a Data, user: &UserId) -> impl Iterator<Item = &'a Todo> + use<'a> {
    all(data, user).filter(|kept| !kept.archived).map(|kept| &kept.todo)
}

fn fits(todo: &Todo, query: &TodoQuery, needles: &[String]) -> bool {
    let haystack = haystack(todo);
    let due = |fits: &dyn Fn(&str) -> bool| todo.due.as_deref().is_some_and(fits);
    needles.iter().all(|needle| haystack.contains(needle))
        && query.status.is_none_or(|status| todo.status == status)
        && (!query.open || todo.status.is_open())
        && query.priority.is_none_or(|priority| todo.priority == priority)
        && query.due_before.as_ref().is_none_or(|before| due(&|d| d < before.as_str()))
        && query.due_from.as_ref().is_none_or(|from| due(&|d| d >= from.as_str()))
        && query.tag.as_ref().is_none_or(|tag| todo.tags.contains(tag))
}

/// A due day is overdue when it has ended, a due time when it has passed.
fn is_overdue(todo: &Todo, local_now: &str) -> bool {
    todo.due.as_deref().is_some_and(|due| due < if due.len() > 10 { local_now } else { day_of(local_now) })
}
