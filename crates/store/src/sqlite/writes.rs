//! What a batch writes, gathered by table, so that a batch of any size is a handful of statements. A statement takes up to
//! [`ROWS_MAX`] rows; fewer are filled up to a power of two with rows of nothing, so that few different texts exist and
//! their prepared statements are found again. Several changes of one row are folded into one.

use std::collections::BTreeMap;

use annie_core::{
    event::{EVENT_VERSION, NewEvent, Priority},
    ids::{ConversationId, IntentId, Seq, TaskId, UserId},
    ports::{IntentState, StoreError, TaskState},
    projection::Change,
    time::Micros,
};

use super::{
    rows::{json, signed},
    statements::{Cell, Statements},
    writer::Pen,
};

/// Most rows in one statement.
const ROWS_MAX: usize = 32;

/// One statement over many rows: `head`, the rows, `tail`.
struct Bulk {
    head: &'static str,
    row: &'static str,
    tail: &'static str,
    /// The same for a single row, where that is cheaper: an UPDATE over rows gathers them in a table of its own first.
    one: Option<&'static str>,
}

const CONVERSATIONS: Bulk = Bulk {
    head: "INSERT INTO conversations (id, user_id, owner_epoch, next_seq, title, created_at, updated_at) \
        SELECT column1, column2, 0, column3, column4, column5, column6 FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?)",
    tail: ") WHERE column1 IS NOT NULL ON CONFLICT (id) DO UPDATE SET next_seq = excluded.next_seq, \
        updated_at = max(updated_at, excluded.updated_at), title = iif(title = '', excluded.title, title);",
    one: None,
};
const EVENTS: Bulk = Bulk {
    head: "INSERT INTO events (conversation_id, seq, at, task_id, agent_id, kind, v, body) SELECT * FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?)",
    tail: ") WHERE column1 IS NOT NULL;",
    one: None,
};
const TASKS: Bulk = Bulk {
    head: "INSERT INTO tasks (id, user_id, conversation_id, seq, client_id, text_sha256, priority, source, title, \
        received_at, not_before, after_ids, state) SELECT *, 'queued' FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: ") WHERE column1 IS NOT NULL;",
    one: None,
};
/// Before [`MOVES`]: only the event that ends a task makes it a dead letter.
const LETTERS: Bulk = Bulk {
    head: "INSERT INTO letters (task_id, conversation_id, user_id, seq, code, text, detail, tried, since, retry_at, \
        failed_at, changed_at, state) SELECT *, 'waiting' FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: ") WHERE column1 IS NOT NULL AND EXISTS (SELECT 1 FROM tasks WHERE id = column1 \
        AND conversation_id = column2 AND state IN ('queued', 'running', 'suspended')) ON CONFLICT DO NOTHING;",
    one: None,
};
const MOVES: Bulk = Bulk {
    head: "UPDATE tasks SET state = coalesce(column1, iif(column2, iif(started_at IS NULL, 'queued', 'running'), state)), \
        started_at = coalesce(started_at, column3), ended_at = column4, error = column5, \
        priority = coalesce(column6, priority), not_before = coalesce(column7, not_before) FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: ") WHERE id = column8 AND conversation_id = column9 AND state IN ('queued', 'running', 'suspended');",
    one: Some(
        "UPDATE tasks SET state = coalesce(?, iif(?, iif(started_at IS NULL, 'queued', 'running'), state)), \
        started_at = coalesce(started_at, ?), ended_at = ?, error = ?, priority = coalesce(?, priority), \
        not_before = coalesce(?, not_before) \
        WHERE id = ? AND conversation_id = ? AND state IN ('queued', 'running', 'suspended');",
    ),
};
const PLANS: Bulk = Bulk {
    head: "INSERT INTO intents (id, conversation_id, task_id, seq, place, skill, effect, planned_at, changed_at, state, \
        attempts) SELECT *, 'planned', 0 FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: ") WHERE column1 IS NOT NULL ON CONFLICT (id) DO NOTHING;",
    one: None,
};
const RUNS: Bulk = Bulk {
    head: "UPDATE intents SET state = column1, attempts = attempts + column2, changed_at = column3 FROM (VALUES ",
    row: "(?, ?, ?, ?, ?)",
    tail: ") WHERE id = column4 AND conversation_id = column5 AND state <> 'done';",
    one: Some(
        "UPDATE intents SET state = ?, attempts = attempts + ?, changed_at = ? \
        WHERE id = ? AND conversation_id = ? AND state <> 'done';",
    ),
};
const OUTBOX: Bulk = Bulk {
    head: "INSERT INTO outbox (id, user_id, conversation_id, task_id, text, at) SELECT * FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?)",
    tail: ") WHERE column1 IS NOT NULL ON CONFLICT (id) DO NOTHING;",
    one: None,
};
const OPERATIONS: Bulk = Bulk {
    head: "INSERT INTO operations (id, conversation_id, user_id, seq, task_id, intent_id, skill, opened_at, expires_at) \
        SELECT * FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: ") WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING;",
    one: None,
};
/// Sent one by one: the first of several is the one that counts, if what it moves came before it.
const MOVE_LETTER: &str = "UPDATE letters SET state = ?, retried_by = ?, changed_at = ? \
     WHERE task_id = ? AND conversation_id = ? AND seq < ? AND state = 'waiting';";
