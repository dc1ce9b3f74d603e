//! Facts that a model server reports about itself, used for settings that the operator leaves out.

use serde::{Deserialize, Serialize};

/// The source of a backend setting's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The operator's configuration.
    Configured,
    /// The server's report.
    Server,
    /// The default, because neither source has a value.
    #[default]
    Default,
}

impl Origin {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Server => "server",
            Self::Default => "default",
        }
    }
}

/// The facts that a server reports about itself and its model. Absent fields were not reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerFacts {
    /// The kind of server: `llama.cpp`, `vLLM`, `Ollama`, `LM Studio`; otherwise the owner that it reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its version, as reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The settings that Annie uses for this kind of server.
    pub profile: String,
    /// The source of the profile.
    pub profile_from: Origin,
    /// Context window of one request, prompt and answer together, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens_max: Option<u32>,
    /// The window with which servers of this kind usually load a model, in tokens, if this server has not loaded the model
    /// and does not report its window. This is a guess and never replaces a reported value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed_tokens_max: Option<u32>,
    /// The window for which the model was trained, in tokens. The server may run it with a smaller one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trained_tokens_max: Option<u32>,
    /// Number of requests processed concurrently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Whether the model supports tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Number of the model's parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
}

impl ServerFacts {
    /// Context window of one request, prompt and answer together, in tokens: the reported one, otherwise the assumed one.
    #[must_use]
    pub fn window_tokens(&self) -> Option<u32> {
        self.context_tokens_max.or(self.assumed_tokens_max)
    }
}
