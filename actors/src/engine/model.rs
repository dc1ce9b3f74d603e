//! Records the results of the orchestrator's rounds and skill runs, and the verdicts of hooks about its calls.

use annie_core::{ids::AgentId, turn::DirectiveId};

use super::{
    record,
    state::{Engine, EngineState, EngineTask},
};
use crate::{
    agent::{self, Finished, Resolved},
    effects::{HookDone, ModelDone, SkillDone},
    observe::{Context, NodeError},
};

pub(super) async fn replied(ctx: &Context<Engine>, state: &mut EngineState, done: ModelDone) -> Result<(), NodeError> {
    let Some(turn) = state.conv.turn(done.task).filter(|t| !t.control.is_cancelled && t.main.awaits(done.round)) else {
        return Ok(());
    };
    let Some(view) = state.conv.main_agent(done.task) else { return Ok(()) };
    let (task, agent, was_by_commands) = (turn.task, AgentId::orchestrator(), turn.main.is_cmd());
    let refusal = done.result.as_ref().err().filter(|e| e.refuses_tools()).map(|e| e.detail.clone());
    let mut bodies = agent::chosen(&done);
    match &done.result {
        Ok(reply) => {
            let Resolved { calls, verdicts } = agent::resolve(&state.wiring, view, reply);
            bodies.extend(agent::record(verdicts));
            let body = agent::replied(&state.wiring, &done, reply, calls, (view, ctx.now()));
            let loops = agent::after_reply(view, &body);
            bodies.push(body);
            bodies.extend(loops);
        }
        Err(error) => bodies.extend(agent::failed(view, &done, error)),
    }
    state.tasks.remove(&EngineTask::Effect(DirectiveId::Model(task, agent.clone(), done.round)));
    record::record_in_order(ctx, state, task, agent, bodies).await?;
    // Later turns on this backend use commands from the start.
    if !was_by_commands && state.conv.turn(task).is_some_and(|turn| turn.main.is_cmd()) {
        match &refusal {
            Some(refusal) => state.wiring.leases.use_commands(&done.backend, refusal),
            None => state.wiring.leases.note_unusable_turn(&done.backend),
        }
    }
    Ok(())
}

pub(super) async fn skill_finished(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    done: SkillDone,
) -> Result<(), NodeError> {
    let view = state.conv.main_agent(done.request.task);
    let Finished { id, task, agent, bodies } = agent::skill_finished(&state.wiring, view, done);
    state.tasks.remove(&EngineTask::Effect(id));
    match bodies {
        // A receipt is stored even if its turn is over: otherwise the effect would stay in doubt.
        Some(bodies) => record::record_in_order(ctx, state, task, agent, bodies).await,
        None => {
            tracing::info!(conversation = %state.conv.id, "another epoch owns the conversation now");
            ctx.stop();
            Ok(())
        }
    }
}

pub(super) async fn hook_decided(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    done: HookDone,
) -> Result<(), NodeError> {
    let (task, agent) = (done.request.task, done.request.agent.clone());
    state.tasks.remove(&EngineTask::Effect(done.request.id()));
    let Some(view) = state.conv.main_agent(task) else { return Ok(()) };
    let body = agent::hook_decided(&state.wiring, view, done, |_| None);
    record::record(ctx, state, task, agent, body).await
}
