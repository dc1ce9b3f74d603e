//! The data of the in-memory store, and how events change it.

use std::collections::BTreeMap;

use annie_core::{
    breaker::BreakerRow,
    event::{Event, NewEvent},
    ids::{ConversationId, Epoch, IntentId, NodeId, NodeIncarnation, OperationId, OutboxId, Seq, TaskId, UserId},
    ports::{
        Address, ApiKey, ConversationRow, DeadLetterRow, Deletion, Diverted, Document, IntentRow, IntentState, NodeRow,
        Notification, OperationRow, SealedSecret, Snapshot, TaskRow, TaskState, WriteKind,
    },
    projection::{self, Change},
    spend::{Day, UsageTotals},
    time::Micros,
};

use super::nodes::DatabaseClock;
use crate::{
    admission::{Admission, Head, Needs, Planned, Received},
    documents::Keys,
};

/// A conversation and its log.
pub(super) struct Conversation {
    pub user: UserId,
    pub owner: Option<NodeIncarnation>,
    pub epoch: Epoch,
    pub title: String,
    /// Whether all messages are stateless calls; `None` while there are no messages.
    pub stateless: Option<bool>,
    pub created_at: Micros,
    pub updated_at: Micros,
    pub events: Vec<Event>,
    pub snapshot: Option<Snapshot>,
    /// The digests of the bodies that erased events had.
    pub erased: BTreeMap<Seq, [u8; 32]>,
    pub deletion: Option<KeptDeletion>,
}

/// The deletion of a conversation, and the last event that is erased.
pub(super) struct KeptDeletion {
    pub deletion: Deletion,
    pub erased: Seq,
}

impl Conversation {
    pub const fn last(&self) -> Seq {
        Seq(self.events.len() as u64)
    }

    pub fn row(&self, id: ConversationId) -> ConversationRow {
        ConversationRow {
            id,
            user: self.user.clone(),
            title: self.title.clone(),
            last_seq: self.last(),
            epoch: self.epoch,
            owner: self.owner,
            created_at: self.created_at,
            updated_at: self.updated_at,
            stateless: self.stateless.unwrap_or_default(),
            deleted_at: self.deletion.as_ref().map(|kept| kept.deletion.at),
        }
    }
}

/// An intent, the conversation that planned it, and its position there.
pub(super) struct Intent {
    pub conversation: ConversationId,
    pub position: (Seq, usize),
    pub row: IntentRow,
}

/// A document with its keys.
pub(super) struct KeptDocument {
    pub document: Document,
    pub keys: Keys,
    pub archived_at: Option<Micros>,
}

/// A final message in the outbox.
pub(super) struct OutboxMessage {
    pub user: UserId,
    pub conversation: ConversationId,
    pub task: TaskId,
    /// Emptied when the message is swept: then only the fact of its delivery remains.
    pub text: String,
    pub at: Micros,
    pub seq: Seq,
    pub reply_to: Option<Address>,
    pub delivery: Delivery,
}

/// The delivery of a final message, which follows from no event.
#[derive(Clone, Copy, Default)]
pub(super) struct Delivery {
    pub delivered_at: Option<Micros>,
    pub attempts: u32,
    pub begun: Option<(NodeId, Micros)>,
    pub retry_at: Option<Micros>,
    pub diverted: Option<Diverted>,
}

