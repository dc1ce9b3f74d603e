//! The limits of a turn as data [S0 5.1] [S4 7.1]. They are recorded with the turn, so that a replay decides as the turn
//! itself did even if the configuration has changed since.

use serde::{Deserialize, Serialize};

use crate::{
    classify::Spoken,
    event::{Mode, Priority},
    letter::LetterLimits,
    outcome::Outcome,
};

/// How a sub-agent calls skills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubAgentInterface {
    /// Commands in fenced `cmd` blocks.
    #[default]
    Cmd,
    /// The scoped `use_skill` tool.
    Json,
}

/// How the agent that answers the user calls skills: small models write commands better than they call tools (ADR 0015).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MainInterface {
    /// Tools, and commands from then on where a backend refuses tools or its model cannot use them.
    #[default]
    Auto,
    /// Tools.
    Tools,
    /// Commands in fenced `cmd` blocks, as sub-agents write them. An orchestrator has no such form: its turns run as
    /// `single_loop` then (ADR 0015).
    Cmd,
}

impl MainInterface {
    /// The word in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tools => "tools",
            Self::Cmd => "cmd",
        }
    }

    /// The mode in which a turn of this mode runs.
    #[must_use]
    pub const fn mode(self, mode: Mode) -> Mode {
        match (self, mode) {
            (Self::Cmd, Mode::MultiAgent) => Mode::SingleLoop,
            _ => mode,
        }
    }
}

/// What one turn may use up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnLimits {
    /// Sub-agents in a turn [S4 7.1].
    pub agents_max: u32,
    /// Skill calls of all agents of a turn together [S4 7.1].
    pub skill_calls_max: u32,
    /// Model rounds of the orchestrator in a turn [S4 7.2].
    pub iterations_max: u32,
    /// Tool calls of a turn in `single_loop` and `direct` mode [S0 5.1].
    pub single_loop_calls_max: u32,
    /// Tool calls of a sub-agent whose dispatch does not say [S4 6.2].
    pub agent_calls_default: u32,
    /// Tool calls that a dispatch may ask for at most.
    pub agent_calls_max: u32,
    /// Time that a sub-agent has for each round of its budget, in milliseconds [S4 6.1].
    pub agent_round_ms_max: u64,
    /// Skill calls of a conversation within the sliding window [S0 5.1].
    pub window_calls_max: u32,
    /// Length of that window, in milliseconds.
    pub window_ms: u64,
    /// Once an Engine has died so often in one turn, the message is taken out of its way: it would kill the next one too.
    pub crashes_max: u32,
    /// Once the process has ended so often in one turn, the message is taken out of its way.
    pub restarts_max: u32,
    /// The context window that prompts are fitted into, in tokens, where that of the model is not known [S0 6.3].
    pub context_tokens_max: u32,
    /// Of a model's known window prompts fill at most so many tokens: a longer history costs more than it tells.
    pub window_tokens_max: u32,
    /// Of those, kept for the system prompt.
    pub system_tokens_reserve: u32,
    /// Of those, kept for the answer.
    pub response_tokens_reserve: u32,
    /// Tokens of an answer that is spoken [S2 4]: what is heard has to be short.
    pub voice_response_tokens_max: u32,
    /// How sub-agents call skills.
    pub interface: SubAgentInterface,
    /// How the agent that answers the user does.
    pub main_interface: MainInterface,
    /// How long a task waits that is deferred by its hard deadline or after two failures, in milliseconds.
    pub defer_ms: u64,
    /// When dead letters are tried again and given up.
    pub letters: LetterLimits,
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
            window_calls_max: 50,
            window_ms: 300_000,
            crashes_max: 2,
            restarts_max: 5,
            context_tokens_max: 8_000,
            window_tokens_max: 32_000,
            system_tokens_reserve: 1_000,
            response_tokens_reserve: 2_000,
            voice_response_tokens_max: 300,
            interface: SubAgentInterface::Cmd,
            main_interface: MainInterface::Auto,
            defer_ms: 900_000,
            letters: LetterLimits::default(),
        }
    }
}

