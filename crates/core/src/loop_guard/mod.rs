//! Detects agents that loop: the same call, two alternating calls, or the same question about an unchanged state. Calls are
//! judged before they run; after two vetoes the run ends [S3 4.9].
//!
//! One guard observes one agent's run and is a part of the run's state: it is serialised with it and survives restarts.

mod limits;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use limits::{LoopDetectors, LoopGuardLimits};

/// Two alternating calls are a pattern only after two complete laps.
const PING_PONG_CALLS_MIN: usize = 4;
/// Minimum number of calls of each variant for a pattern of argument churn.
const CHURN_VARIANT_CALLS_MIN: usize = 3;

/// Severity of a verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopLevel {
    /// No pattern was found.
    #[default]
    Ok,
    /// The call may run, and the model is warned.
    Warning,
    /// The call must not run.
    Critical,
}

/// The pattern that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopDetector {
    /// Repeated calls of a tool that does not exist, whatever the arguments.
    UnknownToolRepeat,
    /// Repetitions without progress above the limit that holds for all patterns.
    GlobalCircuitBreaker,
    /// Polling of an unchanged state.
    KnownPollNoProgress,
    /// Two alternating calls.
    PingPong,
    /// Repetition of the same call.
    GenericRepeat,
    /// Rotation over a few variants of one call, all with the same result.
    ArgumentChurn,
}

impl LoopDetector {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownToolRepeat => "unknown_tool_repeat",
            Self::GlobalCircuitBreaker => "global_circuit_breaker",
            Self::KnownPollNoProgress => "known_poll_no_progress",
            Self::PingPong => "ping_pong",
            Self::GenericRepeat => "generic_repeat",
            Self::ArgumentChurn => "argument_churn",
        }
    }
}

/// The guard's verdict on a call that is about to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The severity.
    pub level: LoopLevel,
    /// The pattern, if one was found.
    pub detector: Option<LoopDetector>,
    /// Number of its occurrences.
    pub count: usize,
    /// The message to the model.
    pub message: String,
}

impl Verdict {
    fn warning(detector: LoopDetector, count: usize, message: String) -> Self {
        Self { level: LoopLevel::Warning, detector: Some(detector), count, message: format!("WARNING: {message}") }
    }

    fn critical(detector: LoopDetector, count: usize, message: String) -> Self {
        Self { level: LoopLevel::Critical, detector: Some(detector), count, message: format!("STOP: {message}") }
    }
}

/// One remembered call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CallRecord {
    name: String,
    /// 16 hexadecimal digits of a hash over the arguments with sorted keys.
    args_hash: String,
    /// The same over the result's text. Absent while the call runs, and permanently if the call was vetoed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_hash: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_unknown_tool: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_vetoed: bool,
}

impl CallRecord {
    fn is(&self, call: &Call<'_>) -> bool {
        self.name == call.name && self.args_hash == call.args_hash
    }

    fn same_call(&self, other: &Self) -> bool {
        self.name == other.name && self.args_hash == other.args_hash
    }
}

/// The call that is judged.
struct Call<'a> {
    name: &'a str,
    args_hash: String,
    is_poll: bool,
}

impl<'a> Call<'a> {
    fn of(name: &'a str, args: &Value) -> Self {
        Self { name, args_hash: args_hash(args), is_poll: is_poll(name, args) }
    }
}

/// The guard of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuard {
    limits: LoopGuardLimits,
    #[serde(default)]
    calls: VecDeque<CallRecord>,
    #[serde(default)]
    vetoes: u32,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self::new(LoopGuardLimits::annie())
    }
}

impl LoopGuard {
    /// A guard without history. Unusable limits are corrected.
    #[must_use]
    pub fn new(limits: LoopGuardLimits) -> Self {
        Self { limits: limits.corrected(), calls: VecDeque::new(), vetoes: 0 }
    }

    /// The verdict on a call. Does not change the guard.
    #[must_use]
    pub fn check(&self, name: &str, args: &Value) -> Verdict {
        if !self.limits.enabled {
            return Verdict::default();
        }
        let call = Call::of(name, args);
        self.unknown_tool(&call)
            .or_else(|| self.no_progress(&call))
            .or_else(|| self.ping_pong(&call))
            .or_else(|| self.repeat_without_progress(&call))
            .or_else(|| self.argument_churn(&call))
            .or_else(|| self.repeat(&call))
            .unwrap_or_default()
    }

    /// The verdict on a call that is about to run. A call of a tool that does not exist is vetoed if the calls before it were
    /// also of tools that do not exist, whatever their names. Does not change the guard.
    #[must_use]
    pub fn verdict(&self, name: &str, args: &Value, is_unknown: bool) -> Verdict {
        let verdict = self.check(name, args);
        if is_unknown && self.limits.enabled && verdict.level != LoopLevel::Critical {
            return self.unknown_names().unwrap_or(verdict);
        }
        verdict
    }

