//! The calls of one reply: their admission, their results, and the verdicts of the loop guard.

use serde_json::Value;

use super::{
    advice::advice,
    run::{AgentRun, LastRead, OpenCall, Phase, RunKind},
};
use crate::{
    context::clip,
    event::{Action, Mode, PlannedSkill, ResolvedCall},
    ids::IntentId,
    loop_guard::LoopLevel,
    outcome::{Outcome, Status},
    plan::first_line,
    receipt::{self, Extent, Receipt},
    skill::{CallStyle, Effect},
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
pub const REFUSED: &str = "[refused]";
/// Why a call that the loop guard blocked was not run, for reports.
pub(super) const WITHOUT_PROGRESS: &str = "blocked: it went on without progress";
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
        Self { call: call.clone(), result: None, started: false, refused: false, warning: None }
    }

    /// The planned skill run, if the call is one.
    #[must_use]
    pub const fn planned(&self) -> Option<&PlannedSkill> {
        match &self.call.action {
            Action::Skill(planned) => Some(planned),
            Action::Answer { .. } | Action::Dispatch(_) | Action::Collect { .. } | Action::Caller => None,
        }
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
    /// Decides which calls of a reply may run. In a sequence of commands, the commands after an invalid one do not run.
    /// All vetoes of the loop guard in one reply count as one: a model that guesses many names at once must see the
    /// errors before its run is ended.
    pub(super) fn admit(&mut self, calls: &[ResolvedCall]) {
        let vetoes = self.guard.vetoes();
        let mut open = Vec::with_capacity(calls.len());
        let (mut broken, mut repeated) = (false, false);
        for call in calls {
            let mut next = OpenCall::new(call);
            if broken && self.is_cmd() {
                next.result = Some(NOT_RUN.to_owned());
            } else if let Some(done) = self.done_already(&next) {
                next.result = Some(done);
                repeated = true;
            } else {
                broken = !self.judge(&mut next);
            }
            let starts_with = |text: &str| next.result.as_ref().is_some_and(|result| result.starts_with(text));
            self.found_done |= starts_with(DONE_ALREADY);
            // The agent is not reminded to act if the kernel blocked its action.
            self.reminded_to_act |= starts_with(IN_DOUBT) || starts_with(REFUSED);
            open.push(next);
        }
        self.guard.count_once(vetoes);
        self.repeats += u32::from(repeated);
        self.phase = Phase::Acting(open);
    }

    /// The result of a call whose effect has a receipt in this turn, so that a model that requests it again does not
    /// repeat it.
    fn done_already(&self, next: &OpenCall) -> Option<String> {
        let planned = next.planned().filter(|planned| planned.effect != Effect::Read)?;
        let receipt = receipt::standing(self.known.iter().chain(&self.receipts), &planned.skill, &planned.arguments)?;
        Some(done_already(receipt))
    }

    /// Whether a call would be answered without being made, because its effect has a receipt or may have happened.
    pub(super) fn has_receipt(&self, planned: &PlannedSkill) -> bool {
        let (skill, arguments) = (&planned.skill, &planned.arguments);
        planned.effect != Effect::Read
            && (receipt::standing(self.known.iter().chain(&self.receipts), skill, arguments).is_some()
                || self.in_doubt.iter().any(|(s, a)| s == skill && a == arguments))
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

    /// Admits a call, or gives it the result with which it is not run. Returns false if the later commands of the same
    /// reply must not run, because this call is invalid, blocked by the loop guard, or in doubt. Returns true for a
    /// call above the limit: the limit also holds for the later calls that count.
    fn judge(&mut self, open: &mut OpenCall) -> bool {
        if matches!(&open.call.action, Action::Answer { text, .. } if text == REPEATED) {
            open.result = Some(REPEATED.to_owned());
            return true;
        }
        // The program that sent the request runs this call, and detects loops itself.
        if open.call.action == Action::Caller {
            return true;
        }
        let counts = self.counts(&open.call.action);
        if counts && self.calls_used >= self.calls_max {
            open.result = Some(format!("[not run] {}", self.calls_note));
            open.refused = true;
            return true;
        }
        let (name, arguments) = guarded(&open.call);
        if open.has_effect() && self.in_doubt.iter().any(|(n, a)| *n == name && *a == arguments) {
            open.result = Some(IN_DOUBT.to_owned());
            return false;
        }
        let is_unknown = matches!(open.call.action, Action::Answer { is_unknown: true, .. });
        let verdict = self.guard.judge(&name, &arguments, is_unknown);
        if verdict.level == LoopLevel::Critical {
            open.result = Some(format!("[blocked] {}", verdict.message));
            self.undone.push(open.brief(WITHOUT_PROGRESS));
            return false;
        }
        if counts {
            self.calls_used += 1;
        }
        open.warning = (verdict.level == LoopLevel::Warning).then_some(verdict.message);
        let Action::Answer { text, is_error, is_unknown, .. } = &open.call.action else { return true };
        if text.starts_with(REFUSED) {
            // The rest of the text is for the model.
            let reason = text.trim_start_matches(REFUSED).split(" here:").next().unwrap_or_default();
            self.undone.push(first_line(reason.trim()));
        }
        self.guard.record(&name, &arguments, Some(text), *is_unknown);
        open.result = Some(with_warning(clip(text, self.result_bytes_max).into_owned(), open.warning.as_deref()));
        !is_error
    }

    /// Whether a call counts against the limit on calls. In `single_loop` and `direct` every tool call counts [S0 5.1].
    /// Of commands only skill runs count, so that a request for help costs nothing.
    const fn counts(&self, action: &Action) -> bool {
        match action {
            Action::Skill(_) => true,
            Action::Answer { .. } => {
                !self.by_commands && matches!(self.kind, RunKind::Main(Mode::SingleLoop | Mode::Direct))
            }
            Action::Dispatch(_) | Action::Collect { .. } | Action::Caller => false,
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
    pub fn skill_finished(&mut self, at: Micros, intent: IntentId, outcome: &Outcome) -> bool {
        let bytes_max = self.result_bytes_max;
        if self.awaited(intent).is_none() {
            return false;
        }
        let advice = self.advise(outcome);
        let style = self.style();
        let Some(open) = self.awaited(intent) else { return false };
        let text = text_for_style(open, style, outcome);
        let mut shown = clip(&text, bytes_max).into_owned();
        if let Some(advice) = advice {
            shown.push_str(&format!("\nNext: {advice}"));
        }
        let warning = open.warning.clone();
        let has_effect = open.has_effect();
        let is_read = open.planned().is_some_and(|p| p.effect == Effect::Read);
        let reads = open.planned().is_some_and(|p| p.effect == Effect::Read || p.external);
        let (skill, arguments) = guarded(&open.call);
        self.provenance.result(&skill, outcome);
        if reads {
            self.provenance.has_read(&skill);
        }
        if is_read && outcome.status.is_ok() {
            if self.guard.repeats_result(&skill, &arguments, &text) {
                shown.push_str(SAME_RESULT);
            }
            let text = clip(&outcome.data, bytes_max).into_owned();
            let call = receipt::fingerprint(&skill, &arguments);
            let is_only = self.last_read.as_ref().is_none_or(|before| before.is_only && before.call == call);
            self.last_read = Some(LastRead { skill: skill.clone(), text, call, is_only });
        } else if has_effect {
            self.last_read = None;
        }
        if let Some(open) = self.awaited(intent) {
            open.result = Some(with_warning(shown, warning.as_deref()));
        }
        self.guard.record(&skill, &arguments, Some(&text), false);
        self.ran.push(match outcome.status {
            Status::Success => skill.clone(),
            status => format!("{skill} ({})", status.as_str()),
        });
        if has_effect {
            self.receipts.extend(Receipt::of(&skill, &arguments, outcome, at));
        }
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
        if self.is_cmd() && !outcome.status.is_ok() {
            self.skip_the_rest();
        }
        true
    }

    /// The advice after a failure, by how often this kind of failure occurred before.
    fn advise(&mut self, outcome: &Outcome) -> Option<&'static str> {
        let kind = outcome.error_type.as_deref().filter(|_| !outcome.status.is_ok())?;
        let before = self.failures.get(kind).copied().unwrap_or(0);
        let advice = advice(outcome, before)?;
        self.failures.insert(kind.to_owned(), before.saturating_add(1));
        Some(advice)
    }

    /// Answers the calls that have not started as not run; they do not count as used.
    fn skip_the_rest(&mut self) {
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

    fn awaited(&mut self, intent: IntentId) -> Option<&mut OpenCall> {
        let Phase::Acting(calls) = &mut self.phase else { return None };
        calls.iter_mut().find(|o| o.result.is_none() && o.planned().is_some_and(|p| p.intent == intent))
    }
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

/// The text of a result for the model. Errors of skills name flags. For an agent that calls skills with JSON the flags are
/// replaced by argument names, and its own call is added so that it can correct it.
fn text_for_style(open: &OpenCall, style: CallStyle, outcome: &Outcome) -> String {
    let planned = open.planned().filter(|_| outcome.error_type.as_deref() == Some("invalid_arguments"));
    let Some(planned) = planned.filter(|_| style != CallStyle::Cmd) else { return outcome.to_llm_string() };
    let error_text = outcome.data.split("\nUsage: ").next().unwrap_or_default();
    let names = error_text.split(' ').map(|word| match word.strip_prefix("--") {
        Some(flag) => {
            let name = flag.trim_end_matches([',', '.', ':', ';']);
            format!("\"{name}\"{}", &flag[name.len()..])
        }
        None => word.to_owned(),
    });
    let error_text = names.collect::<Vec<_>>().join(" ");
    let (skill, arguments) = (&planned.skill, &planned.arguments);
    let call = style.json_call(skill, arguments);
    let outcome = Outcome {
        data: format!("{error_text}\nYour call was: {call}\nCorrect it and send it again."),
        ..outcome.clone()
    };
    outcome.to_llm_string()
}

fn with_warning(text: String, warning: Option<&str>) -> String {
    match warning {
        Some(warning) => format!("{text}\n{warning}"),
        None => text,
    }
}

/// The key that the loop guard compares: the skill and its validated arguments if there are any, otherwise the raw call.
fn guarded(call: &ResolvedCall) -> (String, Value) {
    match &call.action {
        Action::Skill(planned) => (planned.skill.clone(), planned.arguments.clone()),
        Action::Answer { .. } | Action::Dispatch(_) | Action::Collect { .. } | Action::Caller => {
            (call.name.clone(), Value::from(call.raw.clone()))
        }
    }
}
