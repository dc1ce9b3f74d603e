//! What can go wrong at a door, in one closed list of codes, each mapped once to HTTP and once to gRPC; and why Annie
//! does not start or ends.
//!
//! Doors speak in [`Fault`]s. Each dialect (problem+json, OpenAI's shape, gRPC status) renders them in one place of its own.

use std::net::SocketAddr;

use annie_actors::KernelError;
use annie_core::{
    ids::IdError,
    ports::{StoreError, StoreErrorKind},
};
use serde_json::{Value, json};

/// Why Annie does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration is wrong; says where and how to put it right.
    #[error("{0}")]
    Config(String),
    /// The port cannot be had.
    #[error("cannot listen on {at}: {source}")]
    Listen {
        /// Where.
        at: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A door ended by itself.
    #[error("the door at {at} ended: {source}")]
    Door {
        /// Where.
        at: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel did not do something.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The store did not do something.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something was asked for that cannot be done as asked.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Every kind of refusal that a caller can meet. The word is part of the interface and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request is wrong.
    InvalidRequest,
    /// It asks for something that this door cannot do.
    Unsupported,
    /// The prompt does not fit into the model's context.
    ContextTooLong,
    /// No key, or not a valid one.
    Unauthenticated,
    /// The key may not do this.
    Forbidden,
    /// A page of another site, or a foreign host name, is behind the request.
    ForeignOrigin,
    /// There is no such thing, or it is somebody else's.
    NotFound,
    /// There is such an address, but not for this method.
    MethodNotAllowed,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The message id was used for another message.
    Conflict,
    /// The thing has another state than the caller thought.
    Stale,
    /// The request is too large.
    TooLarge,
    /// The body is not of the wanted type.
    UnsupportedMediaType,
    /// The queue is full.
    QueueFull,
    /// A running turn was steered a moment ago.
    TooSoon,
    /// Too many requests with this key.
    RateLimited,
    /// A bug, or a store that cannot be read.
    Internal,
    /// A turn ended with a visible failure.
    TurnFailed,
    /// Starting, stopping, or a store that is locked or full.
    Unavailable,
    /// Too much at once for this process.
    Overloaded,
    /// It was not done in time.
    DeadlineExceeded,
}

/// One line of the map.
struct Row {
    word: &'static str,
    title: &'static str,
    http: u16,
    grpc: tonic::Code,
}

impl Code {
    /// All codes, for documentation and tests.
    pub const ALL: [Self; 21] = [
        Self::InvalidRequest,
        Self::Unsupported,
        Self::ContextTooLong,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::ForeignOrigin,
        Self::NotFound,
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
            Self::Unauthenticated => ("unauthenticated", "A valid key is needed", 401, G::Unauthenticated),
            Self::Forbidden => ("forbidden", "The key may not do this", 403, G::PermissionDenied),
            Self::ForeignOrigin => {
                ("foreign_origin", "Foreign pages and host names are turned away", 403, G::PermissionDenied)
            }
            Self::NotFound => ("not_found", "Not found", 404, G::NotFound),
            Self::MethodNotAllowed => ("method_not_allowed", "Method not allowed", 405, G::Unimplemented),
            Self::RequestTimeout => ("request_timeout", "The request came too slowly", 408, G::DeadlineExceeded),
            Self::Conflict => ("conflict", "The message id is taken", 409, G::Aborted),
            Self::Stale => ("stale", "Its state has changed", 409, G::FailedPrecondition),
            Self::TooLarge => ("too_large", "The request is too large", 413, G::InvalidArgument),
            Self::UnsupportedMediaType => {
                ("unsupported_media_type", "The body is not of the wanted type", 415, G::InvalidArgument)
            }
            Self::QueueFull => ("queue_full", "The queue is full", 429, G::ResourceExhausted),
            Self::TooSoon => ("too_soon", "Steered a moment ago", 429, G::ResourceExhausted),
            Self::RateLimited => ("rate_limited", "Too many requests", 429, G::ResourceExhausted),
            Self::Internal => ("internal", "Something in Annie broke", 500, G::Internal),
            Self::TurnFailed => ("turn_failed", "The turn failed", 500, G::Unknown),
            Self::Unavailable => ("unavailable", "Not available now", 503, G::Unavailable),
            Self::Overloaded => ("overloaded", "Too busy", 503, G::Unavailable),
            Self::DeadlineExceeded => ("deadline_exceeded", "Not done in time", 504, G::DeadlineExceeded),
        };
        Row { word, title, http, grpc }
    }

    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().word
    }

    /// A short sentence that is always the same for the code.
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

