//! The connections that only read: each is used by one question at a time and opened when it is first needed. A question
//! costs one trip to a connection's thread (a pool that looks after any kind of database would ask on return whether the
//! connection is still there, which is a second one).

use annie_core::ports::{StoreError, StoreErrorKind};
use parking_lot::Mutex;
use sqlx::{
    ConnectOptions, Connection,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow},
};
use tokio::sync::Semaphore;

use super::errors::failed;

/// Connections, at most as many as there are places.
pub(super) struct Readers {
    options: SqliteConnectOptions,
    places: Semaphore,
    places_max: u32,
    idle: Mutex<Vec<SqliteConnection>>,
}

impl Readers {
    /// Opens the first one.
    pub async fn open(options: SqliteConnectOptions, places_max: u32) -> Result<Self, StoreError> {
        let first = options.connect().await.map_err(failed("opening the database for reading"))?;
        let places = Semaphore::new(places_max as usize);
        Ok(Self { options, places, places_max, idle: Mutex::new(vec![first]) })
    }

    /// All rows of a question.
    pub async fn rows(
        &self,
        what: &'static str,
        sql: &'static str,
        arguments: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let _place = self.places.acquire().await.map_err(|_| StoreError {
            kind: StoreErrorKind::Unavailable,
            what,
            detail: "the store is closed".to_owned(),
        })?;
        // A statement of its own, or the lock would be held while a connection is opened.
        let idle = self.idle.lock().pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => self.options.connect().await.map_err(failed("opening the database for reading"))?,
        };
        let rows = sqlx::query_with(sql, arguments).fetch_all(&mut reader).await.map_err(failed(what))?;
        // One that failed, or whose question was given up in the middle, is closed instead.
        self.idle.lock().push(reader);
        Ok(rows)
    }

    /// Waits for those who read and closes.
    pub async fn close(&self) {
        let all = self.places.acquire_many(self.places_max).await;
        self.places.close();
        let idle = std::mem::take(&mut *self.idle.lock());
        for reader in idle {
            if let Err(error) = reader.close().await {
                tracing::debug!(%error, "closing the database for reading");
            }
        }
        drop(all);
    }
}
