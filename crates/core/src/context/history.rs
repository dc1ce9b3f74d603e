//! The sliding window over a conversation's past turns [S0 6.3]. It is cut in large steps, not message by message, so that
//! the prefix of the prompt stays the same over many turns and a provider's cache can hold it.

use serde::{Deserialize, Serialize};

use super::clip;
use crate::{
    event::Mode,
    message::{Message, ToolCall},
};

/// One past turn as later turns see it: what was asked and what was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The user's words; empty where the assistant spoke first.
    pub user: String,
    /// The answer.
    pub answer: String,
    /// It must not leave the house: only private turns see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// How it was done: a model that sees answers alone learns to answer, and runs nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

/// A round of a past turn: what the model wrote, and what came of it. Either commands or calls of tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The reply with its commands.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commands: String,
    /// The results, in their frames.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub results: String,
    /// The calls of tools, each with its result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<(ToolCall, String)>,
    /// The mode whose tools those are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

impl Step {
    fn len_bytes(&self) -> usize {
        let calls = self.calls.iter().map(|(call, result)| call.name.len() + call.arguments.len() + result.len());
        self.commands.len() + self.results.len() + calls.sum::<usize>()
    }

    fn tokens(&self) -> u32 {
        let calls = self.calls.iter().map(|(_, result)| tokens(result.len()));
        calls.fold(tokens(self.len_bytes()), u32::saturating_add)
    }

    /// Puts it before the answer that it led to, for a model that calls in this way.
    fn push_to(&self, messages: &mut Vec<Message>, shown: Shown) {
        if shown.by_commands && !self.commands.is_empty() {
            messages.push(Message::assistant(self.commands.clone()));
            messages.push(Message::user(self.results.clone()));
        }
        if shown.by_commands || self.mode != Some(shown.mode) || self.calls.is_empty() {
            return;
        }
        // Providers want ids that are their own in the whole prompt, and one of them exactly nine letters or digits.
        let first = messages.len();
        let id = |n: usize| format!("p{:08}", (first + n) % 100_000_000);
        let calls = self.calls.iter().enumerate();
        let tool_calls = calls.map(|(n, (call, _))| ToolCall { id: id(n), ..call.clone() }).collect();
        messages.push(Message::Assistant { text: String::new(), tool_calls, provider_state: None });
        messages.extend(self.calls.iter().enumerate().map(|(n, (_, result))| Message::Tool {
            call_id: id(n),
            text: result.clone(),
            is_error: false,
        }));
    }
}

/// How the turn calls to which the history is shown: it is shown calls like its own.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// It must not leave the house.
    pub private: bool,
    /// Its model writes commands.
    pub by_commands: bool,
    /// Its mode.
    pub mode: Mode,
}

impl Exchange {
    fn tokens(&self) -> u32 {
        let steps = self.steps.iter().map(Step::tokens);
        steps.fold(tokens(self.user.len()).saturating_add(tokens(self.answer.len())), u32::saturating_add)
    }

    fn len_bytes(&self) -> usize {
        let steps: usize = self.steps.iter().map(Step::len_bytes).sum();
        self.user.len() + self.answer.len() + steps
    }
}

/// Past turns, oldest first, within [`History::EXCHANGES_MAX`] and [`History::BYTES_MAX`]: the log has all.
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

/// The same for a list of messages.
#[must_use]
pub fn tokens_of(messages: &[Message]) -> u32 {
    messages.iter().map(|m| tokens(m.len_bytes())).fold(0, u32::saturating_add)
}

impl History {
    /// How many exchanges are kept in memory at most.
    pub const EXCHANGES_MAX: usize = 200;
    /// How many bytes of text they may have together.
    pub const BYTES_MAX: usize = 512 * 1024;
    /// How much is kept of one text, in bytes.
    pub const TEXT_BYTES_MAX: usize = 16 * 1024;

