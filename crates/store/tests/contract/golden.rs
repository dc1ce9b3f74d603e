//! Every JSON text that a store keeps beside the log stays readable for ever. `tests/golden/json_v1` contains one for each
//! column, as its first version wrote it. These files are never changed; a changed format gets a new folder, and the old files
//! must still be readable. (The golden files of events and snapshots are in core. Those of columns that a migration has moved are
//! in `json_v1_moved`, for the tests of the migration.)

use std::{collections::BTreeMap, fs, path::PathBuf};

use annie_core::{
    event::Scope,
    ports::{ApiKey, DocumentQuery, Namespace, Storage, Store},
    time::Micros,
};
use annie_testkit::postgres::database;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::{
    documents::insert,
    examine::DirectAccess,
    make::*,
    sqlite_only::{beside, open},
    stores::at,
};

static PAPERS: Namespace = Namespace { tags: "tags", ..Namespace::named("papers") };

/// The texts of a version, by table and column.
fn golden(version: &str) -> BTreeMap<(String, String), String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version);
    let file = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let (table, column) = name.split_once('.').unwrap();
        ((table.to_owned(), column.to_owned()), fs::read_to_string(&path).unwrap().trim_end().to_owned())
    };
    fs::read_dir(folder).unwrap().map(|entry| file(entry.unwrap().path())).collect()
}

/// Writes the content of the golden files of the current version, one row each.
async fn write(store: &dyn Storage) {
    let c = conversation(1);
    let epoch = opened(store, c, "ann", task(1), 1).await;
    let waits = received_as(task(3), 2, |inbound| inbound.after = vec![task(2)]);
    let failing = vec![waits, started(task(1), 3), died(task(1), dead_letter(1, None), 4)];
    commit(store, owned(c, "ann", epoch, failing)).await.unwrap();
    let message = store.outbox(9).await.unwrap().remove(0);
    store.notify(user("ann"), "Sorry.".into(), vec![(message.id, message.task)], Micros(5)).await.unwrap().unwrap();
    let texts_of_two = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
    let body = serde_json::json!({"title": "t", "due": null, "priority": 1, "tags": ["home", "\"now\" ü"]});
    insert(store, "ann", &PAPERS, 1, body).await;
    let key = ApiKey {
        id: "k1".into(),
        name: "laptop".into(),
        user: user("ann"),
        secret_sha256: vec![0; 32],
        scopes: texts_of_two("chat", "jobs:read"),
        created_at: Micros(1),
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
    };
    store.put_key(key).await.unwrap();
}

/// The value that a store reads from each of these columns, converted to JSON by the test itself.
async fn read(store: &dyn Storage, table: &str, column: &str) -> serde_json::Value {
    let ann = || user("ann");
    match (table, column) {
        ("dead_letters", "tried") => {
            store.dead_letter(Scope::Operator, task(1)).await.unwrap().unwrap().dead_letter.tried.into()
        }
        ("tasks", "after_ids") => {
            let after = store.task(Scope::Operator, task(3)).await.unwrap().unwrap().after;
            after.iter().map(ToString::to_string).collect()
        }
        ("api_keys", "scopes") => store.key("k1".into()).await.unwrap().unwrap().scopes.into(),
        ("documents", "body") => store.document(ann(), &PAPERS, 1).await.unwrap().unwrap().body,
        ("documents", "tags") => {
            let tags = vec!["home".to_owned(), "\"now\" ü".to_owned()];
            let query = DocumentQuery { tags: tags.clone(), limit: 1, ..DocumentQuery::default() };
            let is_found = !store.find_documents(ann(), &PAPERS, query).await.unwrap().is_empty();
            if is_found { tags.into() } else { serde_json::json!([]) }
        }
        ("notifications", "tasks") => {
            let tasks = store.notifications(ann(), 0, 9).await.unwrap().remove(0).tasks;
            tasks.iter().map(ToString::to_string).collect()
        }
        other => panic!("{other:?} has a golden file that this test does not read"),
    }
}

async fn assert_golden_texts_are_written_and_read(store: &dyn Storage, database_access: &mut impl DirectAccess) {
    write(store).await;
    for ((table, column), text) in golden("json_v1") {
        let of = format!("{column} IS NOT NULL");
        let written = database_access.read_text(&format!("SELECT {column} FROM {table} WHERE {of}")).await;
        assert_eq!(
            written, text,
            "{table}.{column} is written in another format: that is a new version, in a folder of its own"
        );
        // As an earlier Annie stored it.
        database_access.run_sql(&format!("UPDATE {table} SET {column} = '[]' WHERE {of}")).await;
        assert_eq!(read(store, &table, &column).await, serde_json::json!([]), "{table}.{column}");
        database_access.run_sql(&format!("UPDATE {table} SET {column} = '{text}' WHERE {of}")).await;
        let sent: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read(store, &table, &column).await, sent, "{table}.{column}");
    }
    store.close().await;
}

#[tokio::test]
async fn golden_json_texts_are_written_and_read_by_sqlite() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    assert_golden_texts_are_written_and_read(&store, &mut beside(folder.path()).await).await;
}

#[tokio::test]
async fn golden_json_texts_are_written_and_read_by_postgres() {
    let Some(database) = database().await else { return };
    let mut database_access = PgConnection::connect(&database.url).await.unwrap();
    assert_golden_texts_are_written_and_read(&at(&database.url).await, &mut database_access).await;
}

/// Columns whose format core defines.
const OF_CORE: [(&str, &str); 2] = [("events", "body"), ("snapshots", "state")];

async fn texts(db: &mut SqliteConnection, sql: String) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(db).await.unwrap()
}

#[tokio::test]
async fn golden_files_cover_every_column_with_json() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    write(&store).await;
    let mut db = beside(folder.path()).await;
    let golden = golden("json_v1");
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%fts%'";
    let mut seen = 0;
    for table in texts(&mut db, tables.to_owned()).await {
        for column in texts(&mut db, format!("SELECT name FROM pragma_table_info('{table}') WHERE type = 'TEXT'")).await
        {
            let json =
                format!("SELECT {column} FROM {table} WHERE {column} LIKE '[%]' OR {column} LIKE '{{%}}' LIMIT 1");
            if texts(&mut db, json).await.is_empty() || OF_CORE.contains(&(&*table, &*column)) {
                continue;
            }
            seen += 1;
            assert!(golden.contains_key(&(table.clone(), column.clone())), "{table}.{column}");
        }
    }
    assert_eq!(seen, golden.len());
    store.close().await;
}
