//! The planner's view of a model request: the user's message, and the calls and results since then.

use annie_core::message::{Message, ModelRequest, ToolCall};
use serde_json::Value;

use super::{
    answer::left_over,
    execute::{Interface, Round},
    refer::{self, Referred},
};

/// The request of a turn and the messages after it.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// The user's text, or a sub-agent's brief.
    pub user_text: &'a str,
    /// The context that the kernel put before the text.
    pub context: Option<&'a str>,
    /// All messages after the user's.
    pub trail: &'a [Message],
    /// The messages of the trail since the user let a paused turn continue.
    pub fresh: &'a [Message],
    /// The request is a sub-agent's.
    pub is_mission: bool,
    /// The requests: those that were left over if the user says to continue, otherwise the text with `it` and `yes`
    /// resolved.
    pub user_requests: Vec<String>,
    /// The answer, if the earlier conversation leaves nothing to carry out.
    pub answer: Option<String>,
    /// Texts that the user added while the turn ran; they come too late for a plan.
    pub added: Vec<&'a str>,
}

/// Begins the message with which a user lets a paused turn continue.
const PAUSED: &str = "[You paused at a limit";
/// Begins text that the user added while the turn ran, in a note of the kernel.
const ADDED: &str = "[The user adds, while you work on this:]\n";

impl<'a> Turn<'a> {
    /// Reads a request.
    pub fn read(request: &'a ModelRequest, is_mission: bool) -> Self {
        let messages = request.messages.as_slice();
        let asked = |m: &Message| matches!(m, Message::User { text, .. } if is_mission || !is_note(text));
        let at = if is_mission { messages.iter().position(asked) } else { messages.iter().rposition(asked) };
        let at = at.unwrap_or(messages.len());
        let (user_text, context) = match messages.get(at) {
            Some(Message::User { text, context }) => (text.as_str(), context.as_deref()),
            _ => ("", None),
        };
        let trail = messages.get(at + 1..).unwrap_or_default();
        let resumed = trail.iter().rposition(|m| matches!(m, Message::User { text, .. } if text.starts_with(PAUSED)));
        let fresh = resumed.map_or(trail, |n| &trail[n + 1..]);
        let answers: Vec<&str> =
            messages[..at.min(messages.len())].iter().rev().filter_map(answer_of).take(8).collect();
        let left =
            answers.first().filter(|_| says_continue(user_text)).map(|before| left_over(before)).unwrap_or_default();
        let answered = messages[..at].iter().rposition(|m| answer_of(m).is_some()).unwrap_or_default();
        let before = messages[..answered].iter().rev().find_map(|m| match m {
            Message::User { text, .. } if !is_note(text) => Some(text.as_str()),
            _ => None,
        });
        let (user_requests, answer) = match refer::read(user_text, before.unwrap_or_default(), &answers) {
            _ if !left.is_empty() => (left, None),
            _ if is_mission => (vec![user_text.to_owned()], None),
            Referred::Requests(user_requests) => (user_requests, None),
            Referred::Answer(text) => (Vec::new(), Some(text)),
        };
        let notes = messages.get(at..).unwrap_or_default().iter().filter_map(|m| match m {
            Message::Note { text } => Some(text.as_str()),
            _ => None,
        });
        let added = notes.flat_map(additions).collect();
        Self { user_text, context, trail, fresh, is_mission, user_requests, answer, added }
    }

    /// The results of all calls of one tool.
    pub fn tool_results<'s>(&'s self, tool: &'s str) -> impl Iterator<Item = &'a str> + 's {
        pairs(self.trail).filter(move |(call, _)| call.name == tool).map(|(_, result)| result)
    }

    /// The rounds in which skills were run.
    pub fn rounds(&self, interface: Interface) -> Box<dyn Iterator<Item = Round<'a>> + 'a> {
        let trail = self.trail;
        if interface == Interface::Cmd {
            return Box::new(trail.iter().filter_map(|m| match m {
                Message::User { text, .. } if is_results(text) => Some(Round::Commands(text)),
                _ => None,
            }));
        }
        Box::new((0..trail.len()).filter_map(move |at| match &trail[at] {
            Message::Assistant { tool_calls, .. } if tool_calls.iter().any(|c| c.name != "get_skill") => {
                let results = &trail[at + 1..];
                Some(Round::Tools(tool_calls.iter().map(|call| (call, result_of(results, &call.id))).collect()))
            }
            _ => None,
        }))
    }

    /// All calls of the trail with their results.
    pub fn calls(&self) -> impl Iterator<Item = (&'a ToolCall, Value, &'a str)> {
        with_arguments(self.trail)
    }

    /// The calls since the user let a paused turn continue, with their results.
    pub fn fresh_calls(&self) -> impl Iterator<Item = (&'a ToolCall, Value, &'a str)> {
        with_arguments(self.fresh)
    }
}

fn with_arguments(trail: &[Message]) -> impl Iterator<Item = (&ToolCall, Value, &str)> {
    pairs(trail).map(|(call, result)| (call, serde_json::from_str(&call.arguments).unwrap_or(Value::Null), result))
}

fn pairs(trail: &[Message]) -> impl Iterator<Item = (&ToolCall, &str)> {
    (0..trail.len()).flat_map(move |at| {
        let calls = match &trail[at] {
            Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
            _ => &[],
        };
        calls.iter().map(move |call| (call, result_of(&trail[at + 1..], &call.id)))
    })
}

/// The result of a call in the messages that follow it directly; empty if there is none.
fn result_of<'a>(following: &'a [Message], id: &str) -> &'a str {
    following
        .iter()
        .map_while(|m| match m {
            Message::Tool { call_id, text, .. } => Some((call_id, text)),
            _ => None,
        })
        .find(|(call_id, _)| *call_id == id)
        .map_or("", |(_, text)| text.as_str())
}

/// A message of the kernel in the user's role.
fn is_note(text: &str) -> bool {
    is_results(text) || text.starts_with(PAUSED)
}

/// A message with results of commands.
fn is_results(text: &str) -> bool {
    text.starts_with("<result")
}

/// The user's additions in a note of the kernel.
fn additions(note: &str) -> impl Iterator<Item = &str> {
    note.split(ADDED).skip(1).map(|added| added.split("\n\n[").next().unwrap_or_default().trim())
}

/// An answer of an earlier turn; text beside tool calls does not count.
fn answer_of(message: &Message) -> Option<&str> {
    match message {
        Message::Assistant { text, tool_calls, .. } if tool_calls.is_empty() => Some(text),
        _ => None,
    }
}

/// `continue`, `yes please go on`.
pub(super) fn says_continue(text: &str) -> bool {
    const WORDS: [&str; 17] = [
        "continue", "yes", "please", "go", "on", "ahead", "ok", "okay", "sure", "keep", "going", "yep", "yeah",
        "proceed", "resume", "do", "it",
    ];
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).take(6).peekable();
    words.peek().is_some() && words.enumerate().all(|(n, w)| n < 5 && WORDS.contains(&w.to_lowercase().as_str()))
}
