//! The writes of a batch, gathered by table; several changes of one row are folded into one.

use std::collections::BTreeMap;

use annie_core::{
    event::{EVENT_VERSION, NewEvent, Priority},
    ids::{ConversationId, IntentId, NodeIncarnation, Seq, TaskId, UserId},
    ports::{IntentState, StoreError, TaskState},
    projection::Change,
    spend::{Day, UsageTotals},
    time::Micros,
};
use uuid::Uuid;

use super::{Cell, SharedTexts, json, signed};

/// The purpose of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    HeadGuard,
    IntentGuard,
    Conversation,
    Event,
    Task,
    DeadLetter,
    Move,
    Plan,
    Run,
    Outbox,
    Operation,
    DeadLetterDue,
    DeadLetterMove,
    OperationEnd,
    Address,
    Usage,
    Text,
}

/// The purpose of a row and its values.
pub type Row = (Kind, Vec<Cell>);

/// Changes to a conversation's row.
struct Moved {
    /// Whether all messages of this batch are stateless calls; `None` if there are none.
    stateless: Option<bool>,
    /// The node that owns a new conversation from the beginning.
    owner: Option<NodeIncarnation>,
    user: String,
    next: Seq,
    title: String,
    created_at: Micros,
    updated_at: Micros,
}

/// State of a task after a batch.
#[derive(Default)]
enum NextState {
    #[default]
    Unchanged,
    In(TaskState),
    /// The task was suspended and is resumed: its state depends on whether its turn had begun.
    Resumed,
}

/// Changes to a task's row.
#[derive(Default)]
struct Move {
    to: NextState,
    started_at: Option<Micros>,
    ended_at: Option<Micros>,
    /// The event that ended it.
    ended_by: Option<Seq>,
    error: Option<String>,
    priority: Option<Priority>,
    not_before: Option<Micros>,
    held_at: Option<Micros>,
    has_model_failed: Option<bool>,
}

/// Changes to an intent's row.
struct Run {
    state: IntentState,
    starts: i64,
    at: Micros,
}

/// All writes of a batch.
#[derive(Default)]
pub struct Writes {
    conversations: BTreeMap<ConversationId, Moved>,
    events: Vec<Vec<Cell>>,
    tasks: Vec<Vec<Cell>>,
    moves: BTreeMap<(TaskId, ConversationId), Move>,
    plans: Vec<Vec<Cell>>,
    runs: BTreeMap<(IntentId, ConversationId), Run>,
    outbox: Vec<Vec<Cell>>,
    dead_letters: Vec<Vec<Cell>>,
    operations: Vec<Vec<Cell>>,
    dead_letter_dues: Vec<Vec<Cell>>,
    dead_letter_moves: Vec<Vec<Cell>>,
    operation_ends: Vec<Vec<Cell>>,
    addresses: Vec<Vec<Cell>>,
    /// By the key of the row, so that a batch changes each row once.
    usage: BTreeMap<(ConversationId, Day, String, String), (String, UsageTotals)>,
    /// Texts of these events that are stored apart and are not known to be stored.
    texts: BTreeMap<Uuid, (String, Micros)>,
}

impl Writes {
    /// Adds an event with its sequence number. Of its shared text the event keeps only the id; a text that is not among the
    /// stored ones is written with it.
    pub fn event(
        &mut self,
        conversation: ConversationId,
        user: &UserId,
        (seq, event): (Seq, &NewEvent),
        stored: &SharedTexts,
    ) -> Result<(), StoreError> {
        let moved = self.conversations.entry(conversation).or_insert_with(|| Moved {
            user: user.as_str().to_owned(),
            next: seq,
            title: String::new(),
            stateless: None,
            owner: None,
            created_at: event.at,
            updated_at: event.at,
        });
        moved.next = Seq(seq.0 + 1);
        moved.updated_at = moved.updated_at.max(event.at);
        let apart = stored.apart(&event.body, event.at);
        let body = match &apart {
            Some(apart) => json(&event.body.without_shared_text(apart.id))?,
            None => json(&event.body)?,
        };
        let text_id = apart.as_ref().map_or(Cell::Nothing, |apart| Cell::Id(apart.id));
        if let Some(apart) = apart.filter(|apart| !apart.is_stored) {
            self.texts.entry(apart.id).or_insert_with(|| (apart.text.to_owned(), event.at));
        }
        self.events.push(vec![
            Cell::Id(conversation.uuid()),
            Cell::Number(signed(seq.0)),
            Cell::Number(event.at.0),
            Cell::Id(event.task.uuid()),
            Cell::Text(event.agent.as_str().to_owned()),
            Cell::Word(event.body.kind()),
            Cell::Number(i64::from(EVENT_VERSION)),
            Cell::Text(body),
            text_id,
        ]);
        Ok(())
    }