    /// Adds a finished turn. When there are too many, the older ones go in one large step.
    pub fn push(&mut self, exchange: Exchange) {
        let kept = |text: &str| clip(text, Self::TEXT_BYTES_MAX).into_owned();
        self.past.push(Exchange { user: kept(&exchange.user), answer: kept(&exchange.answer), ..exchange });
        let mut bytes: usize = self.past.iter().map(Exchange::len_bytes).sum();
        if self.past.len() <= Self::EXCHANGES_MAX && bytes <= Self::BYTES_MAX {
            return;
        }
        let mut gone = 0;
        while self.past.len() - gone > Self::EXCHANGES_MAX / 2 || bytes > Self::BYTES_MAX / 2 {
            bytes -= self.past[gone].len_bytes();
            gone += 1;
        }
        self.past.drain(..gone);
        self.start = self.start.saturating_sub(gone);
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
        let mut used = self.past[self.start..].iter().map(Exchange::tokens).fold(0, u32::saturating_add);
        if used <= tokens_max {
            return;
        }
        let target = tokens_max / 5 * 3;
        while used > target && self.start < self.past.len() {
            used = used.saturating_sub(self.past[self.start].tokens());
            self.start += 1;
        }
    }

    /// The messages to send; of what [`History::fit`] left, the newest that take no more than this, with what is private
    /// only for a private turn. A long message makes room for itself in its own turn only.
    #[must_use]
    pub fn messages(&self, tokens_max: u32, shown: Shown) -> Vec<Message> {
        let mut used = 0_u32;
        let seen = self.past[self.start..].iter().rev().filter(|e| shown.private || !e.private);
        let fitting: Vec<&Exchange> = seen
            .take_while(|e| {
                used = used.saturating_add(e.tokens());
                used <= tokens_max
            })
            .collect();
        let mut messages = Vec::with_capacity(fitting.len() * 2);
        for exchange in fitting.into_iter().rev() {
            if !exchange.user.is_empty() {
                messages.push(Message::user(exchange.user.clone()));
            }
            for step in exchange.steps.iter().filter(|_| !exchange.user.is_empty()) {
                step.push_to(&mut messages, shown);
            }
            messages.push(Message::assistant(exchange.answer.clone()));
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: Shown = Shown { private: false, by_commands: false, mode: Mode::SingleLoop };

    fn exchange(n: usize) -> Exchange {
        Exchange { user: format!("question {n}"), answer: "x".repeat(400), private: false, steps: Vec::new() }
    }

    #[test]
    fn the_window_is_cut_seldom_and_in_large_steps() {
        let mut history = History::default();
        let mut starts = Vec::new();
        for n in 0..100 {
            history.push(exchange(n));
            history.fit(2_000);
            starts.push(history.start);
            assert!(tokens_of(&history.messages(u32::MAX, SHOWN)) <= 2_000);
        }
        starts.dedup();
        assert!(starts.len() < 20, "the start moved {} times in 100 turns", starts.len());
    }

    #[test]
    fn a_long_message_makes_room_for_itself_without_moving_the_window() {
        let mut history = History::default();
        for n in 0..4 {
            history.push(exchange(n));
        }
        history.fit(2_000);
        assert_eq!(history.messages(300, SHOWN).len(), 4, "two exchanges of about 120 tokens fit");
        assert_eq!(history.messages(2_000, SHOWN).len(), 8);
        assert!(history.messages(0, SHOWN).is_empty());
    }

    #[test]
    fn what_is_kept_in_memory_is_bounded() {
        let mut history = History::default();
        for n in 0..1_000 {
            history.push(exchange(n));
        }
        assert!(history.exchanges().len() <= History::EXCHANGES_MAX);
        assert_eq!(history.exchanges().last().map(|e| e.user.as_str()), Some("question 999"));
        for _ in 0..100 {
            history.push(Exchange {
                user: "u".repeat(1 << 20),
                answer: "a".repeat(1 << 20),
                private: false,
                steps: Vec::new(),
            });
        }
        let bytes: usize = history.exchanges().iter().map(Exchange::len_bytes).sum();
        assert!(bytes <= History::BYTES_MAX && history.start <= history.past.len(), "{bytes}");
        assert!(!history.messages(u32::MAX, SHOWN).is_empty());
    }
}
