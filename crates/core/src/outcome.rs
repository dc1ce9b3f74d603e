//! The typed result of a skill run [S3 4.3]: its status, whether a retry can help, the alternatives, and the evidence of the
//! side effect.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{guard::Injection, ids::OperationId, skill::SkillChange, time::Micros};

/// The five statuses of a skill run [S3 4.3], and two more: `unknown` for a `once` effect without a receipt, and `pending`
/// for a long-running operation whose result comes later [S3 6.5].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The result is complete.
    Success,
    /// The result is incomplete.
    Partial,
    /// A retry may succeed: a timeout, a rate limit.
    ErrorTransient,
    /// A retry will fail: not found, invalid arguments, no access.
    ErrorPermanent,
    /// Refused by a guard. Must not be retried.
    ErrorBlocked,
    /// The effect was started, and it is unknown whether it happened.
    Unknown,
    /// Accepted. The result comes later under an operation id.
    Pending,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::Partial,
        Self::ErrorTransient,
        Self::ErrorPermanent,
        Self::ErrorBlocked,
        Self::Unknown,
        Self::Pending,
    ];

    /// The wire name.
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

    /// Whether the caller can continue with the result.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Success | Self::Partial | Self::Pending)
    }
}

/// The outcome of a skill run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The status.
    pub status: Status,
    /// The result's text, for the model and the user. At most [`Outcome::DATA_BYTES_MAX`] after [`Outcome::clipped`].
    pub data: String,
    /// A short stable error code: `timeout`, `http_403`, `invalid_arguments`, `breaker_open` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// The error in detail, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<String>,
    /// Alternatives to try, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<String>,
    /// The skill's confidence in its result, 0 to 1.
    #[serde(default = "certain")]
    pub confidence: f64,
    /// Why the result may not answer the request. Present only if the confidence is low.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Whether the orchestrator is asked to intervene.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalate: bool,
    /// What was tried and what failed, for the orchestrator or person who intervenes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub escalation_context: String,
    /// Evidence that the side effect happened (or did not): ids, paths, receipts. Structured data, never read by a model.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub evidence: Value,
    /// The pending operation. Present if and only if the status is `Pending`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// The result is that of another skill, which the kernel ran because this one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Box<Instead>>,
    /// The requests that the run sent to other machines, in their order. Redirects are requests of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<OutboundRequest>,
    /// What the run changes about the active skill of its agent. Only prompt skills have it, and their texts are trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_change: Option<Box<SkillChange>>,
    /// Words in the text that look like instructions to the agent. A guard found them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection: Option<Box<Injection>>,
    /// How long the host asks its callers to wait before they try again, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_s: Option<u32>,
    /// The origins of stored texts in the result, as they were recorded when the texts were stored. An agent that reads them has read
    /// these origins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// The origin of the text if an outside party may have written it, by the operator's rules when the result was recorded. Empty if
    /// the text is trusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub untrusted: String,
}

/// One request that the egress client sent. It has no path, no query and no headers, because these may contain secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundRequest {
    /// The host, with its port unless that is the usual one of the scheme.
    pub host: String,
    /// The method: `GET`, `POST` …
    pub method: String,
    /// The status of the response. Absent if none arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The size of the body that was read, in bytes after decompression.
    pub bytes: u64,
    /// The time from the beginning of the request to the end of what was read, in milliseconds.
    pub ms: u64,
}

/// A skill that ran in place of a failed one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instead {
    /// The skill that ran.
    pub skill: String,
    /// The status of the failed run.
    pub status: Status,
    /// The error code of the failed run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
}

/// A long-running operation whose result comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The id under which the result arrives.
    pub id: OperationId,
    /// Time of expiry. A later result is refused.
    pub expires_at: Micros,
}

const fn certain() -> f64 {
    1.0
}

impl Outcome {
    /// Maximum size of the result text, in bytes. The rest is cut with a notice: a skill that returns 10 MB must not fill
    /// the log or a context window.
    pub const DATA_BYTES_MAX: usize = 32 * 1024;

    fn new(status: Status, data: String) -> Self {
        Self {
            status,
            data,
            error_type: None,
            error_detail: None,
            alternatives: Vec::new(),
            confidence: if status.is_ok() { 1.0 } else { 0.0 },
            doubts: Vec::new(),
            escalate: false,
            escalation_context: String::new(),
            evidence: Value::Null,
            operation: None,
            instead: None,
            requests: Vec::new(),
            skill_change: None,
            injection: None,
            pause_s: None,
            origins: Vec::new(),
            untrusted: String::new(),
        }
    }

