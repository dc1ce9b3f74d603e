//! Assembles a reply from the parts that a server sends. Every rule for differences between servers is here, with its test
//! in `tests.rs`.

use annie_core::{
    message::{Finish, ModelErrorKind, ModelReply, Repair, ToolCall},
    ports::{Draft, DraftSink, Entropy},
};
use serde_json::Value;

use super::{
    Decode,
    failure::{self, Failure},
    state::StateParts,
    usage::{Timings, WireUsage, usage},
};
use crate::{
    config::ModelConfig,
    repair::{Names, ReplyText, mended_arguments},
};

/// The most tool calls that one reply may contain.
const CALLS_MAX: usize = 128;

#[derive(Debug, Default)]
struct Partial {
    index: u64,
    id: String,
    name: String,
    arguments: String,
    scan: JsonScan,
    /// State that the provider wants back with the call.
    extra: Value,
}

/// Tracks the nesting of a growing JSON text without reading it again.
#[derive(Debug, Default)]
struct JsonScan {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    has_closed: bool,
}

impl JsonScan {
    fn follow(&mut self, more: &str) {
        for byte in more.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    self.has_closed |= self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

/// The longest arguments without braces (`null`), with a margin, in bytes.
const BARE_BYTES_MAX: usize = 8;

impl Partial {
    fn grow(&mut self, more: &str) {
        self.scan.follow(more);
        self.arguments.push_str(more);
    }

    /// Whether the arguments are complete. A closed object is not parsed again with every fragment.
    fn has_ended(&self) -> bool {
        self.scan.has_closed || (self.arguments.len() <= BARE_BYTES_MAX && self.is_whole())
    }

    fn is_whole(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }
}

/// A complete reply, and what it showed about its backend.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub reply: ModelReply,
    /// The text began inside thinking.
    pub ended_without_begin: bool,
    /// Text was withheld as possible thinking, and was not thinking.
    pub withheld_needlessly: bool,
}

/// A fragment of a call.
#[derive(Debug, Default)]
pub(crate) struct CallPiece {
    /// The index of the call that the fragment belongs to.
    pub index: u64,
    pub id: String,
    pub name: String,
    /// The next part of the arguments' JSON text.
    pub arguments: String,
    /// State that the provider wants back with the call.
    pub extra: Value,
}

/// A reply that is still arriving: the decoder of its protocol, and the parts read so far.
pub(crate) struct Assembler<'a> {
    decoder: Box<dyn Decode>,
    parts: Parts<'a>,
}

impl<'a> Assembler<'a> {
    /// `names` are the names of calls that may come as text; `begins_thinking` if the text is known to begin inside
    /// thinking.
    pub fn new(config: &'a ModelConfig, names: &'a Names, begins_thinking: bool, drafts: &'a DraftSink) -> Self {
        let parts = Parts {
            config,
            drafts,
            text: ReplyText::new(names, begins_thinking, drafts),
            state: StateParts::default(),
            calls: Vec::new(),
            bytes: 0,
            finish: None,
            done: false,
            has_answer: false,
            started: false,
            model: None,
            usage: None,
            timings: None,
        };
        Self { decoder: super::of(config.profile).decoder(), parts }
    }

    /// Whether any part of the answer has arrived.
    pub const fn started(&self) -> bool {
        self.parts.started
    }

    /// Whether any text was shown. After that a repetition would show text twice.
    pub const fn has_shown(&self) -> bool {
        self.parts.text.has_shown()
    }

    /// Whether the end of the reply has arrived.
    pub const fn is_done(&self) -> bool {
        self.parts.done
    }

    /// Whether the answer is complete: its end or its stop reason has arrived, and every call is whole.
    pub fn is_whole(&self) -> bool {
        self.parts.done || (self.parts.finish.is_some() && !self.parts.has_cut_call())
    }

    /// Reads the data of one event.
    pub fn event(&mut self, data: &str) -> Result<(), Failure> {
        self.decoder.read(data.as_bytes(), &mut self.parts)
    }

    /// Reads a reply that came as one body. It is complete, because the length of the body marks its end.
    pub fn whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.decoder.read(body, &mut self.parts)?;
        if !self.parts.has_answer {
            return Err(self.parts.not_a_reply("there is no answer in it", body));
        }
        self.parts.done();
        Ok(())
    }

    /// Returns the reply, if it is complete.
    pub fn finish(self, asked_for: &str, entropy: &dyn Entropy) -> Result<Assembled, Failure> {
        self.parts.finish(asked_for, entropy)
    }
}

