//! The embedded store: one SQLite database in a data folder that only this process may use. It has one writer connection, whose
//! transactions begin IMMEDIATE, and a few read-only connections (WAL). Every statement is a trip to the connection's own
//! thread, so statements that belong together are sent as one text: SQLite's driver binds their arguments one after the other
//! and finds the prepared statements by the text.
//!
//! One file for each noun, with its SQL beside its use. SQL that both databases share is in [`crate::sql`].

mod absence;
mod batch;
mod commit;
mod deletions;
mod documents;
mod errors;
mod folder;
mod nodes;
mod outbox;
mod readers;
mod rebuild;
mod reserve;
mod statements;
#[cfg(test)]
mod tests;
mod writer;

use std::{borrow::Cow, path::Path, sync::atomic::AtomicBool, time::Duration};

use annie_core::{
    ids::{ConversationId, NodeIncarnation, OutboxId, TaskId, UserId},
    ports::{Append, Fut, Notification, Renewal, Store, StoreError, StoreErrorKind},
    time::Micros,
};
use sqlx::{
    AssertSqlSafe, ConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous},
};
use tokio::sync::Mutex;

use absence::Absence;
use errors::failed;
use readers::Readers;
use statements::{Bound, Statements};
use writer::Writer;

pub use folder::FolderLock;
use folder::private_file;

use crate::{
    admission::Head,
    migrations,
    sql::{Cell, Columns, Database, SqlStore, Step, Verdict, cells_of, head_of},
};

cells_of!(SqliteRow, Cow::Borrowed);

/// The database's file in the data folder.
const DATABASE_FILE: &str = "annie.db";
/// The most prepared texts of the writer.
const WRITER_STATEMENTS_MAX: usize = 512;
/// Pages in the write-ahead log from which on a commit moves them into the database: 16 MB.
const CHECKPOINT_PAGES: &str = "4000";
/// The writer's page cache: 16 MB (SQLite takes a negative number for KiB).
const WRITER_CACHE_KIB: &str = "-16384";
/// Rows that may wait between a connection's thread and the caller; beyond it the thread waits for the caller.
const ROWS_WAITING_MAX: usize = 512;
/// Reads every page, index and constraint; at most 20 lines of damage.
const INTEGRITY_CHECK: &str = "PRAGMA integrity_check(20)";
/// Bytes of a database page.
const PAGE_BYTES: u64 = 4096;

/// Which failures an acknowledged write survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// A crash of the process and a power cut.
    #[default]
    Full,
    /// A crash of the process. A power cut may undo the last writes (never the middle of the log).
    Normal,
}

/// How to open the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Which failures an acknowledged write survives.
    pub durability: Durability,
    /// How long to wait for a lock on the database that another connection holds, in milliseconds.
    pub busy_timeout_ms: u64,
    /// The most read-only connections.
    pub readers_max: u32,
    /// The largest size of the database in bytes; limited only by the disk if absent.
    pub database_bytes_max: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { durability: Durability::Full, busy_timeout_ms: 5_000, readers_max: 3, database_bytes_max: None }
    }
}

/// The store on SQLite.
pub type SqliteStore = SqlStore<Sqlite>;

/// The database.
pub struct Sqlite {
    writer: Mutex<Option<Writer>>,
    /// Whether a commit is under way, or one was abandoned and the writer has not answered since.
    is_committing: AtomicBool,
    readers: Readers,
    no_documents: Absence,
}

impl SqliteStore {
    /// Opens the database in a data folder, creates both if they are missing, and brings the tables up to date.
    ///
    /// # Errors
    /// `Locked` if another process uses the folder; `Corrupt` if the file is not a database or was written by a newer Annie;
    /// `Unavailable` if the folder cannot be used.
    pub async fn open(folder: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let lock = FolderLock::take(folder)?;
        let (connection, readers) = match Self::connect(folder, &options).await {
            // On a full disk there is no space for the files that SQLite creates beside the database at every start.
            Err(error) if error.kind == StoreErrorKind::Full && reserve::release(folder) => {
                tracing::warn!(%error, "the disk is full: the database opens with the space that is kept for that");
                Self::connect(folder, &options).await?
            }
            other => other?,
        };
        reserve::keep(folder);
        let writer = Mutex::new(Some(Writer::new(connection, lock)));
        let (is_committing, no_documents) = Default::default();
        Ok(Self::new(Sqlite { writer, is_committing, readers, no_documents }))
    }

