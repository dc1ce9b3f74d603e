//! Requests over streamable HTTP: each is a POST whose response is one message, or a stream of events that ends with it.
//! The client is the egress client, so the rules for addresses, sizes and times hold.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    outcome::OutboundRequest,
    ports::{Egress, EgressMethod, EgressReply, EgressRequest},
};
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    McpError,
    rpc::{self, Incoming, REVISION_MODERN, Revision},
    stdio::LIST_CHANGED,
};

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// What `initialize` has agreed.
#[derive(Debug, Clone, Default)]
struct Session {
    /// The revision that later requests name.
    version: Option<String>,
    /// The session, if the server has any.
    id: Option<String>,
}

/// A service.
pub(crate) struct HttpLink {
    url: String,
    egress: Arc<dyn Egress>,
    session: Mutex<Session>,
    last_id: AtomicU64,
    changed: Arc<Notify>,
}

impl HttpLink {
    /// A link to this URL. `changed` is notified when the server announces other tools.
    pub(crate) fn new(url: String, egress: Arc<dyn Egress>, changed: Arc<Notify>) -> Self {
        Self { url, egress, session: Mutex::default(), last_id: AtomicU64::new(0), changed }
    }

    /// Sends a request, and returns its answer with the requests that were sent for it.
    pub(crate) async fn request(
        &self,
        revision: Revision,
        method: &str,
        params: &Value,
        ms_max: u64,
    ) -> (Result<Value, McpError>, Vec<OutboundRequest>) {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let named = params["name"].as_str().or_else(|| params["uri"].as_str());
        let headers = self.headers(revision, method, named);
        let (reply, sent) = self.post(headers, &rpc::request(id, method, params), ms_max).await;
        let answer = reply.and_then(|reply| {
            if method == "initialize" {
                self.session().id = header(&reply, SESSION);
            }
            self.answer(&reply, id)
        });
        (answer, sent)
    }

    /// Sends a notification.
    pub(crate) async fn notify(
        &self,
        revision: Revision,
        method: &str,
        params: &Value,
        ms_max: u64,
    ) -> Result<(), McpError> {
        let headers = self.headers(revision, method, None);
        let (reply, _) = self.post(headers, &rpc::notification(method, params), ms_max).await;
        match reply?.status {
            200..=299 => Ok(()),
            status => Err(McpError::Http(status)),
        }
    }

