//! The body of a request to Messages. The stable part (tools, system prompt, history) is serialised identically on every
//! round. Breakpoints end the prefixes that the provider may cache.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use annie_core::{
    caller::ToolChoice,
    message::{CacheTtl, Message, ModelRequest, SystemPart, ToolCall, ToolDef},
};
use serde::Serialize;
use serde_json::{Map, Number, Value, json};

use crate::{
    config::ModelConfig,
    wire::{
        BREAKPOINTS_MAX, CacheControl, NO_BEGINNING, NO_RESULT, configured_fields, history_end,
        quirks::Quirks,
        state::{State, is_thinking},
    },
};

/// The smallest thinking budget that the provider accepts, in tokens.
const BUDGET_TOKENS_MIN: u64 = 1_024;
/// Replaces a message that is only white space, which the provider refuses.
const EMPTY: &str = "[empty message]";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<Line<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<&'a Number>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_sequences: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
    stream: bool,
    #[serde(flatten)]
    extra: BTreeMap<&'a str, &'a Value>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Line<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Block<'a> {
    Own(Own<'a>),
    /// A block of the provider, returned unchanged.
    Kept(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Own<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: Value,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

/// Serialises the body.
pub(super) fn body(config: &ModelConfig, request: &ModelRequest, quirks: Quirks) -> Result<Vec<u8>, serde_json::Error> {
    let options = &request.options;
    let sampling = &options.sampling;
    let marks = config.cache_breakpoints;
    let asked = sampling.temperature.clone();
    let configured = || config.temperature.and_then(|t| Number::from_f64(f64::from((t * 1e3).round()) / 1e3));
    let messages = lines(config, request, marks);
    let body = Body {
        thinking: thinking(config, request, &messages),
        model: request.model.as_deref().unwrap_or(&config.model),
        max_tokens: request.output_tokens_max.max(1),
        tools: tools(request, marks),
        tool_choice: tool_choice(request),
        system: system(&request.system, marks, BREAKPOINTS_MAX - 1 - usize::from(!request.tools.is_empty())),
        messages,
        temperature: asked.or_else(configured).filter(|_| !quirks.no_temperature),
        top_p: sampling.top_p.as_ref(),
        stop_sequences: sampling.stop.iter().map(String::as_str).filter(|stop| !stop.trim().is_empty()).collect(),
        stream: config.stream,
        extra: extra(config, request),
    };
    serde_json::to_vec(&body)
}

/// The configured fields, except those that are written elsewhere.
fn extra<'a>(config: &'a ModelConfig, request: &ModelRequest) -> BTreeMap<&'a str, &'a Value> {
    let sampling = &request.options.sampling;
    configured_fields(config, |name| match name {
        "thinking" => true,
        "top_p" => sampling.top_p.is_some(),
        "stop_sequences" => !sampling.stop.is_empty(),
        _ => false,
    })
}

/// The tools. The last one ends a prefix that all conversations share. The provider refuses messages with calls if no tools
/// are offered; then placeholders with the names of the called tools are sent.
fn tools(request: &ModelRequest, marks: bool) -> Vec<Tool<'_>> {
    let nothing = || Cow::Owned(json!({"type": "object"}));
    if request.tools.is_empty() {
        let names: BTreeSet<&str> = calls(request).map(|call| call.name.as_str()).collect();
        let gone = |name| Tool { name, description: "", input_schema: nothing(), cache_control: None };
        return names.into_iter().map(gone).collect();
    }
    let schema = |tool: &'_ ToolDef| match &tool.parameters {
        Value::Object(object) if object.contains_key("type") => None,
        Value::Object(object) => {
            let mut object = object.clone();
            object.insert("type".to_owned(), "object".into());
            Some(Value::Object(object))
        }
        _ => Some(json!({"type": "object"})),
    };
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            name: &tool.name,
            description: &tool.description,
            input_schema: schema(tool).map_or(Cow::Borrowed(&tool.parameters), Cow::Owned),
            cache_control: None,
        })
        .collect();
    if let Some(last) = tools.last_mut().filter(|_| marks) {
        // The provider requires breakpoints with a longer lifetime to come first.
        let is_hour = request.system.iter().any(|part| part.cache == Some(CacheTtl::OneHour));
        last.cache_control = Some(CacheControl::of(if is_hour { CacheTtl::OneHour } else { CacheTtl::FiveMinutes }));
    }
    tools
}