/// Sent one by one, as [`MOVE_LETTER`].
const CLOSE_OPERATION: &str = "UPDATE operations SET closed_by = ?, closed_at = ? \
     WHERE id = ? AND conversation_id = ? AND seq < ? AND closed_by IS NULL;";

/// What becomes of a conversation's row.
struct Moved {
    user: String,
    next: Seq,
    title: String,
    created_at: Micros,
    updated_at: Micros,
}

/// Where a task stands after a batch.
#[derive(Default)]
enum Where {
    #[default]
    AsBefore,
    In(TaskState),
    /// It was held back and is let go on: what it becomes depends on whether its turn had begun.
    LetGo,
}

/// What becomes of a task's row.
#[derive(Default)]
struct Move {
    to: Where,
    started_at: Option<Micros>,
    ended_at: Option<Micros>,
    /// The event that ended it.
    ended_by: Option<Seq>,
    error: Option<String>,
    priority: Option<Priority>,
    not_before: Option<Micros>,
}

/// What becomes of an intent's row.
struct Run {
    state: IntentState,
    starts: i64,
    at: Micros,
}

/// Everything that a batch writes.
#[derive(Default)]
pub(super) struct Writes {
    conversations: BTreeMap<ConversationId, Moved>,
    events: Vec<Vec<Cell>>,
    tasks: Vec<Vec<Cell>>,
    moves: BTreeMap<(TaskId, ConversationId), Move>,
    plans: Vec<Vec<Cell>>,
    runs: BTreeMap<(IntentId, ConversationId), Run>,
    outbox: Vec<Vec<Cell>>,
    letters: Vec<Vec<Cell>>,
    operations: Vec<Vec<Cell>>,
    letter_moves: Vec<Vec<Cell>>,
    operation_ends: Vec<Vec<Cell>>,
}

impl Writes {
    /// An event at its place.
    pub fn event(
        &mut self,
        conversation: ConversationId,
        user: &UserId,
        seq: Seq,
        event: &NewEvent,
    ) -> Result<(), StoreError> {
        let moved = self.conversations.entry(conversation).or_insert_with(|| Moved {
            user: user.as_str().to_owned(),
            next: seq,
            title: String::new(),
            created_at: event.at,
            updated_at: event.at,
        });
        moved.next = Seq(seq.0 + 1);
        moved.updated_at = moved.updated_at.max(event.at);
        self.events.push(vec![
            Cell::Id(conversation.uuid()),
            Cell::Number(signed(seq.0)),
            Cell::Number(event.at.0),
            Cell::Id(event.task.uuid()),
            Cell::Text(event.agent.as_str().to_owned()),
            Cell::Word(event.body.kind()),
            Cell::Number(i64::from(EVENT_VERSION)),
            Cell::Text(json(&event.body)?),
        ]);
        Ok(())
    }

