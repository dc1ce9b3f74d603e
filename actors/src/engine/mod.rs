//! One conversation at work.
//!
//! Owns: the conversation's state, its ownership epoch, the tasks and sub-agents of its turn. Supervised by: Conversations,
//! with a budget of its own. Survives its death: everything, because it is a fold over the log: the next life claims the
//! conversation (which shuts a former one out), reads the log, and starts what is outstanding under the same ids.
//!
//! Nothing else decides: an event is folded, [`Conversation::decide`] adds what follows, all of it is stored in one append,
//! and then what is outstanding is compared with what is under way.

mod agents;
mod at_work;
mod clock;
mod leave;
mod model;
mod orders;
mod perform;
mod record;
mod snapshot;
mod thaw;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use annie_core::{
    event::{AgentReport, Event, Mode, NewEvent, Priority, PromptFacts, ResumeCause},
    ids::{AgentId, ConversationId, Epoch, Seq, TaskId, UserId},
    limits::TurnLimits,
    time::Micros,
    turn::{Conversation, DirectiveId, Meant, Turn},
};
pub(crate) use at_work::AtWork;
pub use leave::Sleep;
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

/// What is done with a task from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// End it.
    Cancel,
    /// Start no further round of it until it is let go on.
    Suspend,
    /// Let it go on.
    Continue,
    /// Let it go on because its model answers again; nothing if it is suspended.
    TryAgain,
    /// Change its class.
    Reprioritise(Priority),
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controlled {
    /// It is done, or was so before.
    Done,
    /// The task had ended before.
    TooLate,
}

/// What an Engine hears.
pub enum EngineMsg {
    /// A message is in the log. Only a wake-up: without the event the log is asked.
    Wake(Option<Arc<Event>>),
    /// Do something with a task.
    Control {
        /// With which.
        task: TaskId,
        /// What.
        control: Control,
        /// Who asks.
        by: String,
        /// Whom to answer.
        reply: oneshot::Sender<Controlled>,
    },
    /// A turn's facts are read.
    FactsRead {
        /// Of which turn.
        task: TaskId,
        /// Its mode.
        mode: Mode,
        /// The facts.
        facts: Box<PromptFacts>,
        /// Its limits.
        limits: TurnLimits,
        /// The backends that may run it, and why those.
        route: Box<Routed>,
    },
    /// An order about tasks is understood.
    Understood {
        /// The order's task.
        task: TaskId,
        /// What it means.
        meant: Meant,
    },
    /// An order is carried out.
    CarriedOut {
        /// The order's task.
        task: TaskId,
        /// What the user is told.
        text: String,
    },
    /// A deadline may have passed, or a message may be due.
    Clock,
    /// A round of the main agent is over.
    ModelReplied(Box<ModelDone>),
    /// A skill call of the main agent is over.
    SkillFinished(Box<SkillDone>),
    /// A sub-agent has ended; its last events are not stored yet.
    AgentFinished {
        /// In which turn.
        task: TaskId,
        /// Which.
        agent: AgentId,
        /// Its last events.
        events: Vec<NewEvent>,
        /// Its report.
        report: Box<AgentReport>,
    },
    /// A turn has begun and its model has not answered at once: what is known of it is stored.
    Save,
    /// A snapshot is kept, or could not be.
    SnapshotKept(Result<snapshot::Kept, String>),
    /// Nothing has happened for a while.
    Idle {
        /// The quiet period that has passed, by number.
        period: u64,
    },
    /// Others want its room: leave memory, if it only waits.
    Vacate,
    /// A wake-up is on its way, or nobody wants its room any more: go on.
    Stay,
    /// No wake-up is on its way: leave memory.
    Hibernate,
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
            Self::Vacate => "Vacate",
            Self::Stay => "Stay",
            Self::Hibernate => "Hibernate",
        }
    }
}

impl EngineMsg {
    /// The task that it is about, if it is about one.
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
            Self::Vacate | Self::Stay | Self::Hibernate => None,
        }
    }
}

