//! Asks the hooks before a turn and before the skills that a reply calls. A verdict of a hook in this process is taken before
//! the reply is recorded, and stored with it. A hook outside the kernel is asked once the reply is stored, and its verdict is
//! an event of its own. So a replay of the log needs no hook.

use annie_core::{
    approval::{APPROVAL, ApprovalMode},
    event::{
        Action, AskedHooks, CallVerdict, EventBody, HookAnswer, HookDecision, Inbound, JudgedCalls, PlannedSkill,
        ResolvedCall,
    },
    guard::{Finding, component},
    hooks::{
        Decided, HookContext, HookPoint, HookQuestion, HookSubject, HookVerdict, OnFailure, OutsideHook, RefuseRule,
    },
    ids::{AgentId, ConversationId, IntentId, TaskId, UserId},
    message::ModelReply,
    route::AgentModels,
    skill::{Effect, PromptContext, SkillFormat},
    turn::{AgentView, refused_by},
    workflow::WorkflowStart,
};
use serde_json::{Value, json};

use crate::{
    effects::{HookDone, HookRequest, answer_of},
    wiring::{Backend, Wiring},
};

/// The maximum length of the text about a failed hook, in characters: it is stored in the log.
const FAILURE_CHARS_MAX: usize = 500;

/// A verdict, and the name of what it is about.
pub(crate) enum Verdict {
    /// The verdict of a hook.
    Hook { decided: Decided, what: String },
    /// What a guard found in the message.
    Found(Finding),
    /// The call waits for a person, because its agent has read untrusted text of this origin.
    Untrusted { origin: String, what: String },
}

/// The calls of a reply, and the verdicts about them.
pub(crate) struct Resolved {
    pub calls: Vec<ResolvedCall>,
    pub verdicts: Vec<Verdict>,
}

/// An answer to a message without a turn.
pub(crate) struct AnswerWithoutTurn {
    pub text: String,
    /// Whether what the message asks for was done, or was begun.
    pub is_done: bool,
}

/// The verdicts about a turn that is to begin.
#[derive(Default)]
pub(crate) struct JudgedTurn {
    pub verdicts: Vec<Verdict>,
    /// The text for the user if the turn does not begin.
    pub refused: Option<String>,
    /// The prompt skill that the message calls by `/name`.
    pub called: Option<PlannedSkill>,
    /// Whether a guard found that the message is untrusted.
    pub is_flagged: bool,
    /// The answer if this skill was started as a task of its own, or the kernel itself answers. Then no turn begins.
    pub answered: Option<AnswerWithoutTurn>,
    /// Why the workflow that the message calls cannot be started. Then no turn begins.
    pub not_started: Option<String>,
    /// The workflow that the turn carries out.
    pub workflow: Option<Box<WorkflowStart>>,
}

/// The calls of a reply, each with what becomes of it.
pub(crate) fn resolve(wiring: &Wiring, view: AgentView<'_>, reply: &ModelReply) -> Resolved {
    let advisors = advisors(wiring);
    let models = AgentModels::new(&wiring.routing.facts, &wiring.limits.agent_model).with_advisors(&advisors);
    let mut calls = view.resolve_with(reply, &wiring.catalog.skills(), models);
    let mut verdicts = Vec::new();
    if wiring.hooks.is_empty() {
        return Resolved { calls, verdicts };
    }
    let mut before: Vec<(String, Value)> = Vec::new();
    let channels = view.channels();
    for call in &mut calls {
        let Action::Skill(planned) = &call.action else { continue };
        let earlier =
            before.iter().filter(|(skill, args)| *skill == planned.skill && *args == planned.arguments).count();
        before.push((planned.skill.clone(), planned.arguments.clone()));
        if view.is_answered_without_run(planned, earlier) {
            // The answer of the call says what happened.
            continue;
        }
        if let Some(origin) = untrusted_origin(wiring, view, planned) {
            verdicts.push(Verdict::Untrusted { origin: origin.to_owned(), what: planned.skill.clone() });
        }
        let at = skill_context(view, &channels, planned);
        let Some(decided) = wiring.hooks.judge(&at) else { continue };
        let what = planned.skill.clone();
        if let HookVerdict::Refuse { text } = &decided.verdict {
            let text = refused_by(&decided.hook, &what, text);
            call.action = Action::Answer { text, is_error: true, is_unknown: false, is_malformed: false };
        }
        verdicts.push(Verdict::Hook { decided, what });
    }
    Resolved { calls, verdicts }
}

/// The backends whose model can advise an agent. A program would take the question for its task.
fn advisors(wiring: &Wiring) -> Vec<String> {
    let able = |backend: &&Backend| !backend.facts.acts && backend.model.summarises();
    let backends = wiring.routing.facts.iter().filter_map(|facts| wiring.backends.get(&facts.name));
    backends.filter(able).map(|backend| backend.name.clone()).collect()
}

