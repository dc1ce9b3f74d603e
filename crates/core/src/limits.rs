//! The limits of a turn as data [S0 5.1] [S4 7.1]. They are recorded with the turn, so that a replay makes the same
//! decisions even if the configuration has changed.

use serde::{Deserialize, Serialize};

use crate::{
    aloud::VoiceFormat,
    classify::Spoken,
    dead_letter::DeadLetterLimits,
    error_route::ErrorRules,
    event::{Mode, Priority},
    loop_guard::LoopGuardLimits,
    outcome::Outcome,
    planning::Planning,
    redact::Redaction,
    result_check::CheckRules,
};

/// The interface by which a sub-agent calls skills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubAgentInterface {
    /// Commands in fenced `cmd` blocks.
    #[default]
    Cmd,
    /// The scoped `use_skill` tool.
    Json,
}

/// The interface by which the agent that answers the user calls skills. Small models write commands better than they call
/// tools (ADR 0015).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MainInterface {
    /// Tools at first; commands as soon as a backend refuses tools or its model cannot use them.
    #[default]
    Auto,
    /// Tools.
    Tools,
    /// Commands in fenced `cmd` blocks, as sub-agents write them. An orchestrator cannot use commands: with this interface
    /// its turns run in the mode `single_loop` (ADR 0015).
    Cmd,
}

impl MainInterface {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tools => "tools",
            Self::Cmd => "cmd",
        }
    }

    /// The mode in which a turn runs that requested this mode.
    #[must_use]
    pub const fn mode(self, mode: Mode) -> Mode {
        match (self, mode) {
            (Self::Cmd, Mode::MultiAgent) => Mode::SingleLoop,
            _ => mode,
        }
    }
}

/// Resource limits of one turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnLimits {
    /// Maximum number of sub-agents in a turn [S4 7.1].
    pub agents_max: u32,
    /// Maximum number of skill calls of all agents of a turn together [S4 7.1].
    pub skill_calls_max: u32,
    /// Maximum number of the orchestrator's model rounds in a turn [S4 7.2].
    pub iterations_max: u32,
    /// Maximum number of tool calls of a turn in `single_loop` and `direct` mode [S0 5.1].
    pub single_loop_calls_max: u32,
    /// Number of tool calls of a sub-agent whose dispatch does not specify it [S4 6.2].
    pub agent_calls_default: u32,
    /// Maximum number of tool calls that a dispatch may request.
    pub agent_calls_max: u32,
    /// Time limit of a sub-agent for each round of its budget, in milliseconds [S4 6.1].
    pub agent_round_ms_max: u64,
    /// Maximum time that a dispatch may request for its agent, in milliseconds. The configuration has it in a table of its own.
    #[serde(skip_serializing_if = "is_usual_timeout")]
    pub agent_timeout_ms_max: u64,
    /// Whether the agent that dispatches others has tools to steer and to stop them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agent_control: bool,
    /// Maximum number of skill calls of a conversation within the sliding window [S0 5.1].
    pub window_calls_max: u32,
    /// Length of the sliding window, in milliseconds.
    pub window_ms: u64,
    /// Number of Engine crashes in one turn after which its message is quarantined, because the message would crash the next
    /// Engine too.
    pub crashes_max: u32,
    /// Number of process restarts in one turn after which its message is quarantined.
    pub restarts_max: u32,
    /// The context window for prompts, in tokens, if the model's own window is unknown [S0 6.3].
    pub context_tokens_max: u32,
    /// Maximum tokens of a model's known window that prompts fill: a longer history costs more than it is worth.
    pub window_tokens_max: u32,
    /// Tokens of the window reserved for the system prompt.
    pub system_tokens_reserve: u32,
    /// Tokens of the window reserved for the answer.
    pub response_tokens_reserve: u32,
    /// Maximum tokens of a spoken answer [S2 4]: spoken answers must be short.
    pub voice_response_tokens_max: u32,
    /// After this many messages the older part of a conversation is summarised [S3 8.4]. 0 turns that off.
    pub compaction_messages: u32,
    /// How many of the summarised messages prompts still contain word for word [S3 8.4].
    pub compaction_overlap_messages: u32,
    /// The interface by which sub-agents call skills.
    pub interface: SubAgentInterface,
    /// The interface by which the agent that answers the user calls skills.
    pub main_interface: MainInterface,
    /// Whether the agent that answers the user plans before it acts.
    #[serde(skip_serializing_if = "Planning::is_off")]
    pub planning: Planning,
    /// What is redacted in answers. Empty means nothing.
    pub redact: Vec<Redaction>,
    /// When the loop guard warns and refuses. The configuration has it as a table of its own.
    #[serde(skip_serializing_if = "LoopGuardLimits::is_default")]
    pub loop_guard: LoopGuardLimits,
    /// How failures are routed. The configuration has it as a table of its own.
    #[serde(skip_serializing_if = "ErrorRules::is_default")]
    pub error_router: ErrorRules,
    /// How results are checked. The configuration has it as a table of its own.
    #[serde(skip_serializing_if = "CheckRules::is_default")]
    pub result_checks: CheckRules,
    /// The form of answers that are read aloud. The configuration has it as a table of its own.
    #[serde(default = "VoiceFormat::off", skip_serializing_if = "VoiceFormat::is_off")]
    pub voice: VoiceFormat,
    /// Whether the texts of skills that are ready for a person are shown as they are, without a further model round.
    pub ready_answers: bool,
    /// How long a task waits that is deferred by its hard deadline, in milliseconds. A task that is deferred after two failures
    /// of its model waits as long in all, and is tried again meanwhile: after a minute, then after waits twice as long.
    pub defer_ms: u64,
    /// When dead letters are retried and archived.
    #[serde(alias = "letters")]
    pub dead_letters: DeadLetterLimits,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            agents_max: 8,
            skill_calls_max: 30,
            iterations_max: 6,
            single_loop_calls_max: 10,
            agent_calls_default: 5,
            agent_calls_max: 15,
            agent_round_ms_max: 30_000,
            agent_timeout_ms_max: AGENT_TIMEOUT_MS_MAX,
            agent_control: false,
            window_calls_max: 50,
            window_ms: 300_000,
            crashes_max: 2,
            restarts_max: 5,
            context_tokens_max: 8_000,
            window_tokens_max: 32_000,
            system_tokens_reserve: 1_000,
            response_tokens_reserve: 2_000,
            voice_response_tokens_max: 300,
            compaction_messages: 20,
            compaction_overlap_messages: 3,
            interface: SubAgentInterface::Cmd,
            main_interface: MainInterface::Auto,
            planning: Planning::Off,
            redact: vec![Redaction::Secrets, Redaction::Pii],
            loop_guard: LoopGuardLimits::default(),
            error_router: ErrorRules::default(),
            result_checks: CheckRules::default(),
            voice: VoiceFormat::default(),
            ready_answers: true,
            defer_ms: 900_000,
            dead_letters: DeadLetterLimits::default(),
        }
    }
}