/// What an Engine starts from.
pub(crate) struct EngineArgs {
    pub wiring: Arc<Wiring>,
    pub conversation: ConversationId,
    pub user: UserId,
    /// Why the former life ended, if there was one.
    pub cause: Option<ResumeCause>,
    /// Over which task it died, as far as that is known.
    pub blamed: Option<TaskId>,
    /// What this life works on.
    pub at_work: AtWork,
    /// It takes the conversation whoever owns it.
    pub takes_over: bool,
}

/// What an Engine's tasks are for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum EngineTask {
    Effect(DirectiveId),
    IdleTimer,
    SaveTimer,
    Snapshot,
    Clock,
}

/// A running sub-agent.
pub(crate) struct Seat {
    pub task: TaskId,
    pub agent: AgentId,
    pub addr: Addr<SubAgentMsg>,
    pub tally: Tally,
    /// How long its rounds wait for their permits.
    pub waits: Waits,
}

/// An Engine's state.
pub(crate) struct EngineState {
    pub wiring: Arc<Wiring>,
    pub conv: Conversation,
    pub cause: Option<ResumeCause>,
    pub blamed: Option<TaskId>,
    pub at_work: AtWork,
    pub takes_over: bool,
    pub epoch: Epoch,
    pub tasks: Tasks<EngineTask>,
    pub agents: BTreeMap<ActorId, Seat>,
    /// What the agents of each turn do, while they run.
    pub effects: BTreeMap<TaskId, SharedEffects>,
    /// The rounds of the main agents that are asked for or run.
    pub asked: BTreeMap<DirectiveId, leave::Asked>,
    /// It has asked whether it may leave memory.
    pub leaving: Option<leave::Leaving>,
    /// How often it has asked that without an answer yet.
    pub questions_open: u32,
    /// Up to there all messages of the log are known.
    pub read_to: Seq,
    /// What is known behind it, by its place: messages, and what this life stored.
    pub woken: BTreeSet<Seq>,
    /// The beginning of a turn that is folded and not stored yet; it goes with the next append, or soon by itself.
    pub unsaved: Vec<NewEvent>,
    /// The place of the last snapshot that is kept.
    pub snapshot_at: Seq,
    /// Where the log was when the last one was tried.
    pub snapshot_tried: Seq,
    /// Events that this life read when it began.
    pub read_at_birth: usize,
    /// Wake-ups that it has seen, and questions about its tasks.
    pub wakes_seen: u64,
    pub quiet_periods: u64,
    /// When the clock's timer goes off.
    pub clock_at: Option<Micros>,
    /// When this life began.
    pub born_at: Micros,
    /// Another life owns the conversation: what this one meant to store is not stored.
    pub fenced: bool,
}

/// One conversation at work.
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
        thaw::thaw(ctx, state).await?;
        state.at_work.on(None);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut EngineState, msg: EngineMsg) -> Result<(), NodeError> {
        let Some(msg) = leave::meanwhile(ctx, state, msg).await? else { return Ok(()) };
        state.at_work.on(msg.task());
        act(ctx, state, msg).await?;
        state.at_work.on(None);
        Ok(())
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut EngineState, ended: ChildEnded) -> Result<(), NodeError> {
        state.at_work.on(state.agents.get(&ended.id).map(|seat| seat.task));
        agents::ended(ctx, state, ended).await?;
        state.at_work.on(None);
        Ok(())
    }

    fn view(state: &EngineState) -> Value {
        let turns: Vec<Value> = state.conv.turns.iter().map(view_of).collect();
        json!({
            "conversation": state.conv.id, "user": state.conv.user, "epoch": state.epoch, "seq": state.conv.seq,
            "inbox": state.conv.inbox.len(), "orders": state.conv.orders.len(), "turns": turns,
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
            orders::control(ctx, state, task, control, by, reply).await
        }
        EngineMsg::FactsRead { task, mode, facts, limits, route } => {
            state.tasks.remove(&EngineTask::Effect(DirectiveId::Begin(task)));
            begin(ctx, state, task, record::Beginning { mode, facts: *facts, limits, route: *route }).await
        }
        EngineMsg::Understood { task, meant } => orders::understood(ctx, state, task, meant).await,
        EngineMsg::CarriedOut { task, text } => orders::carried_out(ctx, state, task, text).await,
        EngineMsg::Clock => clock::strike(ctx, state).await,
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
                leave::leave(ctx, state, false).await?;
            }
            Ok(())
        }
        EngineMsg::Vacate => leave::leave(ctx, state, true).await,
        EngineMsg::Stay => leave::refused(ctx, state).await,
        EngineMsg::Hibernate => leave::hibernate(ctx, state).await,
    }
}

