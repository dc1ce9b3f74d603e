//! Parameters of a turn's caller that the server refuses. A refused parameter is left out from then on. A refused value is
//! left out only in that call, because the next caller may use another value.

use std::borrow::Cow;

use annie_core::{
    caller::Sampling,
    message::{ModelError, ModelErrorKind, ModelRequest},
};

use super::quirks::{COMBINATIONS, REFUSALS};

/// Phrases with which servers refuse a value of a parameter that they know.
const VALUES: [&str; 3] = ["unsupported value", "unsupported_value", "invalid value"];

/// Parameters that may be left out of a request, by their wire names. The prompt states the answer format in any case.
const PARAMETERS: [&str; 8] = [
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "response_format",
    "prompt_cache_key",
];

/// A set of refused parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Refused(u8);

/// The conclusion from a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lesson {
    pub parameter: &'static str,
    /// Only this caller's value was refused, or its combination with another.
    pub is_value: bool,
    /// All parameters to leave out now.
    pub refused: Refused,
}

impl Refused {
    /// Returns the request without the refused parameters.
    pub fn strip(self, request: &ModelRequest) -> Cow<'_, ModelRequest> {
        if self.0 == 0 {
            return Cow::Borrowed(request);
        }
        let mut left = request.clone();
        for (_, parameter) in PARAMETERS.iter().enumerate().filter(|(n, _)| self.0 & (1 << n) != 0) {
            drop_from(&mut left, parameter);
        }
        Cow::Owned(left)
    }

    /// The union of both.
    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Adds one of the parameters.
    pub fn add(&mut self, parameter: &str) {
        self.0 |= PARAMETERS.iter().position(|known| *known == parameter).map_or(0, |n| 1 << n);
    }

    /// The conclusion from this refusal; `None` if it names no parameter that the request has.
    pub fn learned(self, error: &ModelError, request: &ModelRequest) -> Option<Lesson> {
        let words = error.detail.to_lowercase();
        if error.kind != ModelErrorKind::InvalidRequest || !REFUSALS.iter().any(|refusal| words.contains(refusal)) {
            return None;
        }
        let is_refused = |(n, parameter): &(usize, &&str)| {
            self.0 & (1 << n) == 0 && has(request, parameter) && names(&words, parameter)
        };
        let is_combination = COMBINATIONS.iter().any(|combined| words.contains(combined));
        let mut named = PARAMETERS.iter().enumerate().filter(is_refused);
        let first = named.next()?;
        // Of a refused combination the temperature is kept: without it the backend's configured temperature would be sent.
        let (n, parameter) = named.next().filter(|_| is_combination).unwrap_or(first);
        let is_value = is_combination || refuses_value(&words);
        // Without the caller's temperature the backend's configured one would be sent, and is refused as well.
        if *parameter == "temperature" && !is_value {
            return None;
        }
        Some(Lesson { parameter, is_value, refused: Self(self.0 | (1 << n)) })
    }
}

fn has(request: &ModelRequest, parameter: &str) -> bool {
    let Sampling { temperature, top_p, presence_penalty, frequency_penalty, seed, stop, .. } =
        &request.options.sampling;
    match parameter {
        "temperature" => temperature.is_some(),
        "top_p" => top_p.is_some(),
        "presence_penalty" => presence_penalty.is_some(),
        "frequency_penalty" => frequency_penalty.is_some(),
        "seed" => seed.is_some(),
        "stop" => !stop.is_empty(),
        "response_format" => request.options.format.is_some(),
        _ => !request.session_id.is_empty(),
    }
}

fn drop_from(request: &mut ModelRequest, parameter: &str) {
    let Sampling { temperature, top_p, presence_penalty, frequency_penalty, seed, stop, .. } =
        &mut request.options.sampling;
    match parameter {
        "temperature" => *temperature = None,
        "top_p" => *top_p = None,
        "presence_penalty" => *presence_penalty = None,
        "frequency_penalty" => *frequency_penalty = None,
        "seed" => *seed = None,
        "stop" => stop.clear(),
        "response_format" => request.options.format = None,
        _ => request.session_id.clear(),
    }
}

