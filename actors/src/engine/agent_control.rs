//! Control of single sub-agents by a person: the Engine records the request, and tells the agent what was added to its mission.

use annie_core::{
    event::EventBody,
    ids::TaskId,
    plan::{AgentSteer, Node},
};
use tokio::sync::oneshot;

use super::{
    control::{AgentControl, NotDecided},
    record,
    state::{Engine, EngineState},
};
use crate::observe::{Context, NodeError};

/// Records that a person steers or stops an agent. Replies with the task of the agent.
pub(super) async fn control(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    asked: AgentControl,
    reply: oneshot::Sender<Result<TaskId, NotDecided>>,
) -> Result<(), NodeError> {
    let answer = match allowed(state, &asked) {
        Ok(task) => {
            let AgentControl { agent, text, by, reason, .. } = asked;
            let verb = if text.is_some() { "steer" } else { "stop" };
            tracing::info!(%task, %agent, by, verb, "a person controls a sub-agent");
            metrics::counter!("annie_agents_controlled_total", "verb" => verb).increment(1);
            let body = match text {
                Some(text) => EventBody::AgentSteered { by, text },
                None => EventBody::AgentStopRequested { by, reason },
            };
            record::record(ctx, state, task, agent, body).await?;
            Ok(task)
        }
        Err(why) => {
            record::record_decisions(ctx, state).await?;
            Err(why)
        }
    };
    if state.fenced {
        // Nothing is stored. The requester gets no answer, and asks the Engine that owns the conversation.
        return Ok(());
    }
    // The requester may be gone.
    let _ = reply.send(answer);
    Ok(())
}

/// The task of the agent, if the agent may be controlled in this way.
fn allowed(state: &EngineState, asked: &AgentControl) -> Result<TaskId, NotDecided> {
    let turns = state.conv.turns.iter().filter(|turn| asked.task.is_none_or(|task| turn.task == task));
    let known: Vec<(TaskId, &Node)> =
        turns.filter_map(|turn| Some((turn.task, turn.agents.plan.node(&asked.agent)?))).collect();
    let open: Vec<(TaskId, &Node)> = known.iter().copied().filter(|(_, node)| node.is_open()).collect();
    let agent = &asked.agent;
    match open[..] {
        [(task, node)] => match &asked.text {
            Some(text) => match AgentSteer::refusal(text, node.steering.len()) {
                Some(why) => Err(NotDecided::Invalid(why)),
                None => Ok(task),
            },
            None => Ok(task),
        },
        [] if known.is_empty() => Err(NotDecided::NotFound),
        [] => Err(NotDecided::Stale(format!("agent {agent} has ended already"))),
        _ => {
            let tasks: Vec<String> = open.iter().map(|(task, _)| task.to_string()).collect();
            let why = format!("several tasks have an agent {agent}: give the task ({})", tasks.join(", "));
            Err(NotDecided::Invalid(why))
        }
    }
}
