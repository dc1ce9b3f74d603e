//! To-dos and memories as the tables of an earlier version had them, and the documents that a migration makes of them.

use annie_core::{
    ports::{
        Document, DocumentOrder, DocumentQuery, Documents, ExportedDocument, Find, NumberRange, TextRange, WriteKind,
    },
    reminder::TODOS,
    time::Micros,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    documents::{MEMORY, TASKS, found, insert, insertion, texts},
    make::*,
};

/// Tags as every version wrote them: the golden texts of the columns that the migration removes.
const TODO_TAGS: &str = include_str!("../golden/json_v1_moved/todos.tags.json");
const MEMORY_TAGS: &str = include_str!("../golden/json_v1_moved/memories.tags.json");

const LISTED: &str = "INSERT INTO todos (user_id, number, intent_id, title, description, status, priority, due, tags, haystack, \
     created_at, updated_at, archived_at) VALUES";
const REMEMBERED: &str = "INSERT INTO memories (user_id, number, owner, content, tags, category, importance, created_at, \
     updated_at, accessed_at) VALUES";
const INTENT: &str = "INSERT INTO memory_intents (user_id, intent_id, number, merged) VALUES";

/// The statements that store the rows. `id` writes an id, and `flags` are false and true as the database has them.
pub fn rows(id: impl Fn(Uuid) -> String, flags: [&str; 2]) -> Vec<String> {
    let id = |n: u128| id(intent(n).uuid());
    let (first, second, third, fourth) = (id(1), id(2), id(3), id(4));
    let (tags, memory_tags) = (TODO_TAGS.trim_end(), MEMORY_TAGS.trim_end());
    let (ann, bob) = (owner_of("ann"), owner_of("bob"));
    vec![
        format!(
            "{LISTED} ('ann', 1, {first}, 'Review \"PR\" 🚀', 'line', 'in_progress', 3, '2026-02-28T14:00', '{tags}', \
             'review \"pr\" 🚀 line home', 10, 20, NULL)"
        ),
        format!("{LISTED} ('ann', 2, {second}, 'Old', '', 'done', 0, NULL, '[]', 'old', 11, 12, 13)"),
        format!("{LISTED} ('bob', 1, {first}, 'Bobs', '', 'todo', 1, '2026-03-01', '[]', 'bobs', 14, 14, NULL)"),
        format!(
            "{REMEMBERED} ('ann', 1, '{ann}', 'Bob prefers email', '{memory_tags}', 'preference', 0.7, 30, 40, 50)"
        ),
        format!("{REMEMBERED} ('bob', 1, '{bob}', 'Bob likes tea', '[]', 'fact', 1.0, 31, 31, NULL)"),
        format!("{INTENT} ('ann', {third}, 1, {})", flags[0]),
        format!("{INTENT} ('ann', {fourth}, 1, {})", flags[1]),
    ]
}

/// The word by which the index names a user.
fn owner_of(name: &str) -> String {
    let hash = annie_core::projection::text_sha256(name);
    hash[..8].iter().fold(String::from("u"), |word, byte| format!("{word}{byte:02x}"))
}

