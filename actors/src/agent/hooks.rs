//! Asks the hooks before a turn and before the skills that a reply calls. A verdict is taken before the reply is recorded and
//! stored with it, so that a replay of the log needs no hook.

use annie_core::{
    event::{Action, EventBody, Inbound, PlannedSkill, ResolvedCall},
    hooks::{Decided, HookContext, HookPoint, HookSubject, HookVerdict},
    ids::{AgentId, ConversationId, IntentId, TaskId, UserId},
    message::ModelReply,
    skill::{Effect, SkillFormat, SkillSet},
    turn::{AgentView, REFUSED},
};
use serde_json::json;

use crate::wiring::Wiring;

/// The calls of a reply, and the verdicts about them, which are recorded before the reply.
pub(crate) struct Resolved {
    pub calls: Vec<ResolvedCall>,
    pub decided: Vec<EventBody>,
}

/// A turn that does not begin.
pub(crate) struct RefusedTurn {
    /// The text for the user.
    pub text: String,
    /// The verdict.
    pub decided: EventBody,
}

/// The calls of a reply, each with what becomes of it.
pub(crate) fn resolve(wiring: &Wiring, view: AgentView<'_>, reply: &ModelReply) -> Resolved {
    let skills = wiring.catalog.skills();
    let mut calls = view.resolve(reply, &skills);
    let mut decided = Vec::new();
    if wiring.hooks.is_empty() {
        return Resolved { calls, decided };
    }
    for call in &mut calls {
        let Action::Skill(planned) = &mut call.action else { continue };
        let subject = HookSubject::Skill(planned);
        let at = HookContext {
            user: view.user(),
            channel: view.channel(),
            conversation: view.conversation(),
            task: view.task(),
            agent: view.agent(),
            point: HookPoint::BeforeSkill,
            subject,
        };
        let Some(verdict) = wiring.hooks.judge(&at).map(|verdict| fitting(verdict, planned, &skills)) else { continue };
        decided.push(recorded(&verdict, &planned.skill));
        match verdict.verdict {
            HookVerdict::Continue => {}
            HookVerdict::Replace { arguments } => planned.arguments = arguments,
            HookVerdict::Refuse { text } => {
                let text = format!(
                    "{REFUSED} The rule \"{}\" does not allow {} here: {text} Do not try it again; tell the user.",
                    verdict.hook, planned.skill
                );
                call.action = Action::Answer { text, is_error: true, is_unknown: false, is_malformed: false };
            }
        }
    }
    Resolved { calls, decided }
}

/// The verdict, or a refusal if the arguments that it gives do not fit the skill.
fn fitting(verdict: Decided, planned: &PlannedSkill, skills: &SkillSet) -> Decided {
    let HookVerdict::Replace { arguments } = &verdict.verdict else { return verdict };
    let checked = skills.get(&planned.skill).map(|skill| skill.check_arguments(arguments));
    let Some(Err(error)) = checked else { return verdict };
    let text = "The rule gave arguments that do not fit the skill.".to_owned();
    Decided { verdict: HookVerdict::Refuse { text }, failure: error.to_string(), ..verdict }
}

/// Whether a hook refuses a turn: the turn itself, or the prompt skill that its message calls by `/name`.
pub(crate) fn judge_turn(
    wiring: &Wiring,
    (user, conversation, task): (&UserId, ConversationId, TaskId),
    inbound: &Inbound,
) -> Option<RefusedTurn> {
    if wiring.hooks.is_empty() {
        return None;
    }
    let agent = AgentId::orchestrator();
    let at = HookContext {
        user,
        channel: &inbound.source,
        conversation,
        task,
        agent: &agent,
        point: HookPoint::BeforeTurn,
        subject: HookSubject::Turn(inbound),
    };
    let before_turn = wiring.hooks.judge(&at).and_then(|verdict| refusal(verdict, "the turn"));
    before_turn.or_else(|| {
        let planned = called_by_name(&wiring.catalog.skills(), task, &inbound.text)?;
        let at = HookContext { point: HookPoint::BeforeSkill, subject: HookSubject::Skill(&planned), ..at };
        wiring.hooks.judge(&at).and_then(|verdict| refusal(verdict, &planned.skill))
    })
}

fn refusal(verdict: Decided, what: &str) -> Option<RefusedTurn> {
    let decided = recorded(&verdict, what);
    let HookVerdict::Refuse { text } = verdict.verdict else { return None };
    Some(RefusedTurn { text, decided })
}

/// The prompt skill that a message calls by `/name`.
fn called_by_name(skills: &SkillSet, task: TaskId, text: &str) -> Option<PlannedSkill> {
    let (name, arguments) =
        text.strip_prefix('/').map(|rest| rest.split_once(char::is_whitespace).unwrap_or((rest, "")))?;
    let skill = skills.get(name).filter(|s| matches!(s.format, SkillFormat::Prompt { user_invocable: true, .. }))?;
    Some(PlannedSkill {
        intent: IntentId::for_call(task, &AgentId::orchestrator(), "slash"),
        skill: name.to_owned(),
        arguments: json!({"args": arguments.trim()}),
        effect: Effect::Read,
        external: skill.external,
        timeout_ms: skill.timeout_ms,
        origin: Vec::new(),
    })
}

/// The record of a verdict, which is also logged and counted.
fn recorded(verdict: &Decided, what: &str) -> EventBody {
    let Decided { hook, point, verdict, failure } = verdict;
    let (verb, text) = match verdict {
        HookVerdict::Continue => ("continue with", ""),
        HookVerdict::Refuse { text } => ("refuse", text.as_str()),
        HookVerdict::Replace { .. } => ("replace the arguments of", ""),
    };
    if failure.is_empty() {
        tracing::info!(hook, point = point.as_str(), what, verdict = verb, "hook decided");
    } else {
        tracing::warn!(hook, point = point.as_str(), what, verdict = verb, failure, "hook failed");
        metrics::counter!("annie_hook_failures_total", "hook" => hook.clone()).increment(1);
    }
    let labels = [("hook", hook.clone()), ("point", point.as_str().to_owned()), ("verdict", verb.to_owned())];
    metrics::counter!("annie_hook_verdicts_total", &labels).increment(1);
    EventBody::Decided {
        component: format!("hook {hook}"),
        decision: format!("{verb} {what}"),
        reasoning: if failure.is_empty() { text.to_owned() } else { format!("it failed: {failure}") },
        alternatives: Vec::new(),
    }
}
