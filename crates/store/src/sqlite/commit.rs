//! The only way into the log. A batch is one transaction, and mostly one statement: it is judged by what the last commits
//! left ([`super::recent`]), and its guards make the database refuse all of it if that is no longer so. Then, or if what is
//! remembered does not admit every append, the facts are read first: the transaction begins IMMEDIATE, so that from the
//! first look on nobody else can change what the appends are judged by, and the admitted ones are written and committed in
//! a second trip. Every refusal is given there. An append of a stale epoch finds that its conversation's row has moved on
//! and is refused before anything of it is written.
//!
//! A commit that is given up goes on in the connection's thread if it was sent. What is sent later comes behind it.

use std::sync::atomic::Ordering::SeqCst;

use annie_core::ports::{Append, AppendError, StoreError};
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{
    Sqlite,
    batch::{self, ROWS_MAX},
    statements::Statements,
    writer::Pen,
};
use crate::{
    admission::{Desk, Needs, Proposal},
    sql::{Columns, Row, Verdict, judge, learn_fact, writes},
};

const WHAT: &str = "committing appends";

const READ_HEADS: &str = "SELECT 0, id, user_id, owner_epoch, next_seq FROM conversations WHERE id IN (";
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
        let mut pen = self.pen(WHAT).await?;
        self.is_committing.store(true, SeqCst);
        let verdicts = write_with(&mut pen, proposals).await;
        self.is_committing.store(false, SeqCst);
        verdicts
    }

    /// Waits until the writer is through with every commit that was sent.
    pub(super) async fn settle_commits(&self) -> Result<(), StoreError> {
        if self.is_committing.load(SeqCst) {
            let mut pen = self.pen("waiting for commits").await?;
            pen.send(Statements::one("SELECT 1", Vec::new())).await?;
            self.is_committing.store(false, SeqCst);
        }
        Ok(())
    }
}

async fn write_with(pen: &mut Pen<'_>, proposals: &[Proposal]) -> Result<Vec<Verdict>, StoreError> {
    let needs = Needs::of(proposals);
    if let Some(verdicts) = at_once(pen, &needs, proposals).await? {
        return Ok(verdicts);
    }
    let mut desk = desk_of(&pen.begin(facts(&needs)).await?)?;
    let verdicts = judge(&mut desk, proposals);
    let written = match writes(proposals, &verdicts) {
        Ok(writes) => write(pen, writes.rows()).await,
        Err(error) => Err(error),
    };
    if !matches!(written, Ok(true)) {
        pen.roll_back().await;
    }
    written?;
    pen.recent().learn(desk);
    Ok(verdicts)
}

/// Everything in one trip, if what is remembered admits every append and still is so.
async fn at_once(pen: &mut Pen<'_>, needs: &Needs, proposals: &[Proposal]) -> Result<Option<Vec<Verdict>>, StoreError> {
    let (mut desk, mut rows) = pen.recent().facts(needs);
    let verdicts = judge(&mut desk, proposals);
    if verdicts.iter().any(Result::is_err) || proposals.iter().map(|p| p.events.len()).sum::<usize>() > ROWS_MAX {
        return Ok(None);
    }
    rows.extend(writes(proposals, &verdicts)?.rows());
    if rows.len() > ROWS_MAX {
        return Ok(None);
    }
    for statement in batch::statements(rows) {
        if !pen.attempt(statement).await? {
            return Ok(None);
        }
    }
    pen.recent().learn(desk);
    Ok(Some(verdicts))
}

/// BEGIN, and the questions whose answers the batch is judged by. Lists are padded to a power of two by repeating their
/// last entry, so that few different texts are prepared.
fn facts(needs: &Needs) -> Statements {
    let mut ask = Statements::begin();
    ids(&mut ask, READ_HEADS, needs.conversations.iter().map(|c| c.uuid()));
    if let Some(last) = needs.messages.last() {
        let places = needs.messages.len().next_power_of_two();
        ask.say(READ_MESSAGES).say_list("(?, ?)", places).say(");");
        for (user, client_id) in needs.messages.iter().chain(std::iter::repeat(last)).take(places) {
            ask.with(user.as_str().to_owned()).with(client_id.clone());
        }
    }
    ids(&mut ask, READ_TASKS, needs.tasks.iter().map(|t| t.uuid()));
    ids(&mut ask, READ_INTENTS, needs.intents.iter().map(|i| i.uuid()));
    ask
}

fn ids(ask: &mut Statements, question: &'static str, ids: impl ExactSizeIterator<Item = Uuid> + Clone) {
    if let Some(last) = ids.clone().last() {
        let places = ids.len().next_power_of_two();
        ask.say(question).say_list("?", places).say(");");
        for id in ids.chain(std::iter::repeat(last)).take(places) {
            ask.with(id);
        }
    }
}

fn desk_of(rows: &[SqliteRow]) -> Result<Desk, StoreError> {
    let mut desk = Desk::default();
    rows.iter().try_for_each(|row| learn_fact(&mut desk, &mut Columns::of(row)))?;
    Ok(desk)
}

/// Writes and commits, and says whether there was anything to write.
async fn write(pen: &mut Pen<'_>, rows: Vec<Row>) -> Result<bool, StoreError> {
    let mut statements = batch::statements(rows);
    let Some(mut last) = statements.next() else { return Ok(false) };
    for next in statements {
        pen.send(std::mem::replace(&mut last, next)).await?;
    }
    pen.commit(last).await?;
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

    async fn goes_at_once(store: &SqliteStore, fence: Fence) -> bool {
        let batch = [append(fence)];
        let mut pen = store.db.pen(WHAT).await.unwrap();
        at_once(&mut pen, &Needs::of(&batch), &batch).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn what_is_remembered_rightly_is_written_in_one_trip() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions { durability: Durability::Normal, ..SqliteOptions::default() };
        let store = SqliteStore::open(folder.path(), options).await.unwrap();
        assert!(!goes_at_once(&store, Fence::Owner(Epoch(1))).await, "nobody's conversation");
        assert!(goes_at_once(&store, Fence::Inbox).await, "a new conversation");
        let claim = store.claim(CONVERSATION, NodeIncarnation::from_uuid(Uuid::nil())).await.unwrap().unwrap();
        assert!(goes_at_once(&store, Fence::Owner(claim.epoch)).await, "its owner's");
        assert!(goes_at_once(&store, Fence::Inbox).await, "a door's");
        assert!(!goes_at_once(&store, Fence::Owner(Epoch(0))).await, "an earlier owner's");
        let mut moved = Statements::default();
        moved.say("UPDATE conversations SET next_seq = next_seq + 1");
        store.db.write(WHAT, moved).await.unwrap();
        assert!(!goes_at_once(&store, Fence::Inbox).await, "of a row that has moved on");
    }
}
