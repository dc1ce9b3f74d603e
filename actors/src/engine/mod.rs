//! The Engine: the actor of one active conversation.
//!
//! Owns: the conversation's state, its ownership epoch, the tasks and sub-agents of its turns. Supervised by: Conversations,
//! with a restart budget of its own. Survives its death: everything, because the state is a fold over the log. The next
//! incarnation claims the conversation (which fences the previous owner), reads the log, and starts what is outstanding
//! under the same ids.
//!
//! Nothing else decides: an event is folded, [`Conversation::decide`] adds what follows from it, all of it is stored in one
//! append, and then the outstanding directives are compared with the running tasks.

mod activate;
mod agents;
mod at_work;
mod clock;
mod control;
mod job_commands;
mod model;
mod passivate;
mod perform;
mod record;
mod snapshot;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use annie_core::{
    event::{AgentReport, Event, Mode, NewEvent, PromptFacts, ResumeCause},
    ids::{AgentId, ConversationId, Epoch, Seq, TaskId, UserId},
    limits::TurnLimits,
    time::Micros,
    turn::{Conversation, DirectiveId, Meant, Turn},
};
pub(crate) use at_work::AtWork;
pub use control::{Control, Controlled};
pub use passivate::Passivation;
use ractor::ActorId;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    effects::{ModelDone, Routed, SkillDone, Waits},
    observe::{Addr, ChildEnded, Context, Named, Node, NodeError},
    shared_effects::SharedEffects,
    sub_agent::{SubAgentMsg, Tally},
    tasks::Tasks,
    wiring::Wiring,
};

/// Messages of an Engine.
pub enum EngineMsg {
    /// A message is in the log. Without the event, the Engine reads the log.
    Wake(Option<Arc<Event>>),
    /// Apply a control to a task.
    Control {
        /// The task to control.
        task: TaskId,
        /// The control to apply.
        control: Control,
        /// The name of the requester, for the log.
        by: String,
        /// Receives the result.
        reply: oneshot::Sender<Controlled>,
    },
    /// The facts for a turn's prompts have been read.
    FactsRead {
        /// The task of the turn.
        task: TaskId,
        /// The mode in which the turn runs.
        mode: Mode,
        /// The facts.
        facts: Box<PromptFacts>,
        /// The limits of the turn.
        limits: TurnLimits,
        /// The backends that may run the turn, with the reason for the choice.
        route: Box<Routed>,
    },
    /// A job command has been parsed and resolved.
    Understood {
        /// The task of the job command.
        task: TaskId,
        /// The meaning of the command.
        meant: Meant,
    },
    /// A job command has been carried out.
    CarriedOut {
        /// The task of the job command.
        task: TaskId,
        /// The answer to the user.
        text: String,
    },
    /// A deadline may have passed, or a message may be due.
    Clock,
    /// A round of the orchestrator is over.
    ModelReplied(Box<ModelDone>),
    /// A skill call of the orchestrator is over.
    SkillFinished(Box<SkillDone>),
    /// A sub-agent has ended; its last events are not stored yet.
    AgentFinished {
        /// The task of its turn.
        task: TaskId,
        /// The sub-agent.
        agent: AgentId,
        /// Its last events.
        events: Vec<NewEvent>,
        /// Its report.
        report: Box<AgentReport>,
    },
    /// Store the beginning of a turn, because the model did not answer at once.
    Save,
    /// A snapshot was saved, or could not be saved.
    SnapshotKept(Result<snapshot::Kept, String>),
    /// The conversation has been idle for a whole quiet period.
    Idle {
        /// The number of the quiet period that has passed.
        period: u64,
    },
    /// Other conversations wait for capacity: leave memory if this conversation only waits.
    Evict,
    /// A wake-up is on its way, or the capacity is no longer wanted: continue.
    StayActive,
    /// No wake-up is on its way: leave memory.
    Passivate,
}

impl Named for EngineMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Wake(_) => "Wake",
            Self::Control { .. } => "Control",
            Self::Understood { .. } => "Understood",
            Self::CarriedOut { .. } => "CarriedOut",
            Self::Clock => "Clock",
            Self::FactsRead { .. } => "FactsRead",
            Self::ModelReplied(_) => "ModelReplied",
            Self::SkillFinished(_) => "SkillFinished",
            Self::AgentFinished { .. } => "AgentFinished",
            Self::Save => "Save",
            Self::SnapshotKept(_) => "SnapshotKept",
            Self::Idle { .. } => "Idle",
            Self::Evict => "Evict",
            Self::StayActive => "StayActive",
            Self::Passivate => "Passivate",
        }
    }
}

