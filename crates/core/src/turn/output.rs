//! Empty and cut replies: a run repeats the round once, with a higher output limit if the limit was the reason.

use serde::{Deserialize, Serialize};

use super::run::{AgentRun, Ending};
use crate::{
    message::{Finish, ModelError, ModelErrorKind},
    planning,
};

const NUDGE: &str = "[Your reply was empty. Answer in words, or use your tools.]";
const NUDGE_SHORT: &str =
    "[You used your whole reply for thinking. Think briefly now, and answer in words or use your tools.]";
const EMPTY_TWICE: &str = "The model gave an empty answer twice.";
const THOUGHT_ONLY: &str = "The model used its whole output for thinking and wrote no answer.";
const FILTERED: &str = "The content filter of the model's provider withheld the answer.";

/// The output limit of a run's replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputLimit {
    /// The backend's usual limit.
    #[default]
    Usual,
    /// A higher limit, because a reply was cut off.
    Raised,
    /// The usual limit, because the backend refused the higher one.
    Refused,
}

impl OutputLimit {
    /// Raises the limit after a cut reply, because the same limit would cut the next reply at the same point.
    pub(super) fn raise(&mut self) {
        if *self == Self::Usual {
            *self = Self::Raised;
        }
    }

    /// Returns true if a failed round must be repeated with the usual limit, because the backend may have refused the higher
    /// one.
    pub(super) fn is_taken_back_for(&mut self, error: &ModelError) -> bool {
        let may_be = matches!(error.kind, ModelErrorKind::Overflow | ModelErrorKind::InvalidRequest);
        let is_taken_back = may_be && self.is_raised();
        if is_taken_back {
            *self = Self::Refused;
        }
        is_taken_back
    }

    /// Whether the limit is higher than usual.
    pub(super) fn is_raised(self) -> bool {
        self == Self::Raised
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(super) fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

impl AgentRun {
    /// Whether a model that plans ends with its plan, and was not told before to carry it out.
    pub(super) fn stops_at_plan(&self, text: &str) -> bool {
        self.plans && !self.reminded_of_plan && planning::stops_at_plan(text)
    }

    /// The answer in a text, without the plan of a model that plans.
    pub(super) fn without_plan(&self, text: String) -> String {
        if self.plans { planning::answer(&text) } else { text }
    }

    /// Ends the run with the part of an answer that was received.
    pub(super) fn end_with_cut_text(&mut self, text: String) {
        self.finish = Finish::Length;
        let text = self.without_plan(text);
        self.end(Ending::Output(text));
    }

    /// Folds a reply without text and calls.
    pub(super) fn take_empty_reply(&mut self) {
        let why = match self.finish {
            Finish::ContentFilter => Some(FILTERED),
            Finish::Length => self.nudged.then_some(THOUGHT_ONLY),
            Finish::Stop | Finish::ToolCalls => self.nudged.then_some(EMPTY_TWICE),
        };
        if let Some(why) = why {
            self.end(Ending::Silent(why.to_owned()));
            return;
        }
        self.nudged = true;
        self.note(if self.finish == Finish::Length { NUDGE_SHORT } else { NUDGE });
        self.next_round();
    }
}
