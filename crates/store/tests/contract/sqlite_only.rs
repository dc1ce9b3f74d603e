//! Properties of a database in a folder: reopening, the lock, a full disk, views.

use std::{borrow::Cow, path::Path, sync::Arc};

use annie_core::{
    breaker::BreakerRow,
    event::{EventBody, Scope},
    ids::{AgentId, Epoch, Seq},
    outcome::Outcome,
    ports::{
        AppendError, Appended, Breakers, DocumentQuery, Documents, Find, Log, Records, Snapshot, Store, StoreErrorKind,
    },
    skill::Effect,
    time::Micros,
};
use annie_store::{SqliteOptions, SqliteStore};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, Row, SqliteConnection, migrate::Migrator};
use tempfile::TempDir;

use crate::{
    documents::{MEMORY, TASKS, insert, insertion, texts},
    make::*,
    moved,
    stores::quick,
};

pub async fn open(folder: &Path) -> SqliteStore {
    SqliteStore::open(folder, quick()).await.unwrap()
}

pub async fn beside(folder: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}", folder.join("annie.db").display());
    SqliteConnection::connect(&url).await.unwrap()
}

async fn create(folder: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}?mode=rwc", folder.join("annie.db").display());
    SqliteConnection::connect(&url).await.unwrap()
}

#[tokio::test]
async fn sqlite_keeps_data_after_reopening() {
    let folder = TempDir::new().unwrap();
    let inner = folder.path().join("deep/er");
    let c = conversation(1);
    for closed in [true, false] {
        let store = open(&inner).await;
        if closed {
            let epoch = opened(&store, c, "ann", task(1), 1).await;
            commit(&store, owned(c, "ann", epoch, vec![started(task(1), 2)])).await.unwrap();
            let shot = Snapshot { seq: Seq(2), v: 1, state: "{}".into() };
            store.put_snapshot(c, epoch, shot).await.unwrap();
            insert(&store, "ann", &TASKS, 1, json!({"title": "t"})).await;
            store.close().await;
        } else {
            assert_eq!(length(&store, c).await, 2);
            assert_eq!(store.snapshot(c).await.unwrap().unwrap().seq, Seq(2));
            assert_eq!(store.document(user("ann"), &TASKS, 1).await.unwrap().unwrap().body["title"], "t");
            assert_eq!(store.open_conversations().await.unwrap(), [(c, user("ann"))]);
            assert_eq!(store.claim(c, node(2)).await.unwrap().unwrap().epoch, Epoch(2));
        }
    }
    assert_eq!(length(&open(&inner).await, c).await, 2);
}

#[tokio::test]
async fn sqlite_refuses_a_second_store_and_names_the_folder() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let refused = SqliteStore::open(folder.path(), quick()).await.err().unwrap();
    assert_eq!(refused.kind, StoreErrorKind::Locked);
    assert!(refused.detail.contains(&*folder.path().to_string_lossy()), "{refused}");
    store.close().await;
    assert!(SqliteStore::open(folder.path(), quick()).await.is_ok());
}

#[tokio::test]
async fn sqlite_store_is_unavailable_after_close() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    store.close().await;
    store.close().await;
    assert_eq!(store.ping().await.unwrap_err().kind, StoreErrorKind::Unavailable);
    let refused = commit(&store, inbox(conversation(1), "ann", vec![received(task(1), "a", "x", 1)])).await;
    assert!(matches!(refused, Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Unavailable));
}

#[tokio::test]
async fn sqlite_reports_a_foreign_file_as_corrupt_and_a_file_as_folder_as_unavailable() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("annie.db"), "not a database, but long enough to be looked at".repeat(100))
        .unwrap();
    let refused = SqliteStore::open(folder.path(), quick()).await.err().unwrap();
    assert_eq!(refused.kind, StoreErrorKind::Corrupt, "{refused}");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = SqliteStore::open(&file, quick()).await.err().unwrap();
    assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}");
}

#[tokio::test]
async fn database_of_a_newer_annie_is_refused() {
    let folder = TempDir::new().unwrap();
    open(folder.path()).await.close().await;
    let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
        VALUES (9999, 'future', 1, x'00', 0)";
    beside(folder.path()).await.execute(sql).await.unwrap();
    let refused = SqliteStore::open(folder.path(), quick()).await.err().unwrap();
    assert_eq!(refused.kind, StoreErrorKind::Corrupt, "{refused}");
}

