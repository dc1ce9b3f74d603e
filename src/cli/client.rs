//! A server over HTTP, as the command line uses it.

use std::time::Duration;

use annie_llm::Secret;
use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use super::failure::{Exit, Failure, exit_of};

/// How long a connection may take, in milliseconds.
const CONNECT_MS_MAX: u64 = 2_000;
/// How long an answer that is no stream may take, in milliseconds.
const ANSWER_MS_MAX: u64 = 30_000;
/// How long a server may take to say that it is one, in milliseconds.
const PROBE_MS_MAX: u64 = 1_000;
/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The longest silence in a stream, in milliseconds: the server sends a comment more often than that.
const SILENCE_MS_MAX: u64 = 60_000;

/// How often something that broke off is taken up again, and the wait before, in milliseconds: a server that is killed is
/// back long before.
pub(super) const RESUMES_MAX: u32 = 30;
pub(super) const RESUME_MS: u64 = 1_000;

/// A server.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: Option<Secret>,
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEvent {
    /// Its type.
    pub kind: String,
    /// Its durable id.
    pub id: String,
    /// What it says.
    pub data: String,
}

/// A stream of them.
pub struct ServerEvents {
    inner: futures_util::stream::BoxStream<'static, Result<ServerEvent, String>>,
}

impl ServerEvents {
    /// The next one; nothing at the end, or why the stream broke.
    pub async fn next(&mut self) -> Option<Result<ServerEvent, String>> {
        self.inner.next().await
    }
}

impl Client {
    /// A client for the server at a URL.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(url: &str, key: Option<Secret>) -> Result<Self, Failure> {
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_millis(CONNECT_MS_MAX))
            .read_timeout(Duration::from_millis(SILENCE_MS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("annie-cli/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Failure::new(Exit::Failure, format!("cannot build the HTTP client: {e}")))?;
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), key })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Whether an Annie answers there, and soon.
    pub async fn is_there(&self) -> bool {
        let asked = self.http.get(format!("{}/healthz", self.base)).timeout(Duration::from_millis(PROBE_MS_MAX));
        let Ok(answer) = asked.send().await else { return false };
        // Others answer there too; only Annie gives every request an id.
        answer.headers().contains_key("x-request-id")
    }

    /// The key that it shows, for doors that are not HTTP.
    #[must_use]
    pub const fn key(&self) -> Option<&Secret> {
        self.key.as_ref()
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        }
    }

    /// Reads something. Path and query are already encoded.
    ///
    /// # Errors
    /// If the server is not there or refuses.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.answer(self.request(Method::GET, path)).await
    }

    /// Does something.
    ///
    /// # Errors
    /// If the server is not there or refuses.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.answer(self.request(Method::POST, path).json(body)).await
    }

    /// Does something that carries an id of its own, so that saying it twice is saying it once. If the connection breaks, nobody
    /// knows whether it was heard: it is said again until the server answers.
    ///
    /// # Errors
    /// If the server is not there or refuses.
    pub async fn post_again(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let mut resumes = 0;
        loop {
            let request = self.request(Method::POST, path).json(body);
            let sent = request.timeout(Duration::from_millis(ANSWER_MS_MAX)).send().await;
            match sent {
                Ok(response) => return self.read(response).await,
                Err(error) if resumes < RESUMES_MAX && (resumes > 0 || !error.is_connect()) => {
                    resumes += 1;
                    tokio::time::sleep(Duration::from_millis(RESUME_MS)).await;
                }
                Err(error) => return Err(self.unreachable(&error)),
            }
        }
    }

    /// Does something that its own key opens.
    ///
    /// # Errors
    /// If the server is not there or refuses.
    pub async fn post_with(&self, path: &str, body: &Value, header: &str, key: &Secret) -> Result<Value, Failure> {
        self.answer(self.request(Method::POST, path).header(header, key.expose()).json(body)).await
    }

    /// Follows a stream.
    ///
    /// # Errors
    /// If the server is not there or refuses.
    pub async fn events(&self, path: &str) -> Result<ServerEvents, Failure> {
        use eventsource_stream::Eventsource;
        let request = self.request(Method::GET, path).header("accept", "text/event-stream");
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        let response = refused(response).await?;
        let inner = response.bytes_stream().eventsource().map(|item| match item {
            Ok(event) => Ok(ServerEvent { kind: event.event, id: event.id, data: event.data }),
            Err(e) => Err(e.to_string()),
        });
        Ok(ServerEvents { inner: inner.boxed() })
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let request = request.timeout(Duration::from_millis(ANSWER_MS_MAX));
        self.read(request.send().await.map_err(|e| self.unreachable(&e))?).await
    }

    async fn read(&self, response: Response) -> Result<Value, Failure> {
        let body = body_of(refused(response).await?).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|e| {
            Failure::new(Exit::Failure, format!("{} does not answer in JSON: {e}", self.base))
                .fix("is it an annie server?")
        })
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let why = match (error.is_connect(), error.is_timeout()) {
            (_, true) => "it does not answer in time",
            (true, _) => "nothing listens there",
            _ => "the connection broke",
        };
        Failure::new(Exit::Unavailable, format!("no server at {}: {why}", self.base))
            .fix("start one with `annie serve`, or name another with --url")
    }
}

