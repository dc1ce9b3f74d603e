//! Maps the database's errors to the port's kinds.

use annie_core::ports::{StoreError, StoreErrorKind};
use sqlx::migrate::MigrateError;

/// SQLite's primary result codes (the low byte of the extended ones).
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const CONSTRAINT: i32 = 19;
const NOTADB: i32 = 26;
/// The shared-memory file beside the database could not grow: no space for it.
const IOERR_SHMSIZE: i32 = 10 | 19 << 8;

/// An error of the database while doing `what`.
pub(super) fn failed(what: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| StoreError { kind: kind_of(&error), what, detail: error.to_string() }
}

/// An error of the file system while doing `what`.
pub(super) fn failed_io(what: &'static str) -> impl Fn(std::io::Error) -> StoreError {
    move |error| StoreError { kind: kind_of_io(&error), what, detail: error.to_string() }
}

/// The error for tables that could not be brought up to date.
pub(super) fn failed_migration(error: MigrateError) -> StoreError {
    const WHAT: &str = "bringing the tables up to date";
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => failed(WHAT)(error),
        // The database was written by a newer Annie, or a migration file was changed.
        error => StoreError { kind: StoreErrorKind::Corrupt, what: WHAT, detail: error.to_string() },
    }
}

/// Whether a write violated a constraint of a table or a guard.
pub(super) fn is_constraint(error: &sqlx::Error) -> bool {
    code_of(error).is_some_and(|code| code & 0xff == CONSTRAINT)
}

fn code_of(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn kind_of(error: &sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Database(_) if misses_a_part_of_the_schema(error) => StoreErrorKind::Corrupt,
        sqlx::Error::Database(_) => code_of(error).map_or(StoreErrorKind::Internal, kind_of_code),
        sqlx::Error::Io(error) => kind_of_io(error),
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => StoreErrorKind::Unavailable,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Internal,
    }
}

/// Whether a table or column is missing. Every statement matches the tables that the migrations create, so a missing part was
/// lost or renamed in the file. SQLite has no error code of its own for this.
fn misses_a_part_of_the_schema(error: &sqlx::Error) -> bool {
    let message = error.as_database_error().map_or("", |error| error.message());
    ["no such column", "no such table", "has no column named"].iter().any(|part| message.contains(part))
}

const fn kind_of_code(code: i32) -> StoreErrorKind {
    match (code, code & 0xff) {
        (IOERR_SHMSIZE, _) | (_, FULL) => StoreErrorKind::Full,
        (_, BUSY | LOCKED) => StoreErrorKind::Locked,
        (_, CORRUPT | NOTADB) => StoreErrorKind::Corrupt,
        (_, READONLY | IOERR | CANTOPEN) => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Internal,
    }
}

fn kind_of_io(error: &std::io::Error) -> StoreErrorKind {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreErrorKind::Full,
        _ => StoreErrorKind::Unavailable,
    }
}
