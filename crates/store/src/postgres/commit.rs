//! The only writes to the log. A batch is one transaction, and usually one statement: it is judged by the results of the last
//! commits ([`crate::sql::Recent`]), and the statement writes nothing if these are outdated. In that case, or if the remembered
//! facts do not admit every append, the conversations' rows are locked, the facts are read under the locks, and the admitted
//! appends are written with the same statement. The remembered facts belong to this process and decide nothing: other processes
//! write the same tables, and only the locked rows decide who may write.
//!
//! If a connection breaks before the answer, it is unknown whether the batch is stored. The batch is then sent once more,
//! unchanged, over another connection: exactly one of the two gets its sequence numbers, even if the first one is executed
//! late. If the numbers are taken, the stored event shows whether it is this batch's. Only if the server stays unreachable does
//! the outcome remain unknown; then every append is answered with a store error, and the caller reads the outcome from the log.

use annie_core::{
    ports::{Append, AppendError, StoreError, StoreErrorKind},
    time::Micros,
};
use uuid::Uuid;

use super::{
    Postgres,
    batch::Plan,
    bound::Bound,
    connections::{Held, Patience},
    errors::Failure,
};
use crate::{
    admission::{Admission, Needs, Proposal},
    sql::{Cell, Columns, Kind, SharedTexts, Verdict, guards, judge, learn_fact, writes},
};

const WHAT: &str = "committing appends";

/// How often a batch is judged again because another process wrote first, before it is given up.
const COLLISIONS_MAX: u32 = 20;

pub(super) const LOCK_HEADS: &str = "SELECT CAST(0 AS BIGINT), id, user_id, owner_epoch, next_seq, deleted_at \
     FROM conversations WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";
pub(super) const READ_MESSAGES: &str = "SELECT CAST(1 AS BIGINT), t.user_id, t.client_id, t.id, t.conversation_id, t.seq, \
         t.text_sha256 FROM unnest($1::text[], $2::text[]) AS m (user_id, client_id) \
         JOIN tasks t ON t.user_id = m.user_id AND t.client_id = m.client_id";
pub(super) const READ_TASKS: &str = "SELECT CAST(2 AS BIGINT), id FROM tasks WHERE id = ANY($1)";
pub(super) const READ_INTENTS: &str =
    "SELECT CAST(3 AS BIGINT), id, conversation_id, effect, state FROM intents WHERE id = ANY($1)";
pub(super) const IS_OURS: &str = "SELECT 1 FROM events WHERE conversation_id = $1 AND seq = $2 AND at = $3 AND task_id = $4 \
     AND agent_id = $5 AND kind = $6 AND v = $7 AND body = $8";

/// A judged batch: its writes, and its answers if they are stored.
struct Judged {
    plan: Plan,
    /// The texts that the batch stores apart.
    texts: Vec<(Uuid, String, Micros)>,
    first_event: Option<Vec<Cell>>,
    verdicts: Vec<Verdict>,
    admission: Admission,
}

/// Outcome of sending a batch.
enum Sent {
    Stored,
    /// A condition does not hold; nothing is stored.
    Refused,
}

impl Postgres {
    pub(super) async fn commit_batch(&self, batch: Vec<Append>) -> Vec<Verdict> {
        let proposals: Vec<Proposal> = batch.into_iter().map(Proposal::new).collect();
        if proposals.is_empty() {
            return Vec::new();
        }
        match self.judge_and_write(&proposals).await {
            Ok(verdicts) => {
                // Other processes may have to act on a message, or may wait for the end of a task.
                let concerns_others =
                    |p: &Proposal| p.fence.is_inbox() || p.events.iter().any(|(e, _)| e.body.is_final());
                let is_notified = |(p, verdict): (&Proposal, &Verdict)| verdict.is_ok() && concerns_others(p);
                if proposals.iter().zip(&verdicts).any(is_notified) {
                    self.wakeups.announce();
                }
                verdicts
            }
            Err(error) => proposals.iter().map(|_| Err(AppendError::Store(error.clone()))).collect(),
        }
    }