#[tokio::test]
async fn sqlite_reports_newer_or_broken_events_as_corrupt_with_their_position() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    opened(&store, conversation(1), "ann", task(1), 1).await;
    let mut other = beside(folder.path()).await;
    for (sql, submitted) in [
        ("UPDATE events SET v = 2", "version 2"),
        ("UPDATE events SET v = 1, body = '{\"kind\":\"from_tomorrow\"}'", "from_tomorrow"),
    ] {
        other.execute(sql).await.unwrap();
        let error = store.events(Scope::Operator, conversation(1), Seq(0), 9).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Corrupt);
        assert!(error.detail.contains(submitted) && error.detail.contains("event 1"), "{error}");
    }
}

#[tokio::test]
async fn sqlite_reports_locked_while_another_process_holds_the_database() {
    let folder = TempDir::new().unwrap();
    let options = SqliteOptions { busy_timeout_ms: 20, ..quick() };
    let store = SqliteStore::open(folder.path(), options).await.unwrap();
    let mut other = beside(folder.path()).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let message = || inbox(conversation(1), "ann", vec![received(task(1), "a", "x", 1)]);
    let refused = commit(&store, message()).await;
    assert!(matches!(&refused, Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Locked), "{refused:?}");
    assert_eq!(store.events(Scope::Operator, conversation(1), Seq(0), 9).await.unwrap(), []);
    other.execute("COMMIT").await.unwrap();
    assert_eq!(commit(&store, message()).await, Ok(Appended { first: Seq(1) }));
}

#[tokio::test]
async fn sqlite_when_full_stores_nothing_of_a_batch_and_still_reads() {
    let folder = TempDir::new().unwrap();
    let options = SqliteOptions { database_bytes_max: Some(400 * 1024), ..quick() };
    let store = SqliteStore::open(folder.path(), options).await.unwrap();
    opened(&store, conversation(1), "ann", task(1), 1).await;
    let huge = received(task(3), "c", &"x".repeat(1024 * 1024), 3);
    let batch = vec![
        inbox(conversation(2), "ann", vec![received(task(2), "b", "x", 2)]),
        inbox(conversation(3), "ann", vec![huge]),
    ];
    for answer in store.commit(batch).await {
        assert!(matches!(&answer, Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Full), "{answer:?}");
    }
    assert_eq!(length(&store, conversation(1)).await, 1);
    assert_eq!(length(&store, conversation(2)).await, 0);
    let small = inbox(conversation(2), "ann", vec![received(task(2), "b", "x", 2)]);
    assert_eq!(commit(&store, small).await, Ok(Appended { first: Seq(1) }));
}

#[tokio::test]
async fn sqlite_dropped_commit_does_not_block_the_next() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    opened(&store, conversation(1), "ann", task(1), 1).await;
    for polls in 1..40_u128 {
        let batch = vec![
            inbox(conversation(1), "ann", vec![received(task(100 + polls), &polls.to_string(), "x", 2)]),
            inbox(conversation(2), "ann", vec![received(task(200 + polls), &format!("b{polls}"), "x", 2)]),
        ];
        drop_after_polls(polls, store.commit(batch)).await;
        // Waits until the writer has finished what was running.
        store.put_breaker("s".into(), BreakerRow::default()).await.unwrap();
        let first = store.task(Scope::Operator, task(100 + polls)).await.unwrap();
        let second = store.task(Scope::Operator, task(200 + polls)).await.unwrap();
        assert_eq!(first.is_some(), second.is_some(), "after {polls} polls");
    }
    assert!(commit(&store, inbox(conversation(1), "ann", vec![received(task(2), "z", "x", 3)])).await.is_ok());
    let stored = store.events(Scope::Operator, conversation(1), Seq(0), 1_000).await.unwrap();
    assert!(stored.iter().zip(1..).all(|(event, seq)| event.seq.0 == seq));
}

#[tokio::test]
async fn sqlite_lists_an_abandoned_commit_among_the_open_conversations() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let mut other = beside(folder.path()).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let message = inbox(conversation(1), "ann", vec![received(task(1), "a", "x", 1)]);
    drop_after_polls(1, store.commit(vec![message])).await;
    let (open, released) = tokio::join!(store.open_conversations(), other.execute("COMMIT"));
    released.unwrap();
    assert_eq!(open.unwrap(), [(conversation(1), user("ann"))]);
}

