//! What a batch writes, gathered by table, so that a batch of any size is a handful of statements. A statement takes up to
//! [`ROWS_MAX`] rows; fewer are filled up to a power of two with rows of nothing, so that few different texts exist and
//! their prepared statements are found again. Several changes of one row are folded into one.

use std::collections::BTreeMap;

use annie_core::{
    event::{EVENT_VERSION, NewEvent},
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
        received_at, state) SELECT *, 'queued' FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: ") WHERE column1 IS NOT NULL;",
    one: None,
};
const MOVES: Bulk = Bulk {
    head: "UPDATE tasks SET state = column1, started_at = coalesce(started_at, column2), ended_at = column3, \
        error = column4 FROM (VALUES ",
    row: "(?, ?, ?, ?, ?, ?)",
    tail: ") WHERE id = column5 AND conversation_id = column6 AND state IN ('queued', 'running');",
    one: Some(
        "UPDATE tasks SET state = ?, started_at = coalesce(started_at, ?), ended_at = ?, error = ? \
        WHERE id = ? AND conversation_id = ? AND state IN ('queued', 'running');",
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

/// What becomes of a conversation's row.
struct Moved {
    user: String,
    next: Seq,
    title: String,
    created_at: Micros,
    updated_at: Micros,
}

/// What becomes of a task's row.
struct Move {
    state: TaskState,
    started_at: Option<Micros>,
    ended_at: Option<Micros>,
    error: Option<String>,
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
                Change::TaskMoved { task, state, error, at } => {
                    self.move_task(conversation, *task, *state, error.as_ref(), *at);
                }
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

    fn open_task(&mut self, conversation: ConversationId, user: &UserId, seq: Seq, change: &Change) {
        let Change::TaskOpened { task, client_id, text_sha256, title, source, priority, at } = change else { return };
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
        ]);
    }

    fn move_task(
        &mut self,
        conversation: ConversationId,
        task: TaskId,
        state: TaskState,
        error: Option<&String>,
        at: Micros,
    ) {
        let folded = self.moves.entry((task, conversation)).or_insert(Move {
            state,
            started_at: None,
            ended_at: None,
            error: None,
        });
        if folded.ended_at.is_some() {
            return;
        }
        folded.state = state;
        if state == TaskState::Running {
            folded.started_at.get_or_insert(at);
        }
        if state.is_ended() {
            folded.ended_at = Some(at);
            folded.error = error.cloned();
        }
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
            (MOVES, moves),
            (PLANS, self.plans),
            (RUNS, runs),
            (OUTBOX, self.outbox),
        ] {
            bulk.send(pen, &mut pending, rows).await?;
        }
        Ok(pending)
    }
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
        vec![
            Cell::Word(self.state.as_str()),
            self.started_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            self.ended_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            self.error.map_or(Cell::Nothing, Cell::Text),
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
