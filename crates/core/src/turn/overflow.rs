//! Shrinks an agent's context that did not fit into its model's window: first the history is dropped, then long results are
//! cut. The log keeps the full context.

use super::run::AgentRun;
use crate::{context::clip, message::Message};

/// How much of a result is kept when the context overflowed, in bytes.
const SQUEEZED_BYTES_MAX: usize = 1_000;

impl AgentRun {
    /// Drops the history. Returns false if there was none.
    pub(super) fn forget_history(&mut self) -> bool {
        let forgot = self.stable > 0;
        self.messages.drain(..self.stable);
        self.stable = 0;
        forgot
    }

    /// Cuts the results so far. Returns false if there is nothing left to cut.
    pub(super) fn clip_results(&mut self) -> bool {
        let mut cut = false;
        for message in self.messages.iter_mut().skip(1) {
            if let Message::Tool { text, .. } | Message::User { text, .. } | Message::Note { text } = message
                && text.len() > SQUEEZED_BYTES_MAX
            {
                *text = clip(text, SQUEEZED_BYTES_MAX).into_owned();
                cut = true;
            }
        }
        cut
    }
}
