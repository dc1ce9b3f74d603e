//! The loop of one agent: model rounds and calls alternate until the agent has an answer. The main agent, which answers the
//! user, and the sub-agents use the same code with different kinds and limits.

mod ending;
mod failure;
mod final_text;
mod fold;
mod handed_in;
mod reporting;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use ending::Ending;
pub(super) use reporting::report_format;
pub(in crate::turn) use steps::{COLLECT, DISPATCH};

use super::{
    alternatives::{Advising, advice_of},
    cut::CutResults,
    output::OutputLimit,
    provenance::Provenance,
    ready::{self, ReadyText},
};
use crate::{
    caller::AnswerFormat,
    context::Frames,
    error_route::ErrorKind,
    event::{Action, EventBody, JudgedCalls, Mode, ResolvedCall},
    ids::AgentId,
    limits::SubAgentInterface,
    loop_guard::LoopGuard,
    message::{Finish, Message, Usage},
    plan::AgentSteer,
    receipt::Receipt,
    skill::{CallStyle, Confinement},
    workflow::WorkflowRun,
};

/// A run ends after this many replies that request effects which have receipts: its work is done, and its model has lost
/// track.
const REPEATS_MAX: u32 = 2;

/// The kind of agent that runs, and its interface to skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// The main agent, which answers the user.
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
    /// The number of the round.
    pub round: u32,
    /// The visible text.
    pub text: &'a str,
    /// Its calls, resolved against the skills.
    pub calls: &'a [ResolvedCall],
    /// The tokens that the round used.
    pub usage: &'a Usage,
    /// Why the reply stopped.
    pub finish: Finish,
    /// The model itself says that it did not do what was asked.
    pub declined: bool,
    /// Opaque provider state that must be sent back with the calls.
    pub provider_state: Option<&'a Value>,
    /// The recorded verdicts about the calls.
    pub judged: Option<&'a JudgedCalls>,
}

impl<'a> Reply<'a> {
    /// The reply that this event records, or `None` for other events.
    #[must_use]
    pub fn of(body: &'a EventBody) -> Option<Self> {
        let EventBody::ModelReplied { round, text, calls, usage, finish, declined, provider_state, judged, .. } = body
        else {
            return None;
        };
        Some(Self {
            round: *round,
            text: text.as_str(),
            calls: calls.as_slice(),
            usage,
            finish: *finish,
            declined: *declined,
            provider_state: provider_state.as_ref(),
            judged: judged.as_ref(),
        })
    }
}

/// The limits of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLimits {
    /// The maximum number of rounds.
    pub rounds_max: u32,
    /// The maximum number of skill calls (in `single_loop` and `direct`: tool calls).
    pub calls_max: u32,
    /// The message for the model or the user once all calls are used.
    pub calls_note: String,
    /// The most bytes of one result that the model sees.
    pub result_bytes_max: usize,
}

/// A call of the current round, with its result once it has one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The call.
    pub call: ResolvedCall,
    /// Its result, as the model will see it.
    pub result: Option<String>,
    /// A breaker has admitted it.
    pub started: bool,
    /// The call limit refused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// A warning of the loop guard, which is shown with the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The hooks outside the kernel that must still decide before the call is made, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// What is known about its text as a part of the answer.
    #[serde(default, skip_serializing_if = "ReadyText::is_unwanted")]
    pub(super) ready: ReadyText,
    /// The origin of its result if that is untrusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub untrusted: String,
}

/// The phase of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The run waits for the reply of the current round.
    Thinking,
    /// The run waits for the results of these calls.
    Acting(Vec<OpenCall>),
    /// The run has ended.
    Ended(Ending),
}

/// A successful result of a skill without effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastRead {
    /// The skill.
    pub skill: String,
    /// The text of the result, clipped.
    pub text: String,
    /// Fingerprint of the call.
    #[serde(default)]
    pub call: String,
    /// The agent has read nothing else since its last effect.
    #[serde(default)]
    pub is_only: bool,
}

