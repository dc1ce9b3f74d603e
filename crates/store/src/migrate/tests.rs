//! That nothing is left out, and that a copy is whole or not at all.

use std::collections::BTreeSet;

use annie_testkit::postgres;

use super::*;

async fn of(place: &MigratePlace) -> (BTreeSet<String>, Vec<Vec<Column>>) {
    open(place, "source").await.expect("it opens").close().await;
    async fn look(mut side: impl Side) -> (BTreeSet<String>, Vec<Vec<Column>>) {
        let mut columns = Vec::new();
        for table in TABLES {
            columns.push(side.columns(table).await.expect("columns"));
        }
        (side.tables().await.expect("tables"), columns)
    }
    match place {
        MigratePlace::Sqlite(folder) => look(sqlite_at(folder, "source").await.expect("SQLite")).await,
        MigratePlace::Postgres(address) => look(postgres_at(address, "source").await.expect("PostgreSQL")).await,
    }
}

#[tokio::test]
async fn every_table_and_column_of_both_databases_is_copied() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (tables, sqlite) = of(&MigratePlace::Sqlite(folder.path().to_owned())).await;
    known("SQLite", &tables).expect("these are copied");
    let (tables, postgres) = of(&MigratePlace::Postgres(database.url.parse().expect("an address"))).await;
    known("PostgreSQL", &tables).expect("these are copied");
    for ((table, sqlite), postgres) in TABLES.iter().zip(sqlite).zip(postgres) {
        common(table, sqlite, postgres).expect("the same columns");
    }
}

#[tokio::test]
async fn a_copy_that_fails_in_the_middle_leaves_the_target_as_it_was_and_a_number_is_never_given_again() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let from = MigratePlace::Sqlite(folder.path().to_owned());
    let to = MigratePlace::Postgres(database.url.parse().expect("an address"));
    open(&from, "source").await.expect("it opens").close().await;
    let mut source = sqlite_at(folder.path(), "source").await.expect("SQLite");
    source.set_last_number(41).await.expect("it is written");
    // What no PostgreSQL takes: a conversation whose id is no id.
    let wrong = "INSERT INTO conversations VALUES (X'0102', 'ann', NULL, 0, 1, 't', 1, 1, 0)";
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
fn a_table_that_is_not_known_and_a_column_that_is_not_there_are_told() {
    let mut tables: BTreeSet<String> = TABLES.iter().map(|t| t.name.to_owned()).collect();
    tables.insert("later".to_owned());
    let told = known("SQLite", &tables).expect_err("one more").to_string();
    assert!(told.contains("later"), "{told}");
    let column = |name: &str| Column { name: name.to_owned(), kind: Kind::Text };
    let table = Table { name: "t", key: &["a"] };
    assert!(common(&table, vec![column("a"), column("b")], vec![column("a")]).is_err());
}

#[test]
fn a_checksum_tells_values_apart() {
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
