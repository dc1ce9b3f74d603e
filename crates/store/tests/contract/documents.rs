//! The documents of skills: writes, keys, isolation, export and deletion.

use std::sync::Arc;

use annie_core::{
    ids::{IntentId, UserId},
    ports::{
        Decide, Document, DocumentChange, DocumentOrder, DocumentQuery, DocumentWrite, Documents, Find, Namespace,
        NumberRange, Seen, Storage, StoreError, StoreErrorKind, TextRange, WriteKind, Written,
    },
    time::Micros,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::make::*;

/// To-dos, as the built-in skill declares them.
pub static TASKS: Namespace = Namespace {
    texts: &["due", "status"],
    numbers: &["priority"],
    tags: "tags",
    contents: &["title", "description", "tags"],
    ..Namespace::named("tasks")
};

/// Memories, as the built-in skill declares them.
pub static MEMORY: Namespace = Namespace {
    texts: &["category"],
    numbers: &["importance"],
    tags: "tags",
    words: &["content", "tags"],
    ..Namespace::named("memory")
};

/// Documents that become due.
static SCHEDULES: Namespace = Namespace { numbers: &["runs", "due_at"], ..Namespace::named("schedules") };

/// The write of a decision that does not depend on what it sees.
pub fn write(owner: &str, namespace: &'static Namespace, n: u128, seen: Seen, change: DocumentChange) -> DocumentWrite {
    let decide: Decide = Arc::new(move |_: &[Document]| Ok(change.clone()));
    DocumentWrite { user: user(owner), namespace, intent: intent(n), seen, decide, at: Micros(n as i64) }
}

/// The write of a new document under the intent `n` at the time `n`.
pub fn insertion(owner: &str, namespace: &'static Namespace, n: u128, body: Value) -> DocumentWrite {
    write(owner, namespace, n, Seen::Nothing, DocumentChange::Insert(body))
}

/// Creates a document under the intent `n` at the time `n`.
pub async fn insert(store: &dyn Documents, owner: &str, namespace: &'static Namespace, n: u128, body: Value) -> u64 {
    let written = store.write_document(insertion(owner, namespace, n, body)).await.unwrap();
    assert_eq!(written.kind, WriteKind::Inserted);
    written.document.unwrap().number
}

/// Replaces a document under the intent `n` at the time `n`.
pub async fn replace(
    store: &dyn Documents,
    namespace: &'static Namespace,
    number: u64,
    n: u128,
    body: Value,
) -> Written {
    let change = DocumentChange::Replace { number, body };
    store.write_document(write("ann", namespace, n, Seen::Number(number), change)).await.unwrap()
}

async fn archive(store: &dyn Documents, number: u64, n: u128) -> Written {
    let archive = write("ann", &TASKS, n, Seen::Number(number), DocumentChange::Archive(number));
    store.write_document(archive).await.unwrap()
}

/// The numbers of Ann's documents that a query finds.
pub async fn found(store: &dyn Documents, namespace: &'static Namespace, query: DocumentQuery) -> Vec<u64> {
    let hits = store.find_documents(user("ann"), namespace, query).await.unwrap();
    hits.into_iter().map(|hit| hit.document.number).collect()
}

pub fn all() -> DocumentQuery {
    DocumentQuery { limit: 100, ..DocumentQuery::default() }
}

fn titled(title: &str) -> Value {
    json!({"title": title, "status": "todo", "priority": 1, "tags": []})
}

pub fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn range(from: Option<&str>, before: Option<&str>) -> TextRange {
    TextRange { from: from.map(str::to_owned), before: before.map(str::to_owned) }
}

pub async fn document_numbers_count_per_user_and_namespace_and_are_never_reused(store: Arc<dyn Storage>) {
    assert_eq!(insert(&*store, "ann", &TASKS, 1, titled("a")).await, 1);
    assert_eq!(insert(&*store, "ann", &TASKS, 2, titled("b")).await, 2);
    assert_eq!(insert(&*store, "bob", &TASKS, 1, titled("c")).await, 1);
    assert_eq!(insert(&*store, "ann", &MEMORY, 1, json!({"content": "d"})).await, 1);
    assert_eq!(archive(&*store, 2, 5).await.kind, WriteKind::Archived);
    assert_eq!(insert(&*store, "ann", &TASKS, 9, titled("e")).await, 3);
    assert_eq!(store.document(user("bob"), &TASKS, 1).await.unwrap().unwrap().body["title"], "c");
    assert_eq!(store.document(user("bob"), &TASKS, 3).await.unwrap(), None);
}

pub async fn document_is_written_once_per_intent(store: Arc<dyn Storage>) {
    let insert = |title: &str| write("ann", &TASKS, 1, Seen::Nothing, DocumentChange::Insert(titled(title)));
    let first = store.write_document(insert("a")).await.unwrap();
    let again = store.write_document(DocumentWrite { at: Micros(2), ..insert("other") }).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(found(&*store, &TASKS, all()).await, [1]);
    let elsewhere = write("ann", &MEMORY, 1, Seen::Nothing, DocumentChange::Insert(json!({"content": "x"})));
    assert_eq!(store.write_document(elsewhere).await.unwrap().kind, WriteKind::Inserted, "another namespace");
}

pub async fn document_that_an_intent_replaced_or_archived_is_the_answer_to_its_repetition(store: Arc<dyn Storage>) {
    insert(&*store, "ann", &TASKS, 1, titled("a")).await;
    replace(&*store, &TASKS, 1, 2, titled("b")).await;
    let last = replace(&*store, &TASKS, 1, 3, titled("c")).await;
    let again = replace(&*store, &TASKS, 1, 2, titled("b")).await;
    assert_eq!((again.kind, &again.document), (WriteKind::Replaced, &last.document), "the later change stays");
    let archived = archive(&*store, 1, 4).await;
    assert_eq!(archived.document, last.document);
    assert_eq!(archive(&*store, 1, 4).await, archived);
    let created = write("ann", &TASKS, 1, Seen::Nothing, DocumentChange::Insert(titled("a")));
    let again = store.write_document(created).await.unwrap();
    assert_eq!(again, Written { kind: WriteKind::Inserted, document: last.document });
}

pub async fn document_is_read_as_written_and_can_be_replaced(store: Arc<dyn Storage>) {
    let body = json!({
        "title": "Review PR 42 \u{1f680}", "description": "line\n\"two\" \0", "status": "todo", "priority": 2,
        "due": "2026-02-28T14:00", "tags": ["code", "Über"], "more": {"a": [1.5, null, true]},
    });
    let made = store.write_document(write("ann", &TASKS, 5, Seen::Nothing, DocumentChange::Insert(body.clone())));
    let wanted = Document { number: 1, body, created_at: Micros(5), updated_at: Micros(5), accessed_at: None };
    assert_eq!(made.await.unwrap().document, Some(wanted.clone()));
    assert_eq!(store.document(user("ann"), &TASKS, 1).await.unwrap(), Some(wanted.clone()));
    let written = replace(&*store, &TASKS, 1, 7, json!({"title": "t"})).await;
    let wanted = Document { body: json!({"title": "t"}), updated_at: Micros(7), ..wanted };
    assert_eq!(written.document, Some(wanted.clone()));
    assert_eq!(store.document(user("ann"), &TASKS, 1).await.unwrap(), Some(wanted));
    let due = DocumentQuery { ranges: vec![range(Some("2026"), None)], ..all() };
    assert_eq!(found(&*store, &TASKS, due).await, [0_u64; 0], "the keys are replaced too");
}

pub async fn document_that_is_archived_is_no_longer_found(store: Arc<dyn Storage>) {
    for (n, title) in [(1, "a"), (2, "b")] {
        insert(&*store, "ann", &TASKS, n, titled(title)).await;
    }
    archive(&*store, 1, 5).await;
    assert_eq!(store.document(user("ann"), &TASKS, 1).await.unwrap(), None);
    assert_eq!(found(&*store, &TASKS, all()).await, [2]);
    assert_eq!(store.count_documents(user("ann"), &TASKS, all(), Vec::new()).await.unwrap(), [1]);
    let unseen = write("ann", &TASKS, 6, Seen::Number(1), DocumentChange::Archive(1));
    assert!(store.write_document(unseen).await.is_err(), "a write does not see it");
}

/// A namespace whose name begins like another one.
static OTHER: Namespace = Namespace { words: &["content"], ..Namespace::named("memory2") };

async fn restore(store: &dyn Documents, owner: &str, number: u64, n: u128) -> Result<Written, StoreError> {
    let restore = write(owner, &TASKS, n, Seen::Archived(number), DocumentChange::Restore(number));
    store.write_document(restore).await
}

/// The numbers of Ann's archived to-dos with the times at which they were archived.
async fn archived(store: &dyn Documents) -> Vec<(u64, Option<Micros>)> {
    let archived = store.archived_documents(user("ann"), &TASKS, 9).await.unwrap();
    archived.into_iter().map(|kept| (kept.document.number, kept.archived_at)).collect()
}

pub async fn archived_document_is_listed_and_restored(store: Arc<dyn Storage>) {
    for (n, title) in [(1, "a"), (2, "b"), (3, "c")] {
        insert(&*store, "ann", &TASKS, n, titled(title)).await;
    }
    assert_eq!(archived(&*store).await, []);
    archive(&*store, 3, 4).await;
    archive(&*store, 1, 5).await;
    assert_eq!(archived(&*store).await, [(1, Some(Micros(5))), (3, Some(Micros(4)))], "the last archived first");
    assert_eq!(store.archived_documents(user("ann"), &TASKS, 1).await.unwrap().len(), 1);
    assert_eq!(store.archived_documents(user("bob"), &TASKS, 9).await.unwrap(), []);
    assert_eq!(store.archived_documents(user("ann"), &MEMORY, 9).await.unwrap(), []);

    let restored = restore(&*store, "ann", 1, 6).await.unwrap();
    let document = restored.document.clone().unwrap();
    assert_eq!((restored.kind, document.body, document.updated_at), (WriteKind::Replaced, titled("a"), Micros(6)));
    assert_eq!(found(&*store, &TASKS, all()).await, [1, 2]);
    assert_eq!(archived(&*store).await, [(3, Some(Micros(4)))]);
    archive(&*store, 1, 7).await;
    assert_eq!(restore(&*store, "ann", 1, 6).await.unwrap().kind, WriteKind::Replaced, "the same intent again");
    assert_eq!(archived(&*store).await[0], (1, Some(Micros(7))), "a repetition changes nothing");
    for (owner, number) in [("ann", 2), ("ann", 9), ("bob", 1)] {
        assert!(restore(&*store, owner, number, 8).await.is_err(), "{owner} {number}");
    }
}

pub async fn archived_document_is_purged_once_it_is_old(store: Arc<dyn Storage>) {
    for (n, title) in [(1, "a"), (2, "b"), (3, "c")] {
        insert(&*store, "ann", &TASKS, n, titled(title)).await;
    }
    insert(&*store, "ann", &MEMORY, 1, json!({"content": "zebra", "importance": 0.5})).await;
    let change = DocumentChange::Archive(1);
    store.write_document(write("ann", &MEMORY, 4, Seen::Number(1), change)).await.unwrap();
    archive(&*store, 3, 5).await;
    archive(&*store, 1, 6).await;
    assert_eq!(store.purge_documents(Micros(4), 9).await.unwrap(), 0, "only what was archived before");
    assert_eq!(store.purge_documents(Micros(6), 1).await.unwrap(), 1, "at most the limit");
    assert_eq!(store.purge_documents(Micros(6), 9).await.unwrap(), 1);
    assert_eq!(store.purge_documents(Micros(6), 9).await.unwrap(), 0, "nothing is purged twice");
    assert_eq!(archived(&*store).await, [(1, Some(Micros(6)))]);
    assert!(restore(&*store, "ann", 3, 7).await.is_err(), "what was purged does not come back");
    let exported = store.export_documents(user("ann"), None, 9).await.unwrap();
    let text = format!("{exported:?}");
    assert!(!text.contains("zebra") && !text.contains("\"c\""), "{text}");
    assert_eq!(found(&*store, &TASKS, all()).await, [2]);
    assert_eq!(insert(&*store, "ann", &TASKS, 9, titled("d")).await, 4, "a purged document keeps its number");
    let words = DocumentQuery { find: Find::AnyWord("zebra".to_owned()), ..all() };
    assert_eq!(found(&*store, &MEMORY, words).await, [0_u64; 0]);
}

pub async fn document_of_another_user_or_namespace_is_never_found(store: Arc<dyn Storage>) {
    insert(&*store, "ann", &MEMORY, 1, json!({"content": "the plan", "category": "fact", "importance": 0.5})).await;
    let words = DocumentQuery { find: Find::AnyWord("plan".to_owned()), ..all() };
    for (owner, namespace) in [("bob", &MEMORY), ("ann", &TASKS), ("ann", &OTHER)] {
        assert_eq!(store.document(user(owner), namespace, 1).await.unwrap(), None);
        for query in [all(), words.clone()] {
            assert_eq!(store.find_documents(user(owner), namespace, query).await.unwrap(), []);
        }
        assert_eq!(store.count_documents(user(owner), namespace, all(), Vec::new()).await.unwrap(), [0]);
        store.touch_documents(user(owner), namespace, vec![1], Micros(9)).await.unwrap();
        let unseen = write(owner, namespace, 2, Seen::Number(1), DocumentChange::Archive(1));
        assert!(store.write_document(unseen).await.is_err());
    }
    assert_eq!(store.export_documents(user("bob"), None, 9).await.unwrap(), []);
    assert_eq!(store.delete_documents(user("bob")).await.unwrap(), 0);
    assert_eq!(found(&*store, &MEMORY, words).await, [1]);
    assert_eq!(store.document(user("ann"), &MEMORY, 1).await.unwrap().unwrap().accessed_at, None);
}

pub async fn document_decision_that_keeps_or_fails_writes_nothing(store: Arc<dyn Storage>) {
    insert(&*store, "ann", &TASKS, 1, titled("a")).await;
    let kept = store.write_document(write("ann", &TASKS, 2, Seen::Nothing, DocumentChange::Keep)).await.unwrap();
    assert_eq!(kept, Written { kind: WriteKind::Kept, document: None });
    let refused = StoreError { kind: StoreErrorKind::Corrupt, what: "a test", detail: "no".to_owned() };
    let error = refused.clone();
    let failing = DocumentWrite {
        decide: Arc::new(move |_: &[Document]| Err(error.clone())),
        ..write("ann", &TASKS, 2, Seen::Number(1), DocumentChange::Keep)
    };
    assert_eq!(store.write_document(failing).await, Err(refused));
    assert_eq!(insert(&*store, "ann", &TASKS, 2, titled("b")).await, 2, "the intent has written nothing so far");
}

static WRONG: Namespace = Namespace::named("Not Plain");

pub async fn document_that_is_not_valid_is_refused(store: Arc<dyn Storage>) {
    for (namespace, body) in [(&TASKS, json!(["a"])), (&TASKS, json!({"due": 3})), (&WRONG, json!({}))] {
        let wrong = write("ann", namespace, 1, Seen::Nothing, DocumentChange::Insert(body));
        assert_eq!(store.write_document(wrong).await.unwrap_err().kind, StoreErrorKind::Internal);
    }
    assert_eq!(store.export_documents(user("ann"), None, 9).await.unwrap(), []);
}

pub async fn document_filters_narrow_and_combine(store: Arc<dyn Storage>) {
    let bodies = [
        json!({"title": "early", "due": "2026-02-01", "status": "done", "priority": 1, "tags": []}),
        json!({"title": "late", "due": "2026-03-01T09:00", "status": "todo", "priority": 2, "tags": ["x", "y"]}),
        json!({"title": "never", "status": "blocked", "priority": 2, "tags": []}),
        json!({"title": "bare"}),
    ];
    for (n, body) in (1..).zip(bodies) {
        insert(&*store, "ann", &TASKS, n, body).await;
    }
    let status = |of: &[&str]| [Vec::new(), texts(of), Vec::new()];
    let found = async |query: DocumentQuery| found(&*store, &TASKS, query).await;
    assert_eq!(found(DocumentQuery { texts: status(&["todo", "blocked"]), ..all() }).await, [2, 3]);
    assert_eq!(found(DocumentQuery { texts: status(&["done"]), ..all() }).await, [1]);
    assert_eq!(found(DocumentQuery { texts: status(&["nothing"]), ..all() }).await, [0_u64; 0]);
    let high = NumberRange { min: Some(2.0), max: Some(2.0) };
    assert_eq!(found(DocumentQuery { numbers: [high, NumberRange::default()], ..all() }).await, [2, 3]);
    let most = NumberRange { min: None, max: Some(1.5) };
    assert_eq!(found(DocumentQuery { numbers: [most, NumberRange::default()], ..all() }).await, [1]);
    assert_eq!(found(DocumentQuery { numbers: [NumberRange::default(), high], ..all() }).await, [0_u64; 0]);
    let due = |ranges: Vec<TextRange>| DocumentQuery { ranges, ..all() };
    assert_eq!(found(due(vec![range(None, Some("2026-03-01"))])).await, [1]);
    assert_eq!(found(due(vec![range(None, Some("2026-03-02"))])).await, [1, 2]);
    assert_eq!(found(due(vec![range(Some("2026-02-02"), None)])).await, [2]);
    assert_eq!(
        found(due(vec![range(Some("2026-02-01"), Some("2026-02-02")), range(Some("2026-03"), None)])).await,
        [1, 2]
    );
    assert_eq!(found(due(vec![range(None, None)])).await, [1, 2], "a range holds only documents with the key");
    assert_eq!(found(DocumentQuery { tags: texts(&["z", "y"]), ..all() }).await, [2]);
    assert_eq!(found(DocumentQuery { tags: texts(&["z"]), ..all() }).await, [0_u64; 0]);
    let both = DocumentQuery { texts: status(&["todo"]), ..due(vec![range(None, Some("2026-02-15"))]) };
    assert_eq!(found(both).await, [0_u64; 0]);
    assert_eq!(found(DocumentQuery { limit: 1, ..all() }).await, [1]);
    assert_eq!(found(DocumentQuery { limit: 0, ..all() }).await, [0_u64; 0]);
}

pub async fn documents_are_sorted_by_their_keys(store: Arc<dyn Storage>) {
    let bodies = [
        json!({"priority": 0}),
        json!({"priority": 3}),
        json!({"priority": 1}),
        json!({"due": "2026-02-02", "priority": 0}),
        json!({"due": "2026-02-02", "priority": 3}),
        json!({"due": "2026-02-01T10:00", "priority": 0}),
        json!({"priority": 0}),
        json!({}),
    ];
    for (n, body) in (1..).zip(bodies) {
        insert(&*store, "ann", &TASKS, n, body).await;
    }
    let sorted = async |order| found(&*store, &TASKS, DocumentQuery { order, ..all() }).await;
    assert_eq!(sorted(DocumentOrder::Text).await, [6, 5, 4, 2, 3, 1, 7, 8]);
    assert_eq!(sorted(DocumentOrder::Number).await, [5, 2, 3, 6, 4, 1, 7, 8]);
    assert_eq!(sorted(DocumentOrder::Rank).await, [5, 2, 8, 3, 7, 6, 4, 1], "without a number it counts as 1");
    assert_eq!(sorted(DocumentOrder::Similarity).await, [1, 2, 3, 4, 5, 6, 7, 8]);
}

pub async fn documents_are_counted_in_groups(store: Arc<dyn Storage>) {
    let none = store.count_documents(user("ann"), &TASKS, all(), vec![vec![range(None, None)]]).await.unwrap();
    assert_eq!(none, [0, 0]);
    for (n, due) in (1..).zip(["2026-02-27", "2026-02-28T14:00", "2026-02-28", "2026-02-28T23:00", "2026-03-01"]) {
        insert(&*store, "ann", &TASKS, n, json!({"due": due, "status": "todo"})).await;
    }
    insert(&*store, "ann", &TASKS, 8, json!({"status": "todo"})).await;
    insert(&*store, "ann", &TASKS, 9, json!({"due": "2020-01-01", "status": "done"})).await;
    let open = DocumentQuery { texts: [Vec::new(), texts(&["todo"]), Vec::new()], ..DocumentQuery::default() };
    let late = vec![range(None, Some("2026-02-28")), range(Some("2026-02-28T"), Some("2026-02-28T14:05"))];
    let today =
        vec![range(Some("2026-02-28"), Some("2026-02-28T")), range(Some("2026-02-28T14:05"), Some("2026-03-01"))];
    let groups = vec![late, today, Vec::new()];
    for _ in 0..2 {
        let counts = store.count_documents(user("ann"), &TASKS, open.clone(), groups.clone()).await.unwrap();
        assert_eq!(counts, [6, 2, 2, 0], "the limit is ignored");
    }
    let ended = DocumentQuery { texts: [Vec::new(), texts(&["cancelled"]), Vec::new()], ..DocumentQuery::default() };
    for count in [0, 1] {
        // The second round asks for what the store may remember to be missing.
        assert_eq!(store.count_documents(user("ann"), &TASKS, ended.clone(), Vec::new()).await.unwrap(), [0]);
        assert_eq!(store.count_documents(user("ann"), &TASKS, open.clone(), Vec::new()).await.unwrap(), [6 + count]);
        insert(&*store, "ann", &TASKS, 20 + u128::from(count), json!({"status": "todo"})).await;
    }
    let words = DocumentQuery { find: Find::AnyWord("x".to_owned()), ..all() };
    let refused = store.count_documents(user("ann"), &TASKS, words, Vec::new()).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Internal);
}

