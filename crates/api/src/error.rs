//! Errors of the front ends and of the program. [`Code`] is a closed list of error codes, each mapped once to HTTP and once to
//! gRPC. [`AppError`] says why the program does not start or ends.
//!
//! Handlers return [`ApiError`]. Each dialect (problem+json, OpenAI's shape, gRPC status) renders it in one module.

use std::net::SocketAddr;

use annie_actors::KernelError;
use annie_core::{
    ids::IdError,
    ports::{StoreError, StoreErrorKind},
};
use serde_json::{Value, json};

/// The program does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration is wrong. The text names the location and the fix.
    #[error("{0}")]
    Config(String),
    /// The address cannot be bound.
    #[error("cannot listen on {at}: {source}")]
    Listen {
        /// The configured address.
        at: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A listener failed while serving.
    #[error("the listener at {at} failed: {source}")]
    ListenerFailed {
        /// The address of the listener.
        at: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The kernel returned an error.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A request was refused.
    #[error(transparent)]
    ApiError(#[from] ApiError),
}

/// The kind of an error that a caller can receive. Its name ([`Code::as_str`]) is part of the public interface and never
/// changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request is wrong.
    InvalidRequest,
    /// The request asks for something that this front end does not support.
    Unsupported,
    /// The prompt does not fit into the model's context.
    ContextTooLong,
    /// The key is missing or not valid.
    Unauthenticated,
    /// The key does not grant the required scope.
    Forbidden,
    /// The request comes from a web page of another origin, or names a foreign host.
    ForeignOrigin,
    /// The resource does not exist, or belongs to another user.
    NotFound,
    /// The conversation was deleted.
    Deleted,
    /// The path exists, but not for this method.
    MethodNotAllowed,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The client id of the message was used for another message before.
    Conflict,
    /// The resource is in another state than the request assumes.
    Stale,
    /// The request is too large.
    TooLarge,
    /// The content type of the body is not supported.
    UnsupportedMediaType,
    /// The queue is full.
    QueueFull,
    /// The running turn received a steering message too recently.
    TooSoon,
    /// The key has exceeded its request rate.
    RateLimited,
    /// A bug, or a store that cannot be read.
    Internal,
    /// A turn ended with a visible failure.
    TurnFailed,
    /// The server is starting or stopping, or the store is locked or full.
    Unavailable,
    /// Too many concurrent requests in this process.
    Overloaded,
    /// The request was not completed before its deadline.
    DeadlineExceeded,
}

/// The mapping of one code.
struct Row {
    word: &'static str,
    title: &'static str,
    http: u16,
    grpc: tonic::Code,
}

impl Code {
    /// All codes, for documentation and tests.
    pub const ALL: [Self; 22] = [
        Self::InvalidRequest,
        Self::Unsupported,
        Self::ContextTooLong,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::ForeignOrigin,
        Self::NotFound,
        Self::Deleted,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::Conflict,
        Self::Stale,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::QueueFull,
        Self::TooSoon,
        Self::RateLimited,
        Self::Internal,
        Self::TurnFailed,
        Self::Unavailable,
        Self::Overloaded,
        Self::DeadlineExceeded,
    ];

    const fn row(self) -> Row {
        use tonic::Code as G;
        let (word, title, http, grpc) = match self {
            Self::InvalidRequest => ("invalid_request", "The request is not valid", 400, G::InvalidArgument),
            Self::Unsupported => ("unsupported", "Not supported here", 400, G::InvalidArgument),
            Self::ContextTooLong => ("context_too_long", "Too long for the model", 400, G::InvalidArgument),
            Self::Unauthenticated => ("unauthenticated", "A valid key is required", 401, G::Unauthenticated),
            Self::Forbidden => ("forbidden", "The key lacks the required scope", 403, G::PermissionDenied),
            Self::ForeignOrigin => {
                ("foreign_origin", "Foreign pages and host names are turned away", 403, G::PermissionDenied)
            }
            Self::NotFound => ("not_found", "Not found", 404, G::NotFound),
            Self::Deleted => ("deleted", "The conversation was deleted", 410, G::FailedPrecondition),
            Self::MethodNotAllowed => ("method_not_allowed", "Method not allowed", 405, G::Unimplemented),
            Self::RequestTimeout => ("request_timeout", "The request arrived too slowly", 408, G::DeadlineExceeded),
            Self::Conflict => ("conflict", "The message id is already in use", 409, G::Aborted),
            Self::Stale => ("stale", "The state has changed", 409, G::FailedPrecondition),
            Self::TooLarge => ("too_large", "The request is too large", 413, G::InvalidArgument),
            Self::UnsupportedMediaType => {
                ("unsupported_media_type", "The content type is not supported", 415, G::InvalidArgument)
            }
            Self::QueueFull => ("queue_full", "The queue is full", 429, G::ResourceExhausted),
            Self::TooSoon => ("too_soon", "Steered too recently", 429, G::ResourceExhausted),
            Self::RateLimited => ("rate_limited", "Too many requests", 429, G::ResourceExhausted),
            Self::Internal => ("internal", "Internal error", 500, G::Internal),
            Self::TurnFailed => ("turn_failed", "The turn failed", 500, G::Unknown),
            Self::Unavailable => ("unavailable", "Not available at present", 503, G::Unavailable),
            Self::Overloaded => ("overloaded", "Overloaded", 503, G::Unavailable),
            Self::DeadlineExceeded => ("deadline_exceeded", "Deadline exceeded", 504, G::DeadlineExceeded),
        };
        Row { word, title, http, grpc }
    }

    /// The stable name of the code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().word
    }

    /// A short sentence, the same for every error of the code.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// The HTTP status.
    #[must_use]
    pub const fn http(self) -> u16 {
        self.row().http
    }

    /// The gRPC status.
    #[must_use]
    pub const fn grpc(self) -> tonic::Code {
        self.row().grpc
    }
}

