//! One agent's loop: think, act, think … until it has something to say. The same code for the agent that
//! answers the user and for sub-agents; they differ in kind and limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{markup, output::OutputLimit, provenance::Provenance, truth};
use crate::{
    context::Frames,
    event::{Action, AgentReport, EventBody, Mode, PlannedSkill, ReportStatus, ResolvedCall},
    ids::AgentId,
    limits::SubAgentInterface,
    loop_guard::LoopGuard,
    message::{Finish, Message, ModelError, ModelErrorKind, ToolCall, Usage},
    receipt::Receipt,
    skill::CallStyle,
    time::Micros,
};

const GO_ON: &str = "[Your answer was cut off at the length limit. Go on exactly where it stopped; repeat nothing.]";
const NO_SUCH_CALL: &str = "[Your reply was a call of something that does not exist, so nothing ran. Use only what you were given, or answer in words.]";
const NO_RESULT: &str = "[You wrote a result yourself: nothing ran. Use your tools, or answer in your own words.]";
const ONLY_A_CALL: &str = "The model only wrote calls of things that do not exist.";
const LONG_CALL: &str = "The model's call was cut off at its length limit, so it was not run.";
/// After so many replies that ask again for what was done, the run is over: its work is done, and its model has lost track.
const REPEATS_MAX: u32 = 2;

const CUT_CALL: &str = "[Your reply was cut off at the length limit in the middle of a call: nothing ran. Send the whole call again, and nothing else.]";

/// Who runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// The agent that answers the user.
    Main(Mode),
    /// A sub-agent.
    Sub(SubAgentInterface),
}

impl RunKind {
    /// Whether a sub-agent of this kind writes commands.
    const fn is_cmd(self) -> bool {
        matches!(self, Self::Sub(SubAgentInterface::Cmd))
    }
}

/// A model's reply to one round.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// Which round.
    pub round: u32,
    /// The visible text.
    pub text: &'a str,
    /// Its calls, understood.
    pub calls: &'a [ResolvedCall],
    /// What it cost.
    pub usage: &'a Usage,
    /// Why it stopped.
    pub finish: Finish,
    /// It says itself that it did not do what was asked.
    pub declined: bool,
    /// What the provider wants back with the calls.
    pub provider_state: Option<&'a Value>,
}

impl<'a> Reply<'a> {
    /// The reply that this event records, if it is one.
    #[must_use]
    pub fn of(body: &'a EventBody) -> Option<Self> {
        match body {
            EventBody::ModelReplied { round, text, calls, usage, finish, declined, provider_state, .. } => Some(Self {
                round: *round,
                text: text.as_str(),
                calls: calls.as_slice(),
                usage,
                finish: *finish,
                declined: *declined,
                provider_state: provider_state.as_ref(),
            }),
            _ => None,
        }
    }
}

/// What a run may use up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLimits {
    /// Rounds it may have.
    pub rounds_max: u32,
    /// Skill calls it may make (in `single_loop` and `direct`: tool calls).
    pub calls_max: u32,
    /// What is said when those are used up.
    pub calls_note: String,
    /// How much of one result its model is shown, in bytes.
    pub result_bytes_max: usize,
}

/// A call whose result is awaited or known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The call.
    pub call: ResolvedCall,
    /// Its result, once known.
    pub result: Option<String>,
    /// A breaker let it begin.
    pub started: bool,
    /// The call limit refused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// A warning of the loop guard, to be shown with the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It said its last word.
    Said(String),
    /// It used up a limit; the text says which.
    Tripped(String),
    /// It went in circles, or the model gave nothing usable; the text says what.
    GaveUp(String),
    /// Its model said nothing at the end; the text says why.
    Silent(String),
    /// Its model failed.
    ModelFailed(ModelError),
    /// It called tools of the program that the turn is run for, with these words.
    Called(String, Vec<ToolCall>),
    /// Its answer has not the form that was asked for, also at the second try; the text says why.
    Unfit(String),
}

/// What it is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for the reply of the current round.
    Thinking,
    /// Waits for the results of these calls.
    Acting(Vec<OpenCall>),
    /// Done.
    Ended(Ending),
}