fn view_of(turn: &Turn) -> Value {
    let agents: Vec<Value> = turn
        .plan
        .nodes()
        .iter()
        .map(|n| json!({"agent": n.spec.agent, "mission": n.spec.mission, "state": n.state}))
        .collect();
    json!({
        "task": turn.task, "mode": turn.mode, "round": turn.main.round, "rounds_max": turn.main.rounds_max,
        "priority": turn.inbound.priority, "route": turn.route, "started_at": turn.started_at.to_string(),
        "suspended": turn.suspended, "deferred_until": turn.deferral.until.map(|at| at.to_string()), "cancelled": turn.cancelled,
        "crashes": turn.crashes, "agents": agents
    })
}

/// A message is in the log. Without the event, somebody is not sure that its wake-up came: the log is asked.
async fn wake(ctx: &Context<Engine>, state: &mut EngineState, event: Option<Arc<Event>>) -> Result<(), NodeError> {
    state.wakes_seen += 1;
    match event {
        Some(event) => {
            take_in(state, &event);
        }
        None => read_on(ctx, state).await?,
    }
    record::go_on(ctx, state).await
}

/// Takes in what the log has and nobody told.
async fn read_on(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let read = thaw::received_since(ctx, state).await?;
    for event in &read.messages {
        take_in(state, event);
    }
    all_known(state, read.to);
    Ok(())
}

/// All messages up to a place are known.
fn all_known(state: &mut EngineState, to: Seq) {
    state.read_to = to.max(state.read_to);
    state.woken = state.woken.split_off(&Seq(state.read_to.0 + 1));
    close_up(state);
}

/// What stands at so many places from this one on was stored by this life.
fn own(state: &mut EngineState, first: Seq, count: u64) {
    state.woken.extend((first.0..first.0 + count).map(Seq).filter(|seq| *seq > state.read_to));
    close_up(state);
}

/// Where no place is missing, all messages are known.
fn close_up(state: &mut EngineState) {
    while state.woken.remove(&Seq(state.read_to.0 + 1)) {
        state.read_to.0 += 1;
    }
}

/// Takes in a message; false if this life knows it already.
fn take_in(state: &mut EngineState, event: &Event) -> bool {
    let is_new = event.seq > state.read_to && state.woken.insert(event.seq);
    if is_new {
        state.conv.apply(event);
        close_up(state);
    }
    is_new
}

/// Begins a turn when its facts are read. An older message may have come to a process that owned the conversation before,
/// and its hint be on the way: a place before this message of which nothing was heard is the sign, and then the log is read.
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
        read_on(ctx, state).await?;
        if state.conv.may_begin(task).is_none() {
            return record::go_on(ctx, state).await;
        }
    }
    record::begin(ctx, state, task, beginning).await
}

/// Starts the clock of a quiet period.
pub(crate) fn rest(ctx: &Context<Engine>, state: &mut EngineState) {
    state.quiet_periods += 1;
    let (period, me) = (state.quiet_periods, ctx.me());
    // Nobody comes back to a stateless conversation.
    let wait_ms = if !state.conv.is_listed { 0 } else { state.wiring.limits.hibernate_ms };
    let wait = Duration::from_millis(wait_ms);
    state.tasks.spawn(EngineTask::IdleTimer, async move {
        tokio::time::sleep(wait).await;
        me.tell(EngineMsg::Idle { period });
    });
}
