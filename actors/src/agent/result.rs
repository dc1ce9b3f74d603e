//! Turns the results of an agent's rounds and skill runs into events.

use annie_core::{
    event::{EventBody, JudgedCalls, ResolvedCall},
    ids::{AgentId, TaskId},
    message::{ModelError, ModelErrorKind, ModelReply},
    time::Micros,
    turn::{AgentView, DirectiveId},
};

use super::hooks::asked_hooks;
use crate::{
    breaker::RunRequest,
    effects::{ApprovalAsk, HookDone, ModelDone, SkillDone},
    observe::Named,
    wiring::Wiring,
};

/// The result of an agent's work, or its request for an approval.
pub(crate) enum AgentDone {
    /// A round is over.
    Round(Box<ModelDone>),
    /// A skill run is over.
    Skill(Box<SkillDone>),
    /// A hook outside the kernel has answered, or not.
    Hook(Box<HookDone>),
    /// A call waits for a person.
    Approval(Box<ApprovalAsk>),
}

impl Named for AgentDone {
    fn name(&self) -> &'static str {
        match self {
            Self::Round(_) => "ModelReplied",
            Self::Skill(_) => "SkillFinished",
            Self::Hook(_) => "HookDecided",
            Self::Approval(_) => "ApprovalAsked",
        }
    }
}

impl AgentDone {
    /// The task of the agent's turn.
    pub fn task(&self) -> TaskId {
        match self {
            Self::Round(done) => done.task,
            Self::Skill(done) => done.request.task,
            Self::Hook(done) => done.request.task,
            Self::Approval(ask) => ask.task,
        }
    }
}

/// The event of a reply of this agent at this time, with what becomes of its calls.
pub(crate) fn replied(
    wiring: &Wiring,
    done: &ModelDone,
    reply: &ModelReply,
    calls: Vec<ResolvedCall>,
    (view, at): (AgentView<'_>, Micros),
) -> EventBody {
    let judged = view.judge(&calls, at).map(|judged| {
        let hooks = asked_hooks(wiring, view, &calls, &judged);
        JudgedCalls { hooks, ..judged }
    });
    EventBody::replied(done.round, reply.clone(), calls, done.backend.clone())
        .after_waiting(done.waited_ms)
        .after_prefill(done.prefill_ms)
        .with_verdicts(judged)
}

/// The events of a failed round: the failure, and before it the decision if a cap on spending kept the round from running.
pub(crate) fn failed(done: &ModelDone, error: &ModelError) -> Vec<EventBody> {
    let is_capped = matches!(error.kind, ModelErrorKind::TurnSpendCap | ModelErrorKind::SpendCap);
    let decided = is_capped.then(|| EventBody::Decided {
        component: "spend".to_owned(),
        decision: "the round is not run".to_owned(),
        reasoning: error.detail.clone(),
        alternatives: Vec::new(),
        hook: None,
    });
    let failed = EventBody::ModelFailed { round: done.round, error: error.clone(), waited_ms: done.waited_ms };
    decided.into_iter().chain([failed]).collect()
}

/// A skill run that is over.
pub(crate) struct Finished {
    pub id: DirectiveId,
    pub task: TaskId,
    pub agent: AgentId,
    /// The event; `None` if another epoch owns the conversation now, whose Engine runs this agent too.
    pub body: Option<EventBody>,
}

/// The event of a skill run.
pub(crate) fn skill_finished(done: SkillDone) -> Finished {
    let SkillDone { request: RunRequest { skill, call_id, task, agent, .. }, outcome, duration_ms } = done;
    let id = DirectiveId::Skill(task, agent.clone(), skill.intent.to_string());
    let body = outcome.map(|outcome| EventBody::SkillFinished {
        intent: skill.intent,
        call_id,
        skill: skill.skill,
        outcome,
        duration_ms,
    });
    Finished { id, task, agent, body }
}
