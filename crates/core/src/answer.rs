//! Outcome of an answered request: whether it was carried out.

use serde::{Deserialize, Serialize};

use crate::message::Finish;

/// Whether an answered turn carried out its request. Derived from what the kernel observed, never from the model's claims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerOutcome {
    /// No evidence against success.
    #[default]
    Done,
    /// The model, or the offline planner, reported that it did not do what was asked.
    Declined,
    /// The answer claims an effect, and no skill that changes anything ran.
    NoAction,
    /// The turn was stopped because it made no progress.
    GaveUp,
}

impl AnswerOutcome {
    /// The wire name of [`Self::Done`].
    pub const DONE: &str = "done";

    /// Whether there is no evidence that the request was not carried out.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// The state that clients show for an answered turn.
    #[must_use]
    pub const fn word(self, paused: bool, finish: Finish) -> &'static str {
        match self {
            Self::Declined => "declined",
            Self::NoAction => "no_action",
            Self::GaveUp => "gave_up",
            Self::Done if paused => "paused",
            Self::Done if !finish.is_stop() => "incomplete",
            Self::Done => Self::DONE,
        }
    }
}
