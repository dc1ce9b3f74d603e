//! The users' tasks.

use std::sync::Arc;

use annie_core::{
    ports::{NewTodo, Store, Todo, TodoPatch, TodoPriority, TodoQuery, TodoStatus, TodoSummary},
    time::Micros,
};

use crate::make::*;

fn titled(title: &str) -> NewTodo {
    NewTodo { title: title.to_owned(), ..NewTodo::default() }
}

fn all() -> TodoQuery {
    TodoQuery { limit: 100, ..TodoQuery::default() }
}

/// Stores todos of Ann's under the intents 1, 2, 3 ...
async fn make(store: &dyn Store, todos: Vec<NewTodo>) {
    for (todo, n) in todos.into_iter().zip(1..) {
        store.create_todo(user("ann"), intent(n), todo, Micros(n as i64)).await.unwrap();
    }
}

async fn titles(store: &dyn Store, query: TodoQuery) -> Vec<String> {
    store.find_todos(user("ann"), query).await.unwrap().into_iter().map(|todo| todo.title).collect()
}

pub async fn todo_numbers_count_per_user_and_are_never_reused(store: Arc<dyn Store>) {
    make(&*store, vec![titled("a"), titled("b")]).await;
    let bobs = store.create_todo(user("bob"), intent(1), titled("c"), Micros(1)).await.unwrap();
    assert_eq!(bobs.number, 1);
    assert!(store.delete_todo(user("ann"), 2, Micros(5)).await.unwrap());
    let next = store.create_todo(user("ann"), intent(9), titled("d"), Micros(6)).await.unwrap();
    assert_eq!(next.number, 3);
    assert_eq!(store.todo(user("bob"), 1).await.unwrap().unwrap().title, "c");
    assert_eq!(store.todo(user("bob"), 3).await.unwrap(), None);
}

pub async fn todo_is_created_once_per_intent(store: Arc<dyn Store>) {
    let first = store.create_todo(user("ann"), intent(1), titled("a"), Micros(1)).await.unwrap();
    let again = store.create_todo(user("ann"), intent(1), titled("other"), Micros(2)).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(titles(&*store, all()).await, ["a"]);
}

pub async fn todo_fields_are_read_as_written_and_can_be_changed(store: Arc<dyn Store>) {
    let new = NewTodo {
        title: "Review PR 42 \u{1f680}".into(),
        description: "line\n\"two\"".into(),
        priority: TodoPriority::High,
        due: Some("2026-02-28T14:00".into()),
        tags: vec!["code".into(), "Über".into()],
    };
    let made = store.create_todo(user("ann"), intent(1), new.clone(), Micros(5)).await.unwrap();
    let wanted = Todo {
        number: 1,
        title: new.title,
        description: new.description,
        status: TodoStatus::Todo,
        priority: new.priority,
        due: new.due,
        tags: new.tags,
        created_at: Micros(5),
        updated_at: Micros(5),
    };
    assert_eq!(made, wanted);
    assert_eq!(store.todo(user("ann"), 1).await.unwrap(), Some(wanted.clone()));
    let untouched = store.update_todo(user("ann"), 1, TodoPatch::default(), Micros(6)).await.unwrap();
    assert_eq!(untouched, Some(Todo { updated_at: Micros(6), ..wanted.clone() }));
    let patch = TodoPatch {
        title: Some("t".into()),
        description: Some(String::new()),
        status: Some(TodoStatus::InProgress),
        priority: Some(TodoPriority::Critical),
        due: Some(None),
        tags: Some(vec![]),
    };
    let changed = store.update_todo(user("ann"), 1, patch, Micros(7)).await.unwrap().unwrap();
    let wanted = Todo {
        title: "t".into(),
        description: String::new(),
        status: TodoStatus::InProgress,
        priority: TodoPriority::Critical,
        due: None,
        tags: vec![],
        updated_at: Micros(7),
        ..wanted
    };
    assert_eq!(changed, wanted);
    assert_eq!(store.todo(user("ann"), 1).await.unwrap(), Some(wanted));
    assert_eq!(store.update_todo(user("bob"), 1, TodoPatch::default(), Micros(8)).await.unwrap(), None);
    assert_eq!(store.update_todo(user("ann"), 2, TodoPatch::default(), Micros(8)).await.unwrap(), None);
}

