//! Copies: a conversation that begins with the history of another one.

use crate::{
    context::{Exchange, Frames},
    event::Copied,
    ids::TaskId,
    turn::conversation::Conversation,
};

impl Conversation {
    /// Begins a copy. Copied events of the original are records for replays only.
    pub(in crate::turn) fn begin_copy(&mut self, task: TaskId, copied: &Copied) {
        // An Engine that is active already does not receive the event.
        let is_new =
            self.history.is_empty() && self.inbox.is_empty() && self.turns.is_empty() && self.finished.is_empty();
        if !is_new {
            return;
        }
        self.is_listed = true;
        for exchange in &copied.history {
            self.known.copied(exchange);
            let (user, answer) = (exchange.user.clone(), exchange.answer.clone());
            self.history.push(Exchange::plain(user, answer, exchange.private));
        }
        if let Some(summary) = &copied.summary {
            self.known.summarised(&summary.text, &summary.origins);
            self.history.begin_with(summary, Frames::of(task));
        }
    }
}
