//! How the main agent calls skills: with tools, or with commands, which are calls that it writes as text in a fenced
//! `cmd` block (ADR 0015). This file switches a turn from tools to commands if the backend or its model cannot use
//! tools. It also has what depends on the interface: the steps that later turns see, and the reminders to an agent that
//! called no skill.

use serde_json::Value;

use super::{
    calls::{DONE_ALREADY, SAME_RESULT},
    conversation::Turn,
    opening,
    run::{AgentRun, Ending, Phase, RunKind},
    truth::{self, Earlier},
};
use crate::{
    alternatives::REQUEST,
    context::{Step, clip, framed, unescape},
    event::{EventBody, Mode},
    limits::MainInterface,
    message::{Message, ModelErrorKind, ToolCall},
};

/// After this many consecutive rounds with only malformed calls, the model counts as unable to use tools.
pub(super) const UNUSABLE_ROUNDS_MAX: u32 = 3;
/// How many rounds of a finished turn later turns see.
const STEPS_MAX: usize = 3;
/// How much of each reply and result of these rounds, in bytes.
const STEP_BYTES_MAX: usize = 500;
/// The most calls of one of these rounds.
const STEP_CALLS_MAX: usize = 4;
/// The reminder to a sub-agent that writes commands and ran none.
const ACT_CMD: &str = "[You ran no command. Write it in a ```cmd block, or say why not.]";
/// The reminder to a sub-agent that calls tools and called no skill.
const ACT_JSON: &str = "[You called no skill. Call use_skill, or say why not.]";
/// The reminder to a main agent whose final text claims an effect without a command, if the text may mean an effect of
/// an earlier turn.
const CLAIMED_AGAIN: &str = "[You ran no command for this message. If it asks for something to be done, write the cmd block that does \
    it now; if you tell of what was done before, say so.]";
/// The same reminder if the user's message requests no change.
const CLAIMED_UNASKED: &str = "[Nothing was changed, and this message asks for no change. Answer it without saying that something was \
    done.]";
/// The same reminder in all other cases.
const CLAIMED: &str = "[Nothing was done: you ran no command for this message. Write the cmd block that does it now, or answer \
    without saying that it was done.]";

impl Turn {
    /// The switch to commands, if an error of the backend or the model's replies require it.
    pub(super) fn change_of_interface(&self) -> Option<EventBody> {
        let may = self.limits.main_interface == MainInterface::Auto && !self.main.is_cmd() && !self.clock.hard_passed;
        // Dispatched agents need an orchestrator, which the command interface does not have. A caller's own tools stay tools.
        if !may || !self.agents.plan.nodes().is_empty() || self.inbound.thread().is_some() {
            return None;
        }
        let reason = match &self.main.phase {
            Phase::Ended(Ending::ModelFailed(error)) if error.refuses_tools() => {
                format!("the backend refuses tools: {}", error.detail)
            }
            Phase::Ended(Ending::ModelFailed(error)) if error.kind == ModelErrorKind::MalformedCall => {
                format!("the model's calls cannot be read: {}", error.detail)
            }
            Phase::Thinking if self.main.unusable_rounds >= UNUSABLE_ROUNDS_MAX => {
                "the replies had no usable call".to_owned()
            }
            Phase::Thinking | Phase::Acting(_) | Phase::Ended(_) => return None,
        };
        Some(EventBody::InterfaceChanged { to: MainInterface::Cmd, reason })
    }

    /// Switches the turn to commands.
    pub(super) fn switch_to_commands(&mut self, window_used: u32) {
        if self.main.is_cmd() || !self.agents.plan.nodes().is_empty() {
            return;
        }
        self.mode = MainInterface::Cmd.mode(self.mode);
        let limits = opening::run_limits(self.mode, &self.limits, window_used);
        self.main.rounds_max = self.main.rounds_max.max(limits.rounds_max);
        (self.main.calls_max, self.main.calls_note) =
            opening::own_calls(self.mode, &self.limits, self.main.calls_used, window_used);
        self.main.switch_to_commands(self.mode);
        if matches!(self.main.phase, Phase::Ended(Ending::ModelFailed(_))) {
            self.main.again();
        }
    }
}

