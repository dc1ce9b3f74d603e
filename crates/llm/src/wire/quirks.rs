//! Parameters that a server refuses in every request. The client learns them from refusals, and leaves them out or renames
//! them from then on.

use annie_core::message::{Message, ModelError, ModelErrorKind, ModelRequest};

use super::failure;
use crate::config::ModelConfig;

/// Phrases with which servers refuse a parameter or its value.
pub(super) const REFUSALS: [&str; 14] = [
    "unsupported",
    "not support",
    "unrecognized",
    "unknown",
    "unexpected",
    "not permitted",
    "not allowed",
    "extra field",
    "extra input",
    "extra_forbidden",
    "invalid parameter",
    "deprecated",
    "cannot both",
    "may only be set",
];

/// Phrases with which servers refuse a combination of parameters, though they accept each one alone.
pub(super) const COMBINATIONS: [&str; 2] = ["cannot both", "may only be set"];

/// Changes to all requests to one backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Quirks {
    pub no_stream_options: bool,
    /// Sends `max_tokens` in place of `max_completion_tokens`, or the reverse.
    pub other_max_tokens: bool,
    pub no_temperature: bool,
    pub no_parallel: bool,
    /// The chat template has no system message: the system text goes before the user's first message.
    pub no_system: bool,
    /// The chat template requires user and assistant to alternate strictly.
    pub must_alternate: bool,
}

impl Quirks {
    /// The union of both.
    pub const fn with(self, more: Self) -> Self {
        Self {
            no_stream_options: self.no_stream_options || more.no_stream_options,
            other_max_tokens: self.other_max_tokens || more.other_max_tokens,
            no_temperature: self.no_temperature || more.no_temperature,
            no_parallel: self.no_parallel || more.no_parallel,
            no_system: self.no_system || more.no_system,
            must_alternate: self.must_alternate || more.must_alternate,
        }
    }

    /// The quirks after this refusal; `None` if it names no parameter that was sent.
    pub fn learned(self, error: &ModelError, config: &ModelConfig, request: &ModelRequest) -> Option<Self> {
        let words = error.detail.to_lowercase();
        let names_parameter = REFUSALS.iter().any(|refusal| words.contains(refusal));
        let is_refusal = names_parameter || failure::refuses_system(&words) || failure::wants_alternation(&words);
        if error.kind != ModelErrorKind::InvalidRequest || !is_refusal {
            return None;
        }
        super::of(config.profile).learned(self, &words, config, request)
    }

    /// Whether this is a refusal of tools: the server still refuses the roles although, except for tools, the request uses
    /// only user and assistant. Then the template does not support tool messages.
    pub fn is_refusal_of_tools(self, error: &ModelError, request: &ModelRequest) -> bool {
        let words = error.detail.to_lowercase();
        let has_tools = !request.tools.is_empty() || request.messages.iter().any(|m| matches!(m, Message::Tool { .. }));
        let is_of_roles = failure::refuses_system(&words) || failure::wants_alternation(&words);
        error.kind == ModelErrorKind::InvalidRequest
            && has_tools
            && is_of_roles
            && (self.no_system || self.must_alternate)
    }
}