async fn body_of(mut response: Response) -> Result<Vec<u8>, Failure> {
    let broken = |why: String| Failure::new(Exit::Unavailable, format!("the server's answer broke off: {why}"));
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| broken(e.to_string()))? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(broken(format!("it is longer than {ANSWER_BYTES_MAX} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A refusal as a failure; anything else goes on.
async fn refused(response: Response) -> Result<Response, Failure> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let problem: Value = serde_json::from_slice(&body_of(response).await?).unwrap_or_default();
    Err(failure_of(status.as_u16(), &problem))
}

/// What a problem body means.
fn failure_of(status: u16, problem: &Value) -> Failure {
    let text = |key: &str| problem[key].as_str().filter(|t| !t.is_empty()).map(str::to_owned);
    let what = text("detail").or_else(|| text("title")).unwrap_or_else(|| format!("the server answered {status}"));
    let mut failure = Failure::new(exit_of(status), what);
    failure.request_id = text("request_id");
    match status {
        401 => failure.fix("show a key: --key-file FILE, or ANNIE__CLIENT__KEY; `annie key create` makes one"),
        403 => failure.fix("use a key with that scope; `annie key list` shows what each may do"),
        429 | 503 => match problem["retry_after_ms"].as_u64() {
            Some(ms) => failure.fix(format!("try again in {} s", ms.div_ceil(1_000))),
            None => failure,
        },
        _ => failure,
    }
}

/// A text as one part of a path or a query.
#[must_use]
pub fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_keeps_its_reason_its_way_out_and_its_request_id() {
        let problem = json!({"detail": "3 tasks of yours are waiting", "request_id": "r1", "retry_after_ms": 1_500});
        let failure = failure_of(429, &problem);
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Unavailable, "3 tasks of yours are waiting"));
        assert_eq!((failure.fix.as_deref(), failure.request_id.as_deref()), (Some("try again in 2 s"), Some("r1")));
        assert_eq!(failure_of(404, &Value::Null).exit, Exit::NotFound);
        assert_eq!(failure_of(401, &Value::Null).exit, Exit::Auth);
        assert_eq!(failure_of(500, &Value::Null).what, "the server answered 500");
    }

    #[test]
    fn a_path_part_cannot_leave_its_place() {
        assert_eq!(encoded("/conversations/a b?x"), "%2Fconversations%2Fa%20b%3Fx");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_unavailable_with_a_way_out() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);
        let client = Client::new(&url, None).unwrap();
        assert!(!client.is_there().await);
        let failure = client.get("/api/v1/status").await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.fix.unwrap().contains("annie serve"));
    }

    #[tokio::test]
    async fn what_may_have_been_heard_is_said_again_as_it_was() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let body = serde_json::json!({"client_id": "the-same"});
        let server = async {
            // The first hears it and dies; the second answers.
            for answer in ["", "HTTP/1.1 202 Accepted\r\ncontent-length: 14\r\n\r\n{\"heard\":true"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut heard = Vec::new();
                while !heard.ends_with(b"{\"client_id\":\"the-same\"}") {
                    assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
                if !answer.is_empty() {
                    stream.write_all(b"}").await.unwrap();
                }
            }
            drop(listener);
        };
        let (answer, ()) = tokio::join!(client.post_again("/", &body), server);
        assert_eq!(answer.unwrap(), serde_json::json!({"heard": true}));
        // Who never listened has not heard it.
        assert_eq!(client.post_again("/", &body).await.unwrap_err().exit, Exit::Unavailable);
    }
}