impl AgentRun {
    /// Switches the run to commands. If no call of this turn was done, failed or is in doubt, all its calls were
    /// malformed or asked for help: they are dropped from the context, because the model would imitate them. Otherwise they are kept as
    /// equivalent commands.
    fn switch_to_commands(&mut self, mode: Mode) {
        let has_run = !(self.done.is_empty() && self.undone.is_empty() && self.in_doubt.is_empty());
        // Messages before the user's message belong to history, or to the paused turn that this turn continues.
        let is_of_the_user = |m: &Message| match m {
            Message::User { text, .. } => !text.starts_with(USER_ADDS) && !text.starts_with(RESULT),
            Message::Assistant { .. } | Message::Tool { .. } | Message::Note { .. } => false,
        };
        let own_from = self.messages.iter().rposition(is_of_the_user).unwrap_or(self.stable) + 1;
        self.begin_with_commands(mode, if has_run { usize::MAX } else { own_from });
    }

    /// Makes the run write commands. Tool calls in its context become commands; from message `forget_from` on they are dropped.
    pub(super) fn begin_with_commands(&mut self, mode: Mode, forget_from: usize) {
        (self.kind, self.by_commands, self.unusable_rounds) = (RunKind::Main(mode), true, 0);
        for (at, message) in std::mem::take(&mut self.messages).into_iter().enumerate() {
            if at < forget_from || !is_of_a_call(&message) {
                self.push_as_command(message);
            }
        }
        self.stable = self.stable.min(self.messages.len());
    }

    /// The steps of this run that later turns see: its last rounds whose calls all succeeded. A model would imitate failed calls,
    /// and calls that it made again although they were done.
    pub(super) fn steps(&self) -> Vec<Step> {
        let all = if self.by_commands { self.steps_by_commands() } else { self.steps_by_tools() };
        let mut steps: Vec<Step> = Vec::with_capacity(all.len());
        for step in all {
            if is_done_again(&step) || step.results().iter().all(|result| result.ends_with(SAME_RESULT.trim())) {
                continue;
            }
            // A later step with the same calls replaces an earlier one, because its results are newer. But if one of
            // the calls was not run again because of a receipt, only the earlier step has its result.
            if !step.results().iter().any(|result| result.starts_with(DONE_ALREADY)) {
                steps.retain(|before| !before.has_same_calls(&step));
            }
            steps.push(step);
        }
        steps.drain(..steps.len().saturating_sub(STEPS_MAX));
        steps
    }

    fn steps_by_tools(&self) -> Vec<Step> {
        let RunKind::Main(mode) = self.kind else { return Vec::new() };
        let messages = &self.messages[self.stable.min(self.messages.len())..];
        let step = |(at, message): (usize, &Message)| {
            let Message::Assistant { tool_calls, .. } = message else { return None };
            // The prompt already describes the skills.
            if tool_calls.is_empty()
                || tool_calls.iter().all(|call| matches!(call.name.as_str(), "get_skill" | REQUEST))
            {
                return None;
            }
            let results = messages.get(at + 1..at + 1 + tool_calls.len())?;
            let calls = tool_calls.iter().zip(results).map(|(call, result)| match result {
                Message::Tool { text, is_error: false, .. } if call.arguments.len() <= STEP_BYTES_MAX => {
                    let call = ToolCall { id: String::new(), ..call.clone() };
                    Some((call, clip(text, STEP_BYTES_MAX).into_owned()))
                }
                _ => None,
            });
            let calls = calls.collect::<Option<Vec<_>>>()?;
            (calls.len() <= STEP_CALLS_MAX).then(|| Step { calls, mode: Some(mode), ..Step::default() })
        };
        messages.iter().enumerate().filter_map(step).collect()
    }

    fn steps_by_commands(&self) -> Vec<Step> {
        let rounds = self.messages[self.stable.min(self.messages.len())..].windows(2);
        let step = |round: &[Message]| match round {
            [Message::Assistant { text: commands, .. }, Message::User { text: results, .. }] => {
                let results = framed(results, "result");
                let ok = results.iter().all(|r| r.attributes.contains("status=\"ok\""));
                let shown = results.iter().map(|r| self.frames.wrap("result", &[], &clip(&r.text, STEP_BYTES_MAX)));
                let results = shown.collect::<Vec<_>>().join("\n");
                (ok && !results.is_empty() && commands.len() <= STEP_BYTES_MAX).then(|| Step {
                    commands: only_commands(commands),
                    results,
                    ..Step::default()
                })
            }
            _ => None,
        };
        rounds.filter_map(step).collect()
    }

