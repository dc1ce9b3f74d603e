//! The Engine's sub-agents: started, collected once, dismissed. A death becomes one report (invariant 12).

use std::collections::HashSet;

use annie_core::{
    event::{AgentReport, EventBody, NewEvent, ReportStatus},
    ids::{AgentId, TaskId},
    plan::NodeState,
    turn::DirectiveId,
};

use super::{
    record,
    state::{Child, Engine, EngineState},
};
use crate::{
    effects::Waits,
    observe::{ChildEnded, Context, EndKind, NodeError},
    sub_agent::{SubAgent, SubAgentArgs, SubAgentMsg, Tally},
};

/// The name of the sub-agent as a child of the Engine: its own name, unless an agent of another turn has the same.
fn child_name(state: &EngineState, task: TaskId, agent: &AgentId) -> String {
    let is_taken = state.agents.values().any(|s| s.agent == *agent);
    if is_taken { format!("agent:{agent}:{task}") } else { format!("agent:{agent}") }
}

/// Starts a sub-agent, unless it runs already.
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
    // All agents of the turn are registered before the first of them runs.
    state.conv.turn(task).inspect(|turn| effects.learn(turn));
    let tally = Tally::of(&turn, ctx.now());
    let (wiring, epoch) = (state.wiring.clone(), state.epoch);
    let (waits, steering_sent) = (Waits::default(), turn.steering.len());
    let args =
        SubAgentArgs { wiring, turn, epoch, engine: ctx.me(), tally: tally.clone(), waits: waits.clone(), effects };
    match ctx.spawn::<SubAgent>(&child_name(state, task, &agent), args).await {
        Ok(addr) => {
            state.agents.insert(addr.cell.get_id(), Child { task, agent, addr, tally, waits, steering_sent });
            Ok(())
        }
        Err(e) => crashed(ctx, state, (task, agent), &tally, &e.why).await,
    }
}

/// Updates the state with the work of the running sub-agents. The next decision may end one of them, and its report must
/// contain that work.
pub(super) fn note_progress(state: &mut EngineState) {
    for child in state.agents.values() {
        state.conv.agent_progress(child.task, &child.agent, child.tally.so_far());
    }
}

/// Stops sub-agents whose work is no longer wanted: those that were reported, and those of ended turns. Agents that wait for
/// their effects go on.
pub(super) fn dismiss_unwanted(state: &mut EngineState, wanted: &HashSet<DirectiveId>) {
    let mut dismissed = HashSet::new();
    state.agents.retain(|_, child| {
        let keep = wanted.contains(&DirectiveId::Agent(child.task, child.agent.clone()));
        if !keep {
            // Its handlers are short and its tasks end with it. The watchdog ends a sub-agent that hangs.
            child.addr.cell.stop(None);
            dismissed.insert(child.task);
        }
        keep
    });
    for task in dismissed {
        notify_waiting_agents(state, task);
    }
    let agents = &state.agents;
    state.effects.retain(|task, _| agents.values().any(|child| child.task == *task));
}

/// Notifies the agents of a turn that wait for an agent's effects that it has ended.
fn notify_waiting_agents(state: &EngineState, task: TaskId) {
    if let (Some(effects), Some(turn)) = (state.effects.get(&task), state.conv.turn(task)) {
        effects.learn(turn);
    }
}

/// Stores the last events of a sub-agent together with its report.
pub(super) async fn finished(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    agent: AgentId,
    mut events: Vec<NewEvent>,
    report: AgentReport,
) -> Result<(), NodeError> {
    if !is_running(state, task, &agent) {
        // Its turn is over or was cancelled. Receipts are stored nevertheless: otherwise their effects would stay in doubt.
        events.retain(|e| matches!(e.body, EventBody::SkillFinished { .. }));
        return record::record_all(ctx, state, events).await;
    }
    events.push(NewEvent { at: ctx.now(), task, agent, body: EventBody::AgentReported { report } });
    record::record_all(ctx, state, events).await?;
    notify_waiting_agents(state, task);
    Ok(())
}

fn is_running(state: &EngineState, task: TaskId, agent: &AgentId) -> bool {
    state.conv.turn(task).is_some_and(|turn| {
        !turn.control.is_cancelled
            && turn.agents.plan.node(agent).is_some_and(|n| matches!(n.state, NodeState::Running { .. }))
    })
}

/// Handles the end of a sub-agent. An end before its report is a crash, unless the store was unavailable.
pub(super) async fn ended(ctx: &Context<Engine>, state: &mut EngineState, ended: ChildEnded) -> Result<(), NodeError> {
    let Some(child) = state.agents.remove(&ended.id) else { return Ok(()) };
    if !is_running(state, child.task, &child.agent) {
        return Ok(());
    }
    let why = match ended.kind {
        EndKind::Done | EndKind::Stopped => "it stopped without a report".to_owned(),
        EndKind::Killed => "it was killed".to_owned(),
        // The next incarnation of the Engine runs the sub-agent again, from the state in the log.
        EndKind::Deprived(why) => return Err(NodeError::deprived(why)),
        EndKind::Failed(error) => error,
    };
    crashed(ctx, state, (child.task, child.agent), &child.tally, &why).await
}

async fn crashed(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    (task, agent): (TaskId, AgentId),
    tally: &Tally,
    why: &str,
) -> Result<(), NodeError> {
    let result = format!("The agent crashed: {why}. What it had done until then may have taken effect.");
    let node = state.conv.turn(task).and_then(|turn| turn.agents.plan.node(&agent));
    let duration_ms = match node.map(|node| &node.state) {
        Some(NodeState::Running { since, .. }) => ctx.now().since_ms(*since),
        _ => 0,
    };
    let report = AgentReport { status: ReportStatus::Crashed, result, duration_ms, ..tally.at_death() };
    Box::pin(record::record(ctx, state, task, agent, EventBody::AgentReported { report })).await?;
    notify_waiting_agents(state, task);
    Ok(())
}

/// Sends running agents what was added to their missions since the last message. An agent that does not receive it is gone, and
/// its next incarnation starts with all of it.
pub(super) fn send_steering(state: &mut EngineState) {
    for child in state.agents.values_mut() {
        let Some(node) = state.conv.turn(child.task).and_then(|turn| turn.agents.plan.node(&child.agent)) else {
            continue;
        };
        if node.steering.len() > child.steering_sent {
            child.steering_sent = node.steering.len();
            child.addr.tell(SubAgentMsg::Steered(node.steering.clone()));
        }
    }
}
