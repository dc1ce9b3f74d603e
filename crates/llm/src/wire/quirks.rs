//! Parameters that a server refuses of every request: learned from its refusals, and left out or written otherwise from then
//! on.

use annie_core::message::{Message, ModelError, ModelErrorKind, ModelRequest};

use super::failure;
use crate::config::ModelConfig;

/// Words with which servers refuse a parameter, or the value that it has.
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

/// Words with which servers refuse parameters that do not go together, though each is taken by itself.
pub(super) const COMBINATIONS: [&str; 2] = ["cannot both", "may only be set"];

/// What is left out of requests to one backend, or written otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Quirks {
    pub no_stream_options: bool,
    /// `max_tokens` in place of `max_completion_tokens`, or the other way round.
    pub other_max_tokens: bool,
    pub no_temperature: bool,
    pub no_parallel: bool,
    /// Its chat template knows no system message: the system text goes before the user's first words.
    pub no_system: bool,
    /// Its chat template wants user and assistant in strict turns.
    pub must_alternate: bool,
}

impl Quirks {
    /// Both together.
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

    /// What is also to be left out after this refusal; nothing if it names no parameter that was sent.
    pub fn learned(self, error: &ModelError, config: &ModelConfig, request: &ModelRequest) -> Option<Self> {
        let words = error.detail.to_lowercase();
        let names_parameter = REFUSALS.iter().any(|refusal| words.contains(refusal));
        let is_refusal = names_parameter || failure::refuses_system(&words) || failure::wants_alternation(&words);
        if error.kind != ModelErrorKind::InvalidRequest || !is_refusal {
            return None;
        }
        super::of(config.profile).learned(self, &words, config, request)
    }

    /// A refusal that goes on although the request has only the roles of a user and an assistant, but for tools: the
    /// template does not know those.
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