#[tokio::test]
async fn sqlite_finds_documents_of_abandoned_writes_if_stored() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let open_only = DocumentQuery { texts: [Vec::new(), texts(&["todo"]), Vec::new()], ..DocumentQuery::default() };
    let words = DocumentQuery { find: Find::AnyWord("zebra".to_owned()), limit: 9, ..DocumentQuery::default() };
    let mut stored = (0, 0);
    for polls in 1..40_u128 {
        let name = format!("ann{polls}");
        let open_todos = async || {
            let counts = store.count_documents(user(&name), &TASKS, open_only.clone(), Vec::new()).await.unwrap();
            counts[0] as i64
        };
        let memories = async || store.find_documents(user(&name), &MEMORY, words.clone()).await.unwrap().len() as i64;
        // The store now remembers that there are none.
        assert_eq!((open_todos().await, memories().await), (0, 0));
        let todo = insertion(&name, &TASKS, polls, json!({"title": "t", "status": "todo"}));
        drop_after_polls(polls, store.write_document(todo)).await;
        open_todos().await;
        let fact = insertion(&name, &MEMORY, polls, json!({"content": "a zebra"}));
        drop_after_polls(polls, store.write_document(fact)).await;
        memories().await;
        // Waits until the writer has finished what was running.
        store.put_breaker("s".into(), BreakerRow::default()).await.unwrap();
        let mut kept = [0_i64; 2];
        for (kept, namespace) in kept.iter_mut().zip(["tasks", "memory"]) {
            let sql = format!("SELECT count(*) FROM documents WHERE user_id = '{name}' AND namespace = '{namespace}'");
            let rows = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut beside(folder.path()).await).await;
            *kept = rows.unwrap();
        }
        assert_eq!([open_todos().await, memories().await], kept, "after {polls} polls");
        stored = (stored.0 + kept[0], stored.1 + kept[1]);
    }
    assert!(stored.0 > 0 && stored.1 > 0, "{stored:?}");
}

#[tokio::test]
async fn sqlite_readers_do_not_wait_for_a_writer() {
    let folder = TempDir::new().unwrap();
    let store = Arc::new(open(folder.path()).await);
    opened(&*store, conversation(1), "ann", task(1), 1).await;
    let mut other = beside(folder.path()).await;
    other.execute("BEGIN IMMEDIATE; UPDATE tasks SET title = 'uncommitted'").await.unwrap();
    assert_eq!(store.task(of("ann"), task(1)).await.unwrap().unwrap().title, "Hello there");
    assert_eq!(store.find_documents(user("ann"), &MEMORY, DocumentQuery::default()).await.unwrap(), []);
    other.execute("ROLLBACK").await.unwrap();
}

/// Stores a turn with two agents and one skill call of the orchestrator's own.
async fn store_turn(store: &SqliteStore) {
    let c = conversation(1);
    let epoch = opened(store, c, "ann", task(1), 1).await;
    let sub = AgentId::sub("mailer").unwrap();
    let calls = vec![dispatched("mailer", "Write to Bob", &[]), dispatched("checker", "Check it", &["mailer"])];
    let within = replied(task(1), sub.clone(), vec![planned(intent(1), "mail.send", Effect::Once)], 14);
    let own = plans(task(1), vec![planned(intent(2), "tasks.search", Effect::Read)], 19);
    let decided = EventBody::CancelRequested { by: "nobody".into() };
    let events = vec![
        started(task(1), 10),
        plans(task(1), calls, 11),
        agent_started(task(1), "mailer", 12),
        within,
        run_started(task(1), intent(1), 15),
        run_finished(task(1), intent(1), Outcome::success("sent"), 16),
        agent_reported(task(1), "mailer", "I wrote to Bob.", 17),
        own,
        event(task(1), 20, decided),
        answered(task(1), "Done.", 21),
    ];
    commit(store, owned(c, "ann", epoch, events)).await.unwrap();
}

