//! Nothing is left out, and a copy is complete or not made at all.

use std::collections::BTreeSet;

use annie_testkit::postgres;

use super::*;

async fn of(location: &MigrateSide) -> (BTreeSet<String>, Vec<Vec<Column>>) {
    open(location, "source").await.expect("it opens").close().await;
    async fn tables_and_columns(mut side: impl Side) -> (BTreeSet<String>, Vec<Vec<Column>>) {
        let mut columns = Vec::new();
        for table in TABLES {
            columns.push(side.columns(table).await.expect("columns"));
        }
        (side.tables().await.expect("tables"), columns)
    }
    match location {
        MigrateSide::Sqlite(folder) => tables_and_columns(sqlite_at(folder, "source").await.expect("SQLite")).await,
        MigrateSide::Postgres(address) => {
            tables_and_columns(postgres_at(address, "source").await.expect("PostgreSQL")).await
        }
    }
}

#[tokio::test]
async fn migrate_copies_every_table_and_column_of_both_databases() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (tables, sqlite) = of(&MigrateSide::Sqlite(folder.path().to_owned())).await;
    known("SQLite", &tables).expect("these are copied");
    let (tables, postgres) = of(&MigrateSide::Postgres(database.url.parse().expect("an address"))).await;
    known("PostgreSQL", &tables).expect("these are copied");
    for ((table, sqlite), postgres) in TABLES.iter().zip(sqlite).zip(postgres) {
        common(table, sqlite, postgres).expect("the same columns");
    }
}

#[tokio::test]
async fn migrate_leaves_the_target_unchanged_on_failure_and_never_reuses_a_number() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let from = MigrateSide::Sqlite(folder.path().to_owned());
    let to = MigrateSide::Postgres(database.url.parse().expect("an address"));
    open(&from, "source").await.expect("it opens").close().await;
    let mut source = sqlite_at(folder.path(), "source").await.expect("SQLite");
    source.set_last_number(41).await.expect("it is written");
    // A row that PostgreSQL refuses: a conversation whose id is not a UUID.
    let wrong = "INSERT INTO conversations VALUES (X'0102', 'ann', NULL, 0, 1, 't', 1, 1, 0, NULL)";
    source.run(wrong).await;
    source.commit().await.expect("it is kept");
    let failed = migrate(&from, &to, false, &[]).await;
    assert!(matches!(failed, Err(MigrateError::Store { side: "target", .. })), "{failed:?}");
    let mut source = sqlite_at(folder.path(), "source").await.expect("SQLite");
    source.run("DELETE FROM conversations").await;
    source.run("INSERT INTO secrets VALUES ('one', X'01')").await;
    source.commit().await.expect("it is kept");
    let copied = migrate(&from, &to, false, &[]).await.expect("nothing was there");
    assert_eq!(copied.iter().map(|c| c.rows).sum::<u64>(), 1);
    let again = migrate(&from, &to, false, &[]).await;
    assert!(matches!(again, Err(MigrateError::NotEmpty { table: "secrets", rows: 1 })), "{again:?}");
    let without = migrate(&from, &to, true, &["one"]).await.expect("what is there is removed");
    assert_eq!(without.iter().map(|c| c.rows).sum::<u64>(), 0, "the secret is left out");
    migrate(&from, &to, true, &["another"]).await.expect("what is there is removed");
    let mut target = postgres_at(&database.url.parse().expect("an address"), "target").await.expect("PostgreSQL");
    assert_eq!(target.last_number().await.expect("a number"), 41);
}

#[test]
fn migrate_reports_unknown_tables_and_missing_columns() {
    let mut tables: BTreeSet<String> = TABLES.iter().map(|t| t.name.to_owned()).collect();
    tables.insert("later".to_owned());
    let error = known("SQLite", &tables).expect_err("one more").to_string();
    assert!(error.contains("later"), "{error}");
    let column = |name: &str| Column { name: name.to_owned(), kind: Kind::Text };
    let table = Table { name: "t", key: &["a"] };
    assert!(common(&table, vec![column("a"), column("b")], vec![column("a")]).is_err());
}

#[test]
fn migrate_checksum_distinguishes_values() {
    let sum = |row: Vec<Value>| {
        let mut sum = Sum::default();
        sum.add(&[row]);
        sum.end()
    };
    let text = |text: &str| Value::Text(text.to_owned());
    let all = [
        vec![text("a"), text("b")],
        vec![text("ab"), text("")],
        vec![Value::Nothing, text("")],
        vec![Value::Number(0), Value::Nothing],
        vec![Value::Real(0.0), Value::Nothing],
        vec![Value::Bytes(vec![0; 8]), Value::Nothing],
    ];
    let sums: BTreeSet<(u64, String)> = all.into_iter().map(sum).collect();
    assert_eq!(sums.len(), 6);
}