/// The default of [`TurnLimits::agent_timeout_ms_max`]: what the largest number of calls gives, and a little more.
const AGENT_TIMEOUT_MS_MAX: u64 = 600_000;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_usual_timeout(ms: &u64) -> bool {
    *ms == AGENT_TIMEOUT_MS_MAX
}

impl TurnLimits {
    /// Whether these are the defaults, which are not written to the log.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Tokens available for the history and the message.
    #[must_use]
    pub const fn history_tokens_max(&self) -> u32 {
        self.context_tokens_max.saturating_sub(self.system_tokens_reserve).saturating_sub(self.response_tokens_reserve)
    }

    /// The same with a system prompt and tools of `fixed_tokens`, if these exceed the reserve.
    #[must_use]
    pub const fn history_tokens_max_beside(&self, fixed_tokens: u32) -> u32 {
        let beyond = fixed_tokens.saturating_sub(self.system_tokens_reserve);
        self.history_tokens_max().saturating_sub(beyond)
    }

    /// Maximum length of the skill list in a prompt, in characters: 2 % of the model's window at four characters per token,
    /// or a fixed number if the window is unknown [S1 Layer 1].
    #[must_use]
    pub const fn skill_list_chars_max(window_tokens: Option<u32>) -> usize {
        match window_tokens {
            Some(tokens) => (tokens as usize * 4) / 50,
            None => 16_000,
        }
    }

    /// These limits for a model with a known window: prompts are fitted to the window, up to [`Self::window_tokens_max`]. A
    /// small window reserves at most a quarter of itself for the answer.
    #[must_use]
    pub fn fitted_to(self, window_tokens: Option<u32>) -> Self {
        let Some(window) = window_tokens else { return self };
        let context_tokens_max = window.min(self.window_tokens_max);
        let response_tokens_reserve = self.response_tokens_reserve.min(context_tokens_max / 4);
        Self { context_tokens_max, response_tokens_reserve, ..self }
    }

    /// Time limit of a sub-agent with this many calls, in milliseconds: one round for each call, and one for the summary.
    #[must_use]
    pub const fn agent_ms_max(&self, calls: u32) -> u64 {
        self.agent_round_ms_max.saturating_mul(calls as u64 + 1)
    }

