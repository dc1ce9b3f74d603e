//! Anthropic's Messages protocol: system prompt and tools are separate fields, content consists of blocks, and all results
//! of a round are one user message.

mod request;
mod response;
#[cfg(test)]
mod tests;

use annie_core::message::ModelRequest;

use super::{Decode, Wire, quirks::Quirks};
use crate::config::ModelConfig;

/// The protocol version, which every request must state.
const VERSION: &str = "2023-06-01";

/// The Messages protocol.
pub(super) struct Anthropic;

impl Wire for Anthropic {
    fn path(&self) -> &'static str {
        "messages"
    }

    fn headers(&self, config: &ModelConfig) -> Vec<(&'static str, String, bool)> {
        let key = config.api_key.as_ref().map(|key| ("x-api-key", key.expose().to_owned(), true));
        [("anthropic-version", VERSION.to_owned(), false)].into_iter().chain(key).collect()
    }

    fn body(&self, config: &ModelConfig, request: &ModelRequest, quirks: Quirks) -> Result<Vec<u8>, serde_json::Error> {
        request::body(config, request, quirks)
    }

    fn left_out(&self, request: &ModelRequest) -> Vec<&'static str> {
        let sampling = &request.options.sampling;
        let parameters = [
            ("seed", sampling.seed.is_some()),
            ("presence_penalty", sampling.presence_penalty.is_some()),
            ("frequency_penalty", sampling.frequency_penalty.is_some()),
            // The prompt states the format, and the kernel validates the answer.
            ("response_format", request.options.format.is_some()),
            ("stop", sampling.stop.iter().any(|stop| stop.trim().is_empty())),
        ];
        parameters.into_iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| name).collect()
    }

    fn learned(&self, quirks: Quirks, words: &str, config: &ModelConfig, request: &ModelRequest) -> Option<Quirks> {
        let sends_temperature = config.temperature.is_some() || request.options.sampling.temperature.is_some();
        let is_refused = words.contains("temperature") && sends_temperature && !quirks.no_temperature;
        is_refused.then_some(Quirks { no_temperature: true, ..quirks })
    }

    fn decoder(&self) -> Box<dyn Decode> {
        Box::new(response::Decoder::default())
    }
}