    /// Makes a node the owner of a conversation that this batch creates.
    pub fn own(&mut self, conversation: ConversationId, by: NodeIncarnation) {
        if let Some(moved) = self.conversations.get_mut(&conversation) {
            moved.owner = Some(by);
        }
    }

    /// Adds the changes that an event makes to the tables beside the log.
    pub fn project(&mut self, conversation: ConversationId, user: &UserId, seq: Seq, changes: &[Change]) {
        for (change, position) in changes.iter().zip(0_i64..) {
            match change {
                Change::TaskOpened { .. } => self.open_task(conversation, user, seq, change),
                Change::TaskMoved { .. } => self.move_task(conversation, seq, change),
                Change::TaskHeld { task, held, at } => {
                    let to = if *held { NextState::In(TaskState::Suspended) } else { NextState::Resumed };
                    self.change_task(conversation, *task, |row| {
                        row.to = to;
                        row.held_at = Some(*at);
                    });
                }
                Change::TaskReprioritised { task, priority } => {
                    self.change_task(conversation, *task, |row| row.priority = Some(*priority));
                }
                Change::TaskDeferred { task, until, has_model_failed } => {
                    self.change_task(conversation, *task, |row| {
                        row.not_before = Some(*until);
                        row.has_model_failed = Some(*has_model_failed);
                    });
                }
                Change::DeadLetterPut { .. }
                | Change::DeadLetterDue { .. }
                | Change::DeadLetterMoved { .. }
                | Change::OperationOpened { .. }
                | Change::OperationClosed { .. } => self.project_work(conversation, user, seq, change),
                Change::IntentPlanned { intent, task, skill, effect, at } => self.plans.push(vec![
                    Cell::Id(intent.uuid()),
                    Cell::Id(conversation.uuid()),
                    Cell::Id(task.uuid()),
                    Cell::Number(signed(seq.0)),
                    Cell::Number(position),
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
                Change::UsageAdded { day, backend, skills, totals } => {
                    let key = (conversation, *day, backend.clone(), skills.clone());
                    let row = self.usage.entry(key).or_insert_with(|| (user.as_str().to_owned(), Default::default()));
                    row.1.add(totals);
                }
                Change::AddressPut { task, address } => self.addresses.push(vec![
                    Cell::Id(task.uuid()),
                    Cell::Id(conversation.uuid()),
                    Cell::Text(address.channel.clone()),
                    Cell::Text(address.to.clone()),
                ]),
                Change::OutboxPut { id, task, text, at } => self.outbox.push(vec![
                    Cell::Id(id.uuid()),
                    Cell::Text(user.as_str().to_owned()),
                    Cell::Id(conversation.uuid()),
                    Cell::Id(task.uuid()),
                    Cell::Text(text.clone()),
                    Cell::Number(at.0),
                    Cell::Number(signed(seq.0)),
                ]),
            }
        }
    }

    /// Adds the changes that an event makes to dead letters and operations.
    fn project_work(&mut self, conversation: ConversationId, user: &UserId, seq: Seq, change: &Change) {
        match change {
            Change::DeadLetterPut { .. } => self.put_dead_letter(conversation, user, seq, change),
            Change::DeadLetterDue { task, at } => self.dead_letter_dues.push(vec![
                Cell::Number(at.0),
                Cell::Id(task.uuid()),
                Cell::Id(conversation.uuid()),
                Cell::Number(signed(seq.0)),
            ]),
            Change::DeadLetterMoved { task, state, retry, at } => self.dead_letter_moves.push(vec![
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
            is_job_command,
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
            Cell::Number(i64::from(*is_job_command)),
            Cell::Number(i64::from(*is_steer)),
            joins.map_or(Cell::Nothing, |into| Cell::Id(into.uuid())),
        ]);
    }

    fn move_task(&mut self, conversation: ConversationId, seq: Seq, change: &Change) {
        let Change::TaskMoved { task, state, error, at } = change else { return };
        self.change_task(conversation, *task, |row| {
            row.to = NextState::In(*state);
            if *state == TaskState::Running {
                row.started_at.get_or_insert(*at);
            }
            if state.is_ended() {
                (row.ended_at, row.ended_by) = (Some(*at), Some(seq));
                row.error.clone_from(error);
            }
        });
    }

    /// Applies a change, unless the task ended in this batch. If it ended in an earlier batch, the statement leaves it
    /// unchanged.
    fn change_task(&mut self, conversation: ConversationId, task: TaskId, change: impl FnOnce(&mut Move)) {
        let row = self.moves.entry((task, conversation)).or_default();
        if row.ended_at.is_none() {
            change(row);
        }
    }

    fn put_dead_letter(&mut self, conversation: ConversationId, user: &UserId, seq: Seq, change: &Change) {
        let Change::DeadLetterPut { task, dead_letter, code, text, detail, at } = change else { return };
        if self.moves.get(&(*task, conversation)).and_then(|row| row.ended_by) != Some(seq) {
            return;
        }
        self.dead_letters.push(vec![
            Cell::Id(task.uuid()),
            Cell::Id(conversation.uuid()),
            Cell::Text(user.as_str().to_owned()),
            Cell::Number(signed(seq.0)),
            Cell::Text(code.clone()),
            Cell::Text(text.clone()),
            Cell::Text(detail.clone()),
            list(dead_letter.tried.iter().cloned()),
            Cell::Number(dead_letter.since.0),
            dead_letter.retry_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
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

    /// The texts that are stored apart and are written by this batch.
    pub fn texts(&self) -> Vec<(Uuid, String, Micros)> {
        self.texts.iter().map(|(id, (text, at))| (*id, text.clone(), *at)).collect()
    }

    /// The rows: referenced rows come before the rows that refer to them, and a dead letter before the end of its task, because
    /// only the event that ends a task makes it a dead letter.
    pub fn rows(self) -> Vec<Row> {
        let conversations = self.conversations.into_iter().map(|(id, moved)| moved.cells(id)).collect();
        let moves = self.moves.into_iter().map(|(ids, folded)| folded.cells(ids)).collect();
        let runs = self.runs.into_iter().map(|(ids, run)| run.cells(ids)).collect();
        let usage = self.usage.into_iter().map(usage_cells).collect();
        let texts = self.texts.into_iter();
        let texts = texts.map(|(id, (text, at))| vec![Cell::Id(id), Cell::Text(text), Cell::Number(at.0)]).collect();
        [
            (Kind::Text, texts),
            (Kind::Conversation, conversations),
            (Kind::Event, self.events),
            (Kind::Task, self.tasks),
            (Kind::Address, self.addresses),
            (Kind::DeadLetter, self.dead_letters),
            (Kind::Move, moves),
            (Kind::Plan, self.plans),
            (Kind::Run, runs),
            (Kind::Outbox, self.outbox),
            (Kind::Operation, self.operations),
            (Kind::DeadLetterDue, self.dead_letter_dues),
            (Kind::DeadLetterMove, self.dead_letter_moves),
            (Kind::OperationEnd, self.operation_ends),
            (Kind::Usage, usage),
        ]
        .into_iter()
        .flat_map(|(kind, rows): (Kind, Vec<Vec<Cell>>)| rows.into_iter().map(move |cells| (kind, cells)))
        .collect()
    }
}

type UsageOf = ((ConversationId, Day, String, String), (String, UsageTotals));

fn usage_cells(((conversation, day, backend, skills), (user, totals)): UsageOf) -> Vec<Cell> {
    vec![
        Cell::Id(conversation.uuid()),
        Cell::Number(day.0),
        Cell::Text(backend),
        Cell::Text(skills),
        Cell::Text(user),
        Cell::Number(signed(totals.rounds)),
        Cell::Number(signed(totals.input_tokens)),
        Cell::Number(signed(totals.cached_tokens)),
        Cell::Number(signed(totals.cache_written_tokens)),
        Cell::Number(signed(totals.output_tokens)),
        Cell::Number(signed(totals.reasoning_tokens)),
        Cell::Number(signed(totals.nanodollars)),
    ]
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
            self.owner.map_or(Cell::Nothing, |owner| Cell::Id(owner.uuid())),
        ]
    }
}

impl Move {
    fn cells(self, (task, conversation): (TaskId, ConversationId)) -> Vec<Cell> {
        let (state, resumed) = match self.to {
            NextState::Unchanged => (Cell::Nothing, Cell::Nothing),
            NextState::In(state) => (Cell::Word(state.as_str()), Cell::Nothing),
            NextState::Resumed if self.started_at.is_some() => (Cell::Word(TaskState::Running.as_str()), Cell::Nothing),
            NextState::Resumed => (Cell::Nothing, Cell::Number(1)),
        };
        vec![
            state,
            resumed,
            self.started_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            self.ended_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            self.error.map_or(Cell::Nothing, Cell::Text),
            self.priority.map_or(Cell::Nothing, |priority| Cell::Word(priority.as_str())),
            self.not_before.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            self.held_at.map_or(Cell::Nothing, |at| Cell::Number(at.0)),
            Cell::Id(task.uuid()),
            Cell::Id(conversation.uuid()),
            self.has_model_failed.map_or(Cell::Nothing, |failed| Cell::Number(i64::from(failed))),
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
