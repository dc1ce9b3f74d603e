//! How the kernel was doing in the last hour, by minutes: turns, failures, waits for the first token, waiting tasks, restarts.
//! For people who watch; Prometheus has its own counters. The memory is bounded, and a turn costs one short lock.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use annie_core::time::Micros;
use parking_lot::Mutex;
use serde::Serialize;

/// Minutes that are kept.
const MINUTES_MAX: usize = 60;
const MINUTE_US: i64 = 60_000_000;
/// Upper bounds of the classes of waits for the first token, in milliseconds. The last class has no bound.
const WAIT_MS: [u64; 20] = [
    10, 20, 50, 100, 150, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 20_000, 30_000, 60_000,
    120_000,
];

/// One minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PulseMinute {
    /// When it began.
    #[serde(serialize_with = "annie_core::time::rfc3339")]
    pub at: Micros,
    /// Tasks that ended, failed ones included.
    pub turns: u32,
    /// Tasks that failed.
    pub failures: u32,
    /// The most tasks that waited at the same time.
    pub waiting_max: u32,
    /// Actors that were started again after an end.
    pub restarts: u32,
    /// Tokens of the answers of rounds that ended, reasoning included.
    pub output_tokens: u64,
    /// The time from the request of a round to its first token that 95 % of the rounds did not exceed, in milliseconds, rounded
    /// up; absent if no round ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_p95_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Minute {
    number: i64,
    turns: u32,
    failures: u32,
    waiting_max: u32,
    /// Tasks that waited at the last change.
    waiting: u32,
    restarts: u32,
    output_tokens: u64,
    waits: [u32; WAIT_MS.len() + 1],
}

impl Minute {
    const fn new(number: i64, waiting: u32) -> Self {
        let waits = [0; WAIT_MS.len() + 1];
        Self { number, turns: 0, failures: 0, waiting_max: waiting, waiting, restarts: 0, output_tokens: 0, waits }
    }

    fn shown(&self) -> PulseMinute {
        PulseMinute {
            at: Micros(self.number * MINUTE_US),
            turns: self.turns,
            failures: self.failures,
            waiting_max: self.waiting_max,
            restarts: self.restarts,
            output_tokens: self.output_tokens,
            first_token_p95_ms: p95(&self.waits),
        }
    }
}

fn p95(waits: &[u32; WAIT_MS.len() + 1]) -> Option<u64> {
    let total: u64 = waits.iter().map(|n| u64::from(*n)).sum();
    let mut left = (total * 95).div_ceil(100);
    if left == 0 {
        return None;
    }
    for (n, count) in waits.iter().enumerate() {
        left = left.saturating_sub(u64::from(*count));
        if left == 0 {
            return Some(WAIT_MS.get(n).or(WAIT_MS.last()).copied().unwrap_or_default());
        }
    }
    None
}

/// The last hour.
#[derive(Debug, Default)]
pub struct Pulse {
    minutes: Mutex<VecDeque<Minute>>,
    waiting: AtomicU32,
}

impl Pulse {
    /// A task has ended.
    pub fn task_ended(&self, has_failed: bool, now: Micros) {
        self.count(now, |minute| {
            minute.turns = minute.turns.saturating_add(1);
            minute.failures = minute.failures.saturating_add(u32::from(has_failed));
        });
    }

    /// A round has written its first token, this long after it was requested.
    pub fn round_spoke(&self, wait_ms: u64, now: Micros) {
        let class = WAIT_MS.partition_point(|bound| *bound < wait_ms);
        self.count(now, |minute| minute.waits[class] = minute.waits[class].saturating_add(1));
    }

    /// A round has ended with an answer of this many tokens.
    pub fn tokens_written(&self, tokens: u64, now: Micros) {
        if tokens > 0 {
            self.count(now, |minute| minute.output_tokens = minute.output_tokens.saturating_add(tokens));
        }
    }

    /// An actor was started again.
    pub fn actor_restarted(&self, now: Micros) {
        self.count(now, |minute| minute.restarts = minute.restarts.saturating_add(1));
    }

