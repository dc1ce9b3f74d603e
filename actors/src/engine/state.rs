//! The state of an Engine, and what it knows of the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use annie_core::{
    event::{Event, HookAnswer, NewEvent, ResumeCause},
    ids::{AgentId, ConversationId, Epoch, IntentId, Seq, TaskId, UserId},
    time::Micros,
    turn::{Conversation, DirectiveId},
};
use ractor::ActorId;
use tokio::sync::oneshot;

use super::{at_work::AtWork, messages::EngineMsg};
use crate::{
    effects::{Begin, Waits},
    observe::Addr,
    opening::Opening,
    scheduler::RequestHandle,
    shared_effects::SharedEffects,
    sub_agent::{SubAgentMsg, Tally},
    tasks::Tasks,
    wiring::Wiring,
};

pub(crate) struct EngineArgs {
    pub wiring: Arc<Wiring>,
    pub conversation: ConversationId,
    pub user: UserId,
    /// Why the last incarnation ended, if there was one.
    pub cause: Option<ResumeCause>,
    /// The task on which the last incarnation died, if it is known.
    pub blamed: Option<TaskId>,
    /// The record of what this incarnation works on, shared with the parent.
    pub at_work: AtWork,
    /// Claim the conversation even from a live node.
    pub takes_over: bool,
    /// The conversation is new and this node's: there is nothing to claim or to read.
    pub opening: Option<Opening>,
}

/// The purposes of an Engine's tasks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum EngineTask {
    Effect(DirectiveId),
    IdleTimer,
    SaveTimer,
    Snapshot,
    Clock,
}

/// A running sub-agent.
pub(crate) struct Child {
    pub task: TaskId,
    pub agent: AgentId,
    pub addr: Addr<SubAgentMsg>,
    pub tally: Tally,
    /// How long its rounds wait for their permits.
    pub waits: Waits,
    /// How many texts that were added to its mission were sent to it.
    pub steering_sent: usize,
}

pub(crate) struct EngineState {
    pub wiring: Arc<Wiring>,
    pub conv: Conversation,
    pub cause: Option<ResumeCause>,
    pub blamed: Option<TaskId>,
    pub at_work: AtWork,
    pub takes_over: bool,
    pub opening: Option<Opening>,
    pub epoch: Epoch,
    pub tasks: Tasks<EngineTask>,
    pub agents: BTreeMap<ActorId, Child>,
    /// The effects of each turn's agents, shared among them while they run.
    pub effects: BTreeMap<TaskId, SharedEffects>,
    /// The orchestrators' rounds that wait for a permit or run.
    pub asked: BTreeMap<DirectiveId, Asked>,
    /// The calls that wait for a person, each with what receives the verdict.
    pub approvals: BTreeMap<(TaskId, IntentId), oneshot::Sender<HookAnswer>>,
    /// Set while the Engine waits for permission to leave memory.
    pub leaving: Option<Leaving>,
    /// The number of requests to leave that have not been answered.
    pub questions_open: u32,
    /// All messages of the log up to this sequence number are known.
    pub read_to: Seq,
    /// The known events after `read_to`, by sequence number: messages, and what this incarnation stored.
    pub woken: BTreeSet<Seq>,
    /// The beginning of a turn, folded and not stored yet. It is stored with the next append, or by the save timer.
    pub unsaved: Vec<NewEvent>,
    /// The sequence number of the last snapshot that was saved.
    pub snapshot_at: Seq,
    /// The sequence number of the log when the last snapshot was attempted.
    pub snapshot_tried: Seq,
    /// The number of events that this incarnation read when it activated.
    pub read_at_birth: usize,
    /// The number of wake-ups and task controls received.
    pub wakes_seen: u64,
    pub quiet_periods: u64,
    /// When the clock's timer goes off.
    pub clock_at: Option<Micros>,
    /// When this incarnation started.
    pub born_at: Micros,
    /// Another epoch owns the conversation: the store refuses what this incarnation writes.
    pub fenced: bool,
}

/// The Engine's actor.
pub(crate) struct Engine;

/// A round that this incarnation requested.
pub(crate) struct Asked {
    pub handle: RequestHandle,
    pub begin: Begin,
    /// How long the round waits for its permits.
    pub waits: Waits,
    pub since: Micros,
}

/// The messages that arrive while the request to leave is open.
pub(crate) struct Leaving {
    pub later: Vec<EngineMsg>,
}

/// Records that all messages up to `to` are known.
pub(super) fn mark_known_up_to(state: &mut EngineState, to: Seq) {
    state.read_to = to.max(state.read_to);
    state.woken = state.woken.split_off(&Seq(state.read_to.0 + 1));
    advance_read_to(state);
}

/// Records `count` events from `first` on as stored by this incarnation.
pub(super) fn note_stored(state: &mut EngineState, first: Seq, count: u64) {
    state.woken.extend((first.0..first.0 + count).map(Seq).filter(|seq| *seq > state.read_to));
    advance_read_to(state);
}

/// Advances `read_to` over the events that follow it without a gap.
fn advance_read_to(state: &mut EngineState) {
    while state.woken.remove(&Seq(state.read_to.0 + 1)) {
        state.read_to.0 += 1;
    }
}

/// Folds a message. Returns false if this incarnation knows it already.
pub(super) fn fold_message(state: &mut EngineState, event: &Event) -> bool {
    let is_new = event.seq > state.read_to && state.woken.insert(event.seq);
    if is_new {
        state.conv.apply(event);
        advance_read_to(state);
    }
    is_new
}

/// Gives the verdicts to the calls that wait for them. Calls of ended agents wait no more.
pub(super) fn answer_decided(state: &mut EngineState) {
    let answer = |(task, intent)| Some(((task, intent), state.conv.approval_answer(task, intent)?));
    let decided: Vec<_> = state.approvals.keys().copied().filter_map(answer).collect();
    for (call, answer) in decided {
        if let Some(reply) = state.approvals.remove(&call) {
            // The agent may have ended meanwhile.
            let _ = reply.send(answer);
        }
    }
    state.approvals.retain(|_, reply| !reply.is_closed());
}
