//! The typed result of a skill run [S3 4.3]: what happened, whether trying again can help, what else could be tried, and
//! what is known about the side effect.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ids::OperationId, time::Micros};

/// The five ways in which a skill run can end [S3 4.3], and `unknown` and `pending` beside them: a `once` effect whose
/// receipt was lost, and a long-running operation that goes on elsewhere [S3 6.5].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accept the result.
    Success,
    /// Got some data, but not all.
    Partial,
    /// Trying again might work: a time-out, a rate limit.
    ErrorTransient,
    /// Trying again will not work: not found, bad arguments, no access.
    ErrorPermanent,
    /// Never try again: refused by a guard.
    ErrorBlocked,
    /// The effect was started and nobody knows whether it happened.
    Unknown,
    /// Accepted, the result comes later under an operation id.
    Pending,
}

impl Status {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Partial => "partial",
            Self::ErrorTransient => "error_transient",
            Self::ErrorPermanent => "error_permanent",
            Self::ErrorBlocked => "error_blocked",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
        }
    }

    /// Whether the caller got something to go on with.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Success | Self::Partial | Self::Pending)
    }
}

/// What a skill run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The result's text, for the model and the user. At most [`Outcome::DATA_BYTES_MAX`] after [`Outcome::clipped`].
    pub data: String,
    /// A short stable word: `timeout`, `http_403`, `invalid_arguments`, `breaker_open` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// What went wrong, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<String>,
    /// Other ways to the same end, in the order in which to try them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<String>,
    /// How sure the skill is of its result, 0 to 1.
    #[serde(default = "certain")]
    pub confidence: f64,
    /// Asks the orchestrator to step in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalate: bool,
    /// What was tried and what failed, for whoever steps in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub escalation_context: String,
    /// What shows that the side effect happened (or did not): ids, paths, receipts. Structured, never read by a model.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub evidence: Value,
    /// The operation that goes on elsewhere; there if and only if the status is `Pending`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

/// A long-running operation whose result comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Under which id.
    pub id: OperationId,
    /// A result that comes after this is refused.
    pub expires_at: Micros,
}

const fn certain() -> f64 {
    1.0
}

impl Outcome {
    /// The longest result text that is kept, in bytes; more is cut with a notice (a skill that returns 10 MB must not
    /// fill the log or a context window).
    pub const DATA_BYTES_MAX: usize = 32 * 1024;

    fn new(status: Status, data: String) -> Self {
        Self {
            status,
            data,
            error_type: None,
            error_detail: None,
            alternatives: Vec::new(),
            confidence: if status.is_ok() { 1.0 } else { 0.0 },
            escalate: false,
            escalation_context: String::new(),
            evidence: Value::Null,
            operation: None,
        }
    }

    /// It goes on elsewhere, and its result comes under the operation's id.
    #[must_use]
    pub fn pending(operation: Operation, data: impl Into<String>) -> Self {
        Self { operation: Some(operation), ..Self::new(Status::Pending, data.into()) }
    }

    /// It worked.
    #[must_use]
    pub fn success(data: impl Into<String>) -> Self {
        Self::new(Status::Success, data.into())
    }

    /// It worked in part.
    #[must_use]
    pub fn partial(data: impl Into<String>) -> Self {
        Self::new(Status::Partial, data.into())
    }

    /// It failed; `error_type` is the short stable word, `data` says it to the model.
    #[must_use]
    pub fn error(status: Status, error_type: &str, data: impl Into<String>) -> Self {
        Self { error_type: Some(error_type.to_owned()), ..Self::new(status, data.into()) }
    }

    /// It failed, and trying again might work.
    #[must_use]
    pub fn transient(error_type: &str, data: impl Into<String>) -> Self {
        Self::error(Status::ErrorTransient, error_type, data)
    }

    /// It failed, and trying the same again will not work.
    #[must_use]
    pub fn permanent(error_type: &str, data: impl Into<String>) -> Self {
        Self::error(Status::ErrorPermanent, error_type, data)
    }

    /// A guard refused it.
    #[must_use]
    pub fn blocked(error_type: &str, data: impl Into<String>) -> Self {
        Self::error(Status::ErrorBlocked, error_type, data)
    }

