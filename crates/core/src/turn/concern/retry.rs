//! Retries: further attempts of a turn whose model failed, and the dead letter of a turn that failed finally [S3 5.9].

use serde::{Deserialize, Serialize};

use super::Now;
use crate::{
    dead_letter::{DeadLetter, DeadLetterLimits, Strategy},
    event::{EventBody, Inbound},
    plan::first_line,
    time::Micros,
    turn::{
        Decision,
        conversation::Turn,
        report,
        run::{Ending, Phase},
    },
    workflow::WORKFLOW_NOT_STARTED,
};

/// The first wait before another attempt, in milliseconds: long enough for a server to restart and to load its model. While no
/// other task uses a model whose server is reachable, only such an attempt shows that it answers again.
const FIRST_WAIT_MS: u64 = 60_000;

/// How many waits of a turn may end early without being used up. A model that answers other tasks may fail on this prompt each
/// time, and the turn must end.
const LIFTS_MAX: u32 = 4;

/// The failed attempts of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// The strategies that were used after failures. `Later` is here once for each wait.
    pub strategies: Vec<Strategy>,
    /// The reasons of those failures, one line each.
    pub reasons: Vec<String>,
    /// When the first of those failures occurred.
    pub failing_since: Option<Micros>,
    /// How many of its waits ended early, because the model answered again or on request. They are not used up.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub lifted: u32,
}

impl Turn {
    /// Begins another attempt after the model failed. The context so far is kept.
    pub(in crate::turn) fn retry(&mut self, strategy: Strategy, reason: &str, at: Micros) {
        let is_used_up = strategy != Strategy::Later && self.retries.strategies.contains(&strategy);
        if !matches!(self.main.phase, Phase::Ended(Ending::ModelFailed(_))) || is_used_up {
            return;
        }
        self.retries.strategies.push(strategy);
        self.retries.reasons.push(reason.to_owned());
        self.retries.failing_since.get_or_insert(at);
        match strategy {
            // The failed backend moves to the end of the route, if there is another one.
            Strategy::OtherBackend if self.route.len() > 1 => self.route.rotate_left(1),
            Strategy::OtherBackend => {}
            Strategy::Later => self.deferral.is_due = true,
        }
        self.main.again();
    }

    /// How long the turn would wait before another attempt, in milliseconds. 0 if the time for waits is used up.
    pub(in crate::turn) fn next_wait_ms(&self) -> u64 {
        self.wait_ms(self.waits())
    }

    /// How long the turn waits before the attempt that was decided last, in milliseconds.
    pub(in crate::turn) fn retry_wait_ms(&self) -> u64 {
        self.wait_ms(self.waits().saturating_sub(1))
    }

    /// The wait after this many waits, in milliseconds: each is twice as long as the one before, and all of them together are
    /// `defer_ms`. 0 if that time is used up.
    fn wait_ms(&self, waits: usize) -> u64 {
        let factor = u32::try_from(waits).ok().and_then(|waits| 1_u64.checked_shl(waits)).unwrap_or(u64::MAX);
        let waited_ms = FIRST_WAIT_MS.saturating_mul(factor - 1);
        FIRST_WAIT_MS.saturating_mul(factor).min(self.limits.defer_ms.saturating_sub(waited_ms))
    }

    /// How often the turn has waited for another attempt until the wait was over.
    fn waits(&self) -> usize {
        let begun = self.retries.strategies.iter().filter(|strategy| **strategy == Strategy::Later).count();
        begun.saturating_sub(usize::try_from(self.retries.lifted).unwrap_or(usize::MAX))
    }

    /// Ends the turn's wait early at this time, if it waits.
    pub(in crate::turn) fn lift_deferral(&mut self, at: Micros) {
        let was_lifted = self.deferral.is_lifted;
        self.deferral.is_lifted = self.deferral.until.is_some_and(|until| until > at);
        if self.deferral.is_lifted && !was_lifted && self.deferral.after_failure && self.retries.lifted < LIFTS_MAX {
            self.retries.lifted += 1;
        }
    }

    /// The final failure of the turn. If `is_retryable` is false, the work would fail again in the same way, and its dead letter
    /// is not retried automatically.
    pub(in crate::turn) fn failed(
        &self,
        now: Now,
        code: &str,
        text: &str,
        detail: String,
        is_retryable: bool,
    ) -> Decision {
        let dead_letter =
            dead_letter_of(&self.inbound, self.retries.failing_since.unwrap_or(now.at), &self.retries.reasons, &detail);
        let retry_at = self.limits.dead_letters.retry_at(self.inbound.priority, dead_letter.since, now.at);
        let retry_at = retry_at.filter(|_| is_retryable);
        // A model that is asked again may phrase the same effect differently. No receipt would match then, and the effect would
        // happen twice.
        let needs_manual_retry = retry_at.is_some() && self.had_effects();
        let dead_letter = DeadLetter { retry_at: retry_at.filter(|_| !needs_manual_retry), ..dead_letter };
        // A stateless caller receives this failure and decides about a retry. No client would read the answer to a later one.
        let is_kept = self.limits.dead_letters.keeps(self.inbound.priority, self.inbound.retry.is_some());
        let dead_letter = Some(dead_letter).filter(|_| is_kept && !self.inbound.stateless);
        let mut text = report::with_dead_letter(&report::with_progress(text, self), dead_letter.as_ref(), now.at);
        if needs_manual_retry && dead_letter.is_some() {
            text.push_str(report::NEEDS_MANUAL_RETRY);
        }
        self.main(EventBody::Failed { code: code.to_owned(), text, detail, dead_letter })
    }
}

/// The failure of a message that calls a workflow which cannot be started. A person may retry it once the file is as it should be.
#[must_use]
pub fn workflow_not_started(inbound: &Inbound, limits: &DeadLetterLimits, why: &str, now: Micros) -> EventBody {
    let is_kept = limits.keeps(inbound.priority, inbound.retry.is_some()) && !inbound.stateless;
    let dead_letter = is_kept.then(|| dead_letter_of(inbound, now, &[], &first_line(why)));
    let text = report::with_dead_letter(why, dead_letter.as_ref(), now);
    EventBody::Failed { code: WORKFLOW_NOT_STARTED.to_owned(), text, detail: String::new(), dead_letter }
}

/// Creates a dead letter without an automatic retry. The dead letter of a retry continues the history of the dead letter
/// that was retried.
pub(in crate::turn) fn dead_letter_of(
    inbound: &Inbound,
    failing_since: Micros,
    tried: &[String],
    reason: &str,
) -> DeadLetter {
    let (since, before) = match &inbound.retry {
        Some(retry) => (retry.since, retry.tried.as_slice()),
        None => (failing_since, [].as_slice()),
    };
    let tried = before.iter().chain(tried).cloned().chain([reason.to_owned()]).collect();
    DeadLetter { tried, since, retry_at: None }
}
