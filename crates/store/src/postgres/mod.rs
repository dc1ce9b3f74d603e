//! The store for many processes: one PostgreSQL database that any of them may write. No process decides by its own memory: who
//! owns a conversation, which sequence number an event gets and whether a run may start are decided by rows that a statement
//! locks, compares and changes. A notification tells the other processes that there is something new, and may be lost.
//!
//! The connections go to the server itself, or to a pooler that gives each of them a server connection of its own. A pooler
//! that changes the server connection between transactions would lose prepared statements and LISTEN.
//!
//! One file for each noun, with its SQL beside its use. SQL that both databases share is in [`crate::sql`].

mod batch;
mod bound;
mod commit;
mod connections;
mod deletions;
mod documents;
mod errors;
mod nodes;
mod outbox;
mod rebuild;
#[cfg(test)]
mod tests;
pub(crate) mod texts;
mod transaction;
mod wakeups;

use std::sync::Arc;

use annie_core::{
    ids::{ConversationId, NodeIncarnation, OutboxId, TaskId, UserId},
    ports::{Append, Fut, Notification, Renewal, Store, StoreError, StoreErrorKind},
    time::Micros,
};
use parking_lot::Mutex;
use sqlx::{
    ConnectOptions, Connection,
    postgres::{PgConnectOptions, PgRow},
};

use bound::Bound;
use connections::Connections;
use errors::{Failure, failed_migration};
use wakeups::Wakeups;

pub(crate) use texts::{kept, shown};

use crate::{
    PostgresAddress, PostgresOptions,
    admission::Head,
    migrations,
    sql::{Cell, Columns, Database, Recent, SqlStore, Step, Verdict, cells_of, head_of},
};

/// The most prepared statements of a connection.
const STATEMENTS_MAX: usize = 512;
/// How long a transaction may wait for its next statement, in milliseconds: a process that is frozen within a transaction does
/// not keep its row locks longer.
const IDLE_IN_TRANSACTION_MS_MAX: u64 = 3_000;
/// How long one process waits for another one that brings the tables up to date, in milliseconds.
const MIGRATION_LOCK_MS_MAX: u64 = 60_000;

cells_of!(PgRow, shown);

/// The store on PostgreSQL.
pub type PostgresStore = SqlStore<Postgres>;

/// The database.
pub struct Postgres {
    connections: Arc<Connections>,
    recent: Mutex<Recent>,
    wakeups: Wakeups,
}

impl PostgresStore {
    /// Opens the database and brings its tables up to date. Several processes may do so at once.
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached or refuses the login; `Locked` if another process brings the tables up to
    /// date for too long; `Corrupt` if the database was written by a newer Annie or does not store texts as UTF-8.
    pub async fn open(address: &PostgresAddress, options: PostgresOptions) -> Result<Self, StoreError> {
        migrate(address, &options).await?;
        let connections = Arc::new(Connections::new(
            connect_options(address, &options),
            options.connections_max.max(1),
            options.connect_ms_max,
            options.statement_ms_max,
        ));
        let wakeups = Wakeups::open(&connections, listen_options(address)).await?;
        let db = Postgres { connections, recent: Mutex::default(), wakeups };
        db.index_documents().await?;
        Ok(Self::new(db))
    }
}

/// Settings that the server's owner may have changed and on which this store depends.
fn connect_options(address: &PostgresAddress, options: &PostgresOptions) -> PgConnectOptions {
    let statement_ms = options.statement_ms_max.to_string();
    let idle_ms = IDLE_IN_TRANSACTION_MS_MAX.to_string();
    base_options(address).statement_cache_capacity(STATEMENTS_MAX).options([
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("statement_timeout", &*statement_ms),
        ("idle_in_transaction_session_timeout", &*idle_ms),
        // The same few statements are executed again and again, and none needs a plan of its own.
        ("plan_cache_mode", "force_generic_plan"),
        ("jit", "off"),
    ])
}

fn base_options(address: &PostgresAddress) -> PgConnectOptions {
    address.connect_options().disable_statement_logging()
}

fn listen_options(address: &PostgresAddress) -> PgConnectOptions {
    base_options(address).options([("idle_session_timeout", "0")])
}

