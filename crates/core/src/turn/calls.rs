//! The calls of one reply: their admission and their results. The rules are policies (`turn/policy/`).

use std::borrow::Cow;

use serde_json::Value;

use super::{
    policy::{self, CallBudget, Counters, ShownResult},
    ready::ReadyText,
    run::{AgentRun, LastRead, OpenCall, Phase, RunKind},
};
use crate::{
    approval::APPROVAL,
    context::clip,
    error_route::{ErrorRules, Routed},
    event::{Action, CallVerdict, JudgedCalls, Mode, PlannedSkill, Refusal, ResolvedCall},
    ids::IntentId,
    loop_guard::Seen,
    outcome::{Outcome, Status},
    people::stopped,
    plan::first_line,
    receipt::{self, Extent, Receipt},
    skill::{Effect, SkillChange},
    time::Micros,
};

/// The result of a call that repeats an earlier call of the same reply. Only the earlier one is run.
pub(super) const REPEATED: &str = "[same call] It stands in this reply already and is run once: see its result.";
/// The beginning of the result of a call whose effect has a receipt.
pub(super) const DONE_ALREADY: &str = "[done already]";
/// The note to the model about such a call, unless its effect is an operation that is still open.
pub(super) const NOT_RUN_AGAIN: &str = "This was not run again.";
/// The result of a command after an invalid or failed command of the same reply.
const NOT_RUN: &str = "[not run] A command before it failed.";
/// The result of a call that is not run, because its effect may have happened already.
pub(super) const IN_DOUBT: &str =
    "[blocked] This may have happened already: its last outcome is unknown. Do not repeat it; report it.";
/// The beginning of the result of a call that a hook refused.
pub(super) const REFUSED: &str = "[refused]";
/// What separates the reason for reports from the text for the model, in that result.
const REFUSED_HERE: &str = " here:";
/// Why a call that the loop guard blocked was not run, for reports.
pub(super) const WITHOUT_PROGRESS: &str = "blocked: it went on without progress";
/// Why a call that the active skill does not allow was not run, for reports.
const NOT_ALLOWED: &str = "the active skill does not allow it";
/// The end of a result that the model has just read and requested again.
pub(super) const SAME_RESULT: &str =
    "\nThis is the same result as before. Answer the user from it now, in words and without a call.";
/// The result of a call that had not begun when its run was ended.
const NOT_BEGUN: &str = "[not run] The time was up before it began.";
/// The result of a call that had no result when its run was ended, and that had no effect: its skill only reads, or it
/// had certainly not begun.
const CUT_SHORT: &str = "[not run] The time was up before its result came.";
/// The result of a call that had no result when its run was ended, and whose effect may have happened.
const CUT_IN_DOUBT: &str =
    "[unknown] The time was up while it was under way: it may have happened. Do not repeat it; report it.";

impl OpenCall {
    fn new(call: &ResolvedCall) -> Self {
        Self {
            call: call.clone(),
            result: None,
            started: false,
            refused: false,
            warning: None,
            hooks: Vec::new(),
            ready: ReadyText::Unwanted,
            untrusted: String::new(),
        }
    }

    /// The planned skill run, if the call is one.
    #[must_use]
    pub const fn planned(&self) -> Option<&PlannedSkill> {
        match &self.call.action {
            Action::Skill(planned) => Some(planned),
            Action::Answer { .. }
            | Action::Dispatch(_)
            | Action::Collect { .. }
            | Action::ControlAgent { .. }
            | Action::Alternatives(_)
            | Action::Caller => None,
        }
    }

    /// Takes the outcome of its skill, and the text that the model sees of it.
    fn end(&mut self, shown: String, outcome: &Outcome) {
        self.result = Some(with_warning(shown, self.warning.as_deref()));
        self.untrusted.clone_from(&outcome.untrusted);
        let ready = std::mem::take(&mut self.ready);
        self.ready = ready.with(self.planned().map_or("", |planned| planned.skill.as_str()), outcome);
    }

    /// One line for a report.
    pub(super) fn brief(&self, why: &str) -> String {
        match self.planned() {
            Some(planned) => format!("{} ({why})", planned.skill),
            None => format!("{} ({why})", first_line(&self.call.name)),
        }
    }