/// Every row is a document with the same number and times, is found as before, and answers its intents.
pub async fn assert_unchanged(store: &dyn Documents) {
    let tags: Value = serde_json::from_str(TODO_TAGS).unwrap();
    let todo = Document {
        number: 1,
        body: json!({
            "title": "Review \"PR\" 🚀", "description": "line", "status": "in_progress", "priority": 3,
            "due": "2026-02-28T14:00", "tags": tags,
        }),
        created_at: Micros(10),
        updated_at: Micros(20),
        accessed_at: None,
    };
    assert_eq!(store.document(user("ann"), &TASKS, 1).await.unwrap().as_ref(), Some(&todo));
    let tags: Value = serde_json::from_str(MEMORY_TAGS).unwrap();
    let memory = Document {
        number: 1,
        body: json!({"content": "Bob prefers email", "tags": tags, "category": "preference", "importance": 0.7}),
        created_at: Micros(30),
        updated_at: Micros(40),
        accessed_at: Some(Micros(50)),
    };
    assert_eq!(store.document(user("ann"), &MEMORY, 1).await.unwrap().as_ref(), Some(&memory));
    let exported = store.export_documents(user("ann"), None, 9).await.unwrap();
    let key = |one: &ExportedDocument| (one.namespace.clone(), one.document.number, one.archived_at);
    let wanted = [("memory", 1, None), ("tasks", 1, None), ("tasks", 2, Some(Micros(13)))];
    let wanted = wanted.map(|(namespace, number, archived_at)| (namespace.to_owned(), number, archived_at));
    assert_eq!(exported.iter().map(key).collect::<Vec<_>>(), wanted);
    assert_found(store).await;
    for (namespace, n, kind, document) in [
        (&TASKS, 1, WriteKind::Inserted, &todo),
        (&MEMORY, 3, WriteKind::Inserted, &memory),
        (&MEMORY, 4, WriteKind::Replaced, &memory),
    ] {
        let again = store.write_document(insertion("ann", namespace, n, json!({}))).await.unwrap();
        assert_eq!((again.kind, again.document.as_ref()), (kind, Some(document)), "intent {n}");
    }
    assert_eq!(insert(store, "ann", &TASKS, 90, json!({"title": "new"})).await, 3, "an archived one keeps its number");
    assert_eq!(insert(store, "ann", &MEMORY, 91, json!({"content": "new"})).await, 2);
}

/// The keys and the index are those that a write would make.
async fn assert_found(store: &dyn Documents) {
    let query = DocumentQuery {
        find: Find::Containing("PR home".to_owned()),
        texts: [Vec::new(), texts(&["in_progress"]), Vec::new()],
        ranges: vec![TextRange { from: Some("2026-02-28".to_owned()), before: Some("2026-03".to_owned()) }],
        numbers: [NumberRange { min: Some(3.0), max: Some(3.0) }, NumberRange::default()],
        tags: texts(&["home"]),
        limit: 9,
        ..DocumentQuery::default()
    };
    assert_eq!(found(store, &TASKS, query).await, [1]);
    let words = |text: &str| DocumentQuery {
        find: Find::AnyWord(text.to_owned()),
        texts: [texts(&["preference"]), Vec::new(), Vec::new()],
        numbers: [NumberRange { min: Some(0.7), max: None }, NumberRange::default()],
        tags: texts(&["work"]),
        order: DocumentOrder::Rank,
        limit: 9,
        ..DocumentQuery::default()
    };
    assert_eq!(found(store, &MEMORY, words("emails")).await, [1]);
    assert_eq!(found(store, &MEMORY, words("work")).await, [1], "a tag is a word");
    assert_eq!(found(store, &MEMORY, words("tea")).await, [0_u64; 0]);
}

/// The statement that stores a to-do which is a part of to-do 1, as versions before the reminders wrote it.
pub fn part() -> String {
    "INSERT INTO documents (user_id, namespace, number, body, text_2, number_1, number_2, tags, haystack, owner, words, \
     created_at, updated_at) VALUES ('ann', 'tasks', 2, '{\"title\": \"part\", \"status\": \"todo\", \"parent\": 1}', 'todo', 1, 1, \
     '[]', 'part', '', '', 1, 1)"
        .to_owned()
}

/// The part is found by its whole, and no to-do counts as due.
pub async fn assert_part(store: &dyn Documents) {
    let of = |whole: &str| DocumentQuery {
        texts: [vec![], vec![], vec![whole.to_owned()]],
        limit: 9,
        ..DocumentQuery::default()
    };
    for (whole, wanted) in [("1", 1), ("2", 0)] {
        let hits = store.find_documents(user("ann"), &TODOS, of(whole)).await.unwrap();
        assert_eq!(hits.len(), wanted, "the parts of {whole}");
    }
    assert_eq!(store.due_documents(&TODOS, Micros(i64::MAX), 9).await.unwrap(), []);
}
