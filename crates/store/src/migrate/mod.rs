//! Copies all data from one database to another: all tables, with epochs and deliveries. It is one consistent read and one
//! transaction of the target: everything is copied or nothing is. The written data is read back before the commit, and count
//! and checksum of every table must equal the source's.

mod postgres;
mod sqlite;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt::Write, future::Future, path::PathBuf};

use annie_core::ports::{Store, StoreError};
use sha2::{Digest, Sha256};

use crate::{PostgresAddress, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};

/// Rows per read.
const PAGE_ROWS: u32 = 500;

/// The source or the target of a copy.
#[derive(Debug, Clone)]
pub enum MigrateSide {
    /// SQLite in a data folder.
    Sqlite(PathBuf),
    /// PostgreSQL.
    Postgres(PostgresAddress),
}

/// A table that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableCopied {
    /// Name of the table.
    pub table: &'static str,
    /// Number of its rows.
    pub rows: u64,
    /// SHA-256 over all values in the order of the key, in hex: the same for both databases.
    pub sha256: String,
}

/// Why nothing was copied. The target is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A database returned an error.
    #[error("{side}: {source}")]
    Store {
        /// `source` or `target`.
        side: &'static str,
        /// The error of the database.
        source: StoreError,
    },
    /// The target is not empty.
    #[error("the target is not empty: {rows} rows in {table}")]
    NotEmpty {
        /// A table with rows.
        table: &'static str,
        /// Number of its rows.
        rows: u64,
    },
    /// A process uses one of the two databases.
    #[error("the {side} is in use by {count} connection(s) of annie")]
    InUse {
        /// `source` or `target`.
        side: &'static str,
        /// Number of connections.
        count: u64,
    },
    /// The two databases do not have the same tables.
    #[error("the tables differ: {0}")]
    Tables(String),
    /// The written rows differ from the rows that were read.
    #[error("{table} differs after the copy: {read} rows read, {written} written")]
    Differs {
        /// Name of the table.
        table: &'static str,
        /// Rows of the source.
        read: u64,
        /// Rows of the target.
        written: u64,
    },
}

/// A table and the columns of its key.
struct Table {
    name: &'static str,
    key: &'static [&'static str],
}

/// All tables; referenced tables come before the tables that refer to them. A test compares them with the tables of the
/// databases.
const TABLES: &[Table] = &[
    Table { name: "texts", key: &["id"] },
    Table { name: "conversations", key: &["id"] },
    Table { name: "events", key: &["conversation_id", "seq"] },
    Table { name: "deletions", key: &["conversation_id"] },
    Table { name: "snapshots", key: &["conversation_id"] },
    Table { name: "tasks", key: &["id"] },
    Table { name: "addresses", key: &["task_id"] },
    Table { name: "usage_totals", key: &["conversation_id", "day", "backend", "skills"] },
    Table { name: "intents", key: &["id"] },
    Table { name: "outbox", key: &["id"] },
    Table { name: "dead_letters", key: &["task_id"] },
    Table { name: "operations", key: &["id"] },
    Table { name: "notifications", key: &["id"] },
    Table { name: SECRETS, key: &["name"] },
    Table { name: "breakers", key: &["skill"] },
    Table { name: "api_keys", key: &["id"] },
    Table { name: "documents", key: &["user_id", "namespace", "number"] },
    Table { name: "document_intents", key: &["user_id", "namespace", "intent_id"] },
    Table { name: "sealed_secrets", key: &["user_id", "name"] },
];
/// Tables whose content is valid only for their own database.
const OWN_TABLES: &[&str] = &["nodes"];
/// Columns that number rows only within their own database.
const OWN_COLUMNS: &[(&str, &str)] = &[("documents", "id")];
/// The table whose numbers are never reused, so that the last number is copied too.
const NUMBERED: &str = "notifications";

/// The type of a column, for both databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Id,
    Flag,
    Number,
    Real,
    Text,
    Bytes,
}

/// A value that is copied.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Nothing,
    Number(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// A column. An SQLite number may be a boolean in PostgreSQL, and SQLite bytes may be an id.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    name: String,
    kind: Kind,
}

/// One of the two databases, in a transaction.
trait Side: Send {
    /// Its name in errors.
    const NAME: &'static str;

    /// Its tables, except those that the database manages itself.
    fn tables(&mut self) -> impl Future<Output = Result<BTreeSet<String>, StoreError>> + Send;

    /// The columns of a table, except generated ones.
    fn columns(&mut self, table: &Table) -> impl Future<Output = Result<Vec<Column>, StoreError>> + Send;

