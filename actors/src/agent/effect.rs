//! Starts the rounds and skill runs of an agent, and the questions to hooks and to persons about its calls.

use std::{future::Future, sync::Arc};

use annie_core::{
    approval::{APPROVAL, ApprovalMode},
    event::PlannedSkill,
    hooks::HookQuestion,
    ids::{AgentId, ConversationId, Epoch, TaskId},
    turn::{AgentView, Directive, DirectiveId},
};
use tokio::sync::oneshot;
use tracing::Span;

use super::{
    AgentDone,
    hooks::{approval_mode, skill_context},
};
use crate::{
    breaker::RunRequest,
    effects::{
        ApprovalAsk, Begin, Fallback, ForkedBy, HookDone, HookRequest, ModelCall, StepRound, Waits, ask_hook,
        call_model, call_with_fallback, fork_if_requested, step_round,
    },
    log_ids,
    observe::{Addr, Named},
    scheduler::{PermitRequest, RequestHandle},
    spend::Payer,
    wiring::Wiring,
};

/// What remains with the actor of a round that it started.
#[derive(Clone, Default)]
pub(crate) struct RoundHandles {
    /// Withdraws the permit request, unless the permit has been granted.
    pub handle: RequestHandle,
    /// Whether the round may begin on an agentic backend, and has begun.
    pub begin: Begin,
    /// How long the round waits for its permits.
    pub waits: Waits,
}

