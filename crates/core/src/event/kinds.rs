//! What is decided once for every kind of event: its name, its recorder, and whether it ends a task or a round. Every match
//! is exhaustive, so that a new kind does not compile before it is classified.

#![deny(clippy::wildcard_enum_match_arm)]

use sha2::{Digest, Sha256};
use uuid::{Uuid, fmt::Hyphenated};

use super::{AnswerOutcome, EventBody};
use crate::{
    aloud::VoiceChange,
    dead_letter::DeadLetter,
    message::{Finish, ToolCall, Usage},
    redact::RedactedKind,
    workflow::WORKFLOW,
};

/// The component that records the events of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recorder {
    /// A front end, before it acknowledges a message.
    FrontEnd,
    /// The Engine of the conversation. The kernel ends a task in its place if no Engine may run.
    Engine,
    /// The actor that runs the agent: the Engine for the orchestrator, otherwise the sub-agent's own actor.
    Agent,
    /// The tracked task of a model round.
    Round,
    /// The breaker of a skill.
    Breaker,
    /// The dead-letter worker, or an operation of a user on a dead letter.
    DeadLetters,
    /// Several components. The events are records for readers of the log, and no state depends on them.
    Several,
}

/// A final event: the one end of a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FinalEvent<'a> {
    /// [`EventBody::Answered`].
    Answered {
        /// The text.
        text: &'a str,
        /// The turn reached a limit and may be continued.
        paused: bool,
        /// Total cost of the turn.
        usage: &'a Usage,
        /// Whether the request was carried out.
        outcome: AnswerOutcome,
        /// Why the model stopped writing the text.
        finish: Finish,
        /// Calls of the caller's own tools.
        calls: &'a [ToolCall],
        /// What was redacted in the text.
        redacted: &'a [RedactedKind],
        /// What was changed in the text because it is read aloud.
        spoken: &'a [VoiceChange],
    },
    /// [`EventBody::Failed`].
    Failed {
        /// A short stable error code.
        code: &'a str,
        /// The text for the user.
        text: &'a str,
        /// Details for the operator.
        detail: &'a str,
        /// The dead letter that the failure creates.
        dead_letter: Option<&'a DeadLetter>,
    },
    /// [`EventBody::Cancelled`].
    Cancelled {
        /// The text for the user.
        text: &'a str,
    },
}

impl<'a> FinalEvent<'a> {
    /// The text for the user.
    #[must_use]
    pub const fn text(&self) -> &'a str {
        match self {
            Self::Answered { text, .. } | Self::Failed { text, .. } | Self::Cancelled { text } => text,
        }
    }

    /// How the task ended, as metrics and traces say it: a word of [`AnswerOutcome::word`], `failed` or `cancelled`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Answered { outcome, paused, finish, .. } => outcome.word(*paused, *finish),
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
        }
    }
}

/// The end of a model round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundEnd {
    /// The agent's round number.
    pub round: u32,
    /// How long the round waited for its permits, in milliseconds.
    pub waited_ms: u64,
    /// How long the model processed the prompt before its first token, in milliseconds.
    pub prefill_ms: u64,
}

/// The id of a text that is stored once for many events: the beginning of its SHA-256.
#[must_use]
pub fn shared_text_id(text: &str) -> Uuid {
    let digest = Sha256::digest(text.as_bytes());
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::new_v8(bytes)
}

/// The names of all kinds of events.
pub const EVENT_KINDS: [&str; 36] = [
    "received",
    "joined",
    "turn_started",
    "round_began",
    "round_not_begun",
    "model_replied",
    "model_failed",
    "interface_changed",
    "loop_detected",
    "skill_started",
    "skill_finished",
    "agent_started",
    "agent_reported",
    "agent_steered",
    "steering_taken",
    "agent_stop_requested",
    "cancel_requested",
    "decided",
    "approval_requested",
    "approval_decided",
    "results_given",
    "resumed",
    "suspended",
    "continued",
    "reprioritised",
    "deadline_passed",
    "deferred",
    "retried",
    "ordered",
    "dead_letter_due",
    "dead_letter_moved",
    "answered",
    "failed",
    "cancelled",
    "copied",
    "compacted",
];

impl EventBody {
    /// The text in the body that many events have in common: the list of skills in the facts of a turn. A store may keep it
    /// once for all of them.
    #[must_use]
    pub fn shared_text(&self) -> Option<&str> {
        if let Self::TurnStarted { facts, .. } = self { Some(&facts.skills) } else { None }
    }

