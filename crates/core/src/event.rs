//! The event log's types. Each event states one fact of a conversation, in the order in which the facts occurred. The log is
//! the authority; all other state is rebuilt from it. Bodies are versioned JSON, and old versions stay readable for ever
//! (`tests/golden`): a new field needs a default, a renamed field or kind keeps its former name as an alias, and no field ever
//! changes its meaning.

mod compacted;
mod copied;
mod judged;
mod kinds;
mod made;
mod topics;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    compacted::{Compacted, CompactionCause},
    copied::{Copied, CopiedExchange, CopiedSummary},
    judged::{AskedHooks, CallVerdict, HookAnswer, HookDecision, JudgedCall, JudgedCalls, LoopFound, Refusal},
    kinds::{EVENT_KINDS, FinalEvent, Recorder, RoundEnd, shared_text_id},
    topics::{StatusChange, Topics},
};
pub use crate::{agent_report::AgentReport, answer::AnswerOutcome, dispatch::DispatchOptions};
use crate::{
    aloud::VoiceChange,
    alternatives::AlternativesCall,
    approval::{ApprovalMode, ApprovalVerdict},
    classify::{Intent, Spoken},
    dead_letter::{DeadLetter, DeadLetterLimits, DeadLetterState, Strategy},
    effort::Effort,
    error_route::Routed,
    ids::{AgentId, ConversationId, IntentId, Seq, TaskId, UserId},
    limits::{MainInterface, TurnLimits},
    message::{Finish, ModelError, Repair, ToolCall, Usage},
    outcome::Outcome,
    redact::RedactedKind,
    skill::{Effect, SkillChange},
    time::Micros,
    workflow::WorkflowStart,
};

pub use crate::inbound::{Inbound, Retry};

/// The version that this build writes into the field `v`.
pub const EVENT_VERSION: u16 = 1;

/// Scheduling class of a task, most urgent first [S3 5.2.2].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Voice. Never queued.
    Realtime,
    /// A person is waiting.
    #[default]
    High,
    /// A person asked and does not wait for the answer.
    Normal,
    /// Requested by the system.
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

/// Execution mode of a conversation's turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// An orchestrator with three tools, and sub-agents that run the skills.
    #[default]
    MultiAgent,
    /// One agent with `get_skill` and `use_skill`.
    SingleLoop,
    /// One agent, with every skill as a separate tool.
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

/// The inputs of a turn's prompts other than the conversation. They are read once when the turn begins and are recorded, so
/// that a replay builds the same prompts [S0 6.1].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptFacts {
    /// The static part: the list of domains with each domain's skills.
    pub skills: String,
    /// The domains that `get_skill` accepts, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// In `direct` mode, the help of every skill, each of which is a tool of its own; sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manual: Vec<SkillManual>,
    /// The user's name in prompts.
    pub user_name: String,
    /// IANA name of the user's time zone.
    pub timezone: String,
    /// The user's local date and time when the turn began: `2026-02-18 14:05 Wednesday`.
    pub local_now: String,
    /// The text given to the model in place of the user's: a prompt skill that the user invoked by `/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoken: Option<String>,
    /// What the user's message changes about the active skill of the conversation: `/name` or `/done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_change: Option<Box<SkillChange>>,
    /// A suggestion shown below the answer if a rule prefers another backend. Empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suggestion: String,
    /// The tone that the answer should have. Empty if unspecified.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tone: String,
    /// The kind of spoken request; absent if the message was not spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoken_as: Option<Spoken>,
    /// One line about open tasks. Empty if there are none.
    #[serde(default)]
    pub todo_summary: String,
    /// Memories that fit the message, without their metadata. Only events written before [`Self::recalled`] was introduced
    /// have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memories: Vec<String>,
    /// Memories that fit the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recalled: Vec<Recalled>,
    /// Texts of other sources, in the order of the sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<SourceText>,
    /// The channel of the message: `cli`, `http`, `voice` …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
    /// What the message wants. Absent if it was not classified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The rules of the operator for all agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// A guard found words in the message that try to change the rules of the agent. The message counts as untrusted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_flagged: bool,
    /// How hard the model should think, as the prompt skill asks with which the turn begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// The workflow whose steps the turn carries out in place of a model's calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Box<WorkflowStart>>,
}

