//! The read-only connections. Each one runs one query at a time and is opened when it is first needed. A query costs one trip
//! to a connection's thread (a general connection pool would ping the connection on return, which is a second trip).

use annie_core::ports::{StoreError, StoreErrorKind};
use parking_lot::Mutex;
use sqlx::{
    ConnectOptions, Connection,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow},
};
use tokio::sync::Semaphore;

use super::errors::failed;

/// The connections, limited in number.
pub(super) struct Readers {
    options: SqliteConnectOptions,
    permits: Semaphore,
    connections_max: u32,
    idle: Mutex<Vec<SqliteConnection>>,
}

impl Readers {
    /// Opens the first connection.
    pub async fn open(options: SqliteConnectOptions, connections_max: u32) -> Result<Self, StoreError> {
        let first = options.connect().await.map_err(failed("opening the database for reading"))?;
        let permits = Semaphore::new(connections_max as usize);
        Ok(Self { options, permits, connections_max, idle: Mutex::new(vec![first]) })
    }

    /// All rows of a query.
    pub async fn rows(
        &self,
        what: &'static str,
        sql: &'static str,
        arguments: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let _permit = self.permits.acquire().await.map_err(|_| StoreError {
            kind: StoreErrorKind::Unavailable,
            what,
            detail: "the store is closed".to_owned(),
        })?;
        // A statement of its own; otherwise the lock would be held while a connection is opened.
        let idle = self.idle.lock().pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => self.options.connect().await.map_err(failed("opening the database for reading"))?,
        };
        let rows = sqlx::query_with(sql, arguments).fetch_all(&mut reader).await.map_err(failed(what))?;
        // A connection that failed, or whose query was abandoned in the middle, is closed instead.
        self.idle.lock().push(reader);
        Ok(rows)
    }

    /// Waits until all readers are returned, and closes them.
    pub async fn close(&self) {
        let all = self.permits.acquire_many(self.connections_max).await;
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle.lock());
        for reader in idle {
            if let Err(error) = reader.close().await {
                tracing::debug!(%error, "closing the database for reading");
            }
        }
        drop(all);
    }
}