fn calls(request: &ModelRequest) -> impl Iterator<Item = &ToolCall> {
    request.messages.iter().flat_map(|message| match message {
        Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    })
}

fn tool_choice(request: &ModelRequest) -> Option<Value> {
    if request.tools.is_empty() {
        return calls(request).next().map(|_| json!({"type": "none"}));
    }
    let one_at_a_time = request.options.parallel_tool_calls == Some(false);
    let mut choice = match request.options.tool_choice.as_ref() {
        None if !one_at_a_time => return None,
        None | Some(ToolChoice::Auto) => json!({"type": "auto"}),
        Some(ToolChoice::None) => return Some(json!({"type": "none"})),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::Tool(name)) => json!({"type": "tool", "name": name}),
    };
    if one_at_a_time {
        choice["disable_parallel_tool_use"] = true.into();
    }
    Some(choice)
}

/// The configured thinking, within what the provider accepts: not with a forced call, and with a budget below the output
/// limit.
/// A budget requires the thinking that belongs to the calls being answered, which is missing if another backend made the
/// calls.
fn thinking(config: &ModelConfig, request: &ModelRequest, lines: &[Line<'_>]) -> Option<Value> {
    let asked = config.body.get("thinking")?;
    let is_forced = matches!(request.options.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_)));
    if is_forced && !request.tools.is_empty() {
        return None;
    }
    let Some(budget) = asked["budget_tokens"].as_u64() else { return Some(asked.clone()) };
    if !has_thinking(lines) {
        return None;
    }
    let output = u64::from(request.output_tokens_max);
    let budget = if budget < output { budget } else { output / 2 };
    let mut fitted = asked.clone();
    fitted["budget_tokens"] = budget.into();
    (budget >= BUDGET_TOKENS_MIN).then_some(fitted)
}

/// Whether the reply that is continued, by results or by more text, begins with its thinking.
fn has_thinking(lines: &[Line<'_>]) -> bool {
    let is_result = |block: &Block<'_>| matches!(block, Block::Own(Own::ToolResult { .. }));
    let reply = match lines {
        [.., reply] if reply.role == "assistant" => reply,
        [.., reply, answer] if answer.content.iter().any(is_result) => reply,
        _ => return true,
    };
    matches!(reply.content.first(), Some(Block::Kept(_)))
}

fn model<'a>(config: &'a ModelConfig, request: &'a ModelRequest) -> &'a str {
    request.model.as_deref().unwrap_or(&config.model)
}

fn system(parts: &[SystemPart], marks: bool, mut marks_left: usize) -> Vec<Block<'_>> {
    let filled = parts.iter().filter(|part| !part.text.trim().is_empty());
    filled
        .map(|part| {
            let cache = part.cache.filter(|_| marks && marks_left > 0);
            marks_left -= usize::from(cache.is_some());
            text(&part.text, cache.map(CacheControl::of))
        })
        .collect()
}

const fn text(text: &str, cache_control: Option<CacheControl>) -> Block<'_> {
    Block::Own(Own::Text { text, cache_control })
}

/// Builds the message list: consecutive messages of one role become one message.
#[derive(Default)]
struct Lines<'a> {
    lines: Vec<Line<'a>>,
    /// Calls without a result so far.
    open: Vec<&'a str>,
    /// Results whose calls were cut from the window. They are sent as text, which must not come before results.
    orphans: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    fn push(&mut self, role: &'static str, blocks: impl IntoIterator<Item = Block<'a>>) {
        for block in blocks {
            match self.lines.last_mut() {
                Some(last) if last.role == role => last.content.push(block),
                _ => self.lines.push(Line { role, content: vec![block] }),
            }
        }
    }

    /// Adds text to the user's side, unless it is only white space.
    fn say(&mut self, words: &'a str, cache: Option<CacheControl>) {
        if !words.trim().is_empty() {
            self.push("user", [text(words, cache)]);
        }
    }

    /// Adds a result.
    fn result(&mut self, call_id: &'a str, content: &'a str, is_error: bool, cache: Option<CacheControl>) {
        let Some(at) = self.open.iter().position(|id| *id == call_id) else {
            self.orphans.push(content);
            return;
        };
        self.open.remove(at);
        self.push("user", [result(call_id, content, is_error, cache)]);
    }

    /// Answers the calls that have no result.
    fn close(&mut self) {
        for id in std::mem::take(&mut self.open) {
            self.push("user", [result(id, NO_RESULT, true, None)]);
        }
        for orphan in std::mem::take(&mut self.orphans) {
            self.say(orphan, None);
        }
    }

    fn finish(mut self) -> Vec<Line<'a>> {
        self.close();
        if self.lines.first().is_none_or(|first| first.role != "user") {
            let before = if self.lines.is_empty() { EMPTY } else { NO_BEGINNING };
            self.lines.insert(0, Line { role: "user", content: vec![text(before, None)] });
        }
        // A reply that the model is to continue must not end with white space.
        if let Some(Line { role: "assistant", content }) = self.lines.last_mut()
            && let Some(Block::Own(Own::Text { text, .. })) = content.last_mut()
        {
            *text = text.trim_end();
        }
        self.lines
    }
}