    fn has_effect(&self) -> bool {
        self.planned().is_some_and(|p| p.effect != Effect::Read)
    }

    /// Whether the call has an effect and no result yet.
    pub(super) fn has_open_effect(&self) -> bool {
        self.result.is_none() && self.has_effect()
    }
}

impl AgentRun {
    /// Applies the recorded verdicts about the calls of a reply. In a sequence of commands, the commands after an invalid one do
    /// not run. Replies of older versions have no recorded verdicts, and are judged here.
    /// All vetoes of the loop guard in one reply count as one: a model that guesses many names at once must see the
    /// errors before its run is ended.
    pub(super) fn admit(&mut self, calls: &[ResolvedCall], recorded: Option<&JudgedCalls>) {
        let judged = match recorded {
            Some(judged) => Cow::Borrowed(judged),
            None => Cow::Owned(policy::judge_calls(&policy::BEFORE_SKILL, self, CallBudget::of(self), calls)),
        };
        let vetoes = self.guard.vetoes();
        let mut counters = Counters::new(std::mem::take(&mut self.guard), self.calls_used);
        counters.guard.begin_reply();
        let mut open = Vec::with_capacity(calls.len());
        let (mut is_broken, mut repeats) = (false, false);
        for call in calls {
            let mut next = OpenCall::new(call);
            let verdict = judged.of(&call.id);
            if is_broken && self.is_cmd() {
                next.result = Some(NOT_RUN.to_owned());
            } else {
                is_broken = policy::breaks_sequence(call, verdict);
                let is_done = matches!(verdict, Some(CallVerdict::Refuse { why: Refusal::DoneAlready, .. }));
                if let Some(planned) = next.planned().filter(|_| is_done) {
                    self.step_done_before(&call.id, planned);
                }
                repeats |= is_done;
                if !policy::is_exempt(call) {
                    counters.count(self.counts(&call.action), call, verdict);
                }
                self.apply(&mut next, verdict);
                next.hooks = judged.hooks_of(&call.id).to_vec();
                next.ready = if judged.are_answer { ReadyText::Awaited } else { ReadyText::Unwanted };
            }
            let starts_with = |text: &str| next.result.as_ref().is_some_and(|result| result.starts_with(text));
            self.found_done |= starts_with(DONE_ALREADY);
            // The agent is not reminded to act if the kernel blocked its action.
            self.reminded_to_act |= starts_with(IN_DOUBT) || starts_with(REFUSED);
            open.push(next);
        }
        (self.guard, self.calls_used) = (counters.guard, counters.calls_used);
        self.guard.count_once(vetoes);
        self.guard.agree_on_end(judged.ends_run);
        self.repeats += u32::from(repeats);
        self.phase = Phase::Acting(open);
    }

    /// Applies the verdict about a call: gives it the result with which it is not made, or the warning for its result. A call
    /// that the kernel answers gets its answer.
    fn apply(&mut self, open: &mut OpenCall, verdict: Option<&CallVerdict>) {
        match verdict {
            Some(CallVerdict::Refuse { why, text }) => {
                open.result = Some(text.clone());
                match why {
                    Refusal::CallLimit => open.refused = true,
                    Refusal::NoProgress => self.undone.push(open.brief(WITHOUT_PROGRESS)),
                    Refusal::NotAllowed => self.undone.push(open.brief(NOT_ALLOWED)),
                    Refusal::DoneAlready | Refusal::InDoubt => {}
                }
                return;
            }
            Some(CallVerdict::Warn { text }) => open.warning = Some(text.clone()),
            None => {}
        }
        let Action::Answer { text, .. } = &open.call.action else { return };
        self.undone.extend(refused_by_hook(text));
        let shown =
            if policy::is_exempt(&open.call) { text.clone() } else { clip(text, self.result_bytes_max).into_owned() };
        open.result = Some(with_warning(shown, open.warning.as_deref()));
    }

    /// Skill runs without a result that may be running now, or that wait for a hook. Of commands that is only the first.
    pub(super) fn awaited_skills(&self) -> impl Iterator<Item = (&OpenCall, &PlannedSkill)> {
        let at_once = if self.is_cmd() { 1 } else { usize::MAX };
        self.open_calls()
            .iter()
            .filter(|o| o.result.is_none())
            .filter_map(|o| o.planned().map(|planned| (o, planned)))
            .take(at_once)
    }

