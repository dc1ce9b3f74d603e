//! The Engine's sub-agents: started, heard once, dismissed. A death becomes one report (invariant 12).

use std::collections::HashSet;

use annie_core::{
    event::{AgentReport, EventBody, NewEvent, ReportStatus},
    ids::{AgentId, TaskId},
    plan::NodeState,
    turn::DirectiveId,
};

use super::{Engine, EngineState, Seat, record};
use crate::{
    effects::Waits,
    observe::{ChildEnded, Context, EndKind, NodeError},
    sub_agent::{SubAgent, SubAgentArgs, Tally},
};

/// Its place under the Engine: its own name, unless another turn's agent has the same.
fn seat_name(state: &EngineState, task: TaskId, agent: &AgentId) -> String {
    let is_taken = state.agents.values().any(|s| s.agent == *agent);
    if is_taken { format!("agent:{agent}:{task}") } else { format!("agent:{agent}") }
}

/// Starts a sub-agent, unless it runs.
pub(super) async fn run(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    agent: AgentId,
) -> Result<(), NodeError> {
    if state.agents.values().any(|s| s.task == task && s.agent == agent) {
        return Ok(());
    }
    let Some(turn) = state.conv.sub_turn(task, &agent) else { return Ok(()) };
    let effects = state.effects.entry(task).or_default().clone();
    // Before the first of them runs, all are known.
    state.conv.turn(task).inspect(|turn| effects.learn(turn));
    let tally = Tally::of(&turn, ctx.now());
    let (wiring, epoch) = (state.wiring.clone(), state.epoch);
    let waits = Waits::default();
    let args =
        SubAgentArgs { wiring, turn, epoch, engine: ctx.me(), tally: tally.clone(), waits: waits.clone(), effects };
    match ctx.spawn::<SubAgent>(&seat_name(state, task, &agent), args).await {
        Ok(addr) => {
            state.agents.insert(addr.cell.get_id(), Seat { task, agent, addr, tally, waits });
            Ok(())
        }
        Err(e) => crashed(ctx, state, (task, agent), &tally, &e.why).await,
    }
}

/// Tells the state what the live sub-agents have done so far: what is decided next may end one, and its report says that.
pub(super) fn note_progress(state: &mut EngineState) {
    for seat in state.agents.values() {
        state.conv.agent_progress(seat.task, &seat.agent, seat.tally.so_far());
    }
}

/// Sends away those whose work is no longer wanted: reported, or of a turn that ended.
pub(super) fn dismiss_unwanted(state: &mut EngineState, wanted: &HashSet<DirectiveId>) {
    state.agents.retain(|_, seat| {
        let keep = wanted.contains(&DirectiveId::Agent(seat.task, seat.agent.clone()));
        if !keep {
            // Its handlers are short and its tasks end with it; one that hangs is the watchdog's.
            seat.addr.cell.stop(None);
        }
        keep
    });
    let agents = &state.agents;
    state.effects.retain(|task, _| agents.values().any(|seat| seat.task == *task));
}

/// Those of a turn that wait for an agent's effects hear that it has ended.
fn tell_others(state: &EngineState, task: TaskId) {
    if let (Some(effects), Some(turn)) = (state.effects.get(&task), state.conv.turn(task)) {
        effects.learn(turn);
    }
}

/// A sub-agent hands in its last events and its report; they are stored together.
pub(super) async fn finished(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    agent: AgentId,
    mut events: Vec<NewEvent>,
    report: AgentReport,
) -> Result<(), NodeError> {
    if !is_running(state, task, &agent) {
        // Its turn is over or was cancelled. A receipt is stored all the same: what took effect must not stay in doubt.
        events.retain(|e| matches!(e.body, EventBody::SkillFinished { .. }));
        return record::record_all(ctx, state, events).await;
    }
    events.push(NewEvent { at: ctx.now(), task, agent, body: EventBody::AgentReported { report } });
    record::record_all(ctx, state, events).await?;
    tell_others(state, task);
    Ok(())
}

fn is_running(state: &EngineState, task: TaskId, agent: &AgentId) -> bool {
    state.conv.turn(task).is_some_and(|turn| {
        !turn.cancelled && turn.plan.node(agent).is_some_and(|n| matches!(n.state, NodeState::Running { .. }))
    })
}

/// A sub-agent's life ended. Before its report, that is a crash, unless it was the store that was away.
pub(super) async fn ended(ctx: &Context<Engine>, state: &mut EngineState, ended: ChildEnded) -> Result<(), NodeError> {
    let Some(seat) = state.agents.remove(&ended.id) else { return Ok(()) };
    if !is_running(state, seat.task, &seat.agent) {
        return Ok(());
    }
    let why = match ended.kind {
        EndKind::Done | EndKind::Stopped => "it stopped without a report".to_owned(),
        EndKind::Killed => "it was killed".to_owned(),
        // The next life of the Engine runs it again, from where the log is.
        EndKind::Deprived(why) => return Err(NodeError::deprived(why)),
        EndKind::Failed(error) => error,
    };
    crashed(ctx, state, (seat.task, seat.agent), &seat.tally, &why).await
}

async fn crashed(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    (task, agent): (TaskId, AgentId),
    tally: &Tally,
    why: &str,
) -> Result<(), NodeError> {
    let result = format!("The agent crashed: {why}. What it had done until then may have taken effect.");
    let node = state.conv.turn(task).and_then(|turn| turn.plan.node(&agent));
    let duration_ms = match node.map(|node| &node.state) {
        Some(NodeState::Running { since, .. }) => ctx.now().since_ms(*since),
        _ => 0,
    };
    let report = AgentReport { status: ReportStatus::Crashed, result, duration_ms, ..tally.at_death() };
    Box::pin(record::record(ctx, state, task, agent, EventBody::AgentReported { report })).await?;
    tell_others(state, task);
    Ok(())
}