async fn migrate(address: &PostgresAddress, options: &PostgresOptions) -> Result<(), StoreError> {
    const WHAT: &str = "opening the database";
    let lock_ms = MIGRATION_LOCK_MS_MAX.to_string();
    let settings = base_options(address).options([
        ("lock_timeout", &*lock_ms),
        ("statement_timeout", "0"),
        ("synchronous_commit", "on"),
    ]);
    let connections = Connections::new(settings, 1, options.connect_ms_max, options.statement_ms_max);
    let mut patience = connections.patience();
    let mut connection = loop {
        match connections.connect().await {
            Ok(connection) => break connection,
            Err(failure) => patience.after(failure).await.map_err(|failure| failure.during(WHAT))?,
        }
    };
    let encoding: String = sqlx::query_scalar("SELECT current_setting('server_encoding')")
        .fetch_one(&mut connection)
        .await
        .map_err(|error| Failure::from(error).during(WHAT))?;
    if encoding != "UTF8" {
        let detail = format!("the database keeps texts as {encoding}; it must be UTF8");
        return Err(StoreError { kind: StoreErrorKind::Corrupt, what: WHAT, detail });
    }
    migrations::postgres().run_direct(None, &mut connection, false).await.map_err(failed_migration)?;
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "closing the connection that brought the tables up to date");
    }
    Ok(())
}

impl Database for Postgres {
    type Row = PgRow;

    const LOCK_CONVERSATION: &'static str = "SELECT id FROM conversations WHERE id = $1 FOR NO KEY UPDATE";
    const OUTBOX: &'static str = outbox::OUTBOX;
    const TO_NOTIFY: &'static str = outbox::TO_NOTIFY;
    const TO_SEND: &'static str = outbox::TO_SEND;
    const FORGET_NODES: &'static str = nodes::FORGET;
    const REGISTER_NODE: &'static str = nodes::REGISTER;
    const END_NODE: &'static str = nodes::END;
    // The row is locked, not only read: a concurrent claim waits, and a snapshot of a former owner is not stored.
    const PUT_SNAPSHOT: &'static str = "INSERT INTO snapshots (conversation_id, seq, v, state) \
         SELECT id, $2, $3, $4 FROM (SELECT id FROM conversations WHERE id = $1 AND owner_epoch = $5 FOR SHARE) owned \
         ON CONFLICT (conversation_id) DO UPDATE SET seq = excluded.seq, v = excluded.v, state = excluded.state \
         WHERE excluded.seq >= snapshots.seq";

    async fn query(&self, what: &'static str, sql: &'static str, bound: Vec<Cell>) -> Result<Vec<PgRow>, StoreError> {
        self.connections.read(what, sql, || Bound::of(bound.clone())).await
    }

    // Every one of these statements may be executed twice, if the answer to the first was lost.
    async fn execute(&self, what: &'static str, sql: &'static str, bound: Vec<Cell>) -> Result<Vec<PgRow>, StoreError> {
        self.connections.rows(what, sql, || Bound::of(bound.clone())).await
    }

    async fn commit(&self, batch: Vec<Append>) -> Vec<Verdict> {
        self.commit_batch(batch).await
    }

    async fn steps(&self, what: &'static str, steps: Vec<Step>) -> Result<Vec<Vec<PgRow>>, StoreError> {
        self.run_steps(what, steps).await
    }

    /// The server's autovacuum frees the space of deleted rows.
    async fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn claim(
        &self,
        how: &'static str,
        conversation: ConversationId,
        by: NodeIncarnation,
    ) -> Result<Option<Head>, StoreError> {
        let claim = vec![by.uuid().into(), conversation.uuid().into()];
        let rows = self.execute("claiming a conversation", how, claim).await?;
        let head = rows.first().map(|row| head_of(&mut Columns::of(row))).transpose()?;
        if let Some(head) = &head {
            self.recent.lock().learn_head(conversation, head.clone());
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
        self.connections.settle().await
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

impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn woken(&self) -> Fut<'_, ()> {
        Box::pin(self.db.wakeups.received())
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            self.db.wakeups.close();
            self.db.connections.close().await;
        })
    }
}
