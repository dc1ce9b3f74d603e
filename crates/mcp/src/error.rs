//! What can go wrong with a server.

use annie_core::ports::EgressError;

/// JSON-RPC errors by which a server refuses a request before it does anything: it cannot be read, it is not valid, its method
/// or its parameters are unknown, and the three of the protocol (headers, capability, version).
const REFUSED_BEFORE: [i64; 7] = [-32_700, -32_600, -32_601, -32_602, -32_020, -32_021, -32_022];

/// A request that got no result, or a connection that ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// There is no connection. Nothing was sent.
    #[error("the server is not connected: {0}")]
    Away(String),
    /// The program cannot be started.
    #[error("the program cannot be started: {0}")]
    Start(String),
    /// Too many requests are open or wait to be sent. Nothing was sent.
    #[error("{requests_max} requests to the server are open already")]
    Busy {
        /// The limit.
        requests_max: usize,
    },
    /// The time limit passed.
    #[error("the server did not answer within {ms_max} ms")]
    Timeout {
        /// The limit.
        ms_max: u64,
    },
    /// A message is larger than allowed.
    #[error("the server sent a message of more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The connection ended before the answer.
    #[error("the connection ended: {0}")]
    Ended(String),
    /// The server does not follow the protocol.
    #[error("the server does not follow the protocol: {0}")]
    Protocol(String),
    /// The server answered with an error.
    #[error("the server answered with the error {code}: {message}")]
    Refused {
        /// The code of JSON-RPC or of the protocol.
        code: i64,
        /// The server's text, limited.
        message: String,
    },
    /// The service answered with a status that is no success.
    #[error("the server answered with the HTTP status {0}")]
    Http(u16),
    /// The session is gone. The request was not run.
    #[error("the server ended the session")]
    SessionGone,
    /// The HTTP request failed.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// A secret of the program's environment cannot be used.
    #[error("{0}")]
    Secret(String),
}

impl McpError {
    /// The stable code for outcomes.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Away(_) | Self::Start(_) | Self::Secret(_) | Self::SessionGone => "mcp_unavailable",
            Self::Busy { .. } => "mcp_busy",
            Self::Timeout { .. } | Self::Egress(EgressError::Timeout { .. }) => "mcp_timeout",
            Self::TooLarge { .. } | Self::Egress(EgressError::TooLarge { .. }) => "mcp_too_large",
            Self::Ended(_) => "mcp_gone",
            Self::Protocol(_) => "mcp_protocol",
            Self::Refused { .. } => "mcp_error",
            Self::Http(_) => "mcp_http",
            Self::Egress(EgressError::Denied(_)) => "mcp_denied",
            Self::Egress(_) => "mcp_network",
        }
    }

    /// Whether the request certainly had no effect: it was not sent, or the server refused it before it did anything.
    #[must_use]
    pub fn is_without_effect(&self) -> bool {
        match self {
            Self::Away(_) | Self::Start(_) | Self::Secret(_) | Self::SessionGone | Self::Busy { .. } => true,
            Self::Refused { code, .. } => REFUSED_BEFORE.contains(code),
            Self::Http(status) => (400..500).contains(status) && *status != 408,
            Self::Egress(why) => matches!(
                why,
                EgressError::Invalid(_)
                    | EgressError::Denied(_)
                    | EgressError::Credential(_)
                    | EgressError::Setup(_)
                    | EgressError::Unreached(_)
            ),
            Self::Timeout { .. } | Self::TooLarge { .. } | Self::Ended(_) | Self::Protocol(_) => false,
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Egress(EgressError::Denied(_) | EgressError::Invalid(_)) => false,
            Self::Http(status) => *status == 408 || *status == 429 || *status >= 500,
            _ => true,
        }
    }
}
