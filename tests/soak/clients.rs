//! Clients that send messages while faults are injected. They repeat messages with an unknown outcome, follow streams
//! over broken connections, read, cancel, and request conversations of other users. Everything is recorded.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    history::{Ack, Cancel, Foreign, Kind, Read, Recorder, Stream, Submit, tokens_in},
    pace::pause,
};

/// How long a client still sends requests after it was stopped. What is open must end within that time.
const PATIENCE: Duration = Duration::from_secs(90);
/// Longest time of one request.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// Open conversations of a client, and messages in each before it starts another.
const CHANNELS: usize = 3;
const CHANNEL_MESSAGES_MAX: u32 = 25;

/// State that all clients share.
pub struct SharedState {
    pub recorder: Recorder,
    pub url: watch::Receiver<String>,
    pub over: AtomicBool,
    /// Known conversations with their users.
    known: Mutex<Vec<(String, String)>>,
}

impl SharedState {
    pub fn new(url: watch::Receiver<String>) -> Self {
        Self { recorder: Recorder::new(), url, over: AtomicBool::new(false), known: Mutex::default() }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", *self.url.borrow())
    }

    pub fn known(&self) -> Vec<(String, String)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn learn(&self, conversation: &str, user: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|(c, _)| c == conversation) {
            known.push((conversation.to_owned(), user.to_owned()));
        }
    }
}

/// A user's API session: client number, user, key.
pub struct Session {
    pub client: usize,
    pub user: String,
    pub key: String,
    pub http: reqwest::Client,
    pub shared: Arc<SharedState>,
}

/// A message to send.
pub struct OutgoingMessage<'a> {
    pub channel: &'a str,
    pub kind: Kind,
    pub class: &'a str,
    /// Text besides kind and token.
    pub words: &'a str,
    /// Whether to wait for the answer.
    pub wait: bool,
}

impl Session {
    fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(self.shared.at(path)).bearer_auth(&self.key)
    }

    fn post(&self, path: &str) -> RequestBuilder {
        self.http.post(self.shared.at(path)).bearer_auth(&self.key)
    }

    fn has_timed_out(&self, since: Instant) -> bool {
        since.elapsed() > PATIENCE
    }

    /// Sends a message until it is acknowledged, and once more if `again`. Records the result and returns it.
    pub async fn say(&self, message: &OutgoingMessage<'_>, again: bool) -> Submit {
        let recorder = &self.shared.recorder;
        let token = recorder.token(self.client);
        let body = json!({
            "text": format!("{} {} {token}", message.kind.word(), message.words),
            "conversation_key": message.channel,
            "client_id": token,
            "priority": message.class,
            "mode": if message.kind == Kind::Note { "single_loop" } else { "multi_agent" },
            "verbatim": true,
        });
        let mut submit = Submit {
            client: self.client,
            user: self.user.clone(),
            token,
            kind: message.kind,
            from_us: recorder.now_us(),
            acks: Vec::new(),
            refused: Vec::new(),
            unknown: 0,
        };
        let since = Instant::now();
        let wanted = if again { 2 } else { 1 };
        while submit.acks.len() < wanted && !self.has_timed_out(since) {
            let wait_ms = self.send(&body, message.wait, &mut submit).await;
            if let Some(ms) = wait_ms {
                pause(Duration::from_millis(ms)).await;
            }
        }
        if let Some(ack) = submit.acks.first() {
            self.shared.learn(&ack.conversation, &self.user);
        }
        recorder.write().submits.push(submit.clone());
        submit
    }

    /// Sends the message once. Returns the time to wait before the next attempt, in milliseconds, or nothing if it was
    /// acknowledged.
    async fn send(&self, body: &Value, wait: bool, submit: &mut Submit) -> Option<u64> {
        const AGAIN_MS: u64 = 20;
        let (path, limit) = if wait { ("/api/v1/messages?wait=20", 25) } else { ("/api/v1/messages", 5) };
        let sent = self.post(path).json(body).timeout(Duration::from_secs(limit)).send().await;
        let Ok(answer) = sent else {
            submit.unknown += 1;
            return Some(AGAIN_MS);
        };
        let status = answer.status().as_u16();
        let Ok(submitted) = answer.json::<Value>().await else {
            submit.unknown += 1;
            return Some(AGAIN_MS);
        };
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        match status {
            200 | 202 => {
                submit.acks.push(Ack {
                    at_us: self.shared.recorder.now_us(),
                    task: text(&submitted["task_id"]),
                    conversation: text(&submitted["conversation_id"]),
                    seq: submitted["seq"].as_u64().unwrap_or(0),
                    class: text(&submitted["priority"]),
                    answer: submitted["answer"].as_str().map(str::to_owned),
                });
                None
            }
            500.. => {
                submit.unknown += 1;
                Some(AGAIN_MS)
            }
            _ => {
                submit.refused.push(text(&submitted["code"]));
                Some(submitted["retry_after_ms"].as_u64().unwrap_or(100).clamp(AGAIN_MS, 500))
            }
        }
    }

    async fn read(&self, conversation: &str) {
        let from_us = self.shared.recorder.now_us();
        let Some(page) = json_of(self.get(&format!("/api/v1/conversations/{conversation}/messages?limit=200"))).await
        else {
            return;
        };
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let one = |m: &Value| {
            let tokens = tokens_in(m["text"].as_str().unwrap_or_default());
            (m["seq"].as_u64().unwrap_or(0), text(&m["role"]), text(&m["task_id"]), tokens)
        };
        let messages: Vec<_> = page["messages"].as_array().into_iter().flatten().map(one).collect();
        let is_whole = page["next"].is_null();
        let down_to = if is_whole { 0 } else { messages.iter().map(|m| m.0).min().unwrap_or(0) };
        let (user, conversation) = (self.user.clone(), conversation.to_owned());
        self.shared.recorder.write().reads.push(Read { user, conversation, from_us, down_to, messages });
    }

    async fn cancel(&self, ack: &Ack) {
        let request = self.post(&format!("/api/v1/tasks/{}/cancel", ack.task)).timeout(REQUEST_MAX);
        let done = json_of(request).await.and_then(|v| v["cancelled"].as_bool());
        let cancel = Cancel { conversation: ack.conversation.clone(), task: ack.task.clone(), done };
        self.shared.recorder.write().cancels.push(cancel);
    }

    /// Requests the conversation of another user.
    async fn trespass(&self, rng: &mut StdRng) {
        let others: Vec<_> = self.shared.known().into_iter().filter(|(_, user)| *user != self.user).collect();
        if others.is_empty() {
            return;
        }
        let (conversation, _) = others[rng.random_range(0..others.len())].clone();
        let resources = ["messages", "events", "stream?after=0"];
        let resource = resources[rng.random_range(0..resources.len())];
        let request = self.get(&format!("/api/v1/conversations/{conversation}/{resource}")).timeout(REQUEST_MAX);
        let Ok(answer) = request.send().await else { return };
        let status = answer.status().as_u16();
        // Server errors and rate limits say nothing about access rights.
        if status < 500 && status != 429 {
            let foreign = Foreign { user: self.user.clone(), conversation, status };
            self.shared.recorder.write().foreigns.push(foreign);
        }
    }
}