#[tokio::test]
async fn sqlite_views_show_messages_agents_executions_and_usage() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    store_turn(&store).await;
    let mut db = beside(folder.path()).await;
    let id = task(1).to_string();
    let mut rows = async |sql: &'static str| -> Vec<Vec<Option<String>>> {
        let rows = db.fetch_all(sql).await.unwrap();
        rows.iter().map(|row| (0..row.len()).map(|n| row.get::<Option<String>, _>(n)).collect()).collect()
    };
    let some = |words: &[&str]| -> Vec<Option<String>> {
        words.iter().map(|word| (*word != "-").then(|| (*word).to_owned())).collect()
    };
    let messages = rows("SELECT role, agent_id, text FROM messages ORDER BY seq").await;
    assert_eq!(
        messages,
        [
            some(&["user", "orchestrator", "Hello there"]),
            some(&["assistant", "orchestrator", "Let me see."]),
            some(&["tool", "mailer", "I wrote to Bob."]),
            some(&["assistant", "orchestrator", "Let me see."]),
            some(&["assistant", "orchestrator", "Done."]),
        ]
    );
    let agents = rows(
        "SELECT id, task_id, agent_id, mission, depends_on, status, CAST(started_at AS TEXT), CAST(ended_at AS TEXT), \
         result FROM agents ORDER BY agent_id DESC",
    )
    .await;
    let (mailer, checker) = (format!("{id}/mailer"), format!("{id}/checker"));
    assert_eq!(
        agents,
        [
            some(&[&mailer, &id, "mailer", "Write to Bob", "[]", "completed", "12", "17", "I wrote to Bob."]),
            some(&[&checker, &id, "checker", "Check it", "[\"mailer\"]", "refused", "-", "-", "-"]),
        ]
    );
    let executions = rows(
        "SELECT id, parent_execution_id, agent_id, skill_id, effect, status, CAST(started_at AS TEXT), \
         CAST(ended_at AS TEXT) FROM skill_executions ORDER BY planned_at, agent_id DESC",
    )
    .await;
    let (sent, read) = (intent(1).to_string(), intent(2).to_string());
    assert_eq!(
        executions,
        [
            some(&[&mailer, "-", "mailer", "-", "-", "completed", "12", "17"]),
            some(&[&checker, "-", "checker", "-", "-", "refused", "-", "-"]),
            some(&[&sent, &mailer, "mailer", "mail.send", "once", "success", "15", "16"]),
            some(&[&read, "-", "orchestrator", "tasks.search", "read", "not_run", "-", "-"]),
        ]
    );
    let parameters = rows("SELECT parameters FROM skill_executions WHERE skill_id = 'mail.send'").await;
    assert_eq!(parameters, [some(&["{\"a\":\"ü\",\"to\":[\"bob\"],\"z\":1}"])]);
    let usage = rows(
        "SELECT user_id, agent_id, model, backend, CAST(input_tokens AS TEXT), CAST(cost_usd AS TEXT) FROM usage \
         ORDER BY seq",
    )
    .await;
    let row = |agent| some(&["ann", agent, "m1", "b1", "100", "0.25"]);
    assert_eq!(usage, [row("orchestrator"), row("mailer"), row("orchestrator")]);
}

#[tokio::test]
async fn sqlite_migrates_a_database_without_dead_letters_and_operations() {
    let folder = TempDir::new().unwrap();
    let all = Migrator::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/sqlite"))).await.unwrap();
    let early = all.iter().filter(|migration| migration.version <= 3).cloned().collect();
    let early = Migrator { migrations: Cow::Owned(early), ..Migrator::DEFAULT };
    let mut db = create(folder.path()).await;
    early.run_direct(None, &mut db, false).await.unwrap();
    db.execute(
        "INSERT INTO conversations VALUES (x'01010101010101010101010101010101', 'ann', NULL, 0, 2, 't', 1, 1); \
         INSERT INTO tasks VALUES (x'02020202020202020202020202020202', 'ann', x'01010101010101010101010101010101', 1, \
             'c', x'00', 'running', 'high', 'http', 't', 1, 2, NULL, NULL);",
    )
    .await
    .unwrap();
    db.close().await.unwrap();
    let store = open(folder.path()).await;
    let tasks = store.tasks(of("ann"), true, Micros(i64::MAX).into(), 9).await.unwrap();
    assert_eq!(tasks.len(), 1);
    assert_eq!((tasks[0].not_before, tasks[0].after.len()), (None, 0));
    assert_eq!(store.open_conversations().await.unwrap().len(), 1);
}

#[tokio::test]
async fn sqlite_migration_moves_the_whole_of_a_part_and_leaves_no_reminder() {
    let folder = TempDir::new().unwrap();
    let all = Migrator::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/sqlite"))).await.unwrap();
    let early = all.iter().filter(|migration| migration.version <= 16).cloned().collect();
    let early = Migrator { migrations: Cow::Owned(early), ..Migrator::DEFAULT };
    let mut db = create(folder.path()).await;
    early.run_direct(None, &mut db, false).await.unwrap();
    db.execute(sqlx::raw_sql(AssertSqlSafe(moved::part()))).await.unwrap();
    db.close().await.unwrap();
    moved::assert_part(&open(folder.path()).await).await;
}

#[tokio::test]
async fn sqlite_migration_moves_todos_and_memories_unchanged() {
    let folder = TempDir::new().unwrap();
    let all = Migrator::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/sqlite"))).await.unwrap();
    let early = all.iter().filter(|migration| migration.version <= 11).cloned().collect();
    let early = Migrator { migrations: Cow::Owned(early), ..Migrator::DEFAULT };
    let mut db = create(folder.path()).await;
    early.run_direct(None, &mut db, false).await.unwrap();
    for sql in moved::rows(|id| format!("x'{}'", id.simple()), ["0", "1"]) {
        db.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }
    db.close().await.unwrap();
    moved::assert_unchanged(&open(folder.path()).await).await;
    let mut db = beside(folder.path()).await;
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'todos%' OR name LIKE 'memor%'";
    let left: i64 = sqlx::query_scalar(tables).fetch_one(&mut db).await.unwrap();
    assert_eq!(left, 0, "the old tables are gone");
}
