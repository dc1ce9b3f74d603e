//! The only writes to the log. A batch of appends is one transaction, on one of two paths.
//!
//! - The fast path, `at_once`, judges the batch by facts in memory: the heads of conversations and the unfinished runs
//!   as the last commits left them ([`crate::sql::Recent`]). If these facts admit every append, one statement writes
//!   the batch. Its first rows are guards, which abort the statement if the database differs from these facts. Nothing
//!   is stored then, and the slow path follows.
//! - The slow path begins a transaction with BEGIN IMMEDIATE and reads the facts, so that no other connection can
//!   change them before the commit. It judges the batch by these facts, writes the admitted appends and commits.
//!
//! Only the slow path refuses an append, because the facts in memory may be outdated. A refused append, such as one
//! with a stale epoch, writes nothing.
//!
//! If the caller drops the future of a commit, a statement that was sent already is still executed by the connection's
//! thread. The thread executes later statements after it.

use std::sync::atomic::Ordering::SeqCst;

use annie_core::ports::{Append, AppendError, StoreError};
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{
    Sqlite,
    batch::{self, ROWS_MAX},
    statements::Statements,
    writer::WriterGuard,
};
use crate::{
    admission::{Admission, Needs, Proposal},
    sql::{Columns, Row, SharedTexts, Verdict, judge, learn_fact, writes},
};

const WHAT: &str = "committing appends";

const READ_HEADS: &str = "SELECT 0, id, user_id, owner_epoch, next_seq, deleted_at FROM conversations WHERE id IN (";
const READ_MESSAGES: &str = "SELECT 1, user_id, client_id, id, conversation_id, seq, text_sha256 FROM tasks \
     WHERE (user_id, client_id) IN (VALUES ";
const READ_TASKS: &str = "SELECT 2, id FROM tasks WHERE id IN (";
const READ_INTENTS: &str = "SELECT 3, id, conversation_id, effect, state FROM intents WHERE id IN (";

impl Sqlite {
    pub(super) async fn commit_batch(&self, batch: Vec<Append>) -> Vec<Verdict> {
        let proposals: Vec<Proposal> = batch.into_iter().map(Proposal::new).collect();
        if proposals.is_empty() {
            return Vec::new();
        }
        match self.judge_and_write(&proposals).await {
            Ok(verdicts) => verdicts,
            Err(error) => proposals.iter().map(|_| Err(AppendError::Store(error.clone()))).collect(),
        }
    }

    async fn judge_and_write(&self, proposals: &[Proposal]) -> Result<Vec<Verdict>, StoreError> {
        let mut guard = self.lock_writer(WHAT).await?;
        self.is_committing.store(true, SeqCst);
        let verdicts = write_with(&mut guard, proposals).await;
        self.is_committing.store(false, SeqCst);
        verdicts
    }

    /// Waits until the writer has finished every commit that was sent.
    pub(super) async fn settle_commits(&self) -> Result<(), StoreError> {
        if self.is_committing.load(SeqCst) {
            let mut guard = self.lock_writer("waiting for commits").await?;
            guard.send(Statements::one("SELECT 1", Vec::new())).await?;
            self.is_committing.store(false, SeqCst);
        }
        Ok(())
    }
}

async fn write_with(guard: &mut WriterGuard<'_>, proposals: &[Proposal]) -> Result<Vec<Verdict>, StoreError> {
    let needs = Needs::of(proposals);
    if let Some(verdicts) = at_once(guard, &needs, proposals).await? {
        return Ok(verdicts);
    }
    let mut admission = admission_of(&guard.begin(facts(&needs)).await?)?;
    let verdicts = judge(&mut admission, proposals);
    let (written, texts) = match writes(proposals, &verdicts, &SharedTexts::default()) {
        Ok(writes) => {
            let texts = writes.texts();
            (write(guard, writes.rows()).await, texts)
        }
        Err(error) => (Err(error), Vec::new()),
    };
    if !matches!(written, Ok(true)) {
        guard.roll_back().await;
    }
    if written? {
        guard.recent().texts.learn(texts);
    }
    guard.recent().learn(admission);
    Ok(verdicts)
}

/// The fast path. Returns `None`, and stores nothing, if the facts in memory do not admit every append, if they are
/// outdated, or if the batch does not fit into one statement.
async fn at_once(
    guard: &mut WriterGuard<'_>,
    needs: &Needs,
    proposals: &[Proposal],
) -> Result<Option<Vec<Verdict>>, StoreError> {
    let (mut admission, mut rows) = guard.recent().facts(needs);
    let verdicts = judge(&mut admission, proposals);
    if verdicts.iter().any(Result::is_err) || proposals.iter().map(|p| p.events.len()).sum::<usize>() > ROWS_MAX {
        return Ok(None);
    }
    let writes = writes(proposals, &verdicts, &guard.recent().texts)?;
    let texts = writes.texts();
    rows.extend(writes.rows());
    if rows.len() > ROWS_MAX {
        return Ok(None);
    }
    for statement in batch::statements(rows) {
        if !guard.attempt(statement).await? {
            return Ok(None);
        }
    }
    guard.recent().learn(admission);
    guard.recent().texts.learn(texts);
    Ok(Some(verdicts))
}

