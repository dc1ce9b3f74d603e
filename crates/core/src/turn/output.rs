//! Replies that are empty or cut off: a run asks once more, with a higher output limit where that was the reason.

use serde::{Deserialize, Serialize};

use super::run::{AgentRun, Ending};
use crate::message::{Finish, ModelError, ModelErrorKind};

const NUDGE: &str = "[Your reply was empty. Answer in words, or use your tools.]";
const NUDGE_SHORT: &str =
    "[You used your whole reply for thinking. Think briefly now, and answer in words or use your tools.]";
const EMPTY_TWICE: &str = "The model gave an empty answer twice.";
const THOUGHT_ONLY: &str = "The model used its whole output for thinking and wrote no answer.";
const FILTERED: &str = "The content filter of the model's provider withheld the answer.";

/// How long the replies of a run may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputLimit {
    /// As long as is usual at the backend.
    #[default]
    Usual,
    /// Longer, since one was cut off.
    Raised,
    /// As long as is usual, since a longer one was refused.
    Refused,
}

impl OutputLimit {
    /// A reply was cut off. Asked again with the same limit, its model would be cut off at the same place.
    pub(super) fn raise(&mut self) {
        if *self == Self::Usual {
            *self = Self::Raised;
        }
    }

    /// Whether a round that failed is asked again without the longer answer, which may be what was refused.
    pub(super) fn is_taken_back_for(&mut self, error: &ModelError) -> bool {
        let may_be = matches!(error.kind, ModelErrorKind::Overflow | ModelErrorKind::InvalidRequest);
        let is_taken_back = may_be && self.is_raised();
        if is_taken_back {
            *self = Self::Refused;
        }
        is_taken_back
    }

    /// Whether replies may be longer than usual.
    pub(super) fn is_raised(self) -> bool {
        self == Self::Raised
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(super) fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

impl AgentRun {
    /// What there is of an answer is the answer.
    pub(super) fn end_cut(&mut self, text: String) {
        self.finish = Finish::Length;
        self.end(Ending::Said(text));
    }

    /// Takes a reply without words or calls.
    pub(super) fn was_silent(&mut self) {
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
