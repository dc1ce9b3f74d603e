//! The sliding window over a conversation's past turns [S0 6.3]. It moves in large steps and not message by message, so that
//! the prompt's prefix stays constant over many turns and a provider's cache remains valid.

use serde::{Deserialize, Serialize};

use super::{
    clip,
    compaction::{Summary, with_context},
    framed,
};
use crate::{
    event::Mode,
    message::{Message, ToolCall},
};

/// One past turn as later turns see it: request and answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The user's text. Empty if the assistant began.
    pub user: String,
    /// The answer.
    pub answer: String,
    /// Whether the turn is local only. Only private turns see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// The steps of the turn. A model that sees only answers learns to answer without running anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The effects of the turn, one line each, for summaries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<String>,
}

/// A round of a past turn: the model's output and its results, either commands or tool calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The reply with its commands.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commands: String,
    /// The results, in their frames.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub results: String,
    /// The tool calls, each with its result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<(ToolCall, String)>,
    /// The mode in which these tools were offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

impl Step {
    /// Whether the model wrote the same in both rounds.
    #[must_use]
    pub fn has_same_calls(&self, other: &Self) -> bool {
        let calls = |step: &Self| {
            step.calls.iter().map(|(call, _)| (call.name.clone(), call.arguments.clone())).collect::<Vec<_>>()
        };
        self.commands.trim() == other.commands.trim() && calls(self) == calls(other)
    }

    /// The result of each call.
    #[must_use]
    pub fn results(&self) -> Vec<String> {
        let of_commands = framed(&self.results, "result").into_iter().map(|result| result.text.trim().to_owned());
        of_commands.chain(self.calls.iter().map(|(_, result)| result.trim().to_owned())).collect()
    }

    fn len_bytes(&self) -> usize {
        let calls = self.calls.iter().map(|(call, result)| call.name.len() + call.arguments.len() + result.len());
        self.commands.len() + self.results.len() + calls.sum::<usize>()
    }

    fn tokens(&self) -> u32 {
        let calls = self.calls.iter().map(|(_, result)| tokens(result.len()));
        calls.fold(tokens(self.len_bytes()), u32::saturating_add)
    }

    /// Adds the step before the answer that followed it, for a model with the same calling interface.
    fn push_to(&self, messages: &mut Vec<Message>, shown: Shown) {
        if shown.by_commands && !self.commands.is_empty() {
            messages.push(Message::assistant(self.commands.clone()));
            messages.push(Message::user(self.results.clone()));
        }
        if shown.by_commands || self.mode != Some(shown.mode) || self.calls.is_empty() {
            return;
        }
        // Providers require ids that are unique in the whole prompt, and one of them requires exactly nine letters or
        // digits.
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

/// The calling interface of the turn that sees the history. It is shown only calls of its own kind.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// Whether the turn is local only.
    pub private: bool,
    /// Whether its model writes commands.
    pub by_commands: bool,
    /// Its mode.
    pub mode: Mode,
}

impl Exchange {
    fn tokens(&self) -> u32 {
        let steps = self.steps.iter().map(Step::tokens);
        steps.fold(tokens(self.user.len()).saturating_add(tokens(self.answer.len())), u32::saturating_add)
    }

    pub(super) fn len_bytes(&self) -> usize {
        let steps: usize = self.steps.iter().map(Step::len_bytes).sum();
        self.user.len() + self.answer.len() + steps
    }

    /// An exchange that only has texts.
    #[must_use]
    pub const fn plain(user: String, answer: String, private: bool) -> Self {
        Self { user, answer, private, steps: Vec::new(), done: Vec::new() }
    }

    /// The number of its messages.
    #[must_use]
    pub const fn messages(&self) -> u32 {
        if self.user.is_empty() { 1 } else { 2 }
    }
}

/// Past turns, oldest first, limited to [`History::EXCHANGES_MAX`] and [`History::BYTES_MAX`]. The log has all turns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub(super) past: Vec<Exchange>,
    /// Index of the first exchange that is still sent.
    pub(super) start: usize,
    /// The number of exchanges so far, with those that are no longer in memory.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub(super) count: u64,
    /// What stands for the older exchanges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Summary>,
}

