//! Outcomes of the last rounds of a backend. Routing asks the breaker whether a round may be tried; operators ask whether the
//! last rounds were answered, and if not, why. An endpoint that lists its models but refuses every round is failing.

use annie_core::{message::ModelErrorKind, time::Micros};
use serde_json::{Value, json};

/// Stored length of an error text, in bytes.
const DETAIL_BYTES_MAX: usize = 500;

/// Failures since the last answer.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    failed_rounds: u32,
    failing_since: Option<Micros>,
    last_error: Option<LastError>,
    /// When the provider's rate limit refused a round, if no later round was answered.
    limited_since: Option<Micros>,
}

#[derive(Debug)]
struct LastError {
    kind: ModelErrorKind,
    detail: String,
    at: Micros,
}

/// A change of a backend's outcomes that is logged once.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Rounds fail now, or fail with another kind of error than before.
    Fails { kind: ModelErrorKind, detail: String },
    /// A round was answered after this many failed ones.
    Recovered { failed_rounds: u32 },
    /// The provider's rate limit closed the rate window for this time, in milliseconds.
    Limited { closed_ms: u64 },
    /// A round was answered after the rate limit.
    AcceptsAgain,
}

impl Outcomes {
    /// Whether the last round was not answered.
    pub const fn is_failing(&self) -> bool {
        self.failed_rounds > 0
    }

    /// Records an answered round that began at this time.
    pub fn answered(&mut self, began_at: Micros) -> Option<Change> {
        // The answer of a round that began before the rate limit does not prove that the provider accepts requests again.
        let was_limited = self.limited_since.take_if(|since| *since <= began_at).is_some();
        let failed_rounds = std::mem::take(&mut self.failed_rounds);
        self.failing_since = None;
        let recovered = (failed_rounds > 0).then_some(Change::Recovered { failed_rounds });
        recovered.or(was_limited.then_some(Change::AcceptsAgain))
    }

    /// Records a round that the provider's rate limit refused. It is no failure: the rate window, closed for `closed_ms`
    /// milliseconds, determines when the backend accepts rounds again. A limit that lasts for several windows is one change.
    pub fn rate_limited(&mut self, closed_ms: u64, now: Micros) -> Option<Change> {
        // A round that began before the newest refusal proves nothing.
        let is_known = self.limited_since.replace(now).is_some();
        (!is_known).then_some(Change::Limited { closed_ms })
    }

    /// Records a failed round that began at `began_at`. Rounds that a rate limit refused are reported to
    /// [`Self::rate_limited`].
    pub fn failed(&mut self, kind: ModelErrorKind, detail: &str, began_at: Micros, now: Micros) -> Option<Change> {
        // A server may also report an unknown model as an invalid request, and then no round will be answered.
        if kind.is_about_request() && kind != ModelErrorKind::InvalidRequest {
            return self.answered(began_at);
        }
        let is_known = self.is_failing() && self.last_error.as_ref().is_some_and(|e| e.kind == kind);
        self.failed_rounds = self.failed_rounds.saturating_add(1);
        self.failing_since.get_or_insert(now);
        let detail = annie_core::context::clip(detail, DETAIL_BYTES_MAX).into_owned();
        self.last_error = Some(LastError { kind, detail: detail.clone(), at: now });
        (!is_known).then_some(Change::Fails { kind, detail })
    }

    /// The state as shown to operators.
    pub fn view(&self) -> Value {
        let error = |e: &LastError| json!({"kind": e.kind.as_str(), "detail": e.detail, "at": e.at.to_string()});
        json!({
            "failed_rounds": self.failed_rounds, "failing_since": self.failing_since.map(|at| at.to_string()),
            "last_error": self.last_error.as_ref().map(error),
        })
    }
}

impl Change {
    /// -
    pub fn log(&self, backend: &str) {
        match self {
            Self::Fails { kind, detail } => {
                tracing::warn!(
                    backend,
                    kind = kind.as_str(),
                    detail,
                    "the backend fails; `annie status` says since when"
                );
            }
            Self::Recovered { failed_rounds } => tracing::info!(backend, failed_rounds, "the backend answers again"),
            Self::Limited { closed_ms } => {
                tracing::warn!(
                    backend,
                    closed_ms,
                    "the provider's rate limit refuses rounds; those that can wait do so until the rate window opens"
                );
            }
            Self::AcceptsAgain => tracing::info!(backend, "the backend accepts rounds again after its rate limit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_log_the_first_failure_a_new_kind_and_the_recovery_once_each() {
        let mut outcomes = Outcomes::default();
        let fails = |kind, detail: &str| Some(Change::Fails { kind, detail: detail.to_owned() });
        assert_eq!(outcomes.answered(Micros(0)), None);
        let first = outcomes.failed(ModelErrorKind::Unavailable, "HTTP 500", Micros(0), Micros(1));
        assert_eq!(first, fails(ModelErrorKind::Unavailable, "HTTP 500"));
        assert_eq!(outcomes.failed(ModelErrorKind::Unavailable, "HTTP 500", Micros(0), Micros(2)), None);
        let other = outcomes.failed(ModelErrorKind::Auth, "HTTP 401", Micros(0), Micros(3));
        assert_eq!(other, fails(ModelErrorKind::Auth, "HTTP 401"));
        let view = outcomes.view();
        assert_eq!((&view["failed_rounds"], &view["failing_since"]), (&json!(3), &json!("1970-01-01T00:00:00.000Z")));
        assert_eq!(view["last_error"], json!({"kind": "auth", "detail": "HTTP 401", "at": "1970-01-01T00:00:00.000Z"}));
        assert_eq!(outcomes.answered(Micros(4)), Some(Change::Recovered { failed_rounds: 3 }));
        assert!(!outcomes.is_failing());
    }

    #[test]
    fn outcomes_log_a_rate_limit_once_and_the_first_round_after_it_that_is_answered() {
        let mut outcomes = Outcomes::default();
        assert_eq!(outcomes.rate_limited(7_000, Micros(5)), Some(Change::Limited { closed_ms: 7_000 }));
        assert_eq!(outcomes.rate_limited(9_000, Micros(6)), None, "the limit lasts");
        assert!(!outcomes.is_failing());
        assert_eq!(outcomes.answered(Micros(4)), None, "this round began before the limit");
        assert_eq!(outcomes.answered(Micros(7)), Some(Change::AcceptsAgain));
        assert_eq!(outcomes.answered(Micros(8)), None);
        assert_eq!(outcomes.rate_limited(1_000, Micros(9)), Some(Change::Limited { closed_ms: 1_000 }));
        assert!(outcomes.failed(ModelErrorKind::Unavailable, "HTTP 500", Micros(10), Micros(11)).is_some());
        assert_eq!(outcomes.answered(Micros(12)), Some(Change::Recovered { failed_rounds: 1 }), "one line for both");
        assert_eq!(outcomes.answered(Micros(13)), None);
    }

    #[test]
    fn outcomes_count_a_refused_request_as_an_answer_unless_the_model_may_be_unknown() {
        let mut outcomes = Outcomes::default();
        for kind in [ModelErrorKind::Overflow, ModelErrorKind::Content, ModelErrorKind::ToolsUnsupported] {
            assert_eq!(outcomes.failed(kind, "x", Micros(0), Micros(1)), None);
            assert!(!outcomes.is_failing());
        }
        let unknown_model = outcomes.failed(ModelErrorKind::InvalidRequest, "no such model", Micros(0), Micros(1));
        assert!(unknown_model.is_some());
        assert!(outcomes.is_failing());
    }
}