/// The context of a call of this agent.
pub(super) fn skill_context<'a>(
    view: AgentView<'a>,
    channels: &'a [String],
    planned: &'a PlannedSkill,
) -> HookContext<'a> {
    HookContext {
        user: view.user(),
        channels,
        conversation: view.conversation(),
        task: view.task(),
        agent: view.agent(),
        point: HookPoint::BeforeSkill,
        subject: HookSubject::Skill(planned),
    }
}

/// Whether a call of this agent waits for a person: by the rules, and because the agent has read untrusted text.
pub(super) fn approval_mode(wiring: &Wiring, view: AgentView<'_>, at: &HookContext<'_>) -> ApprovalMode {
    let policy = wiring.hooks.approval();
    let HookSubject::Skill(planned) = at.subject else { return policy.mode(at) };
    let after_untrusted =
        untrusted_origin(wiring, view, planned).map_or(ApprovalMode::Off, |_| policy.untrusted.mode_of(planned));
    policy.mode(at).max(after_untrusted)
}

/// The untrusted text that the agent has read before it requests this call, by its origin, if the call waits for that.
fn untrusted_origin<'a>(wiring: &Wiring, view: AgentView<'a>, planned: &PlannedSkill) -> Option<&'a str> {
    let policy = &wiring.hooks.approval().untrusted;
    if policy.mode_of(planned) == ApprovalMode::Off {
        return None;
    }
    policy.origin(planned, view.origins(), &wiring.catalog.skills())
}

/// Whether the texts of these calls, if all succeed, are the answer. A text that an outside party may have written is not shown in
/// Annie's own words, so the agent must have read no untrusted text, and the skills' results must be trusted.
pub(super) fn are_answer(wiring: &Wiring, view: AgentView<'_>, calls: &[ResolvedCall], judged: &JudgedCalls) -> bool {
    let (policy, skills) = (&wiring.hooks.approval().untrusted, wiring.catalog.skills());
    let is_trusted = || {
        let called = calls.iter().map(|call| match &call.action {
            Action::Skill(planned) => planned.skill.as_str(),
            _ => call.name.as_str(),
        });
        let mut read = view.origins().iter().map(String::as_str).chain(called);
        !read.any(|origin| policy.is_untrusted(origin, &skills))
    };
    view.are_answer(calls, judged, &skills) && is_trusted()
}

/// The hooks outside the kernel that must decide before these calls are made. They are asked once the reply is stored.
pub(super) fn asked_hooks(
    wiring: &Wiring,
    view: AgentView<'_>,
    calls: &[ResolvedCall],
    judged: &JudgedCalls,
) -> Vec<AskedHooks> {
    if wiring.hooks.is_empty() {
        return Vec::new();
    }
    let channels = view.channels();
    let asked = |call: &ResolvedCall| {
        let Action::Skill(planned) = &call.action else { return None };
        if matches!(judged.of(&call.id), Some(CallVerdict::Refuse { .. })) {
            return None;
        }
        let at = skill_context(view, &channels, planned);
        let mut hooks: Vec<String> = wiring.hooks.outside(&at).map(|hook| hook.name.clone()).collect();
        // A person sees the arguments as the other hooks leave them.
        let asks_person = approval_mode(wiring, view, &at) != ApprovalMode::Off;
        hooks.extend(asks_person.then(|| APPROVAL.to_owned()));
        (!hooks.is_empty()).then(|| AskedHooks { call_id: call.id.clone(), hooks })
    };
    calls.iter().filter_map(asked).collect()
}

