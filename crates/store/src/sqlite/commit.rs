//! The only way into the log. A batch is one transaction: it begins IMMEDIATE, so that from the first look on nobody else
//! can change what the appends are judged by; the facts that the batch needs are read in the same trip; the admitted
//! appends are written together, mostly in one more trip, which commits. An append of a stale epoch finds that its
//! conversation's row has moved on and is refused before anything of it is written.

use annie_core::{
    ids::{ConversationId, IntentId, Seq, TaskId},
    ports::{Append, AppendError, Appended, StoreError},
};
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{SqliteStore, rows::Columns, statements::Statements, writer::Pen, writes::Writes};
use crate::admission::{Admitted, Desk, Head, Needs, Planned, Proposal, Received};

const WHAT: &str = "committing appends";

/// Which fact a row of the first trip is.
const HEAD: i64 = 0;
const MESSAGE: i64 = 1;
const TASK: i64 = 2;
const INTENT: i64 = 3;

const READ_HEADS: &str = "SELECT 0, id, user_id, owner_epoch, next_seq FROM conversations WHERE id IN (";
const READ_MESSAGES: &str = "SELECT 1, user_id, client_id, id, conversation_id, seq, text_sha256 FROM tasks \
     WHERE (user_id, client_id) IN (VALUES ";
const READ_TASKS: &str = "SELECT 2, id FROM tasks WHERE id IN (";
const READ_INTENTS: &str = "SELECT 3, id, conversation_id, effect, state FROM intents WHERE id IN (";

impl SqliteStore {
    pub(super) async fn commit_batch(&self, batch: Vec<Append>) -> Vec<Result<Appended, AppendError>> {
        let proposals: Vec<Proposal> = batch.into_iter().map(Proposal::new).collect();
        if proposals.is_empty() {
            return Vec::new();
        }
        match self.judge_and_write(&proposals).await {
            Ok(verdicts) => verdicts,
            Err(error) => proposals.iter().map(|_| Err(AppendError::Store(error.clone()))).collect(),
        }
    }

    async fn judge_and_write(&self, proposals: &[Proposal]) -> Result<Vec<Result<Appended, AppendError>>, StoreError> {
        let mut pen = self.pen(WHAT).await?;
        let mut desk = desk_of(&pen.begin(facts(&Needs::of(proposals))).await?)?;
        let verdicts: Vec<_> = proposals.iter().map(|proposal| desk.judge(proposal)).collect();
        let admitted: Vec<_> = proposals
            .iter()
            .zip(&verdicts)
            .filter_map(|(proposal, verdict)| verdict.as_ref().ok().map(|admitted| (proposal, *admitted)))
            .collect();
        let written = write(&mut pen, &admitted).await;
        if written.is_err() || admitted.is_empty() {
            pen.roll_back().await;
        }
        written?;
        Ok(verdicts.into_iter().map(|v| v.map(|admitted| Appended { first: admitted.first })).collect())
    }
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
    for row in rows {
        let mut row = Columns::of(row);
        match row.take::<i64>()? {
            HEAD => {
                let id = row.id(ConversationId::from_uuid)?;
                desk.heads.insert(id, Head { user: row.user()?, epoch: row.epoch()?, next: row.seq()? });
            }
            MESSAGE => {
                let key = (row.user()?, row.take()?);
                let received = Received {
                    task: row.id(TaskId::from_uuid)?,
                    conversation: row.id(ConversationId::from_uuid)?,
                    seq: row.seq()?,
                    text_sha256: row.sha256()?,
                };
                desk.known.messages.insert(key, received);
            }
            TASK => {
                desk.known.tasks.insert(row.id(TaskId::from_uuid)?);
            }
            INTENT => {
                let id = row.id(IntentId::from_uuid)?;
                let planned = Planned {
                    conversation: row.id(ConversationId::from_uuid)?,
                    effect: row.word()?,
                    state: row.word()?,
                };
                desk.known.intents.insert(id, planned);
            }
            other => return Err(super::errors::corrupt(WHAT, format!("unknown fact {other}"))),
        }
    }
    Ok(desk)
}

async fn write(pen: &mut Pen<'_>, admitted: &[(&Proposal, Admitted)]) -> Result<(), StoreError> {
    if admitted.is_empty() {
        return Ok(());
    }
    let mut writes = Writes::default();
    for (proposal, admitted) in admitted {
        for ((event, changes), seq) in proposal.events.iter().zip(admitted.first.0..) {
            writes.event(proposal.conversation, &proposal.user, Seq(seq), event)?;
            writes.project(proposal.conversation, &proposal.user, Seq(seq), changes);
        }
    }
    let rest = writes.send(pen).await?;
    pen.commit(rest).await?;
    Ok(())
}
