//! Turns the results of an agent's rounds and skill runs into events.

use annie_core::{
    error_route::Routed,
    event::{EventBody, JudgedCalls, ResolvedCall},
    guard::InjectionMode,
    ids::{AgentId, TaskId},
    message::{ModelError, ModelErrorKind, ModelReply},
    outcome::{Outcome, Status},
    time::Micros,
    turn::{AgentView, DirectiveId},
};

use super::hooks::{are_answer, asked_hooks};
use crate::{
    breaker::RunRequest,
    effects::{ApprovalAsk, HookDone, ModelDone, ROUTER, SkillDone, note_step},
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
    let judged = judged.map(|judged| JudgedCalls { are_answer: are_answer(wiring, view, &calls, &judged), ..judged });
    EventBody::replied(done.round, reply.clone(), calls, done.backend.clone())
        .after_waiting(done.waited_ms)
        .after_prefill(done.prefill_ms)
        .with_verdicts(judged)
}

/// The events that follow a reply: loops, and the advice that it contains. They are also logged and counted.
pub(crate) fn after_reply(view: AgentView<'_>, replied: &EventBody) -> Vec<EventBody> {
    let mut events = replied.loops_detected();
    let advice = replied.advice_decided();
    if let Some(EventBody::Decided { decision, .. }) = &advice {
        note_advice(decision);
    }
    for event in &events {
        let EventBody::LoopDetected { found, ends_run } = event else { continue };
        let (detector, level) = (found.detector.as_str(), found.level.as_str());
        tracing::warn!(skill = found.skill, detector, level, count = found.count, ends_run, "loop detected");
        metrics::counter!("annie_loops_detected_total", "detector" => detector, "level" => level).increment(1);
    }
    if view.plans() && view.advisors().is_none() {
        events.extend(replied.plans_decided());
    }
    events.extend(advice);
    events
}

fn note_advice(decision: &str) {
    tracing::info!(decision, "an agent asked for another approach");
    metrics::counter!("annie_alternatives_total").increment(1);
}

/// The events of the Scheduler's choices of a round. They are stored with its result.
pub(crate) fn chosen(done: &ModelDone) -> Vec<EventBody> {
    done.choices.iter().map(|choice| choice.event(done.round)).collect()
}

/// The events of a failed round: the failure, and before it the decision if a cap on spending kept the round from running.
pub(crate) fn failed(view: AgentView<'_>, done: &ModelDone, error: &ModelError) -> Vec<EventBody> {
    let component = match error.kind {
        ModelErrorKind::TurnSpendCap | ModelErrorKind::SpendCap => Some("spend"),
        ModelErrorKind::CallCap => Some("guard model_calls"),
        _ => None,
    };
    let decided = component.map(|component| EventBody::Decided {
        component: component.to_owned(),
        decision: "the round is not run".to_owned(),
        reasoning: error.detail.clone(),
        alternatives: Vec::new(),
        hook: None,
    });
    let failed = EventBody::ModelFailed { round: done.round, error: error.clone(), waited_ms: done.waited_ms };
    let advice = view.advice_failed(&error.to_string());
    if let Some(EventBody::Decided { decision, .. }) = &advice {
        note_advice(decision);
    }
    decided.into_iter().chain([failed]).chain(advice).collect()
}

/// A skill run that is over.
pub(crate) struct Finished {
    pub id: DirectiveId,
    pub task: TaskId,
    pub agent: AgentId,
    /// The event; `None` if another epoch owns the conversation now, whose Engine runs this agent too.
    pub bodies: Option<Vec<EventBody>>,
}

