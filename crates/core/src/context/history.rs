//! The sliding window over a conversation's past turns (S0 6.3). It is cut in large steps, not message by message, so that
//! the prefix of the prompt stays the same over many turns and a provider's cache can hold it.

use serde::{Deserialize, Serialize};

use crate::message::Message;

/// One past turn as later turns see it: what was asked and what was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The user's words; empty where the assistant spoke first.
    pub user: String,
    /// The answer.
    pub answer: String,
}

/// Past turns, oldest first, at most [`History::EXCHANGES_MAX`] of them: the log has all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    past: Vec<Exchange>,
    /// The first exchange that is still sent.
    start: usize,
}

/// A rough count: four bytes a token and a few for each message's frame. It errs upwards for English; the reserve for the
/// answer absorbs the rest.
#[must_use]
pub fn tokens(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(4) + 4).unwrap_or(u32::MAX)
}

impl History {
    /// How many exchanges are kept in memory at most.
    pub const EXCHANGES_MAX: usize = 200;

    /// Adds a finished turn.
    pub fn push(&mut self, exchange: Exchange) {
        if self.past.len() == Self::EXCHANGES_MAX {
            self.past.drain(..Self::EXCHANGES_MAX / 2);
            self.start = self.start.saturating_sub(Self::EXCHANGES_MAX / 2);
        }
        self.past.push(exchange);
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.past.is_empty()
    }

    /// All that is kept.
    #[must_use]
    pub fn exchanges(&self) -> &[Exchange] {
        &self.past
    }

    /// Moves the window's start if what follows it does not fit: then to where only 60 % of the budget is used.
    pub fn fit(&mut self, tokens_max: u32) {
        let cost = |e: &Exchange| tokens(e.user.len()) + tokens(e.answer.len());
        let mut used: u32 = self.past[self.start..].iter().map(cost).fold(0, u32::saturating_add);
        if used <= tokens_max {
            return;
        }
        let target = tokens_max / 5 * 3;
        while used > target && self.start < self.past.len() {
            used = used.saturating_sub(cost(&self.past[self.start]));
            self.start += 1;
        }
    }

    /// The messages to send.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::with_capacity((self.past.len() - self.start) * 2);
        for exchange in &self.past[self.start..] {
            if !exchange.user.is_empty() {
                messages.push(Message::user(exchange.user.clone()));
            }
            messages.push(Message::assistant(exchange.answer.clone()));
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(n: usize) -> Exchange {
        Exchange { user: format!("question {n}"), answer: "x".repeat(400) }
    }

    #[test]
    fn the_window_is_cut_seldom_and_in_large_steps() {
        let mut history = History::default();
        let mut starts = Vec::new();
        for n in 0..100 {
            history.push(exchange(n));
            history.fit(2_000);
            starts.push(history.start);
            let sent: u32 = history.messages().iter().map(|m| tokens(m.len_bytes())).sum();
            assert!(sent <= 2_000, "{sent}");
        }
        starts.dedup();
        assert!(starts.len() < 20, "the start moved {} times in 100 turns", starts.len());
    }

    #[test]
    fn what_is_kept_in_memory_is_bounded() {
        let mut history = History::default();
        for n in 0..1_000 {
            history.push(exchange(n));
        }
        assert!(history.exchanges().len() <= History::EXCHANGES_MAX);
        assert_eq!(history.exchanges().last().map(|e| e.user.as_str()), Some("question 999"));
    }
}
