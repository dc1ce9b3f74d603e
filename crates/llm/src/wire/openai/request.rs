//! The body of a completion request. The field order is fixed, and the stable part (tools, system prompt, history) is
//! serialised identically on every round, so that a provider's prefix cache can match it.

mod roles;

use std::{borrow::Cow, collections::BTreeMap};

use annie_core::{
    caller::{AnswerFormat, Sampling, ToolChoice},
    message::{CacheTtl, Message, ModelRequest, SystemPart, ToolCall, ToolDef},
};
use serde::Serialize;
use serde_json::{Number, Value, json};

use crate::{
    config::{ModelConfig, Profile},
    wire::{BREAKPOINTS_MAX, CacheControl, NO_RESULT, configured_fields, history_end, quirks::Quirks, state::State},
};

/// Length limit for OpenRouter's session id, in characters.
const SESSION_CHARS_MAX: usize = 256;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Line<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<Temperature<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    extra: BTreeMap<&'a str, &'a Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Temperature<'a> {
    Asked(&'a Number),
    Configured(f32),
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: &'a ToolDef,
}

#[derive(Serialize)]
struct Line<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Nothing(()),
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
struct Part<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: Cow<'a, str>,
}

/// Serialises the body.
pub(super) fn body(config: &ModelConfig, request: &ModelRequest, quirks: Quirks) -> Result<Vec<u8>, serde_json::Error> {
    let profile = config.profile;
    let output = request.output_tokens_max;
    let (max_tokens, max_completion_tokens) = if profile.wants_completion_tokens() != quirks.other_max_tokens {
        (None, Some(output))
    } else {
        (Some(output), None)
    };
    let session = Some(clip_chars(&request.session_id, SESSION_CHARS_MAX)).filter(|s| !s.is_empty());
    let options = &request.options;
    let sampling = &options.sampling;
    let parallel = options.parallel_tool_calls.or((profile == Profile::LlamaCpp).then_some(true));
    let body = Body {
        model: request.model.as_deref().unwrap_or(&config.model),
        session_id: session.filter(|_| profile == Profile::OpenRouter),
        prompt_cache_key: session.filter(|_| profile == Profile::OpenAi),
        tools: request.tools.iter().map(|function| Tool { r#type: "function", function }).collect(),
        messages: roles::as_taken(lines(config, request), quirks),
        parallel_tool_calls: parallel.filter(|_| !request.tools.is_empty() && !quirks.no_parallel),
        max_tokens,
        max_completion_tokens,
        temperature: match (&sampling.temperature, config.temperature) {
            (Some(asked), _) => Some(Temperature::Asked(asked)),
            (None, configured) => configured.map(Temperature::Configured),
        }
        .filter(|_| !quirks.no_temperature),
        top_p: sampling.top_p.as_ref(),
        presence_penalty: sampling.presence_penalty.as_ref(),
        frequency_penalty: sampling.frequency_penalty.as_ref(),
        seed: sampling.seed,
        stop: &sampling.stop,
        tool_choice: options.tool_choice.as_ref().filter(|_| !request.tools.is_empty()).map(tool_choice),
        response_format: options.format.as_ref().filter(|_| takes_format(profile, request)).map(response_format),
        reasoning_effort: effort(config, request).filter(|_| profile != Profile::OpenRouter),
        reasoning: reasoning(config, request),
        priority: (profile == Profile::Vllm && config.send_priority).then_some(request.priority),
        stream: config.stream,
        stream_options: (config.stream && profile.wants_usage_option() && !quirks.no_stream_options)
            .then_some(StreamOptions { include_usage: true }),
        extra: extra(config, request),
    };
    serde_json::to_vec(&body)
}

/// The configured fields, except those that the caller of the turn sets.
fn extra<'a>(config: &'a ModelConfig, request: &ModelRequest) -> BTreeMap<&'a str, &'a Value> {
    let Sampling { top_p, presence_penalty, frequency_penalty, seed, stop, .. } = &request.options.sampling;
    let asked = [
        ("top_p", top_p.is_some()),
        ("presence_penalty", presence_penalty.is_some()),
        ("frequency_penalty", frequency_penalty.is_some()),
        ("seed", seed.is_some()),
        ("stop", !stop.is_empty()),
        ("tool_choice", request.options.tool_choice.is_some()),
        ("response_format", request.options.format.is_some()),
        ("reasoning_effort", effort(config, request).is_some()),
        ("reasoning", reasoning(config, request).is_some()),
    ];
    configured_fields(config, |name| asked.iter().any(|(field, is_asked)| *is_asked && *field == name))
}

/// The reasoning effort of the round, if the server has a field for it: OpenAI, Azure and OpenRouter for models that reason, and any
/// other server whose configured body has the field.
fn effort(config: &ModelConfig, request: &ModelRequest) -> Option<&'static str> {
    let effort = request.options.effort?;
    let is_known = matches!(config.profile, Profile::OpenAi | Profile::Azure | Profile::OpenRouter) && config.reasons();
    (is_known || config.body.contains_key("reasoning_effort")).then(|| effort.as_str())
}

