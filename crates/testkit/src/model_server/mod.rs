//! A fake model server on a loopback port, for tests of the client and of everything above it. A script (a closure or a queue)
//! chooses a [`Reply`] for every request. The server records the exact bytes of each request and counts the clients that close
//! the connection in the middle of a reply.
//!
//! The server supports OpenAI's Chat Completions, and Anthropic's Messages at paths that end with `/messages`. There it also
//! refuses what Anthropic refuses, before the script is asked.

mod description;
mod messages;
mod reply;
mod rules;
mod wire;

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request, State, connect_info::Connected},
    http::{HeaderName, HeaderValue, Response, StatusCode},
    serve::IncomingStream,
};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

pub use description::Description;
pub use reply::{CallShape, Reply};
pub use rules::refusal_of_messages;
use wire::Action;

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoken {
    Completions,
    Messages,
}

/// A request that a server has received.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its number, from 0, in order of arrival; only completion requests are counted.
    pub number: u64,
    /// Its path: `/v1/chat/completions`.
    pub path: String,
    /// Its query, without the question mark.
    pub query: String,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its exact body.
    pub body: Bytes,
}

impl Seen {
    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Whether the request asks for a stream.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.json()["stream"] == true
    }

    /// The messages.
    #[must_use]
    pub fn messages(&self) -> Vec<Value> {
        self.json()["messages"].as_array().cloned().unwrap_or_default()
    }

    /// The text of all messages of a role, in order: plain content or the joined text parts. For Anthropic's Messages, tool
    /// results count as role `tool`.
    #[must_use]
    pub fn texts_of(&self, role: &str) -> Vec<String> {
        match self.spoken() {
            Spoken::Completions => self.messages().iter().filter(|m| m["role"] == role).map(text_of).collect(),
            Spoken::Messages => messages::texts_of(&self.json(), role),
        }
    }

    fn spoken(&self) -> Spoken {
        if self.path.ends_with("/messages") { Spoken::Messages } else { Spoken::Completions }
    }

    /// The text of the last user message.
    #[must_use]
    pub fn last_user_text(&self) -> String {
        self.texts_of("user").pop().unwrap_or_default()
    }

    /// The names of the tools, in order.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        let json = self.json();
        let tools = json["tools"].as_array().into_iter().flatten();
        tools.filter_map(|t| t["function"]["name"].as_str().or(t["name"].as_str()).map(str::to_owned)).collect()
    }
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p["text"].as_str()).collect(),
        _ => String::new(),
    }
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

struct Shared {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    probes: Mutex<Option<Reply>>,
    description: Mutex<Option<Description>>,
    records: AtomicBool,
    numbers: AtomicU64,
    arrived: watch::Sender<u64>,
    hung_up: Arc<watch::Sender<u64>>,
}