    /// The run continues elsewhere, and its result comes under the operation's id.
    #[must_use]
    pub fn pending(operation: Operation, data: impl Into<String>) -> Self {
        Self { operation: Some(operation), ..Self::new(Status::Pending, data.into()) }
    }

    /// The run succeeded.
    #[must_use]
    pub fn success(data: impl Into<String>) -> Self {
        Self::new(Status::Success, data.into())
    }

    /// The run succeeded in part.
    #[must_use]
    pub fn partial(data: impl Into<String>) -> Self {
        Self::new(Status::Partial, data.into())
    }

    /// The run failed. `error_type` is the stable error code, `data` the message for the model.
    #[must_use]
    pub fn error(status: Status, error_type: &str, data: impl Into<String>) -> Self {
        Self { error_type: Some(error_type.to_owned()), ..Self::new(status, data.into()) }
    }

    /// The run failed, and a retry may succeed.
    #[must_use]
    pub fn transient(error_type: &str, data: impl Into<String>) -> Self {
        Self::error(Status::ErrorTransient, error_type, data)
    }

    /// The run failed, and the same run would fail again.
    #[must_use]
    pub fn permanent(error_type: &str, data: impl Into<String>) -> Self {
        Self::error(Status::ErrorPermanent, error_type, data)
    }

    /// A guard refused the run.
    #[must_use]
    pub fn blocked(error_type: &str, data: impl Into<String>) -> Self {
        Self::error(Status::ErrorBlocked, error_type, data)
    }

    /// A `once` effect was started and its receipt is missing. It is never repeated silently.
    #[must_use]
    pub fn unknown(data: impl Into<String>, evidence: Value) -> Self {
        Self { evidence, ..Self::error(Status::Unknown, "outcome_unknown", data) }
    }

    /// This result of another skill, which ran in place of `skill` after it failed so.
    #[must_use]
    pub fn in_place_of(mut self, failed: Self, skill: &str, other: &str) -> Self {
        let line = failed.data.lines().next().unwrap_or_default();
        self.data = format!("[{skill} failed: {line} {other} was run instead.]\n{}", self.data);
        self.requests = failed.requests.into_iter().chain(self.requests).collect();
        let (status, error_type) = (failed.status, failed.error_type);
        self.instead = Some(Box::new(Instead { skill: other.to_owned(), status, error_type }));
        self
    }

    /// Adds evidence of the effect.
    #[must_use]
    pub fn with_evidence(mut self, evidence: Value) -> Self {
        self.evidence = evidence;
        self
    }

    /// Adds the origins of stored texts in the result.
    #[must_use]
    pub fn with_origins(mut self, origins: Vec<String>) -> Self {
        self.origins = origins;
        self
    }

    /// Adds alternatives.
    #[must_use]
    pub fn with_alternatives(mut self, alternatives: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.alternatives = alternatives.into_iter().map(Into::into).collect();
        self
    }

    /// Adds the requests that the run sent.
    #[must_use]
    pub fn with_requests(mut self, requests: Vec<OutboundRequest>) -> Self {
        self.requests = requests;
        self
    }

    /// Adds what the run changes about the active skill.
    #[must_use]
    pub fn with_skill_change(mut self, change: SkillChange) -> Self {
        self.skill_change = Some(Box::new(change));
        self
    }