/// Whether a refusal names a parameter. A name that is also an English word must be marked as a name.
fn names(words: &str, parameter: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let is_mark = |c: char| matches!(c, '\'' | '"' | '`' | ':' | '.');
    words.match_indices(parameter).any(|(at, _)| {
        let (before, behind) = (&words[..at], &words[at + parameter.len()..]);
        let is_whole = !before.ends_with(is_part) && !behind.starts_with(is_part);
        let is_marked = before.trim_end().ends_with(is_mark) || behind.starts_with(is_mark);
        let is_called = ["parameter ", "parameters ", "argument ", "field "].iter().any(|noun| before.ends_with(noun));
        is_whole && (parameter.contains('_') || parameter == "temperature" || is_marked || is_called)
    })
}

/// Whether a refusal is about a value: "'temperature' does not support 2 with this model".
fn refuses_value(words: &str) -> bool {
    let supports = words.split("does not support ").nth(1);
    let says_value =
        supports.is_some_and(|behind| behind.starts_with(|c: char| c.is_ascii_digit() || "-'\"[{".contains(c)));
    says_value || VALUES.iter().any(|value| words.contains(value))
}

#[cfg(test)]
mod tests {
    use annie_core::caller::{AnswerFormat, CallOptions};

    use super::*;

    fn asked() -> ModelRequest {
        let sampling = Sampling {
            temperature: Some(2.into()),
            top_p: Some(1.into()),
            presence_penalty: Some(1.into()),
            frequency_penalty: Some(1.into()),
            seed: Some(7),
            stop: vec!["END".into()],
            output_tokens_max: None,
        };
        let format = Some(AnswerFormat::JsonObject);
        let options = CallOptions { sampling, format, ..CallOptions::default() };
        ModelRequest {
            model: None,
            system: Vec::new(),
            messages: Vec::new(),
            stable_messages: 0,
            tools: Vec::new(),
            skill_names: Vec::new(),
            output_tokens_max: 10,
            session_id: "s".into(),
            priority: 2,
            options,
        }
    }

    fn lesson(words: &str) -> Option<(&'static str, bool)> {
        let error = ModelError::new(ModelErrorKind::InvalidRequest, words);
        Refused::default().learned(&error, &asked()).map(|lesson| (lesson.parameter, lesson.is_value))
    }

    #[test]
    fn refusal_is_distinguished_from_invalid_value_and_other_errors() {
        for (words, wanted) in [
            ("Unsupported parameter: 'stop' is not supported with this model.", Some(("stop", false))),
            ("Unrecognized request argument supplied: seed", Some(("seed", false))),
            ("extra_forbidden: top_p: Extra inputs are not permitted", Some(("top_p", false))),
            ("`presence_penalty` is not supported", Some(("presence_penalty", false))),
            ("unknown field frequency_penalty", Some(("frequency_penalty", false))),
            ("body.response_format: unexpected field", Some(("response_format", false))),
            ("Unknown parameter: 'prompt_cache_key'.", Some(("prompt_cache_key", false))),
            ("Unsupported value: 'temperature' does not support 2 with this model.", Some(("temperature", true))),
            ("'seed' does not support 7", Some(("seed", true))),
            ("Unsupported parameter: 'temperature' is not supported with this model.", None),
            ("`temperature` and `top_p` cannot both be specified for this model.", Some(("top_p", true))),
            ("`temperature` may only be set to 1 when thinking is enabled.", Some(("temperature", true))),
            ("top_p must be at most 1", None),
            ("Unknown model: please stop", None),
            ("Unsupported parameter: 'stop_token_ids'", None),
        ] {
            assert_eq!(lesson(words), wanted, "{words}");
        }
    }

    #[test]
    fn every_refused_parameter_is_left_out() {
        for parameter in PARAMETERS {
            let error = ModelError::new(ModelErrorKind::InvalidRequest, format!("unsupported value: '{parameter}'"));
            let request = asked();
            let lesson = Refused::default().learned(&error, &request).unwrap();
            let left = lesson.refused.strip(&request).into_owned();
            assert!(has(&request, parameter) && !has(&left, parameter), "{parameter}");
            assert_eq!(
                PARAMETERS.iter().filter(|p| has(&left, p)).count(),
                PARAMETERS.len() - 1,
                "other parameters are kept"
            );
            assert_eq!(lesson.refused.learned(&error, &request), None, "one attempt per parameter");
        }
    }
}
