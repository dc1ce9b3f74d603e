//! Asks the hooks before a turn and before the skills that a reply calls. A verdict is taken before the reply is recorded and
//! stored with it, so that a replay of the log needs no hook.

use annie_core::{
    event::{Action, EventBody, Inbound, PlannedSkill, ResolvedCall},
    hooks::{Decided, HookContext, HookPoint, HookSubject, HookVerdict},
    ids::{AgentId, ConversationId, IntentId, TaskId, UserId},
    message::ModelReply,
    skill::{Effect, SkillFormat},
    turn::{AgentView, REFUSED},
};
use serde_json::json;

use crate::wiring::Wiring;

/// A verdict, and the name of what it is about.
pub(crate) struct Verdict {
    decided: Decided,
    what: String,
}

/// The calls of a reply, and the verdicts about them.
pub(crate) struct Resolved {
    pub calls: Vec<ResolvedCall>,
    pub verdicts: Vec<Verdict>,
}

/// The verdicts about a turn that is to begin.
#[derive(Default)]
pub(crate) struct JudgedTurn {
    pub verdicts: Vec<Verdict>,
    /// The text for the user if the turn does not begin.
    pub refused: Option<String>,
    /// The prompt skill that the message calls by `/name`.
    pub called: Option<PlannedSkill>,
}

/// The calls of a reply, each with what becomes of it.
pub(crate) fn resolve(wiring: &Wiring, view: AgentView<'_>, reply: &ModelReply) -> Resolved {
    let mut calls = view.resolve(reply, &wiring.catalog.skills());
    let mut verdicts = Vec::new();
    if wiring.hooks.is_empty() {
        return Resolved { calls, verdicts };
    }
    let channels = view.channels();
    for call in &mut calls {
        let Action::Skill(planned) = &call.action else { continue };
        if view.has_receipt(planned) {
            // The call is not made, and its answer says what happened.
            continue;
        }
        let at = HookContext {
            user: view.user(),
            channels: &channels,
            conversation: view.conversation(),
            task: view.task(),
            agent: view.agent(),
            point: HookPoint::BeforeSkill,
            subject: HookSubject::Skill(planned),
        };
        let Some(decided) = wiring.hooks.judge(&at) else { continue };
        let what = planned.skill.clone();
        if let HookVerdict::Refuse { text } = &decided.verdict {
            let text = format!(
                "{REFUSED} The rule \"{}\" does not allow {what} here: {text} Do not try it again; tell the user.",
                decided.hook
            );
            call.action = Action::Answer { text, is_error: true, is_unknown: false, is_malformed: false };
        }
        verdicts.push(Verdict { decided, what });
    }
    Resolved { calls, verdicts }
}

/// Judges a turn, and the prompt skill that its message calls by `/name`.
pub(crate) fn judge_turn(
    wiring: &Wiring,
    (user, conversation, task): (&UserId, ConversationId, TaskId),
    inbound: &Inbound,
) -> JudgedTurn {
    let mut judged = JudgedTurn { called: called_by_name(wiring, task, inbound), ..JudgedTurn::default() };
    if wiring.hooks.is_empty() {
        return judged;
    }
    let (agent, channels) = (AgentId::orchestrator(), [inbound.channel().to_owned()]);
    let turn = (HookPoint::BeforeTurn, HookSubject::Turn(inbound), "the turn");
    let skill = judged.called.as_ref();
    let skill = skill.map(|planned| (HookPoint::BeforeSkill, HookSubject::Skill(planned), planned.skill.as_str()));
    // The result of an operation would be lost.
    let turn = Some(turn).filter(|_| inbound.resumes.is_none());
    for (point, subject, what) in turn.into_iter().chain(skill) {
        let at = HookContext { user, channels: &channels, conversation, task, agent: &agent, point, subject };
        let Some(decided) = wiring.hooks.judge(&at) else { continue };
        if let HookVerdict::Refuse { text } = &decided.verdict {
            judged.refused = Some(text.clone());
        }
        judged.verdicts.push(Verdict { decided, what: what.to_owned() });
        if judged.refused.is_some() {
            break;
        }
    }
    judged
}

/// The prompt skill that a message calls by `/name` [S1 Triggering]. A caller's thread without skills calls none.
fn called_by_name(wiring: &Wiring, task: TaskId, inbound: &Inbound) -> Option<PlannedSkill> {
    if inbound.thread().is_some_and(|thread| !thread.with_skills) {
        return None;
    }
    let call = inbound.text.strip_prefix('/')?;
    let (name, arguments) = call.split_once(char::is_whitespace).unwrap_or((call, ""));
    let skills = wiring.catalog.skills();
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

/// The events of verdicts, which are also logged and counted.
pub(crate) fn record(verdicts: Vec<Verdict>) -> Vec<EventBody> {
    verdicts.into_iter().map(recorded).collect()
}

fn recorded(verdict: Verdict) -> EventBody {
    let Verdict { decided: Decided { hook, point, verdict, failure }, what } = verdict;
    let (verb, text) = match verdict {
        HookVerdict::Continue => ("continue with", String::new()),
        HookVerdict::Refuse { text } => ("refuse", text),
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
        reasoning: if failure.is_empty() { text } else { format!("it failed: {failure}") },
        alternatives: Vec::new(),
    }
}