    /// This many tasks wait now.
    pub fn tasks_wait(&self, count: usize, now: Micros) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let before = self.waiting.swap(count, Relaxed);
        if before != count {
            self.change(now, before, |minute| {
                minute.waiting_max = minute.waiting_max.max(count);
                minute.waiting = count;
            });
        }
    }

    fn count(&self, now: Micros, change: impl FnOnce(&mut Minute)) {
        self.change(now, self.waiting.load(Relaxed), change);
    }

    fn change(&self, now: Micros, waiting: u32, change: impl FnOnce(&mut Minute)) {
        let number = now.0.div_euclid(MINUTE_US);
        let mut minutes = self.minutes.lock();
        // A clock that was set back adds to the newest minute.
        if minutes.back().is_none_or(|last| last.number < number) {
            if minutes.len() == MINUTES_MAX {
                minutes.pop_front();
            }
            minutes.push_back(Minute::new(number, waiting));
        }
        if let Some(last) = minutes.back_mut() {
            change(last);
        }
    }

    /// The last 60 minutes up to the present one, oldest first, each of them once: in a minute in which nothing happened, as
    /// many tasks waited as at the end of the one before.
    #[must_use]
    pub fn last_hour(&self, now: Micros) -> Vec<PulseMinute> {
        let present = now.0.div_euclid(MINUTE_US);
        let first = present - (MINUTES_MAX as i64 - 1);
        let minutes = self.minutes.lock();
        let mut waiting = minutes.iter().take_while(|m| m.number < first).last().map_or(0, |m| m.waiting);
        let mut shown = Vec::with_capacity(MINUTES_MAX);
        for number in first..=present {
            let found = minutes.iter().find(|m| m.number == number);
            // The last recorded number still holds, because every change is recorded.
            let is_after_the_last = minutes.back().is_none_or(|last| last.number < number);
            if is_after_the_last {
                waiting = self.waiting.load(Relaxed);
            }
            let minute = found.copied().unwrap_or_else(|| Minute::new(number, waiting));
            waiting = minute.waiting;
            shown.push(minute.shown());
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(n: i64) -> Micros {
        Micros(n * MINUTE_US + 5)
    }

    #[test]
    fn pulse_counts_by_minute_and_keeps_one_hour() {
        let pulse = Pulse::default();
        for n in 0..200 {
            pulse.task_ended(n % 2 == 0, minute(n));
            pulse.actor_restarted(minute(n));
        }
        let hour = pulse.last_hour(minute(200));
        assert_eq!((hour.len(), pulse.minutes.lock().len()), (60, 60));
        assert_eq!((hour[0].at.0 / MINUTE_US, hour[59].at.0 / MINUTE_US), (141, 200));
        assert_eq!((hour[58].turns, hour[58].failures, hour[57].failures, hour[58].restarts), (1, 0, 1, 1));
        assert_eq!(hour[59], PulseMinute { at: Micros(200 * MINUTE_US), ..PulseMinute::default() });
    }

    #[test]
    fn pulse_reports_the_wait_that_95_of_100_rounds_did_not_exceed() {
        let pulse = Pulse::default();
        assert_eq!(pulse.last_hour(minute(0))[59].first_token_p95_ms, None);
        for wait_ms in std::iter::repeat_n(40, 95).chain(std::iter::repeat_n(9_000, 5)) {
            pulse.round_spoke(wait_ms, minute(0));
        }
        assert_eq!(pulse.last_hour(minute(0))[59].first_token_p95_ms, Some(50));
        pulse.round_spoke(600_000, minute(0));
        assert_eq!(pulse.last_hour(minute(0))[59].first_token_p95_ms, Some(10_000));
    }

    #[test]
    fn pulse_shows_tasks_as_waiting_until_their_number_changes() {
        let pulse = Pulse::default();
        pulse.tasks_wait(3, minute(0));
        let waiting = |now| pulse.last_hour(now).iter().rev().map(|m| m.waiting_max).take(4).collect::<Vec<_>>();
        assert_eq!(waiting(minute(2)), [3, 3, 3, 0]);
        pulse.tasks_wait(0, minute(2));
        assert_eq!(waiting(minute(3)), [0, 3, 3, 3]);
    }
}