/// A request that was refused or failed, as the caller sees it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct ApiError {
    /// The kind of error.
    pub code: Code,
    /// What is wrong and how to fix it. Never contains a secret or a message of the database.
    pub detail: String,
    /// The field of the request that is wrong.
    pub field: Option<String>,
    /// When the caller may retry, in milliseconds from now.
    pub retry_after_ms: Option<u64>,
    /// More facts for programs.
    pub facts: Option<Box<Value>>,
    /// Whether the message of the request is stored, or may be. If the client sends such a message again without an id, it
    /// becomes a second message with its own effects.
    pub is_stored: bool,
}

impl ApiError {
    /// An error of this kind.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, retry_after_ms: None, facts: None, is_stored: false }
    }

    /// An error with the code `invalid_request`.
    #[must_use]
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    /// An error with the code `not_found`: the resource does not exist, or the caller may not see it.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no such {what}"))
    }

    /// An error with the code `internal`. `what` is written to the log only; the caller receives a fixed text.
    #[must_use]
    pub fn internal(what: &str) -> Self {
        tracing::error!(what, "internal error in a front end");
        Self::new(Code::Internal, "internal error; the log has the details under this request's id")
    }

    /// Sets the field of the request that is wrong.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Sets when the caller may retry, in milliseconds from now.
    #[must_use]
    pub fn retry_in_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// Adds facts for programs.
    #[must_use]
    pub fn with_facts(mut self, facts: Value) -> Self {
        self.facts = Some(Box::new(facts));
        self
    }

    /// Marks the error as one of a message that is stored, or may be. The retry time is removed, because a client that retries
    /// would store the message twice.
    #[must_use]
    pub fn of_stored(mut self) -> Self {
        self.is_stored = true;
        self.retry_after_ms = None;
        self
    }

    /// The retry time in whole seconds, at least 1, as the `Retry-After` header requires.
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after_ms.map(|ms| ms.div_ceil(1_000).max(1))
    }
}