/// All data of the store.
#[derive(Default)]
pub(super) struct Data {
    pub conversations: BTreeMap<ConversationId, Conversation>,
    pub tasks: BTreeMap<TaskId, TaskRow>,
    pub messages: BTreeMap<(UserId, String), Received>,
    pub intents: BTreeMap<IntentId, Intent>,
    pub addresses: BTreeMap<TaskId, (ConversationId, Address)>,
    /// By conversation, day, backend and skills.
    pub usage: BTreeMap<(ConversationId, Day, String, String), (UserId, UsageTotals)>,
    pub outbox: BTreeMap<OutboxId, OutboxMessage>,
    pub dead_letters: BTreeMap<TaskId, DeadLetterRow>,
    pub operations: BTreeMap<OperationId, OperationRow>,
    pub notifications: BTreeMap<u64, Notification>,
    /// Number of notifications so far, which is the id of the last one.
    pub notified: u64,
    pub secrets: BTreeMap<&'static str, [u8; 32]>,
    pub documents: BTreeMap<(UserId, &'static str, u64), KeptDocument>,
    pub document_intents: BTreeMap<(UserId, &'static str, IntentId), (u64, WriteKind)>,
    pub breakers: BTreeMap<String, BreakerRow>,
    pub keys: BTreeMap<String, ApiKey>,
    /// By the user, with `None` for the installation, and the name.
    pub sealed_secrets: BTreeMap<(Option<UserId>, String), SealedSecret>,
    pub nodes: BTreeMap<NodeId, NodeRow>,
    pub clock: DatabaseClock,
}

impl Data {
    /// Conversations with open tasks, the oldest first.
    pub fn open(&self) -> Vec<(ConversationId, UserId)> {
        let mut open: Vec<(Micros, ConversationId, UserId)> = Vec::new();
        for task in self.tasks.values().filter(|t| !t.state.is_ended()) {
            match open.iter_mut().find(|(_, id, _)| *id == task.conversation) {
                Some(found) => found.0 = found.0.min(task.received_at),
                None => open.push((task.received_at, task.conversation, task.user.clone())),
            }
        }
        open.sort();
        open.into_iter().map(|(_, id, user)| (id, user)).collect()
    }

    pub fn is_deleted(&self, id: ConversationId) -> bool {
        self.conversations.get(&id).is_some_and(|c| c.deletion.is_some())
    }

    /// The facts that are needed to judge a batch.
    pub fn admission(&self, needs: &Needs) -> Admission {
        let mut admission = Admission::default();
        for id in &needs.conversations {
            if let Some(c) = self.conversations.get(id) {
                let head = Head {
                    user: c.user.clone(),
                    epoch: c.epoch,
                    next: Seq(c.last().0 + 1),
                    is_deleted: c.deletion.is_some(),
                };
                admission.heads.insert(*id, head);
            }
        }
        for key in &needs.messages {
            if let Some(received) = self.messages.get(key) {
                admission.known.messages.insert(key.clone(), received.clone());
            }
        }
        admission.known.tasks = needs.tasks.iter().filter(|t| self.tasks.contains_key(t)).copied().collect();
        for id in &needs.intents {
            if let Some(Intent { conversation, row, .. }) = self.intents.get(id) {
                let planned = Planned { conversation: *conversation, effect: row.effect, state: row.state };
                admission.known.intents.insert(*id, planned);
            }
        }
        admission
    }

    /// Appends an event and applies its changes.
    pub fn append(&mut self, id: ConversationId, user: &UserId, event: NewEvent, changes: &[Change]) {
        let at = event.at;
        let conversation = self.conversations.entry(id).or_insert_with(|| Conversation {
            user: user.clone(),
            owner: None,
            epoch: Epoch(0),
            title: String::new(),
            stateless: None,
            created_at: at,
            updated_at: at,
            events: Vec::new(),
            snapshot: None,
            erased: BTreeMap::new(),
            deletion: None,
        });
        let seq = Seq(conversation.last().0 + 1);
        conversation.events.push(Event::placed(id, seq, event));
        conversation.updated_at = conversation.updated_at.max(at);
        let mut ended = false;
        for (change, position) in changes.iter().zip(0..) {
            match change {
                Change::TaskMoved { task, state, error, at } => {
                    ended = self.move_task(id, *task, *state, error.as_ref(), *at);
                }
                // Only the event that ends a task makes it a dead letter.
                Change::DeadLetterPut { .. } if !ended => {}
                _ => self.project(id, user, (seq, position), change),
            }
        }
    }

    fn project(&mut self, id: ConversationId, user: &UserId, position: (Seq, usize), change: &Change) {
        match change {
            Change::TaskOpened { .. } => self.open_task(id, user, position.0, change),
            Change::TaskMoved { .. } => {}
            Change::TaskHeld { task, held, at } => self.change_task(id, *task, |row| {
                row.held_at = Some(*at);
                row.state = match (held, row.started_at) {
                    (true, _) => TaskState::Suspended,
                    (false, Some(_)) => TaskState::Running,
                    (false, None) => TaskState::Queued,
                };
            }),
            Change::TaskReprioritised { task, priority } => {
                self.change_task(id, *task, |row| row.priority = *priority);
            }
            Change::TaskDeferred { task, until, has_model_failed } => self.change_task(id, *task, |row| {
                row.not_before = Some(*until);
                row.has_model_failed = *has_model_failed;
            }),
            Change::DeadLetterPut { .. }
            | Change::DeadLetterDue { .. }
            | Change::DeadLetterMoved { .. }
            | Change::OperationOpened { .. }
            | Change::OperationClosed { .. } => self.project_work(id, user, change),
            Change::IntentPlanned { intent, task, skill, effect, .. } => {
                self.intents.entry(*intent).or_insert_with(|| Intent {
                    conversation: id,
                    position,
                    row: IntentRow {
                        id: *intent,
                        task: *task,
                        skill: skill.clone(),
                        effect: *effect,
                        state: IntentState::Planned,
                        attempts: 0,
                    },
                });
            }
            Change::IntentStarted { intent, .. } => {
                if let Some(kept) = self.intents.get_mut(intent).filter(|kept| kept.conversation == id) {
                    kept.row.state = IntentState::Started;
                    kept.row.attempts += 1;
                }
            }
            Change::IntentClosed { intent, state, .. } => {
                let kept = self.intents.get_mut(intent).filter(|kept| kept.conversation == id);
                if let Some(kept) = kept.filter(|kept| kept.row.state != IntentState::Done) {
                    kept.row.state = *state;
                }
            }
            Change::UsageAdded { day, backend, skills, totals } => {
                let key = (id, *day, backend.clone(), skills.clone());
                self.usage.entry(key).or_insert_with(|| (user.clone(), UsageTotals::default())).1.add(totals);
            }
            Change::AddressPut { task, address } => {
                self.addresses.entry(*task).or_insert_with(|| (id, address.clone()));
            }
            Change::OutboxPut { id: out, task, text, at } => {
                let address = self.addresses.get(task).filter(|(conversation, _)| *conversation == id);
                self.outbox.entry(*out).or_insert_with(|| OutboxMessage {
                    user: user.clone(),
                    conversation: id,
                    task: *task,
                    text: text.clone(),
                    at: *at,
                    seq: position.0,
                    reply_to: address.map(|(_, address)| address.clone()),
                    delivery: Delivery::default(),
                });
            }
        }
    }

    fn open_task(&mut self, id: ConversationId, user: &UserId, seq: Seq, change: &Change) {
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
        let received = Received { task: *task, conversation: id, seq, text_sha256: *text_sha256 };
        self.messages.insert((user.clone(), client_id.clone()), received);
        self.tasks.insert(
            *task,
            TaskRow {
                id: *task,
                user: user.clone(),
                conversation: id,
                state: TaskState::Queued,
                priority: *priority,
                source: source.clone(),
                title: title.clone(),
                received_at: *at,
                not_before: *not_before,
                after: after.clone(),
                is_job_command: *is_job_command,
                is_steer: *is_steer,
                joins: *joins,
                held_at: None,
                has_model_failed: false,
                started_at: None,
                ended_at: None,
                error: None,
            },
        );
        if let Some(conversation) = self.conversations.get_mut(&id) {
            conversation.stateless = Some(conversation.stateless.unwrap_or(true) && *stateless);
            if conversation.title.is_empty() {
                conversation.title.clone_from(title);
            }
        }
    }

    /// Changes a task's state; true if this ended the task.
    fn move_task(
        &mut self,
        id: ConversationId,
        task: TaskId,
        state: TaskState,
        error: Option<&String>,
        at: Micros,
    ) -> bool {
        let mut ended = false;
        self.change_task(id, task, |row| {
            row.state = state;
            if state == TaskState::Running {
                row.started_at.get_or_insert(at);
            }
            if state.is_ended() {
                row.ended_at = Some(at);
                row.error = error.cloned();
                ended = true;
            }
        });
        ended
    }

    /// Applies a change, unless the task has ended.
    fn change_task(&mut self, id: ConversationId, task: TaskId, change: impl FnOnce(&mut TaskRow)) {
        if let Some(row) = self.tasks.get_mut(&task).filter(|row| row.conversation == id && !row.state.is_ended()) {
            change(row);
        }
    }

    /// Deletes the projections and folds the log again.
    pub fn rebuild(&mut self) -> u64 {
        self.tasks.clear();
        self.messages.clear();
        self.intents.clear();
        self.addresses.clear();
        self.usage.clear();
        self.dead_letters.clear();
        self.operations.clear();
        let deliveries: BTreeMap<OutboxId, Delivery> =
            std::mem::take(&mut self.outbox).into_iter().map(|(id, word)| (id, word.delivery)).collect();
        let mut read = 0;
        let logs: Vec<_> = self
            .conversations
            .iter_mut()
            .map(|(id, c)| {
                c.title.clear();
                c.stateless = None;
                (*id, c.user.clone(), std::mem::take(&mut c.events))
            })
            .collect();
        for (id, user, events) in logs {
            for Event { at, task, agent, body, .. } in events {
                let event = NewEvent { at, task, agent, body };
                let changes = projection::changes(&event);
                self.append(id, &user, event, &changes);
                read += 1;
            }
        }
        for (id, word) in &mut self.outbox {
            word.delivery = deliveries.get(id).copied().unwrap_or_default();
        }
        read
    }
}
