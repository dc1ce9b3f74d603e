//! Code that both databases share: the store around a database, the queries whose SQL is the same on both, reading rows, and
//! the writes of a batch. A database supplies its connections and the statements of its own dialect.

mod breakers;
mod cell;
mod columns;
mod dead_letters;
mod deletions;
mod documents;
mod facts;
mod keys;
mod log;
mod nodes;
mod operations;
mod outbox;
mod recent;
mod records;
mod secrets;
mod shared_texts;
mod trouble;
mod usage;
mod writes;

use std::time::Instant;

use annie_core::{
    event::Scope,
    ids::{ConversationId, NodeIncarnation, OutboxId, TaskId, UserId},
    ports::{Append, Notification, Renewal, StoreError},
    time::Micros,
};

use crate::admission::Head;

pub use cell::Cell;
pub(crate) use columns::cells_of;
pub use columns::{Cells, Columns};
pub use deletions::Step;
pub use documents::{DUE_DOCUMENTS, document_hit_of, document_of, due_document_of, exported_of, written_of};
pub use facts::{Verdict, judge, learn_fact, writes};
pub use log::{event_of, head_of};
pub use outbox::notification_of;
pub use recent::{Recent, guards};
pub use shared_texts::SharedTexts;
use trouble::Trouble;
pub use writes::{Kind, Row, Writes};

/// A store on a database that speaks SQL.
pub struct SqlStore<D> {
    pub(crate) db: D,
    trouble: Trouble,
}

/// A database that executes SQL.
pub trait Database: Send + Sync + 'static {
    /// Type of its rows.
    type Row: Cells + Send + Sync;

    /// Reads undelivered final messages with their tasks.
    const OUTBOX: &'static str;
    /// Reads those that no channel has to deliver.
    const TO_NOTIFY: &'static str;
    /// Reads the oldest message of each address of a channel.
    const TO_SEND: &'static str;
    /// Stores a snapshot, if the epoch is still the conversation's.
    const PUT_SNAPSHOT: &'static str;

    /// Locks the row of a conversation against changes by other transactions.
    const LOCK_CONVERSATION: &'static str;

    /// Executes statements in one transaction, and returns the rows of each. All of it may be executed twice. What the statements
    /// remove is overwritten, if the database can do that.
    fn steps(
        &self,
        what: &'static str,
        steps: Vec<Step>,
    ) -> impl Future<Output = Result<Vec<Vec<Self::Row>>, StoreError>> + Send;

    /// See [`annie_core::ports::Deletions::compact`].
    fn compact(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Runs a query that changes nothing.
    fn query(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Executes one statement that writes, in a transaction of its own.
    fn execute(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// See [`annie_core::ports::Log::commit`].
    fn commit(&self, batch: Vec<Append>) -> impl Future<Output = Vec<Verdict>> + Send;

    /// Deletes nodes that ended at least the given number of microseconds ago.
    const FORGET_NODES: &'static str;
    /// Registers an incarnation of a node, with a lease in microseconds, in place of an earlier one.
    const REGISTER_NODE: &'static str;
    /// Marks an incarnation as ended.
    const END_NODE: &'static str;

    /// See [`annie_core::ports::Nodes::renew_node`]; the lease is in microseconds.
    fn renew_node(
        &self,
        incarnation: NodeIncarnation,
        lease_us: i64,
        may_end_others: bool,
    ) -> impl Future<Output = Result<Renewal, StoreError>> + Send;

    /// Executes a claim and returns the conversation's head after it; `None` if the statement found no conversation that it may
    /// claim.
    fn claim(
        &self,
        how: &'static str,
        conversation: ConversationId,
        by: NodeIncarnation,
    ) -> impl Future<Output = Result<Option<Head>, StoreError>> + Send;

    /// Waits until every append that was abandoned before its answer is either stored or certain never to be: a commit whose
    /// future was dropped, or one with an unknown outcome. The wait for a server that does not answer is limited.
    fn settle(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// See [`annie_core::ports::Records::rebuild`].
    fn rebuild(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// See [`annie_core::ports::Outbox::delivered`].
    fn deliver(&self, ids: Vec<OutboxId>, at: Micros) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// See [`annie_core::ports::Outbox::notify`].
    fn notify(
        &self,
        user: UserId,
        text: String,
        words: Vec<(OutboxId, TaskId)>,
        at: Micros,
    ) -> impl Future<Output = Result<Option<Notification>, StoreError>> + Send;

    /// See [`annie_core::ports::Outbox::sweep_outbox`].
    fn sweep(&self, before: Micros) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

impl<D> SqlStore<D> {
    pub(crate) fn new(db: D) -> Self {
        Self { db, trouble: Trouble::default() }
    }
}

impl<D: Database> SqlStore<D> {
    /// Runs a query, and records whether it failed.
    async fn query(&self, what: &'static str, sql: &'static str, bound: Vec<Cell>) -> Result<Vec<D::Row>, StoreError> {
        let answer = self.db.query(what, sql, bound).await;
        self.trouble.note(what, answer.as_ref().err(), Instant::now());
        answer
    }

    /// Executes a write, and records whether it failed.
    async fn execute(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
    ) -> Result<Vec<D::Row>, StoreError> {
        let answer = self.db.execute(what, sql, bound).await;
        self.trouble.note(what, answer.as_ref().err(), Instant::now());
        answer
    }

    /// The rows of a query, each converted by `read`.
    pub(crate) async fn list<T>(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
        read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError> + Send,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.query(what, sql, bound).await?;
        rows.iter().map(|row| read(&mut Columns::of(row))).collect()
    }

    /// The first row of a query.
    pub(crate) async fn one<T>(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
        read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError> + Send,
    ) -> Result<Option<T>, StoreError> {
        let rows = self.query(what, sql, bound).await?;
        rows.first().map(|row| read(&mut Columns::of(row))).transpose()
    }
}

/// The user to whose rows a scope is limited; `None` for the operator.
pub fn user_of(scope: Scope) -> Option<String> {
    match scope {
        Scope::User(user) => Some(user.as_str().to_owned()),
        Scope::Operator => None,
    }
}

/// A value as JSON text.
pub fn json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError {
        kind: annie_core::ports::StoreErrorKind::Internal,
        what: "writing JSON",
        detail: e.to_string(),
    })
}

/// A count as the signed number that databases store; a count beyond the range becomes the largest number.
pub fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The error for stored data that cannot be read.
pub fn corrupt(what: &'static str, detail: impl ToString) -> StoreError {
    StoreError { kind: annie_core::ports::StoreErrorKind::Corrupt, what, detail: detail.to_string() }
}

#[cfg(test)]
pub mod texts {
    //! The queries that must find their rows by an index.
    pub use super::{
        dead_letters::*, log::OPEN_CONVERSATIONS, nodes::OPEN_FOR, operations::*, outbox::*, records::OPEN_TASKS,
    };
}