impl EngineMsg {
    /// The task that the message concerns, if any.
    fn task(&self) -> Option<TaskId> {
        match self {
            Self::Wake(event) => event.as_ref().map(|event| event.task),
            Self::Control { task, .. }
            | Self::FactsRead { task, .. }
            | Self::Understood { task, .. }
            | Self::CarriedOut { task, .. }
            | Self::AgentFinished { task, .. } => Some(*task),
            Self::ModelReplied(done) => Some(done.task),
            Self::SkillFinished(done) => Some(done.request.task),
            Self::Clock | Self::Save | Self::SnapshotKept(_) | Self::Idle { .. } => None,
            Self::Evict | Self::StayActive | Self::Passivate => None,
        }
    }
}

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
}

pub(crate) struct EngineState {
    pub wiring: Arc<Wiring>,
    pub conv: Conversation,
    pub cause: Option<ResumeCause>,
    pub blamed: Option<TaskId>,
    pub at_work: AtWork,
    pub takes_over: bool,
    pub epoch: Epoch,
    pub tasks: Tasks<EngineTask>,
    pub agents: BTreeMap<ActorId, Child>,
    /// The effects of each turn's agents, shared among them while they run.
    pub effects: BTreeMap<TaskId, SharedEffects>,
    /// The orchestrators' rounds that wait for a permit or run.
    pub asked: BTreeMap<DirectiveId, passivate::Asked>,
    /// Set while the Engine waits for permission to leave memory.
    pub leaving: Option<passivate::Leaving>,
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

impl Node for Engine {
    type Msg = EngineMsg;
    type Args = EngineArgs;
    type State = EngineState;
    const KIND: &'static str = "engine";

    fn init(ctx: &Context<Self>, args: EngineArgs) -> Result<EngineState, NodeError> {
        Ok(EngineState {
            conv: Conversation::new(args.conversation, args.user),
            wiring: args.wiring,
            cause: args.cause,
            blamed: args.blamed,
            at_work: args.at_work,
            takes_over: args.takes_over,
            epoch: Epoch(0),
            tasks: Tasks::of(ctx.branch()),
            agents: BTreeMap::new(),
            effects: BTreeMap::new(),
            asked: BTreeMap::new(),
            leaving: None,
            questions_open: 0,
            read_to: Seq(0),
            woken: BTreeSet::new(),
            unsaved: Vec::new(),
            snapshot_at: Seq(0),
            snapshot_tried: Seq(0),
            read_at_birth: 0,
            wakes_seen: 0,
            quiet_periods: 0,
            clock_at: None,
            born_at: ctx.now(),
            fenced: false,
        })
    }

    async fn ready(ctx: &Context<Self>, state: &mut EngineState) -> Result<(), NodeError> {
        activate::activate(ctx, state).await?;
        state.at_work.on(None);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut EngineState, msg: EngineMsg) -> Result<(), NodeError> {
        let Some(msg) = passivate::defer_while_leaving(ctx, state, msg).await? else { return Ok(()) };
        state.at_work.on(msg.task());
        act(ctx, state, msg).await?;
        state.at_work.on(None);
        Ok(())
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut EngineState, ended: ChildEnded) -> Result<(), NodeError> {
        state.at_work.on(state.agents.get(&ended.id).map(|child| child.task));
        agents::ended(ctx, state, ended).await?;
        state.at_work.on(None);
        Ok(())
    }