    /// The writer's connection and the readers, with tables that are up to date.
    async fn connect(folder: &Path, options: &SqliteOptions) -> Result<(SqliteConnection, Readers), StoreError> {
        // SQLite gives the files beside the database the same rights as the database.
        private_file(&folder.join(DATABASE_FILE)).map_err(errors::failed_io("opening the database"))?;
        for beside in ["annie.db-wal", "annie.db-shm"] {
            folder::restrict(&folder.join(beside), 0o600);
        }
        let connect = connect_options(folder, options);
        let mut connection = connect
            .clone()
            .pragma("cache_size", WRITER_CACHE_KIB)
            .connect()
            .await
            .map_err(failed("opening the database"))?;
        migrations::sqlite().run_direct(None, &mut connection, false).await.map_err(errors::failed_migration)?;
        sqlx::raw_sql(AssertSqlSafe(batch::definition()))
            .execute(&mut connection)
            .await
            .map_err(failed("preparing the writer"))?;
        let readers =
            Readers::open(connect.read_only(true).create_if_missing(false), options.readers_max.max(1)).await?;
        Ok((connection, readers))
    }
}

impl Database for Sqlite {
    type Row = SqliteRow;

    const LOCK_CONVERSATION: &'static str = "SELECT id FROM conversations WHERE id = $1";
    const OUTBOX: &'static str = outbox::OUTBOX;
    const TO_NOTIFY: &'static str = outbox::TO_NOTIFY;
    const TO_SEND: &'static str = outbox::TO_SEND;
    const FORGET_NODES: &'static str = nodes::FORGET;
    const REGISTER_NODE: &'static str = nodes::REGISTER;
    const END_NODE: &'static str = nodes::END;
    const PUT_SNAPSHOT: &'static str = "INSERT INTO snapshots (conversation_id, seq, v, state) \
         SELECT id, $2, $3, $4 FROM conversations WHERE id = $1 AND owner_epoch = $5 \
         ON CONFLICT (conversation_id) DO UPDATE SET seq = excluded.seq, v = excluded.v, state = excluded.state \
         WHERE excluded.seq >= snapshots.seq";

    async fn query(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let bound = Bound::of(bound).finish().map_err(failed(what))?;
        self.readers.rows(what, sql, bound).await
    }

    async fn execute(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        self.write(what, Statements::one(sql, bound)).await
    }

    async fn commit(&self, batch: Vec<Append>) -> Vec<Verdict> {
        self.commit_batch(batch).await
    }

    async fn steps(&self, what: &'static str, steps: Vec<Step>) -> Result<Vec<Vec<SqliteRow>>, StoreError> {
        self.run_steps(what, steps).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.rewrite_file().await
    }

    async fn claim(
        &self,
        how: &'static str,
        conversation: ConversationId,
        by: NodeIncarnation,
    ) -> Result<Option<Head>, StoreError> {
        let mut guard = self.lock_writer("claiming a conversation").await?;
        let claim = vec![by.uuid().into(), conversation.uuid().into()];
        let rows = guard.send(Statements::one(how, claim)).await?;
        let head = rows.first().map(|row| head_of(&mut Columns::of(row))).transpose()?;
        if let Some(head) = &head {
            guard.recent().learn_head(conversation, head.clone());
        }
        Ok(head)
    }

    async fn renew_node(
        &self,
        incarnation: NodeIncarnation,
        lease_us: i64,
        may_end_others: bool,
    ) -> Result<Renewal, StoreError> {
        self.renew_lease(incarnation, lease_us, may_end_others).await
    }

    async fn settle(&self) -> Result<(), StoreError> {
        self.settle_commits().await
    }

    async fn rebuild(&self) -> Result<u64, StoreError> {
        self.fold_again().await
    }

    async fn deliver(&self, ids: Vec<OutboxId>, at: Micros) -> Result<(), StoreError> {
        self.mark_delivered(ids, at).await
    }

    async fn notify(
        &self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> Result<Option<Notification>, StoreError> {
        self.store_notification(user, text, words, at).await
    }

    async fn sweep(&self, before: Micros) -> Result<u64, StoreError> {
        self.sweep_old(before).await
    }
}

fn connect_options(folder: &Path, options: &SqliteOptions) -> SqliteConnectOptions {
    let synchronous = match options.durability {
        Durability::Full => SqliteSynchronous::Full,
        Durability::Normal => SqliteSynchronous::Normal,
    };
    let connect = SqliteConnectOptions::new()
        .filename(folder.join(DATABASE_FILE))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous)
        .foreign_keys(true)
        .busy_timeout(Duration::from_millis(options.busy_timeout_ms))
        .statement_cache_capacity(WRITER_STATEMENTS_MAX)
        .row_buffer_size(ROWS_WAITING_MAX)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("temp_store", "memory")
        .disable_statement_logging();
    match options.database_bytes_max {
        Some(bytes) => connect.pragma("max_page_count", (bytes / PAGE_BYTES).max(1).to_string()),
        None => connect,
    }
}

impl Store for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    /// The lock on the data folder excludes other processes.
    fn is_shared(&self) -> bool {
        false
    }

    fn verify_files(&self) -> Fut<'_, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            let rows = self.list("checking the database file", INTEGRITY_CHECK, Vec::new(), |row| row.text()).await?;
            Ok(rows.into_iter().filter(|line| line != "ok").collect())
        })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            let writer = self.db.writer.lock().await.take();
            self.db.readers.close().await;
            if let Some(writer) = writer {
                writer.close().await;
            }
        })
    }
}
