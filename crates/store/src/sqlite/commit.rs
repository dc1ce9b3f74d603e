//! The only way into the log. A batch is one transaction: it begins IMMEDIATE, so that from the first look on nobody else
//! can change what the appends are judged by; the facts that the batch needs are read in the same trip; each admitted
//! append is one more trip, the last of which commits. An append of a stale epoch finds that its conversation's row has
//! moved on and is refused before it writes anything.

use annie_core::{
    event::{EVENT_VERSION, NewEvent},
    ids::{ConversationId, IntentId, OutboxId, Seq, TaskId, UserId},
    ports::{Append, AppendError, Appended, Fence, StoreError, TaskState},
    projection::Change,
    time::Micros,
};
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{
    SqliteStore,
    rows::{Columns, json, signed},
    statements::Statements,
    writer::Pen,
};
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

const OPEN_CONVERSATION: &str = "INSERT INTO conversations \
     (id, user_id, owner_epoch, next_seq, title, created_at, updated_at) VALUES (?, ?, 0, ?, ?, ?, ?);";
const MOVE_CONVERSATION: &str = "UPDATE conversations SET next_seq = next_seq + ?, updated_at = max(updated_at, ?) \
     WHERE id = ?";
const OF_THE_OWNER: &str = " AND owner_epoch = ?";
const NAME_CONVERSATION: &str = "UPDATE conversations SET title = ? WHERE id = ? AND title = '';";
const INSERT_EVENTS: &str = "INSERT INTO events (conversation_id, seq, at, task_id, agent_id, kind, v, body) VALUES ";

const OPEN_TASK: &str = "INSERT INTO tasks (id, user_id, conversation_id, seq, client_id, text_sha256, state, priority, \
     source, title, received_at) VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?);";
const RUN_TASK: &str = "UPDATE tasks SET state = 'running', started_at = coalesce(started_at, ?) \
     WHERE id = ? AND conversation_id = ? AND state IN ('queued', 'running');";
const END_TASK: &str = "UPDATE tasks SET state = ?, ended_at = ?, error = ? \
     WHERE id = ? AND conversation_id = ? AND state IN ('queued', 'running');";
const REQUEUE_TASK: &str = "UPDATE tasks SET state = 'queued' \
     WHERE id = ? AND conversation_id = ? AND state IN ('queued', 'running');";
const PLAN_INTENT: &str = "INSERT INTO intents (id, conversation_id, task_id, seq, place, skill, effect, state, attempts, \
     planned_at, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'planned', 0, ?, ?) ON CONFLICT (id) DO NOTHING;";
const START_INTENT: &str = "UPDATE intents SET state = 'started', attempts = attempts + 1, changed_at = ? \
     WHERE id = ? AND conversation_id = ?;";
const CLOSE_INTENT: &str = "UPDATE intents SET state = ?, changed_at = ? \
     WHERE id = ? AND conversation_id = ? AND state <> 'done';";
const PUT_OUTBOX: &str = "INSERT INTO outbox (id, user_id, conversation_id, task_id, text, at) VALUES (?, ?, ?, ?, ?, ?) \
     ON CONFLICT (id) DO NOTHING;";

/// Most events in one INSERT.
const EVENTS_PER_INSERT_MAX: usize = 32;

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
    let Some(((last, place), before)) = admitted.split_last() else { return Ok(()) };
    for (proposal, admitted) in before {
        pen.send(append(proposal, *admitted)?).await?;
    }
    pen.commit(append(last, *place)?).await?;
    Ok(())
}

/// Everything that one append writes.
fn append(proposal: &Proposal, admitted: Admitted) -> Result<Statements, StoreError> {
    let mut statements = Statements::default();
    move_conversation(&mut statements, proposal, admitted);
    let mut seq = admitted.first;
    for chunk in proposal.events.chunks(EVENTS_PER_INSERT_MAX) {
        statements.say(INSERT_EVENTS).say_list("(?, ?, ?, ?, ?, ?, ?, ?)", chunk.len()).say(";");
        for (event, _) in chunk {
            bind_event(&mut statements, proposal.conversation, seq, event)?;
            seq.0 += 1;
        }
    }
    for ((_, changes), seq) in proposal.events.iter().zip(admitted.first.0..) {
        project(&mut statements, proposal.conversation, &proposal.user, Seq(seq), changes);
    }
    Ok(statements)
}

