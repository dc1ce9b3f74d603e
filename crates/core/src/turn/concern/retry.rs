//! Retries: further attempts of a turn whose model failed, and the dead letter of a turn that failed finally [S3 5.9].

use serde::{Deserialize, Serialize};

use super::Now;
use crate::{
    dead_letter::{DeadLetter, Strategy},
    event::{EventBody, Inbound},
    message::{ModelError, ModelErrorKind},
    time::Micros,
    turn::{
        Decision,
        conversation::Turn,
        report,
        run::{Ending, Phase},
    },
};

/// The failed attempts of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// The strategies that were used after failures.
    pub strategies: Vec<Strategy>,
    /// The reasons of those failures, one line each.
    pub reasons: Vec<String>,
    /// When the first of those failures occurred.
    pub failing_since: Option<Micros>,
}

impl Turn {
    /// Begins another attempt after the model failed. The context so far is kept.
    pub(in crate::turn) fn retry(&mut self, strategy: Strategy, reason: &str, at: Micros) {
        if !matches!(self.main.phase, Phase::Ended(Ending::ModelFailed(_)))
            || self.retries.strategies.contains(&strategy)
        {
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

    /// The next strategy for retrying a failed turn. Only classes that are not more urgent than `retry_from` are retried, and
    /// only after errors that another attempt may avoid.
    pub(in crate::turn) fn next_strategy(&self, error: &ModelError) -> Option<Strategy> {
        let is_background = self.inbound.priority >= self.limits.dead_letters.retry_from;
        if !is_background || !may_succeed_on_retry(error) {
            return None;
        }
        [Strategy::OtherBackend, Strategy::Later].into_iter().find(|s| !self.retries.strategies.contains(s))
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

/// Whether the same request may succeed on another backend or at a later time.
pub(in crate::turn) const fn may_succeed_on_retry(error: &ModelError) -> bool {
    !matches!(
        error.kind,
        ModelErrorKind::Content
            | ModelErrorKind::InvalidRequest
            | ModelErrorKind::ToolsUnsupported
            | ModelErrorKind::Overflow
            | ModelErrorKind::InDoubt
    )
}