/// The state of one agent's loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRun {
    /// Who.
    pub agent: AgentId,
    /// What kind.
    pub kind: RunKind,
    /// Its context after the system prompt.
    pub messages: Vec<Message>,
    /// How many leading messages are history.
    pub stable: usize,
    /// The current round, from 1.
    pub round: u32,
    /// Rounds it may have.
    pub rounds_max: u32,
    /// Skill calls (in `single_loop` and `direct`: all tool calls) so far.
    pub calls_used: u32,
    /// How many it may make.
    pub calls_max: u32,
    /// What is said when those are used up.
    pub calls_note: String,
    /// How much of one result its model is shown, in bytes.
    pub result_bytes_max: usize,
    /// What it is doing.
    pub phase: Phase,
    /// Watches for loops.
    pub guard: LoopGuard,
    /// What its rounds cost.
    pub usage: Usage,
    /// What it got done, one line each, for reports.
    pub done: Vec<String>,
    /// What it could not do, one line each.
    pub undone: Vec<String>,
    /// The skills that it ran, in order, each with its outcome's status if that is not success.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<String>,
    /// The receipts of its effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// The receipts of others in its turn, and of the turn that this one continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Receipt>,
    /// The receipts of earlier turns of the conversation, the newest last: what they did may be told, and may be done again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) earlier: Vec<Receipt>,
    /// The user asks what was done, and for nothing to be done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_asked: bool,
    /// The user's words only ask, greet or thank.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) asks_only: bool,
    /// Replies that asked again for an effect that has a receipt.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) repeats: u32,
    /// An effect that it asked for has a receipt of another agent, or of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) found_done: bool,
    /// A skill that it was granted changes something: an agent that runs none has not done its mission.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_to_act: bool,
    /// That it ran nothing was pointed out to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) told_to_act: bool,
    /// That its last words were a call of something that does not exist was pointed out to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    told_of_call: bool,
    /// An answer that was cut off, which it was asked to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
    /// It was asked to go on with one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_continued: bool,
    /// How long its replies may be.
    #[serde(default, skip_serializing_if = "OutputLimit::is_usual")]
    pub(super) output: OutputLimit,
    /// It answers a program that sets the length itself: what is cut off stays so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) takes_cuts: bool,
    /// It answers a program, which reads calls that its model wrote as text for itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) shows_calls: bool,
    /// Effects that may have happened, as (skill, arguments): this run does not repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// The round that was begun on a backend that works by itself and has no end yet, as the log tells: what a former life
    /// began, nobody is waiting for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) began: Option<u32>,
    /// The same as the live Engine knows it, for what it tells. The log has it as `began`.
    #[serde(skip)]
    pub(super) acts_in: Option<u32>,
    /// A round of it ran on a backend that works by itself: what that did, no receipt shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) programs_ran: bool,
    /// How often each kind of failure came, where there is advice for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) failures: BTreeMap<String, u32>,
    /// Why its last reply stopped.
    #[serde(default, skip_serializing_if = "Finish::is_stop")]
    pub finish: Finish,
    /// Its last reply says itself that it did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
    /// The tags in which it is shown results.
    #[serde(default, skip_serializing_if = "Frames::is_empty")]
    pub(super) frames: Frames,
    /// The agent that answers the user, writing commands instead of calling tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) by_commands: bool,
    /// What it was told that it did not say itself.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
    /// Rounds in a row whose calls all had not the form of a call.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) unusable_rounds: u32,
    /// How long its rounds waited for their permits, in milliseconds. Counted for sub-agents, whose reports tell it.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) waited_ms: u64,
    /// How long its models read before their first tokens, in milliseconds.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) prefill_ms: u64,
    /// An empty reply was pointed out to it.
    pub(super) nudged: bool,
    /// It was told that its calls are used up.
    pub(super) wrapping_up: bool,
}