    fn view(state: &EngineState) -> Value {
        let turns: Vec<Value> = state.conv.turns.iter().map(view_of).collect();
        json!({
            "conversation": state.conv.id, "user": state.conv.user, "epoch": state.epoch, "seq": state.conv.seq,
            "inbox": state.conv.inbox.len(), "orders": state.conv.job_commands.len(), "turns": turns,
            "paused": state.conv.paused.is_some(), "tasks": state.tasks.len(), "snapshot_at": state.snapshot_at,
            "read_at_birth": state.read_at_birth, "read_to": state.read_to
        })
    }
}

async fn act(ctx: &Context<Engine>, state: &mut EngineState, msg: EngineMsg) -> Result<(), NodeError> {
    match msg {
        EngineMsg::Wake(event) => wake(ctx, state, event).await,
        EngineMsg::Control { task, control, by, reply } => {
            state.wakes_seen += 1;
            job_commands::control(ctx, state, task, control, by, reply).await
        }
        EngineMsg::FactsRead { task, mode, facts, limits, route } => {
            state.tasks.remove(&EngineTask::Effect(DirectiveId::Begin(task)));
            begin(ctx, state, task, record::Beginning { mode, facts: *facts, limits, route: *route }).await
        }
        EngineMsg::Understood { task, meant } => job_commands::understood(ctx, state, task, meant).await,
        EngineMsg::CarriedOut { task, text } => job_commands::carried_out(ctx, state, task, text).await,
        EngineMsg::Clock => clock::tick(ctx, state).await,
        EngineMsg::Save => {
            state.tasks.remove(&EngineTask::SaveTimer);
            record::save(ctx, state).await
        }
        EngineMsg::SnapshotKept(kept) => snapshot::kept(ctx, state, kept).await,
        EngineMsg::ModelReplied(done) => model::replied(ctx, state, *done).await,
        EngineMsg::SkillFinished(done) => model::skill_finished(ctx, state, *done).await,
        EngineMsg::AgentFinished { task, agent, events, report } => {
            agents::finished(ctx, state, task, agent, events, *report).await
        }
        EngineMsg::Idle { period } => {
            if period == state.quiet_periods && state.conv.is_idle() {
                passivate::ask_to_passivate(ctx, state, false).await?;
            }
            Ok(())
        }
        EngineMsg::Evict => passivate::ask_to_passivate(ctx, state, true).await,
        EngineMsg::StayActive => passivate::refused(ctx, state).await,
        EngineMsg::Passivate => passivate::passivate(ctx, state).await,
    }
}

fn view_of(turn: &Turn) -> Value {
    let agents: Vec<Value> = turn
        .agents
        .plan
        .nodes()
        .iter()
        .map(|n| json!({"agent": n.spec.agent, "mission": n.spec.mission, "state": n.state}))
        .collect();
    json!({
        "task": turn.task, "mode": turn.mode, "round": turn.main.round, "rounds_max": turn.main.rounds_max,
        "priority": turn.inbound.priority, "route": turn.route, "started_at": turn.started_at.to_string(),
        "suspended": turn.control.is_suspended, "deferred_until": turn.deferral.until.map(|at| at.to_string()), "cancelled": turn.control.is_cancelled,
        "crashes": turn.recovery.crashes, "agents": agents
    })
}

/// Handles a wake-up. Without the event a wake-up may have been lost, so the log is read.
async fn wake(ctx: &Context<Engine>, state: &mut EngineState, event: Option<Arc<Event>>) -> Result<(), NodeError> {
    state.wakes_seen += 1;
    match event {
        Some(event) => {
            fold_message(state, &event);
        }
        None => read_new_messages(ctx, state).await?,
    }
    record::record_decisions(ctx, state).await
}

/// Takes in messages that are in the log and for which no wake-up arrived.
async fn read_new_messages(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let read = activate::received_since(ctx, state).await?;
    for event in &read.messages {
        fold_message(state, event);
    }
    mark_known_up_to(state, read.to);
    Ok(())
}

/// Records that all messages up to `to` are known.
fn mark_known_up_to(state: &mut EngineState, to: Seq) {
    state.read_to = to.max(state.read_to);
    state.woken = state.woken.split_off(&Seq(state.read_to.0 + 1));
    advance_read_to(state);
}

/// Records `count` events from `first` on as stored by this incarnation.
fn note_stored(state: &mut EngineState, first: Seq, count: u64) {
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
fn fold_message(state: &mut EngineState, event: &Event) -> bool {
    let is_new = event.seq > state.read_to && state.woken.insert(event.seq);
    if is_new {
        state.conv.apply(event);
        advance_read_to(state);
    }
    is_new
}

/// Begins a turn when its facts are read. Another node that owned the conversation before may have stored an older message,
/// and its hint may still be on the way. A gap in the known sequence numbers before this message is the sign of it, and then
/// the log is read first.
async fn begin(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    beginning: record::Beginning,
) -> Result<(), NodeError> {
    let is_behind_a_gap = |state: &EngineState| {
        state.conv.inbox.iter().any(|pending| pending.task == task && pending.seq > state.read_to)
    };
    if state.wiring.store.is_shared() && is_behind_a_gap(state) {
        read_new_messages(ctx, state).await?;
        if state.conv.may_begin(task).is_none() {
            return record::record_decisions(ctx, state).await;
        }
    }
    record::begin(ctx, state, task, beginning).await
}

/// Starts the idle timer of a new quiet period.
pub(crate) fn start_idle_timer(ctx: &Context<Engine>, state: &mut EngineState) {
    state.quiet_periods += 1;
    let (period, me) = (state.quiet_periods, ctx.me());
    // A stateless conversation gets no further message, so it passivates at once.
    let wait_ms = if !state.conv.is_listed { 0 } else { state.wiring.limits.passivate_after_ms };
    let wait = Duration::from_millis(wait_ms);
    state.tasks.spawn(EngineTask::IdleTimer, async move {
        tokio::time::sleep(wait).await;
        me.tell(EngineMsg::Idle { period });
    });
}
