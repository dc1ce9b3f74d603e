//! The protocols: what a request looks like for each profile, how replies are put together from whatever servers send,
//! and what their failures mean. No I/O here.
//!
//! A protocol is a [`Wire`]: it encodes requests, and its [`Decode`] reads replies into one [`assemble::Parts`], where the
//! text is repaired and the limits are kept, whatever the protocol.

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

/// What stands in for the result of a call that never got one: every call needs an answer before the next turn.
const NO_RESULT: &str = "[no result: the call was interrupted]";
/// Stands before a window whose beginning was cut off, where the first message must be the user's.
const NO_BEGINNING: &str = "[earlier messages are left out]";
/// Cache breakpoints that a request may carry (Anthropic's limit, which OpenRouter passes on).
const BREAKPOINTS_MAX: usize = 4;

/// One protocol.
pub(crate) trait Wire: Send + Sync {
    /// Where rounds are asked for, below the base URL.
    fn path(&self) -> &'static str;

    /// Headers of every request beside the configured ones: name, value, and whether the value is a secret.
    fn headers(&self, config: &ModelConfig) -> Vec<(&'static str, String, bool)>;

    /// The bytes of a request's body.
    fn body(&self, config: &ModelConfig, request: &ModelRequest, quirks: Quirks) -> Result<Vec<u8>, serde_json::Error>;

    /// What of the request this protocol cannot say, by the names that callers use. It is left out of the body.
    fn left_out(&self, request: &ModelRequest) -> Vec<&'static str>;

    /// What is also to be left out after a refusal in these words, in small letters; nothing if they name no parameter
    /// that was sent.
    fn learned(&self, quirks: Quirks, words: &str, config: &ModelConfig, request: &ModelRequest) -> Option<Quirks>;

    /// A reader for one reply.
    fn decoder(&self) -> Box<dyn Decode>;
}

/// Reads one reply into its parts.
pub(crate) trait Decode: Send {
    /// Takes one event's data, or a whole reply: `data` is JSON, or a word that ends the stream.
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

/// Marks the end of a prefix that the provider is to keep: Anthropic's form, which OpenRouter passes on.
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

/// The configured fields of a body, but for those that are written from the request.
fn configured_fields(config: &ModelConfig, is_written: impl Fn(&str) -> bool) -> BTreeMap<&str, &Value> {
    config.body.iter().map(|(name, value)| (name.as_str(), value)).filter(|(name, _)| !is_written(name)).collect()
}

/// The message that ends the cacheable history: the last stable one that can carry a mark.
fn history_end(request: &ModelRequest) -> Option<usize> {
    let stable = request.stable_messages.min(request.messages.len());
    request.messages[..stable].iter().rposition(|message| match message {
        Message::User { text, .. } | Message::Tool { text, .. } => !text.is_empty(),
        Message::Assistant { .. } | Message::Note { .. } => false,
    })
}