impl From<KernelError> for ApiError {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Invalid(why) => Self::invalid(why),
            KernelError::InvalidField { field, why } => Self::invalid(why).at(field),
            KernelError::NotFound(what) => Self::not_found(what),
            deleted @ KernelError::Deleted => Self::new(Code::Deleted, deleted.to_string()),
            KernelError::Full(refusal) => {
                let facts = json!({
                    "reason": refusal.reason, "class": refusal.class, "limit": refusal.limit,
                    "position": refusal.position, "retry_after_ms": refusal.retry_after_ms,
                });
                let retry = refusal.retry_after_ms;
                Self::new(Code::QueueFull, refusal.to_string()).retry_in_ms(retry).with_facts(facts)
            }
            soon @ KernelError::TooSoon { retry_after_ms } => {
                Self::new(Code::TooSoon, soon.to_string()).retry_in_ms(retry_after_ms)
            }
            conflict @ KernelError::Conflict { task } => {
                Self::new(Code::Conflict, conflict.to_string()).with_facts(json!({ "task_id": task }))
            }
            KernelError::Stale(why) => Self::new(Code::Stale, why),
            unavailable @ (KernelError::Unavailable(_) | KernelError::NotReady(_)) => {
                Self::new(Code::Unavailable, unavailable.to_string()).retry_in_ms(1_000)
            }
            KernelError::Store(e) => e.into(),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the store failed");
        let (why, retry_ms) = match error.kind {
            StoreErrorKind::Locked => ("another process holds the database", 2_000),
            StoreErrorKind::Full => ("the database cannot grow: the disk or its limit is full", 60_000),
            StoreErrorKind::Unavailable => ("the database cannot be reached", 5_000),
            StoreErrorKind::Corrupt | StoreErrorKind::Internal => {
                let detail = "the store failed; the log has the details under this request's id";
                return Self::new(Code::Internal, detail);
            }
        };
        Self::new(Code::Unavailable, why).retry_in_ms(retry_ms)
    }
}

impl From<IdError> for ApiError {
    fn from(error: IdError) -> Self {
        Self::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use annie_core::{
        event::Priority,
        ids::TaskId,
        queue::{Refusal, RefusalReason},
    };

    use super::*;

    #[test]
    fn every_code_has_unique_name_and_http_and_grpc_status() {
        let words: BTreeSet<&str> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.http()), "{code:?}");
            assert_ne!(code.grpc(), tonic::Code::Ok, "{code:?}");
        }
    }

    #[test]
    fn code_status_map_matches_published_table() {
        use tonic::Code as G;
        let map = [
            (Code::InvalidRequest, 400, G::InvalidArgument),
            (Code::Unauthenticated, 401, G::Unauthenticated),
            (Code::Forbidden, 403, G::PermissionDenied),
            (Code::NotFound, 404, G::NotFound),
            (Code::QueueFull, 429, G::ResourceExhausted),
            (Code::TooSoon, 429, G::ResourceExhausted),
            (Code::RateLimited, 429, G::ResourceExhausted),
            (Code::Unavailable, 503, G::Unavailable),
            (Code::DeadlineExceeded, 504, G::DeadlineExceeded),
            (Code::Conflict, 409, G::Aborted),
        ];
        for (code, http, grpc) in map {
            assert_eq!((code.http(), code.grpc()), (http, grpc), "{code:?}");
        }
    }

    #[test]
    fn api_error_from_kernel_refusal_keeps_reason_and_retry_time() {
        let refusal = Refusal {
            reason: RefusalReason::UserDepth,
            class: Priority::High,
            limit: 3,
            position: 4,
            retry_after_ms: 1_500,
        };
        let error = ApiError::from(KernelError::Full(refusal));
        assert_eq!((error.code, error.retry_after_s()), (Code::QueueFull, Some(2)));
        assert_eq!(error.facts.unwrap()["reason"], "user_depth");
        let soon = ApiError::from(KernelError::TooSoon { retry_after_ms: 700 });
        assert_eq!((soon.code, soon.retry_after_ms), (Code::TooSoon, Some(700)));
        let task = TaskId::from_uuid(uuid::Uuid::nil());
        assert_eq!(ApiError::from(KernelError::Conflict { task }).code, Code::Conflict);
    }

    #[test]
    fn api_error_from_store_error_hides_database_detail() {
        for kind in [
            StoreErrorKind::Locked,
            StoreErrorKind::Full,
            StoreErrorKind::Unavailable,
            StoreErrorKind::Corrupt,
            StoreErrorKind::Internal,
        ] {
            let cause = StoreError { kind, what: "reading", detail: "secret table".to_owned() };
            let error = ApiError::from(cause.clone());
            assert!(!error.detail.contains("secret"), "{error:?}");
            assert_eq!(error.retry_after_ms.is_some(), cause.is_retryable(), "{kind:?}");
        }
    }
}
