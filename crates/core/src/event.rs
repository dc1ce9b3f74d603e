//! The one persisted type: what happened, in the order in which it happened, per conversation. The log of these is the
//! authority; everything else is rebuilt from it. Bodies are versioned JSON and old versions stay readable for ever
//! (`tests/golden`): a field is added with a default, never renamed and never given another meaning.

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::{agent_report::AgentReport, answer::AnswerOutcome};
use crate::{
    classify::Spoken,
    ids::{AgentId, ConversationId, IntentId, Seq, TaskId, UserId},
    letter::{Letter, LetterLimits, LetterState, Strategy},
    limits::{MainInterface, TurnLimits},
    message::{Finish, ModelError, ModelReply, Repair, ToolCall, Usage},
    outcome::Outcome,
    skill::Effect,
    time::Micros,
};

pub use crate::inbound::{Inbound, Retry};

/// The version that this build writes into `v`.
pub const EVENT_VERSION: u16 = 1;

/// Scheduling class of a task, most urgent first [S3 5.2.2].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Voice; never queued.
    Realtime,
    /// A person is waiting.
    #[default]
    High,
    /// A person asked, and does not wait.
    Normal,
    /// The system asked.
    Low,
    /// Maintenance.
    Background,
}

impl Priority {
    /// All classes, most urgent first.
    pub const ALL: [Self; 5] = [Self::Realtime, Self::High, Self::Normal, Self::Low, Self::Background];

    /// 0 for `Realtime` to 4 for `Background`.
    #[must_use]
    pub const fn level(self) -> u8 {
        self as u8
    }

    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Realtime => "realtime",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Background => "background",
        }
    }
}

/// How a conversation's turns are run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// An orchestrator with three tools, and sub-agents that carry out.
    #[default]
    MultiAgent,
    /// One agent with `get_skill` and `use_skill`.
    SingleLoop,
    /// One agent with every skill as a tool of its own.
    Direct,
}

impl Mode {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MultiAgent => "multi_agent",
            Self::SingleLoop => "single_loop",
            Self::Direct => "direct",
        }
    }
}

/// What a turn's prompts are made of besides the conversation, read once when the turn begins and recorded, so that a
/// replay builds the same prompts [S0 6.1].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptFacts {
    /// Static part: the domain list with each domain's skills.
    pub skills: String,
    /// The domains, sorted: what `get_skill` may be asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// In `direct` mode, every skill as a tool of its own, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manual: Vec<SkillManual>,
    /// How the user is called.
    pub user_name: String,
    /// IANA name of the user's time zone.
    pub timezone: String,
    /// The user's local date and time when the turn began: `2026-02-18 14:05 Wednesday`.
    pub local_now: String,
    /// What the model is given in place of the user's words: a prompt skill that the user invoked by `/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoken: Option<String>,
    /// What the user is told below the answer: that a rule would have another backend do it. Or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suggestion: String,
    /// How the answer should sound, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tone: String,
    /// What kind of request was spoken, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoken_as: Option<Spoken>,
    /// One line on open tasks, or empty.
    #[serde(default)]
    pub todo_summary: String,
    /// Memories that fit the message, without what is known of them: written before [`Self::recalled`] was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memories: Vec<String>,
    /// Memories that fit the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recalled: Vec<Recalled>,
    /// Through which channel the user speaks: `cli`, `http`, `voice` …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
}

/// A memory as a prompt shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalled {
    /// Its number.
    pub number: u64,
    /// What is remembered, as it was stored.
    pub text: String,
    /// What kind of thing it is: `fact`, `preference` …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// What its author had read before writing it, other than the user's words; empty if nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
}