    fn count(&mut self, table: &Table) -> impl Future<Output = Result<u64, StoreError>> + Send;

    fn clear(&mut self, table: &Table) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The rows after a key, in the order of the key.
    fn page(
        &mut self,
        table: &Table,
        columns: &[Column],
        after: Option<Vec<Value>>,
    ) -> impl Future<Output = Result<Vec<Vec<Value>>, StoreError>> + Send;

    fn insert(
        &mut self,
        table: &Table,
        columns: &[Column],
        rows: Vec<Vec<Value>>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The last number that the numbered table has assigned.
    fn last_number(&mut self) -> impl Future<Output = Result<i64, StoreError>> + Send;

    fn set_last_number(&mut self, number: i64) -> impl Future<Output = Result<(), StoreError>> + Send;

    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The table of the secrets, whose rows a copy may leave out by name.
const SECRETS: &str = "secrets";

/// Copies everything except the secrets named in `left_out`. With `replace`, the target's rows are removed in the same
/// transaction.
///
/// # Errors
/// If a database cannot be used or is in use, the target is not empty, or the copy differs: then nothing was copied.
pub async fn migrate(
    from: &MigrateSide,
    to: &MigrateSide,
    replace: bool,
    left_out: &[&str],
) -> Result<Vec<TableCopied>, MigrateError> {
    let options = CopyOptions { replace, left_out };
    // Opening the databases brings the tables of both up to date, and holds the folders' locks until the end.
    let stores = (open(from, "source").await?, open(to, "target").await?);
    let copied = match (from, to) {
        (MigrateSide::Sqlite(from), MigrateSide::Sqlite(to)) => {
            copy(sqlite_at(from, "source").await?, sqlite_at(to, "target").await?, options).await
        }
        (MigrateSide::Sqlite(from), MigrateSide::Postgres(to)) => {
            copy(sqlite_at(from, "source").await?, postgres_at(to, "target").await?, options).await
        }
        (MigrateSide::Postgres(from), MigrateSide::Sqlite(to)) => {
            copy(postgres_at(from, "source").await?, sqlite_at(to, "target").await?, options).await
        }
        (MigrateSide::Postgres(from), MigrateSide::Postgres(to)) => {
            copy(postgres_at(from, "source").await?, postgres_at(to, "target").await?, options).await
        }
    };
    stores.0.close().await;
    stores.1.close().await;
    copied
}

async fn open(location: &MigrateSide, side: &'static str) -> Result<Box<dyn Store>, MigrateError> {
    let failed = |source| MigrateError::Store { side, source };
    Ok(match location {
        MigrateSide::Sqlite(folder) => {
            Box::new(SqliteStore::open(folder, SqliteOptions::default()).await.map_err(failed)?)
        }
        MigrateSide::Postgres(address) => {
            let count = postgres::in_use(address).await.map_err(failed)?;
            if count > 0 {
                return Err(MigrateError::InUse { side, count });
            }
            Box::new(PostgresStore::open(address, PostgresOptions::default()).await.map_err(failed)?)
        }
    })
}

async fn sqlite_at(folder: &std::path::Path, side: &'static str) -> Result<sqlite::SqliteSide, MigrateError> {
    sqlite::SqliteSide::open(folder).await.map_err(|source| MigrateError::Store { side, source })
}

async fn postgres_at(address: &PostgresAddress, side: &'static str) -> Result<postgres::PostgresSide, MigrateError> {
    postgres::PostgresSide::open(address).await.map_err(|source| MigrateError::Store { side, source })
}

/// Options of a copy.
#[derive(Clone, Copy)]
struct CopyOptions<'a> {
    replace: bool,
    left_out: &'a [&'a str],
}

impl CopyOptions<'_> {
    /// Whether a row of the source is copied.
    fn takes(self, table: &Table, columns: &[Column], row: &[Value]) -> bool {
        let is_left_out = |key: &Value| matches!(key, Value::Text(name) if self.left_out.contains(&name.as_str()));
        table.name != SECRETS || !key_of(table, columns, row).iter().any(is_left_out)
    }
}

