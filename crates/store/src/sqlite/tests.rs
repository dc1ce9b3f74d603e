//! Frequent queries find their rows by an index, however much data there is.
// Tests report failures by panicking.
#![allow(clippy::unwrap_used)]

use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use super::outbox;
use crate::{migrations, sql::texts};

/// Sources that may be scanned, because they contain only rows that are needed.
const NO_TABLES: [&str; 3] = ["json_each", "SCAN due", "CONSTANT ROW"];

/// The database's query plan, one line for each step.
async fn plan(sql: &'static str) -> Vec<String> {
    let mut db = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    migrations::sqlite().run_direct(None, &mut db, false).await.unwrap();
    let rows = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(&mut db).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect()
}

#[tokio::test]
async fn frequent_queries_use_an_index() {
    for (sql, index) in [
        (texts::OPEN_TASKS, "tasks_open"),
        (texts::OPEN_CONVERSATIONS, "tasks_open"),
        (texts::OPEN_FOR, "tasks_open"),
        (texts::DEAD_LETTER, "PRIMARY KEY"),
        (texts::DEAD_LETTERS, "dead_letters_by_time"),
        (texts::DEAD_LETTERS_OF_USER, "dead_letters_by_user"),
        (texts::COUNT_DEAD_LETTERS, "dead_letters_by_time"),
        (texts::COUNT_DEAD_LETTERS_OF_USER, "dead_letters_by_user"),
        (texts::DUE_DEAD_LETTERS, "dead_letters_to_retry"),
        (texts::DUE_DEAD_LETTERS, "dead_letters_to_archive"),
        (texts::DEAD_LETTERS_WAITING, "dead_letters_to_retry"),
        (texts::DEAD_LETTERS_WAITING, "dead_letters_to_archive"),
        (texts::OPERATION, "PRIMARY KEY"),
        (texts::OPERATIONS, "operations_by_time"),
        (texts::OPERATIONS_OF_USER, "operations_by_user"),
        (texts::EXPIRING_OPERATIONS, "operations_open"),
        (outbox::OUTBOX, "outbox_waiting"),
        (outbox::TO_NOTIFY, "outbox_to_notify"),
        (outbox::TO_SEND, "outbox_to_send"),
        (texts::WAITING_CHANNELS, "outbox_to_send"),
        (texts::BEGIN_DELIVERY, "PRIMARY KEY"),
        (texts::END_DELIVERY, "PRIMARY KEY"),
        (texts::DIVERT_CHANNEL, "outbox_to_send"),
        (texts::NOTIFICATIONS, "notifications_by_user"),
        (texts::LAST_NOTIFIED, "notifications_by_user"),
        (outbox::DELIVERED, "PRIMARY KEY"),
        (outbox::RECEIVED, "PRIMARY KEY"),
        (outbox::WAITING, "PRIMARY KEY"),
        (outbox::SWEEP_WORDS, "outbox_to_sweep"),
        (outbox::SWEEP_NOTIFICATIONS, "notifications_by_time"),
    ] {
        let steps = plan(sql).await;
        assert!(steps.iter().any(|step| step.contains(index)), "{index} for {sql}: {steps:#?}");
        let whole = steps.iter().find(|step| {
            // A partial index may be scanned: it contains only rows that are needed.
            step.starts_with("SCAN") && !step.contains(" INDEX ") && !NO_TABLES.iter().any(|name| step.contains(name))
        });
        assert_eq!(whole, None, "{sql}");
    }
}

#[tokio::test]
async fn sqlite_is_compiled_with_the_flags_of_the_cargo_configuration() {
    let mut db = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let rows = sqlx::query("PRAGMA compile_options").fetch_all(&mut db).await.unwrap();
    let options: Vec<String> = rows.iter().map(|row| row.get::<String, _>(0)).collect();
    let has = |option: &str| options.iter().any(|o| o == option);
    let reason = "libsqlite3-sys was not built with LIBSQLITE3_FLAGS of .cargo/config.toml";
    assert!(has("ENABLE_QPSG"), "{reason}: {options:?}");
    assert!(has("DEFAULT_MEMSTATUS=0"), "{reason}: {options:?}");
    assert!(!has("ENABLE_MEMORY_MANAGEMENT"), "{reason}: {options:?}");
    assert!(has("THREADSAFE=1"), "the options were not read: {options:?}");
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
    assert!(store.secret("other", [8; 32]).await.is_err(), "a new secret needs a write");
}