/// A memory as prompts show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalled {
    /// The memory's number.
    pub number: u64,
    /// The remembered text, as stored.
    pub text: String,
    /// The category: `fact`, `preference` …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// The sources other than the user's words that the author had read before writing the memory. Empty if there were none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
}

/// A text of a context source as prompts show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// The source's name.
    pub source: String,
    /// The text as the source gave it, cut if it was too long.
    pub text: String,
}

/// The meaning of a tool call or command in a model's reply. It is resolved once, against the skills available at that time,
/// and is recorded with the reply, so that a replay needs no catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// The kernel answers the call at once: `get_skill`, `--help`, or an error that the model can correct.
    Answer {
        /// The text for the model.
        text: String,
        /// Whether the text reports an error (a wrong flag, an unknown skill, invalid JSON).
        #[serde(default)]
        is_error: bool,
        /// Whether the called tool or skill does not exist.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_unknown: bool,
        /// Whether the call is malformed: the tool does not exist, or the arguments are not a JSON object. A model that
        /// writes only malformed calls cannot use tools.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_malformed: bool,
    },
    /// Run a skill.
    Skill(PlannedSkill),
    /// Start a sub-agent when its dependencies are done.
    Dispatch(DispatchSpec),
    /// Wait for sub-agents and return their results.
    Collect {
        /// The agents to wait for. Empty means all agents of this turn.
        agents: Vec<AgentId>,
    },
    /// Steer or stop a sub-agent that runs.
    ControlAgent {
        /// The agent.
        agent: AgentId,
        /// The text that reaches it in its next round. Absent means that it is stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// Ask for another approach, after the usual ways to the goal have failed; or the advice of the model that was asked.
    Alternatives(Box<AlternativesCall>),
    /// Call a tool of the program that requested the turn. The turn ends, and the program's next request carries the result.
    Caller,
}

/// A skill run that a model requested and that passed validation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedSkill {
    /// The intent, which is the idempotency key of the run.
    pub intent: IntentId,
    /// The skill's name.
    pub skill: String,
    /// The validated arguments.
    pub arguments: Value,
    /// The consequence of running the skill twice.
    pub effect: Effect,
    /// Whether the skill communicates with systems outside.
    #[serde(default)]
    pub external: bool,
    /// The time limit of the run, in milliseconds.
    pub timeout_ms: u64,
    /// The sources other than the user's words that the author had read before: names of skills, or `pasted`. Data that the
    /// run stores carries them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origin: Vec<String>,
}

/// One `dispatch_agent` [S4 2.2], validated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchSpec {
    /// The agent's name, unique within this turn.
    pub agent: AgentId,
    /// The task that the agent must accomplish.
    pub mission: String,
    /// The skills it may use, sorted.
    pub skills: Vec<String>,
    /// Additional context from the orchestrator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// The agents whose results it needs first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<AgentId>,
    /// Maximum number of tool calls.
    pub max_tool_calls: u32,
    /// The help texts of its skills (name, help) at dispatch, sorted by name. They are a part of its prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manual: Vec<SkillManual>,
    /// What it says beyond that.
    #[serde(default, skip_serializing_if = "DispatchOptions::is_default")]
    pub options: DispatchOptions,
}

/// The documentation of one skill in a sub-agent's prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillManual {
    /// The skill.
    pub name: String,
    /// A description of one sentence.
    pub description: String,
    /// The usage line.
    pub synopsis: String,
    /// JSON Schema of the arguments as text, for the `json` interface.
    pub schema: String,
    /// Whether running the skill changes anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes: bool,
}

/// One call of a reply with its resolved action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedCall {
    /// The model's id of a tool call, or `cmd_<round>_<n>` for a command in a fenced block.
    pub id: String,
    /// The tool's name, or the command's first word.
    pub name: String,
    /// The raw arguments: JSON text, or the command line.
    pub raw: String,
    /// The resolved action.
    pub action: Action,
}

/// The final status of a sub-agent: `completed`, `failed` and `timeout` [S4 2.3], and the kernel's additional statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportStatus {
    /// It finished its mission, or as much of it as its budget allowed.
    Completed,
    /// It ran no skill, although its mission required an action.
    NoAction,
    /// It could not finish its mission.
    Failed,
    /// Its time limit expired.
    Timeout,
    /// Its actor died.
    Crashed,
    /// One of its dependencies failed, or no budget was left.
    Skipped,
    /// The turn was cancelled, or the agent was stopped.
    Cancelled,
}