pub async fn documents_that_are_due_are_those_of_all_users_in_order_of_time(store: Arc<dyn Storage>) {
    // A time of the present, in microseconds, which must be exact.
    const AT: i64 = 1_795_000_000_000_001;
    let due = |at: Option<i64>| json!({"runs": 0, "due_at": at});
    let found = async |until: i64, limit: u32| {
        let found = store.due_documents(&SCHEDULES, Micros(until), limit).await.unwrap();
        found.into_iter().map(|(user, document)| (user.to_string(), document.number)).collect::<Vec<_>>()
    };
    let row = |user: &str, number: u64| (user.to_owned(), number);
    assert!(found(i64::MAX, 10).await.is_empty());
    insert(&*store, "bob", &SCHEDULES, 1, due(Some(AT))).await;
    insert(&*store, "ann", &SCHEDULES, 1, due(Some(AT + 1))).await;
    insert(&*store, "ann", &SCHEDULES, 2, due(None)).await;
    insert(&*store, "ann", &SCHEDULES, 3, due(Some(AT))).await;
    insert(&*store, "ann", &TASKS, 1, titled("not of this namespace")).await;
    assert!(found(AT - 1, 10).await.is_empty());
    assert_eq!(found(AT, 10).await, [row("ann", 3), row("bob", 1)]);
    assert_eq!(found(i64::MAX, 10).await, [row("ann", 3), row("bob", 1), row("ann", 1)]);
    assert_eq!(found(i64::MAX, 1).await, [row("ann", 3)], "at most the limit");
    replace(&*store, &SCHEDULES, 3, 9, due(Some(AT + 2))).await;
    let archived = write("ann", &SCHEDULES, 10, Seen::Number(1), DocumentChange::Archive(1));
    store.write_document(archived).await.unwrap();
    assert_eq!(found(i64::MAX, 10).await, [row("bob", 1), row("ann", 3)]);
    let (user, document) = store.due_documents(&SCHEDULES, Micros(AT), 1).await.unwrap().remove(0);
    assert_eq!((user.as_str(), document.body["due_at"].as_i64()), ("bob", Some(AT)));
}