    async fn judge_and_write(&self, proposals: &[Proposal]) -> Result<Vec<Verdict>, StoreError> {
        let needs = Needs::of(proposals);
        let (admission, stored) = {
            let recent = self.recent.lock();
            (recent.facts(&needs).0, recent.texts.clone())
        };
        let judged = judged(admission, &needs, proposals, &stored)?;
        if judged.plan.is_one_statement() && judged.verdicts.iter().all(Result::is_ok) {
            let sent = self.settle(&judged, None).await.map_err(|failure| failure.during(WHAT))?;
            if matches!(sent, Sent::Stored) {
                self.learn(judged.admission, judged.texts);
                return Ok(judged.verdicts);
            }
            // The database has not what is remembered. After a failover to a copy that was behind, that also holds for texts.
            self.recent.lock().texts = SharedTexts::default();
        }
        for _ in 0..COLLISIONS_MAX {
            if let Some(verdicts) = self.under_locks(&needs, proposals).await? {
                return Ok(verdicts);
            }
        }
        let detail = "another process was always faster".to_owned();
        Err(StoreError { kind: StoreErrorKind::Locked, what: WHAT, detail })
    }

    /// Judges by the facts under the locks. `None` if another process meanwhile stored rows that cannot be locked: a new
    /// conversation, or a message.
    async fn under_locks(&self, needs: &Needs, proposals: &[Proposal]) -> Result<Option<Vec<Verdict>>, StoreError> {
        let mut patience = self.connections.patience();
        loop {
            let mut sent = None;
            let failure = match self.once_under_locks(needs, proposals, &mut sent).await {
                Ok(verdicts) => return Ok(verdicts),
                Err(failure) => failure,
            };
            match sent {
                // COMMIT was sent, and not answered.
                Some(judged) if failure.is_broken() => {
                    let settled = self.settle(&judged, Some(failure)).await.map_err(|failure| failure.during(WHAT))?;
                    return Ok(match settled {
                        Sent::Stored => {
                            self.learn(judged.admission, judged.texts);
                            Some(judged.verdicts)
                        }
                        Sent::Refused => None,
                    });
                }
                _ => patience.after(failure).await.map_err(|failure| failure.during(WHAT))?,
            }
        }
    }

    async fn once_under_locks(
        &self,
        needs: &Needs,
        proposals: &[Proposal],
        sent: &mut Option<Judged>,
    ) -> Result<Option<Vec<Verdict>>, Failure> {
        let mut held = self.connections.take().await?;
        held.begin().await?;
        let admission = facts(&mut held, needs).await?;
        let judged = judged(admission, needs, proposals, &SharedTexts::default())?;
        if judged.verdicts.iter().all(Result::is_err) {
            held.roll_back().await;
            self.recent.lock().learn(judged.admission);
            return Ok(Some(judged.verdicts));
        }
        if !write(&mut held, &judged.plan).await? {
            // Another process was faster with a new conversation or a message.
            held.roll_back().await;
            return Ok(None);
        }
        let judged = sent.insert(judged);
        held.commit().await?;
        self.learn(std::mem::take(&mut judged.admission), std::mem::take(&mut judged.texts));
        Ok(Some(std::mem::take(&mut judged.verdicts)))
    }

    /// Remembers what a commit has stored.
    fn learn(&self, admission: Admission, texts: Vec<(Uuid, String, Micros)>) {
        let mut recent = self.recent.lock();
        recent.learn(admission);
        recent.texts.learn(texts);
    }

    /// Sends a batch until its outcome is known. `unknown`: the failure of an earlier attempt that got no answer.
    async fn settle(&self, judged: &Judged, unknown: Option<Failure>) -> Result<Sent, Failure> {
        let mut patience = self.connections.patience();
        let mut is_known = unknown.is_none();
        let mut failed = unknown;
        loop {
            if let Some(failure) = failed.take() {
                is_known &= !failure.is_broken();
                pause(&mut patience, failure, is_known).await?;
            }
            match self.send(judged).await {
                Ok(true) => return Ok(Sent::Stored),
                Ok(false) if is_known => return Ok(Sent::Refused),
                Ok(false) => match self.is_ours(judged).await {
                    Ok(true) => return Ok(Sent::Stored),
                    Ok(false) => return Ok(Sent::Refused),
                    Err(failure) => failed = Some(failure),
                },
                Err(failure) => failed = Some(failure),
            }
        }
    }