fn lines<'a>(config: &ModelConfig, request: &'a ModelRequest, marks: bool) -> Vec<Line<'a>> {
    let marked = marks.then(|| history_end(request)).flatten();
    let mut lines = Lines::default();
    for (at, message) in request.messages.iter().enumerate() {
        if !matches!(message, Message::Tool { .. }) {
            lines.close();
        }
        let cache = (marked == Some(at)).then(|| CacheControl::of(CacheTtl::FiveMinutes));
        match message {
            Message::User { context, text } => {
                let is_blank = context.as_ref().is_none_or(|c| c.trim().is_empty()) && text.trim().is_empty();
                lines.say(context.as_deref().unwrap_or_default(), None);
                lines.say(if is_blank { EMPTY } else { text }, cache);
            }
            Message::Assistant { text, tool_calls, provider_state } => {
                lines.open = tool_calls.iter().map(|call| call.id.as_str()).collect();
                let state = State::own(provider_state.as_ref(), config, model(config, request));
                lines.push("assistant", assistant(text, tool_calls, state));
            }
            Message::Tool { call_id, text, is_error } => lines.result(call_id, text, *is_error, cache),
            Message::Note { text } => lines.say(text, None),
        }
    }
    lines.finish()
}

/// A reply of the model. If its thinking is stored, all blocks keep their original order.
fn assistant<'a>(reply_text: &'a str, tool_calls: &'a [ToolCall], state: State<'a>) -> Vec<Block<'a>> {
    let mut reply_text = Some(reply_text).filter(|reply_text| !reply_text.trim().is_empty());
    let mut left: Vec<&ToolCall> = tool_calls.iter().collect();
    let mut blocks = Vec::new();
    for block in state.blocks().unwrap_or_default() {
        match block["type"].as_str() {
            Some("text") => blocks.extend(reply_text.take().map(|reply_text| text(reply_text, None))),
            Some("tool_use") => {
                if let Some(at) = left.iter().position(|call| block["id"] == call.id.as_str()) {
                    blocks.push(call_block(left.remove(at)));
                }
            }
            _ if is_thinking(block) => blocks.push(Block::Kept(block)),
            _ => {}
        }
    }
    blocks.extend(reply_text.map(|reply_text| text(reply_text, None)));
    blocks.extend(left.into_iter().map(call_block));
    blocks
}

fn call_block(call: &ToolCall) -> Block<'_> {
    let input = serde_json::from_str::<Map<String, Value>>(&call.arguments);
    let input = input.map_or_else(|_| json!({"invalid_json": call.arguments}), Value::Object);
    Block::Own(Own::ToolUse { id: plain_id(&call.id), name: &call.name, input })
}

fn result<'a>(call_id: &'a str, output: &'a str, is_error: bool, cache: Option<CacheControl>) -> Block<'a> {
    let content = if output.trim().is_empty() { "" } else { output };
    Block::Own(Own::ToolResult { tool_use_id: plain_id(call_id), content, is_error, cache_control: cache })
}

/// Replaces characters of an id that the provider refuses: another backend may have created the id.
fn plain_id(id: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match id.chars().all(is_plain) {
        true => id.into(),
        false => id.chars().map(|c| if is_plain(c) { c } else { '_' }).collect(),
    }
}
