//! Detects agents that loop: the same or nearly the same call, calls in a cycle, failures of one skill after the other, or the
//! same question about an unchanged state. Calls are judged before they run; after two vetoes the run ends [S3 4.9].
//!
//! One guard observes one agent's run and is a part of the run's state: it is serialised with it and survives restarts. The
//! guard of the conversation keeps the calls of ended turns. A new turn begins with the failures among them, so a call that
//! failed again and again is known in the next turn, and a question that a user asks every day is not held against its agent.

mod detect;
mod limits;
mod sign;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::result_check::finds_nothing;

pub use limits::{LoopDetectors, LoopGuardLimits};
use sign::{args_hash, masked_hash, near_text, result_hash};

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
    /// Three or four different calls in a cycle.
    Cycle,
    /// Calls whose arguments differ only in a character, a number, an id or a time, and that all fail or find nothing.
    NearIdentical,
    /// The same call, nothing else between, with another result each time.
    ChangingResult,
    /// Failures of several skills, and no success between them.
    ErrorCascade,
    /// A call that failed so that it certainly fails again.
    KnownFailure,
    /// After the context overflowed and was shortened, the agent makes the same call with the same result.
    CompactionLoop,
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
            Self::Cycle => "cycle",
            Self::NearIdentical => "near_identical",
            Self::ChangingResult => "changing_result",
            Self::ErrorCascade => "error_cascade",
            Self::KnownFailure => "known_failure",
            Self::CompactionLoop => "compaction_loop",
        }
    }
}

impl LoopLevel {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
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

/// The result of a call, as the guard sees it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Its text.
    pub text: &'a str,
    /// The kind of the error, if it is one.
    pub error: Option<&'a str>,
    /// The call changed something. The same question may have another answer after it.
    pub has_changed: bool,
    /// The call was of a tool that does not exist.
    pub is_unknown: bool,
}

impl<'a> Seen<'a> {
    /// A result that is no error and changed nothing.
    #[must_use]
    pub const fn plain(text: &'a str) -> Self {
        Self { text, error: None, has_changed: false, is_unknown: false }
    }

    /// An error of this kind.
    #[must_use]
    pub const fn error(text: &'a str, kind: &'a str) -> Self {
        Self { text, error: Some(kind), has_changed: false, is_unknown: false }
    }
}

/// One remembered call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    name: String,
    /// 16 hexadecimal digits of a hash over the arguments with sorted keys.
    args_hash: String,
    /// The same over the arguments without the parts that differ from call to call: times and ids. Empty if the call changed
    /// something, or has no result.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    masked_hash: String,
    /// The arguments of a failed call as a short text without numbers, which nearly equal calls share.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    near: String,
    /// The number of the reply with the call. Failures of one reply count as one where the model is to learn from them.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    reply: u32,
    /// A hash over the result's text. Absent while the call runs, and permanently if the call was vetoed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_hash: Option<String>,
    /// The kind of its failure: the kind of the error, or `empty` for a result that found nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_changed: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_unknown_tool: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_vetoed: bool,
    /// The call belongs to an earlier turn of the conversation, or to another agent of the turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_earlier: bool,
}

/// The failure of a call that the kernel answers with an error, because it cannot be made.
pub const INVALID_CALL: &str = "invalid_call";
/// The failure of a result that is no error and found nothing.
const EMPTY: &str = "empty";

impl CallRecord {
    fn of(call: &Call<'_>) -> Self {
        Self {
            name: call.name.to_owned(),
            args_hash: call.args_hash.clone(),
            masked_hash: String::new(),
            near: String::new(),
            reply: 0,
            result_hash: None,
            failure: None,
            has_changed: false,
            is_unknown_tool: false,
            is_vetoed: false,
            is_earlier: false,
        }
    }

    fn is(&self, call: &Call<'_>) -> bool {
        self.name == call.name && self.args_hash == call.args_hash
    }

    fn same_call(&self, other: &Self) -> bool {
        self.name == other.name && self.args_hash == other.args_hash
    }

    /// Whether the call ended with an error. A result that found nothing is none.
    fn is_error(&self) -> bool {
        self.failure.as_deref().is_some_and(|failure| failure != EMPTY)
    }

    /// Whether the kernel answered the call, because it could not be made. That says nothing about a skill.
    fn is_invalid(&self) -> bool {
        self.failure.as_deref() == Some(INVALID_CALL)
    }

    fn answered(&mut self, call: &Call<'_>, seen: &Seen<'_>) {
        let found_nothing = || finds_nothing(seen.text).then_some(EMPTY);
        self.result_hash = Some(result_hash(seen));
        self.failure = if seen.has_changed { None } else { seen.error.or_else(found_nothing).map(str::to_owned) };
        self.has_changed = seen.has_changed;
        self.is_unknown_tool = seen.is_unknown;
        if self.failure.is_some() {
            self.near = near_text(call.args);
        }
        if !self.has_changed {
            self.masked_hash = masked_hash(call.args);
        }
        debug_assert!(self.is(call), "a result belongs to its call");
    }
}

