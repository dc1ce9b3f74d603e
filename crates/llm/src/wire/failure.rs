//! Converts status, headers and body of a failed response into one typed error. Bodies have many formats: `{error: {...}}`,
//! `{error: "text"}`, the error at the top level, `{detail: ...}`, a list with one element, plain text.

use annie_core::message::{ModelError, ModelErrorKind};
use serde_json::Value;

use super::super::config::ModelConfig;

/// Length limit for a quoted server message, in characters.
const DETAIL_CHARS_MAX: usize = 500;

/// Messages for a prompt that is too long: OpenAI, llama.cpp and vLLM; Anthropic; Gemini; Bedrock; others.
const OVERFLOWS: [&str; 9] = [
    "maximum context length",
    "context size",
    "context length",
    "prompt is too long",
    "exceed context limit",
    "input token count",
    "input is too long",
    "too many tokens",
    "prompt too long",
];
/// Messages of servers or models that do not support tools: Ollama, llama.cpp, vLLM, OpenRouter, others.
const NO_TOOLS: [&str; 8] = [
    "does not support tool",
    "requires --jinja",
    "enable-auto-tool-choice",
    "support tool use",
    "tool use is not supported",
    "tools are not supported",
    "tool calling is not supported",
    "does not support function",
];

/// Messages of servers that cannot read the calls that their model wrote: llama.cpp since and before its grammar-based parser,
/// Ollama, Groq. They come with status 500 or 400, or inside a stream.
const MALFORMED_CALLS: [&str; 5] = [
    "output that does not match the expected",
    "failed to parse input at pos",
    "error parsing tool call",
    "failed to parse tool call",
    "failed to call a function",
];

/// Messages that require user and assistant to alternate: Mistral's and Llama's templates, Perplexity, others.
const ALTERNATION: [&str; 4] =
    ["roles must alternate", "roles should be alternating", "must alternate between", "alternate user/assistant"];

/// Whether a refusal, in lower case, is about system messages: Gemma's and Llama 2's templates, Gemini's interface for
/// Gemma, OpenAI's first reasoning models.
pub(super) fn refuses_system(words: &str) -> bool {
    let is_refused = ["not support", "unsupported", "not allowed"].iter().any(|no| words.contains(no));
    let is_named = ["system role", "system message", "system instruction", "'system'", "\"system\"", "role: system"]
        .iter()
        .any(|name| words.contains(name));
    is_refused && is_named
        || words.contains("only user and assistant roles")
        || words.contains("developer instruction is not enabled")
}

/// Whether a refusal, in lower case, requires user and assistant to alternate.
pub(super) fn wants_alternation(words: &str) -> bool {
    ALTERNATION.iter().any(|phrase| words.contains(phrase))
}

/// A failure, and whether the same request may be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub error: ModelError,
    pub may_retry: bool,
}

impl Failure {
    pub fn new(kind: ModelErrorKind, detail: impl Into<String>, may_retry: bool) -> Self {
        Self { error: ModelError::new(kind, detail), may_retry }
    }
}

/// Hints in a failed response's headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hints {
    pub retry_after_ms: Option<u64>,
    pub should_retry: Option<bool>,
}

impl Hints {
    /// Reads `retry-after-ms`, `retry-after` (seconds, or a date, taken relative to the response's own `date`) and
    /// `x-should-retry`.
    pub fn read(header: impl Fn(&str) -> Option<String>) -> Self {
        let exact = header("retry-after-ms").and_then(|v| v.trim().parse::<f64>().ok());
        let coarse = || {
            let value = header("retry-after")?;
            let date = |text: &str| chrono::DateTime::parse_from_rfc2822(text.trim()).ok();
            value.trim().parse::<f64>().ok().map(|s| s * 1_000.0).or_else(|| {
                let wait = date(&value)? - date(&header("date")?)?;
                #[expect(clippy::cast_precision_loss, reason = "a wait of days is far below 2^52 ms")]
                Some(wait.num_milliseconds().max(0) as f64)
            })
        };
        let ms = exact.or_else(coarse).filter(|ms| ms.is_finite() && *ms >= 0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "finite and not negative")]
        let retry_after_ms = ms.map(|ms| ms.ceil() as u64);
        Self { retry_after_ms, should_retry: header("x-should-retry").and_then(|v| v.trim().parse().ok()) }
    }
}

/// The content of an error body, independent of its format.
#[derive(Debug, Default)]
struct ErrorBody {
    message: String,
    /// Error codes: OpenRouter's `metadata.error_type`, then `code`, then `type`.
    words: Vec<String>,
    code: Option<u16>,
    moderated: bool,
}

