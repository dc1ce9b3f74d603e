//! One agent's loop: think, act, think … until it has something to say (S0 4, S4 3.1). The same code for the agent that
//! answers the user and for sub-agents; they differ in kind and limits.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    event::{Action, Mode, PlannedSkill, ResolvedCall},
    ids::AgentId,
    limits::SubAgentInterface,
    loop_guard::{LoopGuard, LoopLevel, Verdict},
    message::{Message, ModelError, ToolCall, Usage},
    outcome::{Outcome, Status},
    plan::first_line,
};

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
    /// Whether it writes commands, whose calls run one after the other (S0 15.4).
    #[must_use]
    pub const fn is_cmd(self) -> bool {
        matches!(self, Self::Sub(SubAgentInterface::Cmd))
    }
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
    /// Its model failed.
    ModelFailed(ModelError),
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
    /// What it is doing.
    pub phase: Phase,
    /// Watches for loops.
    pub guard: LoopGuard,
    /// What its rounds cost.
    pub usage: Usage,
    /// What it got done, one line each, for reports.
    pub done: Vec<String>,
    /// What it could not do any more, one line each.
    pub undone: Vec<String>,
    /// An empty reply was pointed out to it.
    nudged: bool,
    /// It was told that its calls are used up.
    wrapping_up: bool,
}

const NUDGE: &str = "[Your reply was empty. Answer in words, or use your tools.]";