pub async fn documents_that_were_used_are_touched(store: Arc<dyn Storage>) {
    for n in 1..=3 {
        insert(&*store, "ann", &MEMORY, n, json!({"content": format!("n{n}")})).await;
    }
    insert(&*store, "bob", &MEMORY, 1, json!({"content": "n1"})).await;
    store.touch_documents(user("ann"), &MEMORY, vec![1, 3, 99], Micros(50)).await.unwrap();
    store.touch_documents(user("ann"), &MEMORY, vec![3], Micros(40)).await.unwrap();
    store.touch_documents(user("ann"), &MEMORY, vec![], Micros(60)).await.unwrap();
    let mut touched = Vec::new();
    for number in 1..=3 {
        touched.push(store.document(user("ann"), &MEMORY, number).await.unwrap().unwrap().accessed_at);
    }
    assert_eq!(touched, [Some(Micros(50)), None, Some(Micros(50))]);
    let bobs = store.document(user("bob"), &MEMORY, 1).await.unwrap().unwrap();
    assert_eq!((bobs.accessed_at, bobs.updated_at), (None, Micros(1)));
}

pub async fn documents_are_exported_in_pages_and_deleted(store: Arc<dyn Storage>) {
    for n in 1..=3 {
        insert(&*store, "ann", &TASKS, n, titled(&n.to_string())).await;
    }
    insert(&*store, "ann", &MEMORY, 1, json!({"content": "fact", "importance": 0.5})).await;
    insert(&*store, "bob", &TASKS, 1, titled("bob's")).await;
    archive(&*store, 2, 7).await;
    let mut exported = Vec::new();
    loop {
        let after = exported.last().map(|last: &(String, u64, Option<Micros>)| (last.0.clone(), last.1));
        let page = store.export_documents(user("ann"), after, 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        exported.extend(page.into_iter().map(|one| (one.namespace, one.document.number, one.archived_at)));
    }
    let key = |name: &str, number, archived_at| (name.to_owned(), number, archived_at);
    let tasks = [key("tasks", 1, None), key("tasks", 2, Some(Micros(7))), key("tasks", 3, None)];
    let wanted: Vec<_> = [key("memory", 1, None)].into_iter().chain(tasks).collect();
    assert_eq!(exported, wanted);
    assert_eq!(store.delete_documents(user("ann")).await.unwrap(), 4);
    assert_eq!(store.export_documents(user("ann"), None, 9).await.unwrap(), []);
    assert_eq!(found(&*store, &MEMORY, all()).await, [0_u64; 0]);
    let words = DocumentQuery { find: Find::AnyWord("fact".to_owned()), ..all() };
    assert_eq!(found(&*store, &MEMORY, words).await, [0_u64; 0]);
    assert_eq!(store.export_documents(user("bob"), None, 9).await.unwrap().len(), 1);
    assert_eq!(insert(&*store, "ann", &TASKS, 8, titled("new")).await, 1);
}

pub async fn document_that_was_deleted_is_not_brought_back_by_its_intent(store: Arc<dyn Storage>) {
    insert(&*store, "ann", &TASKS, 1, titled("a")).await;
    insert(&*store, "bob", &TASKS, 1, titled("bob's")).await;
    replace(&*store, &TASKS, 1, 2, titled("b")).await;
    archive(&*store, 1, 3).await;
    assert_eq!(store.delete_documents(user("ann")).await.unwrap(), 1);
    assert_eq!(store.delete_documents(user("ann")).await.unwrap(), 0);
    assert_eq!(insert(&*store, "ann", &TASKS, 4, titled("new")).await, 1);
    for (n, kind) in [(1, WriteKind::Inserted), (2, WriteKind::Replaced), (3, WriteKind::Archived)] {
        let again = store.write_document(insertion("ann", &TASKS, n, titled("a"))).await.unwrap();
        assert_eq!(again, Written { kind, document: None }, "intent {n}");
    }
    assert_eq!(store.document(user("ann"), &TASKS, 1).await.unwrap().unwrap().body["title"], "new");
    assert_eq!(found(&*store, &TASKS, all()).await, [1]);
    let bobs = store.write_document(insertion("bob", &TASKS, 1, titled("other"))).await.unwrap();
    assert_eq!(bobs.document.unwrap().body["title"], "bob's");
}

/// Adds a tag to document 1 under an intent of its own.
fn tagging(owner: UserId, intent: IntentId, tag: String) -> DocumentWrite {
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        let Some(old) = seen.first() else { return Ok(DocumentChange::Keep) };
        let mut body = old.body.clone();
        body["tags"].as_array_mut().unwrap().push(json!(tag));
        Ok(DocumentChange::Replace { number: old.number, body })
    });
    DocumentWrite { user: owner, namespace: &TASKS, intent, seen: Seen::Number(1), decide, at: Micros(2) }
}

pub async fn racing_document_writes_lose_no_change(store: Arc<dyn Storage>) {
    insert(&*store, "ann", &TASKS, 1, titled("a")).await;
    let mut writers = JoinSet::new();
    for n in 0..40_u128 {
        let store = store.clone();
        // Every intent runs twice.
        let write = tagging(user("ann"), intent(100 + n / 2), format!("{:02}", n / 2));
        writers.spawn(async move { store.write_document(write).await.unwrap().kind });
    }
    assert!(writers.join_all().await.into_iter().all(|kind| kind == WriteKind::Replaced));
    let body = store.document(user("ann"), &TASKS, 1).await.unwrap().unwrap().body;
    let mut tags: Vec<&str> = body["tags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    tags.sort_unstable();
    let wanted: Vec<String> = (0..20).map(|n| format!("{n:02}")).collect();
    assert_eq!(tags, wanted);
}
