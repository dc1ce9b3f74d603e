//! The protocols: how a request is encoded for each profile, how a reply is assembled from the parts that servers send, and
//! how failures are classified. No I/O here.
//!
//! A protocol is a [`Wire`]. It encodes requests, and its [`Decode`] reads replies into one [`assemble::Parts`], which
//! repairs the text and enforces the limits independently of the protocol.

mod anthropic;
pub(crate) mod assemble;
pub(crate) mod failure;
mod openai;
pub(crate) mod quirks;
pub(crate) mod refused;
mod state;
pub(crate) mod usage;

use std::collections::BTreeMap;

use annie_core::message::{CacheTtl, Message, ModelRequest};
use serde::Serialize;
use serde_json::Value;

use crate::config::{ModelConfig, Profile};

use assemble::Parts;
use failure::Failure;
use quirks::Quirks;

/// Replaces the missing result of an interrupted call: every call needs a result before the next turn.
const NO_RESULT: &str = "[no result: the call was interrupted]";
/// First user message of a window whose beginning was cut off: the first message must be the user's.
const NO_BEGINNING: &str = "[earlier messages are left out]";
/// Most cache breakpoints in a request (Anthropic's limit, which OpenRouter passes on).
const BREAKPOINTS_MAX: usize = 4;

/// One protocol.
pub(crate) trait Wire: Send + Sync {
    /// The path for rounds, below the base URL.
    fn path(&self) -> &'static str;

    /// Headers of every request beside the configured ones: name, value, and whether the value is a secret.
    fn headers(&self, config: &ModelConfig) -> Vec<(&'static str, String, bool)>;

    /// Serialises a request's body.
    fn body(&self, config: &ModelConfig, request: &ModelRequest, quirks: Quirks) -> Result<Vec<u8>, serde_json::Error>;

    /// Parameters of the request that the protocol does not have, by the callers' names. They are left out of the body.
    fn left_out(&self, request: &ModelRequest) -> Vec<&'static str>;

    /// The quirks after a refusal with these words (in lower case); `None` if they name no parameter that was sent.
    fn learned(&self, quirks: Quirks, words: &str, config: &ModelConfig, request: &ModelRequest) -> Option<Quirks>;

    /// A decoder for one reply.
    fn decoder(&self) -> Box<dyn Decode>;
}

/// Decodes one reply into its parts.
pub(crate) trait Decode: Send {
    /// Reads one event's data or a whole reply: `data` is JSON, or a word that ends the stream.
    fn read(&mut self, data: &[u8], parts: &mut Parts<'_>) -> Result<(), Failure>;
}

/// The protocol of a profile.
pub(crate) fn of(profile: Profile) -> &'static dyn Wire {
    match profile {
        Profile::Anthropic => &anthropic::Anthropic,
        Profile::OpenRouter
        | Profile::OpenAi
        | Profile::Azure
        | Profile::Vllm
        | Profile::LlamaCpp
        | Profile::Ollama
        | Profile::Generic => &openai::OpenAi,
    }
}

/// Marks the end of a prefix for the provider's cache: Anthropic's format, which OpenRouter passes on.
#[derive(Serialize, Clone, Copy)]
struct CacheControl {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    fn of(ttl: CacheTtl) -> Self {
        Self { r#type: "ephemeral", ttl: (ttl == CacheTtl::OneHour).then_some("1h") }
    }
}

/// The configured fields of a body, except those that are written from the request.
fn configured_fields(config: &ModelConfig, is_written: impl Fn(&str) -> bool) -> BTreeMap<&str, &Value> {
    config.body.iter().map(|(name, value)| (name.as_str(), value)).filter(|(name, _)| !is_written(name)).collect()
}

/// The last message of the cacheable history: the last stable one that can carry a breakpoint.
fn history_end(request: &ModelRequest) -> Option<usize> {
    let stable = request.stable_messages.min(request.messages.len());
    request.messages[..stable].iter().rposition(|message| match message {
        Message::User { text, .. } | Message::Tool { text, .. } => !text.is_empty(),
        Message::Assistant { .. } | Message::Note { .. } => false,
    })
}
