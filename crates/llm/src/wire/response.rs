//! What servers send, read as forgivingly as possible: unknown fields are ignored, missing ones have defaults, and what
//! changes its type between servers is kept as JSON.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::usage::{Timings, WireUsage};

/// One chunk of a stream, or a whole completion: they differ only in `delta` and `message`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Chunk {
    pub model: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub choices: Vec<Choice>,
    pub usage: Option<WireUsage>,
    pub timings: Option<Timings>,
    /// A failure inside a 200, in JSON or in an event.
    pub error: Value,
    /// `error` where the failure itself is at the top level (old vLLM).
    pub object: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Choice {
    #[serde(deserialize_with = "or_default")]
    pub delta: Delta,
    pub message: Option<Delta>,
    pub finish_reason: Option<String>,
}

/// What a message gains.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Delta {
    /// Text, or parts with text.
    pub content: Value,
    pub refusal: Option<String>,
    /// Reasoning as OpenRouter and Ollama call it.
    pub reasoning: Value,
    /// Reasoning as llama.cpp and DeepSeek call it.
    pub reasoning_content: Value,
    /// Reasoning that OpenRouter wants back as it came.
    pub reasoning_details: Value,
    #[serde(deserialize_with = "or_default")]
    pub tool_calls: Vec<CallDelta>,
    /// The one call of the interface before `tool_calls`.
    pub function_call: Option<FunctionDelta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallDelta {
    pub index: Option<u64>,
    pub id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub function: FunctionDelta,
    /// What the provider wants back with this call: Gemini's thought signature.
    pub extra_content: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FunctionDelta {
    pub name: Option<String>,
    /// A piece of JSON text, or a whole object.
    pub arguments: Value,
}

/// A value where `null` means the same as absence.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The text of a `content` in any of its forms.
pub(crate) fn text_of(content: Value) -> String {
    match content {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().filter_map(|p| p["text"].as_str()).collect(),
        _ => String::new(),
    }
}
