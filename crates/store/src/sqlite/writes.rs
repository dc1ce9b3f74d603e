//! What a batch writes, gathered by table; several changes of one row are folded into one.

use std::collections::BTreeMap;

use annie_core::{
    event::{EVENT_VERSION, NewEvent},
    ids::{ConversationId, IntentId, Seq, TaskId, UserId},
    ports::{IntentState, StoreError, TaskState},
    projection::Change,
    time::Micros,
};

use super::{
    batch::{Batch, Kind},
    rows::{json, signed},
    statements::Cell,
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

    /// The rows, those first that others refer to.
    pub fn batch(self) -> Batch {
        let conversations = self.conversations.into_iter().map(|(id, moved)| moved.cells(id)).collect();
        let moves = self.moves.into_iter().map(|(ids, folded)| folded.cells(ids)).collect();
        let runs = self.runs.into_iter().map(|(ids, run)| run.cells(ids)).collect();
        let mut batch = Batch::default();
        for (kind, rows) in [
            (Kind::Conversation, conversations),
            (Kind::Event, self.events),
            (Kind::Task, self.tasks),
            (Kind::Move, moves),
            (Kind::Plan, self.plans),
            (Kind::Run, runs),
            (Kind::Outbox, self.outbox),
        ] {
            for cells in rows {
                batch.row(kind, cells);
            }
        }
        batch
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
