//! Reads replies leniently: unknown fields are ignored, missing fields have defaults, and fields whose type differs between
//! servers are kept as JSON.

use annie_core::message::ModelErrorKind;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::wire::{
    Decode,
    assemble::{CallPiece, Parts},
    failure::{self, Failure},
    usage::{Timings, WireUsage},
};

/// Reads chunks and whole completions.
#[derive(Debug)]
pub(super) struct Decoder;

impl Decode for Decoder {
    fn read(&mut self, data: &[u8], parts: &mut Parts<'_>) -> Result<(), Failure> {
        if data.trim_ascii() == b"[DONE]" {
            parts.done();
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_slice(data).map_err(|error| parts.not_a_reply(&error.to_string(), data))?;
        if !chunk.error.is_null() || chunk.object == "error" {
            let body: Value = serde_json::from_slice(data).unwrap_or(Value::Null);
            return Err(failure::inside(parts.config(), &body));
        }
        parts.model(chunk.model);
        parts.cost(chunk.usage, chunk.timings);
        chunk.choices.into_iter().next().map_or(Ok(()), |choice| read_choice(choice, parts))
    }
}

fn read_choice(choice: Choice, parts: &mut Parts<'_>) -> Result<(), Failure> {
    if choice.finish_reason.as_deref() == Some("error") {
        let detail = "the server ended the reply with an error";
        return Err(Failure::new(ModelErrorKind::Unavailable, detail, true));
    }
    parts.answers();
    // A whole message has no index per call in any case: the positions are used for both.
    read_delta(choice.message.unwrap_or(choice.delta), parts)?;
    parts.stopped(choice.finish_reason);
    Ok(())
}

fn read_delta(delta: Delta, parts: &mut Parts<'_>) -> Result<(), Failure> {
    let mut thought = text_of(delta.reasoning);
    if thought.is_empty() {
        thought = text_of(delta.reasoning_content);
    }
    parts.keep_reasoning(&thought);
    parts.thought(thought)?;
    let mut text = text_of(delta.content);
    text.push_str(delta.refusal.as_deref().unwrap_or_default());
    parts.text(&text)?;
    parts.state().details(delta.reasoning_details);
    for (position, call) in delta.tool_calls.into_iter().enumerate() {
        parts.call(piece(position as u64, call))?;
    }
    if let Some(function) = delta.function_call {
        parts.call(piece(0, CallDelta { function, ..CallDelta::default() }))?;
    }
    Ok(())
}

fn piece(position: u64, delta: CallDelta) -> CallPiece {
    CallPiece {
        index: delta.index.unwrap_or(position),
        id: delta.id.unwrap_or_default(),
        name: delta.function.name.unwrap_or_default(),
        arguments: match delta.function.arguments {
            Value::String(text) => text,
            Value::Null => String::new(),
            object => object.to_string(),
        },
        extra: delta.extra_content,
    }
}

/// One chunk of a stream, or a whole completion: they differ only in `delta` and `message`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Chunk {
    model: Option<String>,
    #[serde(deserialize_with = "or_default")]
    choices: Vec<Choice>,
    usage: Option<WireUsage>,
    timings: Option<Timings>,
    /// A failure inside a response with status 200, in JSON or in an event.
    error: Value,
    /// `error` if the failure itself is at the top level (old vLLM).
    object: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    #[serde(deserialize_with = "or_default")]
    delta: Delta,
    message: Option<Delta>,
    finish_reason: Option<String>,
}

/// An addition to a message, or a whole message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Delta {
    /// Text, or parts with text.
    content: Value,
    refusal: Option<String>,
    /// Reasoning, in the field of OpenRouter and Ollama.
    reasoning: Value,
    /// Reasoning, in the field of llama.cpp and DeepSeek.
    reasoning_content: Value,
    /// Reasoning that OpenRouter wants back unchanged.
    reasoning_details: Value,
    #[serde(deserialize_with = "or_default")]
    tool_calls: Vec<CallDelta>,
    /// The single call of the interface before `tool_calls`.
    function_call: Option<FunctionDelta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    function: FunctionDelta,
    /// State that the provider wants back with the call: Gemini's thought signature.
    extra_content: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FunctionDelta {
    name: Option<String>,
    /// A piece of JSON text, or a whole object.
    arguments: Value,
}

/// Treats `null` as absence.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The text of a `content` in any of its formats.
fn text_of(content: Value) -> String {
    match content {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().filter_map(|p| p["text"].as_str()).collect(),
        _ => String::new(),
    }
}