/// The parts of a reply, independent of the protocol.
pub(crate) struct Parts<'a> {
    config: &'a ModelConfig,
    drafts: &'a DraftSink,
    text: ReplyText<'a>,
    state: StateParts,
    calls: Vec<Partial>,
    bytes: usize,
    finish: Option<String>,
    done: bool,
    /// An answer arrived, even if it is empty.
    has_answer: bool,
    started: bool,
    model: Option<String>,
    usage: Option<WireUsage>,
    timings: Option<Timings>,
}

impl Parts<'_> {
    pub const fn config(&self) -> &ModelConfig {
        self.config
    }

    pub const fn state(&mut self) -> &mut StateParts {
        &mut self.state
    }

    /// Records the end of the reply.
    pub const fn done(&mut self) {
        self.done = true;
    }

    /// Records that the received data is an answer, and not another message of the server.
    pub const fn answers(&mut self) {
        self.has_answer = true;
    }

    fn has_cut_call(&self) -> bool {
        self.calls.iter().any(|call| !call.arguments.is_empty() && !call.is_whole())
    }

    /// Records the stop reason, in the provider's term.
    pub fn stopped(&mut self, reason: Option<String>) {
        self.finish = reason.filter(|f| !f.is_empty()).or(self.finish.take());
    }

    pub fn model(&mut self, name: Option<String>) {
        self.model = name.filter(|m| !m.is_empty()).or(self.model.take());
    }

    /// Replaces the usage.
    pub fn cost(&mut self, usage: Option<WireUsage>, timings: Option<Timings>) {
        self.usage = usage.or(self.usage.take());
        self.timings = timings.or(self.timings.take());
    }

    /// Merges further usage: later counts replace earlier ones.
    pub fn cost_so_far(&mut self, usage: Option<WireUsage>) {
        self.usage = match (self.usage.take(), usage) {
            (Some(before), Some(now)) => Some(before.with(now)),
            (before, now) => now.or(before),
        };
    }

    /// Stores reasoning that the provider may want back with its calls.
    pub fn keep_reasoning(&mut self, thought: &str) {
        self.state.reasoning(self.config, thought);
    }

    /// Adds reasoning.
    pub fn thought(&mut self, thought: String) -> Result<(), Failure> {
        if !thought.is_empty() {
            self.grow(thought.len())?;
            self.text.thinking_is_separate();
            (self.drafts)(Draft::Reasoning(thought));
        }
        Ok(())
    }

    /// Adds text.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        if !text.is_empty() {
            self.grow(text.len())?;
            self.text.push(text);
        }
        Ok(())
    }

    /// The failure for data that is not a reply of the protocol.
    pub fn not_a_reply(&self, why: &str, data: &[u8]) -> Failure {
        /// How much of the data is quoted, in characters.
        const HEAD_CHARS_MAX: usize = 200;
        // Masked before it is cut, because a part of a key would not be recognised. The parser's message may quote the data
        // as well.
        let data = self.config.scrub(&String::from_utf8_lossy(data));
        let head: String = data.chars().take(HEAD_CHARS_MAX).collect();
        let why = failure::short(self.config, why);
        Failure::new(ModelErrorKind::Protocol, format!("not a completion: {why}; it begins with {head:?}"), false)
    }

    /// Adds a fragment of a call.
    pub fn call(&mut self, piece: CallPiece) -> Result<(), Failure> {
        let CallPiece { index, id, name, arguments, extra } = piece;
        self.grow(arguments.len() + name.len())?;
        let at = match self.existing(index, &id, &name) {
            Some(at) => at,
            None if self.calls.len() == CALLS_MAX => {
                let detail = format!("more than {CALLS_MAX} tool calls in one reply");
                return Err(Failure::new(ModelErrorKind::Protocol, detail, false));
            }
            None => {
                self.calls.push(Partial { index, ..Partial::default() });
                self.calls.len() - 1
            }
        };
        let partial = &mut self.calls[at];
        if partial.id.is_empty() {
            partial.id = id;
        }
        if partial.name.is_empty() {
            partial.name = name;
        }
        partial.grow(&arguments);
        if !extra.is_null() {
            partial.extra = extra;
        }
        Ok(())
    }

    /// The call that a fragment continues, or `None` if it begins a new one. The index is the key. A different id under the
    /// same index is another call, and so is a second name after complete arguments.
    fn existing(&self, index: u64, id: &str, name: &str) -> Option<usize> {
        let mut same = (0..self.calls.len()).rev().filter(|at| self.calls[*at].index == index);
        let last = same.next()?;
        let call = &self.calls[last];
        if id.is_empty() {
            let begins_anew = !name.is_empty() && !call.name.is_empty() && call.has_ended();
            return (!begins_anew).then_some(last);
        }
        if call.id.is_empty() || call.id == id {
            return Some(last);
        }
        same.find(|at| self.calls[*at].id == id)
    }

    /// Counts bytes of the answer against its limit.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.started, true) {
            // Marks the start of the reply for listeners, even if no text may be shown yet.
            (self.drafts)(Draft::Text(String::new()));
        }
        self.bytes += bytes;
        if self.bytes > self.config.reply_bytes_max {
            let detail = format!("the reply is larger than {} bytes", self.config.reply_bytes_max);
            return Err(Failure::new(ModelErrorKind::Protocol, detail, false));
        }
        Ok(())
    }

    fn finish(mut self, asked_for: &str, entropy: &dyn Entropy) -> Result<Assembled, Failure> {
        if self.finish.is_none() && (!self.done || !self.has_answer || self.has_cut_call()) {
            let detail = "the reply ended before its end";
            return Err(Failure::new(ModelErrorKind::Truncated, detail, true));
        }
        let cut = cut_short(self.finish.as_deref().unwrap_or_default());
        if cut.is_some() {
            // A call that the limit cut off must never run, not even with `{}` as arguments.
            self.calls.retain(|call| !call.arguments.is_empty() && call.is_whole());
        }
        let whole = self.text.finish(!self.calls.is_empty(), cut.is_some());
        let mut repairs = whole.repairs;
        if mend(&mut self.calls) {
            repairs.push(Repair::Arguments);
        }
        let parsed = whole.calls.into_iter().map(|(name, arguments)| Partial { name, arguments, ..Partial::default() });
        self.calls.extend(parsed);
        let (tool_calls, extras) = named(self.calls, entropy);
        let finish = cut.unwrap_or(if tool_calls.is_empty() { Finish::Stop } else { Finish::ToolCalls });
        let reply = ModelReply {
            text: whole.text,
            provider_state: self.state.finish(self.config, asked_for, &extras),
            tool_calls,
            finish,
            usage: usage(self.usage.as_ref(), self.timings.as_ref(), self.config.price.as_ref()),
            model: self.model.unwrap_or_else(|| asked_for.to_owned()),
            declined: false,
            repairs,
            cached: false,
        };
        Ok(Assembled {
            reply,
            ended_without_begin: whole.ended_without_begin,
            withheld_needlessly: whole.withheld_needlessly,
        })
    }
}

