//! To-dos over a store in memory.

use annie_store::MemoryStore;
use chrono::NaiveDate;

use super::*;
use crate::runner::tests::call;

fn ann() -> UserId {
    UserId::new("ann").unwrap()
}

fn titled(title: &str) -> NewTodo {
    let (title, description, priority, tags) = (title.to_owned(), String::new(), Priority::Medium, Vec::new());
    NewTodo { title, description, priority, due: None, tags, parent: None, remind_at: None }
}

fn due(title: &str, due: Option<&str>, priority: Priority) -> NewTodo {
    NewTodo { due: due.map(str::to_owned), priority, ..titled(title) }
}

/// A call with an intent of its own at a time.
fn at(n: i64) -> SkillCall {
    SkillCall { now: Micros(n), ..call(&n.to_string(), "tasks.create", json!({})) }
}

async fn make(store: &MemoryStore, todos: Vec<NewTodo>) {
    for (n, todo) in (1..).zip(todos) {
        create(store, &at(n), todo).await.unwrap();
    }
}

fn all() -> TodoQuery {
    TodoQuery { limit: 100, ..TodoQuery::default() }
}

async fn titles(store: &MemoryStore, query: TodoQuery) -> Vec<String> {
    find(store, &ann(), query).await.unwrap().into_iter().map(|todo| todo.title).collect()
}

#[tokio::test]
async fn todo_fields_are_read_as_written_and_can_be_changed() {
    let store = MemoryStore::new();
    let new = NewTodo {
        title: "Review PR 42 \u{1f680}".into(),
        description: "line\n\"two\"".into(),
        priority: Priority::High,
        due: Some("2026-02-28T14:00".into()),
        tags: vec!["code".into(), "Über".into()],
        parent: None,
        remind_at: None,
    };
    let made = create(&store, &at(5), new.clone()).await.unwrap().unwrap();
    let NewTodo { title, description, priority, due, tags, parent, remind_at } = new;
    let (created_at, updated_at) = (Micros(5), Micros(5));
    let wanted = Todo {
        number: 1,
        title,
        description,
        status: Status::Todo,
        priority,
        due,
        tags,
        parent,
        remind_at,
        reminder: None,
        created_at,
        updated_at,
    };
    assert_eq!(made, wanted);
    assert_eq!(get(&store, &ann(), 1).await.unwrap(), Some(wanted.clone()));
    let untouched = update(&store, &at(6), 1, TodoPatch::default()).await.unwrap();
    assert_eq!(untouched, Some(Todo { updated_at: Micros(6), ..wanted.clone() }));
    let patch = TodoPatch {
        title: Some("t".into()),
        description: Some(String::new()),
        status: Some(Status::InProgress),
        priority: Some(Priority::Critical),
        due: Some(None),
        tags: Some(vec![]),
        origin_tags: vec!["from:web.fetch".into()],
        remind_at: None,
    };
    let changed = update(&store, &at(7), 1, patch).await.unwrap().unwrap();
    let wanted = Todo {
        title: "t".into(),
        description: String::new(),
        status: Status::InProgress,
        priority: Priority::Critical,
        due: None,
        tags: vec!["from:web.fetch".into()],
        updated_at: Micros(7),
        ..wanted
    };
    assert_eq!(changed, wanted);
    assert_eq!(get(&store, &ann(), 1).await.unwrap(), Some(wanted));
    assert_eq!(update(&store, &at(8), 2, TodoPatch::default()).await.unwrap(), None);
}

/// The instant of a UTC minute of 18 February 2026.
fn minute(text: &str) -> Micros {
    let text = format!("2026-02-18T{text}:00Z");
    Micros::from_utc(chrono::DateTime::parse_from_rfc3339(&text).unwrap().to_utc())
}

/// A call in Berlin at noon UTC.
fn at_noon(intent: &str) -> SkillCall {
    let timezone = "Europe/Berlin".to_owned();
    SkillCall { now: minute("12:00"), timezone, ..call(intent, "tasks.update", json!({})) }
}