/// What a tool call or command of a model's reply was understood to mean, worked out once against the skills as they were
/// and recorded with the reply, so that a replay needs no catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// The kernel answers at once: `get_skill`, `--help`, or an error that the model can correct.
    Answer {
        /// The text for the model.
        text: String,
        /// Whether it is an error (a wrong flag, an unknown skill, broken JSON).
        #[serde(default)]
        is_error: bool,
        /// Whether what was called does not exist at all.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_unknown: bool,
        /// The call has not the form of a call: a tool that does not exist, or arguments that are no JSON object. A model
        /// that writes only such calls cannot use tools.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_malformed: bool,
    },
    /// Run a skill.
    Skill(PlannedSkill),
    /// Start a sub-agent when its dependencies are done.
    Dispatch(DispatchSpec),
    /// Wait for sub-agents and give their results.
    Collect {
        /// Which; empty means all of this turn.
        agents: Vec<AgentId>,
    },
    /// A tool of the program that the turn is run for: the turn ends, and the program's next request brings the result.
    Caller,
}

/// A skill run that the model asked for and that passed validation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedSkill {
    /// The intent: idempotency key of the run.
    pub intent: IntentId,
    /// The skill's name.
    pub skill: String,
    /// The validated arguments.
    pub arguments: Value,
    /// What a repetition would mean.
    pub effect: Effect,
    /// Whether it reaches outside.
    #[serde(default)]
    pub external: bool,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
    /// What its author had read before, other than the user's words: names of skills, `pasted`. What it stores carries them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origin: Vec<String>,
}

/// One `dispatch_agent` [S4 2.2], validated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchSpec {
    /// Its name in this turn.
    pub agent: AgentId,
    /// What it is to accomplish.
    pub mission: String,
    /// The skills it may use, sorted.
    pub skills: Vec<String>,
    /// More context from the orchestrator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// Whose results it needs first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<AgentId>,
    /// Tool calls it may make.
    pub max_tool_calls: u32,
    /// The help texts of its skills as they were (name, help), sorted by name: its prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manual: Vec<SkillManual>,
}

/// What a sub-agent is told of one skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillManual {
    /// The skill.
    pub name: String,
    /// One sentence.
    pub description: String,
    /// The usage line.
    pub synopsis: String,
    /// JSON Schema of the arguments as text, for the `json` interface.
    pub schema: String,
    /// Whether running it changes something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes: bool,
}

/// One call of a reply, with what it means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedCall {
    /// The model's id of a tool call, or `cmd_<round>_<n>` for a command in a fenced block.
    pub id: String,
    /// The tool's name, or the command's first word.
    pub name: String,
    /// The raw arguments: JSON text, or the command line.
    pub raw: String,
    /// What it means.
    pub action: Action,
}

/// How a sub-agent ended: `completed`, `failed` and `timeout` [S4 2.3], and the kernel's own endings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportStatus {
    /// It finished its mission, or as much as its budget allowed.
    Completed,
    /// It ran no skill, though its mission wanted something done.
    NoAction,
    /// It could not.
    Failed,
    /// Its time was up.
    Timeout,
    /// Its actor died.
    Crashed,
    /// Something it depends on failed, or there was no budget left.
    Skipped,
    /// The turn was cancelled.
    Cancelled,
}

impl ReportStatus {
    /// Whether the agent itself came to an end, and was not ended.
    #[must_use]
    pub const fn ended_by_itself(self) -> bool {
        matches!(self, Self::Completed | Self::NoAction | Self::Failed)
    }

    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::NoAction => "no_action",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Crashed => "crashed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why an Engine had to take up an open turn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeCause {
    /// The Engine died; the message may be to blame.
    Crash,
    /// The process ended.
    Restart,
    /// The Engine died over something else: another turn of the conversation.
    Bystander,
}

/// What an order does with tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderVerb {
    /// Nothing: it only asked.
    Tell,
    /// Makes them HIGH, and lets them go on if they are held back.
    First,
    /// Makes them HIGH, and leaves those held back that are.
    Urgent,
    /// Ends them.
    Cancel,
    /// Holds them back.
    Suspend,
    /// Lets them go on.
    Continue,
}

