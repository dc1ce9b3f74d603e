//! A server over HTTP, as the command line uses it.

use std::time::Duration;

use annie_llm::Secret;
use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::time::Instant;

use super::failure::{Exit, Failure, exit_of};
use crate::auth::USER_HEADER;

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

/// For how long something that broke off is tried again, over all attempts, in milliseconds: a server that is killed is back
/// long before.
pub(super) const RESUME_MS_MAX: u64 = 30_000;
/// The wait before each, in milliseconds.
pub(super) const RESUME_MS: u64 = 1_000;

/// A server.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: Option<Secret>,
    /// For whom it speaks, if not for the key's user.
    user: Option<String>,
    /// The wait before what broke off is tried again, in milliseconds.
    pub(super) resume_ms: u64,
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

/// Why there is no answer.
enum Miss {
    /// The way to the server, or back.
    Broke(reqwest::Error),
    /// What it said.
    Said(Failure),
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

    /// The same for another user; the key must be allowed to speak for others.
    ///
    /// # Errors
    /// If the user's name cannot stand in a header of HTTP.
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
    /// knows whether it was heard: it is said again until the server takes it in or refuses it for good, for half a minute in
    /// all.
    ///
    /// # Errors
    /// If the server is not there, refuses, or does not answer within that time.
    pub async fn post_again(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.post_patiently(path, body, false).await
    }

    /// Does something that is the same when it is done twice, also at a server that is between two lives: it is said for half a
    /// minute, until the server takes it in or refuses it for good.
    ///
    /// # Errors
    /// As [`Self::post_again`].
    pub async fn post_until_heard(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.post_patiently(path, body, true).await
    }

    async fn post_patiently(&self, path: &str, body: &Value, is_harmless: bool) -> Result<Value, Failure> {
        let until = Instant::now() + Duration::from_millis(RESUME_MS_MAX);
        let mut may_be_heard = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let miss = match self.heard(self.request(Method::POST, path).json(body).timeout(left)).await {
                Ok(answer) => return Ok(answer),
                Err(miss) => miss,
            };
            may_be_heard |= matches!(&miss, Miss::Broke(error) if !error.is_connect() && !error.is_builder());
            let again = Instant::now() + Duration::from_millis(self.resume_ms);
            let failure = self.told(miss);
            // Whoever is too busy now has not said that it did not hear it before.
            if !(may_be_heard || is_harmless) || failure.exit != Exit::Unavailable {
                return Err(failure);
            }
            if again >= until && is_harmless {
                return Err(failure);
            }
            if again >= until {
                let fix = "it may have been heard: look with `annie tasks list` before you say it again";
                return Err(failure.fix(fix));
            }
            tokio::time::sleep_until(again).await;
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
        let answer = async { refused(request.send().await?).await };
        let response = answer.await.map_err(|miss| self.told(miss))?;
        let inner = response.bytes_stream().eventsource().map(|item| match item {
            Ok(event) => Ok(ServerEvent { kind: event.event, id: event.id, data: event.data }),
            Err(e) => Err(e.to_string()),
        });
        Ok(ServerEvents { inner: inner.boxed() })
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let request = request.timeout(Duration::from_millis(ANSWER_MS_MAX));
        self.heard(request).await.map_err(|miss| self.told(miss))
    }

