//! What a batch writes, gathered by table; several changes of one row are folded into one.

use std::collections::BTreeMap;

use annie_core::{
    event::{EVENT_VERSION, NewEvent, Priority},
    ids::{ConversationId, IntentId, Seq, TaskId, UserId},
    ports::{IntentState, StoreError, TaskState},
    projection::Change,
    time::Micros,
};

use super::{Cell, json, signed};

/// What a row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    HeadGuard,
    IntentGuard,
    Conversation,
    Event,
    Task,
    Letter,
    Move,
    Plan,
    Run,
    Outbox,
    Operation,
    LetterDue,
    LetterMove,
    OperationEnd,
}

/// A row and what it is for.
pub type Row = (Kind, Vec<Cell>);

/// What becomes of a conversation's row.
struct Moved {
    /// Whether all messages of this batch are stateless calls; nothing if there is none.
    stateless: Option<bool>,
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
    held_at: Option<Micros>,
}

/// What becomes of an intent's row.
struct Run {
    state: IntentState,
    starts: i64,
    at: Micros,
}

/// Everything that a batch writes.
#[derive(Default)]
pub struct Writes {
    conversations: BTreeMap<ConversationId, Moved>,
    events: Vec<Vec<Cell>>,
    tasks: Vec<Vec<Cell>>,
    moves: BTreeMap<(TaskId, ConversationId), Move>,
    plans: Vec<Vec<Cell>>,
    runs: BTreeMap<(IntentId, ConversationId), Run>,
    outbox: Vec<Vec<Cell>>,
    letters: Vec<Vec<Cell>>,
    operations: Vec<Vec<Cell>>,
    letter_dues: Vec<Vec<Cell>>,
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
            stateless: None,
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
                Change::TaskHeld { task, held, at } => {
                    let to = if *held { Where::In(TaskState::Suspended) } else { Where::LetGo };
                    self.change_task(conversation, *task, |row| {
                        row.to = to;
                        row.held_at = Some(*at);
                    });
                }
                Change::TaskReprioritised { task, priority } => {
                    self.change_task(conversation, *task, |row| row.priority = Some(*priority));
                }
                Change::TaskDeferred { task, until } => {
                    self.change_task(conversation, *task, |row| row.not_before = Some(*until));
                }
                Change::LetterPut { .. }
                | Change::LetterDue { .. }
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
            Change::LetterDue { task, at } => self.letter_dues.push(vec![
                Cell::Number(at.0),
                Cell::Id(task.uuid()),
                Cell::Id(conversation.uuid()),
                Cell::Number(signed(seq.0)),
            ]),
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
        let Change::TaskOpened {
            task,
            client_id,
            text_sha256,
            title,
            source,
            priority,
            not_before,
            after,
            is_order,
            is_steer,
            joins,
            stateless,
            at,
        } = change
        else {
            return;
        };
        if let Some(moved) = self.conversations.get_mut(&conversation) {
            moved.stateless = Some(moved.stateless.unwrap_or(true) && *stateless);
            if moved.title.is_empty() {
                moved.title.clone_from(title);
            }
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
            Cell::Number(i64::from(*is_order)),
            Cell::Number(i64::from(*is_steer)),
            joins.map_or(Cell::Nothing, |into| Cell::Id(into.uuid())),
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
        ]);
    }

    fn run(&mut self, conversation: ConversationId, intent: IntentId, state: IntentState, at: Micros) -> &mut Run {
        let run = self.runs.entry((intent, conversation)).or_insert(Run { state, starts: 0, at });
        if run.state != IntentState::Done {
            (run.state, run.at) = (state, at);
        }
        run
    }

    /// The rows, those first that others refer to, and a letter before the end of its task: only the event that ends a task
    /// makes it a dead letter.
    pub fn rows(self) -> Vec<Row> {
        let conversations = self.conversations.into_iter().map(|(id, moved)| moved.cells(id)).collect();
        let moves = self.moves.into_iter().map(|(ids, folded)| folded.cells(ids)).collect();
        let runs = self.runs.into_iter().map(|(ids, run)| run.cells(ids)).collect();
        [
            (Kind::Conversation, conversations),
            (Kind::Event, self.events),
            (Kind::Task, self.tasks),
            (Kind::Letter, self.letters),
            (Kind::Move, moves),
            (Kind::Plan, self.plans),
            (Kind::Run, runs),
            (Kind::Outbox, self.outbox),
            (Kind::Operation, self.operations),
            (Kind::LetterDue, self.letter_dues),
            (Kind::LetterMove, self.letter_moves),
            (Kind::OperationEnd, self.operation_ends),
        ]
        .into_iter()
        .flat_map(|(kind, rows): (Kind, Vec<Vec<Cell>>)| rows.into_iter().map(move |cells| (kind, cells)))
        .collect()
    }
}

/// Words as one JSON list.
fn list(words: impl Iterator<Item = String>) -> Cell {
    Cell::Text(serde_json::Value::from(words.collect::<Vec<_>>()).to_string())
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
            self.stateless.map_or(Cell::Nothing, |stateless| Cell::Number(i64::from(stateless))),
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
            self.held_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
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
