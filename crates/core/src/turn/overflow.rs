//! Shrinks an agent's context that did not fit into its model's window. This happens once in a run. The log keeps the full
//! context.

use super::run::AgentRun;
use crate::{context::clip, message::Message};

/// How much of a result is kept when the context overflowed, in bytes.
const SQUEEZED_BYTES_MAX: usize = 1_000;

impl AgentRun {
    /// Drops the history and cuts the results so far. Returns false if the context was shrunk before, or if there is nothing to
    /// shrink.
    pub(super) fn shrink(&mut self) -> bool {
        if self.has_shrunk {
            return false;
        }
        self.lost_history = self.forget_history();
        let has_cut = self.clip_results();
        self.has_shrunk = self.lost_history || has_cut;
        self.has_shrunk
    }

    /// Drops the history. Returns false if there was none.
    fn forget_history(&mut self) -> bool {
        let forgot = self.stable > 0;
        self.messages.drain(..self.stable);
        self.stable = 0;
        forgot
    }

    /// Cuts the results so far. Returns false if there is nothing to cut.
    fn clip_results(&mut self) -> bool {
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