/// What happened. The `kind` tag is the event's name in the log, the stream and the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventBody {
    /// A message was accepted: from here on it is never lost. Written by a door's append, before it acknowledges.
    Received(Inbound),
    /// A message has no turn of its own: it steers a turn under way, or gets the answer of equal work. From here on, and not
    /// from its place in the log, it is the turn's: the Engine may hear of it later than the log has it.
    Joined {
        /// The task whose turn it steers, or whose answer it gets.
        into: TaskId,
    },
    /// The Engine began the turn.
    TurnStarted {
        /// The mode it runs in.
        mode: Mode,
        /// What its prompts are made of.
        facts: PromptFacts,
        /// What it may use up, where that is not the default.
        #[serde(default, skip_serializing_if = "TurnLimits::is_default")]
        limits: TurnLimits,
        /// The backends that may run its rounds, the one meant first; nothing means the first that is configured.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        route: Vec<String>,
        /// The paused turn that this one goes on from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continues: Option<TaskId>,
    },
    /// A round begins on a backend that works by itself: what it does may take effect, so the round is not run again. Not
    /// written for others.
    RoundBegan {
        /// Which round of this agent.
        round: u32,
        /// On which backend.
        backend: String,
    },
    /// A round that [`Self::RoundBegan`] announced did not begin there, or the backend refused it at once: nothing took effect.
    /// The round may run on another backend.
    RoundNotBegun {
        /// Which round of this agent.
        round: u32,
        /// On which backend.
        backend: String,
    },
    /// A model answered, and its calls were understood.
    ModelReplied {
        /// Which round of this agent, from 1.
        round: u32,
        /// The visible text.
        text: String,
        /// Its calls, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ResolvedCall>,
        /// Why it stopped.
        #[serde(default)]
        finish: Finish,
        /// What it cost.
        #[serde(default)]
        usage: Usage,
        /// The model that answered.
        #[serde(default)]
        model: String,
        /// The backend that ran it.
        #[serde(default)]
        backend: String,
        /// The replier says itself that it did not do what was asked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        declined: bool,
        /// What the provider wants back with its calls: see [`ModelReply::provider_state`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_state: Option<Value>,
        /// What was mended in the reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        repairs: Vec<Repair>,
        /// How long the round waited for its permit, in milliseconds: a queue is not the task's time.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
        /// How long the model read before its first token, in milliseconds: that is no time in which it could have come to an
        /// end, so the soft deadline does not count it.
        #[serde(default, skip_serializing_if = "is_zero")]
        prefill_ms: u64,
    },
    /// A model call failed for good.
    ModelFailed {
        /// Which round.
        round: u32,
        /// Why.
        error: ModelError,
        /// How long the round waited for its permits, in milliseconds.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// The agent that answers the user calls skills in another way from its next round on.
    InterfaceChanged {
        /// Which way.
        to: MainInterface,
        /// Why.
        reason: String,
    },
    /// A breaker let a run begin. Not written for `read` skills.
    SkillStarted {
        /// The intent.
        intent: IntentId,
        /// Which call.
        call_id: String,
        /// The skill.
        skill: String,
    },
    /// A run's result and its receipt.
    SkillFinished {
        /// The intent.
        intent: IntentId,
        /// Which call.
        call_id: String,
        /// The skill.
        skill: String,
        /// What it came to.
        outcome: Outcome,
        /// How long it took, in milliseconds.
        #[serde(default)]
        duration_ms: u64,
    },
    /// A sub-agent may start: its dependencies are done and so many tool calls are set aside for it.
    AgentStarted {
        /// Tool calls granted out of the turn's budget.
        calls_granted: u32,
    },
    /// A sub-agent ended. Exactly one for each dispatched agent.
    AgentReported {
        /// The report.
        report: AgentReport,
    },
    /// Someone asked to cancel the task.
    CancelRequested {
        /// Who.
        by: String,
    },
    /// The kernel decided something, with its reasons [S3 11.2].
    Decided {
        /// Who decided: `orchestrator`, `limits`, `loop_guard`, `recovery` …
        component: String,
        /// What.
        decision: String,
        /// Why.
        reasoning: String,
        /// What else was considered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        alternatives: Vec<String>,
    },
    /// The orchestrator wanted to answer without having looked at its agents' results, and was given them.
    ResultsGiven,
    /// A new life of the Engine took up this open turn.
    Resumed {
        /// Why the former life ended.
        cause: ResumeCause,
    },
    /// Somebody holds the task back: no further round of it starts until [`Self::Continued`].
    Suspended {
        /// Who.
        by: String,
    },
    /// A task that was held back may go on.
    Continued {
        /// Who said so.
        by: String,
    },
    /// Somebody changed the task's class.
    Reprioritised {
        /// The new one.
        priority: Priority,
        /// Who.
        by: String,
    },
    /// A deadline of the task's class has passed [S3 5.3.5].
    DeadlinePassed {
        /// The hard one, which ends or defers the task; the soft one asks its model to come to an end.
        hard: bool,
        /// What becomes of a dead letter, where the turn that would say so has not begun; nothing means the defaults.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        letters: Option<LetterLimits>,
    },
    /// The task goes on later; until then others go first.
    Deferred {
        /// When.
        until: Micros,
        /// Why.
        reason: String,
        /// Its model failed: it goes on as soon as that answers again, if this is sooner.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        after_failure: bool,
    },
    /// The turn failed and is tried in another way.
    Retried {
        /// Which way.
        strategy: Strategy,
        /// What failed.
        reason: String,
    },
    /// An order about tasks was understood; what follows does just this, also after a restart.
    Ordered {
        /// What is to be done.
        verb: OrderVerb,
        /// With which tasks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        targets: Vec<TaskId>,
        /// What the user is told.
        text: String,
    },
    /// A dead letter is to be tried again as soon as there is a place for it.
    LetterDue {
        /// Who asked for it.
        by: String,
    },
    /// A dead letter was taken out of the list, or put aside for good.
    LetterMoved {
        /// What it is now.
        state: LetterState,
        /// Who did it.
        by: String,
    },
    /// The final answer. One of the three final events that every accepted message gets exactly once.
    Answered {
        /// The text.
        text: String,
        /// A limit was reached, and "continue" goes on from here [S0 5.2].
        #[serde(default)]
        paused: bool,
        /// What the whole turn cost.
        #[serde(default)]
        usage: Usage,
        /// Whether the request was carried out, as far as the kernel knows.
        #[serde(default, skip_serializing_if = "AnswerOutcome::is_done")]
        outcome: AnswerOutcome,
        /// Why the model stopped writing the text; anything but `stop` means that the text is not whole.
        #[serde(default, skip_serializing_if = "Finish::is_stop")]
        finish: Finish,
        /// Calls of the caller's own tools: the caller runs them, and its next request brings their results.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
    },
    /// The visible failure.
    Failed {
        /// A short stable word.
        code: String,
        /// What the user is told.
        text: String,
        /// What the operator is told.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
        /// It goes to the dead letters; nothing if trying again would be pointless or unwanted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        letter: Option<Letter>,
    },
    /// Cancelled at somebody's request.
    Cancelled {
        /// What the user is told.
        text: String,
    },
}