impl AgentRun {
    /// A run about to think for the first time.
    #[must_use]
    pub fn new(agent: AgentId, kind: RunKind, messages: Vec<Message>, rounds_max: u32, calls_max: u32) -> Self {
        let stable = messages.len().saturating_sub(1);
        Self {
            agent,
            kind,
            messages,
            stable,
            round: 1,
            rounds_max,
            calls_used: 0,
            calls_max,
            phase: Phase::Thinking,
            guard: LoopGuard::default(),
            usage: Usage::default(),
            done: Vec::new(),
            undone: Vec::new(),
            nudged: false,
            wrapping_up: false,
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

    /// Whether a reply to this round is awaited.
    #[must_use]
    pub fn awaits(&self, round: u32) -> bool {
        self.phase == Phase::Thinking && self.round == round
    }

    /// Takes the reply of the current round. A late or repeated one changes nothing.
    pub fn replied(&mut self, round: u32, text: &str, calls: &[ResolvedCall], usage: &Usage) {
        if !self.awaits(round) {
            return;
        }
        self.usage.add(usage);
        let tool_calls = if self.kind.is_cmd() {
            Vec::new()
        } else {
            calls
                .iter()
                .map(|c| ToolCall { id: c.id.clone(), name: c.name.clone(), arguments: c.raw.clone() })
                .collect()
        };
        self.messages.push(Message::Assistant { text: text.to_owned(), tool_calls });
        if calls.is_empty() {
            self.said(text);
        } else if self.wrapping_up {
            self.undone.extend(calls.iter().map(|c| format!("{} (tool call limit reached)", c.name)));
            self.end(Ending::Tripped(format!("Reached the tool call limit ({}).", self.calls_max)));
        } else {
            let mut open = Vec::with_capacity(calls.len());
            let mut broken = false;
            for call in calls {
                open.push(self.admit(call, &mut broken));
            }
            self.phase = Phase::Acting(open);
        }
    }

    fn said(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.end(Ending::Said(text.trim().to_owned()));
        } else if self.nudged {
            self.end(Ending::GaveUp("The model gave an empty answer twice.".to_owned()));
        } else {
            self.nudged = true;
            self.messages.pop();
            self.messages.push(Message::user(NUDGE));
            self.next_round();
        }
    }

    /// Decides whether a call may go ahead. In a sequence of commands, those behind a broken one are not run.
    fn admit(&mut self, call: &ResolvedCall, broken: &mut bool) -> OpenCall {
        let mut open = OpenCall { call: call.clone(), result: None, started: false, warning: None };
        if *broken && self.kind.is_cmd() {
            open.result = Some(NOT_RUN.to_owned());
            return open;
        }
        let counts = match (&call.action, self.kind) {
            (Action::Skill(_), _) => true,
            (Action::Answer { .. }, RunKind::Main(Mode::SingleLoop | Mode::Direct)) => true,
            _ => false,
        };
        if counts && self.calls_used >= self.calls_max {
            open.result = Some(format!("[not run] The limit of {} tool calls is reached.", self.calls_max));
            self.undone.push(format!("{} {}", call.name, first_line(&call.raw)));
            self.wrapping_up = true;
            return open;
        }
        let verdict = self.guard.judge(&call.name, &guard_arguments(call));
        if verdict.level == LoopLevel::Critical {
            open.result = Some(format!("[blocked] {}", verdict.message));
            return open;
        }
        if counts {
            self.calls_used += 1;
        }
        match &call.action {
            Action::Answer { text, is_error } => {
                *broken |= is_error;
                self.guard.record(&call.name, &guard_arguments(call), Some(text), *is_error);
                open.result = Some(with_warning(text.clone(), &verdict));
            }
            Action::Skill(_) | Action::Dispatch(_) | Action::Collect { .. } => {
                open.warning = (verdict.level == LoopLevel::Warning).then_some(verdict.message);
            }
        }
        open
    }

    /// Notes that a breaker let a run begin.
    pub fn skill_started(&mut self, call_id: &str) {
        if let Some(open) = self.open_call(call_id) {
            open.started = true;
        }
    }

    /// Takes a skill's outcome. One that is not awaited changes nothing.
    pub fn skill_finished(&mut self, call_id: &str, skill: &str, outcome: &Outcome) {
        let is_cmd = self.kind.is_cmd();
        let Some(open) = self.open_call(call_id).filter(|o| o.result.is_none()) else { return };
        let text = outcome.to_llm_string();
        let shown = match &open.warning {
            Some(warning) => format!("{text}\n{warning}"),
            None => text.clone(),
        };
        open.result = Some(shown);
        let arguments = guard_arguments(&open.call);
        let name = open.call.name.clone();
        self.guard.record(&name, &arguments, Some(&text), false);
        let line = first_line(&outcome.data);
        match outcome.status {
            Status::Success | Status::Partial | Status::Pending => self.done.push(format!("{skill}: {line}")),
            Status::Unknown => self.undone.push(format!("{skill}: it is not known whether it happened ({line})")),
            _ => self.undone.push(format!("{skill}: {line}")),
        }
        if is_cmd && !outcome.status.is_ok() {
            self.skip_the_rest();
        }
    }

    fn skip_the_rest(&mut self) {
        if let Phase::Acting(calls) = &mut self.phase {
            for open in calls.iter_mut().filter(|o| o.result.is_none() && !o.started) {
                open.result = Some(NOT_RUN.to_owned());
            }
        }
    }

    /// Gives a call its result.
    pub fn answer(&mut self, call_id: &str, text: String) {
        if let Some(open) = self.open_call(call_id)
            && open.result.is_none()
        {
            open.result = Some(text);
        }
    }

    fn open_call(&mut self, call_id: &str) -> Option<&mut OpenCall> {
        match &mut self.phase {
            Phase::Acting(calls) => calls.iter_mut().find(|o| o.call.id == call_id),
            Phase::Thinking | Phase::Ended(_) => None,
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
        let at_once = if self.kind.is_cmd() { 1 } else { usize::MAX };
        self.open_calls()
            .iter()
            .filter(|o| o.result.is_none())
            .filter_map(|o| match &o.call.action {
                Action::Skill(planned) => Some((o, planned)),
                _ => None,
            })
            .take(at_once)
    }

    /// Once every call has its result, hands the results to the model and thinks again.
    pub fn settle(&mut self) {
        let Phase::Acting(calls) = &self.phase else { return };
        if calls.iter().any(|o| o.result.is_none()) {
            return;
        }
        let results: Vec<(String, String, String)> = calls
            .iter()
            .map(|o| (o.call.id.clone(), o.call.name.clone(), o.result.clone().unwrap_or_default()))
            .collect();
        if self.kind.is_cmd() {
            let blocks: Vec<String> =
                results.iter().map(|(_, name, text)| format!("[Command Result: {name}]\n{text}")).collect();
            self.messages.push(Message::user(blocks.join("\n\n")));
        } else {
            self.messages.extend(results.into_iter().map(|(call_id, _, text)| Message::Tool { call_id, text }));
        }
        if self.guard.is_spent() {
            self.end(Ending::GaveUp("The same call came up again and again without progress.".to_owned()));
            return;
        }
        if matches!(self.kind, RunKind::Sub(_)) && self.calls_used >= self.calls_max {
            self.wrapping_up = true;
        }
        if self.wrapping_up {
            if matches!(self.kind, RunKind::Main(_)) {
                self.end(Ending::Tripped(format!("Reached the limit of {} tool calls in a turn.", self.calls_max)));
                return;
            }
            self.note(&format!("[All {} tool calls are used. Report now, in words.]", self.calls_max));
        }
        self.next_round();
    }

    /// Tells the model something from the kernel.
    pub fn note(&mut self, text: &str) {
        match self.messages.last_mut() {
            Some(Message::User { text: last, .. }) => {
                last.push_str("\n\n");
                last.push_str(text);
            }
            _ => self.messages.push(Message::user(text)),
        }
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

const NOT_RUN: &str = "[not run] A command before it failed.";

fn with_warning(text: String, verdict: &Verdict) -> String {
    if verdict.level == LoopLevel::Warning { format!("{text}\n{}", verdict.message) } else { text }
}

/// What the loop guard compares: validated arguments where there are any, else the raw text.
fn guard_arguments(call: &ResolvedCall) -> Value {
    match &call.action {
        Action::Skill(planned) => planned.arguments.clone(),
        _ => Value::from(call.raw.clone()),
    }
}