#[tokio::test]
async fn todo_with_a_due_minute_reminds_at_it_until_it_is_done_or_moved() {
    let store = MemoryStore::new();
    let (due, made) = (Some("2026-02-18T15:00".to_owned()), at_noon("made"));
    let remind_at = reminder_of("2026-02-18T15:00", &made);
    assert_eq!(remind_at, Some(minute("14:00")));
    let todo = create(&store, &made, NewTodo { due, remind_at, ..titled("x") }).await.unwrap().unwrap();
    let id = |todo: &Todo| todo.reminder.as_ref().map(|reminder| reminder.id);
    assert_eq!((todo.remind_at, id(&todo)), (Some(minute("14:00")), Some(made.intent.uuid())));
    let changed =
        async |intent: &str, patch: TodoPatch| update(&store, &at_noon(intent), 1, patch).await.unwrap().unwrap();
    let titled = changed("t", TodoPatch { title: Some("y".into()), ..TodoPatch::default() }).await;
    assert_eq!((titled.remind_at, id(&titled)), (todo.remind_at, id(&todo)), "the reminder stays");
    let done = changed("d", TodoPatch { status: Some(Status::Done), ..TodoPatch::default() }).await;
    assert_eq!(done.remind_at, None);
    let reopened = changed("o", TodoPatch { status: Some(Status::Todo), ..TodoPatch::default() }).await;
    assert_eq!((reopened.remind_at, id(&reopened)), (Some(minute("14:00")), Some(at_noon("o").intent.uuid())));
    let snoozed = changed("s", TodoPatch { remind_at: Some(Some(minute("15:00"))), ..TodoPatch::default() }).await;
    assert_eq!((snoozed.remind_at, snoozed.due.as_deref()), (Some(minute("15:00")), Some("2026-02-18T15:00")));
    let moved = changed("m", TodoPatch { due: Some(Some("2026-02-19".into())), ..TodoPatch::default() }).await;
    assert_eq!(moved.remind_at, None, "a day has no minute");
    let past = changed("p", TodoPatch { due: Some(Some("2026-02-18T12:59".into())), ..TodoPatch::default() }).await;
    assert_eq!(past.remind_at, None, "it has passed");
}

#[tokio::test]
async fn part_of_an_older_version_is_read_with_its_whole() {
    let store = MemoryStore::new();
    let body = json!({
        "title": "pack", "description": "", "status": "todo", "priority": 1, "due": null, "tags": [], "parent": 7,
    });
    let decide: Decide = Arc::new(move |_: &[Document]| Ok(DocumentChange::Insert(body.clone())));
    write(&store, &at(1), Seen::Nothing, decide).await.unwrap();
    let todo = get(&store, &ann(), 1).await.unwrap().unwrap();
    assert_eq!((todo.parent, todo.remind_at, todo.reminder), (Some(7), None, None));
}

#[test]
fn todo_moved_from_the_table_of_an_earlier_version_is_read() {
    let body = json!({
        "title": "Review \"PR\" 🚀", "description": "line", "status": "in_progress", "priority": 3,
        "due": "2026-02-28T14:00", "tags": ["home", "\"now\" ü"],
    });
    let (created_at, updated_at) = (Micros(10), Micros(20));
    let document = Document { number: 1, body: body.clone(), created_at, updated_at, accessed_at: None };
    let todo = Todo::of(&document).unwrap();
    assert_eq!((todo.status, todo.priority, todo.tags.len()), (Status::InProgress, Priority::Critical, 2));
    assert_eq!(todo.body(), body, "a change writes the same fields");
    let wrong = Document { body: json!({"title": "x"}), ..document };
    assert_eq!(Todo::of(&wrong).unwrap_err().kind, StoreErrorKind::Corrupt);
}

#[tokio::test]
async fn todo_filters_narrow_and_combine() {
    let store = MemoryStore::new();
    let late = due("late", Some("2026-03-01T09:00"), Priority::High);
    let todos = vec![
        due("early", Some("2026-02-01"), Priority::Medium),
        NewTodo { tags: vec!["x".into(), "y".into()], ..late },
        due("never", None, Priority::High),
    ];
    make(&store, todos).await;
    for (number, status) in [(1, Status::Done), (3, Status::Blocked)] {
        let patch = TodoPatch { status: Some(status), ..TodoPatch::default() };
        update(&store, &at(10 + number as i64), number, patch).await.unwrap();
    }
    let found = async |query: TodoQuery| titles(&store, query).await;
    assert_eq!(found(TodoQuery { statuses: OPEN, ..all() }).await, ["late", "never"]);
    assert_eq!(found(TodoQuery { statuses: &[Status::Done], ..all() }).await, ["early"]);
    assert_eq!(found(TodoQuery { priority: Some(Priority::High), ..all() }).await, ["late", "never"]);
    let before = vec![range(None, Some("2026-03-01".to_owned()))];
    assert_eq!(found(TodoQuery { due: before, ..all() }).await, ["early"]);
    let from = vec![range(Some("2026-02-02".to_owned()), None)];
    assert_eq!(found(TodoQuery { due: from, ..all() }).await, ["late"]);
    assert_eq!(found(TodoQuery { tag: Some("y".into()), ..all() }).await, ["late"]);
    assert_eq!(found(TodoQuery { tag: Some("z".into()), ..all() }).await, [""; 0]);
    assert_eq!(found(TodoQuery { limit: 1, ..all() }).await, ["early"]);
}

#[tokio::test]
async fn todos_are_listed_by_due_time_and_then_by_importance() {
    let store = MemoryStore::new();
    let todos = vec![
        due("f", None, Priority::Low),
        due("d", None, Priority::Critical),
        due("e", None, Priority::Medium),
        due("c", Some("2026-02-02"), Priority::Low),
        due("b", Some("2026-02-02"), Priority::Critical),
        due("a", Some("2026-02-01T10:00"), Priority::Low),
        due("g", None, Priority::Low),
    ];
    make(&store, todos).await;
    assert_eq!(titles(&store, all()).await, ["a", "b", "c", "d", "e", "f", "g"]);
}

