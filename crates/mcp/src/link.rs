//! A connection to a server, by either transport.

use annie_core::outcome::OutboundRequest;
use serde_json::Value;

use crate::{
    McpError,
    http::HttpLink,
    rpc::{self, Revision},
    stdio::StdioLink,
};

/// The transport of a connection.
pub(crate) enum Link {
    Stdio(StdioLink),
    Http(HttpLink),
}

/// The result of a request.
pub(crate) struct Reply {
    pub(crate) result: Result<Value, McpError>,
    /// The HTTP requests that were sent.
    pub(crate) requests: Vec<OutboundRequest>,
}

impl Link {
    /// Sends a request of this revision and waits at most `ms_max` for its answer. `params` is an object.
    pub(crate) async fn request(&self, revision: Revision, method: &str, params: Value, ms_max: u64) -> Reply {
        let params = rpc::params(revision, params);
        match self {
            Self::Stdio(link) => Reply { result: link.request(method, &params, ms_max).await, requests: Vec::new() },
            Self::Http(link) => {
                let (result, requests) = link.request(revision, method, &params, ms_max).await;
                Reply { result, requests }
            }
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(
        &self,
        revision: Revision,
        method: &str,
        params: &Value,
        ms_max: u64,
    ) -> Result<(), McpError> {
        match self {
            Self::Stdio(link) => link.notify(method, params),
            Self::Http(link) => link.notify(revision, method, params, ms_max).await,
        }
    }

    /// Records the revision of a session.
    pub(crate) fn agreed(&self, version: &str) {
        if let Self::Http(link) = self {
            link.agreed(version);
        }
    }

    /// Ends the connection: every open request fails with this reason.
    pub(crate) fn end(&self, why: &McpError) {
        if let Self::Stdio(link) = self {
            link.end(why);
        }
    }
}