pub async fn todo_search_requires_all_words_in_any_case_and_any_script(store: Arc<dyn Store>) {
    let todos = vec![
        NewTodo { description: "with GRÜSSE from Bob".into(), ..titled("Call the plumber") },
        NewTodo { tags: vec!["Bob".into()], ..titled("Привет") },
        titled("買い物 list"),
    ];
    make(&*store, todos).await;
    let search = async |text: &str| titles(&*store, TodoQuery { text: text.to_owned(), ..all() }).await;
    assert_eq!(search("CALL plumb grüsse").await, ["Call the plumber"]);
    assert_eq!(search("bob").await, ["Call the plumber", "Привет"]);
    assert_eq!(search("bob ПРИВ").await, ["Привет"]);
    assert_eq!(search("買い").await, ["買い物 list"]);
    assert_eq!(search("bob list").await, [""; 0]);
    assert_eq!(search("  ").await.len(), 3);
    let patch = TodoPatch { title: Some("Ring the painter".into()), ..TodoPatch::default() };
    store.update_todo(user("ann"), 1, patch, Micros(9)).await.unwrap();
    assert_eq!(search("plumber").await, [""; 0]);
    assert_eq!(search("painter").await, ["Ring the painter"]);
}

pub async fn todo_filters_narrow_and_combine(store: Arc<dyn Store>) {
    let dated = |title, due: &str| NewTodo { due: Some(due.to_owned()), ..titled(title) };
    let todos = vec![
        dated("early", "2026-02-01"),
        NewTodo {
            priority: TodoPriority::High,
            tags: vec!["x".into(), "y".into()],
            ..dated("late", "2026-03-01T09:00")
        },
        NewTodo { priority: TodoPriority::High, ..titled("never") },
    ];
    make(&*store, todos).await;
    for (number, status) in [(1, TodoStatus::Done), (3, TodoStatus::Blocked)] {
        let patch = TodoPatch { status: Some(status), ..TodoPatch::default() };
        store.update_todo(user("ann"), number, patch, Micros(9)).await.unwrap();
    }
    let found = async |query: TodoQuery| titles(&*store, query).await;
    assert_eq!(found(TodoQuery { open: true, ..all() }).await, ["late", "never"]);
    assert_eq!(found(TodoQuery { status: Some(TodoStatus::Done), ..all() }).await, ["early"]);
    assert_eq!(found(TodoQuery { status: Some(TodoStatus::Done), open: true, ..all() }).await, [""; 0]);
    assert_eq!(found(TodoQuery { priority: Some(TodoPriority::High), ..all() }).await, ["late", "never"]);
    assert_eq!(found(TodoQuery { due_before: Some("2026-03-01".into()), ..all() }).await, ["early"]);
    assert_eq!(found(TodoQuery { due_before: Some("2026-03-02".into()), ..all() }).await, ["early", "late"]);
    assert_eq!(found(TodoQuery { due_from: Some("2026-02-02".into()), ..all() }).await, ["late"]);
    assert_eq!(found(TodoQuery { due_from: Some("2026-02-01".into()), ..all() }).await, ["early", "late"]);
    assert_eq!(found(TodoQuery { tag: Some("y".into()), ..all() }).await, ["late"]);
    assert_eq!(found(TodoQuery { tag: Some("z".into()), ..all() }).await, [""; 0]);
    assert_eq!(found(TodoQuery { limit: 1, ..all() }).await, ["early"]);
    assert_eq!(found(TodoQuery { limit: 0, ..all() }).await, [""; 0]);
    assert_eq!(store.find_todos(user("bob"), all()).await.unwrap(), []);
}

