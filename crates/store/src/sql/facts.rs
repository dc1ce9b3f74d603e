//! The facts for judging a batch, as rows, and the writes of the admitted appends.

use annie_core::{
    ids::{ConversationId, IntentId, Seq, TaskId},
    ports::{AppendError, Appended, StoreError},
};

use super::{Columns, SharedTexts, Writes, corrupt, head_of};
use crate::admission::{Admission, Admitted, Planned, Proposal, Received};

/// The kind of fact in a row.
const HEAD: i64 = 0;
const MESSAGE: i64 = 1;
const TASK: i64 = 2;
const INTENT: i64 = 3;

pub type Verdict = Result<Appended, AppendError>;

/// Adds a row to the facts: `0` and a conversation's head, `1` and a message, `2` and a task, `3` and an intent.
pub fn learn_fact(admission: &mut Admission, row: &mut Columns<'_>) -> Result<(), StoreError> {
    match row.number()? {
        HEAD => {
            let id = row.id(ConversationId::from_uuid)?;
            admission.heads.insert(id, head_of(row)?);
        }
        MESSAGE => {
            let key = (row.user()?, row.text()?);
            let received = Received {
                task: row.id(TaskId::from_uuid)?,
                conversation: row.id(ConversationId::from_uuid)?,
                seq: row.seq()?,
                text_sha256: row.sha256()?,
            };
            admission.known.messages.insert(key, received);
        }
        TASK => {
            admission.known.tasks.insert(row.id(TaskId::from_uuid)?);
        }
        INTENT => {
            let id = row.id(IntentId::from_uuid)?;
            let planned =
                Planned { conversation: row.id(ConversationId::from_uuid)?, effect: row.word()?, state: row.word()? };
            admission.known.intents.insert(id, planned);
        }
        other => return Err(corrupt("committing appends", format!("unknown fact {other}"))),
    }
    Ok(())
}

/// The verdict on each append.
pub fn judge(admission: &mut Admission, proposals: &[Proposal]) -> Vec<Verdict> {
    let verdict = |proposal| admission.judge(proposal).map(|Admitted { first, .. }| Appended { first });
    proposals.iter().map(verdict).collect()
}

/// The writes of the admitted appends, without the texts that are stored already.
pub fn writes(proposals: &[Proposal], verdicts: &[Verdict], stored: &SharedTexts) -> Result<Writes, StoreError> {
    let mut writes = Writes::default();
    for (proposal, verdict) in proposals.iter().zip(verdicts) {
        let Ok(appended) = verdict else { continue };
        let first = appended.first;
        for ((event, changes), seq) in proposal.events.iter().zip((first.0..).map(Seq)) {
            writes.event(proposal.conversation, &proposal.user, (seq, event), stored)?;
            writes.project(proposal.conversation, &proposal.user, seq, changes);
        }
        if let Some(by) = appended.opened_by(proposal.fence) {
            writes.own(proposal.conversation, by);
        }
    }
    Ok(writes)
}