/// The state of one agent's loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRun {
    /// The agent's id.
    pub agent: AgentId,
    /// The kind of agent.
    pub kind: RunKind,
    /// The agent's context after the system prompt.
    pub messages: Vec<Message>,
    /// How many leading messages are history.
    pub stable: usize,
    /// The current round, from 1.
    pub round: u32,
    /// The maximum number of rounds.
    pub rounds_max: u32,
    /// The number of skill calls (in `single_loop` and `direct`: all tool calls) so far.
    pub calls_used: u32,
    /// The maximum of `calls_used`.
    pub calls_max: u32,
    /// The message for the model or the user once all calls are used.
    pub calls_note: String,
    /// The most bytes of one result that the model sees.
    pub result_bytes_max: usize,
    /// The current phase.
    pub phase: Phase,
    /// Detects repeated calls.
    pub guard: LoopGuard,
    /// The tokens that its rounds used.
    pub usage: Usage,
    /// Completed work, one line per item, for reports.
    pub done: Vec<String>,
    /// Failed or refused work, one line per item, for reports.
    pub undone: Vec<String>,
    /// The newest result that the agent read, unless it changed something later. It is the answer if the model only reads it
    /// again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_read: Option<LastRead>,
    /// The skills that the agent ran, in order, each with its outcome's status unless that is success.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<String>,
    /// The receipts of the agent's own effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// The receipts of the turn that this turn continues or tries again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Receipt>,
    /// The receipts of earlier turns of the conversation, newest last. An answer may mention these effects, and the same calls
    /// may run again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) earlier: Vec<Receipt>,
    /// The user asks what was done and requests no change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_asked: bool,
    /// The agent has dispatched other agents in this turn, and their effects are not among its receipts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_agents: bool,
    /// The user's message only says thanks, so no skill with an effect is planned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) only_thanks: bool,
    /// The user's message is one sentence that requests a change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_requested: bool,
    /// A sentence of the user's message requests a change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_request: bool,
    /// The user's message only asks, greets or thanks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) asks_only: bool,
    /// The number of replies that requested an effect which has a receipt.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) repeats: u32,
    /// An effect that the agent requested already has a receipt, of this agent or of another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) found_done: bool,
    /// The agent was granted a skill that changes something. If it runs no skill, it has not done its mission.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_to_act: bool,
    /// The model was reminded that it ran nothing, or needs no such reminder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) reminded_to_act: bool,
    /// The model was notified once that its text was an invalid or cut call, or a result that it had invented.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) notified_of_call: bool,
    /// An answer that was cut off and that the model was asked to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
    /// The model was asked to continue a cut answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_continued: bool,
    /// The output limit of its replies.
    #[serde(default, skip_serializing_if = "OutputLimit::is_usual")]
    pub(super) output: OutputLimit,
    /// The caller is a program that sets the output length itself, so a cut answer stays cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) takes_cuts: bool,
    /// The caller is a program, which parses calls that the model wrote as text itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) shows_calls: bool,
    /// Effects that may have happened, as (skill, arguments). This run does not repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// The round that began on an agentic backend and has no end yet, according to the log. No process waits for a round that a
    /// previous incarnation began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) began: Option<u32>,
    /// The same round according to the live Engine, which needs it for reports. A replay has it in `began`.
    #[serde(skip)]
    pub(super) acts_in: Option<u32>,
    /// A round ran on an agentic backend, whose effects no receipt shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) programs_ran: bool,
    /// How often each kind of failure occurred for the goal of the turn, with the failures of the agents before it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) failures: BTreeMap<ErrorKind, u32>,
    /// The skills that failed for the goal of the turn.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) failed_skills: BTreeSet<String>,
    /// What its skills, or the router, asked the parent agent to decide, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) escalated: Vec<String>,
    /// Its model writes a plan first, and marks its answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) plans: bool,
    /// The model was told once to carry out its plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) reminded_of_plan: bool,
    /// Its requests for another approach.
    #[serde(default, skip_serializing_if = "Advising::is_empty")]
    pub(super) advising: Advising,
    /// Why the last reply stopped.
    #[serde(default, skip_serializing_if = "Finish::is_stop")]
    pub finish: Finish,
    /// The last reply itself says that it did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
    /// The tags that enclose results in its context.
    #[serde(default, skip_serializing_if = "Frames::is_empty")]
    pub(super) frames: Frames,
    /// Number of its model calls that ended, failed ones included.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) model_calls: u32,
    /// The main agent writes commands instead of calling tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) by_commands: bool,
    /// The sources of what the agent has read.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
    /// The skills that it may run because of an active skill; `None` means all that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) confined: Option<Confinement>,
    /// The number of consecutive rounds whose calls were all malformed.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) unusable_rounds: u32,
    /// How long its rounds waited for their permits, in milliseconds. Counted for sub-agents, whose reports contain it.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) waited_ms: u64,
    /// How long its models processed their prompts before the first tokens, in milliseconds.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) prefill_ms: u64,
    /// The results that were too long for its prompt.
    #[serde(default, skip_serializing_if = "CutResults::is_empty")]
    pub(super) cut_results: CutResults,
    /// The workflow whose steps are the calls of this agent, in place of a model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Box<WorkflowRun>>,
    /// The context was shrunk after it had not fitted into the window of a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_shrunk: bool,
    /// The history was dropped then, and the prompt does not contain a summary of it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) lost_history: bool,
    /// The format that the report of a sub-agent must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) report_format: Option<AnswerFormat>,
    /// The model was asked to correct a report that did not have this format.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    corrected_report: bool,
    /// The texts that a sub-agent has taken up and that its next round will contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) steered: Vec<AgentSteer>,
    /// How many such texts it has taken up.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) steering_taken: u32,
    /// The model was reminded once that its reply was empty.
    pub(super) nudged: bool,
    /// The model was notified that all its calls are used.
    pub(super) wrapping_up: bool,
}

