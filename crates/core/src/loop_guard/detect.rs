//! The detectors. Each one finds one pattern in the recorded calls and the call that is about to run.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Call, CallRecord, LoopDetector, LoopGuard, LoopGuardLimits, LoopLevel, Verdict,
    sign::{is_near, masked_hash, near_text},
};
use crate::error_route::ErrorKind;

impl LoopGuard {
    /// The gravest verdict; of equal ones the first.
    pub(super) fn judged(&self, call: &Call<'_>) -> Verdict {
        let certain = [self.unknown_tool(call), self.compaction_loop(call)];
        if let Some(verdict) = certain.into_iter().flatten().next() {
            return verdict;
        }
        if self.limits.is_poller(call.name) {
            return Verdict::default();
        }
        let found = [
            self.no_progress(call),
            self.ping_pong(call),
            self.repeat_without_progress(call),
            self.changing_result(call),
            self.cycle(call),
            self.known_failure(call),
            self.near_identical(call),
            self.error_cascade(call),
            self.argument_churn(call),
            self.repeat(call),
        ];
        let gravest = found
            .into_iter()
            .flatten()
            .fold(Verdict::default(), |gravest, verdict| if verdict.level > gravest.level { verdict } else { gravest });
        self.mild_if_new(call, gravest)
    }

    /// What failed in an earlier turn may work now, so the first such call of a turn is at most warned of.
    fn mild_if_new(&self, call: &Call<'_>, verdict: Verdict) -> Verdict {
        let own = self.calls.iter().rev().find(|r| r.is(call));
        let newest = own.or_else(|| self.calls.iter().rev().find(|r| r.name == call.name));
        match verdict.detector {
            Some(detector) if verdict.level == LoopLevel::Critical && newest.is_some_and(|r| r.is_earlier) => {
                let text = verdict.message.strip_prefix("STOP: ").unwrap_or(&verdict.message).to_owned();
                Verdict::warning(detector, verdict.count, text)
            }
            _ => verdict,
        }
    }

    fn unknown_tool(&self, call: &Call<'_>) -> Option<Verdict> {
        let run = self.calls.iter().rev().take_while(|r| r.name == call.name && (r.is_unknown_tool || r.is_vetoed));
        let count = run.filter(|r| r.is_unknown_tool && !r.is_earlier).count();
        let hit = self.limits.detectors.unknown_tool_repeat && count >= self.limits.unknown_tool_calls as usize;
        hit.then(|| {
            let text =
                format!("{} does not exist and was called {count} times in a row. Use a tool you have.", call.name);
            Verdict::critical(LoopDetector::UnknownToolRepeat, count, text)
        })
    }

    /// The newest calls are of tools that do not exist, possibly with different names.
    pub(super) fn unknown_names(&self) -> Option<Verdict> {
        let run = self.calls.iter().rev().take_while(|r| r.is_unknown_tool || r.is_vetoed);
        let count = run.filter(|r| r.is_unknown_tool && !r.is_earlier).count();
        let hit = self.limits.detectors.unknown_tool_repeat && count >= self.limits.unknown_tool_calls as usize;
        hit.then(|| {
            let text =
                format!("{count} calls in a row were of things that do not exist. Use only names that you were given.");
            Verdict::critical(LoopDetector::UnknownToolRepeat, count, text)
        })
    }

    /// All calls since the context was shortened are this call with one result.
    pub(super) fn compaction_loop(&self, call: &Call<'_>) -> Option<Verdict> {
        let calls_max = self.limits.compaction_calls as usize;
        let since = self.since_compaction.filter(|calls| *calls as usize == calls_max)?;
        let mut recent = self.calls.iter().rev().filter(|r| !r.is_vetoed).take(calls_max);
        let first = recent.next().filter(|r| r.is(call) && r.result_hash.is_some())?;
        let is_loop = recent.all(|r| r.is(call) && r.result_hash == first.result_hash);
        (self.limits.detectors.compaction_loop && !self.is_exempt(call) && is_loop).then(|| {
            let text = format!(
                "after the context was shortened, {} was called {since} times with identical results.",
                call.name
            );
            Verdict::critical(LoopDetector::CompactionLoop, calls_max, text)
        })
    }