#[tokio::test]
async fn todo_that_is_deleted_is_gone_and_its_deletion_can_be_repeated() {
    let store = MemoryStore::new();
    make(&store, vec![titled("a"), titled("b")]).await;
    assert_eq!(delete(&store, &at(5), 1).await.unwrap().unwrap().title, "a");
    assert_eq!(delete(&store, &at(5), 1).await.unwrap().unwrap().title, "a", "the same call again");
    assert_eq!(delete(&store, &at(6), 1).await.unwrap(), None);
    assert_eq!(get(&store, &ann(), 1).await.unwrap(), None);
    assert_eq!(update(&store, &at(7), 1, TodoPatch::default()).await.unwrap(), None);
    assert_eq!(titles(&store, all()).await, ["b"]);
}

#[tokio::test]
async fn todo_in_the_trash_is_restored_once_per_call() {
    let store = MemoryStore::new();
    make(&store, vec![titled("a"), titled("b")]).await;
    delete(&store, &at(5), 1).await.unwrap();
    let in_trash = trashed(&store, &ann()).await.unwrap();
    assert_eq!((in_trash.len(), in_trash[0].todo.number, in_trash[0].deleted_at), (1, 1, Micros(5)));
    assert_eq!(restore(&store, &at(6), 1).await.unwrap().unwrap().title, "a");
    delete(&store, &at(7), 1).await.unwrap();
    assert_eq!(restore(&store, &at(6), 1).await.unwrap().unwrap().title, "a", "the same call again");
    assert_eq!(titles(&store, all()).await, ["b"], "a repeated call restores nothing more");
    assert_eq!(written_before(&store, &at(6)).await.unwrap().unwrap().number, 1);
    assert_eq!(written_before(&store, &at(8)).await.unwrap(), None);
    assert_eq!(restore(&store, &at(9), 2).await.unwrap(), None, "it is not in the trash");
    let bob = UserId::new("bob").unwrap();
    assert_eq!(trashed(&store, &bob).await.unwrap(), []);
    assert_eq!(restore(&store, &SkillCall { user: bob, ..at(10) }, 1).await.unwrap(), None);
}

#[tokio::test]
async fn todo_parts_have_one_level_and_an_existing_whole() {
    let store = MemoryStore::new();
    let part = |title: &str, of: u64| NewTodo { parent: Some(of), ..titled(title) };
    make(&store, vec![titled("move house"), part("pack", 1), part("call Bob", 1)]).await;
    assert_eq!(get(&store, &ann(), 2).await.unwrap().unwrap().parent, Some(1));
    assert_eq!(create(&store, &at(10), part("box", 2)).await.unwrap(), None, "a part has no parts");
    assert_eq!(create(&store, &at(11), part("box", 9)).await.unwrap(), None, "there is no such to-do");
    update(&store, &at(12), 3, TodoPatch { status: Some(Status::Done), ..TodoPatch::default() }).await.unwrap();
    let open = open_parts(&store, &ann(), 1).await.unwrap();
    assert_eq!(open.iter().map(|todo| todo.number).collect::<Vec<_>>(), [2]);
    assert_eq!(titles(&store, TodoQuery { parent: Some(1), ..all() }).await, ["pack", "call Bob"]);
}

#[tokio::test]
async fn todo_summary_counts_open_overdue_and_due_today() {
    let store = MemoryStore::new();
    let now = NaiveDate::from_ymd_opt(2026, 2, 28).unwrap().and_hms_opt(14, 5, 30).unwrap();
    let summed = async || summary(&store, &ann(), now).await.unwrap();
    assert_eq!(summed().await, TodoSummary::default());
    let todos = vec![
        due("yesterday", Some("2026-02-27"), Priority::Low),
        due("this morning", Some("2026-02-28T14:00"), Priority::Medium),
        due("today", Some("2026-02-28"), Priority::Critical),
        due("this evening", Some("2026-02-28T23:00"), Priority::Low),
        due("tomorrow", Some("2026-03-01"), Priority::Low),
        due("some day", None, Priority::High),
        due("done long ago", Some("2020-01-01"), Priority::Critical),
    ];
    make(&store, todos).await;
    let done = TodoPatch { status: Some(Status::Done), ..TodoPatch::default() };
    update(&store, &at(17), 7, done.clone()).await.unwrap();
    let top = Some("\"this morning\"".to_owned());
    assert_eq!(summed().await, TodoSummary { open: 6, overdue: 2, due_today: 2, top });
    for number in [1, 2] {
        update(&store, &at(20 + number as i64), number, done.clone()).await.unwrap();
    }
    let top = Some("\"today\"".to_owned());
    assert_eq!(summed().await, TodoSummary { open: 4, overdue: 0, due_today: 2, top });
    let bob = UserId::new("bob").unwrap();
    assert_eq!(summary(&store, &bob, now).await.unwrap(), TodoSummary::default());
}