impl AgentRun {
    /// A run before its first round; the first `stable` of its messages are history.
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
            last_read: None,
            ran: Vec::new(),
            receipts: Vec::new(),
            known: Vec::new(),
            earlier: Vec::new(),
            is_asked: false,
            has_agents: false,
            only_thanks: false,
            is_requested: false,
            has_request: false,
            asks_only: false,
            repeats: 0,
            found_done: false,
            is_to_act: false,
            reminded_to_act: false,
            notified_of_call: false,
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
            failed_skills: BTreeSet::new(),
            escalated: Vec::new(),
            finish: Finish::Stop,
            declined: false,
            frames: Frames::default(),
            model_calls: 0,
            by_commands: false,
            provenance: Provenance::default(),
            confined: None,
            unusable_rounds: 0,
            waited_ms: 0,
            prefill_ms: 0,
            cut_results: CutResults::default(),
            plans: false,
            reminded_of_plan: false,
            advising: Advising::default(),
            workflow: None,
            has_shrunk: false,
            lost_history: false,
            report_format: None,
            corrected_report: false,
            steered: Vec::new(),
            steering_taken: 0,
            nudged: false,
            wrapping_up: false,
        }
    }

    /// The same run with these tags around results.
    #[must_use]
    pub fn with_frames(self, frames: Frames) -> Self {
        Self { frames, ..self }
    }

    /// Whether the agent writes commands, which run one after the other [S0 15.4].
    #[must_use]
    pub const fn is_cmd(&self) -> bool {
        self.by_commands || self.kind.is_cmd()
    }

    /// How the agent writes its calls.
    #[must_use]
    pub const fn style(&self) -> CallStyle {
        match self.kind {
            _ if self.is_cmd() => CallStyle::Cmd,
            RunKind::Main(Mode::Direct) => CallStyle::Direct,
            RunKind::Main(_) | RunKind::Sub(_) => CallStyle::UseSkill,
        }
    }

    /// How the run ended, or `None` while it runs.
    #[must_use]
    pub const fn ending(&self) -> Option<&Ending> {
        match &self.phase {
            Phase::Ended(ending) => Some(ending),
            Phase::Thinking | Phase::Acting(_) => None,
        }
    }

    /// Ends the run.
    pub fn end(&mut self, ending: Ending) {
        self.phase = Phase::Ended(ending);
    }

    /// Whether the run waits for the reply of this round.
    #[must_use]
    pub fn awaits(&self, round: u32) -> bool {
        self.phase == Phase::Thinking && self.round == round
    }

    /// Records that the current round may have begun on an agentic backend. Returns true if that was not recorded yet.
    pub fn round_acts(&mut self, round: u32) -> bool {
        self.awaits(round) && self.acts_in.replace(round) != Some(round)
    }

    /// Whether the current round may have begun on an agentic backend and has no end yet.
    pub(super) fn acts(&self) -> bool {
        let is_now = |round: Option<u32>| round.is_some_and(|round| self.awaits(round));
        is_now(self.began) || is_now(self.acts_in)
    }

    /// Ends the current round.
    fn round_ends(&mut self) {
        self.programs_ran |= self.acts();
        (self.began, self.acts_in) = (None, None);
    }

    /// Folds the reply of the current round. A late or repeated reply changes nothing.
    pub fn replied(&mut self, reply: &Reply<'_>) {
        let Reply { round, text, calls, judged, .. } = *reply;
        if !self.awaits(round) {
            return;
        }
        self.round_ends();
        self.usage.add(reply.usage);
        if self.take_advice(advice_of(calls)) {
            return;
        }
        (self.finish, self.declined) = (reply.finish, reply.declined);
        if self.finish == Finish::Length && !self.takes_cuts {
            self.output.raise();
        }
        if self.workflow.is_some() {
            self.step_replied(reply);
            return;
        }
        if calls.is_empty() {
            // Some servers report `tool_calls` as the reason although the reply has no calls.
            if self.finish == Finish::ToolCalls {
                self.finish = Finish::Stop;
            }
            self.take_final_text(text);
            return;
        }
        self.cut = None;
        // A refusal by the kernel, or arguments that do not fit a skill, do not show that the model writes malformed calls.
        let is_malformed = |c: &ResolvedCall| matches!(c.action, Action::Answer { is_malformed: true, .. });
        self.unusable_rounds = if calls.iter().all(is_malformed) { self.unusable_rounds.saturating_add(1) } else { 0 };
        self.messages.push(self.as_message(text, calls, reply.provider_state));
        if self.wrapping_up {
            self.undone.extend(calls.iter().map(|c| format!("{} (tool call limit reached)", c.name)));
            self.end(Ending::Tripped(self.calls_note.clone()));
        } else {
            self.admit(calls, judged);
        }
    }

    /// The calls of the current round; empty unless the phase is [`Phase::Acting`].
    #[must_use]
    pub fn open_calls(&self) -> &[OpenCall] {
        match &self.phase {
            Phase::Acting(calls) => calls,
            Phase::Thinking | Phase::Ended(_) => &[],
        }
    }

    /// Once every call has its result, adds the results to the context and starts the next round.
    pub fn settle(&mut self) {
        self.hand_to_caller();
        if self.begin_advice() {
            return;
        }
        let Phase::Acting(calls) = &mut self.phase else { return };
        if calls.iter().any(|o| o.result.is_none()) {
            return;
        }
        let calls = std::mem::take(calls);
        if self.workflow.is_some() {
            self.step_settled(&calls);
            return;
        }
        self.push_results(&calls);
        if self.repeats >= REPEATS_MAX {
            // The answer will be made from the receipts. The kernel ends the run, so the finish reason is not the model's call.
            self.finish = Finish::Stop;
            self.end(Ending::Output(String::new()));
            return;
        }
        if self.guard.is_spent() {
            self.end(Ending::GaveUp("The same call came up again and again without progress.".to_owned()));
            return;
        }
        if let Some(text) = ready::answer_of(&calls) {
            self.end(Ending::Ready(text));
            return;
        }
        // Commands after a failed one did not run and returned their calls, so the limit may not be reached after all.
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

    /// Starts another round after the model failed. The failed round does not count.
    pub fn again(&mut self) {
        self.rounds_max = self.rounds_max.saturating_add(1);
        self.begin_round();
    }

    fn begin_round(&mut self) {
        self.round += 1;
        self.phase = Phase::Thinking;
        self.deliver_steered();
    }

    /// Starts the next round, unless all rounds are used.
    pub fn next_round(&mut self) {
        if self.round >= self.rounds_max {
            self.end(Ending::Tripped(format!("Reached the limit of {} rounds.", self.rounds_max)));
        } else {
            self.begin_round();
        }
    }
}