fn move_conversation(statements: &mut Statements, proposal: &Proposal, admitted: Admitted) {
    let count = proposal.events.len() as u64;
    let times = || proposal.events.iter().map(|(event, _)| event.at);
    let newest = times().max().unwrap_or_default();
    let title = proposal.changes().find_map(|change| match change {
        Change::TaskOpened { title, .. } if !title.is_empty() => Some(title.clone()),
        _ => None,
    });
    let id = proposal.conversation.uuid();
    if admitted.opens {
        statements
            .say(OPEN_CONVERSATION)
            .with(id)
            .with(proposal.user.as_str().to_owned())
            .with(signed(admitted.first.0 + count))
            .with(title.unwrap_or_default())
            .with(times().next().unwrap_or_default().0)
            .with(newest.0);
        return;
    }
    statements.say(MOVE_CONVERSATION).with(signed(count)).with(newest.0).with(id);
    if let Fence::Owner(epoch) = proposal.fence {
        statements.say(OF_THE_OWNER).with(signed(epoch.0));
    }
    statements.say(";");
    if let Some(title) = title {
        statements.say(NAME_CONVERSATION).with(title).with(id);
    }
}

fn bind_event(
    statements: &mut Statements,
    conversation: ConversationId,
    seq: Seq,
    event: &NewEvent,
) -> Result<(), StoreError> {
    statements
        .with(conversation.uuid())
        .with(signed(seq.0))
        .with(event.at.0)
        .with(event.task.uuid())
        .with(event.agent.as_str().to_owned())
        .with(event.body.kind())
        .with(i64::from(EVENT_VERSION))
        .with(json(&event.body)?);
    Ok(())
}

/// What one event changes in the tables beside the log; a rebuild folds the log through the same.
pub(super) fn project(
    statements: &mut Statements,
    conversation: ConversationId,
    user: &UserId,
    seq: Seq,
    changes: &[Change],
) {
    let (home, owner) = (conversation.uuid(), || user.as_str().to_owned());
    for (change, place) in changes.iter().zip(0_i64..) {
        match change {
            Change::TaskOpened { task, client_id, text_sha256, title, source, priority, at } => {
                statements.say(OPEN_TASK).with(task.uuid()).with(owner()).with(home).with(signed(seq.0));
                statements.with(client_id.clone()).with(text_sha256.to_vec()).with(priority.as_str());
                statements.with(source.clone()).with(title.clone()).with(at.0);
            }
            Change::TaskMoved { task, state, error, at } => {
                move_task(statements, conversation, *task, *state, error.as_deref(), *at);
            }
            Change::IntentPlanned { intent, task, skill, effect, at } => {
                statements.say(PLAN_INTENT).with(intent.uuid()).with(home).with(task.uuid()).with(signed(seq.0));
                statements.with(place).with(skill.clone()).with(effect.as_str()).with(at.0).with(at.0);
            }
            Change::IntentStarted { intent, at } => {
                statements.say(START_INTENT).with(at.0).with(intent.uuid()).with(home);
            }
            Change::IntentClosed { intent, state, at } => {
                statements.say(CLOSE_INTENT).with(state.as_str()).with(at.0).with(intent.uuid()).with(home);
            }
            Change::OutboxPut { id, task, text, at } => {
                put_outbox(statements, *id, (conversation, owner()), *task, text, *at);
            }
        }
    }
}

fn move_task(
    statements: &mut Statements,
    conversation: ConversationId,
    task: TaskId,
    state: TaskState,
    error: Option<&str>,
    at: Micros,
) {
    match state {
        TaskState::Queued => statements.say(REQUEUE_TASK),
        TaskState::Running => statements.say(RUN_TASK).with(at.0),
        TaskState::Completed | TaskState::Failed | TaskState::Cancelled => {
            statements.say(END_TASK).with(state.as_str()).with(at.0).with(error.map(str::to_owned))
        }
    };
    statements.with(task.uuid()).with(conversation.uuid());
}

fn put_outbox(
    statements: &mut Statements,
    id: OutboxId,
    (conversation, user): (ConversationId, String),
    task: TaskId,
    text: &str,
    at: Micros,
) {
    statements.say(PUT_OUTBOX).with(id.uuid()).with(user).with(conversation.uuid()).with(task.uuid());
    statements.with(text.to_owned()).with(at.0);
}