/// A rough estimate of tokens: four bytes per token, and a few tokens for the frame of each message. It overestimates for
/// English; the reserve for the answer covers the remaining error.
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
    /// Maximum number of exchanges kept in memory.
    pub const EXCHANGES_MAX: usize = 200;
    /// Maximum size of their texts together, in bytes.
    pub const BYTES_MAX: usize = 512 * 1024;
    /// Maximum size of one stored text, in bytes.
    pub const TEXT_BYTES_MAX: usize = 16 * 1024;

    /// Adds a finished turn. At the limit, old turns are removed in one large step.
    pub fn push(&mut self, exchange: Exchange) {
        let kept = |text: &str| clip(text, Self::TEXT_BYTES_MAX).into_owned();
        self.past.push(Exchange { user: kept(&exchange.user), answer: kept(&exchange.answer), ..exchange });
        self.count += 1;
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

    /// Whether there are no exchanges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.past.is_empty()
    }

    /// All exchanges in memory.
    #[must_use]
    pub fn exchanges(&self) -> &[Exchange] {
        &self.past
    }

    /// If the window exceeds the budget, moves its start so that only 60 % of the budget is used.
    pub fn fit(&mut self, tokens_max: u32) {
        let tokens_max = tokens_max.saturating_sub(self.summary_tokens(tokens_max));
        let is_sent = |at: &usize| self.is_sent(*at, true);
        let used = (self.start..self.past.len()).filter(is_sent).map(|at| self.past[at].tokens());
        let mut used = used.fold(0, u32::saturating_add);
        if used <= tokens_max {
            return;
        }
        let target = tokens_max / 5 * 3;
        while used > target && self.start < self.past.len() {
            if self.is_sent(self.start, true) {
                used = used.saturating_sub(self.past[self.start].tokens());
            }
            self.start += 1;
        }
    }

    /// Whether prompts contain the exchange at this index, as far as it fits. The summary stands for the other ones. Exchanges of
    /// private turns are in no summary, and only private turns see them.
    pub(super) fn is_sent(&self, at: usize, private: bool) -> bool {
        let exchange = &self.past[at];
        if exchange.private { private } else { self.number(at) > self.summarised_to() }
    }

    /// The number of the exchange at this index, counted from 1 over the whole conversation.
    pub(super) fn number(&self, at: usize) -> u64 {
        self.count.saturating_sub(self.past.len() as u64) + at as u64 + 1
    }

    /// The messages to send: the summary of older exchanges, if there is one, and of the exchanges within the window, the newest
    /// that fit into `tokens_max`. Private ones are included only in a private turn. A long message reduces the history in its
    /// own turn only. The summary stands before the first message of a user. If there is none, [`Self::summary_before`] gives it.
    #[must_use]
    pub fn messages(&self, tokens_max: u32, shown: Shown) -> Vec<Message> {
        let mut used = self.summary_tokens(tokens_max);
        let fitting: Vec<&Exchange> = (self.start..self.past.len())
            .rev()
            .filter(|at| self.is_sent(*at, shown.private))
            .map(|at| &self.past[at])
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
        if let Some(first @ Message::User { .. }) = messages.first_mut() {
            with_context(first, self.summary_text(tokens_max));
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CompactionCause;

    const SHOWN: Shown = Shown { private: false, by_commands: false, mode: Mode::SingleLoop };

    fn exchange(n: usize) -> Exchange {
        Exchange::plain(format!("question {n}"), "x".repeat(400), false)
    }

    #[test]
    fn history_window_moves_rarely_and_in_large_steps() {
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
    fn history_long_message_reduces_history_without_moving_window() {
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
    fn history_is_due_for_a_summary_before_exchanges_leave_memory() {
        let cause = |history: &History| history.due(u32::MAX).map(|span| (span.first, span.cause));
        let mut history = History::default();
        for n in 0..History::EXCHANGES_MAX / 4 {
            history.push(exchange(n));
        }
        assert_eq!(cause(&history), None);
        history.push(exchange(0));
        assert_eq!(cause(&history), Some((1, CompactionCause::Window)));
        let mut long = History::default();
        while long.exchanges().len() < 5 {
            long.push(Exchange::plain("u".repeat(1 << 20), "a".repeat(1 << 20), false));
        }
        assert_eq!(
            cause(&long),
            Some((1, CompactionCause::Window)),
            "their texts have more than a quarter of the bytes"
        );
    }

    #[test]
    fn history_in_memory_is_bounded() {
        let mut history = History::default();
        for n in 0..1_000 {
            history.push(exchange(n));
        }
        assert!(history.exchanges().len() <= History::EXCHANGES_MAX);
        assert_eq!(history.exchanges().last().map(|e| e.user.as_str()), Some("question 999"));
        for _ in 0..100 {
            history.push(Exchange::plain("u".repeat(1 << 20), "a".repeat(1 << 20), false));
        }
        let bytes: usize = history.exchanges().iter().map(Exchange::len_bytes).sum();
        assert!(bytes <= History::BYTES_MAX && history.start <= history.past.len(), "{bytes}");
        assert!(!history.messages(u32::MAX, SHOWN).is_empty());
    }
}
