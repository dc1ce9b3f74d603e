//! How replies, results and notes of the kernel are represented in a run's context.

use serde_json::Value;

use super::{
    calls::{ACCEPTED, DONE_ALREADY, NOT_RUN_AGAIN, REFUSED},
    cut::READ_RESULT,
    interface::USER_ADDS,
    run::{AgentRun, OpenCall},
};
use crate::{
    context::{TOOL_NAME_BYTES_MAX, clip, escape, framed, unescape, with_fences},
    event::{Action, ResolvedCall},
    message::{Message, ToolCall},
};

/// Limit in the context for the text of one reply, and for the arguments of all its calls together, in bytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// A text repeats an error if it begins with this many characters of the error.
const REPEATED_ERROR_CHARS: usize = 30;
/// Added to the results if the model wrote the same commands in its reply before, and they failed again.
const FAILED_AGAIN: &str =
    "[You wrote this before, and it failed again. Do not write it once more: correct it, or answer in words.]";
/// How much of one call's arguments is kept even if the arguments before have used up the limit, in bytes.
const ARGUMENTS_BYTES_MIN: usize = 1_000;

/// What a final text repeats in place of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Repeated {
    /// An error that the kernel gave as the result of a call.
    Error,
    /// The result of a call that was not run again; the text is the line of its receipt.
    DoneAlready(String),
    /// The message that opened the turn.
    Request,
}

/// The receipt's line in the result of a call that was not run again.
fn done_in(result: &str) -> String {
    let line = result.trim_start_matches(DONE_ALREADY).trim();
    let line = line.split(NOT_RUN_AGAIN).next().unwrap_or_default();
    line.split(ACCEPTED).next().unwrap_or_default().trim().to_owned()
}

impl AgentRun {
    /// The reply as a message of the context, which later rounds send to the model. Providers must accept the message.
    pub(super) fn as_message(&self, text: &str, calls: &[ResolvedCall], provider_state: Option<&Value>) -> Message {
        let reply_text = clip(text, TEXT_BYTES_MAX).into_owned();
        if self.is_cmd() {
            return Message::assistant(if reply_text.trim().is_empty() { as_text("", calls) } else { reply_text });
        }
        if !calls.iter().all(|c| is_sendable(&c.name)) {
            return Message::assistant(as_text(&reply_text, calls));
        }
        let mut bytes_left = TEXT_BYTES_MAX;
        let tool_calls: Vec<ToolCall> = calls
            .iter()
            .map(|c| {
                let arguments = clip(&c.raw, bytes_left.max(ARGUMENTS_BYTES_MIN)).into_owned();
                bytes_left = bytes_left.saturating_sub(arguments.len());
                ToolCall { id: c.id.clone(), name: c.name.clone(), arguments }
            })
            .collect();
        // Providers need their state back only with calls, and a final text becomes history at once.
        let provider_state = provider_state.filter(|_| !tool_calls.is_empty()).cloned();
        Message::Assistant { text: reply_text, tool_calls, provider_state }
    }

    /// Adds the results of calls to the context.
    pub(super) fn push_results(&mut self, calls: &[OpenCall]) {
        let results = calls.iter().map(|o| (&o.call, o.result.as_deref().unwrap_or_default(), o.untrusted.as_str()));
        if self.is_cmd() || !calls.iter().all(|o| is_sendable(&o.call.name)) {
            let shown = |(call, text, untrusted): (&ResolvedCall, &str, &str)| {
                let about = [("command", call.name.as_str()), ("status", status_of(text)), ("untrusted", untrusted)];
                let framed = self.frames.wrap("result", &about, text);
                // The kernel's own errors contain the command block that the model should write.
                // The rest of a result is no text of the kernel.
                let is_own_text = matches!(call.action, Action::Answer { .. }) && !call.raw.contains(READ_RESULT);
                if is_own_text { with_fences(&framed) } else { framed }
            };
            let mut blocks: Vec<String> = results.map(shown).collect();
            let has_failed = calls.iter().all(|o| status_of(o.result.as_deref().unwrap_or_default()) == "error");
            if has_failed && self.forget_same_failure() {
                blocks.push(FAILED_AGAIN.to_owned());
            }
            self.messages.push(Message::user(blocks.join("\n")));
        } else {
            // A result with the role `tool` needs no frame: the role marks the text as data, and the call id names the
            // call.
            self.messages.extend(results.map(|(call, text, untrusted)| Message::Tool {
                call_id: call.id.clone(),
                text: labelled(text, untrusted),
                is_error: matches!(status_of(text), "error" | "unknown" | "not_run"),
            }));
        }
    }

