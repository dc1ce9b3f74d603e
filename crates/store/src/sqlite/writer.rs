//! The one connection that writes, behind a mutex. A holder of the mutex that fails, or whose future is dropped, may
//! leave a transaction open. The next holder rolls that transaction back before it does anything else.

use annie_core::ports::{StoreError, StoreErrorKind};
use sqlx::{
    AssertSqlSafe, Connection,
    sqlite::{SqliteConnection, SqliteRow},
};
use tokio::sync::{MappedMutexGuard, MutexGuard};

use super::{
    FolderLock, Sqlite,
    errors::{failed, is_constraint},
    statements::Statements,
};
use crate::sql::Recent;

/// Deleted content is overwritten with zeros. Only in transactions that delete, because each append would pay for it.
const OVERWRITE: &str = "PRAGMA secure_delete = ON";
const LEAVE: &str = "PRAGMA secure_delete = OFF";

/// The connection, and whether a transaction may be open on it.
pub(super) struct Writer {
    connection: SqliteConnection,
    open: bool,
    /// Whether deleted content may be overwritten on it.
    overwrites: bool,
    recent: Recent,
    /// Never read: the system releases the folder's lock with the file, however the process ends.
    _lock: FolderLock,
}

impl Writer {
    pub fn new(connection: SqliteConnection, lock: FolderLock) -> Self {
        Self { connection, open: false, overwrites: false, recent: Recent::default(), _lock: lock }
    }

    /// Moves the write-ahead log into the database and closes it. A failure here makes the next start slower and loses no data.
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
            // Fails when SQLite has rolled back by itself (as on a full disk). A transaction that is still open would make the
            // next BEGIN fail.
            if let Err(error) = sqlx::query("ROLLBACK").execute(&mut self.connection).await {
                tracing::debug!(%error, "rolling back");
            }
            self.open = false;
        }
        if self.overwrites {
            match sqlx::query(LEAVE).execute(&mut self.connection).await {
                Ok(_) => self.overwrites = false,
                Err(error) => tracing::debug!(%error, "leaving deleted content"),
            }
        }
    }

    async fn send(&mut self, statements: Statements) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let (text, arguments) = statements.finish()?;
        sqlx::query_with(AssertSqlSafe(text), arguments).fetch_all(&mut self.connection).await
    }
}

/// Exclusive access to the writer.
pub(super) struct WriterGuard<'a> {
    writer: MappedMutexGuard<'a, Writer>,
    what: &'static str,
}

impl Sqlite {
    /// Waits for exclusive access to the writer.
    pub(super) async fn lock_writer(&self, what: &'static str) -> Result<WriterGuard<'_>, StoreError> {
        let guard = self.writer.lock().await;
        let mut writer = MutexGuard::try_map(guard, Option::as_mut).map_err(|_| StoreError {
            kind: StoreErrorKind::Unavailable,
            what,
            detail: "the store is closed".to_owned(),
        })?;
        writer.roll_back().await;
        Ok(WriterGuard { writer, what })
    }

    /// Executes one statement in autocommit mode.
    pub(super) async fn write(&self, what: &'static str, statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        self.lock_writer(what).await?.send(statements).await
    }
}

impl WriterGuard<'_> {
    /// Executes statements outside of a transaction or within an open one.
    pub async fn send(&mut self, statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        self.writer.send(statements).await.map_err(failed(self.what))
    }

    /// Executes one statement in autocommit mode. Returns false, and nothing is stored, if the statement violates a
    /// constraint or a guard.
    pub async fn attempt(&mut self, statement: Statements) -> Result<bool, StoreError> {
        match self.writer.send(statement).await {
            Ok(_) => Ok(true),
            Err(error) if is_constraint(&error) => Ok(false),
            Err(error) => Err(failed(self.what)(error)),
        }
    }

    /// Executes statements of which the first is BEGIN.
    pub async fn begin(&mut self, statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        self.writer.open = true;
        self.send(statements).await
    }

    /// Executes statements and COMMIT. If anything fails, nothing of the transaction is stored.
    pub async fn commit(&mut self, mut statements: Statements) -> Result<Vec<SqliteRow>, StoreError> {
        statements.push("COMMIT;");
        let rows = self.send(statements).await?;
        self.writer.open = false;
        Ok(rows)
    }

    /// Rolls back the open transaction, if there is one.
    pub async fn roll_back(&mut self) {
        self.writer.roll_back().await;
    }

    /// Deleted content is overwritten with zeros until the next holder of the writer.
    pub async fn overwrite(&mut self) -> Result<(), StoreError> {
        self.writer.overwrites = true;
        self.send(Statements::one(OVERWRITE, Vec::new())).await.map(drop)
    }

    /// The facts in memory, as the last commits left them.
    pub fn recent(&mut self) -> &mut Recent {
        &mut self.writer.recent
    }
}
