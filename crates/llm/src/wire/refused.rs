//! What a caller of a turn asked for and the server refuses. A refused parameter is left out from then on; a refused value is
//! left out of the one call, since the next caller may ask for another.

use std::borrow::Cow;

use annie_core::{
    caller::Sampling,
    message::{ModelError, ModelErrorKind, ModelRequest},
};

use super::quirks::{COMBINATIONS, REFUSALS};

/// Words with which servers refuse a value of a parameter that they know.
const VALUES: [&str; 3] = ["unsupported value", "unsupported_value", "invalid value"];

/// What may be left out of a request, in its wire's words. The prompt says the form of an answer in any case.
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

/// What a refusal teaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lesson {
    pub parameter: &'static str,
    /// Only this caller's value was refused, or its combination with another.
    pub is_value: bool,
    /// All that is to be left out now.
    pub refused: Refused,
}

impl Refused {
    /// The request without what was refused.
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

    /// Both together.
    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Adds one of the parameters.
    pub fn add(&mut self, parameter: &str) {
        self.0 |= PARAMETERS.iter().position(|known| *known == parameter).map_or(0, |n| 1 << n);
    }

    /// What is also to be left out after this refusal; nothing if it names no parameter that the request has.
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
        // Of two that do not go together the temperature stays: the backend's configured one would stand in for it.
        let (n, parameter) = named.next().filter(|_| is_combination).unwrap_or(first);
        let is_value = is_combination || refuses_value(&words);
        // Without the caller's own the backend's configured temperature would be sent, and is refused too.
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

/// Whether a refusal speaks of a parameter. A name that is also an English word must stand there as a name.
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
    fn refusal_is_told_from_a_wrong_value_and_from_other_words() {
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
    fn every_parameter_that_is_refused_is_left_out() {
        for parameter in PARAMETERS {
            let error = ModelError::new(ModelErrorKind::InvalidRequest, format!("unsupported value: '{parameter}'"));
            let request = asked();
            let lesson = Refused::default().learned(&error, &request).unwrap();
            let left = lesson.refused.strip(&request).into_owned();
            assert!(has(&request, parameter) && !has(&left, parameter), "{parameter}");
            assert_eq!(PARAMETERS.iter().filter(|p| has(&left, p)).count(), PARAMETERS.len() - 1, "and nothing else");
            assert_eq!(lesson.refused.learned(&error, &request), None, "it is tried once");
        }
    }
}