/// The tracked tasks of an actor that runs an agent.
pub(crate) trait AgentTasks {
    /// Starts a task.
    fn spawn(&mut self, id: DirectiveId, work: impl Future<Output = ()> + Send + 'static);
}

/// An agent's work outside its actor.
pub(crate) enum AgentEffect {
    Round(Box<ModelCall>),
    /// The reply of the round comes from the workflow of the turn.
    Step(Box<StepRound>),
    Skill(Box<RunRequest>, Fallback),
    Hook(Box<HookRequest>),
    /// A question to a person in this mode.
    Approval(Box<HookRequest>, ApprovalMode),
}

impl AgentEffect {
    /// The work that a directive requests; `None` if it is none of an agent's own. A round takes at most `ms_max`
    /// milliseconds, without the wait for its permit.
    fn of(
        (view, epoch): (AgentView<'_>, Epoch),
        wiring: &Wiring,
        directive: Directive,
        ms_max: u64,
        handles: RoundHandles,
    ) -> Option<Self> {
        match directive {
            Directive::CallModel { round, .. } if let Some(reply) = view.workflow_reply() => {
                let (request, RoundHandles { handle, waits, .. }) = (work_request(view, wiring), handles);
                Some(Self::Step(Box::new(StepRound { request, round, reply, handle, waits })))
            }
            Directive::CallModel { task, agent, round } => {
                let request = view.request(&wiring.catalog.skills());
                Some(Self::Round(Box::new(ModelCall {
                    task,
                    user: view.user().clone(),
                    conversation: view.conversation(),
                    agent,
                    priority: view.priority(),
                    round,
                    may_reuse: view.may_reuse(&request),
                    request,
                    ms_max,
                    epoch,
                    route: view.advisors().unwrap_or_else(|| view.route()).to_vec(),
                    shows: view.shows(),
                    after: view.after().to_vec(),
                    shift_ms: view.shift_ms(),
                    handle: handles.handle,
                    begin: handles.begin,
                    progress: view.progress(),
                    waits: handles.waits,
                    redaction: Arc::new(view.redaction()),
                    voice: view.voice(),
                    payer: payer(view, (task, epoch), wiring),
                })))
            }
            Directive::CallSkill { task, agent, call_id, skill, started_before } => {
                let fallback = fallback(wiring, view, &skill);
                let request = RunRequest {
                    skill,
                    call_id,
                    user: view.user().clone(),
                    conversation: view.conversation(),
                    task,
                    agent,
                    epoch,
                    timezone: view.facts().timezone.clone(),
                    started_before,
                    asked_before: false,
                    is_recorded: false,
                };
                Some(Self::Skill(Box::new(request), fallback))
            }
            Directive::RunHook { task, agent, hook, skill } => {
                let channels = view.channels();
                let at = skill_context(view, &channels, &skill);
                let (question, mode) = (HookQuestion::of(&hook, &at), approval_mode(wiring, view, &at));
                let asks_person = hook == APPROVAL;
                // The reply says that a person is asked. The rules or the catalogue may have changed since.
                let mode = if mode == ApprovalMode::Off { ApprovalMode::Ask } else { mode };
                let request = Box::new(HookRequest { task, agent, hook, skill, question });
                Some(if asks_person { Self::Approval(request, mode) } else { Self::Hook(request) })
            }
            Directive::BeginTurn { .. }
            | Directive::RunAgent { .. }
            | Directive::Understand { .. }
            | Directive::CarryOut { .. }
            | Directive::Compact { .. } => None,
        }
    }
}

/// The accounts of a round of the agent.
fn payer(view: AgentView<'_>, (task, epoch): (TaskId, Epoch), wiring: &Wiring) -> Payer {
    Payer {
        task,
        conversation: view.conversation(),
        user: view.user().clone(),
        epoch,
        spent_in_turn: view.spent(),
        is_first_round: view.is_first_round(),
        calls: view.call_times().filter(|_| wiring.limits.guards.calls.calls_max > 0).cloned(),
    }
}

impl AgentEffect {
    /// The span of the log lines of this work.
    fn log_span(&self, conversation: ConversationId) -> Span {
        let orchestrator = AgentId::orchestrator();
        let (task, agent) = match self {
            Self::Round(call) => (call.task, &call.agent),
            Self::Step(step) => (step.request.task, &orchestrator),
            Self::Skill(request, _) => (request.task, &request.agent),
            Self::Hook(request) | Self::Approval(request, _) => (request.task, &request.agent),
        };
        log_ids::of_agent(conversation, task, agent)
    }
}

/// The request of a turn that works without a permit.
fn work_request(view: AgentView<'_>, wiring: &Wiring) -> PermitRequest {
    PermitRequest {
        task: view.task(),
        user: view.user().clone(),
        conversation: view.conversation(),
        priority: view.priority(),
        since: wiring.env.now(),
        after: view.after().to_vec(),
        route: Vec::new(),
        progress: None,
        is_task: true,
    }
}

/// What the kernel may do if this call fails. A skill about which a hook or a person would be asked is left to the agent, whose
/// own call asks them.
fn fallback(wiring: &Wiring, view: AgentView<'_>, skill: &PlannedSkill) -> Fallback {
    let skills = wiring.catalog.skills();
    let mut stand_ins = view.stand_ins(skill, &skills);
    let own = skills.get(&skill.skill).map(|spec| spec.fallback.clone()).unwrap_or_default();
    let channels = view.channels();
    stand_ins.retain(|stand_in| {
        let at = skill_context(view, &channels, stand_in);
        let hooks = &wiring.hooks;
        hooks.is_empty()
            || hooks.judge(&at).is_none()
                && hooks.outside(&at).next().is_none()
                && hooks.approval().mode(&at) == ApprovalMode::Off
    });
    Fallback { rules: view.error_rules(), own, stand_ins }
}

/// Starts what a directive of an agent requests. The result arrives as a message of the actor. If that message is lost, the
/// incarnation has ended, and the next one starts the directive again.
pub(crate) fn start<M: From<AgentDone> + Named + Send + 'static>(
    (tasks, me): (&mut impl AgentTasks, Addr<M>),
    agent: (AgentView<'_>, Epoch),
    wiring: Arc<Wiring>,
    directive: Directive,
    ms_max: u64,
    handles: RoundHandles,
) {
    let (id, conversation) = (directive.id(), agent.0.conversation());
    let Some(effect) = AgentEffect::of(agent, &wiring, directive, ms_max, handles) else { return };
    // The task inherits the span, and so do its log lines.
    let _entered = effect.log_span(conversation).entered();
    match effect {
        AgentEffect::Round(call) => tasks.spawn(id, async move {
            let done = call_model(wiring, *call).await;
            me.tell(AgentDone::Round(Box::new(done)).into());
        }),
        AgentEffect::Step(step) => tasks.spawn(id, async move {
            let done = step_round(&wiring, *step).await;
            me.tell(AgentDone::Round(Box::new(done)).into());
        }),
        AgentEffect::Skill(request, fallback) => {
            let by = ForkedBy::of(agent.0);
            tasks.spawn(id, async move {
                let done = call_with_fallback(wiring.clone(), *request, fallback).await;
                let done = fork_if_requested(&wiring, done, by).await;
                me.tell(AgentDone::Skill(Box::new(done)).into());
            });
        }
        AgentEffect::Hook(request) => tasks.spawn(id, async move {
            let done = ask_hook(wiring, *request).await;
            me.tell(AgentDone::Hook(Box::new(done)).into());
        }),
        AgentEffect::Approval(request, mode) => tasks.spawn(id, ask_person(me, request, mode)),
    }
}

/// Asks the Engine for the verdict of a person, and waits for it without a limit: the request itself expires.
async fn ask_person<M: From<AgentDone> + Named + Send + 'static>(
    me: Addr<M>,
    request: Box<HookRequest>,
    mode: ApprovalMode,
) {
    let (reply, answer) = oneshot::channel();
    let (task, agent, skill) = (request.task, request.agent.clone(), request.skill.clone());
    me.tell(AgentDone::Approval(Box::new(ApprovalAsk { task, agent, skill, mode, reply })).into());
    // Without an answer the turn is over, or the incarnation of the Engine, and the next one asks again.
    if let Ok(answer) = answer.await {
        let done = HookDone { request: *request, result: Ok(answer), duration_ms: 0 };
        me.tell(AgentDone::Hook(Box::new(done)).into());
    }
}
