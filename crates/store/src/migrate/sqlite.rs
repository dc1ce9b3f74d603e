//! SQLite's side of a copy.

use std::{collections::BTreeSet, path::Path};

use annie_core::ports::{StoreError, StoreErrorKind};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection, ValueRef,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow},
};

use super::{Column, Kind, NUMBERED, PAGE_ROWS, Side, Table, Value};

const WHAT: &str = "copying a SQLite database";
/// The most values in one statement (SQLite accepts 32,766).
const VALUES_MAX: usize = 30_000;

/// A database in a transaction. The caller that opens it holds the folder's lock.
pub(super) struct SqliteSide(SqliteConnection);

impl SqliteSide {
    pub(super) async fn open(folder: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new().filename(folder.join("annie.db")).foreign_keys(true);
        let mut connection = options.disable_statement_logging().connect().await.map_err(failed)?;
        sqlx::raw_sql("BEGIN").execute(&mut connection).await.map_err(failed)?;
        Ok(Self(connection))
    }

    async fn rows(&mut self, sql: String, bound: Vec<Value>) -> Result<Vec<SqliteRow>, StoreError> {
        let mut arguments = SqliteArguments::default();
        for value in bound {
            bind(&mut arguments, value)?;
        }
        sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(&mut self.0).await.map_err(failed)
    }

    #[cfg(test)]
    pub(super) async fn run(&mut self, sql: &str) {
        self.rows(sql.to_owned(), Vec::new()).await.expect("it is done");
    }

    async fn number(&mut self, sql: String) -> Result<i64, StoreError> {
        let rows = self.rows(sql, Vec::new()).await?;
        rows.first().map_or(Ok(0), |row| row.try_get(0).map_err(failed))
    }
}

fn bind(arguments: &mut SqliteArguments, value: Value) -> Result<(), StoreError> {
    use sqlx::Arguments;
    let bound = match value {
        Value::Nothing => arguments.add(None::<i64>),
        Value::Number(number) => arguments.add(number),
        Value::Real(real) => arguments.add(real),
        Value::Text(text) => arguments.add(text),
        Value::Bytes(bytes) => arguments.add(bytes),
    };
    bound.map_err(|e| failed(sqlx::Error::Encode(e)))
}

fn value(row: &SqliteRow, index: usize, kind: Kind) -> Result<Value, StoreError> {
    if row.try_get_raw(index).map_err(failed)?.is_null() {
        return Ok(Value::Nothing);
    }
    Ok(match kind {
        Kind::Number | Kind::Flag => Value::Number(row.try_get(index).map_err(failed)?),
        Kind::Real => Value::Real(row.try_get(index).map_err(failed)?),
        Kind::Text => Value::Text(row.try_get(index).map_err(failed)?),
        Kind::Bytes | Kind::Id => Value::Bytes(row.try_get(index).map_err(failed)?),
    })
}

impl Side for SqliteSide {
    const NAME: &'static str = "SQLite";

    async fn tables(&mut self) -> Result<BTreeSet<String>, StoreError> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
             AND name NOT LIKE '\\_%' ESCAPE '\\' AND name NOT LIKE 'documents\\_fts%' ESCAPE '\\'";
        let rows = self.rows(sql.to_owned(), Vec::new()).await?;
        rows.iter().map(|row| row.try_get(0).map_err(failed)).collect()
    }

    async fn columns(&mut self, table: &Table) -> Result<Vec<Column>, StoreError> {
        let sql = format!("SELECT name, type FROM pragma_table_info('{}')", table.name);
        let rows = self.rows(sql, Vec::new()).await?;
        let column = |row: &SqliteRow| {
            let declared: String = row.try_get(1).map_err(failed)?;
            let kind = match declared.as_str() {
                "BLOB" => Kind::Bytes,
                "INTEGER" => Kind::Number,
                "REAL" => Kind::Real,
                "TEXT" => Kind::Text,
                other => return Err(internal(format!("{} has a column of type {other}", table.name))),
            };
            Ok(Column { name: row.try_get(0).map_err(failed)?, kind })
        };
        rows.iter().map(column).collect()
    }

    async fn count(&mut self, table: &Table) -> Result<u64, StoreError> {
        let count = self.number(format!("SELECT count(*) FROM {}", table.name)).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn clear(&mut self, table: &Table) -> Result<(), StoreError> {
        self.rows(format!("DELETE FROM {}", table.name), Vec::new()).await.map(drop)
    }

    async fn page(
        &mut self,
        table: &Table,
        columns: &[Column],
        after: Option<Vec<Value>>,
    ) -> Result<Vec<Vec<Value>>, StoreError> {
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let (names, key) = (names.join(", "), table.key.join(", "));
        let after_key = match &after {
            Some(after) => {
                let placeholders: Vec<String> = (1..=after.len()).map(|n| format!("${n}")).collect();
                format!("WHERE ({key}) > ({})", placeholders.join(", "))
            }
            None => String::new(),
        };
        let sql = format!("SELECT {names} FROM {} {after_key} ORDER BY {key} LIMIT {PAGE_ROWS}", table.name);
        let rows = self.rows(sql, after.unwrap_or_default()).await?;
        let values = |row: &SqliteRow| {
            columns.iter().enumerate().map(|(index, column)| value(row, index, column.kind)).collect()
        };
        rows.iter().map(values).collect()
    }

    async fn insert(&mut self, table: &Table, columns: &[Column], rows: Vec<Vec<Value>>) -> Result<(), StoreError> {
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let one = format!("({})", vec!["?"; names.len()].join(", "));
        let mut rows = rows.into_iter();
        loop {
            let chunk: Vec<Vec<Value>> = rows.by_ref().take(VALUES_MAX / names.len().max(1)).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            let all = vec![one.as_str(); chunk.len()].join(", ");
            let sql = format!("INSERT INTO {} ({}) VALUES {all}", table.name, names.join(", "));
            self.rows(sql, chunk.into_iter().flatten().collect()).await?;
        }
    }

    async fn last_number(&mut self) -> Result<i64, StoreError> {
        self.number(format!("SELECT seq FROM sqlite_sequence WHERE name = '{NUMBERED}'")).await
    }

    async fn set_last_number(&mut self, number: i64) -> Result<(), StoreError> {
        self.rows(format!("DELETE FROM sqlite_sequence WHERE name = '{NUMBERED}'"), Vec::new()).await?;
        let sql = format!("INSERT INTO sqlite_sequence (name, seq) VALUES ('{NUMBERED}', $1)");
        self.rows(sql, vec![Value::Number(number)]).await.map(drop)
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        sqlx::raw_sql("COMMIT").execute(&mut self.0).await.map_err(failed)?;
        self.0.close().await.map_err(failed)
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    StoreError { kind: StoreErrorKind::Unavailable, what: WHAT, detail: error.to_string() }
}

fn internal(detail: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Internal, what: WHAT, detail }
}