    /// Skill runs without a result that may be running now.
    pub fn wanted_skills(&self) -> impl Iterator<Item = (&OpenCall, &PlannedSkill)> {
        self.awaited_skills().filter(|(open, _)| open.hooks.is_empty())
    }

    /// Whether a call would be answered without a run, because its effect has a receipt or may have happened. `earlier` is the number
    /// of equal calls before it in the same reply.
    pub(super) fn is_answered_without_run(&self, planned: &PlannedSkill, earlier: usize) -> bool {
        let done = self.workflow.as_ref().and_then(|run| run.done_before(&planned.skill, &planned.arguments, earlier));
        done.is_some() || policy::repeated_effect(self, planned).is_some()
    }

    /// Effects that may have happened, including those of calls without a result.
    pub(super) fn doubts(&self) -> Vec<(String, Value)> {
        self.doubts_of(&|_| true)
    }

    /// Like [`Self::doubts`], for a caller that knows which calls without a result may have begun.
    pub(super) fn doubts_of(&self, has_begun: &dyn Fn(IntentId) -> bool) -> Vec<(String, Value)> {
        let mut doubts = self.in_doubt.clone();
        let open = self.open_calls().iter().filter(|open| open.has_open_effect() && self.may_have_begun(open));
        let open = open.filter_map(|open| open.planned().map(|planned| (open.started, planned)));
        for (_, planned) in open.filter(|(started, planned)| *started || has_begun(planned.intent)) {
            let doubt = (planned.skill.clone(), planned.arguments.clone());
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
        doubts
    }

    /// Whether a call without a result may have begun. Commands run one at a time, so only the first of them may have.
    pub(super) fn may_have_begun(&self, open: &OpenCall) -> bool {
        self.wanted_skills().any(|(wanted, _)| std::ptr::eq(wanted, open))
    }

    /// Whether a call counts against the limit on calls. In `single_loop` and `direct` every tool call counts [S0 5.1].
    /// Of commands only skill runs count, so that a request for help costs nothing.
    pub(super) const fn counts(&self, action: &Action) -> bool {
        match action {
            Action::Skill(_) => true,
            Action::Answer { .. } => {
                !self.by_commands && matches!(self.kind, RunKind::Main(Mode::SingleLoop | Mode::Direct))
            }
            Action::Dispatch(_)
            | Action::Collect { .. }
            | Action::ControlAgent { .. }
            | Action::Alternatives(_)
            | Action::Caller => false,
        }
    }

    /// Records that a breaker admitted a run.
    pub fn skill_started(&mut self, intent: IntentId) {
        if let Some(open) = self.awaited(intent) {
            open.started = true;
        }
    }

    /// Folds a skill's outcome. Returns false and changes nothing if no call waits for it. The intent identifies the call,
    /// because models use the same call id again in the next round.
    pub fn skill_finished(&mut self, at: Micros, intent: IntentId, outcome: &Outcome, routed: Option<&Routed>) -> bool {
        let bytes_max = self.result_bytes_max;
        let is_awaited = |o: &&OpenCall| o.result.is_none() && o.planned().is_some_and(|p| p.intent == intent);
        let Some(open) = self.open_calls().iter().find(is_awaited) else { return false };
        let routed = match routed {
            Some(routed) => Some(Cow::Borrowed(routed)),
            None => self.routed(open, outcome, &ErrorRules::default(), None).map(Cow::Owned),
        };
        let routed = routed.as_deref();
        let ShownResult { text, advice, notes } = policy::judge_result(self, open, (outcome, routed));
        let (shown, cut) = self.cut_result(&text).unzip();
        let shown = shown.map_or_else(|| clip(&text, bytes_max), Cow::Owned);
        let shown = format!("{shown}{advice}{notes}");
        let has_effect = open.has_effect();
        let is_read = open.planned().is_some_and(|p| p.effect == Effect::Read);
        let is_external = open.planned().is_some_and(|p| p.external);
        let reads = is_read || is_external;
        let (skill, arguments) = guarded(&open.call);
        let call_id = open.call.id.clone();
        self.step_finished(&call_id, outcome);
        self.note_for_goal(&skill, outcome, routed);
        self.provenance.result(&skill, outcome, is_read && is_external);
        // A tool server is outside whatever its settings say, and its tools answer effects with texts.
        if reads || skill.starts_with("mcp.") {
            self.provenance.has_read(&skill);
        }
        if let Some(instead) = &outcome.instead {
            self.provenance.has_read(&instead.skill);
        }
        if is_read && outcome.status.is_ok() {
            let text = clip(&outcome.data, bytes_max).into_owned();
            let call = receipt::fingerprint(&skill, &arguments);
            let is_only = self.last_read.as_ref().is_none_or(|before| before.is_only && before.call == call);
            self.last_read = Some(LastRead { skill: skill.clone(), text, call, is_only });
        } else if has_effect {
            self.last_read = None;
        }
        if let Some(open) = self.awaited(intent) {
            open.end(shown, outcome);
        }
        if let Some(cut) = cut {
            self.keep_cut(cut);
        }
        let seen = Seen {
            error: routed.map(|routed| routed.kind.as_str()),
            has_changed: has_effect && outcome.status.is_ok(),
            ..Seen::plain(&text)
        };
        self.guard.record_result(&skill, &arguments, &seen);
        if let Some(SkillChange::Begin(active)) = outcome.skill_change.as_deref() {
            // A restriction lasts until the end of the turn, so that no skill can lift that of another one.
            self.confined = self.confined.take().or_else(|| active.confinement());
        }
        if let Some(instead) = outcome.instead.as_deref() {
            self.ran.push(format!("{skill} ({})", instead.status.as_str()));
            self.failed_skills.insert(skill.clone());
        }
        let ran = outcome.instead.as_ref().map_or(skill.as_str(), |instead| instead.skill.as_str());
        self.ran.push(match outcome.status {
            Status::Success => ran.to_owned(),
            status => format!("{ran} ({})", status.as_str()),
        });
        if has_effect {
            self.receipts.extend(Receipt::of(&skill, &arguments, outcome, at));
        }
        self.note_result(skill, arguments, outcome);
        if self.is_cmd() && !outcome.status.is_ok() {
            self.skip_the_rest();
        }
        true
    }

    /// Notes a result for the report of the run.
    fn note_result(&mut self, skill: String, arguments: Value, outcome: &Outcome) {
        let line = first_line(&outcome.data);
        match outcome.status {
            Status::Success | Status::Partial => self.done.push(format!("{skill}: {line}")),
            Status::Pending => self.done.push(format!("{skill}: accepted, the result comes later ({line})")),
            Status::Unknown => {
                self.undone.push(format!("{skill}: it is not known whether it happened ({line})"));
                self.in_doubt.push((skill, arguments));
            }
            Status::ErrorTransient | Status::ErrorPermanent | Status::ErrorBlocked => {
                self.undone.push(format!("{skill}: {line}"));
            }
        }
    }

    /// Answers the calls that have not started as not run; they do not count as used.
    pub(super) fn skip_the_rest(&mut self) {
        let Phase::Acting(calls) = &mut self.phase else { return };
        for open in calls.iter_mut().filter(|o| o.result.is_none() && !o.started) {
            open.result = Some(NOT_RUN.to_owned());
            self.calls_used = self.calls_used.saturating_sub(1);
        }
    }

    /// Sets the result of a call that is not a skill run.
    pub fn answer(&mut self, call_id: &str, text: String) {
        let Phase::Acting(calls) = &mut self.phase else { return };
        if let Some(open) = calls.iter_mut().find(|o| o.call.id == call_id && o.result.is_none()) {
            let (name, arguments) = guarded(&open.call);
            self.guard.record(&name, &arguments, Some(&text), false);
            open.result = Some(with_warning(text, open.warning.as_deref()));
            // The plan has the dispatched agent, and the messages have the text of the call. A second copy here would
            // only enlarge the state.
            open.call.raw.clear();
            open.call.action =
                Action::Answer { text: String::new(), is_error: false, is_unknown: false, is_malformed: false };
        }
    }

    /// Answers the calls that have certainly not begun as not run.
    pub(super) fn give_up_not_begun(&mut self, has_begun: &dyn Fn(IntentId) -> bool) {
        let is_begun = |open: &OpenCall| {
            let intent = open.planned().map(|planned| planned.intent);
            open.started || intent.is_none_or(|intent| self.may_have_begun(open) && has_begun(intent))
        };
        let begun: Vec<bool> = self.open_calls().iter().map(is_begun).collect();
        let Phase::Acting(calls) = &mut self.phase else { return };
        let mut given_up = Vec::new();
        for (open, _) in calls.iter_mut().zip(begun).filter(|(open, is_begun)| open.result.is_none() && !is_begun) {
            open.result = Some(NOT_BEGUN.to_owned());
            given_up.push(open.brief("it was not begun"));
        }
        self.undone.extend(given_up);
    }

    /// The run with a result for each of its calls, so that a later turn can continue its context. Providers refuse a
    /// context with calls that have no result, and the model must know which effects are in doubt.
    #[must_use]
    pub(super) fn broken_off(mut self) -> Self {
        self.take_advice(None);
        if self.open_calls().is_empty() {
            return self;
        }
        let mut calls = self.open_calls().to_vec();
        for (open, original) in
            calls.iter_mut().zip(self.open_calls()).filter(|(_, original)| original.result.is_none())
        {
            let is_in_doubt = original.has_open_effect() && self.may_have_begun(original);
            open.result = Some(if is_in_doubt { CUT_IN_DOUBT } else { CUT_SHORT }.to_owned());
        }
        self.phase = Phase::Acting(Vec::new());
        self.push_results(&calls);
        self
    }

    pub(super) fn awaited(&mut self, intent: IntentId) -> Option<&mut OpenCall> {
        let Phase::Acting(calls) = &mut self.phase else { return None };
        calls.iter_mut().find(|o| o.result.is_none() && o.planned().is_some_and(|p| p.intent == intent))
    }
}

/// The result of a call of a skill that a hook, or a person, refused with this text.
#[must_use]
pub fn refused_by(hook: &str, skill: &str, text: &str) -> String {
    // The reason is the text of a person, which may end without a mark.
    let text = stopped(text);
    if hook == APPROVAL {
        return format!(
            "{REFUSED} A person did not approve {skill}{REFUSED_HERE} {text} Do not try it again; tell the user."
        );
    }
    format!(
        "{REFUSED} The rule \"{hook}\" does not allow {skill}{REFUSED_HERE} {text} Do not try it again; tell the user."
    )
}

/// The note to the model about an effect that is an operation without a result so far.
pub(super) const ACCEPTED: &str = "It was accepted, and its result comes later.";

/// The result of a call whose effect has this receipt.
pub(super) fn done_already(receipt: &Receipt) -> String {
    let note = match receipt.extent {
        Extent::Accepted => ACCEPTED,
        Extent::Done | Extent::Partial => NOT_RUN_AGAIN,
    };
    format!("{DONE_ALREADY} {} {note} Go on, or answer in words.", receipt.summary())
}

/// The line of a report about a call with this result; `None` if no hook refused it.
pub(super) fn refused_by_hook(result_text: &str) -> Option<String> {
    // The rest of the text is for the model.
    let reason = result_text.strip_prefix(REFUSED)?.split(" here:").next().unwrap_or_default();
    Some(first_line(reason.trim()))
}

pub(super) fn with_warning(text: String, warning: Option<&str>) -> String {
    match warning {
        Some(warning) => format!("{text}\n{warning}"),
        None => text,
    }
}

/// The key that the loop guard compares: the skill and its validated arguments if there are any, otherwise the raw call.
pub(super) fn guarded(call: &ResolvedCall) -> (String, Value) {
    match &call.action {
        Action::Skill(planned) => (planned.skill.clone(), planned.arguments.clone()),
        Action::Answer { .. }
        | Action::Dispatch(_)
        | Action::Collect { .. }
        | Action::ControlAgent { .. }
        | Action::Alternatives(_)
        | Action::Caller => (call.name.clone(), Value::from(call.raw.clone())),
    }
}
