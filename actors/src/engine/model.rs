//! Results of the main agent's rounds and skill calls become events.

use annie_core::{
    event::EventBody,
    ids::AgentId,
    turn::{DirectiveId, resolve_main},
};

use super::{Engine, EngineState, EngineTask, record};
use crate::{
    breaker::RunRequest,
    effects::{ModelDone, SkillDone},
    observe::{Context, NodeError},
};

pub(super) async fn replied(ctx: &Context<Engine>, state: &mut EngineState, done: ModelDone) -> Result<(), NodeError> {
    let agent = AgentId::orchestrator();
    let Some(turn) = state.conv.turn(done.task).filter(|t| !t.cancelled && t.main.awaits(done.round)) else {
        return Ok(());
    };
    let task = turn.task;
    state.tasks.remove(&EngineTask::Effect(DirectiveId::Model(task, agent.clone(), done.round)));
    let body = match done.result {
        Ok(reply) => {
            let skills = state.wiring.catalog.skills();
            let calls = resolve_main(&reply, turn, &skills);
            EventBody::replied(done.round, reply, calls, done.backend)
        }
        Err(error) => EventBody::ModelFailed { round: done.round, error },
    };
    record::record(ctx, state, task, agent, body).await
}

pub(super) async fn skill_finished(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    done: SkillDone,
) -> Result<(), NodeError> {
    let RunRequest { skill, call_id, task, agent, .. } = done.request;
    state.tasks.remove(&EngineTask::Effect(DirectiveId::Skill(task, agent.clone(), skill.intent.to_string())));
    let Some(outcome) = done.outcome else {
        tracing::info!(conversation = %state.conv.id, "another life owns the conversation now");
        ctx.stop();
        return Ok(());
    };
    // A receipt is stored even if its turn is over by now: what took effect must not stay in doubt.
    let body = EventBody::SkillFinished {
        intent: skill.intent,
        call_id,
        skill: skill.skill,
        outcome,
        duration_ms: done.duration_ms,
    };
    record::record(ctx, state, task, agent, body).await
}