impl ErrorBody {
    fn of(body: &Value) -> Self {
        let body = body.as_array().and_then(|a| a.first()).unwrap_or(body);
        let inner = if body["error"].is_null() { body } else { &body["error"] };
        let text = |v: &Value| v.as_str().map(str::to_owned);
        let metadata = &inner["metadata"];
        let message = text(inner)
            .or_else(|| text(&inner["message"]))
            .or_else(|| text(&body["message"]))
            .or_else(|| text(&body["detail"]))
            .or_else(|| (!body["detail"].is_null()).then(|| body["detail"].to_string()))
            .unwrap_or_default();
        let words = [&metadata["error_type"], &inner["code"], &inner["type"], &inner["status"]];
        let number = inner["code"].as_u64().or_else(|| inner["code"].as_str().and_then(|c| c.parse().ok()));
        Self {
            message,
            words: words.into_iter().filter_map(text).map(|w| w.to_lowercase()).collect(),
            code: number.and_then(|n| u16::try_from(n).ok()),
            moderated: !metadata["flagged_input"].is_null() || !metadata["reasons"].is_null(),
        }
    }

    fn is_overflow(&self) -> bool {
        let message = self.message.to_lowercase();
        self.words.iter().any(|w| w == "context_length_exceeded" || w == "exceed_context_size_error")
            || OVERFLOWS.iter().any(|s| message.contains(s))
    }

    fn is_refusal_of_tools(&self) -> bool {
        let message = self.message.to_lowercase();
        NO_TOOLS.iter().any(|s| message.contains(s))
    }

    fn is_of_malformed_call(&self) -> bool {
        let message = self.message.to_lowercase();
        self.words.iter().any(|w| w == "tool_use_failed") || MALFORMED_CALLS.iter().any(|s| message.contains(s))
    }

    fn is_refusal_of_roles(&self) -> bool {
        let message = self.message.to_lowercase();
        refuses_system(&message) || wants_alternation(&message)
    }

    fn kind_by_words(&self) -> Option<ModelErrorKind> {
        // Anthropic reports an empty balance as an invalid request.
        if self.message.to_lowercase().contains("credit balance is too low") {
            return Some(ModelErrorKind::Payment);
        }
        self.words.iter().find_map(|word| {
            Some(match word.as_str() {
                "rate_limit_exceeded" | "rate_limit_error" | "rate_limited" => ModelErrorKind::RateLimited,
                "insufficient_quota" | "payment_required" | "billing_hard_limit_reached" | "billing_error" => {
                    ModelErrorKind::Payment
                }
                "authentication" | "authentication_error" | "invalid_api_key" | "permission_error" => {
                    ModelErrorKind::Auth
                }
                "content_policy_violation" | "content_filter" | "refusal" => ModelErrorKind::Content,
                "provider_overloaded"
                | "provider_unavailable"
                | "overloaded_error"
                | "server"
                | "server_error"
                | "unavailable_error" => ModelErrorKind::Unavailable,
                "timeout" | "timeout_error" => ModelErrorKind::Timeout,
                _ => return None,
            })
        })
    }
}

/// Converts an HTTP error status.
pub(crate) fn by_status(config: &ModelConfig, status: u16, hints: &Hints, body: &[u8]) -> Failure {
    let json: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let mut reported = ErrorBody::of(&json);
    if reported.message.is_empty() {
        reported.message = String::from_utf8_lossy(body).trim().to_owned();
    }
    let kind = kind_of(status, &reported);
    finished(config, kind, &reported, &format!("HTTP {status}"), hints)
}

/// Converts an error inside a response with status 200, in a JSON body or an event.
pub(crate) fn inside(config: &ModelConfig, body: &Value) -> Failure {
    let reported = ErrorBody::of(body);
    let kind = match reported.code {
        Some(code) if code >= 400 => kind_of(code, &reported),
        _ if reported.is_refusal_of_tools() => ModelErrorKind::ToolsUnsupported,
        _ if reported.is_of_malformed_call() => ModelErrorKind::MalformedCall,
        _ if reported.is_overflow() => ModelErrorKind::Overflow,
        _ if reported.words.iter().any(|w| w == "request_too_large") => ModelErrorKind::Overflow,
        _ if reported.words.iter().any(|w| w == "invalid_request_error" || w == "not_found_error") => {
            reported.kind_by_words().unwrap_or(ModelErrorKind::InvalidRequest)
        }
        _ => reported.kind_by_words().unwrap_or(ModelErrorKind::Unavailable),
    };
    finished(config, kind, &reported, "the server reported", &Hints::default())
}