/// The same for OpenRouter, with the other settings of the configured field.
fn reasoning(config: &ModelConfig, request: &ModelRequest) -> Option<Value> {
    let effort = effort(config, request).filter(|_| config.profile == Profile::OpenRouter)?;
    let mut reasoning =
        config.body.get("reasoning").filter(|value| value.is_object()).cloned().unwrap_or_else(|| json!({}));
    // The provider takes an effort or a number of tokens.
    if let Some(fields) = reasoning.as_object_mut() {
        fields.remove("max_tokens");
        fields.insert("effort".to_owned(), effort.into());
    }
    Some(reasoning)
}

/// Whether this round may request an answer format. Local servers apply the format to every reply, so a model that may call
/// tools could no longer call them. The prompt states the format in any case.
fn takes_format(profile: Profile, request: &ModelRequest) -> bool {
    let may_call = !request.tools.is_empty() && request.options.tool_choice != Some(ToolChoice::None);
    !may_call || matches!(profile, Profile::OpenAi | Profile::OpenRouter | Profile::Azure)
}

fn response_format(format: &AnswerFormat) -> Value {
    match format {
        AnswerFormat::JsonObject => json!({"type": "json_object"}),
        AnswerFormat::JsonSchema { name, description, schema, strict } => {
            let mut inner = json!({"name": name, "schema": schema, "strict": strict});
            if let Some(description) = description {
                inner["description"] = description.as_str().into();
            }
            json!({"type": "json_schema", "json_schema": inner})
        }
    }
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn clip_chars(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

fn lines<'a>(config: &ModelConfig, request: &'a ModelRequest) -> Vec<Line<'a>> {
    let parts = config.profile.takes_parts();
    let marks = config.cache_breakpoints && config.profile == Profile::OpenRouter;
    let model = request.model.as_deref().unwrap_or(&config.model);
    let mut lines = Vec::with_capacity(request.messages.len() + 1);
    if request.system.iter().any(|p| !p.text.is_empty()) {
        lines.push(plain("system", system(&request.system, parts, marks)));
    }
    let marked = marks.then(|| history_end(request)).flatten();
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in request.messages.iter().enumerate() {
        if !matches!(message, Message::Tool { .. }) {
            close(&mut lines, &mut open, parts);
        }
        let cache = (marked == Some(at)).then(|| CacheControl::of(CacheTtl::FiveMinutes));
        match message {
            Message::User { context, text } => {
                lines.push(plain("user", user(context.as_deref(), text, parts, cache)));
            }
            Message::Assistant { text, tool_calls, provider_state } => {
                open = tool_calls.iter().map(|c| c.id.as_str()).collect();
                lines.push(assistant(text, tool_calls, State::own(provider_state.as_ref(), config, model)));
            }
            Message::Tool { call_id, text, .. } => match open.iter().position(|id| id == call_id) {
                Some(at_open) => {
                    open.remove(at_open);
                    lines.push(result(call_id, text, parts, cache));
                }
                // A result whose call was cut from the window; servers refuse it as a tool message.
                None => lines.push(plain("user", user(None, text, parts, cache))),
            },
            Message::Note { text } => note(&mut lines, text, parts),
        }
    }
    close(&mut lines, &mut open, parts);
    lines
}