impl TurnLimits {
    /// Whether these are the defaults, which are not written into the log.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Tokens left for history and the message.
    #[must_use]
    pub const fn history_tokens_max(&self) -> u32 {
        self.context_tokens_max.saturating_sub(self.system_tokens_reserve).saturating_sub(self.response_tokens_reserve)
    }

    /// The same beside a system prompt and tools of so many tokens, where that is more than the reserve.
    #[must_use]
    pub const fn history_tokens_max_beside(&self, fixed_tokens: u32) -> u32 {
        let beyond = fixed_tokens.saturating_sub(self.system_tokens_reserve);
        self.history_tokens_max().saturating_sub(beyond)
    }

    /// Characters that the skill list may take in a prompt: 2 % of the model's window at four characters a token, or so many
    /// where the window is not known [S1 Layer 1].
    #[must_use]
    pub const fn skill_list_chars_max(window_tokens: Option<u32>) -> usize {
        match window_tokens {
            Some(tokens) => (tokens as usize * 4) / 50,
            None => 16_000,
        }
    }

    /// These limits for a model whose window is known: prompts are fitted to it, up to [`Self::window_tokens_max`], and a
    /// small window keeps at most a quarter of itself for the answer.
    #[must_use]
    pub fn fitted_to(self, window_tokens: Option<u32>) -> Self {
        let Some(window) = window_tokens else { return self };
        let context_tokens_max = window.min(self.window_tokens_max);
        let response_tokens_reserve = self.response_tokens_reserve.min(context_tokens_max / 4);
        Self { context_tokens_max, response_tokens_reserve, ..self }
    }

    /// How long a sub-agent with so many calls may take, in milliseconds: its calls' rounds and one to sum up.
    #[must_use]
    pub const fn agent_ms_max(&self, calls: u32) -> u64 {
        self.agent_round_ms_max.saturating_mul(calls as u64 + 1)
    }

    /// How much of one result a model is shown, in bytes: about a quarter of its context window.
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

/// When a task of one class should have come to an end, counted from when its turn began, went on or was last
/// deferred; before that, from when it could have begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// After this its model is asked to come to an end, in milliseconds.
    pub soft_ms: u64,
    /// After this it is ended or deferred, in milliseconds.
    pub hard_ms: u64,
}

/// The deadlines of every class [S3 5.3.5].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deadlines {
    /// Voice: what was spoken asks for several things [S2 4]. The 150 ms to the first token [S3 5.3.5] are the backend's to
    /// keep.
    pub realtime: Deadline,
    /// Voice: something is only asked [S2 4].
    pub voice_simple: Deadline,
    /// Voice: something is to be done [S2 4].
    pub voice_action: Deadline,
    /// A person waits.
    pub high: Deadline,
    /// A person asked, and does not wait.
    pub normal: Deadline,
    /// The system asked.
    pub low: Deadline,
    /// Maintenance.
    pub background: Deadline,
    /// How long the rounds of class HIGH may wait for permits beside its deadlines, in milliseconds: see
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
    /// Those of what was spoken, by its kind.
    #[must_use]
    pub const fn voice(&self, kind: Spoken) -> Deadline {
        match kind {
            Spoken::Simple => self.voice_simple,
            Spoken::Action => self.voice_action,
            Spoken::Complex => self.realtime,
        }
    }

    /// Those of a class.
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

    /// How long the rounds of one turn may wait for permits without its deadlines passing, in milliseconds. A queue is not the
    /// turn's time, but every wait has an end: a person who speaks hears silence, whatever its cause, so no wait of REALTIME
    /// counts as the queue's; a person who writes waits a little longer; and work that nobody waits for may wait for as long
    /// as any work may take.
    #[must_use]
    pub const fn permit_ms_max(&self, class: Priority) -> u64 {
        match class {
            Priority::Realtime => 0,
            Priority::High => self.permit_ms_max,
            Priority::Normal | Priority::Low | Priority::Background => self.background.hard_ms,
        }
    }

    /// How long the scheduler keeps a round waiting for a backend that says when it takes requests again, in milliseconds. A
    /// person is told at once of a wait that their turn would not outlast; of a spoken turn only its class is known here, so the
    /// shortest of its deadlines counts. Nothing means that the round waits.
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
