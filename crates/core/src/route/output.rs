//! How long a round's answer may be at one backend.

use super::BackendFacts;
use crate::{
    context::{tokens, tokens_of},
    message::ModelRequest,
};

/// What a model that reasons is given at least: its reasoning is part of what it puts out.
const REASONING_TOKENS_MIN: u32 = 8_192;
/// What is asked for however full the window is: a prompt that leaves less does not fit, which the server says itself.
const OUTPUT_TOKENS_MIN: u32 = 64;
/// How many times the usual limit a reply may take that was cut off at it before.
const RAISED_BY: u32 = 2;
/// No limit is raised beyond this.
const RAISED_TOKENS_MAX: u32 = 32_768;
/// The level of rounds whose answers are spoken: what is heard stays short.
const SPOKEN_LEVEL: u8 = 0;

/// The limit of an answer that is asked for: the backend's own, else what the turn keeps for it; never more than the caller
/// of the turn asked for, and never more than the prompt leaves of a window (prompt and answer together) that is known.
#[must_use]
pub fn output_tokens(request: &ModelRequest, facts: &BackendFacts, window: Option<u32>) -> u32 {
    let planned = request.output_tokens_max;
    let is_fixed = request.options.sampling.output_tokens_max.is_some() || request.priority == SPOKEN_LEVEL;
    let wanted = match facts.output_tokens_max {
        Some(max) if is_fixed => planned.min(max),
        Some(max) => max,
        // A server of one's own refuses an answer that is longer than its window.
        None if facts.reasons && !is_fixed && (window.is_some() || facts.is_hosted) => {
            planned.max(REASONING_TOKENS_MIN)
        }
        None => planned,
    };
    // The operator's own limit of a backend stays, and so does the caller's.
    let may_raise = request.options.has_more_output && !is_fixed && facts.output_tokens_max.is_none();
    let wanted = if may_raise { wanted.saturating_mul(RAISED_BY).min(RAISED_TOKENS_MAX.max(wanted)) } else { wanted };
    let Some(window) = window else { return wanted };
    let room = window.saturating_sub(prompt_tokens(request));
    wanted.min(room.max(OUTPUT_TOKENS_MIN))
}

/// The whole prompt, about.
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
    fn backends_own_limit_is_apart_from_what_the_turn_keeps() {
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
    fn neither_the_callers_limit_nor_a_spoken_one_is_exceeded() {
        for fixed in [request(300, Some(300), 2), request(300, None, 0)] {
            assert_eq!(limit(&fixed, Some(16_000), None, true), 300);
            assert_eq!(limit(&fixed, None, None, true), 300);
            assert_eq!(limit(&fixed, Some(100), None, false), 100);
        }
        let large = request(20_000, Some(20_000), 2);
        assert_eq!(limit(&large, None, None, true), 20_000);
    }

    #[test]
    fn limit_that_cut_a_reply_off_is_doubled_within_the_window_and_what_the_operator_and_the_caller_set() {
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
    fn prompt_and_answer_fit_into_a_window_that_is_known() {
        let planned = request(2_000, None, 2);
        let room = 2_048 - prompt_tokens(&planned);
        assert_eq!(limit(&planned, Some(16_000), Some(2_048), true), room);
        assert_eq!(limit(&planned, None, Some(2_048), true), room);
        assert_eq!(limit(&planned, None, Some(900), false), OUTPUT_TOKENS_MIN);
        assert_eq!(limit(&request(9, Some(9), 2), None, Some(900), false), 9);
    }
}