/// A request that is not carried out, and what the caller is told.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct Fault {
    /// Which kind.
    pub code: Code,
    /// What is wrong and how to put it right. Never a secret, never the database's own words.
    pub detail: String,
    /// The part of the request that is wrong.
    pub field: Option<String>,
    /// When to come back, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// More facts, for programs.
    pub facts: Option<Box<Value>>,
    /// The message of the request is stored, or may be: sent again without its id, it would be another message with effects
    /// of its own.
    pub is_stored: bool,
}

impl Fault {
    /// A refusal of this kind.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, retry_after_ms: None, facts: None, is_stored: false }
    }

    /// The request is wrong.
    #[must_use]
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    /// There is no such thing, or the caller may not know of it.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no such {what}"))
    }

    /// A bug; the words go to the log and not to the caller.
    #[must_use]
    pub fn internal(what: &str) -> Self {
        tracing::error!(what, "internal fault at a door");
        Self::new(Code::Internal, "something in Annie broke; the log has the details under this request's id")
    }

    /// With the part of the request that is wrong.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// With a time to come back.
    #[must_use]
    pub fn retry_in_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// With more facts.
    #[must_use]
    pub fn with_facts(mut self, facts: Value) -> Self {
        self.facts = Some(Box::new(facts));
        self
    }

    /// Of a message that is stored, or may be. There is no time to come back then: a client would repeat the message.
    #[must_use]
    pub fn of_stored(mut self) -> Self {
        self.is_stored = true;
        self.retry_after_ms = None;
        self
    }

    /// Whole seconds to wait, at least one, as `Retry-After` wants them.
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after_ms.map(|ms| ms.div_ceil(1_000).max(1))
    }
}

impl From<KernelError> for Fault {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Invalid(why) => Self::invalid(why),
            KernelError::NotFound(what) => Self::not_found(what),
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

impl From<StoreError> for Fault {
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

impl From<IdError> for Fault {
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
    fn every_code_has_a_word_of_its_own_and_a_status_in_both_worlds() {
        let words: BTreeSet<&str> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.http()), "{code:?}");
            assert_ne!(code.grpc(), tonic::Code::Ok, "{code:?}");
        }
    }

    #[test]
    fn the_status_map_is_the_published_one() {
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
    fn a_kernels_refusal_keeps_its_reason_and_its_time() {
        let refusal = Refusal {
            reason: RefusalReason::UserDepth,
            class: Priority::High,
            limit: 3,
            position: 4,
            retry_after_ms: 1_500,
        };
        let fault = Fault::from(KernelError::Full(refusal));
        assert_eq!((fault.code, fault.retry_after_s()), (Code::QueueFull, Some(2)));
        assert_eq!(fault.facts.unwrap()["reason"], "user_depth");
        let soon = Fault::from(KernelError::TooSoon { retry_after_ms: 700 });
        assert_eq!((soon.code, soon.retry_after_ms), (Code::TooSoon, Some(700)));
        let task = TaskId::from_uuid(uuid::Uuid::nil());
        assert_eq!(Fault::from(KernelError::Conflict { task }).code, Code::Conflict);
    }

    #[test]
    fn the_databases_own_words_stay_inside() {
        for kind in [
            StoreErrorKind::Locked,
            StoreErrorKind::Full,
            StoreErrorKind::Unavailable,
            StoreErrorKind::Corrupt,
            StoreErrorKind::Internal,
        ] {
            let error = StoreError { kind, what: "reading", detail: "secret table".to_owned() };
            let fault = Fault::from(error.clone());
            assert!(!fault.detail.contains("secret"), "{fault:?}");
            assert_eq!(fault.retry_after_ms.is_some(), error.is_retryable(), "{kind:?}");
        }
    }
}
