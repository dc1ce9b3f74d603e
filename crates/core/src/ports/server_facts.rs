//! What a model server says of itself, for settings that the operator leaves out.

use serde::{Deserialize, Serialize};

/// Where the value of a backend's setting comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The operator's configuration says it.
    Configured,
    /// The server said it.
    Server,
    /// Neither did.
    #[default]
    Default,
}

impl Origin {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Server => "server",
            Self::Default => "default",
        }
    }
}

/// What a server says of itself and of the model that is asked there. Whatever it does not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerFacts {
    /// The kind of server: `llama.cpp`, `vLLM`, `Ollama`, `LM Studio`; or what it says of its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its version, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The settings that Annie uses for this kind of server.
    pub profile: String,
    /// Who chose them.
    pub profile_from: Origin,
    /// Prompt and answer of one request together, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens_max: Option<u32>,
    /// What servers of its kind usually load a model with, in tokens, where this one has not loaded it and does not say. It
    /// is a guess, and stands in for no word of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed_tokens_max: Option<u32>,
    /// What its model was trained for, in tokens: the server may run it with less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trained_tokens_max: Option<u32>,
    /// Requests that it works on at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Whether its model is prepared for tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// How large its model is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
}

impl ServerFacts {
    /// Prompt and answer of one request together, in tokens: what the server says, else what is assumed of it.
    #[must_use]
    pub fn window_tokens(&self) -> Option<u32> {
        self.context_tokens_max.or(self.assumed_tokens_max)
    }
}
