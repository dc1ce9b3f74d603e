//! Withholds text that may be a call, and passes all other text on at once. The decision is made character by character, so
//! it does not depend on how the reply was split into chunks.

use super::{
    calls::{self, PROSE_CHARS_MAX, ParsedCalls},
    names::Names,
};

/// Length limit for withheld text, in bytes; longer text is shown and is not a call.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// How much withheld text is checked again with every character, in bytes.
const LOOKED_AT_BYTES_MAX: usize = 256;
/// Language tags of fences around a call.
const FENCES: [&str; 8] = ["", "json", "tool_call", "tool_calls", "tool_code", "tool", "function", "xml"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A call may begin on a new line.
    Prose,
    /// A call may have begun at this byte.
    Held(usize),
    /// No further text can be a call.
    Open,
}

/// The visible text of one reply.
#[derive(Debug)]
pub(super) struct TextCallFilter<'a> {
    names: &'a Names,
    text: String,
    /// Length of the shown text, in bytes.
    shown: usize,
    state: State,
    /// Offset of the current line.
    line: usize,
    /// The number of shown lines that are not blank.
    lines: usize,
}

impl<'a> TextCallFilter<'a> {
    pub const fn new(names: &'a Names) -> Self {
        let state = if names.is_empty() { State::Open } else { State::Prose };
        Self { names, text: String::new(), shown: 0, state, line: 0, lines: 0 }
    }

    /// Adds text; returns the text that may be shown now.
    pub fn push(&mut self, more: &str) -> &str {
        if self.state == State::Open {
            self.text.push_str(more);
        } else {
            more.chars().for_each(|c| self.take(c));
        }
        let end = match self.state {
            State::Held(from) => from,
            State::Prose | State::Open => self.text.len(),
        };
        let from = self.shown;
        self.shown = end.max(from);
        &self.text[from..self.shown]
    }

    /// Discards all text so far, because it was thinking.
    pub fn forget(&mut self) {
        *self = Self::new(self.names);
    }

    fn take(&mut self, c: char) {
        let at = self.text.len();
        self.text.push(c);
        match self.state {
            State::Open => {}
            State::Prose => self.prose(at, c),
            State::Held(from) if self.text.len() - from > HELD_BYTES_MAX => self.state = State::Open,
            State::Held(from) => {
                let length = self.text[from..].trim_start().len();
                // A repeated error is judged by its words.
                let is_due = length <= LOOKED_AT_BYTES_MAX || c.is_whitespace() && self.is_begun_error(from);
                if is_due && !self.is_held(from) {
                    self.released(from);
                }
            }
        }
    }

    fn prose(&mut self, at: usize, c: char) {
        if c == '\n' {
            self.line = at + 1;
        } else if !c.is_whitespace() && self.text[self.line..at].trim().is_empty() {
            // The first character of a line that is not white space.
            if self.is_held(at) {
                self.state = State::Held(at);
            } else {
                self.begins_line();
            }
        } else if at - self.line > PROSE_CHARS_MAX * 4 {
            self.state = State::Open;
        }
    }

    /// Whether the text from this byte on may become a call.
    fn is_held(&self, from: usize) -> bool {
        let begins_reply = self.text[..from].trim().is_empty();
        let held = self.text[from..].trim_start();
        may_be_call(held, self.names) || begins_reply && calls::may_be_repeated_error(held)
    }

    fn is_begun_error(&self, from: usize) -> bool {
        self.text[from..].trim_start().starts_with(calls::ERROR)
    }

    fn begins_line(&mut self) {
        self.lines += 1;
        if self.lines > 1 {
            self.state = State::Open;
        }
    }

    /// The withheld text turned out not to be a call.
    fn released(&mut self, from: usize) {
        self.state = State::Prose;
        self.begins_line();
        if self.text[from..].trim_end().contains('\n') {
            self.state = State::Open;
        } else if self.text.ends_with('\n') {
            self.line = self.text.len();
        }
    }

    /// Returns the calls, if the text contains nothing else.
    pub fn parse_calls(&self) -> Option<ParsedCalls> {
        let State::Held(_) = self.state else { return None };
        calls::parse_calls(&self.text, self.names)
    }

    /// Returns the whole text, and the length of the part that was shown.
    pub fn finish(self) -> (String, usize) {
        (self.text, self.shown)
    }

    /// The shown text; for a reply whose calls were parsed this is its whole text.
    pub fn shown_text(&self) -> &str {
        &self.text[..self.shown]
    }
}

/// Whether a text with this beginning may become a command.
fn command_may_begin(text: &str, names: &Names) -> bool {
    let word = calls::word(text);
    match text[word.len()..].is_empty() {
        true => word.is_empty() || names.may_begin(word),
        false => names.find(word).is_some(),
    }
}

/// Whether a text with this beginning may become a call.
fn may_be_call(text: &str, names: &Names) -> bool {
    match text.chars().next() {
        None => true,
        Some('{') => object_may_be_call(text, names),
        Some('[') if calls::may_begin_with_tag(text) => true,
        Some('[') => {
            let inner = text[1..].trim_start();
            inner.is_empty() || inner.starts_with('{') && object_may_be_call(inner, names)
        }
        Some('<') => calls::may_begin_with_tag(text),
        Some('`') => {
            let Some(fence) = text.strip_prefix("```") else { return "```".starts_with(text) };
            match fence.split_once('\n') {
                None => {
                    let is_block = names.takes_blocks() && calls::BLOCK.starts_with(fence.trim_end());
                    is_block || FENCES.iter().any(|name| name.starts_with(fence.trim_end()))
                }
                Some((name, body)) if name.trim() == calls::BLOCK => {
                    names.takes_blocks() && command_may_begin(body.trim_start(), names)
                }
                Some((name, body)) => {
                    FENCES.contains(&name.trim())
                        && !body.trim_start().starts_with("```")
                        && may_be_call(body.trim_start(), names)
                }
            }
        }
        Some(_) => {
            let word = calls::word(text);
            if word.is_empty() || !names.may_begin(word) {
                return false;
            }
            let behind = &text[word.len()..];
            behind.is_empty()
                || names.find(word).is_some()
                    && (behind.trim_start().is_empty() || behind.trim_start().starts_with(['{', '(', '[', '<']))
        }
    }
}

/// Whether an object with this beginning may be a call: decided by its first key, and by the name if that comes first.
fn object_may_be_call(text: &str, names: &Names) -> bool {
    let inner = text.trim_start_matches('{').trim_start();
    if text.len() - text.trim_start_matches('{').len() > 2 {
        return false;
    }
    let Some(key) = inner.strip_prefix('"') else { return inner.is_empty() || inner.starts_with('/') };
    let Some((key, behind)) = key.split_once('"') else { return calls::may_become_key(key) };
    if !calls::is_key(key) {
        return false;
    }
    let value = behind.trim_start().strip_prefix(':').unwrap_or_default().trim_start();
    if !matches!(key, "name" | "tool" | "tool_name") {
        return true;
    }
    match value.strip_prefix('"') {
        None => value.is_empty(),
        Some(name) => match name.split_once('"') {
            None => name.is_empty() || names.may_begin(name) || "functions.".starts_with(name) || name.contains('.'),
            Some((name, _)) => names.find(name).is_some(),
        },
    }
}