    /// Adds the detail for people.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.error_detail = Some(detail.into());
        self
    }

    /// The outcome with each of its texts replaced, also those within the evidence.
    #[must_use]
    pub fn map_texts(mut self, map: &dyn Fn(&str) -> String) -> Self {
        self.data = map(&self.data);
        self.error_detail = self.error_detail.map(|text| map(&text));
        self.alternatives = self.alternatives.iter().map(|text| map(text)).collect();
        self.escalation_context = map(&self.escalation_context);
        map_strings(&mut self.evidence, map);
        if let Some(SkillChange::Begin(active)) = self.skill_change.as_deref_mut() {
            active.instructions = map(&active.instructions);
        }
        self
    }

    /// Truncates the text to [`Self::DATA_BYTES_MAX`], with a notice.
    #[must_use]
    pub fn clipped(mut self) -> Self {
        if self.data.len() > Self::DATA_BYTES_MAX {
            let total = self.data.len();
            self.data.truncate(floor_char_boundary(&self.data, Self::DATA_BYTES_MAX));
            self.data.push_str(&format!("\n[cut: the first {} of {total} bytes]", Self::DATA_BYTES_MAX));
        }
        self
    }

    /// Whether a breaker counts the outcome as a failure of the skill. Only failures of the skill itself count: invalid
    /// arguments, a missing record or a guard's refusal say nothing about the skill's health. Neither does the failure of a site
    /// that the caller named (`site_timeout`, `site_404`): otherwise one dead site would make all others unreachable. A skill's own
    /// host that refuses one request (`http_403`, `http_404`, `http_429`) says nothing about the next one. A program that
    /// fails (`program_failed`) may be code that a model wrote. A `tool_error` is the answer of a tool that works, mostly about its
    /// arguments.
    #[must_use]
    pub fn counts_against_the_skill(&self) -> bool {
        let is_of_a_site = |error_type: &str| error_type.starts_with("site_") || error_type.starts_with("http_4");
        if self.error_type.as_deref().is_some_and(is_of_a_site) {
            return false;
        }
        match self.status {
            Status::ErrorTransient | Status::Unknown => true,
            Status::ErrorPermanent => !matches!(
                self.error_type.as_deref(),
                Some(
                    "invalid_arguments"
                        | "not_found"
                        | "unknown_skill"
                        | "empty_result"
                        | "conflict"
                        | "program_failed"
                        | "tool_error"
                )
            ),
            Status::Success | Status::Partial | Status::ErrorBlocked | Status::Pending => false,
        }
    }

    /// The outcome as text for the model: structured but readable [S3 4.3].
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

fn map_strings(value: &mut Value, map: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = map(text),
        Value::Array(items) => items.iter_mut().for_each(|item| map_strings(item, map)),
        Value::Object(fields) => {
            let mapped = std::mem::take(fields).into_iter().map(|(key, mut item)| {
                map_strings(&mut item, map);
                (map(&key), item)
            });
            *fields = mapped.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
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
    fn outcome_text_is_data_on_success_and_includes_alternatives_on_failure() {
        assert_eq!(Outcome::success("Sent.").to_llm_string(), "Sent.");
        let outcome = Outcome::permanent("http_403", "403 Forbidden").with_alternatives(["yt-dlp", "browser"]);
        assert_eq!(
            outcome.to_llm_string(),
            "[error_permanent] 403 Forbidden\nError type: http_403\nSuggested alternatives: yt-dlp, browser"
        );
    }

    #[test]
    fn outcome_clips_large_data_at_char_boundary_with_notice() {
        let outcome = Outcome::success("ü".repeat(Outcome::DATA_BYTES_MAX)).clipped();
        assert!(outcome.data.len() < Outcome::DATA_BYTES_MAX + 100);
        assert!(outcome.data.ends_with(&format!("of {} bytes]", Outcome::DATA_BYTES_MAX * 2)));
    }

    #[test]
    fn outcome_of_an_older_version_has_no_requests_and_stays_as_it_is() {
        let old = r#"{"status":"success","data":"ok","confidence":1.0}"#;
        let outcome: Outcome = serde_json::from_str(old).unwrap();
        assert!(outcome.requests.is_empty());
        assert_eq!(serde_json::to_string(&outcome).unwrap(), old);
        let request = OutboundRequest { host: "example.org".to_owned(), ..OutboundRequest::default() };
        let stored = serde_json::to_string(&outcome.with_requests(vec![request])).unwrap();
        assert!(stored.ends_with(r#""requests":[{"host":"example.org","method":"","bytes":0,"ms":0}]}"#), "{stored}");
    }

    #[test]
    fn outcome_counts_against_skill_only_for_its_own_failures() {
        assert!(Outcome::transient("timeout", "").counts_against_the_skill());
        assert!(Outcome::permanent("panic", "").counts_against_the_skill());
        assert!(!Outcome::permanent("invalid_arguments", "").counts_against_the_skill());
        assert!(!Outcome::blocked("ssrf", "").counts_against_the_skill());
        assert!(!Outcome::permanent("site_404", "").counts_against_the_skill());
        assert!(!Outcome::transient("http_429", "").counts_against_the_skill());
        assert!(Outcome::transient("http_503", "").counts_against_the_skill());
        assert!(!Outcome::permanent("tool_error", "").counts_against_the_skill());
        assert!(!Outcome::transient("site_timeout", "").counts_against_the_skill());
    }
}