    /// What an event changes in the tables beside the log.
    pub fn project(&mut self, conversation: ConversationId, user: &UserId, seq: Seq, changes: &[Change]) {
        for (change, place) in changes.iter().zip(0_i64..) {
            match change {
                Change::TaskOpened { .. } => self.open_task(conversation, user, seq, change),
                Change::TaskMoved { .. } => self.move_task(conversation, seq, change),
                Change::TaskHeld { task, held } => {
                    let to = if *held { Where::In(TaskState::Suspended) } else { Where::LetGo };
                    self.change_task(conversation, *task, |row| row.to = to);
                }
                Change::TaskReprioritised { task, priority } => {
                    self.change_task(conversation, *task, |row| row.priority = Some(*priority));
                }
                Change::TaskDeferred { task, until } => {
                    self.change_task(conversation, *task, |row| row.not_before = Some(*until));
                }
                Change::LetterPut { .. }
                | Change::LetterMoved { .. }
                | Change::OperationOpened { .. }
                | Change::OperationClosed { .. } => self.project_work(conversation, user, seq, change),
                Change::IntentPlanned { intent, task, skill, effect, at } => self.plans.push(vec![
                    Cell::Id(intent.uuid()),
                    Cell::Id(conversation.uuid()),
                    Cell::Id(task.uuid()),
                    Cell::Number(signed(seq.0)),
                    Cell::Number(place),
                    Cell::Text(skill.clone()),
                    Cell::Word(effect.as_str()),
                    Cell::Number(at.0),
                    Cell::Number(at.0),
                ]),
                Change::IntentStarted { intent, at } => {
                    self.run(conversation, *intent, IntentState::Started, *at).starts += 1;
                }
                Change::IntentClosed { intent, state, at } => {
                    self.run(conversation, *intent, *state, *at);
                }
                Change::OutboxPut { id, task, text, at } => self.outbox.push(vec![
                    Cell::Id(id.uuid()),
                    Cell::Text(user.as_str().to_owned()),
                    Cell::Id(conversation.uuid()),
                    Cell::Id(task.uuid()),
                    Cell::Text(text.clone()),
                    Cell::Number(at.0),
                ]),
            }
        }
    }

    /// What an event changes among letters and operations.
    fn project_work(&mut self, conversation: ConversationId, user: &UserId, seq: Seq, change: &Change) {
        match change {
            Change::LetterPut { .. } => self.put_letter(conversation, user, seq, change),
            Change::LetterMoved { task, state, retry, at } => self.letter_moves.push(vec![
                Cell::Word(state.as_str()),
                retry.map_or(Cell::Nothing, |task| Cell::Id(task.uuid())),
                Cell::Number(at.0),
                Cell::Id(task.uuid()),
                Cell::Id(conversation.uuid()),
                Cell::Number(signed(seq.0)),
            ]),
            Change::OperationOpened { operation, task, intent, skill, at } => self.operations.push(vec![
                Cell::Id(operation.id.uuid()),
                Cell::Id(conversation.uuid()),
                Cell::Text(user.as_str().to_owned()),
                Cell::Number(signed(seq.0)),
                Cell::Id(task.uuid()),
                Cell::Id(intent.uuid()),
                Cell::Text(skill.clone()),
                Cell::Number(at.0),
                Cell::Number(operation.expires_at.0),
            ]),
            Change::OperationClosed { operation, by, at } => self.operation_ends.push(vec![
                Cell::Id(by.uuid()),
                Cell::Number(at.0),
                Cell::Id(operation.uuid()),
                Cell::Id(conversation.uuid()),
                Cell::Number(signed(seq.0)),
            ]),
            _ => {}
        }
    }

