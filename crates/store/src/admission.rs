//! Decides whether an append may be stored; every store uses these rules. A store collects the facts that a batch
//! needs, asks for a verdict on each append in order, and writes the admitted ones. The facts must hold when the batch
//! is written: a store reads them inside its write transaction, or takes them from memory and lets the database check
//! them with the write. A refused append has no effect, neither here nor in the store.

use std::collections::{BTreeMap, BTreeSet};

use annie_core::{
    event::NewEvent,
    ids::{ConversationId, Epoch, IntentId, Seq, TaskId, UserId},
    ports::{Append, AppendError, Fence, IntentState, StoreError, StoreErrorKind},
    projection::{self, Change},
    skill::Effect,
};

/// An append and its changes to the tables beside the log.
pub(crate) struct Proposal {
    pub conversation: ConversationId,
    pub user: UserId,
    pub fence: Fence,
    pub events: Vec<(NewEvent, Vec<Change>)>,
}

impl Proposal {
    pub fn new(append: Append) -> Self {
        let Append { conversation, user, fence, events } = append;
        let events = events
            .into_iter()
            .map(|event| {
                let changes = projection::changes(&event);
                (event, changes)
            })
            .collect();
        Self { conversation, user, fence, events }
    }

    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.events.iter().flat_map(|(_, changes)| changes)
    }
}

/// The facts that are needed to judge a batch.
#[derive(Default)]
pub(crate) struct Needs {
    pub conversations: BTreeSet<ConversationId>,
    pub messages: BTreeSet<(UserId, String)>,
    pub tasks: BTreeSet<TaskId>,
    pub intents: BTreeSet<IntentId>,
}

impl Needs {
    pub fn of(batch: &[Proposal]) -> Self {
        let mut needs = Self::default();
        for proposal in batch {
            needs.conversations.insert(proposal.conversation);
            for change in proposal.changes() {
                match change {
                    Change::TaskOpened { task, client_id, .. } => {
                        needs.messages.insert((proposal.user.clone(), client_id.clone()));
                        needs.tasks.insert(*task);
                    }
                    Change::IntentStarted { intent, .. } => {
                        needs.intents.insert(*intent);
                    }
                    _ => {}
                }
            }
        }
        needs
    }
}

/// The stored state of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    pub user: UserId,
    pub epoch: Epoch,
    pub next: Seq,
    /// A deletion raises the epoch, so that remembered heads are outdated.
    pub is_deleted: bool,
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    pub task: TaskId,
    pub conversation: ConversationId,
    pub seq: Seq,
    pub text_sha256: [u8; 32],
}

/// A skill run that was planned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Planned {
    pub conversation: ConversationId,
    pub effect: Effect,
    pub state: IntentState,
}

/// An append that may be stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Admitted {
    /// The sequence number of its first event.
    pub first: Seq,
    /// Whether it creates the conversation.
    pub opens: bool,
}

/// The facts of one batch, updated by the appends that have been admitted.
#[derive(Default)]
pub(crate) struct Admission {
    pub heads: BTreeMap<ConversationId, Head>,
    pub known: Facts,
}

/// The facts that events change.
#[derive(Default)]
pub(crate) struct Facts {
    pub messages: BTreeMap<(UserId, String), Received>,
    pub tasks: BTreeSet<TaskId>,
    pub intents: BTreeMap<IntentId, Planned>,
}

impl Admission {
    /// The verdict on one append. If it is admitted, it counts for the appends after it.
    pub fn judge(&mut self, proposal: &Proposal) -> Result<Admitted, AppendError> {
        let admitted = self.locate(proposal)?;
        let added = self.check(proposal, admitted.first)?;
        let next = Seq(admitted.first.0 + proposal.events.len() as u64);
        let head = self.heads.entry(proposal.conversation).or_insert_with(|| Head {
            user: proposal.user.clone(),
            epoch: match proposal.fence {
                Fence::Opening(_) => Epoch::FIRST,
                Fence::Inbox | Fence::Owner(_) => Epoch(0),
            },
            next,
            is_deleted: false,
        });
        head.next = next;
        self.known.messages.extend(added.messages);
        self.known.tasks.extend(added.tasks);
        self.known.intents.extend(added.intents);
        Ok(admitted)
    }

