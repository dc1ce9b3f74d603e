//! The maximum length of a round's answer on one backend.

use super::BackendFacts;
use crate::{
    context::{tokens, tokens_of},
    message::ModelRequest,
};

/// Minimum for a reasoning model, in tokens, because its reasoning counts as output.
const REASONING_TOKENS_MIN: u32 = 8_192;
/// Minimum that is requested even if the window is nearly full. If the prompt leaves less than this, it does not fit, and
/// the server reports that itself.
const OUTPUT_TOKENS_MIN: u32 = 64;
/// The factor by which the limit is raised after a reply was truncated at it.
const RAISED_BY: u32 = 2;
/// The highest limit after raising, in tokens.
const RAISED_TOKENS_MAX: u32 = 32_768;
/// The class level of spoken rounds, whose answers stay short.
const SPOKEN_LEVEL: u8 = 0;

/// The limit of an answer, in tokens: the backend's own limit, otherwise the turn's reserve. Never more than the turn's
/// caller requested, and never more than the prompt leaves of a known window (prompt and answer together).
#[must_use]
pub fn output_tokens(request: &ModelRequest, facts: &BackendFacts, window: Option<u32>) -> u32 {
    let planned = request.output_tokens_max;
    let is_fixed = request.options.sampling.output_tokens_max.is_some() || request.priority == SPOKEN_LEVEL;
    let wanted = match facts.output_tokens_max {
        Some(max) if is_fixed => planned.min(max),
        Some(max) => max,
        // A self-hosted server refuses an answer limit that exceeds its window.
        None if facts.reasons && !is_fixed && (window.is_some() || facts.is_hosted) => {
            planned.max(REASONING_TOKENS_MIN)
        }
        None => planned,
    };
    // The limits that the operator set for a backend and that the caller set are not raised.
    let may_raise = request.options.has_more_output && !is_fixed && facts.output_tokens_max.is_none();
    let wanted = if may_raise { wanted.saturating_mul(RAISED_BY).min(RAISED_TOKENS_MAX.max(wanted)) } else { wanted };
    let Some(window) = window else { return wanted };
    let available = window.saturating_sub(prompt_tokens(request));
    wanted.min(available.max(OUTPUT_TOKENS_MIN))
}

/// Estimated size of the whole prompt, in tokens.
fn prompt_tokens(request: &ModelRequest) -> u32 {
    let system = request.system.iter().map(|part| tokens(part.text.len()));
    let tools =
        request.tools.iter().map(|t| tokens(t.name.len() + t.description.len() + t.parameters.to_string().len()));
    system.chain(tools).fold(tokens_of(&request.messages), u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        caller::{CallOptions, Sampling},
        message::{Message, SystemPart},
    };

    fn request(planned: u32, asked: Option<u32>, priority: u8) -> ModelRequest {
        let sampling = Sampling { output_tokens_max: asked, ..Sampling::default() };
        ModelRequest {
            model: None,
            system: vec![SystemPart { text: "x".repeat(2_000), cache: None }],
            messages: vec![Message::user("y".repeat(2_000))],
            stable_messages: 0,
            tools: Vec::new(),
            skill_names: Vec::new(),
            output_tokens_max: planned,
            session_id: String::new(),
            priority,
            options: CallOptions { sampling, ..CallOptions::default() },
        }
    }

    fn limit(request: &ModelRequest, output: Option<u32>, window: Option<u32>, reasons: bool) -> u32 {
        let facts = BackendFacts { output_tokens_max: output, reasons, is_hosted: true, ..BackendFacts::default() };
        output_tokens(request, &facts, window)
    }

    #[test]
    fn output_limit_of_backend_is_independent_of_turn_reserve() {
        let planned = request(2_000, None, 2);
        assert_eq!(limit(&planned, None, None, false), 2_000);
        assert_eq!(limit(&planned, Some(16_000), None, false), 16_000);
        assert_eq!(limit(&planned, Some(500), None, true), 500);
        assert_eq!(limit(&planned, None, None, true), 8_192);
        let own = BackendFacts { reasons: true, ..BackendFacts::default() };
        assert_eq!(output_tokens(&planned, &own, None), 2_000, "its window may be smaller than the answer");
        assert_eq!(output_tokens(&planned, &own, Some(32_768)), 8_192);
    }

    #[test]
    fn output_limit_never_exceeds_caller_limit_or_spoken_limit() {
        for fixed in [request(300, Some(300), 2), request(300, None, 0)] {
            assert_eq!(limit(&fixed, Some(16_000), None, true), 300);
            assert_eq!(limit(&fixed, None, None, true), 300);
            assert_eq!(limit(&fixed, Some(100), None, false), 100);
        }
        let large = request(20_000, Some(20_000), 2);
        assert_eq!(limit(&large, None, None, true), 20_000);
    }

    #[test]
    fn output_limit_doubles_after_truncation_within_window_and_set_limits() {
        let raised = |request: ModelRequest| {
            let options = CallOptions { has_more_output: true, ..request.options };
            ModelRequest { options, ..request }
        };
        let planned = raised(request(2_000, None, 2));
        assert_eq!(limit(&planned, None, None, false), 4_000);
        assert_eq!(limit(&planned, None, None, true), 16_384);
        assert_eq!(limit(&planned, Some(5_000), None, false), 5_000);
        assert_eq!(limit(&planned, None, Some(2_048), false), 2_048 - prompt_tokens(&planned));
        assert_eq!(limit(&raised(request(30_000, None, 2)), None, None, false), 32_768);
        assert_eq!(limit(&raised(request(40_000, None, 2)), None, None, false), 40_000);
        for fixed in [request(300, Some(300), 2), request(300, None, 0)] {
            assert_eq!(limit(&raised(fixed), None, None, false), 300);
        }
    }

    #[test]
    fn output_limit_fits_prompt_and_answer_into_known_window() {
        let planned = request(2_000, None, 2);
        let available = 2_048 - prompt_tokens(&planned);
        assert_eq!(limit(&planned, Some(16_000), Some(2_048), true), available);
        assert_eq!(limit(&planned, None, Some(2_048), true), available);
        assert_eq!(limit(&planned, None, Some(900), false), OUTPUT_TOKENS_MIN);
        assert_eq!(limit(&request(9, Some(9), 2), None, Some(900), false), 9);
    }
}