/// The events of a skill run, with what follows if it failed. The agent is gone if its turn is over.
pub(crate) fn skill_finished(wiring: &Wiring, view: Option<AgentView<'_>>, done: SkillDone) -> Finished {
    let SkillDone { request: RunRequest { skill, call_id, task, agent, .. }, outcome, duration_ms, decided } = done;
    let id = DirectiveId::Skill(task, agent.clone(), skill.intent.to_string());
    let bodies = outcome.map(|outcome| {
        let outcome = match view {
            Some(view) => view.check_result(&skill, outcome),
            None => outcome,
        };
        let (mut outcome, flagged) = guard_result(wiring, &skill.skill, outcome);
        outcome.untrusted = untrusted_origin(wiring, &skill.skill, &outcome);
        if !outcome.doubts.is_empty() {
            metrics::counter!("annie_results_flagged_total", "skill" => skill.skill.clone()).increment(1);
        }
        let route = view.and_then(|view| view.route_failure(skill.intent, &outcome, &wiring.catalog.skills()));
        let step = route.as_ref().map(|routed| step_decided(&skill.skill, routed));
        let (intent, skill, route) = (skill.intent, skill.skill, route.map(Box::new));
        let mut bodies = decided;
        bodies.extend(flagged);
        bodies.push(EventBody::SkillFinished { intent, call_id, skill, outcome, duration_ms, route });
        bodies.extend(step);
        bodies
    });
    Finished { id, task, agent, bodies }
}

/// The outcome with what the guard found in its text, and the event of that. Results of the kernel's own skills, the texts of
/// prompt skills, and what the operator trusts are not examined.
fn guard_result(wiring: &Wiring, skill: &str, mut outcome: Outcome) -> (Outcome, Option<EventBody>) {
    const KERNEL: &str = "system.";
    let guards = &wiring.limits.guards;
    let trusts = |skill: &str| {
        !skill.contains('.') || skill.starts_with(KERNEL) || wiring.hooks.approval().untrusted.trusts(skill)
    };
    // The result of a skill that ran in place of a failed one contains words of both.
    let is_trusted = trusts(skill) && outcome.instead.as_ref().is_none_or(|instead| trusts(&instead.skill));
    // The model reads the details of a failure as well, such as what a program wrote.
    let texts = [Some(&outcome.data), outcome.error_detail.as_ref()];
    let found = texts.into_iter().flatten().find_map(|text| guards.examine_result(text));
    let Some(injection) = found.filter(|_| !is_trusted) else {
        return (outcome, None);
    };
    let is_withheld = guards.injection == InjectionMode::Refuse;
    let verb = if is_withheld { "withhold" } else { "flag" };
    let event = super::hooks::found("injection", verb, &format!("the result of {skill}"), injection.reason());
    if is_withheld {
        outcome.data = injection.withheld();
        outcome.error_detail = None;
    }
    outcome.injection = Some(Box::new(injection));
    (outcome, Some(event))
}

/// The origin of a result's text if an outside party may have written it: the skill, the one that ran in its place, or the origin
/// of a stored text. Empty if all are trusted.
fn untrusted_origin(wiring: &Wiring, skill: &str, outcome: &Outcome) -> String {
    if !matches!(outcome.status, Status::Success | Status::Partial) {
        return String::new();
    }
    let (policy, skills) = (&wiring.hooks.approval().untrusted, wiring.catalog.skills());
    let instead = outcome.instead.as_ref().map(|instead| instead.skill.as_str());
    let origins = instead.into_iter().chain([skill]).chain(outcome.origins.iter().map(String::as_str));
    origins
        .filter(|origin| origin.contains('.') || *origin != skill)
        .find(|origin| policy.is_untrusted(origin, &skills))
        .unwrap_or_default()
        .to_owned()
}

/// The event of the step that the router decided. It is also counted.
fn step_decided(skill: &str, routed: &Routed) -> EventBody {
    note_step(Some(routed.kind), routed.step, "agent");
    EventBody::Decided {
        component: ROUTER.to_owned(),
        decision: routed.decision(skill),
        reasoning: routed.reasoning(),
        alternatives: routed.alternatives(),
        hook: None,
    }
}
