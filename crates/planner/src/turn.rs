//! A model request as the planner reads it: what was asked, and what has been done about it since.

use annie_core::message::{Message, ModelRequest, ToolCall};
use serde_json::Value;

use super::{
    answer::left_over,
    execute::{Interface, Round},
    refer::{self, Said},
};

/// The request of a turn and its trail.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// The user's words, or a sub-agent's brief.
    pub said: &'a str,
    /// What the kernel put before the words.
    pub context: Option<&'a str>,
    /// Everything after it.
    pub trail: &'a [Message],
    /// Everything of it since the user let a paused turn go on.
    pub fresh: &'a [Message],
    /// It is a sub-agent's.
    pub is_mission: bool,
    /// The wishes: what was left over if the user says to go on, else the words themselves, with `it` and `yes` understood.
    pub wishes: Vec<String>,
    /// The answer, if the conversation before leaves nothing to carry out.
    pub answer: Option<String>,
    /// What the user added while the turn ran, which comes too late for a plan.
    pub added: Vec<&'a str>,
}

/// Begins the words of a user who lets a paused turn go on.
const PAUSED: &str = "[You paused at a limit";
/// Begins what the user said while the turn ran, in a note of the kernel.
const ADDED: &str = "[The user adds, while you work on this:]\n";

impl<'a> Turn<'a> {
    /// Reads a request.
    pub fn read(request: &'a ModelRequest, is_mission: bool) -> Self {
        let messages = request.messages.as_slice();
        let asked = |m: &Message| matches!(m, Message::User { text, .. } if is_mission || !is_note(text));
        let at = if is_mission { messages.iter().position(asked) } else { messages.iter().rposition(asked) };
        let at = at.unwrap_or(messages.len());
        let (said, context) = match messages.get(at) {
            Some(Message::User { text, context }) => (text.as_str(), context.as_deref()),
            _ => ("", None),
        };
        let trail = messages.get(at + 1..).unwrap_or_default();
        let resumed = trail.iter().rposition(|m| matches!(m, Message::User { text, .. } if text.starts_with(PAUSED)));
        let fresh = resumed.map_or(trail, |n| &trail[n + 1..]);
        let answers: Vec<&str> =
            messages[..at.min(messages.len())].iter().rev().filter_map(answer_of).take(8).collect();
        let left = answers.first().filter(|_| says_continue(said)).map(|before| left_over(before)).unwrap_or_default();
        let answered = messages[..at].iter().rposition(|m| answer_of(m).is_some()).unwrap_or_default();
        let before = messages[..answered].iter().rev().find_map(|m| match m {
            Message::User { text, .. } if !is_note(text) => Some(text.as_str()),
            _ => None,
        });
        let (wishes, answer) = match refer::read(said, before.unwrap_or_default(), &answers) {
            _ if !left.is_empty() => (left, None),
            _ if is_mission => (vec![said.to_owned()], None),
            Said::Wishes(wishes) => (wishes, None),
            Said::Answer(text) => (Vec::new(), Some(text)),
        };
        let notes = messages.get(at..).unwrap_or_default().iter().filter_map(|m| match m {
            Message::Note { text } => Some(text.as_str()),
            _ => None,
        });
        let added = notes.flat_map(additions).collect();
        Self { said, context, trail, fresh, is_mission, wishes, answer, added }
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

    /// Calls of the whole trail with their results.
    pub fn calls(&self) -> impl Iterator<Item = (&'a ToolCall, Value, &'a str)> {
        with_arguments(self.trail)
    }

    /// Calls since the user let a paused turn go on.
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

/// The result of a call among the messages that follow it directly; empty if there is none.
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

/// A message of the kernel on the user's side.
fn is_note(text: &str) -> bool {
    is_results(text) || text.starts_with(PAUSED)
}

/// A message with results of commands.
fn is_results(text: &str) -> bool {
    text.starts_with("<result")
}

/// What the user added, of a note of the kernel that tells it.
fn additions(note: &str) -> impl Iterator<Item = &str> {
    note.split(ADDED).skip(1).map(|added| added.split("\n\n[").next().unwrap_or_default().trim())
}

/// An answer of an earlier turn; words beside tool calls are none.
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
