//! Parameters that a server refuses of every request: learned from its refusals, and left out or written otherwise from then
//! on.

use annie_core::message::{ModelError, ModelErrorKind, ModelRequest};

use crate::config::{ModelConfig, Profile};

/// Words with which servers refuse a parameter, and not its value.
pub(super) const REFUSALS: [&str; 12] = [
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
];

/// What is left out of requests to one backend, or written otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Quirks {
    pub no_stream_options: bool,
    /// `max_tokens` in place of `max_completion_tokens`, or the other way round.
    pub other_max_tokens: bool,
    pub no_temperature: bool,
    pub no_parallel: bool,
}

impl Quirks {
    /// What is also to be left out after this refusal; nothing if it names no parameter that was sent.
    pub fn learned(self, error: &ModelError, config: &ModelConfig, request: &ModelRequest) -> Option<Self> {
        let words = error.detail.to_lowercase();
        if error.kind != ModelErrorKind::InvalidRequest || !REFUSALS.iter().any(|refusal| words.contains(refusal)) {
            return None;
        }
        let sent_as = if (config.profile == Profile::OpenAi) == self.other_max_tokens {
            "max_tokens"
        } else {
            "max_completion_tokens"
        };
        let sends_temperature = config.temperature.is_some() || request.options.sampling.temperature.is_some();
        let mut quirks = self;
        if words.contains("stream_options") && config.stream && !self.no_stream_options {
            quirks.no_stream_options = true;
        } else if words.contains("parallel_tool_calls") && !request.tools.is_empty() && !self.no_parallel {
            quirks.no_parallel = true;
        } else if words.contains("temperature") && sends_temperature && !self.no_temperature {
            quirks.no_temperature = true;
        } else if words.contains(sent_as) && !self.other_max_tokens {
            quirks.other_max_tokens = true;
        } else {
            return None;
        }
        Some(quirks)
    }
}
