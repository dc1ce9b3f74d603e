//! The kernel's own policies, which decide at fixed points of an agent's loop: one file each. The lists below name the policies
//! of each point in their order. The fold of the loop runs the list of a point and applies the verdicts; it has no rules of its
//! own.
//!
//! Hooks (`crate::hooks`) are the policies of operators and extensions. Those in this process decide before these policies, when
//! a reply is resolved. Those outside the kernel are asked about the calls that nothing else prevents.

mod advice;
mod allowed_tools;
mod arguments;
mod call_limit;
mod confidence;
mod done_already;
mod format;
mod in_doubt;
mod injection;
mod no_progress;
mod retry;
mod same_result;

use serde_json::Value;

use super::{
    calls::{IN_DOUBT, REPEATED, done_already, guarded},
    conversation::Turn,
    run::{AgentRun, OpenCall},
};
use crate::{
    dead_letter::Strategy,
    error_route::Routed,
    event::{Action, CallVerdict, JudgedCall, JudgedCalls, LoopFound, PlannedSkill, Refusal, ResolvedCall},
    loop_guard::{INVALID_CALL, LoopGuard, LoopLevel, Seen},
    message::ModelError,
    outcome::Outcome,
    skill::{CallStyle, Effect},
};

/// Before a call of a reply is made. The first refusal holds, so a call whose effect has a receipt does not count against the
/// limit, and the loop guard observes only calls that nothing else prevents.
pub(super) const BEFORE_SKILL: [&dyn CallPolicy; 5] = [
    &done_already::DoneAlready,
    &call_limit::CallLimit,
    &in_doubt::InDoubt,
    &no_progress::NoProgress,
    &allowed_tools::AllowedTools,
];
/// Before a call that a workflow makes. Its author wrote the calls, and its loops have bounds.
pub(super) const BEFORE_STEP: [&dyn CallPolicy; 4] =
    [&done_already::DoneAlready, &call_limit::CallLimit, &in_doubt::InDoubt, &allowed_tools::AllowedTools];
/// After a skill failed, before its model reads the error.
const ON_SKILL_ERROR: [&dyn ResultPolicy; 2] = [&arguments::Arguments, &advice::Advice];
/// After every skill run, before its model reads the result.
const AFTER_SKILL: [&dyn ResultPolicy; 3] =
    [&confidence::Confidence, &injection::InjectedInstructions, &same_result::SameResult];
/// After the model of a main agent failed.
const ON_MODEL_ERROR: [&dyn ModelErrorPolicy; 1] = [&retry::RetryStrategy];
/// Before the final text of a main agent becomes the answer.
const BEFORE_ANSWER: [&dyn AnswerPolicy; 1] = [&format::RequestedFormat];

/// After the warning at the threshold, one in this many warnings about a pattern is an event.
const WARNINGS_PER_EVENT: usize = 10;

/// A policy about calls.
pub(super) trait CallPolicy {
    /// The objection to a call, if there is one.
    fn judge(&self, at: &Candidate<'_>) -> Option<CallVerdict>;
}

/// A policy about results of skills.
pub(super) trait ResultPolicy {
    /// What changes in the result that the model reads.
    fn judge(&self, at: &SkillResult<'_>) -> Option<ResultVerdict>;
}

/// A policy about failures of the model.
pub(super) trait ModelErrorPolicy {
    /// The strategy for another attempt, if there is to be one.
    fn judge(&self, turn: &Turn, error: &ModelError) -> Option<Strategy>;
}

/// A policy about final texts.
pub(super) trait AnswerPolicy {
    /// What becomes of the text; `None` if it is fine.
    fn judge(&self, turn: &Turn, text: &str) -> Option<AnswerVerdict>;
}

/// A call that may be made.
pub(super) struct Candidate<'a> {
    /// The agent's run before the reply.
    pub run: &'a AgentRun,
    /// The counters after the calls of the same reply that stand before this one.
    pub so_far: &'a Counters,
    pub budget: CallBudget<'a>,
    pub call: &'a ResolvedCall,
}

impl Candidate<'_> {
    /// The planned run if the call is one that has an effect.
    fn effect(&self) -> Option<&PlannedSkill> {
        match &self.call.action {
            Action::Skill(planned) => Some(planned).filter(|planned| planned.effect != Effect::Read),
            Action::Answer { .. }
            | Action::Dispatch(_)
            | Action::Collect { .. }
            | Action::ControlAgent { .. }
            | Action::Alternatives(_)
            | Action::Caller => None,
        }
    }
}

