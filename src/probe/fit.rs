//! The settings that fit what a probe found, as TOML to copy.

use annie_core::ports::Origin;
use serde::Serialize;
use toml::Value;

use super::{Outcome, Report};

/// Models of fewer parameters do better with commands in a single loop (docs/measurements.md).
const SMALL_PARAMETERS: u64 = 9_000_000_000;
/// An orchestrator, its agents' reports and an answer need about so much, in tokens.
const ORCHESTRATOR_TOKENS_MIN: u32 = 6_000;
/// A prompt of a turn without a long history, in tokens: its reading decides how long to wait for the first token.
const PROMPT_TOKENS_USUAL: u32 = 8_000;
/// What a model that thinks needs for its thoughts and its answer, in tokens.
const REASONING_TOKENS: u32 = 8_192;
/// How long is waited for the first token unless something else is set, in milliseconds.
const FIRST_TOKEN_MS_USUAL: u64 = 60_000;
/// No more is ever proposed, in milliseconds.
const FIRST_TOKEN_MS_MOST: u64 = 600_000;

/// Settings for one backend. What is absent is left to the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    pub interface: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens_max: Option<u32>,
    /// One answer, reasoning included, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
    /// Rounds at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms_max: Option<u64>,
    /// Why, and what is to be expected.
    pub notes: Vec<String>,
}

impl Fit {
    /// The settings that fit.
    pub fn of(report: &Report) -> Self {
        let server = &report.server;
        let window = server.context_tokens_max;
        let is_small = server.parameters.or_else(|| named_size(&report.model)).is_some_and(|n| n < SMALL_PARAMETERS);
        let is_narrow = window.is_some_and(|tokens| tokens < ORCHESTRATOR_TOKENS_MIN);
        let has_tools = report.tool_call == Some(Outcome::Well);
        let has_commands = report.command == Some(Outcome::Well);
        let mut notes = Vec::new();
        let interface = match (has_tools, has_commands) {
            (true, true) if is_small => "cmd",
            (true, _) => "auto",
            (false, true) => "cmd",
            (false, false) => {
                notes.push(
                    "the model did neither call the tool nor write the command: expect it to talk, not to act".into(),
                );
                "cmd"
            }
        };
        if is_small {
            notes.push("a small model does better with commands in a single loop".to_owned());
        } else if !has_tools {
            notes.push("it does not call tools by itself".to_owned());
        }
        if is_narrow {
            notes.push("the window is too small for an orchestrator".to_owned());
        }
        let first_token_ms_max = report.input_tokens_per_s.and_then(|speed| slow_reader(speed, window));
        if first_token_ms_max.is_some() {
            notes.push("it reads prompts slowly: raise limits.round_ms_max above first_token_ms_max, too".to_owned());
        }
        let parallel_fails = report.parallel.as_ref().is_some_and(|p| p.answered < p.requests);
        if parallel_fails {
            notes.push("not all parallel requests were answered".to_owned());
        }
        Self {
            profile: Some(server.profile.clone())
                .filter(|profile| !profile.is_empty() && server.profile_from != Origin::Default),
            interface,
            mode: (is_small || is_narrow || interface == "cmd").then_some("single_loop"),
            context_tokens_max: window,
            output_tokens_max: output(report.reasons, window),
            slots: if parallel_fails { Some(1) } else { server.slots },
            first_token_ms_max,
            notes,
        }
    }

    /// The keys of the `[[backend]]`, a line each, with the notes as comments.
    pub fn toml(&self) -> String {
        let text = |key: &str, value: Option<&str>| value.map(|value| format!("{key} = {}\n", quoted(value)));
        let number = |key: &str, value: Option<u64>| value.map(|value| format!("{key} = {value}\n"));
        let notes = self.notes.iter().map(|note| format!("# {note}\n"));
        let keys = [
            text("profile", self.profile.as_deref()),
            text("interface", Some(self.interface)),
            text("mode", self.mode),
            number("context_tokens_max", self.context_tokens_max.map(u64::from)),
            number("output_tokens_max", self.output_tokens_max.map(u64::from)),
            number("slots", self.slots.map(u64::from)),
            number("first_token_ms_max", self.first_token_ms_max),
        ];
        notes.chain(keys.into_iter().flatten()).collect()
    }
}

/// A text as TOML writes it.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The longest answer: a quarter of a small window, and room to think for a model that does. Else the usual.
fn output(reasons: bool, window: Option<u32>) -> Option<u32> {
    let quarter = window.filter(|tokens| *tokens < PROMPT_TOKENS_USUAL).map(|tokens| tokens / 4);
    let thinking = || Some(window.map_or(REASONING_TOKENS, |tokens| REASONING_TOKENS.min(tokens / 2)));
    if reasons { thinking() } else { quarter }
}

