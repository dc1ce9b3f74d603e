//! OpenAI's Chat Completions, which most servers support with small differences.

mod request;
mod response;

use annie_core::message::ModelRequest;

use super::{Decode, Wire, failure, quirks::Quirks};
use crate::config::{ModelConfig, Profile};

/// The Chat Completions protocol.
pub(super) struct OpenAi;

impl Wire for OpenAi {
    fn path(&self) -> &'static str {
        "chat/completions"
    }

    fn headers(&self, config: &ModelConfig) -> Vec<(&'static str, String, bool)> {
        let key = config.api_key.as_ref().map(|key| match config.profile {
            Profile::Azure => ("api-key", key.expose().to_owned(), true),
            _ => ("authorization", format!("Bearer {}", key.expose()), true),
        });
        let mut headers: Vec<_> = key.into_iter().collect();
        if let (Profile::OpenRouter, Some(url)) = (config.profile, &config.app_url) {
            headers.push(("http-referer", url.clone(), false));
            headers.push(("x-openrouter-title", config.app_title.clone(), false));
        }
        headers
    }

    fn body(&self, config: &ModelConfig, request: &ModelRequest, quirks: Quirks) -> Result<Vec<u8>, serde_json::Error> {
        request::body(config, request, quirks)
    }

    fn left_out(&self, _request: &ModelRequest) -> Vec<&'static str> {
        // A server that does not know a parameter refuses it, and the client learns from that.
        Vec::new()
    }

    fn learned(&self, quirks: Quirks, words: &str, config: &ModelConfig, request: &ModelRequest) -> Option<Quirks> {
        let sent_as = if config.profile.wants_completion_tokens() == quirks.other_max_tokens {
            "max_tokens"
        } else {
            "max_completion_tokens"
        };
        let sends_temperature = config.temperature.is_some() || request.options.sampling.temperature.is_some();
        let has_system = request.system.iter().any(|part| !part.text.is_empty());
        let mut learned = quirks;
        if failure::refuses_system(words) && has_system && !quirks.no_system {
            learned.no_system = true;
        } else if failure::wants_alternation(words) && !quirks.must_alternate {
            learned.must_alternate = true;
        } else if failure::wants_alternation(words) && has_system && !quirks.no_system {
            // Templates without a system message may report it in these words as well.
            learned.no_system = true;
        } else if words.contains("stream_options") && config.stream && !quirks.no_stream_options {
            learned.no_stream_options = true;
        } else if words.contains("parallel_tool_calls") && !request.tools.is_empty() && !quirks.no_parallel {
            learned.no_parallel = true;
        } else if words.contains("temperature") && sends_temperature && !quirks.no_temperature {
            learned.no_temperature = true;
        } else if words.contains(sent_as) && !quirks.other_max_tokens {
            learned.other_max_tokens = true;
        } else {
            return None;
        }
        Some(learned)
    }

    fn decoder(&self) -> Box<dyn Decode> {
        Box::new(response::Decoder)
    }
}
