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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_outcome_word_is_done_only_for_a_whole_answer_without_evidence_against_it() {
        for (outcome, paused, finish, word) in [
            (AnswerOutcome::Done, false, Finish::Stop, "done"),
            (AnswerOutcome::Done, false, Finish::Length, "incomplete"),
            (AnswerOutcome::Done, false, Finish::ContentFilter, "incomplete"),
            (AnswerOutcome::Done, true, Finish::Stop, "paused"),
            (AnswerOutcome::Done, true, Finish::Length, "paused"),
            (AnswerOutcome::Declined, false, Finish::Stop, "declined"),
            (AnswerOutcome::NoAction, false, Finish::Stop, "no_action"),
            (AnswerOutcome::GaveUp, false, Finish::Stop, "gave_up"),
            (AnswerOutcome::GaveUp, true, Finish::Length, "gave_up"),
        ] {
            assert_eq!(outcome.word(paused, finish), word, "{outcome:?}, paused {paused}, {finish:?}");
            assert_eq!(outcome.is_done(), outcome == AnswerOutcome::Done, "{outcome:?}");
        }
    }
}
