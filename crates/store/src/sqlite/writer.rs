//! The one connection that writes. Whoever holds it owns the transaction; a transaction that was left open, because its
//! holder failed or was dropped in the middle, is rolled back before the next one begins.

use std::fs::File;

use annie_core::ports::{StoreError, StoreErrorKind};
use sqlx::{
    AssertSqlSafe, Connection,
    sqlite::{SqliteConnection, SqliteRow},
};
use tokio::sync::MutexGuard;

use super::{SqliteStore, errors::failed, statements::Statements};

/// The connection, and whether a transaction may be open on it.
pub(super) struct Writer {
    connection: SqliteConnection,
    open: bool,
    /// Held, never read: the system frees the folder's lock with the file, however the process ends.
    _lock: File,
}

impl Writer {
    pub const fn new(connection: SqliteConnection, lock: File) -> Self {
        Self { connection, open: false, _lock: lock }
    }

    /// Moves the write-ahead log into the database and closes; what fails here costs the next start some time, no data.
    pub async fn close(mut self) {
        self.roll_back().await;
        for sql in ["PRAGMA optimize", "PRAGMA wal_checkpoint(TRUNCATE)"] {
            if let Err(error) = sqlx::query(sql).execute(&mut self.connection).await {
                tracing::debug!(%error, sql, "closing the database");
            }
        }
        if let Err(error) = self.connection.close().await {
            tracing::debug!(%error, "closing the database");
        }
    }

    async fn roll_back(&mut self) {
        if self.open {
            // It fails when SQLite has rolled back by itself (a full disk does that); a transaction that were still open
            // would make the next BEGIN fail.
            if let Err(error) = sqlx::query("ROLLBACK").execute(&mut self.connection).await {
                tracing::debug!(%error, "rolling back");
            }
            self.open = false;
        }
    }

    async fn send(&mut self, what: &'static str, statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        let (text, arguments) = statements.finish().map_err(failed(what))?;
        let query = sqlx::query_with(AssertSqlSafe(text), arguments);
        query.fetch_all(&mut self.connection).await.map_err(failed(what))
    }
}

/// The writer in somebody's hands.
pub(super) struct Pen<'a> {
    guard: MutexGuard<'a, Option<Writer>>,
    what: &'static str,
}

impl SqliteStore {
    /// Waits for the writer.
    pub(super) async fn pen(&self, what: &'static str) -> Result<Pen<'_>, StoreError> {
        let mut guard = self.writer.lock().await;
        match guard.as_mut() {
            Some(writer) => writer.roll_back().await,
            None => return Err(closed(what)),
        }
        Ok(Pen { guard, what })
    }

    /// One statement that is a transaction of its own.
    pub(super) async fn write(&self, what: &'static str, statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        self.pen(what).await?.send(statements).await
    }
}

impl Pen<'_> {
    /// Statements outside of a transaction or within an open one.
    pub async fn send(&mut self, statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        let what = self.what;
        match self.guard.as_mut() {
            Some(writer) => writer.send(what, statements).await,
            None => Err(closed(what)),
        }
    }

    /// Statements of which the first is BEGIN.
    pub async fn begin(&mut self, statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        if let Some(writer) = self.guard.as_mut() {
            writer.open = true;
        }
        self.send(statements).await
    }

    /// Statements and COMMIT. If anything fails, nothing of the transaction is stored.
    pub async fn commit(&mut self, mut statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        statements.say("COMMIT;");
        let rows = self.send(statements).await?;
        if let Some(writer) = self.guard.as_mut() {
            writer.open = false;
        }
        Ok(rows)
    }

    /// Gives the transaction up.
    pub async fn roll_back(&mut self) {
        if let Some(writer) = self.guard.as_mut() {
            writer.roll_back().await;
        }
    }
}

fn closed(what: &'static str) -> StoreError {
    StoreError { kind: StoreErrorKind::Unavailable, what, detail: "the store is closed".to_owned() }
}