/// A hint of the kernel, appended to the preceding user message: the chat templates of some models refuse two user messages
/// in a row.
fn note<'a>(lines: &mut Vec<Line<'a>>, text: &'a str, parts: bool) {
    match lines.last_mut().filter(|line| line.role == "user").map(|line| &mut line.content) {
        Some(Content::Text(before)) => {
            before.to_mut().push_str("\n\n");
            before.to_mut().push_str(text);
        }
        Some(Content::Parts(before)) => before.push(part(text, None)),
        Some(Content::Nothing(())) | None => lines.push(plain("user", user(None, text, parts, None))),
    }
}

/// Answers the calls that have no result.
fn close<'a>(lines: &mut Vec<Line<'a>>, open: &mut Vec<&'a str>, parts: bool) {
    lines.extend(open.drain(..).map(|id| result(id, NO_RESULT, parts, None)));
}

fn plain<'a>(role: &'static str, content: Content<'a>) -> Line<'a> {
    Line { role, content, reasoning_content: None, reasoning_details: None, tool_calls: Vec::new(), tool_call_id: None }
}

fn part(text: &str, cache_control: Option<CacheControl>) -> Part<'_> {
    Part { r#type: "text", text, cache_control }
}

fn system(system: &[SystemPart], parts: bool, marks: bool) -> Content<'_> {
    let filled = system.iter().filter(|p| !p.text.is_empty());
    if !parts {
        let texts: Vec<&str> = filled.map(|p| p.text.as_str()).collect();
        return Content::Text(texts.join("\n\n").into());
    }
    // One breakpoint is reserved for the history.
    let mut left = BREAKPOINTS_MAX - 1;
    Content::Parts(
        filled
            .map(|p| {
                let cache = p.cache.filter(|_| marks && left > 0);
                left -= usize::from(cache.is_some());
                part(&p.text, cache.map(CacheControl::of))
            })
            .collect(),
    )
}

fn user<'a>(context: Option<&'a str>, text: &'a str, parts: bool, cache: Option<CacheControl>) -> Content<'a> {
    let context = context.filter(|c| !c.is_empty());
    match (parts, context) {
        (true, _) => {
            let mut all: Vec<Part<'_>> = context.map(|c| part(c, None)).into_iter().collect();
            all.push(part(text, cache));
            Content::Parts(all)
        }
        (false, Some(context)) => Content::Text(format!("{context}\n\n{text}").into()),
        (false, None) => Content::Text(text.into()),
    }
}

fn assistant<'a>(text: &'a str, tool_calls: &'a [ToolCall], state: State<'a>) -> Line<'a> {
    Line {
        role: "assistant",
        content: if text.is_empty() && !tool_calls.is_empty() {
            Content::Nothing(())
        } else {
            Content::Text(text.into())
        },
        reasoning_content: state.reasoning_content(),
        reasoning_details: state.reasoning_details(),
        tool_calls: tool_calls
            .iter()
            .map(|call| Call {
                id: &call.id,
                r#type: "function",
                function: Function { name: &call.name, arguments: sound(&call.arguments) },
                extra_content: state.extra_content(&call.id),
            })
            .collect(),
        tool_call_id: None,
    }
}

/// Arguments that a server can parse: some servers refuse a whole request because of one malformed call of the model.
fn sound(arguments: &str) -> Cow<'_, str> {
    let is_object =
        arguments.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok();
    if is_object { arguments.into() } else { json!({"invalid_json": arguments}).to_string().into() }
}

fn result<'a>(call_id: &'a str, text: &'a str, parts: bool, cache: Option<CacheControl>) -> Line<'a> {
    let content = if parts { Content::Parts(vec![part(text, cache)]) } else { Content::Text(text.into()) };
    Line {
        role: "tool",
        content,
        reasoning_content: None,
        reasoning_details: None,
        tool_calls: Vec::new(),
        tool_call_id: Some(call_id),
    }
}

#[cfg(test)]
mod tests;