    fn open_task(&mut self, conversation: ConversationId, user: &UserId, seq: Seq, change: &Change) {
        let Change::TaskOpened { task, client_id, text_sha256, title, source, priority, not_before, after, at } =
            change
        else {
            return;
        };
        if let Some(moved) = self.conversations.get_mut(&conversation).filter(|moved| moved.title.is_empty()) {
            moved.title.clone_from(title);
        }
        self.tasks.push(vec![
            Cell::Id(task.uuid()),
            Cell::Text(user.as_str().to_owned()),
            Cell::Id(conversation.uuid()),
            Cell::Number(signed(seq.0)),
            Cell::Text(client_id.clone()),
            Cell::Bytes(text_sha256.to_vec()),
            Cell::Word(priority.as_str()),
            Cell::Text(source.clone()),
            Cell::Text(title.clone()),
            Cell::Number(at.0),
            not_before.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            if after.is_empty() { Cell::Nothing } else { list(after.iter().map(ToString::to_string)) },
        ]);
    }

    fn move_task(&mut self, conversation: ConversationId, seq: Seq, change: &Change) {
        let Change::TaskMoved { task, state, error, at } = change else { return };
        self.change_task(conversation, *task, |row| {
            row.to = Where::In(*state);
            if *state == TaskState::Running {
                row.started_at.get_or_insert(*at);
            }
            if state.is_ended() {
                (row.ended_at, row.ended_by) = (Some(*at), Some(seq));
                row.error.clone_from(error);
            }
        });
    }

    /// A task that has ended does not change again; one that ended in an earlier batch is left alone by the statement.
    fn change_task(&mut self, conversation: ConversationId, task: TaskId, change: impl FnOnce(&mut Move)) {
        let row = self.moves.entry((task, conversation)).or_default();
        if row.ended_at.is_none() {
            change(row);
        }
    }

    fn put_letter(&mut self, conversation: ConversationId, user: &UserId, seq: Seq, change: &Change) {
        let Change::LetterPut { task, letter, code, text, detail, at } = change else { return };
        if self.moves.get(&(*task, conversation)).and_then(|row| row.ended_by) != Some(seq) {
            return;
        }
        self.letters.push(vec![
            Cell::Id(task.uuid()),
            Cell::Id(conversation.uuid()),
            Cell::Text(user.as_str().to_owned()),
            Cell::Number(signed(seq.0)),
            Cell::Text(code.clone()),
            Cell::Text(text.clone()),
            Cell::Text(detail.clone()),
            list(letter.tried.iter().cloned()),
            Cell::Number(letter.since.0),
            letter.retry_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            Cell::Number(at.0),
            Cell::Number(at.0),
        ]);
    }

    fn run(&mut self, conversation: ConversationId, intent: IntentId, state: IntentState, at: Micros) -> &mut Run {
        let run = self.runs.entry((intent, conversation)).or_insert(Run { state, starts: 0, at });
        if run.state != IntentState::Done {
            (run.state, run.at) = (state, at);
        }
        run
    }

    /// Sends everything but the last statements, which are answered, for the caller to send with what ends the
    /// transaction.
    pub async fn send(self, pen: &mut Pen<'_>) -> Result<Statements, StoreError> {
        let conversations = self.conversations.into_iter().map(|(id, moved)| moved.cells(id)).collect();
        let moves = self.moves.into_iter().map(|(ids, folded)| folded.cells(ids)).collect();
        let runs = self.runs.into_iter().map(|(ids, run)| run.cells(ids)).collect();
        let mut pending = Statements::default();
        for (bulk, rows) in [
            (CONVERSATIONS, conversations),
            (EVENTS, self.events),
            (TASKS, self.tasks),
            (LETTERS, self.letters),
            (MOVES, moves),
            (PLANS, self.plans),
            (RUNS, runs),
            (OUTBOX, self.outbox),
            (OPERATIONS, self.operations),
        ] {
            bulk.send(pen, &mut pending, rows).await?;
        }
        for (sql, rows) in [(MOVE_LETTER, self.letter_moves), (CLOSE_OPERATION, self.operation_ends)] {
            send_each(pen, &mut pending, sql, rows).await?;
        }
        Ok(pending)
    }
}