    /// The body with the id of the text ([`shared_text_id`]) in place of [`Self::shared_text`]. Therefore a digest of the stored body
    /// also covers the text.
    #[must_use]
    pub fn without_shared_text(&self, id: Uuid) -> Self {
        let mut body = self.clone();
        if let Self::TurnStarted { facts, .. } = &mut body {
            facts.skills = id.to_string();
        }
        body
    }

    /// The id that [`Self::without_shared_text`] left in the body. `None` if the body has its text, and for a body that was stored
    /// before ids were written into bodies.
    #[must_use]
    pub fn named_text(&self) -> Option<Uuid> {
        self.shared_text().filter(|text| text.len() == Hyphenated::LENGTH).and_then(|text| Uuid::parse_str(text).ok())
    }

    /// Puts the text back that [`Self::without_shared_text`] took out. Returns false if the body has no such text.
    #[must_use]
    pub fn put_shared_text(&mut self, text: String) -> bool {
        if let Self::TurnStarted { facts, .. } = self {
            facts.skills = text;
            return true;
        }
        false
    }

    /// The event's name, which is its `kind` tag.
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
            Self::LoopDetected { .. } => "loop_detected",
            Self::SkillStarted { .. } => "skill_started",
            Self::SkillFinished { .. } => "skill_finished",
            Self::AgentStarted { .. } => "agent_started",
            Self::AgentReported { .. } => "agent_reported",
            Self::AgentSteered { .. } => "agent_steered",
            Self::SteeringTaken { .. } => "steering_taken",
            Self::AgentStopRequested { .. } => "agent_stop_requested",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::Decided { .. } => "decided",
            Self::ApprovalRequested { .. } => "approval_requested",
            Self::ApprovalDecided { .. } => "approval_decided",
            Self::ResultsGiven => "results_given",
            Self::Resumed { .. } => "resumed",
            Self::Suspended { .. } => "suspended",
            Self::Continued { .. } => "continued",
            Self::Reprioritised { .. } => "reprioritised",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::Deferred { .. } => "deferred",
            Self::Retried { .. } => "retried",
            Self::Ordered { .. } => "ordered",
            Self::DeadLetterDue { .. } => "dead_letter_due",
            Self::DeadLetterMoved { .. } => "dead_letter_moved",
            Self::Answered { .. } => "answered",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
            Self::Copied(_) => "copied",
            Self::Compacted(_) => "compacted",
        }
    }

    /// The component that records events of this kind.
    #[must_use]
    pub const fn recorder(&self) -> Recorder {
        match self {
            Self::Received(_) | Self::Copied(_) => Recorder::FrontEnd,
            Self::ModelReplied { .. }
            | Self::ModelFailed { .. }
            | Self::SkillFinished { .. }
            | Self::LoopDetected { .. }
            | Self::SteeringTaken { .. }
            | Self::Decided { hook: Some(_), .. } => Recorder::Agent,
            Self::RoundBegan { .. } | Self::RoundNotBegun { .. } => Recorder::Round,
            Self::SkillStarted { .. } => Recorder::Breaker,
            Self::DeadLetterDue { .. } | Self::DeadLetterMoved { .. } => Recorder::DeadLetters,
            Self::Decided { hook: None, .. } => Recorder::Several,
            Self::Joined { .. }
            | Self::TurnStarted { .. }
            | Self::InterfaceChanged { .. }
            | Self::AgentStarted { .. }
            | Self::AgentReported { .. }
            | Self::AgentSteered { .. }
            | Self::AgentStopRequested { .. }
            | Self::CancelRequested { .. }
            | Self::ApprovalRequested { .. }
            | Self::ApprovalDecided { .. }
            | Self::ResultsGiven
            | Self::Resumed { .. }
            | Self::Suspended { .. }
            | Self::Continued { .. }
            | Self::Reprioritised { .. }
            | Self::DeadlinePassed { .. }
            | Self::Deferred { .. }
            | Self::Retried { .. }
            | Self::Ordered { .. }
            | Self::Answered { .. }
            | Self::Failed { .. }
            | Self::Cancelled { .. }
            | Self::Compacted(_) => Recorder::Engine,
        }
    }

    /// The final event, if this event ends its task.
    #[must_use]
    pub fn as_final(&self) -> Option<FinalEvent<'_>> {
        match self {
            Self::Answered { text, paused, usage, outcome, finish, calls, redacted, spoken } => {
                let (paused, outcome, finish) = (*paused, *outcome, *finish);
                Some(FinalEvent::Answered { text, paused, usage, outcome, finish, calls, redacted, spoken })
            }
            Self::Failed { code, text, detail, dead_letter } => {
                Some(FinalEvent::Failed { code, text, detail, dead_letter: dead_letter.as_ref() })
            }
            Self::Cancelled { text } => Some(FinalEvent::Cancelled { text }),
            Self::Received(_)
            | Self::Joined { .. }
            | Self::TurnStarted { .. }
            | Self::RoundBegan { .. }
            | Self::RoundNotBegun { .. }
            | Self::ModelReplied { .. }
            | Self::ModelFailed { .. }
            | Self::InterfaceChanged { .. }
            | Self::LoopDetected { .. }
            | Self::SkillStarted { .. }
            | Self::SkillFinished { .. }
            | Self::AgentStarted { .. }
            | Self::AgentReported { .. }
            | Self::AgentSteered { .. }
            | Self::SteeringTaken { .. }
            | Self::AgentStopRequested { .. }
            | Self::CancelRequested { .. }
            | Self::Decided { .. }
            | Self::ApprovalRequested { .. }
            | Self::ApprovalDecided { .. }
            | Self::ResultsGiven
            | Self::Resumed { .. }
            | Self::Suspended { .. }
            | Self::Continued { .. }
            | Self::Reprioritised { .. }
            | Self::DeadlinePassed { .. }
            | Self::Deferred { .. }
            | Self::Retried { .. }
            | Self::Ordered { .. }
            | Self::DeadLetterDue { .. }
            | Self::DeadLetterMoved { .. }
            | Self::Copied(_)
            | Self::Compacted(_) => None,
        }
    }

    /// Whether this event ends its task.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.as_final().is_some()
    }

    /// Whether this is the end of a round whose model was called. A cap on calls or spending may have prevented that, or the reply
    /// was kept, or it comes from a workflow.
    #[must_use]
    pub fn is_model_call(&self) -> bool {
        let is_capped = matches!(self, Self::ModelFailed { error, .. } if error.kind.is_cap());
        let is_kept = matches!(self, Self::ModelReplied { cached, backend, .. } if *cached || backend == WORKFLOW);
        self.round_end().is_some() && !is_capped && !is_kept
    }

    /// The end of the round that this event records, if it records one.
    #[must_use]
    pub const fn round_end(&self) -> Option<RoundEnd> {
        match self {
            Self::ModelReplied { round, waited_ms, prefill_ms, .. } => {
                Some(RoundEnd { round: *round, waited_ms: *waited_ms, prefill_ms: *prefill_ms })
            }
            Self::ModelFailed { round, waited_ms, .. } => {
                Some(RoundEnd { round: *round, waited_ms: *waited_ms, prefill_ms: 0 })
            }
            Self::Received(_)
            | Self::Joined { .. }
            | Self::TurnStarted { .. }
            | Self::RoundBegan { .. }
            | Self::RoundNotBegun { .. }
            | Self::InterfaceChanged { .. }
            | Self::LoopDetected { .. }
            | Self::SkillStarted { .. }
            | Self::SkillFinished { .. }
            | Self::AgentStarted { .. }
            | Self::AgentReported { .. }
            | Self::AgentSteered { .. }
            | Self::SteeringTaken { .. }
            | Self::AgentStopRequested { .. }
            | Self::CancelRequested { .. }
            | Self::Decided { .. }
            | Self::ApprovalRequested { .. }
            | Self::ApprovalDecided { .. }
            | Self::ResultsGiven
            | Self::Resumed { .. }
            | Self::Suspended { .. }
            | Self::Continued { .. }
            | Self::Reprioritised { .. }
            | Self::DeadlinePassed { .. }
            | Self::Deferred { .. }
            | Self::Retried { .. }
            | Self::Ordered { .. }
            | Self::DeadLetterDue { .. }
            | Self::DeadLetterMoved { .. }
            | Self::Answered { .. }
            | Self::Failed { .. }
            | Self::Cancelled { .. }
            | Self::Copied(_)
            | Self::Compacted(_) => None,
        }
    }
}