/// How many calls a run may make.
#[derive(Clone, Copy)]
pub(super) struct CallBudget<'a> {
    pub calls_max: u32,
    /// The message once all calls are used.
    pub note: &'a str,
}

impl<'a> CallBudget<'a> {
    /// The budget of a run as it is.
    pub fn of(run: &'a AgentRun) -> Self {
        Self { calls_max: run.calls_max, note: &run.calls_note }
    }
}

/// What each call of a reply changes for the policies that judge the next one.
pub(super) struct Counters {
    pub guard: LoopGuard,
    pub calls_used: u32,
    /// The calls that results of an attempt before answer, as (skill, arguments).
    done_before: Vec<(String, Value)>,
}

impl Counters {
    /// The counters before the first call of a reply.
    pub const fn new(guard: LoopGuard, calls_used: u32) -> Self {
        Self { guard, calls_used, done_before: Vec::new() }
    }

    /// Counts a call that was judged.
    pub fn count(&mut self, is_limited: bool, call: &ResolvedCall, verdict: Option<&CallVerdict>) {
        let (name, arguments) = guarded(call);
        match verdict {
            Some(CallVerdict::Refuse { why: Refusal::NoProgress, .. }) => self.guard.veto(&name, &arguments),
            Some(CallVerdict::Refuse { why: Refusal::DoneAlready, .. }) => self.done_before.push((name, arguments)),
            Some(CallVerdict::Refuse { .. }) => {}
            Some(CallVerdict::Warn { .. }) | None => {
                self.calls_used += u32::from(is_limited);
                if let Action::Answer { text, is_unknown, is_error, .. } = &call.action {
                    let error = is_error.then_some(INVALID_CALL);
                    let seen = Seen { text, error, has_changed: false, is_unknown: *is_unknown };
                    self.guard.record_result(&name, &arguments, &seen);
                }
            }
        }
    }
}

/// Whether a call is not judged: it repeats an earlier call of its reply, or the program that sent the request runs it and
/// detects loops itself.
pub(super) fn is_exempt(call: &ResolvedCall) -> bool {
    matches!(&call.action, Action::Answer { text, .. } if text == REPEATED) || call.action == Action::Caller
}

/// Whether the commands after this one in the same reply must not run, because this one is invalid, in doubt, or refused by the
/// loop guard. The limit on calls also holds for the later calls that count.
pub(super) fn breaks_sequence(call: &ResolvedCall, verdict: Option<&CallVerdict>) -> bool {
    match verdict {
        Some(CallVerdict::Refuse { why, .. }) => {
            matches!(why, Refusal::InDoubt | Refusal::NoProgress | Refusal::NotAllowed)
        }
        Some(CallVerdict::Warn { .. }) | None => matches!(call.action, Action::Answer { is_error: true, .. }),
    }
}

/// The verdicts of these policies about the calls of a reply of this run.
pub(super) fn judge_calls(
    policies: &[&dyn CallPolicy],
    run: &AgentRun,
    budget: CallBudget<'_>,
    calls: &[ResolvedCall],
) -> JudgedCalls {
    let vetoes = run.guard.vetoes();
    let mut so_far = Counters::new(run.guard.clone(), run.calls_used);
    so_far.guard.begin_reply();
    let mut judged = JudgedCalls::default();
    for call in calls.iter().filter(|call| !is_exempt(call)) {
        let verdict = judge_call(policies, &Candidate { run, so_far: &so_far, budget, call });
        judged.loops.extend(verdict.as_ref().and_then(|verdict| loop_found(&so_far.guard, call, verdict)));
        so_far.count(run.counts(&call.action), call, verdict.as_ref());
        let is_last = run.is_cmd() && breaks_sequence(call, verdict.as_ref());
        judged.verdicts.extend(verdict.map(|verdict| JudgedCall { call_id: call.id.clone(), verdict }));
        if is_last {
            break;
        }
    }
    so_far.guard.count_once(vetoes);
    judged.ends_run = so_far.guard.is_spent();
    judged
}