    /// Counts a veto. The vetoed call is recorded without a result, so that it does not count as progress.
    pub fn veto(&mut self, name: &str, args: &Value) {
        self.vetoes = self.vetoes.saturating_add(1);
        self.remember(CallRecord {
            name: name.to_owned(),
            args_hash: args_hash(args),
            result_hash: None,
            is_unknown_tool: false,
            is_vetoed: true,
        });
    }

    /// Counts all vetoes after the first `before` ones as a single veto.
    pub fn count_once(&mut self, before: u32) {
        self.vetoes = self.vetoes.min(before.saturating_add(1));
    }

    /// Records a call. A call without a result has begun; its result is later added to the newest such record. Errors are
    /// results too, and are passed as text.
    pub fn record(&mut self, name: &str, args: &Value, result_text: Option<&str>, is_unknown_tool: bool) {
        let call = Call::of(name, args);
        let result_hash = result_text.map(|text| hash16(text.as_bytes()));
        if result_hash.is_some() {
            let open = |r: &&mut CallRecord| r.is(&call) && r.result_hash.is_none() && !r.is_vetoed;
            if let Some(record) = self.calls.iter_mut().rev().find(open) {
                record.result_hash = result_hash;
                record.is_unknown_tool = is_unknown_tool;
                return;
            }
        }
        let (name, args_hash) = (name.to_owned(), call.args_hash);
        self.remember(CallRecord { name, args_hash, result_hash, is_unknown_tool, is_vetoed: false });
    }

    /// Whether this result of a call is the result that the same call had directly before it. False for polls, which may wait for
    /// a change.
    #[must_use]
    pub fn repeats_result(&self, name: &str, args: &Value, result_text: &str) -> bool {
        let call = Call::of(name, args);
        let before = self.calls.iter().rev().find(|r| !r.is_vetoed && r.result_hash.is_some());
        let hash = hash16(result_text.as_bytes());
        !call.is_poll && before.is_some_and(|r| r.is(&call) && r.result_hash.as_ref() == Some(&hash))
    }

    /// Number of vetoed calls.
    #[must_use]
    pub const fn vetoes(&self) -> u32 {
        self.vetoes
    }