/// A statement for each row, in order.
async fn send_each(
    pen: &mut Pen<'_>,
    pending: &mut Statements,
    sql: &'static str,
    rows: Vec<Vec<Cell>>,
) -> Result<(), StoreError> {
    for (row, n) in rows.into_iter().zip(1..) {
        pending.say(sql);
        for cell in row {
            pending.cell(cell);
        }
        if n % ROWS_MAX == 0 {
            pen.send(std::mem::take(pending)).await?;
        }
    }
    Ok(())
}

/// Words as one JSON list.
fn list(words: impl Iterator<Item = String>) -> Cell {
    Cell::Text(serde_json::Value::from(words.collect::<Vec<_>>()).to_string())
}

impl Bulk {
    /// Full statements go out one by one; the rest waits with what waits already.
    async fn send(
        &self,
        pen: &mut Pen<'_>,
        pending: &mut Statements,
        mut rows: Vec<Vec<Cell>>,
    ) -> Result<(), StoreError> {
        while rows.len() >= ROWS_MAX {
            let rest = rows.split_off(ROWS_MAX);
            if !pending.is_empty() {
                pen.send(std::mem::take(pending)).await?;
            }
            let mut full = Statements::default();
            self.say(&mut full, rows);
            pen.send(full).await?;
            rows = rest;
        }
        if !rows.is_empty() {
            self.say(pending, rows);
        }
        Ok(())
    }

    fn say(&self, statements: &mut Statements, rows: Vec<Vec<Cell>>) {
        let places = rows.len().next_power_of_two();
        let nothing = (places - rows.len()) * rows.first().map_or(0, Vec::len);
        match self.one {
            Some(one) if places == 1 => statements.say(one),
            _ => statements.say(self.head).say_list(self.row, places).say(self.tail),
        };
        for cell in rows.into_iter().flatten().chain(std::iter::repeat_n(Cell::Nothing, nothing)) {
            statements.cell(cell);
        }
    }
}

impl Moved {
    fn cells(self, id: ConversationId) -> Vec<Cell> {
        vec![
            Cell::Id(id.uuid()),
            Cell::Text(self.user),
            Cell::Number(signed(self.next.0)),
            Cell::Text(self.title),
            Cell::Number(self.created_at.0),
            Cell::Number(self.updated_at.0),
        ]
    }
}

impl Move {
    fn cells(self, (task, conversation): (TaskId, ConversationId)) -> Vec<Cell> {
        let (state, let_go) = match self.to {
            Where::AsBefore => (Cell::Nothing, Cell::Nothing),
            Where::In(state) => (Cell::Word(state.as_str()), Cell::Nothing),
            Where::LetGo if self.started_at.is_some() => (Cell::Word(TaskState::Running.as_str()), Cell::Nothing),
            Where::LetGo => (Cell::Nothing, Cell::Number(1)),
        };
        vec![
            state,
            let_go,
            self.started_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            self.ended_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            self.error.map_or(Cell::Nothing, Cell::Text),
            self.priority.map_or(Cell::Nothing, |priority| Cell::Word(priority.as_str())),
            self.not_before.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            Cell::Id(task.uuid()),
            Cell::Id(conversation.uuid()),
        ]
    }
}

impl Run {
    fn cells(self, (intent, conversation): (IntentId, ConversationId)) -> Vec<Cell> {
        vec![
            Cell::Word(self.state.as_str()),
            Cell::Number(self.starts),
            Cell::Number(self.at.0),
            Cell::Id(intent.uuid()),
            Cell::Id(conversation.uuid()),
        ]
    }
}
