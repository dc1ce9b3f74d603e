//! Compares the outstanding directives with the running tasks: starts what is missing, and ends what is no longer wanted.

use std::{collections::HashSet, future::Future};

use annie_core::{
    ids::{AgentId, TaskId},
    turn::{Directive, DirectiveId},
};

use super::{
    agents,
    messages::{EngineMsg, JobCommandMsg},
    state::{Asked, Engine, EngineState, EngineTask},
};
use crate::{
    breaker::RunRequest,
    effects::{Begin, ModelCall, Waits, call_model, call_skill, carry_out_order, read_facts, route, understand_order},
    observe::{Context, NodeError},
    scheduler::RequestHandle,
};

pub(super) async fn perform(ctx: &Context<Engine>, state: &mut EngineState) -> Result<(), NodeError> {
    let wanted = state.conv.outstanding(ctx.now());
    let ids: HashSet<DirectiveId> = wanted.iter().map(Directive::id).collect();
    let is_idle = state.conv.is_idle();
    state.tasks.retain(|task| match task {
        EngineTask::Effect(id) => ids.contains(id),
        EngineTask::IdleTimer => is_idle,
        EngineTask::SaveTimer | EngineTask::Snapshot | EngineTask::Clock => true,
    });
    state.asked.retain(|id, _| ids.contains(id));
    agents::dismiss_unwanted(state, &ids);
    let at_work = state.at_work.now();
    for directive in wanted {
        let id = directive.id();
        if !state.tasks.contains(&EngineTask::Effect(id.clone())) {
            state.at_work.on(Some(id.task()));
            start(ctx, state, id, directive).await?;
            state.at_work.on(at_work);
        }
    }
    Ok(())
}

impl EngineState {
    /// Starts the task of an effect. If it panics, the effect's conversation task is blamed for the Engine's death.
    fn spawn(&mut self, id: DirectiveId, work: impl Future<Output = ()> + Send + 'static) {
        let (at_work, task) = (self.at_work.clone(), id.task());
        self.tasks.spawn_noting(EngineTask::Effect(id), work, move || at_work.broke(task));
    }
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
            let Some(inbound) = state.conv.may_begin(task).cloned() else { return Ok(()) };
            state.spawn(id, async move {
                let route = route(&wiring, &inbound);
                let (mode, facts, limits) = read_facts(&wiring, &user, conversation, task, &inbound, &route).await;
                // If the message is lost, this incarnation has ended, and the next one begins the turn.
                me.tell(EngineMsg::FactsRead { task, mode, facts: Box::new(facts), limits, route: Box::new(route) });
            });
        }
        Directive::CallModel { task, agent, round } => {
            let Some(call) = model_call(state, task, agent, round) else { return Ok(()) };
            call.waits.begin(ctx.now());
            state.asked.insert(
                id.clone(),
                Asked {
                    handle: call.handle.clone(),
                    begin: call.begin.clone(),
                    waits: call.waits.clone(),
                    since: ctx.now(),
                },
            );
            state.spawn(id, async move {
                let done = call_model(wiring, call).await;
                me.tell(EngineMsg::ModelReplied(Box::new(done)));
            });
        }
        Directive::CallSkill { task, agent, call_id, skill, started_before } => {
            let timezone = state.conv.turn(task).map(|t| t.facts.timezone.clone()).unwrap_or_default();
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
            state.spawn(id, async move {
                let done = call_skill(wiring, request).await;
                me.tell(EngineMsg::SkillFinished(Box::new(done)));
            });
        }
        Directive::Understand { task, text } => {
            let source = state.conv.job_commands.iter().find(|o| o.task == task).map(|o| o.inbound.source.clone());
            state.spawn(id, async move {
                let words = (text.as_str(), source.as_deref().unwrap_or_default());
                let meant = understand_order(&wiring, &user, conversation, task, words).await;
                // If one of these messages is lost, this incarnation has ended, and the next one starts the command again.
                me.tell(EngineMsg::JobCommand(JobCommandMsg::Understood { task, meant }));
            });
        }
        Directive::CarryOut { task, verb, targets, text } => {
            let by = format!("order:{task}");
            state.spawn(id, async move {
                let text = carry_out_order(&wiring, &user, verb, &targets, text, &by).await;
                me.tell(EngineMsg::JobCommand(JobCommandMsg::CarriedOut { task, text }));
            });
        }
        Directive::RunAgent { task, agent } => agents::run(ctx, state, task, agent).await?,
    }
    Ok(())
}

fn model_call(state: &EngineState, task: TaskId, agent: AgentId, round: u32) -> Option<ModelCall> {
    let skills = state.wiring.catalog.skills();
    let (request, turn) = (state.conv.request(task, &skills)?, state.conv.turn(task)?);
    Some(ModelCall {
        task,
        user: state.conv.user.clone(),
        conversation: state.conv.id,
        agent,
        priority: turn.inbound.priority,
        round,
        request,
        ms_max: state.wiring.limits.round_ms_max,
        epoch: state.epoch,
        route: turn.route.clone(),
        after: turn.inbound.after.clone(),
        shift_ms: turn.inbound.mood.map_or(0, |m| m.shift_ms()),
        handle: RequestHandle::default(),
        begin: Begin::default(),
        progress: Some((round, turn.main.rounds_max)),
        waits: Waits::default(),
    })
}