/// How long to wait for the first token of a usual prompt, if that is longer than usual, in milliseconds.
fn slow_reader(tokens_per_s: f64, window: Option<u32>) -> Option<u64> {
    let tokens = window.unwrap_or(PROMPT_TOKENS_USUAL).min(PROMPT_TOKENS_USUAL);
    // Half as much again: other work on the machine slows it down.
    let ms = (f64::from(tokens) / tokens_per_s.max(0.1) * 1_500.0) as u64;
    let rounded = ms.div_ceil(10_000).saturating_mul(10_000).min(FIRST_TOKEN_MS_MOST);
    (rounded > FIRST_TOKEN_MS_USUAL).then_some(rounded)
}

/// The size that a model's name tells: `qwen2.5-coder:1.5b`, `Llama-3.1-8B-Instruct`.
fn named_size(name: &str) -> Option<u64> {
    let lower = name.to_ascii_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let size = |word: &str| {
        let billions: f64 = word.strip_suffix('b')?.parse().ok()?;
        (billions > 0.0 && billions < 10_000.0).then_some((billions * 1e9) as u64)
    };
    words.filter_map(size).next_back()
}

#[cfg(test)]
mod tests {
    use annie_core::ports::ServerFacts;

    use super::*;

    fn report(tool_call: Outcome, command: Outcome, model: &str, window: Option<u32>) -> Report {
        Report {
            backend: "gpu".into(),
            model: model.into(),
            error: None,
            server: ServerFacts { context_tokens_max: window, ..ServerFacts::default() },
            first_token_ms: Some(100),
            input_tokens_per_s: Some(1_000.0),
            output_tokens_per_s: Some(50.0),
            reasons: false,
            tool_call: Some(tool_call),
            command: Some(command),
            parallel: None,
            requests: 3,
        }
    }

    fn not() -> Outcome {
        Outcome::Not("hm".into())
    }

    #[test]
    fn small_or_tool_refusing_model_is_run_by_commands_in_a_single_loop() {
        let of = |tools, commands, model, window| {
            let fit = Fit::of(&report(tools, commands, model, window));
            (fit.interface, fit.mode)
        };
        let by_commands = ("cmd", Some("single_loop"));
        assert_eq!(of(Outcome::Well, Outcome::Well, "qwen2.5-coder:1.5b", None), by_commands);
        assert_eq!(of(Outcome::AsText, Outcome::Well, "some-70b", None), by_commands);
        assert_eq!(of(Outcome::Refused("no".into()), Outcome::Well, "gemma", None), by_commands);
        assert_eq!(of(not(), not(), "gemma", None), by_commands);
        assert_eq!(of(Outcome::Well, not(), "tiny-1b", None), ("auto", Some("single_loop")));
        assert_eq!(of(Outcome::Well, Outcome::Well, "big", Some(32_000)), ("auto", None));
        assert_eq!(
            of(Outcome::Well, Outcome::Well, "Llama-3.3-70B-Instruct", Some(4_096)),
            ("auto", Some("single_loop"))
        );
    }

    #[test]
    fn size_is_read_from_a_models_name() {
        assert_eq!(named_size("qwen2.5-coder:1.5b"), Some(1_500_000_000));
        assert_eq!(named_size("meta-llama/Llama-3.1-8B-Instruct"), Some(8_000_000_000));
        assert_eq!((named_size("gpt-5"), named_size("b"), named_size("openrouter/auto")), (None, None, None));
    }

    #[test]
    fn slow_reader_is_given_the_time_that_it_needs() {
        assert_eq!(slow_reader(30.0, Some(4_096)), Some(210_000));
        assert_eq!(slow_reader(30.0, None), Some(400_000));
        assert_eq!((slow_reader(0.0, None), slow_reader(500.0, None)), (Some(600_000), None));
    }

    #[test]
    fn answer_has_a_quarter_of_a_small_window_and_thinking_has_room() {
        assert_eq!(
            (output(false, Some(4_096)), output(false, Some(32_000)), output(false, None)),
            (Some(1_024), None, None)
        );
        assert_eq!(
            (output(true, Some(4_096)), output(true, Some(32_000)), output(true, None)),
            (Some(2_048), Some(8_192), Some(8_192))
        );
    }

    #[test]
    fn settings_are_written_as_keys_of_a_backend() {
        let mut report = report(not(), Outcome::Well, "m", Some(4_096));
        report.server.profile = "llamacpp".into();
        report.server.profile_from = Origin::Server;
        report.server.slots = Some(2);
        let text = Fit::of(&report).toml();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["profile"].as_str(), Some("llamacpp"));
        assert_eq!((table["context_tokens_max"].as_integer(), table["slots"].as_integer()), (Some(4_096), Some(2)));
        assert!(text.starts_with("# it does not call tools by itself\n# the window"), "{text}");
        report.parallel = Some(crate::probe::Parallel { requests: 2, answered: 1, ms: 5 });
        assert_eq!(Fit::of(&report).slots, Some(1), "the server said two, and failed at two");
    }
}