impl ReportStatus {
    /// Whether the agent ended itself; false if the kernel ended it.
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

/// Why an Engine resumed an open turn after activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeCause {
    /// The Engine crashed, and the turn's message may be the cause.
    Crash,
    /// The process restarted.
    Restart,
    /// The Engine crashed because of another turn of the conversation.
    Bystander,
}

/// The effect of a job command on tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobVerb {
    /// No change: the command only queries.
    Tell,
    /// Raises the tasks to HIGH and resumes suspended ones.
    First,
    /// Raises the tasks to HIGH; suspended ones stay suspended.
    Urgent,
    /// Cancels the tasks.
    Cancel,
    /// Suspends the tasks.
    Suspend,
    /// Resumes the tasks.
    Continue,
}

/// One fact about a task. The `kind` tag is the event's name in the log, in streams and in the web page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventBody {
    /// A message was accepted and can no longer be lost. A front end appends this event before it acknowledges the message.
    Received(Inbound),
    /// A message does not get a turn of its own: it steers a running turn, or shares the answer of an equal task. The
    /// message belongs to that turn from this event on, not from its own position in the log, because the Engine may receive
    /// it later than the log does.
    Joined {
        /// The task whose turn the message steers, or whose answer it shares.
        into: TaskId,
    },
    /// The Engine began the turn.
    TurnStarted {
        /// The mode it runs in.
        mode: Mode,
        /// The inputs of its prompts.
        facts: PromptFacts,
        /// Its resource limits, if they differ from the defaults.
        #[serde(default, skip_serializing_if = "TurnLimits::is_default")]
        limits: TurnLimits,
        /// The backends that may run its rounds, the preferred one first. Empty means the first configured backend.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        route: Vec<String>,
        /// The paused turn that this one continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continues: Option<TaskId>,
    },
    /// A round begins on an agentic backend. The backend may cause effects, so the round is not run again. Not written for
    /// other backends.
    RoundBegan {
        /// The agent's round number.
        round: u32,
        /// The backend's name.
        backend: String,
    },
    /// A round announced by [`Self::RoundBegan`] did not begin there, or the backend refused it at once, so it had no
    /// effect. The round may run on another backend.
    RoundNotBegun {
        /// The agent's round number.
        round: u32,
        /// The backend's name.
        backend: String,
    },
    /// A model replied, and its calls were resolved.
    ModelReplied {
        /// The agent's round number, from 1.
        round: u32,
        /// The visible text.
        text: String,
        /// Its calls, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ResolvedCall>,
        /// Why the model stopped.
        #[serde(default)]
        finish: Finish,
        /// Cost of the call.
        #[serde(default)]
        usage: Usage,
        /// The model that answered.
        #[serde(default)]
        model: String,
        /// The backend that ran the round.
        #[serde(default)]
        backend: String,
        /// The backend reported that it did not do what was asked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        declined: bool,
        /// State that the provider requires with the calls' results: see [`crate::message::ModelReply::provider_state`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_state: Option<Value>,
        /// The repairs that the client made to the reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        repairs: Vec<Repair>,
        /// The reply is that of an earlier equal request of the user, and no model was called.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cached: bool,
        /// How long the round waited for its permit, in milliseconds. Queueing time does not count as the task's time.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
        /// How long the model processed the prompt before its first token, in milliseconds. The model could not finish the
        /// turn in this time, so the soft deadline does not count it.
        #[serde(default, skip_serializing_if = "is_zero")]
        prefill_ms: u64,
        /// The verdicts of the kernel's own policies about the calls. Recorded, so that a replay gives the same state although
        /// the policies have changed since. Absent if there are no calls, and in events of older versions, whose calls are
        /// judged in the replay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        judged: Option<JudgedCalls>,
    },
    /// A model call failed permanently.
    ModelFailed {
        /// The agent's round number.
        round: u32,
        /// The error.
        error: ModelError,
        /// How long the round waited for its permits, in milliseconds.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// The agent that answers the user uses another skill interface from its next round on.
    InterfaceChanged {
        /// The new interface.
        to: MainInterface,
        /// The reason.
        reason: String,
    },
    /// A breaker admitted a run and the run began. Not written for `read` skills.
    SkillStarted {
        /// The intent.
        intent: IntentId,
        /// The id of the call.
        call_id: String,
        /// The skill.
        skill: String,
    },
    /// A run's result and its receipt.
    SkillFinished {
        /// The intent.
        intent: IntentId,
        /// The id of the call.
        call_id: String,
        /// The skill.
        skill: String,
        /// The outcome of the run.
        outcome: Outcome,
        /// Duration of the run, in milliseconds.
        #[serde(default)]
        duration_ms: u64,
        /// What follows the failure. Absent if the run did not fail, and in events of older versions, whose failures are
        /// routed in the replay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route: Option<Box<Routed>>,
    },
    /// A sub-agent may start: its dependencies are done and its tool calls are reserved.
    AgentStarted {
        /// Number of tool calls reserved from the turn's budget.
        calls_granted: u32,
    },
    /// A sub-agent ended. Each dispatched agent has exactly one such event.
    AgentReported {
        /// The report.
        report: AgentReport,
    },
    /// A person added a text to the mission of a sub-agent. It reaches the agent in its next round.
    AgentSteered {
        /// The requester.
        by: String,
        /// The text.
        text: String,
    },
    /// A running sub-agent has taken up texts that were added to its mission: they are in its prompts from its next round on.
    SteeringTaken {
        /// How many of its texts it has taken up, from the first one on.
        count: u32,
    },
    /// A person asked to end one sub-agent. The others continue.
    AgentStopRequested {
        /// The requester.
        by: String,
        /// The reason; empty if none was given.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The cancellation of the task was requested.
    CancelRequested {
        /// The requester.
        by: String,
    },
    /// The kernel made a decision, recorded with its reasons [S3 11.2].
    Decided {
        /// The component that decided: `classify`, `route`, `spend`, `error_router`, `guard NAME`, `hook NAME` …
        component: String,
        /// The decision.
        decision: String,
        /// The reasons.
        reasoning: String,
        /// The alternatives that were considered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        alternatives: Vec<String>,
        /// The verdict for which a call waited. Absent in all other decisions, on which no state depends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hook: Option<HookDecision>,
    },
    /// The loop guard found that the agent repeats itself. Recorded directly after the reply with the call, for people and
    /// clients: the verdict itself is part of the reply. Further warnings about one pattern are recorded once in ten calls.
    LoopDetected {
        /// The pattern and the call.
        #[serde(flatten)]
        found: LoopFound,
        /// Whether the agent's run ends with this reply.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ends_run: bool,
    },
    /// A call waits for a person, who must approve it first. The agent of the event made the call.
    ApprovalRequested {
        /// The number of the request in its turn, from 1.
        number: u32,
        /// The intent of the call.
        intent: IntentId,
        /// The skill.
        skill: String,
        /// The arguments with which the skill would run.
        arguments: Value,
        /// Why the call waits.
        mode: ApprovalMode,
        /// When the request counts as denied.
        expires_at: Micros,
    },
    /// A request for an approval was decided. The agent of the event made the call.
    ApprovalDecided {
        /// The number of the request in its turn.
        number: u32,
        /// The intent of the call.
        intent: IntentId,
        /// The decision.
        verdict: ApprovalVerdict,
        /// The person or the part of the kernel that decided.
        by: String,
        /// The task of the message that decided by a clear yes or no. This message gets no turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<TaskId>,
    },
    /// The orchestrator tried to answer without having read its agents' results, so the kernel gave it the results.
    ResultsGiven,
    /// A new incarnation of the Engine resumed this open turn.
    Resumed {
        /// Why the previous incarnation ended.
        cause: ResumeCause,
    },
    /// The task was suspended: no further round of it starts until [`Self::Continued`].
    Suspended {
        /// The requester.
        by: String,
    },
    /// A suspended task was resumed.
    Continued {
        /// The requester.
        by: String,
    },
    /// The task's class was changed.
    Reprioritised {
        /// The new class.
        priority: Priority,
        /// The requester.
        by: String,
    },
    /// A deadline of the task's class has passed [S3 5.3.5].
    DeadlinePassed {
        /// Whether this is the hard deadline, which ends or defers the task. At the soft deadline the model is asked to
        /// finish.
        hard: bool,
        /// The retry policy of the dead letter, for a turn that has not begun and so has not recorded one. Absent means the
        /// defaults.
        #[serde(default, alias = "letters", skip_serializing_if = "Option::is_none")]
        dead_letters: Option<DeadLetterLimits>,
    },
    /// The task was deferred: other tasks run first until the given time.
    Deferred {
        /// The earliest time of resumption.
        until: Micros,
        /// The reason.
        reason: String,
        /// The deferral followed a failure of the model: the task resumes earlier if the model becomes available earlier.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        after_failure: bool,
    },
    /// The turn failed and is retried with another strategy.
    Retried {
        /// The strategy.
        strategy: Strategy,
        /// The failure.
        reason: String,
    },
    /// A job command was interpreted. The kernel executes exactly this interpretation, also after a restart.
    Ordered {
        /// The effect on the tasks.
        verb: JobVerb,
        /// The affected tasks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        targets: Vec<TaskId>,
        /// The reply to the user.
        text: String,
    },
    /// A dead letter is to be retried as soon as there is capacity.
    #[serde(alias = "letter_due")]
    DeadLetterDue {
        /// The requester.
        by: String,
    },
    /// A dead letter was discarded or archived.
    #[serde(alias = "letter_moved")]
    DeadLetterMoved {
        /// Its new state.
        state: DeadLetterState,
        /// The component or user that moved it.
        by: String,
    },
    /// The final answer. One of the three final events that every accepted message gets exactly once.
    Answered {
        /// The text.
        text: String,
        /// The turn reached a limit, and "continue" resumes it from here [S0 5.2].
        #[serde(default)]
        paused: bool,
        /// Total cost of the turn.
        #[serde(default)]
        usage: Usage,
        /// Whether the request was carried out, as far as the kernel knows.
        #[serde(default, skip_serializing_if = "AnswerOutcome::is_done")]
        outcome: AnswerOutcome,
        /// Why the model stopped writing the text. Any value except `stop` means that the text is incomplete.
        #[serde(default, skip_serializing_if = "Finish::is_stop")]
        finish: Finish,
        /// Calls of the caller's own tools: the caller runs them, and its next request brings their results.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// What was redacted in the text, in its order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        redacted: Vec<RedactedKind>,
        /// What was changed in the text because it is read aloud.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        spoken: Vec<VoiceChange>,
    },
    /// The task failed, and its user is notified.
    Failed {
        /// A short stable error code.
        code: String,
        /// The text for the user.
        text: String,
        /// Details for the operator.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
        /// The dead letter that the failure creates. Absent if a retry would be pointless or unwanted.
        #[serde(default, alias = "letter", skip_serializing_if = "Option::is_none")]
        dead_letter: Option<DeadLetter>,
    },
    /// The task was cancelled on request.
    Cancelled {
        /// The text for the user.
        text: String,
    },
    /// A part of a copy of another conversation: see [`Copied`].
    Copied(Box<Copied>),
    /// A summary stands for the older part of the conversation in later prompts. The task of the event is the last one that the
    /// summary covers, or the one whose prompt was too long.
    Compacted(Box<Compacted>),
}

/// Whether a number is zero, so that it is not stored.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// An event that is not yet in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// Time of the event.
    pub at: Micros,
    /// The task that the event belongs to.
    pub task: TaskId,
    /// The agent that the event is about.
    pub agent: AgentId,
    /// The fact.
    pub body: EventBody,
}

/// An event in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The conversation in whose log the event is.
    pub conversation: ConversationId,
    /// Its sequence number.
    pub seq: Seq,
    /// Time of the event.
    pub at: Micros,
    /// The task that the event belongs to.
    pub task: TaskId,
    /// The agent that the event is about.
    pub agent: AgentId,
    /// The fact.
    #[serde(flatten)]
    pub body: EventBody,
}

impl Event {
    /// Adds the conversation and the sequence number to a new event.
    #[must_use]
    pub fn placed(conversation: ConversationId, seq: Seq, new: NewEvent) -> Self {
        Self { conversation, seq, at: new.at, task: new.task, agent: new.agent, body: new.body }
    }
}

/// The data that a query may see. Every read of a store takes a scope; data of another owner is reported as "not found"
/// (invariant 17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The data of one user.
    User(UserId),
    /// The data of all users. For operators only.
    Operator,
}

impl Scope {
    /// Whether data of this owner is visible in this scope.
    #[must_use]
    pub fn sees(&self, owner: &UserId) -> bool {
        match self {
            Self::User(user) => user == owner,
            Self::Operator => true,
        }
    }
}