/// A message of a server or a parser, masked and shortened. Masking comes first: a part of a key would not be recognised.
pub(super) fn short(config: &ModelConfig, words: &str) -> String {
    config.scrub(words).chars().take(DETAIL_CHARS_MAX).collect()
}

fn finished(config: &ModelConfig, kind: ModelErrorKind, reported: &ErrorBody, before: &str, hints: &Hints) -> Failure {
    let words = short(config, &reported.message);
    let detail = if words.is_empty() { before.to_owned() } else { format!("{before}: {words}") };
    let transient = matches!(kind, ModelErrorKind::RateLimited | ModelErrorKind::Unavailable | ModelErrorKind::Timeout);
    let mut error = ModelError::new(kind, detail);
    error.retry_after_ms = hints.retry_after_ms;
    Failure { error, may_retry: hints.should_retry.unwrap_or(true) && transient }
}

fn kind_of(status: u16, reported: &ErrorBody) -> ModelErrorKind {
    match status {
        401 => return ModelErrorKind::Auth,
        402 => return ModelErrorKind::Payment,
        403 if reported.moderated => return ModelErrorKind::Content,
        429 if reported.kind_by_words() == Some(ModelErrorKind::Payment) => return ModelErrorKind::Payment,
        429 => return ModelErrorKind::RateLimited,
        413 => return ModelErrorKind::Overflow,
        _ if reported.is_refusal_of_tools() => return ModelErrorKind::ToolsUnsupported,
        _ if reported.is_of_malformed_call() => return ModelErrorKind::MalformedCall,
        _ if reported.is_overflow() => return ModelErrorKind::Overflow,
        // llama.cpp reports an exception of its template as a server error.
        _ if reported.is_refusal_of_roles() => return ModelErrorKind::InvalidRequest,
        _ => {}
    }
    reported.kind_by_words().unwrap_or(match status {
        403 => ModelErrorKind::Auth,
        408 | 504 | 524 => ModelErrorKind::Timeout,
        409 | 425 | 500..=599 => ModelErrorKind::Unavailable,
        _ => ModelErrorKind::InvalidRequest,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Secret;

    fn kind(status: u16, body: &Value) -> ModelErrorKind {
        by_status(&ModelConfig::default(), status, &Hints::default(), body.to_string().as_bytes()).error.kind
    }

    #[test]
    fn overflow_messages_of_every_server_are_recognised() {
        for body in [
            json!({"error": {"code": 400, "message": "no", "metadata": {"error_type": "context_length_exceeded"}}}),
            json!({"error": {"code": "context_length_exceeded", "message": "no"}}),
            json!({"error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 4096, "message": "no"}}),
            json!({"object": "error", "type": "BadRequestError", "code": 400,
                "message": "This model's maximum context length is 4096 tokens."}),
            json!({"error": "input exceeds the available context size"}),
            json!({"type": "error", "error": {"type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
            json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT",
                "message": "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."}}]),
            json!({"message": "Input is too long for requested model."}),
        ] {
            assert_eq!(kind(400, &body), ModelErrorKind::Overflow, "{body}");
        }
        assert_eq!(kind(413, &Value::Null), ModelErrorKind::Overflow);
        assert_eq!(kind(500, &json!({"error": "context length exceeded"})), ModelErrorKind::Overflow);
    }

    #[test]
    fn status_decides_kind_if_message_does_not() {
        for (status, body, wanted) in [
            (401, json!({"error": {"message": "bad key"}}), ModelErrorKind::Auth),
            (402, json!({"error": {"code": 402, "message": "credits"}}), ModelErrorKind::Payment),
            (403, json!({"error": {"message": "no"}}), ModelErrorKind::Auth),
            (403, json!({"error": {"metadata": {"reasons": ["x"], "flagged_input": "y"}}}), ModelErrorKind::Content),
            (404, json!({"error": {"message": "no such model"}}), ModelErrorKind::InvalidRequest),
            (400, json!({"error": {"code": "content_policy_violation"}}), ModelErrorKind::Content),
            (400, json!({"detail": [{"loc": ["body"], "msg": "x"}]}), ModelErrorKind::InvalidRequest),
            (408, Value::Null, ModelErrorKind::Timeout),
            (429, json!({"error": {"code": "rate_limit_exceeded"}}), ModelErrorKind::RateLimited),
            (429, json!({"error": {"type": "insufficient_quota"}}), ModelErrorKind::Payment),
            (500, json!([{"error": {"code": 500, "message": "internal"}}]), ModelErrorKind::Unavailable),
            (
                503,
                json!({"error": {"type": "unavailable_error", "message": "Loading model"}}),
                ModelErrorKind::Unavailable,
            ),
            (529, json!({"type": "error", "error": {"type": "overloaded_error"}}), ModelErrorKind::Unavailable),
        ] {
            assert_eq!(kind(status, &body), wanted, "{status} {body}");
        }
    }

    #[test]
    fn unreadable_calls_are_no_failure_of_the_server_and_not_retried() {
        let llama = "The model produced output that does not match the expected peg-native format";
        for (status, body) in [
            (500, json!({"error": {"code": 500, "message": llama, "type": "server_error"}})),
            (
                500,
                json!({"error": "error parsing tool call: raw='{\"title\": \"mi', err=unexpected end of JSON input"}),
            ),
            (
                400,
                json!({"error": {"message": "Failed to call a function. Please adjust your prompt.",
                    "type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": "<function=x"}}),
            ),
        ] {
            let config = ModelConfig::default();
            let wanted = (ModelErrorKind::MalformedCall, false);
            let failure = by_status(&config, status, &Hints::default(), body.to_string().as_bytes());
            assert_eq!((failure.error.kind, failure.may_retry), wanted, "{body}");
            let failure = inside(&config, &body);
            assert_eq!((failure.error.kind, failure.may_retry), wanted, "{body}");
        }
    }

    #[test]
    fn tool_refusals_of_every_server_are_recognised_and_not_retried() {
        for (status, body) in [
            (400, json!({"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}})),
            (
                500,
                json!({"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}),
            ),
            (
                400,
                json!({"object": "error", "message": "\"auto\" tool choice requires --enable-auto-tool-choice and \
                --tool-call-parser to be set"}),
            ),
            (404, json!({"error": {"code": 404, "message": "No endpoints found that support tool use."}})),
        ] {
            let config = ModelConfig::default();
            let failure = by_status(&config, status, &Hints::default(), body.to_string().as_bytes());
            assert_eq!((failure.error.kind, failure.may_retry), (ModelErrorKind::ToolsUnsupported, false), "{body}");
        }
    }

    #[test]
    fn error_inside_status_200_is_classified_by_code_or_message() {
        let config = ModelConfig::default();
        let of = |body: Value| inside(&config, &body).error.kind;
        assert_eq!(of(json!({"error": {"code": 429, "message": "slow"}})), ModelErrorKind::RateLimited);
        assert_eq!(of(json!({"error": {"code": "server_error", "message": "x"}})), ModelErrorKind::Unavailable);
        assert_eq!(of(json!({"error": {"message": "maximum context length"}})), ModelErrorKind::Overflow);
        assert_eq!(of(json!({"error": "boom"})), ModelErrorKind::Unavailable);
    }

    #[test]
    fn server_message_is_kept_shortened_and_without_the_key() {
        let config = ModelConfig { api_key: Some(Secret::new("sk-verysecret")), ..ModelConfig::default() };
        let body = json!({"error": {"message": format!("Incorrect API key: sk-verysecret. {}", "x".repeat(2_000))}});
        let error = by_status(&config, 401, &Hints::default(), body.to_string().as_bytes()).error;
        assert!(error.detail.starts_with("HTTP 401: Incorrect API key: [secret]."), "{}", error.detail);
        assert!(error.detail.len() < 600);
        let plain = by_status(&config, 502, &Hints::default(), b"<html>Bad gateway</html>").error;
        assert_eq!(plain.detail, "HTTP 502: <html>Bad gateway</html>");
    }

    #[test]
    fn retry_hints_are_read_in_all_formats() {
        let read = |pairs: &[(&str, &str)]| {
            Hints::read(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(read(&[("retry-after", "3")]).retry_after_ms, Some(3_000));
        assert_eq!(read(&[("retry-after", "3"), ("retry-after-ms", "250")]).retry_after_ms, Some(250));
        let dated =
            read(&[("retry-after", "Sat, 21 Nov 2026 10:00:30 GMT"), ("date", "Sat, 21 Nov 2026 10:00:00 GMT")]);
        assert_eq!(dated.retry_after_ms, Some(30_000));
        assert_eq!(read(&[("retry-after", "soon")]), Hints::default());
        assert_eq!(read(&[("retry-after", "-5")]).retry_after_ms, None);
        assert_eq!(read(&[("x-should-retry", "false")]).should_retry, Some(false));
    }
}
