//! What both databases have in common: the store around a database, the questions whose SQL is the same on both, how rows
//! are read and what a batch writes. A database brings its connections and whatever its dialect says in its own way.

mod breakers;
mod cell;
mod columns;
mod facts;
mod keys;
mod letters;
mod log;
mod memories;
mod nodes;
mod operations;
mod outbox;
mod recent;
mod records;
mod todos;
mod trouble;
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
pub use facts::{Verdict, judge, learn_fact, writes};
pub use log::{event_of, head_of};
pub use memories::{hit_of, memory_of, owner_word, saved_of};
pub use outbox::notification_of;
pub use recent::{Recent, guards};
pub use todos::{level, summary_of, todo_of};
use trouble::Trouble;
pub use writes::{Kind, Row, Writes};

/// A store on a database that speaks SQL.
pub struct SqlStore<D> {
    pub(crate) db: D,
    trouble: Trouble,
}

/// A database that is asked and told in SQL.
pub trait Database: Send + Sync + 'static {
    /// What it answers.
    type Row: Cells + Send + Sync;

    /// Final words that wait, with their tasks.
    const OUTBOX: &'static str;
    /// Keeps a snapshot, if the epoch still is the conversation's.
    const PUT_SNAPSHOT: &'static str;

    /// A question that changes nothing.
    fn ask(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// One statement that changes something: a transaction of its own.
    fn tell(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// See [`annie_core::ports::Log::commit`].
    fn commit(&self, batch: Vec<Append>) -> impl Future<Output = Vec<Verdict>> + Send;

    /// Forgets nodes that ended so many microseconds ago.
    const FORGET_NODES: &'static str;
    /// Registers an incarnation of a node, with a lease in microseconds, in place of an earlier one.
    const REGISTER_NODE: &'static str;
    /// Ends an incarnation.
    const END_NODE: &'static str;

    /// See [`annie_core::ports::Nodes::renew_node`]; the lease in microseconds.
    fn renew_node(
        &self,
        incarnation: NodeIncarnation,
        lease_us: i64,
        may_end_others: bool,
    ) -> impl Future<Output = Result<Renewal, StoreError>> + Send;

    /// The conversation as the claim left it; nothing if the claim's text found none that it may take.
    fn claim(
        &self,
        how: &'static str,
        conversation: ConversationId,
        by: NodeIncarnation,
    ) -> impl Future<Output = Result<Option<Head>, StoreError>> + Send;

    /// Waits until every append that was given up before it was answered is stored or never will be: a commit whose future was
    /// dropped, or one whose fate is not known. A server that cannot say so is not waited for for ever.
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
    /// Asks, and remembers whether it failed.
    async fn ask(&self, what: &'static str, sql: &'static str, bound: Vec<Cell>) -> Result<Vec<D::Row>, StoreError> {
        let answer = self.db.ask(what, sql, bound).await;
        self.trouble.note(what, answer.as_ref().err(), Instant::now());
        answer
    }

    /// Writes, and remembers whether it failed.
    async fn tell(&self, what: &'static str, sql: &'static str, bound: Vec<Cell>) -> Result<Vec<D::Row>, StoreError> {
        let answer = self.db.tell(what, sql, bound).await;
        self.trouble.note(what, answer.as_ref().err(), Instant::now());
        answer
    }

    /// The rows of a question, each read by `read`.
    pub(crate) async fn list<T>(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
        read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError> + Send,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.ask(what, sql, bound).await?;
        rows.iter().map(|row| read(&mut Columns::of(row))).collect()
    }

    /// The first row of a question.
    pub(crate) async fn one<T>(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: Vec<Cell>,
        read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError> + Send,
    ) -> Result<Option<T>, StoreError> {
        let rows = self.ask(what, sql, bound).await?;
        rows.first().map(|row| read(&mut Columns::of(row))).transpose()
    }
}

/// Whose rows a scope sees; nobody in particular for the operator.
pub fn user_of(scope: Scope) -> Option<String> {
    match scope {
        Scope::User(user) => Some(user.as_str().to_owned()),
        Scope::Operator => None,
    }
}

/// Words as one JSON list.
pub fn json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError {
        kind: annie_core::ports::StoreErrorKind::Internal,
        what: "writing JSON",
        detail: e.to_string(),
    })
}

/// A count as databases keep numbers; what is beyond their range becomes the largest.
pub fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A stored shape that cannot be read.
pub fn corrupt(what: &'static str, detail: impl ToString) -> StoreError {
    StoreError { kind: annie_core::ports::StoreErrorKind::Corrupt, what, detail: detail.to_string() }
}

#[cfg(test)]
pub mod texts {
    //! The questions that must find their rows by an index.
    pub use super::{
        letters::*, log::OPEN_CONVERSATIONS, nodes::OPEN_FOR, operations::*, outbox::*, records::OPEN_TASKS,
    };
}