/// The call that is judged.
struct Call<'a> {
    name: &'a str,
    args: &'a Value,
    args_hash: String,
    is_poll: bool,
}

impl<'a> Call<'a> {
    fn of(name: &'a str, args: &'a Value) -> Self {
        Self { name, args, args_hash: args_hash(args), is_poll: is_poll(name, args) }
    }
}

/// The guard of one run, or of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuard {
    #[serde(default, skip_serializing_if = "LoopGuardLimits::is_default")]
    limits: LoopGuardLimits,
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    calls: VecDeque<CallRecord>,
    /// The number of replies with calls so far.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    replies: u32,
    /// How often the newest call was made in a row, with nothing between. The window may be shorter.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    in_a_row: u32,
    /// Number of calls since the context was shortened after an overflow. Absent if it was not, or long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_compaction: Option<u32>,
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
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
        Self {
            limits: limits.corrected(),
            calls: VecDeque::new(),
            replies: 0,
            in_a_row: 0,
            since_compaction: None,
            vetoes: 0,
        }
    }

    /// Whether the guard is as it was made, so that it is not stored.
    #[must_use]
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// The guard of a run that begins: it knows the failures of what this guard observed.
    #[must_use]
    pub fn begin(&self, limits: LoopGuardLimits) -> Self {
        let mut guard = Self::new(limits);
        if guard.limits.enabled {
            // What was changed after a failure may have mended it.
            let since_change = self.calls.iter().rposition(|record| record.has_changed).map_or(0, |at| at + 1);
            self.failures(since_change).for_each(|record| guard.remember(record));
        }
        guard
    }

    /// The guard of a run that continues the one which this guard observed: its calls and its vetoes count.
    #[must_use]
    pub fn resume(&self, limits: LoopGuardLimits) -> Self {
        let mut guard =
            Self { vetoes: self.vetoes, in_a_row: self.in_a_row, replies: self.replies, ..Self::new(limits) };
        guard.calls.extend(self.calls.iter().filter(|record| !record.is_invalid()).cloned());
        guard.forget_the_oldest();
        guard
    }

    /// Adds what the guard of a run has observed that has ended.
    pub fn absorb(&mut self, run: &Self) {
        self.limits.window_calls = run.limits.window_calls;
        for record in run.calls.iter().filter(|record| !record.is_earlier && record.result_hash.is_some()) {
            if record.failure.is_none() {
                // The call works again.
                self.calls.retain(|known| !known.same_call(record) || !known.is_error());
            }
            self.remember(record.clone());
        }
    }

    /// Keeps the vetoes of a run that paused, for the run that continues it. Other turns may end in between.
    pub const fn pause(&mut self, run: &Self) {
        (self.vetoes, self.in_a_row, self.replies) = (run.vetoes, run.in_a_row, run.replies);
    }

    /// The calls of this run that failed and have not succeeded since, for other agents.
    pub fn failed_calls(&self) -> impl Iterator<Item = CallRecord> {
        self.failures(0)
    }

    /// The same, of this run only.
    #[must_use]
    pub fn own_failed_calls(&self) -> Vec<CallRecord> {
        let is_own = |(at, record): &(usize, &CallRecord)| !record.is_earlier && self.is_lasting_failure(*at, record);
        let own = self.calls.iter().enumerate().filter(is_own);
        own.map(|(_, record)| CallRecord { is_earlier: true, ..record.clone() }).collect()
    }

    /// The calls from this place on that failed and have not succeeded since.
    fn failures(&self, from: usize) -> impl Iterator<Item = CallRecord> {
        let failed = self.calls.iter().enumerate().skip(from);
        let failed = failed.filter(|(at, record)| self.is_lasting_failure(*at, record));
        failed.map(|(_, record)| CallRecord { is_earlier: true, ..record.clone() })
    }

    fn is_lasting_failure(&self, at: usize, record: &CallRecord) -> bool {
        let works_now =
            |later: &CallRecord| later.same_call(record) && later.result_hash.is_some() && !later.is_error();
        record.is_error() && !record.is_invalid() && !record.is_vetoed && !self.calls.iter().skip(at + 1).any(works_now)
    }

    /// Adds failed calls of another agent of the turn.
    pub fn learn(&mut self, failed: &[CallRecord]) {
        let window = self.limits.window_calls as usize;
        // The newest ones, as far as they fit beside half of the window: the oldest calls of this run go first otherwise.
        let known = &failed[failed.len().saturating_sub(window / 2)..];
        let kept = window.saturating_sub(known.len());
        self.calls.drain(..self.calls.len().saturating_sub(kept));
        for record in known.iter().rev() {
            // Older than all calls of this run, so that it breaks no row of them.
            self.calls.push_front(CallRecord { is_earlier: true, ..record.clone() });
        }
    }

    /// A reply with calls is judged.
    pub fn begin_reply(&mut self) {
        self.replies = self.replies.saturating_add(1);
    }

    /// The context was shortened after an overflow, so the agent may not remember what it did.
    pub fn context_was_shortened(&mut self) {
        self.since_compaction = Some(0);
    }

    /// The verdict on a call. Does not change the guard.
    #[must_use]
    pub fn check(&self, name: &str, args: &Value) -> Verdict {
        if !self.limits.enabled {
            return Verdict::default();
        }
        self.judged(&Call::of(name, args))
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

    /// The number of occurrences at which a detector begins to warn; `None` if it only refuses.
    #[must_use]
    pub fn warns_from(&self, detector: LoopDetector) -> Option<usize> {
        let limits = &self.limits;
        let from = match detector {
            LoopDetector::KnownPollNoProgress | LoopDetector::GenericRepeat => limits.warning_calls,
            // Two variants at least.
            LoopDetector::ArgumentChurn => limits.warning_calls.max(limits.churn_variant_calls.saturating_mul(2)),
            LoopDetector::PingPong => limits.warning_calls.max(limits.ping_pong_calls),
            LoopDetector::Cycle => limits.cycle_warning_laps,
            LoopDetector::NearIdentical => limits.near_warning_calls,
            LoopDetector::ErrorCascade => limits.cascade_warning_calls,
            LoopDetector::UnknownToolRepeat
            | LoopDetector::GlobalCircuitBreaker
            | LoopDetector::ChangingResult
            | LoopDetector::KnownFailure
            | LoopDetector::CompactionLoop => return None,
        };
        Some(from as usize)
    }

    /// Counts a veto. The vetoed call is recorded without a result, so that it does not count as progress. The first veto of a
    /// loop after a shortened context ends the run: the agent does not learn from what it forgets.
    pub fn veto(&mut self, name: &str, args: &Value) {
        let call = Call::of(name, args);
        let is_final = self.compaction_loop(&call).is_some();
        self.vetoes = if is_final { u32::MAX } else { self.vetoes.saturating_add(1) };
        self.remember(CallRecord { is_vetoed: true, ..CallRecord::of(&call) });
    }

    /// Counts all vetoes after the first `before` ones as a single veto.
    pub fn count_once(&mut self, before: u32) {
        if self.vetoes != u32::MAX {
            self.vetoes = self.vetoes.min(before.saturating_add(1));
        }
    }

    /// Records a call. A call without a result has begun; its result is later added to the newest such record. Errors are
    /// results too, and are passed as text.
    pub fn record(&mut self, name: &str, args: &Value, result_text: Option<&str>, is_unknown_tool: bool) {
        match result_text {
            Some(text) => self.record_result(name, args, &Seen { is_unknown: is_unknown_tool, ..Seen::plain(text) }),
            None => self.remember(CallRecord { is_unknown_tool, ..CallRecord::of(&Call::of(name, args)) }),
        }
    }

    /// Records the result of a call.
    pub fn record_result(&mut self, name: &str, args: &Value, seen: &Seen<'_>) {
        let call = Call::of(name, args);
        let open = |r: &&mut CallRecord| r.is(&call) && r.result_hash.is_none() && !r.is_vetoed;
        if let Some(record) = self.calls.iter_mut().rev().find(open) {
            record.answered(&call, seen);
            if seen.has_changed {
                self.in_a_row = 0;
            }
            return;
        }
        let mut record = CallRecord::of(&call);
        record.answered(&call, seen);
        self.remember(record);
    }

    /// Whether this result of a call is the result that the same call had directly before it. False for polls, which may wait for
    /// a change.
    #[must_use]
    pub fn repeats_result(&self, name: &str, args: &Value, result_text: &str) -> bool {
        let call = Call::of(name, args);
        let before = self.calls.iter().rev().find(|r| !r.is_vetoed && r.result_hash.is_some());
        let hash = result_hash(&Seen::plain(result_text));
        !self.is_exempt(&call) && before.is_some_and(|r| r.is(&call) && r.result_hash.as_ref() == Some(&hash))
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
        let reply = if record.is_earlier { record.reply } else { self.replies };
        let record = CallRecord { reply, ..record };
        let is_same = self.calls.back().is_some_and(|last| last.same_call(&record) && !last.is_earlier);
        self.in_a_row = if record.has_changed { 0 } else { u32::from(is_same) * self.in_a_row + 1 };
        // A call that was refused is no new evidence.
        if !record.is_vetoed {
            self.since_compaction = self.since_compaction.map(|calls| calls.saturating_add(1));
        }
        self.calls.push_back(record);
        self.forget_the_oldest();
    }

    fn forget_the_oldest(&mut self) {
        while self.calls.len() > self.limits.window_calls as usize {
            self.calls.pop_front();
        }
    }

    /// Whether repetitions of a call say nothing: it asks for the state of something that changes elsewhere.
    fn is_exempt(&self, call: &Call<'_>) -> bool {
        call.is_poll || self.limits.is_poller(call.name)
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