    /// Records the revision that a session has agreed on.
    pub(crate) fn agreed(&self, version: &str) {
        self.session().version = Some(version.to_owned());
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn headers(&self, revision: Revision, method: &str, name: Option<&str>) -> Vec<(String, String)> {
        let mut headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
        ];
        match revision {
            Revision::Modern => {
                headers.push(("MCP-Protocol-Version", REVISION_MODERN.to_owned()));
                headers.push(("Mcp-Method", method.to_owned()));
                headers.extend(name.map(|name| ("Mcp-Name", name.to_owned())));
            }
            Revision::Legacy => {
                let Session { version, id } = self.session().clone();
                headers.extend(version.map(|version| ("MCP-Protocol-Version", version)));
                headers.extend(id.map(|id| ("MCP-Session-Id", id)));
            }
        }
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    async fn post(
        &self,
        headers: Vec<(String, String)>,
        message: &Value,
        ms_max: u64,
    ) -> (Result<EgressReply, McpError>, Vec<OutboundRequest>) {
        let request = EgressRequest {
            method: EgressMethod::Post,
            headers,
            body: message.to_string().into_bytes(),
            ..EgressRequest::get(self.url.clone())
        };
        match tokio::time::timeout(Duration::from_millis(ms_max), self.egress.send(request)).await {
            Ok(exchange) => (exchange.result.map_err(McpError::from), exchange.requests),
            Err(_) => (Err(McpError::Timeout { ms_max }), Vec::new()),
        }
    }

    /// The answer to a request within its response.
    fn answer(&self, reply: &EgressReply, id: u64) -> Result<Value, McpError> {
        let is_success = (200..300).contains(&reply.status);
        let mut found = None;
        for message in messages(reply) {
            match rpc::incoming(&message) {
                Some(Incoming::Answer(of, answer)) if of == id => found = Some(answer),
                Some(Incoming::Notification(method)) if method == LIST_CHANGED => self.changed.notify_one(),
                // An error response may have no id, because the server did not read the request.
                None if !is_success && message["error"].is_object() => found = Some(rpc::result(&message)),
                _ => {}
            }
        }
        match found {
            // The session does not exist, so the request was not run in it.
            _ if reply.status == 404 && self.session().id.is_some() => Err(McpError::SessionGone),
            Some(answer) => answer,
            None if is_success => Err(McpError::Protocol("the response has no answer".to_owned())),
            None => Err(McpError::Http(reply.status)),
        }
    }
}

/// A header of a response, by its name in lower case.
fn header(reply: &EgressReply, name: &str) -> Option<String> {
    reply.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

/// The messages of a response: its body, or the data of its events.
fn messages(reply: &EgressReply) -> Vec<Value> {
    if !reply.content_type.starts_with("text/event-stream") {
        return serde_json::from_slice(&reply.body).into_iter().collect();
    }
    let text = String::from_utf8_lossy(&reply.body);
    let (mut messages, mut data) = (Vec::new(), String::new());
    // An event ends with an empty line; the end of the stream ends the last one.
    for line in text.lines().chain([""]) {
        if let Some(part) = line.strip_prefix("data:") {
            data.push_str(part.strip_prefix(' ').unwrap_or(part));
            data.push('\n');
        } else if line.is_empty() && !data.is_empty() {
            messages.extend(serde_json::from_str::<Value>(&data));
            data.clear();
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use annie_core::ports::{EgressError, Exchange, Fut};
    use serde_json::json;

    use super::*;

    /// Answers every request with the same response, and records the headers and bodies.
    struct Fixed {
        reply: Result<EgressReply, EgressError>,
        seen: Mutex<Vec<EgressRequest>>,
    }

    impl Egress for Fixed {
        fn send(&self, request: EgressRequest) -> Fut<'_, Exchange> {
            self.seen.lock().unwrap().push(request);
            Box::pin(std::future::ready(Exchange { requests: Vec::new(), result: self.reply.clone() }))
        }
    }

    fn reply(status: u16, content_type: &str, body: &str) -> EgressReply {
        EgressReply {
            status,
            content_type: content_type.to_owned(),
            headers: vec![("mcp-session-id".to_owned(), "s1".to_owned())],
            body: body.as_bytes().to_vec(),
            url: String::new(),
        }
    }

    async fn answer(reply: EgressReply) -> Result<Value, McpError> {
        let egress = Arc::new(Fixed { reply: Ok(reply), seen: Mutex::default() });
        let link = HttpLink::new("http://x/".to_owned(), egress, Arc::default());
        link.request(Revision::Modern, "tools/call", &json!({"name": "echo"}), 1_000).await.0
    }

    #[tokio::test]
    async fn http_link_reads_json_and_event_streams_and_names_errors() {
        let ok = Ok(json!({"a": 1}));
        assert_eq!(answer(reply(200, "application/json", r#"{"id":1,"result":{"a":1}}"#)).await, ok);
        let progress = "event: message\r\ndata: {\"method\":\"notifications/progress\"}\r\n\r\n";
        let events = format!("{progress}data: {{\"id\":1,\r\ndata: \"result\":{{\"a\":1}}}}");
        assert_eq!(answer(reply(200, "text/event-stream; charset=utf-8", &events)).await, ok);
        let unknown =
            answer(reply(404, "application/json", r#"{"id":null,"error":{"code":-32601,"message":"no"}}"#)).await;
        assert_eq!(unknown, Err(McpError::Refused { code: -32601, message: "no".to_owned() }));
        assert_eq!(answer(reply(503, "text/html", "<html>")).await, Err(McpError::Http(503)));
        let other = answer(reply(200, "application/json", r#"{"id":2,"result":{}}"#)).await;
        assert!(matches!(other, Err(McpError::Protocol(_))), "{other:?}");
    }

    #[tokio::test]
    async fn http_link_sends_the_headers_of_its_revision_and_its_session() {
        let egress = Arc::new(Fixed {
            reply: Ok(reply(200, "application/json", r#"{"id":1,"result":{}}"#)),
            seen: Mutex::default(),
        });
        let link = HttpLink::new("http://x/".to_owned(), egress.clone(), Arc::default());
        link.request(Revision::Legacy, "initialize", &json!({}), 1_000).await.0.unwrap();
        link.agreed("2025-11-25");
        let _ = link.request(Revision::Legacy, "tools/list", &json!({}), 1_000).await;
        let _ = link.request(Revision::Modern, "tools/call", &json!({"name": "echo"}), 1_000).await;
        let seen = egress.seen.lock().unwrap();
        let value = |n: usize, name: &str| {
            seen[n].headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        let names = ["MCP-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"];
        let of = |n: usize| names.map(|name| value(n, name).unwrap_or_default());
        assert_eq!(of(0), ["", "", "", ""]);
        assert_eq!(of(1), ["s1", "2025-11-25", "", ""]);
        assert_eq!(of(2), ["", "2026-07-28", "tools/call", "echo"]);
    }

    #[tokio::test]
    async fn http_link_reports_a_lost_session() {
        let egress = Arc::new(Fixed { reply: Ok(reply(404, "text/plain", "gone")), seen: Mutex::default() });
        let link = HttpLink::new("http://x/".to_owned(), egress, Arc::default());
        link.session().id = Some("s1".to_owned());
        let answer = link.request(Revision::Legacy, "tools/call", &json!({"name": "echo"}), 1_000).await.0;
        assert_eq!(answer, Err(McpError::SessionGone));
    }
}