    /// Sends a batch once. True if it is stored, false if a condition does not hold.
    async fn send(&self, judged: &Judged) -> Result<bool, Failure> {
        let mut held = self.connections.take().await?;
        if judged.plan.is_one_statement() {
            return write(&mut held, &judged.plan).await;
        }
        held.begin().await?;
        let is_written = write(&mut held, &judged.plan).await?;
        if is_written {
            held.commit().await?;
        } else {
            held.roll_back().await;
        }
        Ok(is_written)
    }

    /// Whether the event at the first sequence number of a batch is the batch's own.
    async fn is_ours(&self, judged: &Judged) -> Result<bool, Failure> {
        let Some(event) = &judged.first_event else { return Ok(false) };
        let mut held = self.connections.take().await?;
        // The columns of the query; the id of a shared text, which may be absent, adds nothing to them.
        let compared = event.iter().take(8).cloned().collect();
        let rows = held.read(IS_OURS, Bound::of(compared).finish()?).await?;
        Ok(!rows.is_empty())
    }
}

/// Waits before a batch is sent again; fails if time is up, and says so if the outcome is unknown.
async fn pause(patience: &mut Patience, failure: Failure, is_known: bool) -> Result<(), Failure> {
    match patience.after(failure).await {
        Err(failure) if !is_known => {
            let error = failure.during(WHAT);
            let detail = format!("whether it is stored is not known: {}", error.detail);
            Err(Failure::Answer(StoreError { detail, ..error }))
        }
        other => other,
    }
}

/// The verdict on each append, and the writes of the admitted ones, guarded by the facts of `admission`.
fn judged(
    mut admission: Admission,
    needs: &Needs,
    proposals: &[Proposal],
    stored: &SharedTexts,
) -> Result<Judged, StoreError> {
    let mut rows = guards(needs, &admission);
    let verdicts = judge(&mut admission, proposals);
    let writes = writes(proposals, &verdicts, stored)?;
    let texts = writes.texts();
    rows.extend(writes.rows());
    let first_event = rows.iter().find(|(kind, _)| *kind == Kind::Event).map(|(_, cells)| cells.clone());
    Ok(Judged { plan: Plan::of(rows), texts, first_event, verdicts, admission })
}

/// Whether everything was written; false if a condition does not hold, or a new row exists already.
async fn write(held: &mut Held<'_>, plan: &Plan) -> Result<bool, Failure> {
    for statement in plan.statements() {
        let statement = statement?;
        let rows = match held.rows_of(statement.text, statement.bound).await {
            Err(failure) if failure.is_repeat() => return Ok(false),
            rows => rows?,
        };
        let is_agreed = rows.first().is_some_and(|row| Columns::of(row).flag().unwrap_or_default());
        if !is_agreed {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Locks the conversations, and then reads the other facts for the batch: each query sees what was committed before it began,
/// so the locks come first.
async fn facts(held: &mut Held<'_>, needs: &Needs) -> Result<Admission, Failure> {
    let mut admission = Admission::default();
    let heads: Vec<Uuid> = needs.conversations.iter().map(|id| id.uuid()).collect();
    let mut queries = vec![(LOCK_HEADS, Bound::default().ids(heads))];
    if !needs.messages.is_empty() {
        let (users, clients): (Vec<String>, Vec<String>) =
            needs.messages.iter().map(|(user, client)| (user.as_str().to_owned(), client.clone())).unzip();
        queries.push((READ_MESSAGES, Bound::default().words(&users).words(&clients)));
    }
    for (sql, ids) in [
        (READ_TASKS, needs.tasks.iter().map(|id| id.uuid()).collect::<Vec<_>>()),
        (READ_INTENTS, needs.intents.iter().map(|id| id.uuid()).collect()),
    ] {
        if !ids.is_empty() {
            queries.push((sql, Bound::default().ids(ids)));
        }
    }
    for (sql, bound) in queries {
        for row in held.rows(sql, bound.finish()?).await? {
            learn_fact(&mut admission, &mut Columns::of(&row))?;
        }
    }
    Ok(admission)
}