async fn json_of(request: RequestBuilder) -> Option<Value> {
    let answer = request.timeout(REQUEST_MAX).send().await.ok()?;
    if answer.status() != 200 { None } else { answer.json().await.ok() }
}

/// One conversation of a client.
struct Channel {
    key: String,
    submitted: u32,
    stream: Stream,
    /// Acknowledged tasks whose end the client has not seen.
    open: Vec<String>,
    ended: Vec<String>,
}

/// A client with its conversations.
pub struct Client {
    session: Session,
    rng: StdRng,
    channels: Vec<Channel>,
    channels_made: u32,
}

impl Client {
    pub fn new(session: Session, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed.wrapping_add(session.client as u64));
        let mut client = Self { session, rng, channels: Vec::new(), channels_made: 0 };
        for _ in 0..CHANNELS {
            let channel = client.new_channel();
            client.channels.push(channel);
        }
        client
    }

    fn new_channel(&mut self) -> Channel {
        self.channels_made += 1;
        let (client, user) = (self.session.client, self.session.user.clone());
        Channel {
            key: format!("c{client}-{}", self.channels_made),
            submitted: 0,
            stream: Stream { client, user, ..Stream::default() },
            open: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Creates the note that the client's messages append to. Called before any fault is injected.
    pub async fn prepare(&self) {
        let message =
            OutgoingMessage { channel: "prepare", kind: Kind::Note, class: "high", words: "znew", wait: true };
        let made = self.session.say(&message, false).await;
        assert!(made.acks.iter().any(|a| a.answer.is_some()), "the note was not made: {made:?}");
    }

    /// Sends messages until it is stopped, and then waits for everything that is open.
    pub async fn run(mut self) {
        while !self.session.shared.over.load(Relaxed) {
            let n = self.rng.random_range(0..self.channels.len());
            match self.rng.random_range(0..100) {
                0..74 => self.talk(n).await,
                74..86 => {
                    let conversation = self.channels[n].stream.conversation.clone();
                    if !conversation.is_empty() {
                        self.session.read(&conversation).await;
                    }
                }
                86..93 => self.session.trespass(&mut self.rng).await,
                _ => pause(Duration::from_millis(self.rng.random_range(1..80))).await,
            }
            if self.channels[n].submitted >= CHANNEL_MESSAGES_MAX {
                self.follow(n, true).await;
                let channel = self.new_channel();
                self.leave(n, channel);
            }
        }
        for n in 0..self.channels.len() {
            self.follow(n, true).await;
            let channel = self.new_channel();
            self.leave(n, channel);
        }
    }

    /// Records the stream of a conversation and replaces it by a new conversation.
    fn leave(&mut self, n: usize, channel: Channel) {
        let old = std::mem::replace(&mut self.channels[n], channel);
        if !old.stream.conversation.is_empty() {
            self.session.shared.recorder.write().streams.push(old.stream);
        }
    }

    async fn talk(&mut self, n: usize) {
        let kind = match self.rng.random_range(0..100) {
            0..45 => Kind::Plain,
            45..65 => Kind::Note,
            65..80 => Kind::Agents,
            80..92 => Kind::Send,
            _ => Kind::Slow,
        };
        let may_be_late = matches!(kind, Kind::Plain | Kind::Agents);
        let class = if may_be_late && self.rng.random_bool(0.2) { "normal" } else { "high" };
        let again = self.rng.random_bool(0.08);
        let key = self.channels[n].key.clone();
        let submit =
            self.session.say(&OutgoingMessage { channel: &key, kind, class, words: "", wait: false }, again).await;
        let Some(ack) = submit.acks.first() else { return };
        let channel = &mut self.channels[n];
        channel.submitted += 1;
        channel.stream.conversation.clone_from(&ack.conversation);
        channel.open.push(ack.task.clone());
        if kind == Kind::Slow {
            pause(Duration::from_millis(self.rng.random_range(0..300))).await;
            self.session.cancel(ack).await;
        }
        // Only one turn at a time may append to the note. Other turns may wait behind one another.
        let is_long = self.channels[n].open.len() > 3;
        if kind == Kind::Note || is_long || self.rng.random_bool(0.6) {
            self.follow(n, kind == Kind::Note).await;
        }
    }

    /// Follows a conversation until its open tasks have ended. If `must` is false, gives up after a while.
    async fn follow(&mut self, n: usize, must: bool) {
        let limit = if must { PATIENCE } else { Duration::from_secs(10) };
        let since = Instant::now();
        while !self.channels[n].open.is_empty() && since.elapsed() < limit {
            // A client also closes its connection itself now and then.
            let events_max = if self.rng.random_bool(0.2) { self.rng.random_range(1..8) } else { usize::MAX };
            if !self.connect(n, events_max).await {
                pause(Duration::from_millis(10)).await;
            }
        }
    }

    /// One connection of a stream. Returns false if it could not be opened.
    async fn connect(&mut self, n: usize, events_max: usize) -> bool {
        let channel = &mut self.channels[n];
        let last = channel.stream.seen.last().map_or(channel.stream.after, |s| s.0);
        let path = format!("/api/v1/conversations/{}/stream", channel.stream.conversation);
        let request = self.session.get(&path).header("last-event-id", last.to_string());
        let Ok(Ok(answer)) = tokio::time::timeout(REQUEST_MAX, request.send()).await else { return false };
        if answer.status() != 200 {
            return false;
        }
        channel.stream.connections += 1;
        listen(channel, answer, events_max).await;
        true
    }
}

/// Reads events until no task is open, the connection ends, or `events_max` is reached.
async fn listen(channel: &mut Channel, answer: Response, events_max: usize) {
    use futures_util::StreamExt;
    let mut bytes = answer.bytes_stream();
    let mut text: Vec<u8> = Vec::new();
    let until = channel.stream.seen.len().saturating_add(events_max);
    while !channel.open.is_empty() && channel.stream.seen.len() < until {
        let Ok(Some(Ok(chunk))) = tokio::time::timeout(REQUEST_MAX, bytes.next()).await else { return };
        text.extend_from_slice(&chunk);
        while let Some(end) = text.windows(2).position(|w| w == b"\n\n") {
            let block: Vec<u8> = text.drain(..end + 2).collect();
            take_in(channel, &String::from_utf8_lossy(&block));
        }
    }
}

fn take_in(channel: &mut Channel, block: &str) {
    let field = |name: &str| block.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    if field("event:") == Some("reset") {
        channel.stream.resets += 1;
    }
    let data = field("data:").unwrap_or_default();
    channel.stream.tokens.extend(tokens_in(data));
    let (Some(id), Some(kind)) = (field("id:").and_then(|id| id.parse::<u64>().ok()), field("event:")) else { return };
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    let task = event["task_id"].as_str().unwrap_or_default().to_owned();
    if ["answered", "failed", "cancelled"].contains(&kind) && channel.open.contains(&task) {
        channel.open.retain(|t| *t != task);
        channel.ended.push(task.clone());
    }
    channel.stream.seen.push((id, kind.to_owned(), task));
}