impl AgentRun {
    /// A run about to think for the first time; the first `stable` of its messages are history.
    #[must_use]
    pub fn new(agent: AgentId, kind: RunKind, messages: Vec<Message>, stable: usize, limits: RunLimits) -> Self {
        let RunLimits { rounds_max, calls_max, calls_note, result_bytes_max } = limits;
        Self {
            agent,
            kind,
            messages,
            stable,
            round: 1,
            rounds_max,
            calls_used: 0,
            calls_max,
            calls_note,
            result_bytes_max,
            phase: Phase::Thinking,
            guard: LoopGuard::default(),
            usage: Usage::default(),
            done: Vec::new(),
            undone: Vec::new(),
            ran: Vec::new(),
            receipts: Vec::new(),
            known: Vec::new(),
            earlier: Vec::new(),
            is_asked: false,
            asks_only: false,
            repeats: 0,
            found_done: false,
            is_to_act: false,
            told_to_act: false,
            told_of_call: false,
            cut: None,
            has_continued: false,
            output: OutputLimit::Usual,
            takes_cuts: false,
            shows_calls: false,
            in_doubt: Vec::new(),
            began: None,
            acts_in: None,
            programs_ran: false,
            failures: BTreeMap::new(),
            finish: Finish::Stop,
            declined: false,
            frames: Frames::default(),
            by_commands: false,
            provenance: Provenance::default(),
            unusable_rounds: 0,
            waited_ms: 0,
            prefill_ms: 0,
            nudged: false,
            wrapping_up: false,
        }
    }

    /// The same run, whose results are shown in these tags.
    #[must_use]
    pub fn with_frames(self, frames: Frames) -> Self {
        Self { frames, ..self }
    }

    /// Whether it writes commands, whose calls run one after the other [S0 15.4].
    #[must_use]
    pub const fn is_cmd(&self) -> bool {
        self.by_commands || self.kind.is_cmd()
    }