pub async fn todos_are_listed_by_due_time_and_then_by_importance(store: Arc<dyn Store>) {
    let todo = |title, due: Option<&str>, priority| NewTodo { due: due.map(str::to_owned), priority, ..titled(title) };
    let todos = vec![
        todo("f", None, TodoPriority::Low),
        todo("d", None, TodoPriority::Critical),
        todo("e", None, TodoPriority::Medium),
        todo("c", Some("2026-02-02"), TodoPriority::Low),
        todo("b", Some("2026-02-02"), TodoPriority::Critical),
        todo("a", Some("2026-02-01T10:00"), TodoPriority::Low),
        todo("g", None, TodoPriority::Low),
    ];
    make(&*store, todos).await;
    assert_eq!(titles(&*store, all()).await, ["a", "b", "c", "d", "e", "f", "g"]);
}

pub async fn todo_that_is_archived_is_no_longer_found(store: Arc<dyn Store>) {
    make(&*store, vec![titled("a"), titled("b")]).await;
    assert!(!store.delete_todo(user("bob"), 1, Micros(4)).await.unwrap());
    assert!(store.delete_todo(user("ann"), 1, Micros(5)).await.unwrap());
    assert!(!store.delete_todo(user("ann"), 1, Micros(6)).await.unwrap());
    assert_eq!(store.todo(user("ann"), 1).await.unwrap(), None);
    assert_eq!(store.update_todo(user("ann"), 1, TodoPatch::default(), Micros(7)).await.unwrap(), None);
    assert_eq!(titles(&*store, all()).await, ["b"]);
    assert_eq!(store.todo_summary(user("ann"), "2026-02-28T12:00".into()).await.unwrap().open, 1);
}

pub async fn todo_summary_counts_open_overdue_and_due_today(store: Arc<dyn Store>) {
    let now = || "2026-02-28T14:05".to_owned();
    assert_eq!(store.todo_summary(user("ann"), now()).await.unwrap(), TodoSummary::default());
    let todo = |title, due: Option<&str>, priority| NewTodo { due: due.map(str::to_owned), priority, ..titled(title) };
    let todos = vec![
        todo("yesterday", Some("2026-02-27"), TodoPriority::Low),
        todo("this morning", Some("2026-02-28T14:00"), TodoPriority::Medium),
        todo("today", Some("2026-02-28"), TodoPriority::Critical),
        todo("this evening", Some("2026-02-28T23:00"), TodoPriority::Low),
        todo("tomorrow", Some("2026-03-01"), TodoPriority::Low),
        todo("some day", None, TodoPriority::High),
        todo("done long ago", Some("2020-01-01"), TodoPriority::Critical),
    ];
    make(&*store, todos).await;
    let done = TodoPatch { status: Some(TodoStatus::Done), ..TodoPatch::default() };
    store.update_todo(user("ann"), 7, done.clone(), Micros(9)).await.unwrap();
    let summary = TodoSummary { open: 6, overdue: 2, due_today: 2, top: Some("this morning".into()) };
    assert_eq!(store.todo_summary(user("ann"), now()).await.unwrap(), summary);
    for number in [1, 2] {
        store.update_todo(user("ann"), number, done.clone(), Micros(9)).await.unwrap();
    }
    let summary = TodoSummary { open: 4, overdue: 0, due_today: 2, top: Some("today".into()) };
    assert_eq!(store.todo_summary(user("ann"), now()).await.unwrap(), summary);
    assert_eq!(store.todo_summary(user("bob"), now()).await.unwrap(), TodoSummary::default());
}

pub async fn todo_search_treats_pattern_characters_as_text(store: Arc<dyn Store>) {
    make(&*store, vec![titled("100% done_ish"), titled("100 percent \"quoted\" 'x'")]).await;
    let search = async |text: &str| titles(&*store, TodoQuery { text: text.to_owned(), ..all() }).await;
    assert_eq!(search("0%").await, ["100% done_ish"]);
    assert_eq!(search("e_i").await, ["100% done_ish"]);
    assert_eq!(search("\"quoted\" 'x'").await, ["100 percent \"quoted\" 'x'"]);
    assert_eq!(search("') OR 1=1 --").await, [""; 0]);
}
