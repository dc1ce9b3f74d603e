//! What became of a request that was answered.

use serde::{Deserialize, Serialize};

use crate::message::Finish;

/// What an answered turn came to. A model's words are not trusted for this: it follows from what the kernel saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerOutcome {
    /// Nothing says otherwise.
    #[default]
    Done,
    /// The replier said itself that it did not do what was asked.
    Declined,
    /// The answer claims an effect, and no skill that changes anything ran.
    NoAction,
    /// The turn was stopped because it made no progress.
    GaveUp,
}

impl AnswerOutcome {
    /// The word for a request that was carried out, as far as the kernel knows.
    pub const DONE: &str = "done";

    /// Whether nothing says that the request was not carried out.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// The word that front ends show for an answered turn.
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