/// What the loop guard found in a call with this verdict, if it is to be an event: every refusal, and of the warnings about one
/// pattern the first one and then one in ten.
fn loop_found(guard: &LoopGuard, call: &ResolvedCall, verdict: &CallVerdict) -> Option<LoopFound> {
    let text = match verdict {
        CallVerdict::Refuse { why: Refusal::NoProgress, text } | CallVerdict::Warn { text } => text.clone(),
        CallVerdict::Refuse { .. } => return None,
    };
    let (skill, arguments) = guarded(call);
    let is_unknown = matches!(call.action, Action::Answer { is_unknown: true, .. });
    let found = guard.verdict(&skill, &arguments, is_unknown);
    let detector = found.detector?;
    let is_first = || guard.warns_from(detector).is_none_or(|from| found.count <= from);
    let is_new = found.level == LoopLevel::Critical || is_first() || found.count.is_multiple_of(WARNINGS_PER_EVENT);
    is_new.then(|| LoopFound {
        call_id: call.id.clone(),
        skill,
        detector,
        level: found.level,
        count: u32::try_from(found.count).unwrap_or(u32::MAX),
        text,
    })
}

/// The first refusal; if there is none, the first warning.
fn judge_call(policies: &[&dyn CallPolicy], at: &Candidate<'_>) -> Option<CallVerdict> {
    let mut warning = None;
    for policy in policies {
        match policy.judge(at) {
            Some(refusal @ CallVerdict::Refuse { .. }) => return Some(refusal),
            other => warning = warning.or(other),
        }
    }
    warning
}

/// The result of a call that the policies refuse because its effect has a receipt or may have happened, whatever other calls
/// there are.
pub(super) fn repeated_effect(run: &AgentRun, planned: &PlannedSkill) -> Option<String> {
    if planned.effect == Effect::Read {
        return None;
    }
    let receipt = done_already::receipt_of(run, planned);
    let is_in_doubt = in_doubt::may_have_happened(run, &planned.skill, &planned.arguments);
    receipt.map(done_already).or_else(|| is_in_doubt.then(|| IN_DOUBT.to_owned()))
}

/// A result of a skill.
pub(super) struct SkillResult<'a> {
    /// The agent's run, in which the call has no result yet.
    pub run: &'a AgentRun,
    pub open: &'a OpenCall,
    pub outcome: &'a Outcome,
    /// What follows its failure; `None` if the run did not fail.
    pub routed: Option<&'a Routed>,
    /// How the agent writes its calls.
    pub style: CallStyle,
    /// The text of the result for the model, before it is clipped.
    pub text: &'a str,
}

/// What changes in a result.
pub(super) enum ResultVerdict {
    /// The model reads this text.
    Replace(String),
    /// This line stands below the text.
    Note(String),
}

/// A result as the model reads it.
pub(super) struct ShownResult {
    /// The text, before it is clipped.
    pub text: String,
    /// The advice after an error. Empty if there is none.
    pub advice: String,
    /// Further lines. Empty if there are none.
    pub notes: String,
}

/// The result of an open call as its model reads it.
pub(super) fn judge_result(run: &AgentRun, open: &OpenCall, of: (&Outcome, Option<&Routed>)) -> ShownResult {
    let mut shown = ShownResult { text: of.0.to_llm_string(), advice: String::new(), notes: String::new() };
    if of.0.error_type.is_some() {
        run_list(&ON_SKILL_ERROR, (run, open, of), &mut shown.text, &mut shown.advice);
    }
    run_list(&AFTER_SKILL, (run, open, of), &mut shown.text, &mut shown.notes);
    shown
}

fn run_list(
    policies: &[&dyn ResultPolicy],
    (run, open, (outcome, routed)): (&AgentRun, &OpenCall, (&Outcome, Option<&Routed>)),
    text: &mut String,
    notes: &mut String,
) {
    for policy in policies {
        let verdict =
            policy.judge(&SkillResult { run, open, outcome, routed, style: run.style(), text: text.as_str() });
        match verdict {
            Some(ResultVerdict::Replace(other)) => *text = other,
            Some(ResultVerdict::Note(line)) => notes.push_str(&line),
            None => {}
        }
    }
}

/// The strategy for another attempt after the model failed, if there is to be one.
pub(super) fn judge_model_error(turn: &Turn, error: &ModelError) -> Option<Strategy> {
    ON_MODEL_ERROR.iter().find_map(|policy| policy.judge(turn, error))
}

/// What becomes of a final text.
pub(super) enum AnswerVerdict {
    /// This text is the answer.
    Replace(String),
    /// The model is asked once more, with this note.
    Correct(String),
    /// The turn has no answer, for this reason.
    Refuse(String),
}

/// What becomes of the final text of a main agent; `None` if it is fine.
pub(super) fn judge_answer(turn: &Turn, text: &str) -> Option<AnswerVerdict> {
    BEFORE_ANSWER.iter().find_map(|policy| policy.judge(turn, text))
}