/// The event of the verdict of a hook outside the kernel about a call of this agent. `elsewhere` is the result of a call that is
/// not made because of the calls of other agents.
pub(crate) fn hook_decided(
    wiring: &Wiring,
    view: AgentView<'_>,
    done: HookDone,
    elsewhere: impl Fn(&PlannedSkill) -> Option<String>,
) -> EventBody {
    let HookDone { request: HookRequest { hook, skill: planned, .. }, result, .. } = done;
    let (answer, failure) = match result.and_then(|answer| checked(wiring, &planned, answer)) {
        Ok(answer) => (answer, String::new()),
        Err(why) => {
            let on_failure = wiring.hooks.outside_named(&hook).map_or(OnFailure::Refuse, |hook| hook.on_failure);
            (on_failure.answer(), clipped(&why, FAILURE_CHARS_MAX))
        }
    };
    let (skill, intent) = (planned.skill.clone(), planned.intent);
    let (label, verb, mut reason, verdict) = match answer {
        HookAnswer::Refuse { text } => {
            let text = clipped(&text, RefuseRule::TEXT_CHARS_MAX);
            let verdict = HookAnswer::Refuse { text: refused_by(&hook, &skill, &text) };
            ("refuse", "refuse", text, verdict)
        }
        HookAnswer::Replace { arguments } if arguments != planned.arguments => {
            let replaced = PlannedSkill { arguments, ..planned };
            match view.refusal_of_replaced(&replaced).or_else(|| elsewhere(&replaced)) {
                // The kernel does not repeat an effect, whatever a hook answers.
                Some(text) => ("refuse", "refuse", format!("its new arguments: {text}"), HookAnswer::Refuse { text }),
                None => {
                    let verdict = HookAnswer::Replace { arguments: replaced.arguments };
                    ("replace", "replace the arguments of", String::new(), verdict)
                }
            }
        }
        HookAnswer::Continue | HookAnswer::Replace { .. } => {
            ("continue", "continue with", String::new(), HookAnswer::Continue)
        }
    };
    if !failure.is_empty() {
        reason = format!("it failed: {failure}");
    }
    note(&hook, HookPoint::BeforeSkill, label, &skill, &failure);
    EventBody::Decided {
        component: format!("hook {hook}"),
        decision: format!("{verb} {skill}"),
        reasoning: reason,
        alternatives: Vec::new(),
        hook: Some(HookDecision { hook, intent, verdict }),
    }
}

/// The answer, unless it replaces the arguments by such that the skill does not accept.
fn checked(wiring: &Wiring, planned: &PlannedSkill, answer: HookAnswer) -> Result<HookAnswer, String> {
    if let HookAnswer::Replace { arguments } = &answer {
        let skills = wiring.catalog.skills();
        let skill =
            skills.get(&planned.skill).ok_or_else(|| "its arguments are for a skill that is gone".to_owned())?;
        let fits = skill.check_replacement(&planned.arguments, arguments);
        fits.map_err(|what| format!("its arguments do not fit: {what}"))?;
    }
    Ok(answer)
}

fn clipped(text: &str, chars_max: usize) -> String {
    text.trim().chars().take(chars_max).collect()
}

/// Judges a turn, and the prompt skill that its message calls by `/name`. Nothing of the turn is stored before, so after a crash
/// the hooks are asked again.
pub(crate) async fn judge_turn(
    wiring: &Wiring,
    (user, conversation, task): (&UserId, ConversationId, TaskId),
    inbound: &Inbound,
) -> JudgedTurn {
    let called = called_by_name(wiring, task, inbound);
    let (mut verdicts, mut refused, is_flagged) = examine(wiring, inbound);
    if wiring.hooks.is_empty() || refused.is_some() {
        return JudgedTurn { verdicts, refused, called, is_flagged, ..JudgedTurn::default() };
    }
    let (agent, channels) = (AgentId::orchestrator(), [inbound.channel().to_owned()]);
    let turn = (HookPoint::BeforeTurn, HookSubject::Turn(inbound), "the turn");
    let skill = called.as_ref();
    let skill = skill.map(|planned| (HookPoint::BeforeSkill, HookSubject::Skill(planned), planned.skill.as_str()));
    // The result of an operation would be lost, and so would its retry.
    let turn = Some(turn).filter(|_| inbound.outside_text().is_none());
    for (point, subject, what) in turn.into_iter().chain(skill) {
        if refused.is_some() {
            break;
        }
        let at = HookContext { user, channels: &channels, conversation, task, agent: &agent, point, subject };
        let mut outside = wiring.hooks.outside(&at);
        let mut next = wiring.hooks.judge(&at);
        while refused.is_none() {
            let decided = match next.take() {
                Some(decided) => decided,
                None => match outside.next() {
                    Some(hook) => decided_outside(wiring, hook, &at).await,
                    None => break,
                },
            };
            if let HookVerdict::Refuse { text } = &decided.verdict {
                refused = Some(text.clone());
            }
            verdicts.push(Verdict::Hook { decided, what: what.to_owned() });
        }
    }
    JudgedTurn { verdicts, refused, called, is_flagged, ..JudgedTurn::default() }
}

/// What the guards find in a message: the verdicts, the answer if it is refused, and whether it is untrusted. The result of an
/// operation is not refused, because it would be lost.
fn examine(wiring: &Wiring, inbound: &Inbound) -> (Vec<Verdict>, Option<String>, bool) {
    let guards = &wiring.limits.guards;
    if guards.is_empty() {
        return (Vec::new(), None, false);
    }
    let outside = inbound.outside_text();
    let text = outside.map_or_else(|| inbound.unanswered_text(), |(_, text)| text.into());
    let mut found = guards.examine_message(&text);
    if outside.is_some() {
        found.iter_mut().for_each(|finding| finding.refusal = None);
    }
    let refused = found.iter().find_map(|finding| finding.refusal.clone());
    let is_untrusted = found.iter().any(|finding| finding.is_untrusted);
    (found.into_iter().map(Verdict::Found).collect(), refused, is_untrusted)
}

