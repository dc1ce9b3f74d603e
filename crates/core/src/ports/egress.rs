//! The one way of skills to other machines. The adapter decides which addresses may be reached, and limits every request.

use std::fmt;

use super::Fut;
use crate::{ids::UserId, outcome::OutboundRequest};

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressMethod {
    /// Reads. Redirects are followed.
    Get,
    /// Sends the body. Redirects are not followed, because the body was meant for the first address only.
    Post,
    /// The same.
    Put,
    /// The same.
    Patch,
    /// The same.
    Delete,
}

impl EgressMethod {
    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// A header whose value contains a stored secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHeader {
    /// The name of the header.
    pub header: String,
    /// The text before the secret.
    pub before: String,
    /// The name of the secret. The adapter sends the secret only to a host for which the operator named it.
    pub secret: String,
    /// The text behind the secret.
    pub after: String,
}

/// A request of a skill.
#[derive(Clone, PartialEq, Eq)]
pub struct EgressRequest {
    /// The user whose credentials may be sent; `None` stands for those of the installation only.
    pub user: Option<UserId>,
    /// The method.
    pub method: EgressMethod,
    /// The complete URL, at most 8,192 bytes.
    pub url: String,
    /// Additional headers. After a redirect to another host, port or scheme only `Accept` and `Accept-Language` are sent.
    pub headers: Vec<(String, String)>,
    /// Headers with secrets. They take the place of the credential that the adapter would send by itself.
    pub secret_headers: Vec<SecretHeader>,
    /// The body; empty for a `Get`.
    pub body: Vec<u8>,
    /// The beginnings of the content types that the caller can use, such as `text/`. Empty means all.
    pub content_types: Vec<String>,
    /// The maximum size of the response, in bytes after decompression, if it is less than the adapter's own.
    pub reply_bytes_max: Option<usize>,
}

impl EgressRequest {
    /// A request that reads this URL.
    #[must_use]
    pub fn get(url: impl Into<String>) -> Self {
        Self {
            user: None,
            method: EgressMethod::Get,
            url: url.into(),
            headers: Vec::new(),
            secret_headers: Vec::new(),
            body: Vec::new(),
            content_types: Vec::new(),
            reply_bytes_max: None,
        }
    }
}

impl fmt::Debug for EgressRequest {
    /// Leaves out the URL, the headers and the body, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// The response to a request. Every status is a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressReply {
    /// The status code.
    pub status: u16,
    /// The content type in lower case, with its parameters. Empty if the response has none.
    pub content_type: String,
    /// The headers whose values are texts, with their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The decompressed body.
    pub body: Vec<u8>,
    /// The URL that answered, after redirects.
    pub url: String,
}

impl EgressReply {
    /// After how many seconds the host says that the request may be tried again. A date is not read.
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u32> {
        self.headers.iter().find(|(name, _)| name == "retry-after").and_then(|(_, value)| value.trim().parse().ok())
    }
}

/// A request that got no usable response. The texts name hosts, but no paths, queries or headers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// The request is not valid: its URL or a header.
    #[error("{0}")]
    Invalid(String),
    /// The rules do not allow the address. No connection was made to it.
    #[error("{0}")]
    Denied(String),
    /// The time limit of the whole request passed.
    #[error("no complete response within {ms_max} ms")]
    Timeout {
        /// The limit.
        ms_max: u64,
    },
    /// The response is larger than allowed.
    #[error("the response is larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The response has a content type that the caller cannot use.
    #[error("the response is {0}")]
    ContentType(String),
    /// There were more redirects than allowed.
    #[error("more than {redirects_max} redirects")]
    Redirects {
        /// The limit.
        redirects_max: u32,
    },
    /// The first host cannot be found or connected to. No byte of the request was sent.
    #[error("{0}")]
    Unreached(String),
    /// The connection broke off, or the target of a redirect cannot be reached. The request may have had its effect.
    #[error("{0}")]
    Network(String),
    /// The credential for the host cannot be used. Nothing was sent.
    #[error("{0}")]
    Credential(String),
    /// The client cannot be built.
    #[error("cannot set up the client of outbound requests: {0}")]
    Setup(String),
}

/// A request with everything that was sent for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The requests that were begun, in their order. Empty if the rules refused the first one. One whose name turned out to have
    /// no public address has no status.
    pub requests: Vec<OutboundRequest>,
    /// The response to the last of them.
    pub result: Result<EgressReply, EgressError>,
}

/// Sends the requests of skills. All requests of skills leave through it (invariant 18).
pub trait Egress: Send + Sync {
    /// Sends a request and reads its response within the configured limits. Dropping the future ends the connection.
    fn send(&self, request: EgressRequest) -> Fut<'_, Exchange>;
}
