//! PostgreSQL's side of a copy. Tables whose names begin with an underscore belong to PostgreSQL only: the index of the
//! documents is filled when the store is opened next.

use std::{collections::BTreeSet, time::Duration};

use annie_core::ports::{StoreError, StoreErrorKind};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row, ValueRef,
    postgres::{PgArguments, PgRow},
};
use uuid::Uuid;

use super::{Column, Kind, NUMBERED, PAGE_ROWS, Side, TABLES, Table, Value};
use crate::{
    PostgresAddress,
    postgres::{kept, shown},
};

const WHAT: &str = "copying a PostgreSQL database";
/// The most values in one statement (the protocol accepts 65,535).
const VALUES_MAX: usize = 60_000;

/// A database in a transaction that excludes other writers.
pub(super) struct PostgresSide(PgConnection);

/// How often a database is checked for connections, and the pause between two checks in milliseconds: the server notices a
/// disconnected client only after some time.
const IN_USE_TRIES: u32 = 20;
const IN_USE_AGAIN_MS: u64 = 100;

/// Number of Annie's connections to a database that do not end soon.
pub(super) async fn in_use(address: &PostgresAddress) -> Result<u64, StoreError> {
    let mut connection = connect(address).await?;
    let mut count = connections_of(&mut connection).await?;
    for _ in 0..IN_USE_TRIES {
        if count == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(IN_USE_AGAIN_MS)).await;
        count = connections_of(&mut connection).await?;
    }
    connection.close().await.map_err(failed)?;
    Ok(count)
}

async fn connections_of(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
         AND application_name = $1";
    let count: i64 =
        sqlx::query_scalar(sql).bind(PostgresAddress::APPLICATION).fetch_one(connection).await.map_err(failed)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

async fn connect(address: &PostgresAddress) -> Result<PgConnection, StoreError> {
    let options = address.connect_options().application_name("annie migrate").disable_statement_logging();
    options.connect().await.map_err(failed)
}

impl PostgresSide {
    pub(super) async fn open(address: &PostgresAddress) -> Result<Self, StoreError> {
        let mut connection = connect(address).await?;
        // The lock comes before the first read, which fixes the snapshot: no other process writes between the two.
        let tables: Vec<&str> = TABLES.iter().map(|t| t.name).collect();
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE",
            tables.join(", ")
        );
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut connection).await.map_err(failed)?;
        Ok(Self(connection))
    }

    async fn rows(&mut self, sql: String, arguments: PgArguments) -> Result<Vec<PgRow>, StoreError> {
        let query = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(false);
        query.fetch_all(&mut self.0).await.map_err(failed)
    }

    async fn number(&mut self, sql: String) -> Result<i64, StoreError> {
        let rows = self.rows(sql, PgArguments::default()).await?;
        rows.first().map_or(Ok(0), |row| row.try_get(0).map_err(failed))
    }

    /// The sequence that numbers the table `NUMBERED`.
    async fn sequence(&mut self) -> Result<String, StoreError> {
        let sql = format!("SELECT pg_get_serial_sequence('{NUMBERED}', 'id')");
        let rows = self.rows(sql, PgArguments::default()).await?;
        let name: Option<String> = rows.first().map_or(Ok(None), |row| row.try_get(0)).map_err(failed)?;
        name.ok_or_else(|| internal(format!("{NUMBERED} has no sequence")))
    }
}

fn bind(arguments: &mut PgArguments, value: Value, kind: Kind) -> Result<(), StoreError> {
    use sqlx::Arguments;
    let bound = match (kind, value) {
        (Kind::Id, Value::Nothing) => arguments.add(None::<Uuid>),
        (Kind::Flag, Value::Nothing) => arguments.add(None::<bool>),
        (Kind::Number, Value::Nothing) => arguments.add(None::<i64>),
        (Kind::Real, Value::Nothing) => arguments.add(None::<f64>),
        (Kind::Text, Value::Nothing) => arguments.add(None::<String>),
        (Kind::Bytes, Value::Nothing) => arguments.add(None::<Vec<u8>>),
        (Kind::Id, Value::Bytes(bytes)) => match Uuid::from_slice(&bytes) {
            Ok(id) => arguments.add(id),
            Err(e) => return Err(internal(format!("{} bytes where an id should be: {e}", bytes.len()))),
        },
        (Kind::Flag, Value::Number(number)) => arguments.add(number != 0),
        (Kind::Number, Value::Number(number)) => arguments.add(number),
        (Kind::Real, Value::Real(real)) => arguments.add(real),
        (Kind::Text, Value::Text(text)) => arguments.add(kept(text)),
        (Kind::Bytes, Value::Bytes(bytes)) => arguments.add(bytes),
        (kind, value) => return Err(internal(format!("{value:?} where a value of kind {kind:?} should be"))),
    };
    bound.map_err(|e| failed(sqlx::Error::Encode(e)))
}