/// The event of what a guard found, which is also counted.
pub(super) fn found(guard: &str, verb: &'static str, what: &str, reason: String) -> EventBody {
    tracing::info!(guard, verb, what, "a guard found something");
    metrics::counter!("annie_guard_findings_total", "guard" => guard.to_owned(), "action" => verb).increment(1);
    EventBody::Decided {
        component: component(guard),
        decision: format!("{verb} {what}"),
        reasoning: reason,
        alternatives: Vec::new(),
        hook: None,
    }
}

/// The decision of a hook outside the kernel about a turn, or about a skill that is called by name. Neither has arguments of a
/// model, which a hook could replace.
async fn decided_outside(wiring: &Wiring, hook: &OutsideHook, at: &HookContext<'_>) -> Decided {
    let answer = match answer_of(wiring, hook, &HookQuestion::of(&hook.name, at)).await {
        Ok(HookAnswer::Replace { .. }) => Err("there are no arguments to replace".to_owned()),
        answer => answer,
    };
    let (answer, failure) = match answer {
        Ok(answer) => (answer, String::new()),
        Err(why) => (hook.on_failure.answer(), clipped(&why, FAILURE_CHARS_MAX)),
    };
    let verdict = match answer {
        HookAnswer::Refuse { text } => HookVerdict::Refuse { text: clipped(&text, RefuseRule::TEXT_CHARS_MAX) },
        HookAnswer::Continue | HookAnswer::Replace { .. } => HookVerdict::Continue,
    };
    Decided { hook: hook.name.clone(), point: at.point, verdict, failure }
}

/// The prompt skill that a message calls by `/name` [S1 Triggering]. A caller's thread without skills calls none.
fn called_by_name(wiring: &Wiring, task: TaskId, inbound: &Inbound) -> Option<PlannedSkill> {
    if inbound.thread().is_some_and(|thread| !thread.with_skills) {
        return None;
    }
    let call = inbound.text.strip_prefix('/')?;
    let (name, arguments) = call.split_once(char::is_whitespace).unwrap_or((call, ""));
    let skills = wiring.catalog.skills();
    // A model may call skills that users may not, and the task of such a skill begins here too.
    let may_call = |format: &SkillFormat| match format {
        SkillFormat::Command => false,
        SkillFormat::Prompt { user_invocable, context, .. } => {
            let is_retry = inbound.retry.is_some() && *context == PromptContext::Fork;
            *user_invocable || inbound.is_forked() || is_retry
        }
    };
    let skill = skills.get(name).filter(|skill| may_call(&skill.format))?;
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
    let (Decided { hook, point, verdict, failure }, what) = match verdict {
        Verdict::Hook { decided, what } => (decided, what),
        Verdict::Found(Finding { guard, reason, refusal, .. }) => {
            let verb = if refusal.is_some() { "refuse" } else { "flag" };
            return found(&guard, verb, "the message", reason);
        }
        Verdict::Untrusted { origin, what } => return untrusted(&origin, &what),
    };
    let (label, verb, text) = match verdict {
        HookVerdict::Continue => ("continue", "continue with", String::new()),
        HookVerdict::Refuse { text } => ("refuse", "refuse", text),
    };
    note(&hook, point, label, &what, &failure);
    EventBody::Decided {
        component: format!("hook {hook}"),
        decision: format!("{verb} {what}"),
        reasoning: if failure.is_empty() { text } else { format!("it failed: {failure}") },
        alternatives: Vec::new(),
        hook: None,
    }
}

/// The event of a call that waits for a person because of what its agent has read.
fn untrusted(origin: &str, what: &str) -> EventBody {
    tracing::info!(origin, what, "a call after untrusted text waits for a person");
    metrics::counter!("annie_untrusted_calls_total").increment(1);
    EventBody::Decided {
        component: "trust".to_owned(),
        decision: format!("ask a person before {what}"),
        reasoning: format!(
            "The agent has read text of {origin}, which the user did not write, and {what} changes something outside."
        ),
        alternatives: Vec::new(),
        hook: None,
    }
}

/// Logs and counts a verdict.
pub(crate) fn note(hook: &str, point: HookPoint, label: &str, what: &str, failure: &str) {
    if failure.is_empty() {
        tracing::info!(hook, point = point.as_str(), what, verdict = label, "hook decided");
    } else {
        tracing::warn!(hook, point = point.as_str(), what, verdict = label, failure, "hook failed");
        metrics::counter!("annie_hook_failures_total", "hook" => hook.to_owned()).increment(1);
    }
    let labels = [("hook", hook.to_owned()), ("point", point.as_str().to_owned()), ("verdict", label.to_owned())];
    metrics::counter!("annie_hook_verdicts_total", &labels).increment(1);
}