    /// Maximum size of one result in a prompt, in bytes: about a quarter of the context window.
    #[must_use]
    pub const fn result_bytes_max(&self) -> usize {
        let bytes = self.context_tokens_max as usize;
        if bytes < 2_000 {
            2_000
        } else if bytes > Outcome::DATA_BYTES_MAX {
            Outcome::DATA_BYTES_MAX
        } else {
            bytes
        }
    }
}

/// The deadlines of tasks of one class. They count from the latest of the turn's start, resumption and deferral; before the
/// turn begins, from the time at which it could have begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// Soft deadline: the model is asked to finish after this time, in milliseconds.
    pub soft_ms: u64,
    /// Hard deadline: the task is ended or deferred after this time, in milliseconds.
    pub hard_ms: u64,
}

/// The deadlines of every class [S3 5.3.5].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deadlines {
    /// Voice, if the spoken message asks for several things [S2 4]. The 150 ms to the first token [S3 5.3.5] are the
    /// backend's responsibility.
    pub realtime: Deadline,
    /// Voice, if the spoken message only asks a question [S2 4].
    pub voice_simple: Deadline,
    /// Voice, if the spoken message requests an action [S2 4].
    pub voice_action: Deadline,
    /// A person waits.
    pub high: Deadline,
    /// A person asked and does not wait for the answer.
    pub normal: Deadline,
    /// Requested by the system.
    pub low: Deadline,
    /// Maintenance.
    pub background: Deadline,
    /// How long the rounds of class HIGH may wait for permits in addition to the deadlines, in milliseconds: see
    /// [`Self::permit_ms_max`].
    pub permit_ms_max: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        const fn of(soft_s: u64, hard_s: u64) -> Deadline {
            Deadline { soft_ms: soft_s * 1_000, hard_ms: hard_s * 1_000 }
        }
        Self {
            realtime: of(8, 12),
            voice_simple: of(3, 5),
            voice_action: of(5, 8),
            high: of(30, 120),
            normal: of(5 * 60, 15 * 60),
            low: of(30 * 60, 60 * 60),
            background: of(24 * 3_600, 48 * 3_600),
            permit_ms_max: 180_000,
        }
    }
}

impl Deadlines {
    /// The deadlines for a kind of spoken message.
    #[must_use]
    pub const fn voice(&self, kind: Spoken) -> Deadline {
        match kind {
            Spoken::Simple => self.voice_simple,
            Spoken::Action => self.voice_action,
            Spoken::Complex => self.realtime,
        }
    }

    /// The deadlines of a class.
    #[must_use]
    pub const fn of(&self, class: Priority) -> Deadline {
        match class {
            Priority::Realtime => self.realtime,
            Priority::High => self.high,
            Priority::Normal => self.normal,
            Priority::Low => self.low,
            Priority::Background => self.background,
        }
    }

    /// How long the rounds of one turn may wait for permits without counting against its deadlines, in milliseconds.
    /// Queueing time is not the turn's own time, but every wait has a limit. In a spoken turn the user hears silence
    /// whatever its cause, so REALTIME gets no extra time. A user who writes accepts a somewhat longer wait. Background work
    /// may wait for as long as any work may take.
    #[must_use]
    pub const fn permit_ms_max(&self, class: Priority) -> u64 {
        match class {
            Priority::Realtime => 0,
            Priority::High => self.permit_ms_max,
            Priority::Normal | Priority::Low | Priority::Background => self.background.hard_ms,
        }
    }

    /// How long the scheduler keeps a round waiting for a backend that has announced when it accepts requests again, in
    /// milliseconds. A user is notified at once of a wait that exceeds the turn's deadline. Of a spoken turn only the class
    /// is known here, so the shortest voice deadline counts. `None` means that the round waits without a limit.
    #[must_use]
    pub fn patience_ms(&self, class: Priority) -> Option<u64> {
        match class {
            Priority::Realtime => Some(self.voice_hard_ms_min()),
            Priority::High => Some(self.permit_ms_max),
            Priority::Normal | Priority::Low | Priority::Background => None,
        }
    }

    /// The earliest hard deadline of a spoken turn, in milliseconds.
    #[must_use]
    pub fn voice_hard_ms_min(&self) -> u64 {
        self.realtime.hard_ms.min(self.voice_simple.hard_ms).min(self.voice_action.hard_ms)
    }

    /// The latest hard deadline of a spoken turn, in milliseconds.
    #[must_use]
    pub fn voice_hard_ms_max(&self) -> u64 {
        self.realtime.hard_ms.max(self.voice_simple.hard_ms).max(self.voice_action.hard_ms)
    }
}
