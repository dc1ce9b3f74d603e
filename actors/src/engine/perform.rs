//! Compares what is outstanding with what is under way: starts what is missing, ends what is no longer wanted.

use std::collections::HashSet;

use annie_core::turn::{Directive, DirectiveId};

use super::{Engine, EngineMsg, EngineState, EngineTask, agents};
use crate::{
    breaker::RunRequest,
    effects::{ModelCall, call_model, call_skill, read_facts},
    observe::{Context, NodeError},
};

pub(super) async fn perform(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let wanted = state.conv.outstanding();
    let ids: HashSet<DirectiveId> = wanted.iter().map(Directive::id).collect();
    state.tasks.retain(|task| match task {
        EngineTask::Effect(id) => ids.contains(id),
        EngineTask::IdleTimer => wanted.is_empty(),
        EngineTask::SaveTimer => true,
    });
    agents::dismiss_unwanted(state, &ids);
    for directive in wanted {
        let id = directive.id();
        if !state.tasks.contains(&EngineTask::Effect(id.clone())) {
            start(ctx, state, id, directive).await?;
        }
    }
    Ok(())
}

async fn start(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    id: DirectiveId,
    directive: Directive,
) -> Result<(), NodeError> {
    let (wiring, me) = (state.wiring.clone(), ctx.me());
    let (user, conversation) = (state.conv.user.clone(), state.conv.id);
    match directive {
        Directive::BeginTurn { task } => {
            let Some((_, inbound)) = state.conv.inbox.iter().find(|(t, _)| *t == task).cloned() else { return Ok(()) };
            state.tasks.spawn(EngineTask::Effect(id), async move {
                let (mode, facts, limits) = read_facts(&wiring, &user, conversation, task, &inbound).await;
                // If it does not arrive this life is over, and the next one begins the turn.
                me.tell(EngineMsg::FactsRead { task, mode, facts: Box::new(facts), limits });
            });
        }
        Directive::CallModel { task, agent, round } => {
            let (Some(request), Some(turn)) = (state.conv.request(), &state.conv.turn) else { return Ok(()) };
            let ms_max = wiring.limits.round_ms_max;
            let priority = turn.inbound.priority;
            let call = ModelCall { task, user, conversation, agent, priority, round, request, ms_max };
            state.tasks.spawn(EngineTask::Effect(id), async move {
                let done = call_model(wiring, call).await;
                me.tell(EngineMsg::ModelReplied(Box::new(done)));
            });
        }
        Directive::CallSkill { task, agent, call_id, skill, started_before } => {
            let timezone = state.conv.turn.as_ref().map(|t| t.facts.timezone.clone()).unwrap_or_default();
            let epoch = state.epoch;
            let request = RunRequest {
                skill,
                call_id,
                user,
                conversation,
                task,
                agent,
                epoch,
                timezone,
                started_before,
                asked_before: false,
            };
            state.tasks.spawn(EngineTask::Effect(id), async move {
                let done = call_skill(wiring, request).await;
                me.tell(EngineMsg::SkillFinished(Box::new(done)));
            });
        }
        Directive::RunAgent { task, agent } => agents::run(ctx, state, task, agent).await?,
    }
    Ok(())
}