fn value(row: &PgRow, index: usize, kind: Kind) -> Result<Value, StoreError> {
    if row.try_get_raw(index).map_err(failed)?.is_null() {
        return Ok(Value::Nothing);
    }
    Ok(match kind {
        Kind::Id => Value::Bytes(row.try_get::<Uuid, _>(index).map_err(failed)?.as_bytes().to_vec()),
        Kind::Flag => Value::Number(row.try_get::<bool, _>(index).map_err(failed)?.into()),
        Kind::Number => Value::Number(row.try_get(index).map_err(failed)?),
        Kind::Real => Value::Real(row.try_get(index).map_err(failed)?),
        Kind::Text => Value::Text(shown(row.try_get(index).map_err(failed)?).into_owned()),
        Kind::Bytes => Value::Bytes(row.try_get(index).map_err(failed)?),
    })
}

/// A column as it is compared and sorted: texts by their bytes, as in SQLite.
fn in_order(name: &str, columns: &[Column]) -> String {
    let is_text = columns.iter().any(|c| c.name == name && c.kind == Kind::Text);
    if is_text { format!("{name} COLLATE \"C\"") } else { name.to_owned() }
}

impl Side for PostgresSide {
    const NAME: &'static str = "PostgreSQL";

    async fn tables(&mut self) -> Result<BTreeSet<String>, StoreError> {
        let sql = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() \
             AND tablename NOT LIKE '\\_%'";
        let rows = self.rows(sql.to_owned(), PgArguments::default()).await?;
        rows.iter().map(|row| row.try_get(0).map_err(failed)).collect()
    }

    async fn columns(&mut self, table: &Table) -> Result<Vec<Column>, StoreError> {
        let sql = format!(
            "SELECT column_name::text, udt_name::text FROM information_schema.columns \
             WHERE table_schema = current_schema() AND table_name = '{}' AND is_generated = 'NEVER'",
            table.name
        );
        let rows = self.rows(sql, PgArguments::default()).await?;
        let column = |row: &PgRow| {
            let declared: String = row.try_get(1).map_err(failed)?;
            let kind = match declared.as_str() {
                "uuid" => Kind::Id,
                "bool" => Kind::Flag,
                "int8" | "int4" | "int2" => Kind::Number,
                "float8" => Kind::Real,
                "text" => Kind::Text,
                "bytea" => Kind::Bytes,
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
        self.rows(format!("DELETE FROM {}", table.name), PgArguments::default()).await.map(drop)
    }

    async fn page(
        &mut self,
        table: &Table,
        columns: &[Column],
        after: Option<Vec<Value>>,
    ) -> Result<Vec<Vec<Value>>, StoreError> {
        let read = |c: &Column| match c.kind {
            Kind::Number => format!("{}::int8", c.name),
            _ => c.name.clone(),
        };
        let names: Vec<String> = columns.iter().map(read).collect();
        let key: Vec<String> = table.key.iter().map(|name| in_order(name, columns)).collect();
        let (names, key) = (names.join(", "), key.join(", "));
        let mut arguments = PgArguments::default();
        let mut after_key = String::new();
        if let Some(after) = after {
            let placeholders: Vec<String> = (1..=after.len()).map(|n| format!("${n}")).collect();
            after_key = format!("WHERE ({key}) > ({})", placeholders.join(", "));
            for (name, value) in table.key.iter().zip(after) {
                let kind = columns.iter().find(|c| c.name == *name).map_or(Kind::Text, |c| c.kind);
                bind(&mut arguments, value, kind)?;
            }
        }
        let sql = format!("SELECT {names} FROM {} {after_key} ORDER BY {key} LIMIT {PAGE_ROWS}", table.name);
        let rows = self.rows(sql, arguments).await?;
        let values =
            |row: &PgRow| columns.iter().enumerate().map(|(index, column)| value(row, index, column.kind)).collect();
        rows.iter().map(values).collect()
    }

    async fn insert(&mut self, table: &Table, columns: &[Column], rows: Vec<Vec<Value>>) -> Result<(), StoreError> {
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let mut rows = rows.into_iter();
        loop {
            let chunk: Vec<Vec<Value>> = rows.by_ref().take(VALUES_MAX / names.len().max(1)).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            let mut arguments = PgArguments::default();
            let mut placeholders = Vec::new();
            let mut next = 0;
            for row in chunk {
                let of_row = (next + 1..).take(row.len()).map(|n| format!("${n}"));
                placeholders.push(format!("({})", of_row.collect::<Vec<_>>().join(", ")));
                next += row.len();
                for (column, value) in columns.iter().zip(row) {
                    bind(&mut arguments, value, column.kind)?;
                }
            }
            let (names, placeholders) = (names.join(", "), placeholders.join(", "));
            let sql = format!("INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE VALUES {placeholders}", table.name);
            self.rows(sql, arguments).await?;
        }
    }

    async fn last_number(&mut self) -> Result<i64, StoreError> {
        let sequence = self.sequence().await?;
        self.number(format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")).await
    }

    async fn set_last_number(&mut self, number: i64) -> Result<(), StoreError> {
        let sequence = self.sequence().await?;
        // A sequence begins at 1: a flag states whether that number was assigned. A sequence is not transactional; a skipped
        // number does no harm.
        let sql = format!("SELECT setval('{sequence}', {}, {})", number.max(1), number > 0);
        self.rows(sql, PgArguments::default()).await.map(drop)
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
