//! The HTTP client of the command line.

use std::time::Duration;

use annie_llm::Secret;
use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::time::Instant;

use super::failure::{Exit, Failure, exit_of};
use crate::auth::USER_HEADER;

/// How long connecting may take, in milliseconds.
const CONNECT_MS_MAX: u64 = 2_000;
/// How long a response that is not a stream may take, in milliseconds.
const ANSWER_MS_MAX: u64 = 30_000;
/// How long a server may take to answer the health check, in milliseconds.
const PROBE_MS_MAX: u64 = 1_000;
/// The longest response body that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The longest silence in a stream, in milliseconds. The server sends a comment more often than that.
const SILENCE_MS_MAX: u64 = 60_000;

/// For how long an interrupted request is retried, over all attempts, in milliseconds. A killed server restarts well within
/// this time.
pub(super) const RESUME_MS_MAX: u64 = 30_000;
/// The wait before each retry, in milliseconds.
pub(super) const RESUME_MS: u64 = 1_000;

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: Option<Secret>,
    /// The user on whose behalf requests are sent, if not the key's user.
    user: Option<String>,
    /// The wait before a retry, in milliseconds.
    pub(super) resume_ms: u64,
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEvent {
    /// The event type.
    pub kind: String,
    /// The durable id.
    pub id: String,
    /// The payload.
    pub data: String,
}

/// Why there is no usable response.
enum Miss {
    /// The connection failed.
    Broke(reqwest::Error),
    /// The server rejected the request, or its response is unusable.
    Refused(Failure),
}

/// A stream of server-sent events.
pub struct ServerEvents {
    inner: futures_util::stream::BoxStream<'static, Result<ServerEvent, String>>,
}

impl ServerEvents {
    /// The next event; `None` at the end, or the error that ended the stream.
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
        let http = annie_llm::http_client()
            .connect_timeout(Duration::from_millis(CONNECT_MS_MAX))
            .read_timeout(Duration::from_millis(SILENCE_MS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("annie-cli/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Failure::new(Exit::Failure, format!("cannot build the HTTP client: {e}")))?;
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), key, user: None, resume_ms: RESUME_MS })
    }

    /// The base URL of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Whether an Annie server answers within [`PROBE_MS_MAX`].
    pub async fn is_there(&self) -> bool {
        let asked = self.http.get(format!("{}/healthz", self.base)).timeout(Duration::from_millis(PROBE_MS_MAX));
        let Ok(answer) = asked.send().await else { return false };
        // Another program may answer on this port. Only Annie adds a request id to every response.
        answer.headers().contains_key("x-request-id")
    }

    /// The API key, for requests over gRPC.
    #[must_use]
    pub const fn key(&self) -> Option<&Secret> {
        self.key.as_ref()
    }

    /// The same client on behalf of another user. The key needs the scope `impersonate`.
    ///
    /// # Errors
    /// If the user's name cannot be sent in an HTTP header.
    pub fn speaking_for(self, user: Option<String>) -> Result<Self, Failure> {
        if let Some(name) = user.as_deref().filter(|name| !name.is_ascii()) {
            let what =
                format!("the user {name:?} cannot be named for one dead letter: only ASCII can stand in a header");
            return Err(
                Failure::new(Exit::Usage, what).fix("show a key of that user, or use --all with --user and a filter")
            );
        }
        Ok(Self { user: user.or(self.user), ..self })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(user) = &self.user {
            request = request.header(USER_HEADER, user);
        }
        match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        }
    }

    /// Sends a GET request. Path and query are already encoded.
    ///
    /// # Errors
    /// If the server is unavailable or rejects the request.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.answer(self.request(Method::GET, path)).await
    }

    /// Sends a POST request.
    ///
    /// # Errors
    /// If the server is unavailable or rejects the request.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.answer(self.request(Method::POST, path).json(body)).await
    }

    /// Sends a DELETE request.
    ///
    /// # Errors
    /// If the server is unavailable or rejects the request.
    pub async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.answer(self.request(Method::DELETE, path)).await
    }

    /// Sends a POST request whose body has an idempotency id. If the connection breaks, the client cannot know whether the server
    /// received the request. The request is then repeated until the server accepts it or rejects it for good, for half a minute
    /// in total.
    ///
    /// # Errors
    /// If the server is unavailable, rejects the request, or does not answer within that time.
    pub async fn post_again(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.post_patiently(path, body, false).await
    }

    /// Sends an idempotent POST request, also to a server that is restarting: the request is repeated for half a minute, until
    /// the server accepts it or rejects it for good.
    ///
    /// # Errors
    /// As [`Self::post_again`].
    pub async fn post_idempotent(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.post_patiently(path, body, true).await
    }

    async fn post_patiently(&self, path: &str, body: &Value, is_idempotent: bool) -> Result<Value, Failure> {
        let until = Instant::now() + Duration::from_millis(RESUME_MS_MAX);
        let mut may_be_received = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let miss = match self.send_once(self.request(Method::POST, path).json(body).timeout(left)).await {
                Ok(answer) => return Ok(answer),
                Err(miss) => miss,
            };
            may_be_received |= matches!(&miss, Miss::Broke(error) if !error.is_connect() && !error.is_builder());
            let again = Instant::now() + Duration::from_millis(self.resume_ms);
            let failure = self.failure(miss);
            // A server that is too busy now may have received an earlier attempt, so such a rejection is not final.
            if !(may_be_received || is_idempotent) || failure.exit != Exit::Unavailable {
                return Err(failure);
            }
            if again >= until && is_idempotent {
                return Err(failure);
            }
            if again >= until {
                let fix = "the message may have been received: check `annie tasks list` before you send it again";
                return Err(failure.fix(fix));
            }
            tokio::time::sleep_until(again).await;
        }
    }

    /// Sends a POST request with a separate key in a header.
    ///
    /// # Errors
    /// If the server is unavailable or rejects the request.
    pub async fn post_with(&self, path: &str, body: &Value, header: &str, key: &Secret) -> Result<Value, Failure> {
        self.answer(self.request(Method::POST, path).header(header, key.expose()).json(body)).await
    }

    /// Opens a stream of server-sent events.
    ///
    /// # Errors
    /// If the server is unavailable or rejects the request.
    pub async fn events(&self, path: &str) -> Result<ServerEvents, Failure> {
        use eventsource_stream::Eventsource;
        let request = self.request(Method::GET, path).header("accept", "text/event-stream");
        let answer = async { refused(request.send().await?).await };
        let response = answer.await.map_err(|miss| self.failure(miss))?;
        let inner = response.bytes_stream().eventsource().map(|item| match item {
            Ok(event) => Ok(ServerEvent { kind: event.event, id: event.id, data: event.data }),
            Err(e) => Err(e.to_string()),
        });
        Ok(ServerEvents { inner: inner.boxed() })
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let request = request.timeout(Duration::from_millis(ANSWER_MS_MAX));
        self.send_once(request).await.map_err(|miss| self.failure(miss))
    }

    /// Sends one attempt and reads the whole response.
    async fn send_once(&self, request: RequestBuilder) -> Result<Value, Miss> {
        let body = body_of(refused(request.send().await?).await?).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|e| {
            let what = format!("{} does not answer in JSON: {e}", self.base);
            Miss::Refused(Failure::new(Exit::Failure, what).fix("is it an annie server?"))
        })
    }

    fn failure(&self, miss: Miss) -> Failure {
        match miss {
            Miss::Broke(error) => self.unreachable(&error),
            Miss::Refused(failure) => failure,
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if error.is_builder() {
            return Failure::new(Exit::Usage, format!("{} is no address of a server: {error}", self.base));
        }
        let why = match (error.is_connect(), error.is_timeout()) {
            (_, true) => return self.silent(),
            (true, _) => "nothing listens there",
            _ if error.is_body() || error.is_decode() => "its answer broke off",
            _ => "the connection broke",
        };
        self.gone(why)
    }

    /// The failure of a server that accepts connections and does not respond.
    #[must_use]
    pub(super) fn silent(&self) -> Failure {
        self.gone("it does not answer in time")
    }

    fn gone(&self, why: &str) -> Failure {
        Failure::new(Exit::Unavailable, format!("no server at {}: {why}", self.base))
            .fix("start one with `annie serve`, or name another with --url")
    }
}