/// BEGIN IMMEDIATE, and the queries for the facts of the batch. Lists are padded to a power of two by repeating their
/// last entry, so that few different statement texts are prepared.
fn facts(needs: &Needs) -> Statements {
    let mut statements = Statements::begin();
    ids(&mut statements, READ_HEADS, needs.conversations.iter().map(|c| c.uuid()));
    if let Some(last) = needs.messages.last() {
        let padded_len = needs.messages.len().next_power_of_two();
        statements.push(READ_MESSAGES).push_list("(?, ?)", padded_len).push(");");
        for (user, client_id) in needs.messages.iter().chain(std::iter::repeat(last)).take(padded_len) {
            statements.with(user.as_str().to_owned()).with(client_id.clone());
        }
    }
    ids(&mut statements, READ_TASKS, needs.tasks.iter().map(|t| t.uuid()));
    ids(&mut statements, READ_INTENTS, needs.intents.iter().map(|i| i.uuid()));
    statements
}

fn ids(statements: &mut Statements, query: &'static str, ids: impl ExactSizeIterator<Item = Uuid> + Clone) {
    if let Some(last) = ids.clone().last() {
        let padded_len = ids.len().next_power_of_two();
        statements.push(query).push_list("?", padded_len).push(");");
        for id in ids.chain(std::iter::repeat(last)).take(padded_len) {
            statements.with(id);
        }
    }
}

fn admission_of(rows: &[SqliteRow]) -> Result<Admission, StoreError> {
    let mut admission = Admission::default();
    rows.iter().try_for_each(|row| learn_fact(&mut admission, &mut Columns::of(row)))?;
    Ok(admission)
}

/// Writes and commits; returns whether there was anything to write.
async fn write(guard: &mut WriterGuard<'_>, rows: Vec<Row>) -> Result<bool, StoreError> {
    let mut statements = batch::statements(rows);
    let Some(mut last) = statements.next() else { return Ok(false) };
    for next in statements {
        guard.send(std::mem::replace(&mut last, next)).await?;
    }
    guard.commit(last).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use annie_core::{
        event::{EventBody, NewEvent},
        ids::{AgentId, ConversationId, Epoch, NodeIncarnation, TaskId, UserId},
        ports::{Fence, Log},
        time::Micros,
    };

    use super::*;
    use crate::{Durability, SqliteOptions, SqliteStore};

    const CONVERSATION: ConversationId = ConversationId::from_uuid(Uuid::from_u128(1));

    fn append(fence: Fence) -> Proposal {
        let body = EventBody::Cancelled { text: String::new() };
        let task = TaskId::from_uuid(Uuid::nil());
        let event = NewEvent { at: Micros(1), task, agent: AgentId::orchestrator(), body };
        Proposal::new(Append { conversation: CONVERSATION, user: UserId::local(), fence, events: vec![event] })
    }

    async fn is_one_trip(store: &SqliteStore, fence: Fence) -> bool {
        let batch = [append(fence)];
        let mut guard = store.db.lock_writer(WHAT).await.unwrap();
        at_once(&mut guard, &Needs::of(&batch), &batch).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn sqlite_commit_with_current_facts_takes_one_trip() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions { durability: Durability::Normal, ..SqliteOptions::default() };
        let store = SqliteStore::open(folder.path(), options).await.unwrap();
        assert!(!is_one_trip(&store, Fence::Owner(Epoch(1))).await, "a conversation that does not exist");
        assert!(is_one_trip(&store, Fence::Inbox).await, "a new conversation");
        let claim = store.claim(CONVERSATION, NodeIncarnation::from_uuid(Uuid::nil())).await.unwrap().unwrap();
        assert!(is_one_trip(&store, Fence::Owner(claim.epoch)).await, "an append of the owner");
        assert!(is_one_trip(&store, Fence::Inbox).await, "an append of a front end");
        assert!(!is_one_trip(&store, Fence::Owner(Epoch(0))).await, "an append of an earlier owner");
        let mut moved = Statements::default();
        moved.push("UPDATE conversations SET next_seq = next_seq + 1");
        store.db.write(WHAT, moved).await.unwrap();
        assert!(!is_one_trip(&store, Fence::Inbox).await, "an append to a row that has changed");
    }
}