/// The fake server. It stops when it is dropped.
pub struct FakeModelServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl FakeModelServer {
    /// Starts a server on a free loopback port that answers each request with what the script chooses.
    ///
    /// # Panics
    /// If no loopback port is available.
    pub async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Mutex::default(),
            probes: Mutex::default(),
            description: Mutex::default(),
            records: AtomicBool::new(true),
            numbers: AtomicU64::new(0),
            arrived: watch::channel(0).0,
            hung_up: Arc::new(watch::channel(0).0),
        });
        #[expect(clippy::expect_used, reason = "a test without a loopback port cannot go on")]
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        #[expect(clippy::expect_used, reason = "a bound listener has an address")]
        let addr = listener.local_addr().expect("the address of a bound listener");
        let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        #[expect(clippy::disallowed_methods, reason = "the test fake owns this task and aborts it when it is dropped")]
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, app.into_make_service_with_connect_info::<Peer>()).await;
        });
        Self { addr, shared, serving }
    }

    /// Starts a server that gives these replies in turn, and after the last one status 500 with `scripted replies are used up`.
    pub async fn queue(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Mutex<VecDeque<Reply>> = Mutex::new(replies.into_iter().collect());
        Self::start(move |_| {
            replies.lock().pop_front().unwrap_or_else(|| Reply::error(500, "scripted replies are used up"))
        })
        .await
    }

    /// Records no requests from now on: for a long load.
    #[must_use]
    pub fn without_recording(self) -> Self {
        self.shared.records.store(false, Relaxed);
        self
    }

    /// The base URL for a client: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// All completion requests so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    /// Number of completion requests that have arrived.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        *self.shared.arrived.borrow()
    }

    /// Waits until `count` completion requests have arrived.
    pub async fn arrived(&self, count: u64) {
        // The sender lives in `self`, so the wait can only end by the condition.
        let _ = self.shared.arrived.subscribe().wait_for(|n| *n >= count).await;
    }

    /// Waits until `count` clients have closed the connection before the end of a reply.
    pub async fn hung_up(&self, count: u64) {
        let _ = self.shared.hung_up.subscribe().wait_for(|n| *n >= count).await;
    }

    /// Answers every `GET` (`/models`, `/health`) with this instead of a list of one model.
    pub fn answer_probes_with(&self, reply: Reply) {
        *self.shared.probes.lock() = Some(reply);
    }

    /// Reports itself as such a server from now on.
    pub fn describe_as(&self, description: Description) {
        *self.shared.description.lock() = Some(description);
    }
}

impl fmt::Debug for FakeModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeModelServer").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Drop for FakeModelServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A second handle to a connection's socket, so that a reply can reset the connection instead of closing it.
#[derive(Clone)]
struct Peer(Option<Arc<OwnedFd>>);

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(stream.io().as_fd().try_clone_to_owned().ok().map(Arc::new))
    }
}

impl Peer {
    /// Turns the next close into a reset: the client loses what was sent and not yet read.
    fn reset_on_close(&self) {
        let socket = self.0.as_ref().and_then(|fd| fd.try_clone().ok()).map(std::net::TcpStream::from);
        if let Some(socket) = socket.and_then(|s| TcpStream::from_std(s).ok()) {
            let _ = socket.set_zero_linger();
        }
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let is_get = parts.method == axum::http::Method::GET;
    let probed = shared.probes.lock().clone().filter(|_| is_get);
    let described = || shared.description.lock().as_ref().and_then(|d| d.answer(parts.uri.path(), is_get));
    if let Some(reply) = probed.clone().or_else(described) {
        return Ok(respond(reply, Spoken::Completions, false, &shared, peer));
    }
    if is_get {
        let reply = probed;
        let reply = reply.unwrap_or_else(|| Reply::body(200, r#"{"object":"list","data":[{"id":"fake-model"}]}"#));
        return Ok(respond(reply, Spoken::Completions, false, &shared, peer));
    }
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let seen = {
        let mut all = shared.seen.lock();
        let number = shared.numbers.fetch_add(1, Relaxed);
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let seen = Seen { number, path: parts.uri.path().to_owned(), query, headers, body };
        if shared.records.load(Relaxed) {
            all.push(seen.clone());
        }
        seen
    };
    shared.arrived.send_modify(|n| *n += 1);
    let spoken = seen.spoken();
    let refused = if spoken == Spoken::Messages { rules::refusal(&seen) } else { None };
    let reply = refused.unwrap_or_else(|| (shared.script)(&seen));
    let streams = seen.streams();
    Ok(respond(reply, spoken, streams, &shared, peer))
}

fn respond(reply: Reply, spoken: Spoken, streams: bool, shared: &Shared, peer: Peer) -> Response<Body> {
    let status = StatusCode::from_u16(reply.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let (kind, actions) = wire::render(&reply, spoken, streams);
    if actions.contains(&Action::Reset) {
        peer.reset_on_close();
    }
    let mut response = Response::new(Body::from_stream(wire::play(actions, Arc::clone(&shared.hung_up))));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static(kind));
    for (name, value) in reply.headers() {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests;
