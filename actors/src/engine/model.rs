//! Turns the results of the orchestrator's rounds and skill calls into events.

use std::sync::Arc;

use annie_core::{
    classify::Spoken,
    event::EventBody,
    ids::AgentId,
    turn::{DirectiveId, resolve_main},
};

use super::{
    record,
    state::{Engine, EngineState, EngineTask},
};
use crate::{
    breaker::RunRequest,
    effects::{ModelDone, SkillDone},
    observe::{Context, NodeError},
};

pub(super) async fn replied(ctx: &Context<Engine>, state: &mut EngineState, done: ModelDone) -> Result<(), NodeError> {
    let agent = AgentId::orchestrator();
    let Some(turn) = state.conv.turn(done.task).filter(|t| !t.control.is_cancelled && t.main.awaits(done.round)) else {
        return Ok(());
    };
    let (task, was_by_commands) = (turn.task, turn.main.is_cmd());
    let backend = done.backend.clone();
    let refusal = done.result.as_ref().err().filter(|e| e.refuses_tools()).map(|e| e.detail.clone());
    state.tasks.remove(&EngineTask::Effect(DirectiveId::Model(task, agent.clone(), done.round)));
    let body = match done.result {
        Ok(reply) => {
            let mut skills = state.wiring.catalog.skills();
            if turn.facts.spoken_as.is_some_and(Spoken::reads_only) {
                skills = Arc::new(skills.reading());
            }
            let calls = resolve_main(&reply, turn, &skills);
            EventBody::replied(done.round, reply, calls, done.backend)
                .after_waiting(done.waited_ms)
                .after_prefill(done.prefill_ms)
        }
        Err(error) => EventBody::ModelFailed { round: done.round, error, waited_ms: done.waited_ms },
    };
    record::record(ctx, state, task, agent, body).await?;
    // Later turns on this backend use commands from the start.
    if !was_by_commands && state.conv.turn(task).is_some_and(|turn| turn.main.is_cmd()) {
        match &refusal {
            Some(refusal) => state.wiring.leases.use_commands(&backend, refusal),
            None => state.wiring.leases.note_unusable_turn(&backend),
        }
    }
    Ok(())
}

pub(super) async fn skill_finished(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    done: SkillDone,
) -> Result<(), NodeError> {
    let RunRequest { skill, call_id, task, agent, .. } = done.request;
    state.tasks.remove(&EngineTask::Effect(DirectiveId::Skill(task, agent.clone(), skill.intent.to_string())));
    let Some(outcome) = done.outcome else {
        tracing::info!(conversation = %state.conv.id, "another epoch owns the conversation now");
        ctx.stop();
        return Ok(());
    };
    // A receipt is stored even if its turn is over: otherwise the effect would stay in doubt.
    let body = EventBody::SkillFinished {
        intent: skill.intent,
        call_id,
        skill: skill.skill,
        outcome,
        duration_ms: done.duration_ms,
    };
    record::record(ctx, state, task, agent, body).await
}