    fn push_as_command(&mut self, message: Message) {
        match message {
            Message::Assistant { text, tool_calls, .. } if !tool_calls.is_empty() => {
                let commands: Vec<String> = tool_calls.iter().map(as_command).collect();
                let text = format!("{text}\n```cmd\n{}\n```", commands.join("\n"));
                self.messages.push(Message::assistant(text.trim().to_owned()));
            }
            Message::Tool { text, .. } => {
                let framed = self.frames.wrap("result", &[], &unescape(&text));
                match self.messages.last_mut() {
                    Some(Message::User { text: last, .. }) if last.starts_with(RESULT) => {
                        last.push('\n');
                        last.push_str(&framed);
                    }
                    _ => self.messages.push(Message::user(framed)),
                }
            }
            other => self.messages.push(other),
        }
    }
}

/// The commands of a reply without the words around them, which often repeat an error.
fn only_commands(reply: &str) -> String {
    let commands: Vec<String> = crate::command::extract(reply).into_iter().flatten().collect();
    if commands.is_empty() { reply.to_owned() } else { format!("```cmd\n{}\n```", commands.join("\n")) }
}

/// Whether all calls of a step requested effects that have receipts already, perhaps in other words.
fn is_done_again(step: &Step) -> bool {
    step.results().iter().all(|result| result.starts_with(DONE_ALREADY))
}

/// The beginning of user messages that arrived during the turn.
pub(super) const USER_ADDS: &str = "[The user adds";

/// Reminders for final texts that claim or need an action, although the agent ran none.
impl AgentRun {
    /// The reminder for an agent with such a final text; `None` if the agent was reminded already, or if its model
    /// declared that it did not do what was asked.
    pub(super) fn nudge_to_act(&self, words: &str) -> Option<&'static str> {
        if self.declined || self.reminded_to_act {
            return None;
        }
        if self.claims_without_acting(words) {
            // A reminder to act would cause an action that the user did not request.
            if self.asks_only {
                return Some(CLAIMED_UNASKED);
            }
            // An effect of an earlier turn must not be repeated because the answer mentions it.
            return Some(if self.earlier.is_empty() || self.is_requested { CLAIMED } else { CLAIMED_AGAIN });
        }
        self.has_done_nothing(words).then_some(if self.is_cmd() { ACT_CMD } else { ACT_JSON })
    }

    /// Whether this is a sub-agent that ran no skill although its mission needs an action or its final text claims one.
    #[must_use]
    pub(super) fn has_done_nothing(&self, words: &str) -> bool {
        let is_sub_without_programs = matches!(self.kind, RunKind::Sub(_)) && !self.programs_ran;
        is_sub_without_programs
            && self.ran.is_empty()
            && !self.found_done
            && (self.is_to_act || truth::untrue_claim(words, false, &Earlier::default()).is_some())
    }

    /// Whether a main agent that writes commands claims an effect that did not happen. Small models tend to repeat their earlier
    /// answers.
    pub(super) fn claims_without_acting(&self, words: &str) -> bool {
        let has_no_effect = !self.programs_ran && self.receipts.is_empty() && self.known.is_empty();
        self.by_commands
            && has_no_effect
            && self.in_doubt.is_empty()
            && truth::untrue_claim(words, !self.ran.is_empty(), &self.of_earlier_turns()).is_some()
    }
}

impl AgentRun {
    /// The effects of earlier turns, and what the turn was asked and has read.
    pub(super) fn of_earlier_turns(&self) -> Earlier<'_> {
        Earlier {
            receipts: &self.earlier,
            is_asked: self.is_asked,
            is_requested: self.is_requested,
            has_request: self.has_request,
            messages: &self.messages[self.stable.min(self.messages.len())..],
        }
    }
}

/// The beginning of a message that contains results.
const RESULT: &str = "<result-";

fn is_of_a_call(message: &Message) -> bool {
    match message {
        Message::Assistant { .. } | Message::Tool { .. } => true,
        // The message may also contain an addition of the user.
        Message::User { text, .. } => text.starts_with(RESULT) && !text.contains(&format!("\n{USER_ADDS}")),
        Message::Note { .. } => false,
    }
}

/// A tool call as the equivalent command: the skill's name, and its arguments as one JSON object.
fn as_command(call: &ToolCall) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    match (call.name.as_str(), arguments["skill"].as_str()) {
        ("use_skill", Some(skill)) => format!("{skill} {}", arguments["arguments"]),
        (name, _) => format!("{} {arguments}", name.replace("__", ".")),
    }
}