async fn copy<F: Side, T: Side>(
    mut from: F,
    mut to: T,
    options: CopyOptions<'_>,
) -> Result<Vec<TableCopied>, MigrateError> {
    let of_source = |source| MigrateError::Store { side: "source", source };
    let of_target = |source| MigrateError::Store { side: "target", source };
    known(F::NAME, &from.tables().await.map_err(of_source)?)?;
    known(T::NAME, &to.tables().await.map_err(of_target)?)?;
    for table in TABLES.iter().rev() {
        if options.replace {
            to.clear(table).await.map_err(of_target)?;
        } else {
            let rows = to.count(table).await.map_err(of_target)?;
            if rows > 0 {
                return Err(MigrateError::NotEmpty { table: table.name, rows });
            }
        }
    }
    let mut copied = Vec::new();
    for table in TABLES {
        let columns = from.columns(table).await.map_err(of_source)?;
        let target = to.columns(table).await.map_err(of_target)?;
        let columns = common(table, columns, target)?;
        let mut read = Sum::default();
        let mut after = None;
        loop {
            let mut rows = from.page(table, &columns.source, after.take()).await.map_err(of_source)?;
            let Some(last) = rows.last() else { break };
            after = Some(key_of(table, &columns.source, last));
            rows.retain(|row| options.takes(table, &columns.source, row));
            read.add(&rows);
            to.insert(table, &columns.target, rows).await.map_err(of_target)?;
        }
        let written = sum(&mut to, table, &columns.target).await.map_err(of_target)?;
        let (read, written) = (read.end(), written.end());
        if read != written {
            return Err(MigrateError::Differs { table: table.name, read: read.0, written: written.0 });
        }
        copied.push(TableCopied { table: table.name, rows: read.0, sha256: read.1 });
    }
    let last = from.last_number().await.map_err(of_source)?;
    to.set_last_number(last).await.map_err(of_target)?;
    to.commit().await.map_err(of_target)?;
    Ok(copied)
}

/// Whether these are the tables that are copied: an additional one would be lost silently.
fn known(side: &str, tables: &BTreeSet<String>) -> Result<(), MigrateError> {
    let copied = TABLES.iter().map(|t| t.name);
    let known: BTreeSet<String> = copied.chain(OWN_TABLES.iter().copied()).map(str::to_owned).collect();
    let unmatched: Vec<&str> = known.symmetric_difference(tables).map(String::as_str).collect();
    if unmatched.is_empty() {
        return Ok(());
    }
    Err(MigrateError::Tables(format!("{} on one side of {side} only", unmatched.join(", "))))
}

/// A table's columns on both sides, in the same order.
struct Columns {
    source: Vec<Column>,
    target: Vec<Column>,
}

fn common(table: &Table, source: Vec<Column>, target: Vec<Column>) -> Result<Columns, MigrateError> {
    let sorted = |mut columns: Vec<Column>| {
        columns.retain(|column| !OWN_COLUMNS.contains(&(table.name, column.name.as_str())));
        columns.sort_by(|a, b| a.name.cmp(&b.name));
        columns
    };
    let (source, target) = (sorted(source), sorted(target));
    if source.iter().map(|c| &c.name).eq(target.iter().map(|c| &c.name)) {
        return Ok(Columns { source, target });
    }
    let names = |columns: &[Column]| columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(", ");
    let detail = format!("{}: {} there, {} here", table.name, names(&source), names(&target));
    Err(MigrateError::Tables(detail))
}

fn key_of(table: &Table, columns: &[Column], row: &[Value]) -> Vec<Value> {
    let value = |name: &&str| columns.iter().zip(row).find(|(c, _)| c.name == *name).map(|(_, value)| value.clone());
    table.key.iter().filter_map(value).collect()
}

async fn sum(side: &mut impl Side, table: &Table, columns: &[Column]) -> Result<Sum, StoreError> {
    let mut sum = Sum::default();
    let mut after = None;
    loop {
        let rows = side.page(table, columns, after.take()).await?;
        let Some(last) = rows.last() else { return Ok(sum) };
        after = Some(key_of(table, columns, last));
        sum.add(&rows);
    }
}

/// Count and checksum of rows.
#[derive(Default)]
struct Sum {
    rows: u64,
    hash: Sha256,
}

impl Sum {
    fn add(&mut self, rows: &[Vec<Value>]) {
        self.rows += rows.len() as u64;
        for value in rows.iter().flatten() {
            let (tag, bytes): (u8, &[u8]) = match value {
                Value::Nothing => (0, &[]),
                Value::Number(number) => (1, &number.to_be_bytes()),
                Value::Real(real) => (2, &real.to_bits().to_be_bytes()),
                Value::Text(text) => (3, text.as_bytes()),
                Value::Bytes(bytes) => (4, bytes),
            };
            self.hash.update([tag]);
            self.hash.update((bytes.len() as u64).to_be_bytes());
            self.hash.update(bytes);
        }
    }

    fn end(self) -> (u64, String) {
        let mut hex = String::new();
        for byte in self.hash.finalize() {
            let _ = write!(hex, "{byte:02x}");
        }
        (self.rows, hex)
    }
}