    /// Whether the maximum number of vetoes is reached, so that the run must end with a truthful report.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        self.vetoes >= self.limits.vetoes_max
    }

    /// Makes [`Self::is_spent`] agree with a recorded verdict. Changes nothing unless the limits have changed since.
    pub fn agree_on_end(&mut self, is_spent: bool) {
        let vetoes_max = self.limits.vetoes_max;
        self.vetoes =
            if is_spent { self.vetoes.max(vetoes_max) } else { self.vetoes.min(vetoes_max.saturating_sub(1)) };
    }

    fn remember(&mut self, record: CallRecord) {
        self.calls.push_back(record);
        while self.calls.len() > self.limits.window_calls as usize {
            self.calls.pop_front();
        }
    }

    fn unknown_tool(&self, call: &Call<'_>) -> Option<Verdict> {
        let run = self.calls.iter().rev().take_while(|r| r.name == call.name && (r.is_unknown_tool || r.is_vetoed));
        let count = run.filter(|r| r.is_unknown_tool).count();
        (count >= self.limits.unknown_tool_calls as usize).then(|| {
            let text =
                format!("{} does not exist and was called {count} times in a row. Use a tool you have.", call.name);
            Verdict::critical(LoopDetector::UnknownToolRepeat, count, text)
        })
    }

    /// The newest calls are of tools that do not exist, possibly with different names.
    fn unknown_names(&self) -> Option<Verdict> {
        let run = self.calls.iter().rev().take_while(|r| r.is_unknown_tool || r.is_vetoed);
        let count = run.filter(|r| r.is_unknown_tool).count();
        (count >= self.limits.unknown_tool_calls as usize).then(|| {
            let text =
                format!("{count} calls in a row were of things that do not exist. Use only names that you were given.");
            Verdict::critical(LoopDetector::UnknownToolRepeat, count, text)
        })
    }

    /// The limit for all patterns, then polls.
    fn no_progress(&self, call: &Call<'_>) -> Option<Verdict> {
        let (count, name) = (self.streak(call), call.name);
        if count >= self.limits.breaker_calls as usize {
            let text =
                format!("{name} gave the same result {count} times. Nothing will change it; report what you have.");
            return Some(Verdict::critical(LoopDetector::GlobalCircuitBreaker, count, text));
        }
        if !call.is_poll || !self.limits.detectors.known_poll_no_progress {
            return None;
        }
        let text = format!("{name} was asked {count} times and nothing changed. Stop asking; go on or report.");
        self.graded(LoopDetector::KnownPollNoProgress, count, text)
    }

    fn repeat_without_progress(&self, call: &Call<'_>) -> Option<Verdict> {
        let count = self.streak(call);
        let hit = self.limits.detectors.generic_repeat && !call.is_poll && count >= self.limits.critical_calls as usize;
        hit.then(|| {
            let text = format!("{} called {count} times with identical results. Try a different approach.", call.name);
            Verdict::critical(LoopDetector::GenericRepeat, count, text)
        })
    }

    fn repeat(&self, call: &Call<'_>) -> Option<Verdict> {
        let count = self.calls.iter().filter(|r| r.is(call)).count();
        let hit = self.limits.detectors.generic_repeat && count >= self.limits.warning_calls as usize;
        hit.then(|| {
            let text =
                format!("{} called {count} times with same arguments. Consider a different strategy.", call.name);
            Verdict::warning(LoopDetector::GenericRepeat, count, text)
        })
    }

    /// The newest call is A, the nearest different one before it is B, the calls alternate, and the next one would be B.
    fn ping_pong(&self, call: &Call<'_>) -> Option<Verdict> {
        let last = self.calls.back()?;
        let other = self.calls.iter().rev().find(|r| !r.same_call(last))?;
        if !self.limits.detectors.ping_pong || !other.is(call) {
            return None;
        }
        let tail: Vec<&CallRecord> = self
            .calls
            .iter()
            .rev()
            .enumerate()
            .take_while(|(n, r)| r.same_call(if n % 2 == 0 { last } else { other }))
            .map(|(_, r)| r)
            .collect();
        let count = tail.len() + 1;
        if count < PING_PONG_CALLS_MIN {
            return None;
        }
        let unchanged = |start: usize| {
            let mut results =
                tail.iter().skip(start).step_by(2).filter(|r| !r.is_vetoed).map(|r| r.result_hash.as_ref());
            match results.next() {
                Some(Some(first)) => results.all(|hash| hash == Some(first)),
                Some(None) => false,
                None => true,
            }
        };
        let text = format!("{} and {} called in turn, {count} times. Neither leads on.", other.name, last.name);
        match self.graded(LoopDetector::PingPong, count, text.clone()) {
            Some(v) if v.level == LoopLevel::Critical && !(unchanged(0) && unchanged(1)) => {
                Some(Verdict::warning(LoopDetector::PingPong, count, text))
            }
            verdict => verdict,
        }
    }

    /// The newest calls are of one tool with one result, in a few variants that each occurred several times.
    fn argument_churn(&self, call: &Call<'_>) -> Option<Verdict> {
        let newest = self.calls.back().filter(|r| r.name == call.name)?.result_hash.as_ref()?;
        let mut variants: BTreeMap<&str, usize> = BTreeMap::new();
        let same = |r: &&CallRecord| r.name == call.name && r.result_hash.as_ref() == Some(newest);
        for record in self.calls.iter().rev().take_while(same) {
            *variants.entry(&record.args_hash).or_default() += 1;
        }
        let count: usize = variants.values().sum();
        let hit = self.limits.detectors.argument_churn
            && count >= self.limits.warning_calls as usize
            && variants.len() >= 2
            && variants.values().all(|calls| *calls >= CHURN_VARIANT_CALLS_MIN)
            && variants.contains_key(call.args_hash.as_str());
        hit.then(|| {
            let text = format!(
                "{} called {count} times with {} sets of arguments and one result. Other arguments of this kind do not help.",
                call.name,
                variants.len()
            );
            Verdict::warning(LoopDetector::ArgumentChurn, count, text)
        })
    }

    fn graded(&self, detector: LoopDetector, count: usize, text: String) -> Option<Verdict> {
        if count >= self.limits.critical_calls as usize {
            Some(Verdict::critical(detector, count, text))
        } else {
            (count >= self.limits.warning_calls as usize).then(|| Verdict::warning(detector, count, text))
        }
    }

    /// Number of this call's newest records with the same result.
    fn streak(&self, call: &Call<'_>) -> usize {
        let mut results = self.calls.iter().rev().filter(|r| r.is(call)).filter_map(|r| r.result_hash.as_ref());
        results.next().map_or(0, |newest| 1 + results.take_while(|hash| *hash == newest).count())
    }
}

/// Whether a call polls the state of something that runs elsewhere. Such calls may be repeated more often.
fn is_poll(name: &str, args: &Value) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    match last {
        "process" => args["action"].as_str().is_some_and(|a| matches!(a, "poll" | "log")),
        "command_status" | "status" | "poll" => true,
        _ => last.ends_with("_poll") || last.ends_with("_get_result"),
    }
}

/// The hash of the arguments, independent of the order of their keys.
fn args_hash(args: &Value) -> String {
    let mut text = String::new();
    canonical(args, &mut text);
    hash16(text.as_bytes())
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            out.push('{');
            for key in map.keys().collect::<BTreeSet<_>>() {
                let _ = write!(out, "{}:", Value::from(key.as_str()));
                canonical(&map[key], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

fn hash16(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).fold(String::with_capacity(16), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
