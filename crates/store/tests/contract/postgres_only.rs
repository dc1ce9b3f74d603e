//! Properties of a database of many processes: two processes at once, each with its own store.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use annie_core::{
    event::{Event, EventBody, NewEvent, Scope},
    ids::{ConversationId, Epoch, Seq},
    ports::{
        Append, AppendError, Appended, DocumentHit, DocumentOrder, DocumentQuery, Documents, Find, Log, Outbox,
        Records, Store, StoreErrorKind,
    },
    skill::Effect,
    time::Micros,
};
use annie_store::{PostgresOptions, PostgresStore, SqliteStore};
use annie_testkit::postgres::{Database, database};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, migrate::Migrator};
use tokio::task::JoinSet;

use crate::{
    documents::{MEMORY, TASKS, insertion, texts},
    make::*,
    moved,
    stores::{at, quick},
};

/// Two stores, as of two processes, on one database.
pub async fn two() -> Option<(Arc<PostgresStore>, Arc<PostgresStore>, Database)> {
    let database = database().await?;
    let (one, other) = (at(&database.url).await, at(&database.url).await);
    Some((Arc::new(one), Arc::new(other), database))
}

pub async fn beside(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

pub async fn all(store: &dyn Store, conversation: ConversationId) -> Vec<Event> {
    store.events(Scope::Operator, conversation, Seq(0), u32::MAX).await.unwrap()
}

pub fn is_dense(events: &[Event]) -> bool {
    events.iter().zip(1..).all(|(event, seq)| event.seq.0 == seq)
}

pub fn message(n: u128) -> NewEvent {
    received(task(n), &task(n).to_string(), "Hello there", 1)
}

/// An answer that names the owner's epoch.
pub fn signed(epoch: Epoch) -> NewEvent {
    answered(task(0), &epoch.0.to_string(), 2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_racing_owners_write_only_while_they_own() {
    let Some((one, other, _database)) = two().await else { return };
    let c = conversation(1);
    commit(&*one, inbox(c, "ann", vec![message(1)])).await.unwrap();
    let mut racers = JoinSet::new();
    for n in 0..8 {
        let store = Arc::clone(if n % 2 == 0 { &one } else { &other });
        racers.spawn(async move {
            let mut claimed = Vec::new();
            for _ in 0..25 {
                let epoch = store.claim(c, node(n)).await.unwrap().unwrap().epoch;
                claimed.push(epoch);
                for _ in 0..3 {
                    match commit(&*store, owned(c, "ann", epoch, vec![signed(epoch)])).await {
                        Ok(_) => {}
                        Err(AppendError::Fenced) => break,
                        Err(e) => panic!("{e}"),
                    }
                }
            }
            claimed
        });
    }
    let epochs: Vec<Epoch> = racers.join_all().await.into_iter().flatten().collect();
    assert_eq!(epochs.iter().map(|e| e.0).collect::<BTreeSet<_>>(), (1..=200).collect());
    let stored = all(&*one, c).await;
    assert!(is_dense(&stored));
    let writers: Vec<u64> = stored
        .iter()
        .filter_map(|event| {
            let EventBody::Answered { text, .. } = &event.body else { return None };
            text.parse().ok()
        })
        .collect();
    assert!(writers.is_sorted(), "an earlier owner wrote after a later one: {writers:?}");
    assert!(writers.len() > 8, "{writers:?}");
}

#[tokio::test]
async fn postgres_fences_a_frozen_owner_after_a_takeover() {
    let Some((one, other, _database)) = two().await else { return };
    for n in 0..100 {
        let c = conversation(n);
        let old = opened(&*one, c, "ann", task(n), 1).await;
        commit(&*one, owned(c, "ann", old, vec![started(task(n), 2)])).await.unwrap();
        let new = other.claim(c, node(2)).await.unwrap().unwrap().epoch;
        let batch = vec![
            owned(c, "ann", old, vec![answered(task(n), "stale", 3)]),
            inbox(conversation(1_000 + n), "ann", vec![message(1_000 + n)]),
        ];
        assert_eq!(one.commit(batch).await, [Err(AppendError::Fenced), Ok(Appended { first: Seq(1) })]);
        assert_eq!(length(&*one, c).await, 2);
        commit(&*other, owned(c, "ann", new, vec![answered(task(n), "fresh", 3)])).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_batches_in_opposite_orders_do_not_deadlock() {
    const CONVERSATIONS: u128 = 24;
    const ROUNDS: u128 = 40;
    let Some((one, other, database)) = two().await else { return };
    let mut writers = JoinSet::new();
    for (n, store) in [&one, &other, &one, &other].into_iter().enumerate() {
        let store = Arc::clone(store);
        writers.spawn(async move {
            for round in 0..ROUNDS {
                let number = |c: u128| (n as u128) << 48 | round << 32 | c;
                // Half of the conversations are new in each round.
                let mut batch: Vec<Append> = (0..CONVERSATIONS)
                    .map(|c| {
                        let id = conversation(if c % 2 == 0 { c } else { 100 + round * CONVERSATIONS + c });
                        inbox(id, "ann", vec![message(number(c))])
                    })
                    .collect();
                if n % 2 == 0 {
                    batch.reverse();
                }
                for answer in store.commit(batch).await {
                    answer.unwrap();
                }
            }
        });
    }
    writers.join_all().await;
    for c in 0..CONVERSATIONS {
        if c % 2 == 0 {
            let stored = all(&*one, conversation(c)).await;
            assert!(is_dense(&stored) && stored.len() == 4 * ROUNDS as usize, "{}", stored.len());
        }
    }
    let mut db = beside(&database.url).await;
    db.execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
    let deadlocks: i64 =
        sqlx::query_scalar("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            .fetch_one(&mut db)
            .await
            .unwrap();
    assert_eq!(deadlocks, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_stores_a_message_once_when_two_processes_receive_it() {
    let Some((one, other, _database)) = two().await else { return };
    for n in 0..40 {
        let send = |store: &Arc<PostgresStore>, c: u128, t: u128| {
            let (store, name) = (Arc::clone(store), n.to_string());
            async move { commit(&*store, inbox(conversation(c), "ann", vec![received(task(t), &name, "x", 1)])).await }
        };
        // Alternately the same conversation and two conversations.
        let second_conversation = if n % 2 == 0 { 2 * n } else { 2 * n + 1 };
        let answers = tokio::join!(send(&one, 2 * n, 2 * n), send(&other, second_conversation, 2 * n + 1));
        let is_repeat =
            |answer: &Result<_, _>| matches!(answer, Err(AppendError::Duplicate { same, .. }) if *same == (n % 2 == 0));
        assert!(
            (answers.0.is_ok() && is_repeat(&answers.1)) || (answers.1.is_ok() && is_repeat(&answers.0)),
            "{n}: {answers:?}"
        );
    }
    assert_eq!(one.tasks(of("ann"), false, Micros(i64::MAX).into(), 1_000).await.unwrap().len(), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_lets_one_of_two_processes_start_a_once_run() {
    let Some((one, other, _database)) = two().await else { return };
    let c = conversation(1);
    let epoch = opened(&*one, c, "ann", task(1), 1).await;
    for n in 0..40 {
        let plan = plans(task(1), vec![planned(intent(n), "mail.send", Effect::Once)], 2);
        commit(&*one, owned(c, "ann", epoch, vec![plan])).await.unwrap();
        // Simulates another process with the same epoch: there is none, but the store does not rely on that.
        let start = |store: &Arc<PostgresStore>| {
            let store = Arc::clone(store);
            async move { commit(&*store, owned(c, "ann", epoch, vec![run_started(task(1), intent(n), 3)])).await }
        };
        let answers = tokio::join!(start(&one), start(&other));
        let refused = Err(AppendError::AlreadyStarted(intent(n)));
        assert!(
            (answers.0.is_ok() && answers.1 == refused) || (answers.1.is_ok() && answers.0 == refused),
            "{n}: {answers:?}"
        );
    }
    assert!(one.intents(task(1)).await.unwrap().iter().all(|intent| intent.attempts == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_lets_several_processes_open_an_empty_database_at_once() {
    let Some(database) = database().await else { return };
    let mut opening = JoinSet::new();
    for _ in 0..4 {
        let url = database.url.clone();
        opening.spawn(async move { at(&url).await });
    }
    for store in opening.join_all().await {
        store.ping().await.unwrap();
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_numbers_documents_uniquely_across_processes() {
    let Some((one, other, _database)) = two().await else { return };
    let mut makers = JoinSet::new();
    for n in 0..40 {
        let store = Arc::clone(if n % 2 == 0 { &one } else { &other });
        makers.spawn(async move {
            let todo = insertion("ann", &TASKS, n / 2, json!({"title": n.to_string()}));
            let made = store.write_document(todo).await.unwrap().document.unwrap();
            let content = format!("Fact {} of them all", n / 2);
            let fact = insertion("ann", &MEMORY, n / 2, json!({"content": content, "importance": 0.5}));
            let saved = store.write_document(fact).await.unwrap().document.unwrap();
            (made.number, saved.number)
        });
    }
    let numbers = makers.join_all().await;
    let each = |of: fn(&(u64, u64)) -> u64| {
        let mut counts = BTreeMap::<u64, u32>::new();
        numbers.iter().for_each(|n| *counts.entry(of(n)).or_default() += 1);
        counts
    };
    assert_eq!(each(|n| n.0), (1..=20).map(|n| (n, 2)).collect());
    assert_eq!(each(|n| n.1), (1..=20).map(|n| (n, 2)).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_lets_one_of_two_processes_store_a_notification() {
    let Some((one, other, _database)) = two().await else { return };
    for n in 0..20 {
        let c = conversation(n);
        let epoch = opened(&*one, c, "ann", task(n), 1).await;
        let finish = vec![started(task(n), 2), answered(task(n), "Done.", 3)];
        commit(&*one, owned(c, "ann", epoch, finish)).await.unwrap();
        let words: Vec<_> = one.outbox(9).await.unwrap().iter().map(|word| (word.id, word.task)).collect();
        let notify = |store: &Arc<PostgresStore>, words: Vec<_>| {
            let store = Arc::clone(store);
            async move { store.notify(user("ann"), "Done.".into(), words, Micros(4)).await.unwrap() }
        };
        let notifications = tokio::join!(notify(&one, words.clone()), notify(&other, words));
        assert!(notifications.0.is_some() != notifications.1.is_some(), "{notifications:?}");
    }
    assert_eq!(one.notifications(user("ann"), 0, 99).await.unwrap().len(), 20);
}

#[tokio::test]
async fn database_of_a_newer_annie_is_refused() {
    let Some(database) = database().await else { return };
    at(&database.url).await.close().await;
    let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
        VALUES (9999, 'future', true, '\\x00', 0)";
    beside(&database.url).await.execute(sql).await.unwrap();
    let refused = PostgresStore::open(&database.url.parse().unwrap(), PostgresOptions::default()).await.err().unwrap();
    assert_eq!(refused.kind, StoreErrorKind::Corrupt, "{refused}");
    assert!(refused.detail.contains("newer Annie"), "{refused}");
}

#[tokio::test]
async fn postgres_migration_keeps_views_and_grants_of_an_operator() {
    let Some(database) = database().await else { return };
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/postgres"));
    let all = Migrator::new(folder).await.unwrap();
    let early = all.iter().filter(|migration| migration.version <= 5).cloned().collect();
    let early = Migrator { migrations: Cow::Owned(early), ..Migrator::DEFAULT };
    let mut db = beside(&database.url).await;
    early.run_direct(None, &mut db, false).await.unwrap();
    db.execute("CREATE VIEW my_agents AS SELECT id, status FROM agents; GRANT SELECT ON skill_executions TO PUBLIC")
        .await
        .unwrap();
    at(&database.url).await.close().await;
    db.execute("SELECT * FROM my_agents").await.unwrap();
    let sql = "SELECT count(*) FROM information_schema.role_table_grants \
        WHERE table_name = 'skill_executions' AND grantee = 'PUBLIC'";
    assert_eq!(db.fetch_one(sql).await.unwrap().get::<i64, _>(0), 1);
}

/// Sentences from few words, so that they have many words in common and different weights.
fn corpus() -> Vec<(String, Vec<String>, f64)> {
    let words = [
        "meeting", "project", "Müller", "prefers", "coffee", "PR-42", "naïve", "boats", "running", "the", "report",
        "Friday", "emails", "zebra", "office", "Straße", "数据", "it's", "agreed", "planning",
    ];
    let mut seed = 42_u64;
    let mut next = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    (0..120)
        .map(|n| {
            // Earlier words are more frequent.
            let mut often = || 1 + next(words.len());
            let counts = (often() % 12 + 3, often() % 3);
            let ranges: Vec<usize> = (0..counts.0).map(|_| often()).collect();
            let text: Vec<&str> = ranges.into_iter().map(|range| words[next(range)]).collect();
            let tags = (0..counts.1).map(|_| words[next(words.len())].to_lowercase()).collect();
            (format!("{} {n}", text.join(" ")), tags, next(10) as f64 / 10.0)
        })
        .collect()
}

#[tokio::test]
async fn postgres_word_search_finds_the_same_in_the_same_order_as_sqlite() {
    let Some(database) = database().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let postgres = at(&database.url).await;
    let sqlite = SqliteStore::open(folder.path(), quick()).await.unwrap();
    for (n, (content, tags, importance)) in corpus().into_iter().enumerate() {
        let body = json!({"content": content, "tags": tags, "importance": importance});
        let write = || insertion(["ann", "bob"][n % 2], &MEMORY, n as u128, body.clone());
        let from_sqlite = sqlite.write_document(write()).await.unwrap();
        assert_eq!(postgres.write_document(write()).await.unwrap(), from_sqlite);
    }
    for text in [
        "project",
        "the meeting",
        "muller strasse",
        "Naive RUN boat",
        "zebra coffee friday",
        "数据",
        "it",
        "17",
        "plan",
        "report emailing agreement office the the the",
        "nobody",
    ] {
        for tags in [vec![], vec!["zebra".to_owned(), "coffee".to_owned()]] {
            let query = || DocumentQuery { tags: tags.clone(), ..words(text) };
            let from_postgres = postgres.find_documents(user("ann"), &MEMORY, query()).await.unwrap();
            let from_sqlite = sqlite.find_documents(user("ann"), &MEMORY, query()).await.unwrap();
            assert_eq!(numbers(&from_postgres), numbers(&from_sqlite), "{text}");
            for (a, b) in from_postgres.iter().zip(&from_sqlite) {
                assert!((a.rank - b.rank).abs() < 1e-9, "{text}: {a:?} {b:?}");
            }
        }
    }
    // A copy brings documents without their index.
    postgres.close().await;
    beside(&database.url).await.execute("DELETE FROM _document_terms").await.unwrap();
    let postgres = at(&database.url).await;
    let from_postgres = postgres.find_documents(user("bob"), &MEMORY, words("project zebra")).await.unwrap();
    let from_sqlite = sqlite.find_documents(user("bob"), &MEMORY, words("project zebra")).await.unwrap();
    assert!(!from_postgres.is_empty());
    assert_eq!(numbers(&from_postgres), numbers(&from_sqlite));
}

fn words(text: &str) -> DocumentQuery {
    let find = Find::AnyWord(text.to_owned());
    DocumentQuery { find, order: DocumentOrder::Rank, limit: 30, ..DocumentQuery::default() }
}

fn numbers(hits: &[DocumentHit]) -> Vec<u64> {
    hits.iter().map(|hit| hit.document.number).collect()
}

#[tokio::test]
async fn postgres_migration_moves_todos_and_memories_unchanged() {
    let Some(database) = database().await else { return };
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/postgres"));
    let all = Migrator::new(folder).await.unwrap();
    let early = all.iter().filter(|migration| migration.version <= 11).cloned().collect();
    let early = Migrator { migrations: Cow::Owned(early), ..Migrator::DEFAULT };
    let mut db = beside(&database.url).await;
    early.run_direct(None, &mut db, false).await.unwrap();
    for sql in moved::rows(|id| format!("'{id}'"), ["false", "true"]) {
        db.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }
    // The store writes the character zero and its escape character in this way.
    let zero = "UPDATE todos SET title = title || chr(1114111) || '0' || chr(1114111) || '1' WHERE number = 2";
    db.execute(zero).await.unwrap();
    let store = at(&database.url).await;
    moved::assert_unchanged(&store).await;
    let again = store.write_document(insertion("ann", &TASKS, 2, json!({}))).await.unwrap();
    assert_eq!(again.document.unwrap().body["title"], "Old\0\u{10ffff}");
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace \
                  AND (relname LIKE '%todo%' OR relname LIKE '%memor%')";
    let left: i64 = sqlx::query_scalar(tables).fetch_one(&mut db).await.unwrap();
    assert_eq!(left, 0, "the old tables are gone");
}

#[tokio::test]
async fn postgres_migration_moves_the_whole_of_a_part_and_leaves_no_reminder() {
    let Some(database) = database().await else { return };
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/postgres"));
    let all = Migrator::new(folder).await.unwrap();
    let early = all.iter().filter(|migration| migration.version <= 16).cloned().collect();
    let early = Migrator { migrations: Cow::Owned(early), ..Migrator::DEFAULT };
    let mut db = beside(&database.url).await;
    early.run_direct(None, &mut db, false).await.unwrap();
    db.execute(sqlx::raw_sql(AssertSqlSafe(moved::part()))).await.unwrap();
    moved::assert_part(&at(&database.url).await).await;
}

#[tokio::test]
async fn postgres_text_with_the_character_zero_is_read_as_written() {
    let Some(database) = database().await else { return };
    let store = at(&database.url).await;
    let c = conversation(1);
    let text = "zero \0 \u{10ffff} and \\u0000";
    let event = received(task(1), "a", text, 1);
    commit(&store, inbox(c, "ann", vec![event.clone()])).await.unwrap();
    assert_eq!(all(&store, c).await[0].body, event.body);
    assert_eq!(store.task(of("ann"), task(1)).await.unwrap().unwrap().title, text);
    let sent: String =
        sqlx::query_scalar("SELECT text FROM messages").fetch_one(&mut beside(&database.url).await).await.unwrap();
    assert!(sent.starts_with("zero \u{fffd} ") && sent.ends_with(" and \\u0000"), "{sent}");
    let todo = insertion("ann", &TASKS, 1, json!({"title": text, "tags": ["x\0y"]}));
    let made = store.write_document(todo).await.unwrap().document.unwrap();
    assert_eq!(made.body["title"], text);
    let find = Find::Containing("\0 \u{10ffff}".to_owned());
    let query = DocumentQuery { find, tags: texts(&["x\0y"]), limit: 9, ..DocumentQuery::default() };
    let hits = store.find_documents(user("ann"), &TASKS, query).await.unwrap();
    assert_eq!(hits.into_iter().map(|hit| hit.document).collect::<Vec<_>>(), [made]);
    let memory = insertion("ann", &MEMORY, 1, json!({"content": text, "tags": ["x\0y", "z"], "importance": 0.5}));
    let saved = store.write_document(memory).await.unwrap().document.unwrap();
    assert_eq!(saved.body["content"], text);
    let query = DocumentQuery { tags: texts(&["x\0y"]), ..words("zero") };
    assert_eq!(store.find_documents(user("ann"), &MEMORY, query).await.unwrap()[0].document, saved);
}
