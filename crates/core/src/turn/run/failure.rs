//! Failures of an agent's rounds.

use super::{AgentRun, Ending};
use crate::{
    event::EventBody,
    message::{ModelError, ModelErrorKind},
};

impl AgentRun {
    /// The failure to record for a round that a previous incarnation began on an agentic backend and whose end is unknown.
    #[must_use]
    pub fn interrupted(&self) -> Option<EventBody> {
        let round = self.began.filter(|round| self.awaits(*round))?;
        let detail = "it was interrupted, and what it did may have taken effect";
        Some(EventBody::ModelFailed { round, error: ModelError::new(ModelErrorKind::InDoubt, detail), waited_ms: 0 })
    }

    /// Folds the failure of the current round. If the context did not fit, the run shrinks it once and repeats the round. The log
    /// keeps the full context.
    pub fn failed(&mut self, round: u32, error: &ModelError) {
        if !self.awaits(round) {
            return;
        }
        if self.is_advising() {
            self.failed_for_good(error);
        } else if self.output.is_taken_back_for(error) {
            self.round_ends();
            self.again();
        } else if error.kind == ModelErrorKind::Overflow && self.shrink() {
            self.guard.context_was_shortened();
            self.round_ends();
            self.again();
        } else {
            self.failed_for_good(error);
        }
    }

    /// Folds a failure of the current round without a retry. A cut answer from before becomes the answer.
    pub(in crate::turn) fn failed_for_good(&mut self, error: &ModelError) {
        self.round_ends();
        if self.take_advice(None) {
            return;
        }
        match self.cut.take() {
            Some(before) => self.end_with_cut_text(before),
            // The turn stops like at its other limits: with a report, and the user may continue it.
            None if error.kind == ModelErrorKind::TurnSpendCap => self.end(Ending::Tripped(error.detail.clone())),
            None => self.end(Ending::ModelFailed(error.clone())),
        }
    }
}
