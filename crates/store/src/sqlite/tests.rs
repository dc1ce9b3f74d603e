//! The questions that are asked again and again find their rows by an index, however much has been kept.
// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used)]

use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use super::outbox;
use crate::{migrations, sql::texts};

/// What may be read from end to end: it is as long as what was asked for.
const NO_TABLES: [&str; 3] = ["json_each", "SCAN due", "CONSTANT ROW"];

/// How the database would answer, one line for each step.
async fn plan(sql: &'static str) -> Vec<String> {
    let mut db = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    migrations::sqlite().run_direct(None, &mut db, false).await.unwrap();
    let rows = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(&mut db).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect()
}

#[tokio::test]
async fn what_is_asked_often_uses_an_index() {
    for (sql, index) in [
        (texts::OPEN_TASKS, "tasks_open"),
        (texts::OPEN_CONVERSATIONS, "tasks_open"),
        (texts::OPEN_FOR, "tasks_open"),
        (texts::LETTER, "PRIMARY KEY"),
        (texts::LETTERS, "letters_by_time"),
        (texts::LETTERS_OF_USER, "letters_by_user"),
        (texts::COUNT_LETTERS, "letters_by_time"),
        (texts::COUNT_LETTERS_OF_USER, "letters_by_user"),
        (texts::DUE_LETTERS, "letters_to_retry"),
        (texts::DUE_LETTERS, "letters_to_archive"),
        (texts::LETTERS_WAITING, "letters_to_retry"),
        (texts::LETTERS_WAITING, "letters_to_archive"),
        (texts::OPERATION, "PRIMARY KEY"),
        (texts::OPERATIONS, "operations_by_time"),
        (texts::OPERATIONS_OF_USER, "operations_by_user"),
        (texts::EXPIRING_OPERATIONS, "operations_open"),
        (outbox::OUTBOX, "outbox_waiting"),
        (texts::NOTIFICATIONS, "notifications_by_user"),
        (texts::LAST_NOTIFIED, "notifications_by_user"),
        (outbox::DELIVERED, "PRIMARY KEY"),
        (outbox::WAITING, "PRIMARY KEY"),
        (outbox::SWEEP_WORDS, "outbox_to_sweep"),
        (outbox::SWEEP_NOTIFICATIONS, "notifications_by_time"),
    ] {
        let steps = plan(sql).await;
        assert!(steps.iter().any(|step| step.contains(index)), "{index} for {sql}: {steps:#?}");
        let whole = steps.iter().find(|step| {
            // A partial index may be read from end to end: it holds only what is wanted.
            step.starts_with("SCAN") && !step.contains(" INDEX ") && !NO_TABLES.iter().any(|name| step.contains(name))
        });
        assert_eq!(whole, None, "{sql}");
    }
}

#[tokio::test]
async fn sqlite_reads_a_known_secret_without_a_write() {
    use annie_core::ports::Operations;
    let folder = tempfile::tempdir().unwrap();
    let store = super::SqliteStore::open(folder.path(), super::SqliteOptions::default()).await.unwrap();
    let secret = store.secret("operations", [7; 32]).await.unwrap();
    // From here on every write fails, as on a full disk.
    let read_only = super::Statements::one("PRAGMA query_only = ON", Vec::new());
    store.db.write("closing for writes", read_only).await.unwrap();
    assert_eq!(store.secret("operations", [8; 32]).await.unwrap(), secret);
    assert!(store.secret("other", [8; 32]).await.is_err(), "a new one needs a write");
}
