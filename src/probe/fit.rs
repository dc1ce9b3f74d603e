//! The settings that fit the result of a probe, as TOML to copy.

use annie_core::{limits::Deadlines, ports::Origin};
use serde::Serialize;
use toml::Value;

use super::{Outcome, Report};

/// Models with fewer parameters do better with commands in a single loop (docs/measurements.md).
const SMALL_PARAMETERS: u64 = 9_000_000_000;
/// The approximate minimum for an orchestrator, its agents' reports and an answer, in tokens.
const ORCHESTRATOR_TOKENS_MIN: u32 = 6_000;
/// The prompt of a turn without a long history, in tokens. The time to process it determines the wait for the first token.
const PROMPT_TOKENS_USUAL: u32 = 8_000;
/// The tokens that a reasoning model needs for its reasoning and its answer.
const REASONING_TOKENS: u32 = 8_192;
/// The default wait for the first token, in milliseconds.
const FIRST_TOKEN_MS_USUAL: u64 = 60_000;
/// The maximum wait for the first token that is proposed, in milliseconds.
const FIRST_TOKEN_MS_MOST: u64 = 600_000;
/// The time for writing the answer after the first token, in milliseconds: the default limit of a whole round.
const WRITING_MS: u64 = 120_000;
/// The default limit of a whole call, in milliseconds.
const CALL_MS_USUAL: u64 = 600_000;
/// The maximum length of a reason that is repeated in a note, in characters.
const REASON_CHARS_MAX: usize = 160;

/// Settings for one backend. For absent settings the default applies, or the value that the server reports at each start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Absent if the probe did not determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    /// The maximum length of an answer with its reasoning, in tokens, for a reasoning model. For other models it follows from
    /// their context window at each start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
    /// Concurrent rounds, if the server handles fewer than it reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ms_max: Option<u64>,
    /// Limits outside of the backend that would otherwise end its rounds before `first_token_ms_max` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<SlowReader>,
    /// What the server reports about itself, as `key = value`. Where nothing is configured, these values are read at each
    /// start, so that a server whose settings change later is used with its new settings.
    pub server_says: Vec<String>,
    /// Reasons for the settings, and what to expect.
    pub notes: Vec<String>,
}

/// What a step showed about a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ability {
    Can,
    /// The model writes calls into its text, where the client finds them.
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

/// Limits of the whole installation that give a slow backend enough time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct SlowReader {
    pub round_ms_max: u64,
    /// Enough for two rounds whose prompts are not cached.
    pub hard_ms: u64,
}

impl SlowReader {
    const fn of(first_token_ms_max: u64) -> Self {
        let round_ms_max = first_token_ms_max + WRITING_MS;
        Self { round_ms_max, hard_ms: round_ms_max + first_token_ms_max }
    }

    /// The limits as tables of the configuration.
    pub fn toml(self) -> String {
        let Self { round_ms_max, hard_ms } = self;
        let mut text = format!(
            "[limits]\nround_ms_max = {round_ms_max}\n\n[turn]\nagent_round_ms_max = {round_ms_max}\n\n[deadline]\n"
        );
        // Background work gets at least as much time as interactive work.
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
    /// The settings for the result of a probe.
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

    /// The keys of the `[[backend]]` table, one per line, with the notes and the server's own values as comments.
    pub fn toml(&self) -> String {
        let text = |key: &str, value: Option<&str>| value.map(|value| format!("{key} = {}\n", quoted(value)));
        let number = |key: &str, value: Option<u64>| value.map(|value| format!("{key} = {value}\n"));
        let notes = self.notes.iter().map(|note| format!("# {note}\n"));
        let reported = self.server_says.iter().map(|line| format!("# the server says: {line}\n"));
        let keys = [
            text("profile", self.profile.as_deref()),
            text("interface", self.interface),
            text("mode", self.mode),
            number("output_tokens_max", self.output_tokens_max.map(u64::from)),
            number("slots", self.slots.map(u64::from)),
            number("first_token_ms_max", self.first_token_ms_max),
            number("call_ms_max", self.call_ms_max),
        ];
        notes.chain(reported).chain(keys.into_iter().flatten()).collect()
    }
}

/// The best way for the model to call skills; nothing if the probe did not determine it.
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

/// The profile, if it must be written: it was configured, or it decides that a server elsewhere in the private network is
/// local.
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

/// Concurrent rounds, if the server handles fewer than it reports.
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

/// What the server reports about itself, as lines of a configuration.
fn server_says(report: &Report, has_profile: bool) -> Vec<String> {
    let server = &report.server;
    let is_reported = server.profile_from == Origin::Server && !has_profile;
    let profile = is_reported.then(|| format!("profile = {}", quoted(&server.profile)));
    let window = server.context_tokens_max.map(|tokens| format!("context_tokens_max = {tokens}"));
    let slots = server.slots.map(|slots| format!("slots = {slots}"));
    [profile, window, slots].into_iter().flatten().collect()
}

/// The start of an error text of a server, fit for a comment: one line without control characters.
fn reason(words: &str) -> String {
    let plain: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(REASON_CHARS_MAX).collect()
}

/// A text in TOML syntax.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The maximum answer of a reasoning model: enough for its reasoning, and at most half of its context window.
pub(super) fn output(reasons: bool, window: Option<u32>) -> Option<u32> {
    reasons.then(|| window.map_or(REASONING_TOKENS, |tokens| REASONING_TOKENS.min(tokens / 2)))
}

/// The wait for the first token of a usual prompt, in milliseconds, if it exceeds the default.
fn slow_reader(tokens_per_s: f64, window: Option<u32>) -> Option<u64> {
    let tokens = window.unwrap_or(PROMPT_TOKENS_USUAL).min(PROMPT_TOKENS_USUAL);
    // Half as much again, because other work on the machine slows the server down.
    let ms = (f64::from(tokens) / tokens_per_s.max(0.1) * 1_500.0) as u64;
    let rounded = ms.div_ceil(10_000).saturating_mul(10_000).min(FIRST_TOKEN_MS_MOST);
    (rounded > FIRST_TOKEN_MS_USUAL).then_some(rounded)
}

/// The number of parameters in a model's name: `qwen2.5-coder:1.5b`, `Llama-3.1-8B-Instruct`.
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