/// Whether a number is not worth storing.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl EventBody {
    /// A round's reply with its calls as they were understood.
    #[must_use]
    pub fn replied(round: u32, reply: ModelReply, calls: Vec<ResolvedCall>, backend: String) -> Self {
        let ModelReply { text, tool_calls: _, finish, usage, model, declined, provider_state, repairs } = reply;
        let (waited_ms, prefill_ms) = (0, 0);
        Self::ModelReplied {
            round,
            text,
            calls,
            finish,
            usage,
            model,
            backend,
            declined,
            provider_state,
            repairs,
            waited_ms,
            prefill_ms,
        }
    }

    /// The same for a reply whose model read for this long before its first token, in milliseconds.
    #[must_use]
    pub fn after_prefill(mut self, ms: u64) -> Self {
        if let Self::ModelReplied { prefill_ms, .. } = &mut self {
            *prefill_ms = ms;
        }
        self
    }

    /// The same for a reply whose round waited this long for its permit, in milliseconds.
    #[must_use]
    pub fn after_waiting(mut self, ms: u64) -> Self {
        if let Self::ModelReplied { waited_ms, .. } = &mut self {
            *waited_ms = ms;
        }
        self
    }

    /// How long the model read before the first token of the reply that this event records, in milliseconds.
    #[must_use]
    pub const fn prefill_ms(&self) -> u64 {
        match self {
            Self::ModelReplied { prefill_ms, .. } => *prefill_ms,
            _ => 0,
        }
    }

    /// Which round of its agent ended here, and how long it waited for its permits, in milliseconds.
    #[must_use]
    pub const fn waited(&self) -> Option<(u32, u64)> {
        match self {
            Self::ModelReplied { round, waited_ms, .. } | Self::ModelFailed { round, waited_ms, .. } => {
                Some((*round, *waited_ms))
            }
            _ => None,
        }
    }

    /// A whole answer to a request that was carried out, at no cost.
    #[must_use]
    pub fn answered(text: impl Into<String>) -> Self {
        Self::Answered {
            text: text.into(),
            paused: false,
            usage: Usage::default(),
            outcome: AnswerOutcome::Done,
            finish: Finish::Stop,
            calls: Vec::new(),
        }
    }

    /// The event's name.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Received(_) => "received",
            Self::Joined { .. } => "joined",
            Self::TurnStarted { .. } => "turn_started",
            Self::RoundBegan { .. } => "round_began",
            Self::RoundNotBegun { .. } => "round_not_begun",
            Self::ModelReplied { .. } => "model_replied",
            Self::ModelFailed { .. } => "model_failed",
            Self::InterfaceChanged { .. } => "interface_changed",
            Self::SkillStarted { .. } => "skill_started",
            Self::SkillFinished { .. } => "skill_finished",
            Self::AgentStarted { .. } => "agent_started",
            Self::AgentReported { .. } => "agent_reported",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::Decided { .. } => "decided",
            Self::ResultsGiven => "results_given",
            Self::Resumed { .. } => "resumed",
            Self::Suspended { .. } => "suspended",
            Self::Continued { .. } => "continued",
            Self::Reprioritised { .. } => "reprioritised",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::Deferred { .. } => "deferred",
            Self::Retried { .. } => "retried",
            Self::Ordered { .. } => "ordered",
            Self::LetterDue { .. } => "letter_due",
            Self::LetterMoved { .. } => "letter_moved",
            Self::Answered { .. } => "answered",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// Whether it ends its task.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::Failed { .. } | Self::Cancelled { .. })
    }
}

/// An event on its way into the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// When it happened.
    pub at: Micros,
    /// Which task it belongs to.
    pub task: TaskId,
    /// Which agent it is about.
    pub agent: AgentId,
    /// What happened.
    pub body: EventBody,
}

/// An event in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Whose log.
    pub conversation: ConversationId,
    /// Its place.
    pub seq: Seq,
    /// When it happened.
    pub at: Micros,
    /// Which task it belongs to.
    pub task: TaskId,
    /// Which agent it is about.
    pub agent: AgentId,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

impl Event {
    /// The new event at its place.
    #[must_use]
    pub fn placed(conversation: ConversationId, seq: Seq, new: NewEvent) -> Self {
        Self { conversation, seq, at: new.at, task: new.task, agent: new.agent, body: new.body }
    }
}

/// Whose data a query may see. Every read of a store takes one: the wrong owner is "not found" (invariant 17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// One user's own.
    User(UserId),
    /// Everybody's: operators only.
    Operator,
}

impl Scope {
    /// Whether data of this owner is visible.
    #[must_use]
    pub fn sees(&self, owner: &UserId) -> bool {
        match self {
            Self::User(user) => user == owner,
            Self::Operator => true,
        }
    }
}