/// Recognises stop reasons of all providers that mean a cut reply.
fn cut_short(reason: &str) -> Option<Finish> {
    match reason.to_ascii_lowercase().as_str() {
        // A paused reply is continued like one that a limit cut.
        "length"
        | "max_tokens"
        | "model_length"
        | "max_output_tokens"
        | "model_context_window_exceeded"
        | "pause_turn" => Some(Finish::Length),
        "content_filter" | "content-filter" | "content_filtered" | "safety" | "recitation" | "prohibited_content"
        | "blocklist" | "spii" | "refusal" => Some(Finish::ContentFilter),
        _ => None,
    }
}

/// Repairs arguments with a stray fence or one missing brace; returns whether any were repaired.
fn mend(calls: &mut [Partial]) -> bool {
    let mut is_mended = false;
    for call in calls.iter_mut().filter(|call| !call.arguments.trim().is_empty() && !call.is_whole()) {
        if let Some(arguments) = mended_arguments(&call.arguments) {
            call.arguments = arguments;
            is_mended = true;
        }
    }
    is_mended
}

/// Gives every call a unique id and arguments that are not empty: some models write `null` for no arguments.
fn named(calls: Vec<Partial>, entropy: &dyn Entropy) -> (Vec<ToolCall>, Vec<(String, Value)>) {
    let mut named: Vec<ToolCall> = Vec::with_capacity(calls.len());
    let mut extras = Vec::with_capacity(calls.len());
    for call in calls {
        let taken = call.id.is_empty() || named.iter().any(|n| n.id == call.id);
        let id = if taken { mint(entropy) } else { call.id };
        let blank = matches!(call.arguments.trim(), "" | "null");
        let arguments = if blank { "{}".to_owned() } else { call.arguments };
        extras.push((id.clone(), call.extra));
        named.push(ToolCall { id, name: call.name, arguments });
    }
    (named, extras)
}

fn mint(entropy: &dyn Entropy) -> String {
    let bits = (u128::from(entropy.next_u64()) << 64) | u128::from(entropy.next_u64());
    format!("call_{}", uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().simple())
}

#[cfg(test)]
mod tests;
