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
mod agent_control;
mod agents;
mod approvals;
mod at_work;
mod clock;
mod compaction;
mod control;
mod job_commands;
mod messages;
mod model;
mod passivate;
mod perform;
mod read_log;
mod record;
mod snapshot;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use annie_core::{
    event::{Event, EventBody},
    ids::{AgentId, Epoch, Seq, TaskId},
    time::Micros,
    turn::{Conversation, Decision, DirectiveId, Turn},
};
pub(crate) use at_work::AtWork;
pub use control::{AgentControl, Control, Controlled, Decide, NotDecided};
pub use messages::{EngineMsg, EngineResidencyMsg, JobCommandMsg, PersonMsg};
use read_log::read_new_messages;
use serde_json::{Value, json};
pub(crate) use state::{Engine, EngineArgs};
use state::{EngineState, EngineTask, fold_message};
use tracing::Instrument;

use crate::{
    agent::AgentDone,
    log_ids,
    observe::{ChildEnded, Context, Node, NodeError},
    tasks::Tasks,
};

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
            opening: args.opening,
            epoch: Epoch(0),
            tasks: Tasks::of(ctx.branch()),
            agents: BTreeMap::new(),
            effects: BTreeMap::new(),
            asked: BTreeMap::new(),
            approvals: BTreeMap::new(),
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
        let span = log_ids::of_engine(state.conv.id, msg.task());
        act(ctx, state, msg).instrument(span).await?;
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
        EngineMsg::Person(PersonMsg::Decide { task, decide, reply }) => {
            state.wakes_seen += 1;
            approvals::decide(ctx, state, task, *decide, reply).await
        }
        EngineMsg::Person(PersonMsg::ControlAgent { asked, reply }) => {
            state.wakes_seen += 1;
            agent_control::control(ctx, state, *asked, reply).await
        }
        EngineMsg::FactsRead { task, mode, facts, limits, route, judged } => {
            state.tasks.remove(&EngineTask::Effect(DirectiveId::Begin(task)));
            let (facts, route, judged) = (*facts, *route, *judged);
            begin(ctx, state, task, record::Beginning { mode, facts, limits, route, judged }).await
        }
        EngineMsg::JobCommand(JobCommandMsg::Understood { task, meant }) => {
            job_commands::understood(ctx, state, task, meant).await
        }
        EngineMsg::JobCommand(JobCommandMsg::CarriedOut { task, text }) => {
            job_commands::carried_out(ctx, state, task, text).await
        }
        EngineMsg::Summarised { task, number, summarised } => {
            compaction::summarised(ctx, state, task, number, summarised).await
        }
        EngineMsg::Clock => tick(ctx, state).await,
        EngineMsg::Save => {
            state.tasks.remove(&EngineTask::SaveTimer);
            record::save(ctx, state).await
        }
        EngineMsg::SnapshotKept(kept) => match snapshot::kept(state, kept) {
            true => record::record_decisions(ctx, state).await,
            false => Ok(()),
        },
        EngineMsg::Agent(AgentDone::Round(done)) => model::replied(ctx, state, *done).await,
        EngineMsg::Agent(AgentDone::Skill(done)) => model::skill_finished(ctx, state, *done).await,
        EngineMsg::Agent(AgentDone::Hook(done)) => model::hook_decided(ctx, state, *done).await,
        EngineMsg::Agent(AgentDone::Approval(ask)) => approvals::asked(ctx, state, *ask).await,
        EngineMsg::AgentFinished { task, agent, events, report } => {
            agents::finished(ctx, state, task, agent, events, *report).await
        }
        EngineMsg::Residency(msg) => residency(ctx, state, msg).await,
    }
}

async fn residency(ctx: &Context<Engine>, state: &mut EngineState, msg: EngineResidencyMsg) -> Result<(), NodeError> {
    match msg {
        EngineResidencyMsg::Idle { period } => {
            if period == state.quiet_periods && state.conv.is_idle() {
                passivate::ask_to_passivate(ctx, state, false).await?;
            }
            Ok(())
        }
        EngineResidencyMsg::Evict => passivate::ask_to_passivate(ctx, state, true).await,
        EngineResidencyMsg::StayActive => passivate::refused(ctx, state).await,
        EngineResidencyMsg::Passivate => passivate::passivate(ctx, state).await,
    }
}

fn view_of(turn: &Turn) -> Value {
    let agents: Vec<Value> = turn
        .agents
        .plan
        .nodes()
        .iter()
        .map(|n| json!({"agent": n.spec.agent, "label": n.spec.options.label, "mission": n.spec.mission, "state": n.state}))
        .collect();
    json!({
        "task": turn.task, "mode": turn.mode, "round": turn.main.round, "rounds_max": turn.main.rounds_max,
        "priority": turn.inbound.priority, "route": turn.route, "started_at": turn.started_at.to_string(),
        "suspended": turn.control.is_suspended, "deferred_until": turn.deferral.until.map(|at| at.to_string()), "cancelled": turn.control.is_cancelled,
        "crashes": turn.recovery.crashes, "awaits_approval": turn.awaits_approval(), "agents": agents
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

/// Records the deadline that has passed, and begins what is due.
async fn tick(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    state.clock_at = None;
    state.tasks.remove(&EngineTask::Clock);
    let now: Micros = ctx.now();
    if let Some(Decision { task, agent, body }) = state.conv.expired_approval(now) {
        // The timer is set again for what else is due.
        return record::record(ctx, state, task, agent, body).await;
    }
    match clock::next(state, now) {
        Some((at, task, hard)) if at <= now => {
            let dead_letters = state.conv.turn(task).is_none().then(|| state.wiring.limits.turn.dead_letters.clone());
            let body = EventBody::DeadlinePassed { hard, dead_letters };
            record::record(ctx, state, task, AgentId::orchestrator(), body).await
        }
        _ => record::record_decisions(ctx, state).await,
    }
}
