//! The settings that fit what a probe found, as TOML to copy.

use annie_core::{limits::Deadlines, ports::Origin};
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
/// What a round has for writing its answer after the first token, in milliseconds: the usual limit of a whole round.
const WRITING_MS: u64 = 120_000;
/// How long a whole call may take unless something else is set, in milliseconds.
const CALL_MS_USUAL: u64 = 600_000;
/// The longest reason that a note repeats, in characters.
const REASON_CHARS_MAX: usize = 160;

/// Settings for one backend. What is absent is left to the defaults, or to what the server says at each start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Absent if it was not found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    /// One answer, reasoning included, in tokens, for a model that thinks. What others have follows from their window at each
    /// start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
    /// Rounds at a time, if the server does fewer than it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ms_max: Option<u64>,
    /// Limits outside of the backend that end its rounds before `first_token_ms_max` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<SlowReader>,
    /// What the server says of itself, a key and its value each: it is learned at each start where nothing is configured, so
    /// that a server with other settings tomorrow is known as it is then.
    pub server_says: Vec<String>,
    /// Why, and what is to be expected.
    pub notes: Vec<String>,
}

/// What a step showed of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ability {
    Can,
    /// It writes calls into its text, where the client finds them.
    AsText,
    Cannot,
    Unknown,
}

impl Ability {
    const fn of(step: Option<&Outcome>) -> Self {
        match step {
            Some(Outcome::Well) => Self::Can,
            Some(Outcome::AsText) => Self::AsText,
            Some(Outcome::Not(_) | Outcome::Refused(_)) => Self::Cannot,
            Some(Outcome::Failed(_) | Outcome::Cut(_)) | None => Self::Unknown,
        }
    }
}

/// Limits of the whole installation under which a slow reader comes to its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct SlowReader {
    pub round_ms_max: u64,
    /// Two rounds with prompts that are read anew.
    pub hard_ms: u64,
}

impl SlowReader {
    const fn of(first_token_ms_max: u64) -> Self {
        let round_ms_max = first_token_ms_max + WRITING_MS;
        Self { round_ms_max, hard_ms: round_ms_max + first_token_ms_max }
    }

    /// The tables of the configuration.
    pub fn toml(self) -> String {
        let Self { round_ms_max, hard_ms } = self;
        let mut text = format!(
            "[limits]\nround_ms_max = {round_ms_max}\n\n[turn]\nagent_round_ms_max = {round_ms_max}\n\n[deadline]\n"
        );
        // Work that nobody waits for has no less time than a person who waits.
        let usual = Deadlines::default();
        for (class, usual) in [("high", usual.high), ("normal", usual.normal), ("low", usual.low)] {
            let (soft_ms, hard_ms) = (usual.soft_ms.max(round_ms_max), usual.hard_ms.max(hard_ms));
            if (soft_ms, hard_ms) != (usual.soft_ms, usual.hard_ms) {
                text.push_str(&format!("{class} = {{ soft_ms = {soft_ms}, hard_ms = {hard_ms} }}\n"));
            }
        }
        text
    }
}

impl Fit {
    /// The settings that fit.
    pub fn of(report: &Report) -> Self {
        let server = &report.server;
        let window = server.context_tokens_max;
        let is_small = server.parameters.or_else(|| named_size(&report.model)).is_some_and(|n| n < SMALL_PARAMETERS);
        let is_narrow = window.is_some_and(|tokens| tokens < ORCHESTRATOR_TOKENS_MIN);
        let mut notes = Vec::new();
        let interface = interface(report, is_small, &mut notes);
        if is_narrow {
            notes.push("the window is too small for an orchestrator: with a larger one, remove the mode".to_owned());
        }
        if let Some(why) = &report.unmeasured {
            notes.push(format!("its speed could not be measured: {}", reason(why)));
        }
        let first_token_ms_max = report.input_tokens_per_s.and_then(|speed| slow_reader(speed, window));
        if first_token_ms_max.is_some() {
            notes.push(
                "it reads prompts slowly: the limits of rounds, agents and turns have to be longer, too".to_owned(),
            );
        }
        let profile = profile(report, &mut notes);
        Self {
            interface,
            mode: (is_small || is_narrow || interface == Some("cmd")).then_some("single_loop"),
            output_tokens_max: output(report.reasons, window),
            slots: slots(report, &mut notes),
            first_token_ms_max,
            call_ms_max: first_token_ms_max.map(|ms| ms + WRITING_MS).filter(|ms| *ms > CALL_MS_USUAL),
            limits: first_token_ms_max.map(SlowReader::of),
            server_says: server_says(report, profile.is_some()),
            profile,
            notes,
        }
    }