    /// The limit for all patterns, then polls.
    fn no_progress(&self, call: &Call<'_>) -> Option<Verdict> {
        let (count, name) = (self.streak(call), call.name);
        if self.limits.detectors.global_circuit_breaker && count >= self.limits.breaker_calls as usize {
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
        // A poll that sees changes may go on.
        let count =
            if call.is_poll { self.streak(call) } else { self.since_change(call).filter(|r| r.is(call)).count() };
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
        if count < self.limits.ping_pong_calls as usize {
            return None;
        }
        let text = format!("{} and {} called in turn, {count} times. Neither leads on.", other.name, last.name);
        match self.graded(LoopDetector::PingPong, count, text.clone()) {
            Some(v) if v.level == LoopLevel::Critical && !(0..2).all(|at| is_unchanged(&tail, at, 2)) => {
                Some(Verdict::warning(LoopDetector::PingPong, count, text))
            }
            verdict => verdict,
        }
    }

    /// The newest calls repeat three or more different calls in the same order, and the next one would continue them.
    fn cycle(&self, call: &Call<'_>) -> Option<Verdict> {
        if !self.limits.detectors.cycle || call.is_poll {
            return None;
        }
        let newest: Vec<&CallRecord> = self.calls.iter().rev().collect();
        let periods = LoopGuardLimits::CYCLE_CALLS_MIN as usize..=self.limits.cycle_calls_max as usize;
        periods.filter_map(|period| self.cycle_of(call, &newest, period)).max_by_key(|verdict| verdict.level)
    }

    fn cycle_of(&self, call: &Call<'_>, newest: &[&CallRecord], period: usize) -> Option<Verdict> {
        let lap = newest.get(..period)?;
        let different: BTreeSet<_> = lap.iter().map(|r| (&r.name, &r.args_hash)).collect();
        if different.len() < period || !lap.last().is_some_and(|r| r.is(call)) {
            return None;
        }
        let repeated = newest.iter().zip(newest.iter().skip(period)).take_while(|(a, b)| a.same_call(b)).count();
        let tail = newest.get(..period + repeated)?;
        let laps = (tail.len() + 1) / period;
        let names: BTreeSet<&str> = lap.iter().map(|r| r.name.as_str()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let text = format!("the same {period} calls of {names} were made in turn, {laps} times. They do not lead on.");
        let is_stuck =
            (0..period).all(|at| is_unchanged(tail, at, period)) && !tail.iter().any(|record| record.has_changed);
        if laps >= self.limits.cycle_critical_laps as usize && is_stuck {
            return Some(Verdict::critical(LoopDetector::Cycle, laps, text));
        }
        (laps >= self.limits.cycle_warning_laps as usize).then(|| Verdict::warning(LoopDetector::Cycle, laps, text))
    }

    /// The newest calls of this skill differ little from this one and from each other. They all failed in the same way, or they
    /// are the same but for times and ids and gave one result.
    fn near_identical(&self, call: &Call<'_>) -> Option<Verdict> {
        if !self.limits.detectors.near_identical || call.is_poll {
            return None;
        }
        let failed = self.near_failures(call);
        let masked = self.masked_repeats(call);
        let (count, is_earlier) = failed.max(masked);
        let text = format!("{} called {count} times with nearly the same arguments and no other result.", call.name);
        if count >= self.limits.near_critical_calls as usize && !is_earlier {
            return Some(Verdict::critical(LoopDetector::NearIdentical, count, text));
        }
        let hit = count >= self.limits.near_warning_calls as usize;
        hit.then(|| Verdict::warning(LoopDetector::NearIdentical, count, text))
    }

    /// The number of replies with the newest failures of this skill whose arguments each differ little from those of the next, and whether
    /// the newest one is of an earlier turn. Repetitions of exactly this call have a detector of their own.
    fn near_failures(&self, call: &Call<'_>) -> (usize, bool) {
        let same = |r: &&CallRecord| r.name == call.name && !r.is_vetoed;
        if self.since_change(call).find(same).is_none_or(|newest| newest.failure.is_none()) {
            return (0, false);
        }
        let own = near_text(call.args);
        let mut near = own.as_str();
        let (mut failure, mut newest) = (None, None);
        let (mut replies, mut variants) = (BTreeSet::new(), BTreeSet::from([call.args_hash.as_str()]));
        for record in self.since_change(call).filter(same) {
            let Some(found) = &record.failure else { break };
            if *failure.get_or_insert(found) != found {
                break;
            }
            if is_near(near, &record.near, self.limits.near_percent_max) {
                newest.get_or_insert(record.is_earlier);
                near = &record.near;
                replies.insert((record.is_earlier, record.reply));
                variants.insert(&record.args_hash);
            }
        }
        if variants.len() < 2 { (0, false) } else { (replies.len(), newest.unwrap_or(false)) }
    }

    /// The number of the newest calls that are this one but for times and ids, and gave one result.
    fn masked_repeats(&self, call: &Call<'_>) -> (usize, bool) {
        if !self.since_change(call).any(|r| r.name == call.name && !r.masked_hash.is_empty()) {
            return (0, false);
        }
        let own = masked_hash(call.args);
        let is_masked = |r: &&CallRecord| r.name == call.name && r.masked_hash == own && !r.is_vetoed;
        let mut same = self.since_change(call).filter(is_masked);
        let Some(first) = same.next() else { return (0, false) };
        let rest: Vec<&CallRecord> = same.take_while(|r| r.result_hash == first.result_hash).collect();
        let is_varied = !first.is(call) || rest.iter().any(|r| !r.is(call));
        if is_varied { (rest.len() + 1, first.is_earlier) } else { (0, false) }
    }

    /// This call failed before so that it fails again as long as nothing else changes, such as at a page that refuses programs.
    fn known_failure(&self, call: &Call<'_>) -> Option<Verdict> {
        let mut same = self.since_change(call).filter(|r| r.is(call) && r.result_hash.is_some());
        let failure = same.next()?.failure.as_deref()?;
        let count = 1 + same.take_while(|r| r.failure.as_deref() == Some(failure)).count();
        let is_lasting = ErrorKind::named(failure).is_some_and(ErrorKind::is_lasting);
        let calls_max = self.limits.known_failure_calls as usize;
        let hit = self.limits.detectors.known_failure && is_lasting && count >= calls_max;
        hit.then(|| {
            let text = format!(
                "{} failed with {failure} for these arguments, and will again. Go another way, or report it.",
                call.name
            );
            Verdict::critical(LoopDetector::KnownFailure, count, text)
        })
    }

    /// The same call was made in a row, with nothing between, and gave another result each time.
    fn changing_result(&self, call: &Call<'_>) -> Option<Verdict> {
        let count = self.in_a_row as usize;
        let hit = self.limits.detectors.changing_result
            && !call.is_poll
            && count >= self.limits.changing_calls as usize
            && self.calls.back().is_some_and(|r| r.is(call))
            && self.streak(call) < count;
        hit.then(|| {
            let text = format!("{} called {count} times in a row. Its result will go on changing.", call.name);
            Verdict::critical(LoopDetector::ChangingResult, count, text)
        })
    }

    /// The newest calls of this turn all failed, and they are of several skills. A skill that has not failed may be tried.
    fn error_cascade(&self, call: &Call<'_>) -> Option<Verdict> {
        let failed = self.calls.iter().rev().filter(|r| !r.is_vetoed).take_while(|r| r.is_error() && !r.is_earlier);
        let (mut replies, mut skills) = (BTreeSet::new(), BTreeSet::new());
        for record in failed {
            replies.insert(record.reply);
            skills.insert(record.name.as_str());
        }
        let count = replies.len();
        if !self.limits.detectors.error_cascade || skills.len() < 2 || !skills.contains(call.name) {
            return None;
        }
        let text = format!(
            "the calls of {count} replies in a row failed, of {} skills. Another call of {} will not help; report what failed.",
            skills.len(),
            call.name
        );
        if count >= self.limits.cascade_critical_calls as usize {
            return Some(Verdict::critical(LoopDetector::ErrorCascade, count, text));
        }
        let hit = count >= self.limits.cascade_warning_calls as usize;
        hit.then(|| Verdict::warning(LoopDetector::ErrorCascade, count, text))
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
            && variants.values().all(|calls| *calls >= self.limits.churn_variant_calls as usize)
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
        let mut results = self.since_change(call).filter(|r| r.is(call)).filter_map(|r| r.result_hash.as_ref());
        results.next().map_or(0, |newest| 1 + results.take_while(|hash| *hash == newest).count())
    }

    /// The records, newest first, back to the newest one that changed something, unless it is a repetition of that change: a
    /// question may be asked again after an edit, and has its old answer at first.
    fn since_change(&self, call: &Call<'_>) -> impl Iterator<Item = &CallRecord> {
        self.calls.iter().rev().take_while(|r| !r.has_changed || r.is(call))
    }
}

/// Whether every `period`-th record from `start` on has the same result. Vetoed calls have none.
fn is_unchanged(tail: &[&CallRecord], start: usize, period: usize) -> bool {
    let mut results = tail.iter().skip(start).step_by(period).filter(|r| !r.is_vetoed).map(|r| r.result_hash.as_ref());
    match results.next() {
        Some(Some(first)) => results.all(|hash| hash == Some(first)),
        Some(None) => false,
        None => true,
    }
}