    /// How it writes its calls.
    #[must_use]
    pub const fn style(&self) -> CallStyle {
        match self.kind {
            _ if self.is_cmd() => CallStyle::Cmd,
            RunKind::Main(Mode::Direct) => CallStyle::Direct,
            RunKind::Main(_) | RunKind::Sub(_) => CallStyle::UseSkill,
        }
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn ending(&self) -> Option<&Ending> {
        match &self.phase {
            Phase::Ended(ending) => Some(ending),
            Phase::Thinking | Phase::Acting(_) => None,
        }
    }

    /// Ends it.
    pub fn end(&mut self, ending: Ending) {
        self.phase = Phase::Ended(ending);
    }

    /// Its report with what is known of it so far; it runs since `since`.
    #[must_use]
    pub fn report(&self, status: ReportStatus, result: String, since: Micros, now: Micros) -> AgentReport {
        AgentReport {
            status,
            result,
            tool_calls_used: self.calls_used,
            duration_ms: now.since_ms(since),
            usage: self.usage,
            skills_run: self.ran.clone(),
            receipts: self.receipts.clone(),
            ids: self.provenance.found_ids(),
            waited_ms: self.waited_ms,
            prefill_ms: self.prefill_ms,
            in_doubt: self.doubts(),
            programs_ran: self.programs_ran || self.acts(),
        }
    }

    /// Whether a reply to this round is awaited.
    #[must_use]
    pub fn awaits(&self, round: u32) -> bool {
        self.phase == Phase::Thinking && self.round == round
    }

    /// Takes in an event of this agent, of this time; true if a skill's result was awaited and came.
    pub fn fold(&mut self, at: Micros, body: &EventBody) -> bool {
        let mut took = false;
        if let Some((round, waited_ms)) = body.waited()
            && self.awaits(round)
        {
            self.waited_ms = self.waited_ms.saturating_add(waited_ms);
            self.prefill_ms = self.prefill_ms.saturating_add(body.prefill_ms());
        }
        match body {
            EventBody::ModelReplied { .. } => {
                if let Some(reply) = Reply::of(body) {
                    self.replied(&reply);
                }
            }
            EventBody::ModelFailed { round, error, .. } => self.failed(*round, error),
            EventBody::RoundBegan { round, .. } if self.awaits(*round) => {
                self.began = Some(*round);
            }
            EventBody::RoundNotBegun { round, .. } if self.awaits(*round) => (self.began, self.acts_in) = (None, None),
            EventBody::SkillStarted { intent, .. } => self.skill_started(*intent),
            EventBody::SkillFinished { intent, outcome, .. } => took = self.skill_finished(at, *intent, outcome),
            _ => {}
        }
        self.settle();
        took
    }

    /// The current round may have begun on a backend that works by itself; true if that is news.
    pub fn round_acts(&mut self, round: u32) -> bool {
        self.awaits(round) && self.acts_in.replace(round) != Some(round)
    }

    /// Whether the current round may have begun on a backend that works by itself, and has no end yet.
    pub(super) fn acts(&self) -> bool {
        let is_now = |round: Option<u32>| round.is_some_and(|round| self.awaits(round));
        is_now(self.began) || is_now(self.acts_in)
    }

    /// What is to be recorded of a round that a former life began and whose end nobody knows.
    #[must_use]
    pub fn interrupted(&self) -> Option<EventBody> {
        let round = self.began.filter(|round| self.awaits(*round))?;
        let detail = "it was interrupted, and what it did may have taken effect";
        Some(EventBody::ModelFailed { round, error: ModelError::new(ModelErrorKind::InDoubt, detail), waited_ms: 0 })
    }

    /// The round is over.
    fn round_ends(&mut self) {
        self.programs_ran |= self.acts();
        (self.began, self.acts_in) = (None, None);
    }

    /// Takes the reply of the current round. A late or repeated one changes nothing.
    pub fn replied(&mut self, reply: &Reply<'_>) {
        let Reply { round, text, calls, .. } = *reply;
        if !self.awaits(round) {
            return;
        }
        self.round_ends();
        self.usage.add(reply.usage);
        (self.finish, self.declined) = (reply.finish, reply.declined);
        if self.finish == Finish::Length && !self.takes_cuts {
            self.output.raise();
        }
        if calls.is_empty() {
            // Some servers say that a reply stopped for calls though it has none: then it just stopped.
            if self.finish == Finish::ToolCalls {
                self.finish = Finish::Stop;
            }
            self.said(text);
            return;
        }
        self.cut = None;
        // A refusal of the kernel, or arguments that a skill does not take, say nothing about how the model writes calls.
        let is_malformed = |c: &ResolvedCall| matches!(c.action, Action::Answer { is_malformed: true, .. });
        self.unusable_rounds = if calls.iter().all(is_malformed) { self.unusable_rounds.saturating_add(1) } else { 0 };
        self.messages.push(self.as_message(text, calls, reply.provider_state));
        if self.wrapping_up {
            self.undone.extend(calls.iter().map(|c| format!("{} (tool call limit reached)", c.name)));
            self.end(Ending::Tripped(self.calls_note.clone()));
        } else {
            self.admit(calls);
        }
    }

    /// Takes last words: those that are cut off are gone on with once, and an agent that ran nothing is asked once to act.
    fn said(&mut self, text: &str) {
        let before = self.cut.take();
        if text.trim().is_empty() {
            match before {
                // The rest never came.
                Some(before) => self.end_cut(before),
                None => self.was_silent(),
            }
            return;
        }
        self.messages.push(self.as_message(text, &[], None));
        let prose = if self.is_cmd() { crate::command::prose_in_blocks(text) } else { None };
        let text = prose.as_deref().unwrap_or(text);
        let invented = if self.shows_calls { None } else { markup::invented_result(text) };
        if invented.is_some()
            && self.round < self.rounds_max
            && before.is_none()
            && !std::mem::replace(&mut self.told_of_call, true)
        {
            self.note(NO_RESULT);
            self.next_round();
            return;
        }
        let text = invented.as_deref().unwrap_or(text);
        let whole = before.map_or_else(|| text.trim().to_owned(), |before| truth::joined(&before, text));
        let has_rounds = self.round < self.rounds_max;
        let may_continue = self.finish == Finish::Length && has_rounds && !self.takes_cuts;
        if may_continue && !self.shows_calls && !self.told_of_call && markup::is_cut_call(text) {
            self.told_of_call = true;
            self.note(CUT_CALL);
            self.next_round();
        } else if self.finish == Finish::Length && !self.takes_cuts && !self.shows_calls && markup::is_cut_call(&whole)
        {
            // Half a call is no answer, and nothing to go on with.
            self.end(Ending::Silent(LONG_CALL.to_owned()));
        } else if may_continue && !std::mem::replace(&mut self.has_continued, true) {
            self.cut = Some(whole);
            self.note(GO_ON);
            self.next_round();
        } else if let Some(rest) = markup::without_calls(&whole).filter(|_| !self.shows_calls) {
            self.said_a_call(&whole, rest, has_rounds);
        } else if let Some(nudge) = self.nudge_to_act(&whole).filter(|_| has_rounds) {
            self.told_to_act = true;
            self.note(nudge);
            self.next_round();
        } else {
            self.end(Ending::Said(whole));
        }
    }

    /// Takes last words that hold a call of something that does not exist: the model is told so once, and nobody else sees it.
    fn said_a_call(&mut self, whole: &str, rest: String, has_rounds: bool) {
        if has_rounds && !std::mem::replace(&mut self.told_of_call, true) {
            self.note(NO_SUCH_CALL);
            self.next_round();
        } else if markup::is_shown_code(whole) {
            // The user may have asked for just this.
            self.end(Ending::Said(whole.to_owned()));
        } else if rest.is_empty() {
            self.end(Ending::Silent(ONLY_A_CALL.to_owned()));
        } else {
            self.end(Ending::Said(rest));
        }
    }

    /// Takes the failure of the current round. If the context did not fit, it is made smaller and asked again, as often as
    /// that helps: the user sees an answer, and the log keeps everything.
    pub fn failed(&mut self, round: u32, error: &ModelError) {
        if !self.awaits(round) {
            return;
        }
        let is_smaller = self.output.is_taken_back_for(error)
            || error.kind == ModelErrorKind::Overflow && (self.forget_history() || self.squeeze());
        if is_smaller {
            self.round_ends();
            self.again();
        } else {
            self.failed_for_good(error);
        }
    }

    /// Takes a failure of the current round that is not tried again: what there is of an answer is the answer.
    pub(super) fn failed_for_good(&mut self, error: &ModelError) {
        self.round_ends();
        match self.cut.take() {
            Some(before) => self.end_cut(before),
            None => self.end(Ending::ModelFailed(error.clone())),
        }
    }

    /// The calls under way, if it acts.
    #[must_use]
    pub fn open_calls(&self) -> &[OpenCall] {
        match &self.phase {
            Phase::Acting(calls) => calls,
            Phase::Thinking | Phase::Ended(_) => &[],
        }
    }

    /// Skill runs without a result that may be under way now: of commands only the first.
    pub fn wanted_skills(&self) -> impl Iterator<Item = (&OpenCall, &PlannedSkill)> {
        let at_once = if self.is_cmd() { 1 } else { usize::MAX };
        self.open_calls()
            .iter()
            .filter(|o| o.result.is_none())
            .filter_map(|o| o.planned().map(|planned| (o, planned)))
            .take(at_once)
    }

    /// Once every call has its result, hands the results to the model and thinks again.
    pub fn settle(&mut self) {
        self.hand_to_caller();
        let Phase::Acting(calls) = &mut self.phase else { return };
        if calls.iter().any(|o| o.result.is_none()) {
            return;
        }
        let calls = std::mem::take(calls);
        self.hand_over(&calls);
        if self.repeats >= REPEATS_MAX {
            // What was done is told from the receipts. The kernel ends the run, and not the model's call.
            self.finish = Finish::Stop;
            self.end(Ending::Said(String::new()));
            return;
        }
        if self.guard.is_spent() {
            self.end(Ending::GaveUp("The same call came up again and again without progress.".to_owned()));
            return;
        }
        // Commands behind a failed one were not run and gave their calls back, so a limit may not be reached after all.
        let refused = calls.iter().filter(|o| o.refused);
        match self.kind {
            RunKind::Main(_) if calls.iter().any(|o| o.refused) => {
                self.undone.extend(refused.map(|o| o.brief("tool call limit reached")));
                self.end(Ending::Tripped(self.calls_note.clone()));
            }
            RunKind::Sub(_) if self.calls_used >= self.calls_max => {
                self.undone.extend(refused.map(|o| o.brief("tool call limit reached")));
                self.wrapping_up = true;
                self.note("[All your tool calls are used. Report now, in words.]");
                self.next_round();
            }
            RunKind::Main(_) | RunKind::Sub(_) => self.next_round(),
        }
    }

    /// Thinks again after its model failed: the failed round did not take place, so it does not count.
    pub fn again(&mut self) {
        self.round += 1;
        self.rounds_max = self.rounds_max.saturating_add(1);
        self.phase = Phase::Thinking;
    }

    /// Thinks again, unless its rounds are used up.
    pub fn next_round(&mut self) {
        if self.round >= self.rounds_max {
            self.end(Ending::Tripped(format!("Reached the limit of {} rounds.", self.rounds_max)));
        } else {
            self.round += 1;
            self.phase = Phase::Thinking;
        }
    }
}