    /// The keys of the `[[backend]]`, a line each, with the notes and what the server says as comments.
    pub fn toml(&self) -> String {
        let text = |key: &str, value: Option<&str>| value.map(|value| format!("{key} = {}\n", quoted(value)));
        let number = |key: &str, value: Option<u64>| value.map(|value| format!("{key} = {value}\n"));
        let notes = self.notes.iter().map(|note| format!("# {note}\n"));
        let said = self.server_says.iter().map(|line| format!("# the server says: {line}\n"));
        let keys = [
            text("profile", self.profile.as_deref()),
            text("interface", self.interface),
            text("mode", self.mode),
            number("output_tokens_max", self.output_tokens_max.map(u64::from)),
            number("slots", self.slots.map(u64::from)),
            number("first_token_ms_max", self.first_token_ms_max),
            number("call_ms_max", self.call_ms_max),
        ];
        notes.chain(said).chain(keys.into_iter().flatten()).collect()
    }
}

/// How its model calls skills best; nothing if that was not found out.
fn interface(report: &Report, is_small: bool, notes: &mut Vec<String>) -> Option<&'static str> {
    let steps = [("the tool call", report.tool_call.as_ref()), ("the command", report.command.as_ref())];
    for (what, step) in steps {
        match step {
            Some(Outcome::Failed(why)) => {
                notes.push(format!("{what} could not be tried: {}; annie doctor --probe tries it again", reason(why)))
            }
            Some(Outcome::Cut(tokens)) => {
                notes.push(format!("{what} was not decided: the answer was cut at {tokens} tokens"));
            }
            _ => {}
        }
    }
    let [tools, commands] = steps.map(|(_, step)| Ability::of(step));
    if is_small {
        notes.push("a small model does better with commands in a single loop".to_owned());
    } else if commands == Ability::Can && matches!(tools, Ability::AsText | Ability::Cannot) {
        notes.push("it does not call tools by itself".to_owned());
    }
    match (tools, commands) {
        (Ability::Can, Ability::Can) if is_small => Some("cmd"),
        (Ability::Can, Ability::Unknown) if is_small => None,
        (Ability::Can, _) => Some("auto"),
        (Ability::Unknown, Ability::Can) if is_small => Some("cmd"),
        (Ability::AsText | Ability::Cannot, Ability::Can) => Some("cmd"),
        (Ability::AsText, Ability::Cannot | Ability::AsText) => {
            notes.push("it writes its calls into its text, where annie finds them".to_owned());
            Some("auto")
        }
        (Ability::Cannot, Ability::Cannot | Ability::AsText) => {
            let what = "the model did neither call the tool nor write the command: expect it to talk, not to act";
            notes.push(what.to_owned());
            Some("cmd")
        }
        (Ability::Unknown, _) | (_, Ability::Unknown) => None,
    }
}

/// The profile, where it has to be written: it was chosen, or it decides that a server elsewhere in the house is local.
fn profile(report: &Report, notes: &mut Vec<String>) -> Option<String> {
    let server = &report.server;
    let is_pinned = server.profile_from == Origin::Server && report.is_in_own_network;
    if is_pinned {
        let what = "the profile makes this address local for private requests; remove it if a gateway answers there";
        notes.push(what.to_owned());
    }
    let is_written = server.profile_from == Origin::Configured || is_pinned;
    Some(server.profile.clone()).filter(|profile| is_written && !profile.is_empty())
}

/// Rounds at a time, if the server does not do as many as it says.
fn slots(report: &Report, notes: &mut Vec<String>) -> Option<u32> {
    let parallel = report.parallel.as_ref()?;
    if parallel.rate_limited > 0 {
        let limited = parallel.rate_limited;
        notes.push(format!("{limited} of {} parallel requests were over the server's rate limit", parallel.requests));
    }
    if parallel.answered + parallel.rate_limited >= parallel.requests {
        return None;
    }
    notes.push("not all parallel requests were answered".to_owned());
    Some(1)
}

/// What the server says of itself, as lines of a configuration.
fn server_says(report: &Report, has_profile: bool) -> Vec<String> {
    let server = &report.server;
    let is_told = server.profile_from == Origin::Server && !has_profile;
    let profile = is_told.then(|| format!("profile = {}", quoted(&server.profile)));
    let window = server.context_tokens_max.map(|tokens| format!("context_tokens_max = {tokens}"));
    let slots = server.slots.map(|slots| format!("slots = {slots}"));
    [profile, window, slots].into_iter().flatten().collect()
}

/// The beginning of a server's words, fit for a comment: one line without control characters.
fn reason(words: &str) -> String {
    let plain: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(REASON_CHARS_MAX).collect()
}

/// A text as TOML writes it.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The longest answer of a model that thinks: room for its thoughts, and at most half of its window.
pub(super) fn output(reasons: bool, window: Option<u32>) -> Option<u32> {
    reasons.then(|| window.map_or(REASONING_TOKENS, |tokens| REASONING_TOKENS.min(tokens / 2)))
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
mod tests;