    /// Checks fence and owner, and gives the append its sequence numbers.
    fn locate(&self, proposal: &Proposal) -> Result<Admitted, AppendError> {
        if proposal.events.is_empty() {
            return Err(bug("an append without events"));
        }
        match (self.heads.get(&proposal.conversation), proposal.fence) {
            (None, Fence::Inbox | Fence::Opening(_)) => Ok(Admitted { first: Seq(1), opens: true }),
            (None, Fence::Owner(_)) => Err(AppendError::Fenced),
            (Some(head), _) if head.user != proposal.user => Err(AppendError::WrongOwner),
            (Some(head), Fence::Owner(epoch)) if head.epoch != epoch => Err(AppendError::Fenced),
            (Some(head), _) if head.is_deleted => Err(AppendError::Deleted),
            (Some(head), _) => Ok(Admitted { first: head.next, opens: false }),
        }
    }

    /// Refuses repeated messages and repeated runs; returns the facts that the append adds.
    fn check(&self, proposal: &Proposal, first: Seq) -> Result<Facts, AppendError> {
        let mut added = Facts::default();
        let seqs = (first.0..).map(Seq);
        for ((_, changes), seq) in proposal.events.iter().zip(seqs) {
            for change in changes {
                match change {
                    Change::TaskOpened { task, client_id, text_sha256, .. } => {
                        let received = Received {
                            task: *task,
                            conversation: proposal.conversation,
                            seq,
                            text_sha256: *text_sha256,
                        };
                        self.receive(&mut added, (proposal.user.clone(), client_id.clone()), received)?;
                    }
                    Change::IntentPlanned { intent, effect, .. } if !self.known.intents.contains_key(intent) => {
                        let planned = Planned {
                            conversation: proposal.conversation,
                            effect: *effect,
                            state: IntentState::Planned,
                        };
                        added.intents.entry(*intent).or_insert(planned);
                    }
                    Change::IntentStarted { intent, .. } => self.start(&mut added, proposal.conversation, *intent)?,
                    Change::IntentClosed { intent, state, .. } => {
                        let known = added.intents.get(intent).or_else(|| self.known.intents.get(intent));
                        if let Some(known) = known.copied().filter(|k| k.state != IntentState::Done) {
                            added.intents.insert(*intent, Planned { state: *state, ..known });
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(added)
    }

    fn receive(&self, added: &mut Facts, key: (UserId, String), received: Received) -> Result<(), AppendError> {
        if let Some(before) = added.messages.get(&key).or_else(|| self.known.messages.get(&key)) {
            return Err(AppendError::Duplicate {
                task: before.task,
                conversation: before.conversation,
                seq: before.seq,
                same: before.conversation == received.conversation && before.text_sha256 == received.text_sha256,
            });
        }
        if self.known.tasks.contains(&received.task) || !added.tasks.insert(received.task) {
            return Err(bug("a task id that is already in use"));
        }
        added.messages.insert(key, received);
        Ok(())
    }

    fn start(&self, added: &mut Facts, conversation: ConversationId, intent: IntentId) -> Result<(), AppendError> {
        let known = added.intents.get(&intent).or_else(|| self.known.intents.get(&intent)).copied();
        let Some(known) = known.filter(|k| k.conversation == conversation) else {
            return Err(bug("a run that was never planned"));
        };
        if !may_start(known.effect, known.state) {
            return Err(AppendError::AlreadyStarted(intent));
        }
        added.intents.insert(intent, Planned { state: IntentState::Started, ..known });
        Ok(())
    }
}

/// Whether a run may start: a `once` run starts once; an idempotent one may start again until its receipt is stored.
const fn may_start(effect: Effect, state: IntentState) -> bool {
    match state {
        IntentState::Planned => true,
        IntentState::Started => !matches!(effect, Effect::Once),
        IntentState::Done | IntentState::Unknown => false,
    }
}

fn bug(detail: &str) -> AppendError {
    AppendError::Store(StoreError {
        kind: StoreErrorKind::Internal,
        what: "judging an append",
        detail: detail.to_owned(),
    })
}