    /// Removes the round before the newest reply if the model wrote the same commands in it and they failed. A small model that
    /// sees itself repeat a call goes on repeating it.
    fn forget_same_failure(&mut self) -> bool {
        let own = &self.messages[self.stable.min(self.messages.len())..];
        let [
            ..,
            Message::Assistant { text: before, .. },
            Message::User { text: results, .. },
            Message::Assistant { text, .. },
        ] = own
        else {
            return false;
        };
        let results_before = framed(results, "result");
        let has_failed = results_before.iter().all(|r| r.attributes.contains("status=\"error\""));
        // The message may also contain words of the user that arrived during the turn.
        let has_user_words = results_before.is_empty() || results.contains(USER_ADDS);
        if before.trim() != text.trim() || !has_failed || has_user_words {
            return false;
        }
        let at = self.messages.len() - 3;
        self.messages.drain(at..at + 2);
        true
    }

    /// What a final text repeats in place of an answer. It may repeat the beginning of what the kernel gave as the
    /// result of a call of this turn. Once the turn has a receipt, it may also repeat the message that opened the turn,
    /// word for word.
    pub(super) fn repeated_text(&self, text: &str) -> Option<Repeated> {
        let text = text.trim();
        let own = || self.messages[self.stable.min(self.messages.len())..].iter();
        let results = || {
            own().flat_map(|message| match message {
                Message::Tool { text, .. } => vec![unescape(text).into_owned()],
                Message::User { text, .. } => {
                    framed(text, "result").into_iter().map(|result| result.text.into_owned()).collect()
                }
                Message::Assistant { .. } | Message::Note { .. } => Vec::new(),
            })
        };
        if text.starts_with(DONE_ALREADY) || text.starts_with(NOT_RUN_AGAIN) {
            let done = results().rfind(|result| result.starts_with(DONE_ALREADY));
            return done.map(|result| Repeated::DoneAlready(done_in(&result)));
        }
        let beginning: String = text.chars().take(REPEATED_ERROR_CHARS).collect();
        let is_error = text.starts_with("Error: ") && beginning.chars().count() == REPEATED_ERROR_CHARS;
        // The result of a failed skill begins with its status, and so does not match. Such a text may be the answer.
        if is_error && results().any(|result| result.starts_with(&beginning)) {
            return Some(Repeated::Error);
        }
        let is_fulfilled = !(self.receipts.is_empty() && self.known.is_empty());
        (is_fulfilled && self.is_request(text)).then_some(Repeated::Request)
    }

    /// Whether a text is the message that opened the turn, word for word.
    fn is_request(&self, text: &str) -> bool {
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase).collect()
        };
        matches!(self.messages.get(self.stable), Some(Message::User { text: request, .. }) if words(request) == words(text))
    }

    /// Adds a note of the kernel, which the model sees in its next round.
    pub fn note(&mut self, text: &str) {
        match self.messages.last_mut() {
            Some(Message::Note { text: last }) => {
                last.push_str("\n\n");
                last.push_str(text);
            }
            _ => self.messages.push(Message::note(text)),
        }
    }

    /// Adds words that the user sent during the turn.
    pub fn add_user_message(&mut self, text: &str) {
        match self.messages.last_mut() {
            Some(Message::User { text: last, .. }) => {
                last.push_str("\n\n");
                last.push_str(text);
            }
            _ => self.messages.push(Message::user(text)),
        }
    }
}

/// A result for a message with the role `tool`, with the origin of its text if that is untrusted.
fn labelled(text: &str, untrusted: &str) -> String {
    let text = escape(text);
    if untrusted.is_empty() { text.into() } else { format!("[untrusted: from {untrusted}]\n{text}") }
}

/// Whether providers accept a tool name as the model wrote it.
fn is_sendable(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    !name.is_empty() && name.len() <= TOOL_NAME_BYTES_MAX && name.bytes().all(plain)
}

/// A reply with its calls as text. It is used if a provider would refuse the name of a called tool. The name is not
/// replaced by a valid one, because the model would see a call that it did not write as its own, and imitate it.
fn as_text(reply_text: &str, calls: &[ResolvedCall]) -> String {
    let mut bytes_left = TEXT_BYTES_MAX;
    let mut text = reply_text.trim().to_owned();
    for call in calls {
        let arguments = clip(&call.raw, bytes_left.max(ARGUMENTS_BYTES_MIN));
        bytes_left = bytes_left.saturating_sub(arguments.len());
        let name = clip(&call.name, TOOL_NAME_BYTES_MAX);
        let line = format!("{{\"name\": {}, \"arguments\": {}}}", Value::from(&*name), arguments.trim());
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line);
    }
    text
}

/// The status of a result, from the mark at its beginning.
fn status_of(result: &str) -> &'static str {
    const MARKS: [(&str, &str); 9] = [
        ("Error: ", "error"),
        ("[error_", "error"),
        ("[unknown]", "unknown"),
        ("[not run]", "not_run"),
        ("[blocked]", "not_run"),
        (REFUSED, "not_run"),
        ("[partial]", "partial"),
        ("[pending]", "pending"),
        ("[done already]", "ok"),
    ];
    MARKS.iter().find(|(mark, _)| result.starts_with(mark)).map_or("ok", |(_, status)| status)
}
