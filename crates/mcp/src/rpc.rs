//! The messages: JSON-RPC 2.0, with the metadata of the newest revision.

use serde_json::{Value, json};

use crate::{McpError, text::one_line};

/// The newest revision: no session, each request says which revision it is of.
pub const REVISION_MODERN: &str = "2026-07-28";
/// The revision before, with a session that `initialize` begins.
pub const REVISION_LEGACY: &str = "2025-11-25";
/// Earlier revisions whose tools are the same. A server may choose one of them when a session begins.
const EARLIER: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// Length limit of an error text of a server, in bytes.
const ERROR_BYTES_MAX: usize = 400;
/// JSON-RPC: there is no such method.
pub(crate) const NO_METHOD: i64 = -32_601;

/// Which lifecycle a connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revision {
    /// Without a session.
    Modern,
    /// With a session.
    Legacy,
}

/// Whether a session may have this revision: the one before the newest, or an earlier one whose tools are the same.
#[must_use]
pub fn is_legacy_revision(version: &str) -> bool {
    version == REVISION_LEGACY || EARLIER.contains(&version)
}

/// The name and the version by which Annie introduces itself.
pub(crate) fn client_info() -> Value {
    json!({"name": "annie", "version": env!("CARGO_PKG_VERSION")})
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// The answer to a request of the server. Annie offers it nothing: no sampling, no roots, no questions to the user.
pub(crate) fn reply_to(id: &Value, method: &str) -> Value {
    if method == "ping" {
        return json!({"jsonrpc": "2.0", "id": id, "result": {}});
    }
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": NO_METHOD, "message": "Annie does not offer this method"}})
}

/// The parameters of a request of this revision.
pub(crate) fn params(revision: Revision, mut params: Value) -> Value {
    if revision == Revision::Modern
        && let Value::Object(fields) = &mut params
    {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION_MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": client_info(),
        });
        fields.insert("_meta".to_owned(), meta);
    }
    params
}

/// A message of a server.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    /// The answer to the request with this id.
    Answer(u64, Result<Value, McpError>),
    /// A request of the server.
    Request(Value, String),
    /// A notification.
    Notification(String),
}

/// Reads a message; `None` if it is none, or answers nothing that Annie sent.
pub(crate) fn incoming(message: &Value) -> Option<Incoming> {
    let id = message.get("id").filter(|id| !id.is_null());
    match (message["method"].as_str(), id) {
        (Some(method), Some(id)) => Some(Incoming::Request(id.clone(), method.to_owned())),
        (Some(method), None) => Some(Incoming::Notification(method.to_owned())),
        (None, Some(id)) => Some(Incoming::Answer(id.as_u64()?, result(message))),
        (None, None) => None,
    }
}

/// The result or the error of an answer.
pub(crate) fn result(message: &Value) -> Result<Value, McpError> {
    if let Some(error) = message.get("error").filter(|error| error.is_object()) {
        let message = one_line(error["message"].as_str().unwrap_or("no text"), ERROR_BYTES_MAX);
        return Err(McpError::Refused { code: error["code"].as_i64().unwrap_or_default(), message });
    }
    let result = message.get("result").filter(|result| result.is_object());
    result.cloned().ok_or_else(|| McpError::Protocol("an answer has no result".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_a_server_is_an_answer_a_request_or_a_notification() {
        let read = |message: Value| incoming(&message);
        assert_eq!(read(json!({"id": 7, "result": {"a": 1}})), Some(Incoming::Answer(7, Ok(json!({"a": 1})))));
        assert_eq!(read(json!({"id": "p", "method": "ping"})), Some(Incoming::Request("p".into(), "ping".to_owned())));
        assert_eq!(read(json!({"method": "x/y"})), Some(Incoming::Notification("x/y".to_owned())));
        let Some(Incoming::Answer(1, Err(why))) =
            read(json!({"id": 1, "error": {"code": -32601, "message": "no\u{1b}"}}))
        else {
            panic!("an error")
        };
        assert_eq!(why, McpError::Refused { code: NO_METHOD, message: "no".to_owned() });
        assert!(matches!(read(json!({"id": 1, "result": 5})), Some(Incoming::Answer(1, Err(McpError::Protocol(_))))));
        for nothing in [json!(1), json!([]), json!({"id": null, "error": {}}), json!({"id": "x", "result": {}})] {
            assert_eq!(read(nothing.clone()), None, "{nothing}");
        }
    }
}