    /// A `once` effect was started and its receipt is missing: nobody repeats it silently.
    #[must_use]
    pub fn unknown(data: impl Into<String>, evidence: Value) -> Self {
        Self { evidence, ..Self::error(Status::Unknown, "outcome_unknown", data) }
    }

    /// With evidence of the effect.
    #[must_use]
    pub fn with_evidence(mut self, evidence: Value) -> Self {
        self.evidence = evidence;
        self
    }

    /// With other ways to try.
    #[must_use]
    pub fn with_alternatives(mut self, alternatives: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.alternatives = alternatives.into_iter().map(Into::into).collect();
        self
    }

    /// With the human detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.error_detail = Some(detail.into());
        self
    }

    /// The same with its text cut to [`Self::DATA_BYTES_MAX`], saying so.
    #[must_use]
    pub fn clipped(mut self) -> Self {
        if self.data.len() > Self::DATA_BYTES_MAX {
            let total = self.data.len();
            self.data.truncate(floor_char_boundary(&self.data, Self::DATA_BYTES_MAX));
            self.data.push_str(&format!("\n[cut: the first {} of {total} bytes]", Self::DATA_BYTES_MAX));
        }
        self
    }

    /// Whether a breaker counts it as a failure of the skill: only what the skill itself could not do. Wrong arguments, a
    /// missing record or a guard's refusal say nothing about the skill's health.
    #[must_use]
    pub fn counts_against_the_skill(&self) -> bool {
        match self.status {
            Status::ErrorTransient | Status::Unknown => true,
            Status::ErrorPermanent => !matches!(
                self.error_type.as_deref(),
                Some("invalid_arguments" | "not_found" | "unknown_skill" | "empty_result" | "conflict")
            ),
            Status::Success | Status::Partial | Status::ErrorBlocked | Status::Pending => false,
        }
    }

    /// For the model: structured but readable [S3 4.3].
    #[must_use]
    pub fn to_llm_string(&self) -> String {
        if self.status == Status::Success {
            return self.data.clone();
        }
        let mut text = format!("[{}] {}", self.status.as_str(), self.data);
        if let Some(error_type) = &self.error_type {
            text.push_str(&format!("\nError type: {error_type}"));
        }
        if let Some(detail) = &self.error_detail {
            text.push_str(&format!("\nDetail: {detail}"));
        }
        if !self.alternatives.is_empty() {
            text.push_str(&format!("\nSuggested alternatives: {}", self.alternatives.join(", ")));
        }
        if !self.escalation_context.is_empty() {
            text.push_str(&format!("\nAlready tried: {}", self.escalation_context));
        }
        text
    }
}

/// The largest index not above `at` that does not split a character.
#[must_use]
pub fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_speaks_for_itself_and_a_failure_says_what_else_to_try() {
        assert_eq!(Outcome::success("Sent.").to_llm_string(), "Sent.");
        let outcome = Outcome::permanent("http_403", "403 Forbidden").with_alternatives(["yt-dlp", "browser"]);
        assert_eq!(
            outcome.to_llm_string(),
            "[error_permanent] 403 Forbidden\nError type: http_403\nSuggested alternatives: yt-dlp, browser"
        );
    }

    #[test]
    fn a_huge_result_is_cut_at_a_character_and_says_so() {
        let outcome = Outcome::success("ü".repeat(Outcome::DATA_BYTES_MAX)).clipped();
        assert!(outcome.data.len() < Outcome::DATA_BYTES_MAX + 100);
        assert!(outcome.data.ends_with(&format!("of {} bytes]", Outcome::DATA_BYTES_MAX * 2)));
    }

    #[test]
    fn only_the_skills_own_failures_count_against_it() {
        assert!(Outcome::transient("timeout", "").counts_against_the_skill());
        assert!(Outcome::permanent("panic", "").counts_against_the_skill());
        assert!(!Outcome::permanent("invalid_arguments", "").counts_against_the_skill());
        assert!(!Outcome::blocked("ssrf", "").counts_against_the_skill());
    }
}
