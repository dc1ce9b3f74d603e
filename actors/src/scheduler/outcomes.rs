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
}

impl Outcomes {
    /// Whether the last round was not answered.
    pub const fn is_failing(&self) -> bool {
        self.failed_rounds > 0
    }

    pub fn answered(&mut self) -> Option<Change> {
        let failed_rounds = std::mem::take(&mut self.failed_rounds);
        self.failing_since = None;
        (failed_rounds > 0).then_some(Change::Recovered { failed_rounds })
    }

    pub fn failed(&mut self, kind: ModelErrorKind, detail: &str, now: Micros) -> Option<Change> {
        // A server may also report an unknown model as an invalid request, and then no round will be answered.
        if kind.is_about_request() && kind != ModelErrorKind::InvalidRequest {
            return self.answered();
        }
        // The rate window determines when the backend accepts rounds again.
        if kind == ModelErrorKind::RateLimited {
            return None;
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
        assert_eq!(outcomes.answered(), None);
        let first = outcomes.failed(ModelErrorKind::Unavailable, "HTTP 500", Micros(1));
        assert_eq!(first, fails(ModelErrorKind::Unavailable, "HTTP 500"));
        assert_eq!(outcomes.failed(ModelErrorKind::Unavailable, "HTTP 500", Micros(2)), None);
        let other = outcomes.failed(ModelErrorKind::Auth, "HTTP 401", Micros(3));
        assert_eq!(other, fails(ModelErrorKind::Auth, "HTTP 401"));
        let view = outcomes.view();
        assert_eq!((&view["failed_rounds"], &view["failing_since"]), (&json!(3), &json!("1970-01-01T00:00:00.000Z")));
        assert_eq!(view["last_error"], json!({"kind": "auth", "detail": "HTTP 401", "at": "1970-01-01T00:00:00.000Z"}));
        assert_eq!(outcomes.answered(), Some(Change::Recovered { failed_rounds: 3 }));
        assert!(!outcomes.is_failing());
    }

    #[test]
    fn outcomes_count_a_refused_request_as_an_answer_unless_the_model_may_be_unknown() {
        let mut outcomes = Outcomes::default();
        for kind in [ModelErrorKind::Overflow, ModelErrorKind::Content, ModelErrorKind::ToolsUnsupported] {
            assert_eq!(outcomes.failed(kind, "x", Micros(1)), None);
            assert!(!outcomes.is_failing());
        }
        assert!(outcomes.failed(ModelErrorKind::InvalidRequest, "no such model", Micros(1)).is_some());
        assert!(outcomes.is_failing());
    }
}