    /// One attempt, with its answer to the last byte.
    async fn heard(&self, request: RequestBuilder) -> Result<Value, Miss> {
        let body = body_of(refused(request.send().await?).await?).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|e| {
            let what = format!("{} does not answer in JSON: {e}", self.base);
            Miss::Said(Failure::new(Exit::Failure, what).fix("is it an annie server?"))
        })
    }

    fn told(&self, miss: Miss) -> Failure {
        match miss {
            Miss::Broke(error) => self.unreachable(&error),
            Miss::Said(failure) => failure,
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

    /// It is there, and says nothing.
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
            return Err(Miss::Said(Failure::new(Exit::Failure, what)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A refusal as a failure; anything else goes on.
async fn refused(response: Response) -> Result<Response, Miss> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let problem: Value = serde_json::from_slice(&body_of(response).await?).unwrap_or_default();
    Err(Miss::Said(failure_of(status.as_u16(), &problem)))
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
    use std::net::SocketAddr;

    use serde_json::json;
    use tokio::net::TcpListener;

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

    /// An address where nobody listens, and nobody else can as long as this is kept.
    fn nowhere() -> (tokio::net::TcpSocket, SocketAddr) {
        let place = tokio::net::TcpSocket::new_v4().unwrap();
        place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = place.local_addr().unwrap();
        (place, at)
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_unavailable_with_a_way_out() {
        let (_place, at) = nowhere();
        let client = Client::new(&format!("http://{at}/"), None).unwrap();
        assert!(!client.is_there().await);
        for failure in [client.get("/").await, client.post_again("/", &json!({})).await].map(Result::unwrap_err) {
            assert_eq!(failure.exit, Exit::Unavailable);
            assert!(failure.fix.unwrap().contains("annie serve"), "who never listened has not heard it");
        }
        let nonsense = Client::new("no address", None).unwrap().post_again("/", &json!({})).await;
        assert_eq!(nonsense.unwrap_err().exit, Exit::Usage);
    }

    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

    /// The bodies that several lives of a server hear, one each, and give these answers to. Waits for ever after the last.
    async fn hears(listener: TcpListener, answers: &[&str], bodies: &mut Vec<Value>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            let body = loop {
                assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
                let text = String::from_utf8_lossy(&heard);
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
    async fn what_may_have_been_heard_is_said_again_as_it_was() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        client.resume_ms = 1;
        let body = json!({"client_id": "the-same"});
        // The first hears it and dies, the second dies in its answer; two have no time; the fifth answers.
        let answers = [
            "",
            "HTTP/1.1 202 Accepted\r\ncontent-length: 14\r\n\r\n{\"heard\"",
            BUSY,
            "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 202 Accepted\r\ncontent-length: 14\r\n\r\n{\"heard\":true}",
        ];
        let mut bodies = Vec::new();
        let answer = tokio::select! {
            answer = client.post_again("/", &body) => answer,
            () = hears(listener, &answers, &mut bodies) => unreachable!(),
        };
        assert_eq!(answer.unwrap(), json!({"heard": true}));
        assert_eq!(bodies, vec![body; 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_without_time_refuses_what_it_never_heard_at_once_and_what_it_may_have_heard_in_the_end() {
        for (answers, fix) in
            [(vec![BUSY], None), ([vec![""], vec![BUSY; 40]].concat(), Some("it may have been heard"))]
        {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
            let (body, mut bodies) = (json!({"client_id": "the-same"}), Vec::new());
            let failure = tokio::select! {
                answer = client.post_again("/", &body) => answer.unwrap_err(),
                () = hears(listener, &answers, &mut bodies) => unreachable!(),
            };
            assert_eq!((failure.exit, failure.what.as_str()), (Exit::Unavailable, "the server answered 503"));
            assert_eq!(failure.fix.is_some(), fix.is_some(), "{failure:?}");
            assert!(fix.is_none_or(|fix| failure.fix.unwrap().starts_with(fix)));
            assert_eq!(bodies.len() > 1, fix.is_some());
        }
    }

    #[tokio::test]
    async fn what_is_the_same_when_it_is_said_twice_waits_for_a_server_that_is_between_two_lives() {
        let (place, at) = nowhere();
        let mut client = Client::new(&format!("http://{at}"), None).unwrap();
        client.resume_ms = 1;
        let (body, mut bodies) = (json!({}), Vec::new());
        let wish = client.post_until_heard("/", &body);
        tokio::pin!(wish);
        for _ in 0..100 {
            assert_eq!(futures_util::FutureExt::now_or_never(wish.as_mut()), None);
            tokio::task::yield_now().await;
        }
        let listener = place.listen(1).unwrap();
        let answers = [BUSY, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"];
        let answer = tokio::select! {
            answer = &mut wish => answer,
            () = hears(listener, &answers, &mut bodies) => unreachable!(),
        };
        assert_eq!((answer.unwrap(), bodies.len()), (json!({}), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_there_and_silent_is_given_up_once_for_all_attempts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let from = Instant::now();
        let failure = client.post_again("/", &json!({})).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.what.contains("does not answer in time"), "{failure:?}");
        assert!(from.elapsed() <= Duration::from_millis(RESUME_MS_MAX + RESUME_MS), "{:?}", from.elapsed());
    }
}