impl From<reqwest::Error> for Miss {
    fn from(error: reqwest::Error) -> Self {
        Self::Broke(error)
    }
}

async fn body_of(mut response: Response) -> Result<Vec<u8>, Miss> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            let what = format!("the server's answer is longer than {ANSWER_BYTES_MAX} bytes");
            return Err(Miss::Refused(Failure::new(Exit::Failure, what)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Passes a successful response on; any other response becomes a failure.
async fn refused(response: Response) -> Result<Response, Miss> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let problem: Value = serde_json::from_slice(&body_of(response).await?).unwrap_or_default();
    Err(Miss::Refused(failure_of(status.as_u16(), &problem)))
}

/// The failure for an error status and its problem body.
fn failure_of(status: u16, problem: &Value) -> Failure {
    let text = |key: &str| problem[key].as_str().filter(|t| !t.is_empty()).map(str::to_owned);
    let what = text("detail").or_else(|| text("title")).unwrap_or_else(|| format!("the server answered {status}"));
    let mut failure = Failure::new(exit_of(status), what);
    failure.request_id = text("request_id");
    match status {
        401 => failure.fix(
            "show a key: --key-file FILE, or ANNIE__CLIENT__KEY; without one, stop the server, make a key with `annie key create NAME \
             --scope admin`, and start the server again",
        ),
        403 => failure.fix("use a key with that scope; `annie key list` shows what each may do"),
        429 | 503 => match problem["retry_after_ms"].as_u64() {
            Some(ms) => failure.fix(format!("try again in {} s", ms.div_ceil(1_000))),
            None => failure,
        },
        _ => failure,
    }
}

/// Percent-encodes a text as one part of a path or a query.
#[must_use]
pub fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn error_response_keeps_detail_fix_and_request_id() {
        let problem = json!({"detail": "3 tasks of yours are waiting", "request_id": "r1", "retry_after_ms": 1_500});
        let failure = failure_of(429, &problem);
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Unavailable, "3 tasks of yours are waiting"));
        assert_eq!((failure.fix.as_deref(), failure.request_id.as_deref()), (Some("try again in 2 s"), Some("r1")));
        assert_eq!(failure_of(404, &Value::Null).exit, Exit::NotFound);
        assert_eq!(failure_of(401, &Value::Null).exit, Exit::Auth);
        assert_eq!(failure_of(500, &Value::Null).what, "the server answered 500");
    }

    #[test]
    fn encoded_path_part_has_no_separators() {
        assert_eq!(encoded("/conversations/a b?x"), "%2Fconversations%2Fa%20b%3Fx");
    }

    /// An address on which no socket listens. The returned socket reserves the port.
    fn nowhere() -> (tokio::net::TcpSocket, SocketAddr) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = socket.local_addr().unwrap();
        (socket, at)
    }

    #[tokio::test]
    async fn client_without_a_server_fails_as_unavailable_with_a_fix() {
        let (_socket, at) = nowhere();
        let client = Client::new(&format!("http://{at}/"), None).unwrap();
        assert!(!client.is_there().await);
        for failure in [client.get("/").await, client.post_again("/", &json!({})).await].map(Result::unwrap_err) {
            assert_eq!(failure.exit, Exit::Unavailable);
            assert!(
                failure.fix.unwrap().contains("annie serve"),
                "a server that never listened has not received the request"
            );
        }
        let nonsense = Client::new("no address", None).unwrap().post_again("/", &json!({})).await;
        assert_eq!(nonsense.unwrap_err().exit, Exit::Usage);
    }

    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

    /// A server that restarts after each request: collects the request bodies and gives one answer to each. Waits for ever after
    /// the last.
    async fn serve(listener: TcpListener, answers: &[&str], bodies: &mut Vec<Value>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            let body = loop {
                assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
                let text = String::from_utf8_lossy(&received);
                let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
                if let Some(body) = body {
                    break body;
                }
            };
            bodies.push(body);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        std::future::pending().await
    }

    #[tokio::test]
    async fn client_repeats_a_possibly_received_request_unchanged() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        client.resume_ms = 1;
        let body = json!({"client_id": "the-same"});
        // The first run receives the request and dies, the second dies during its answer, two are too busy, the fifth answers.
        let answers = [
            "",
            "HTTP/1.1 202 Accepted\r\ncontent-length: 14\r\n\r\n{\"taken\"",
            BUSY,
            "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 202 Accepted\r\ncontent-length: 14\r\n\r\n{\"taken\":true}",
        ];
        let mut bodies = Vec::new();
        let answer = tokio::select! {
            answer = client.post_again("/", &body) => answer,
            () = serve(listener, &answers, &mut bodies) => unreachable!(),
        };
        assert_eq!(answer.unwrap(), json!({"taken": true}));
        assert_eq!(bodies, vec![body; 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn client_fails_at_once_on_a_busy_server_unless_the_request_may_have_been_received() {
        for (answers, fix) in
            [(vec![BUSY], None), ([vec![""], vec![BUSY; 40]].concat(), Some("the message may have been received"))]
        {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
            let (body, mut bodies) = (json!({"client_id": "the-same"}), Vec::new());
            let failure = tokio::select! {
                answer = client.post_again("/", &body) => answer.unwrap_err(),
                () = serve(listener, &answers, &mut bodies) => unreachable!(),
            };
            assert_eq!((failure.exit, failure.what.as_str()), (Exit::Unavailable, "the server answered 503"));
            assert_eq!(failure.fix.is_some(), fix.is_some(), "{failure:?}");
            assert!(fix.is_none_or(|fix| failure.fix.unwrap().starts_with(fix)));
            assert_eq!(bodies.len() > 1, fix.is_some());
        }
    }

    #[tokio::test]
    async fn client_repeats_an_idempotent_request_until_the_server_is_back() {
        let (socket, at) = nowhere();
        let mut client = Client::new(&format!("http://{at}"), None).unwrap();
        client.resume_ms = 1;
        let (body, mut bodies) = (json!({}), Vec::new());
        let request = client.post_idempotent("/", &body);
        tokio::pin!(request);
        for _ in 0..100 {
            assert_eq!(futures_util::FutureExt::now_or_never(request.as_mut()), None);
            tokio::task::yield_now().await;
        }
        let listener = socket.listen(1).unwrap();
        let answers = [BUSY, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"];
        let answer = tokio::select! {
            answer = &mut request => answer,
            () = serve(listener, &answers, &mut bodies) => unreachable!(),
        };
        assert_eq!((answer.unwrap(), bodies.len()), (json!({}), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn client_gives_up_a_silent_server_once_for_all_attempts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let from = Instant::now();
        let failure = client.post_again("/", &json!({})).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.what.contains("does not answer in time"), "{failure:?}");
        assert!(from.elapsed() <= Duration::from_millis(RESUME_MS_MAX + RESUME_MS), "{:?}", from.elapsed());
    }
}
