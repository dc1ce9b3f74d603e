//! Clients that talk while things are killed: they send, send again when they do not know, follow streams over cut
//! connections, read, cancel, and try doors that are not theirs. Everything is written down.

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

/// How long a client goes on asking after it was told to end: what is open must end by then.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// Conversations that one client has open, and messages in each before it begins another.
const ROOMS: usize = 3;
const ROOM_MESSAGES_MAX: u32 = 25;

/// What all clients share.
pub struct Around {
    pub recorder: Recorder,
    pub url: watch::Receiver<String>,
    pub over: AtomicBool,
    /// Conversations and whose they are.
    known: Mutex<Vec<(String, String)>>,
}

impl Around {
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

/// Who speaks, and with which key.
pub struct Voice {
    pub client: usize,
    pub user: String,
    pub key: String,
    pub http: reqwest::Client,
    pub around: Arc<Around>,
}

/// A message to be said.
pub struct Saying<'a> {
    pub room: &'a str,
    pub kind: Kind,
    pub class: &'a str,
    /// Words besides kind and token.
    pub words: &'a str,
    /// Waits for the answer.
    pub wait: bool,
}

impl Voice {
    fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(self.around.at(path)).bearer_auth(&self.key)
    }

    fn post(&self, path: &str) -> RequestBuilder {
        self.http.post(self.around.at(path)).bearer_auth(&self.key)
    }

    fn patience_is_over(&self, since: Instant) -> bool {
        since.elapsed() > PATIENCE
    }

    /// Says something until it is acknowledged, and now and then once more. Writes it down and gives it back.
    pub async fn say(&self, saying: &Saying<'_>, again: bool) -> Submit {
        let recorder = &self.around.recorder;
        let token = recorder.token(self.client);
        let body = json!({
            "text": format!("{} {} {token}", saying.kind.word(), saying.words),
            "conversation_key": saying.room,
            "client_id": token,
            "priority": saying.class,
            "mode": if saying.kind == Kind::Note { "single_loop" } else { "multi_agent" },
            "verbatim": true,
        });
        let mut submit = Submit {
            client: self.client,
            user: self.user.clone(),
            token,
            kind: saying.kind,
            from_us: recorder.now_us(),
            acks: Vec::new(),
            refused: Vec::new(),
            unknown: 0,
        };
        let since = Instant::now();
        let wanted = if again { 2 } else { 1 };
        while submit.acks.len() < wanted && !self.patience_is_over(since) {
            let wait_ms = self.send(&body, saying.wait, &mut submit).await;
            if let Some(ms) = wait_ms {
                pause(Duration::from_millis(ms)).await;
            }
        }
        if let Some(ack) = submit.acks.first() {
            self.around.learn(&ack.conversation, &self.user);
        }
        recorder.write().submits.push(submit.clone());
        submit
    }

    /// Sends it once. The answer is how long to wait before the next try.
    async fn send(&self, body: &Value, wait: bool, submit: &mut Submit) -> Option<u64> {
        const AGAIN_MS: u64 = 20;
        let (path, limit) = if wait { ("/api/v1/messages?wait=20", 25) } else { ("/api/v1/messages", 5) };
        let sent = self.post(path).json(body).timeout(Duration::from_secs(limit)).send().await;
        let Ok(answer) = sent else {
            submit.unknown += 1;
            return Some(AGAIN_MS);
        };
        let status = answer.status().as_u16();
        let Ok(said) = answer.json::<Value>().await else {
            submit.unknown += 1;
            return Some(AGAIN_MS);
        };
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        match status {
            200 | 202 => {
                submit.acks.push(Ack {
                    at_us: self.around.recorder.now_us(),
                    task: text(&said["task_id"]),
                    conversation: text(&said["conversation_id"]),
                    seq: said["seq"].as_u64().unwrap_or(0),
                    class: text(&said["priority"]),
                    answer: said["answer"].as_str().map(str::to_owned),
                });
                None
            }
            500.. => {
                submit.unknown += 1;
                Some(AGAIN_MS)
            }
            _ => {
                submit.refused.push(text(&said["code"]));
                Some(said["retry_after_ms"].as_u64().unwrap_or(100).clamp(AGAIN_MS, 500))
            }
        }
    }

    async fn read(&self, conversation: &str) {
        let from_us = self.around.recorder.now_us();
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
        self.around.recorder.write().reads.push(Read { user, conversation, from_us, down_to, messages });
    }

    async fn cancel(&self, ack: &Ack) {
        let request = self.post(&format!("/api/v1/tasks/{}/cancel", ack.task)).timeout(REQUEST_MAX);
        let done = json_of(request).await.and_then(|v| v["cancelled"].as_bool());
        let cancel = Cancel { conversation: ack.conversation.clone(), task: ack.task.clone(), done };
        self.around.recorder.write().cancels.push(cancel);
    }

    /// Tries another user's conversation.
    async fn trespass(&self, rng: &mut StdRng) {
        let others: Vec<_> = self.around.known().into_iter().filter(|(_, user)| *user != self.user).collect();
        if others.is_empty() {
            return;
        }
        let (conversation, _) = others[rng.random_range(0..others.len())].clone();
        let ways = ["messages", "events", "stream?after=0"];
        let way = ways[rng.random_range(0..ways.len())];
        let request = self.get(&format!("/api/v1/conversations/{conversation}/{way}")).timeout(REQUEST_MAX);
        let Ok(answer) = request.send().await else { return };
        let status = answer.status().as_u16();
        // Not there at all says nothing about who may see it.
        if status < 500 && status != 429 {
            let foreign = Foreign { user: self.user.clone(), conversation, status };
            self.around.recorder.write().foreigns.push(foreign);
        }
    }
}

async fn json_of(request: RequestBuilder) -> Option<Value> {
    let answer = request.timeout(REQUEST_MAX).send().await.ok()?;
    if answer.status() != 200 { None } else { answer.json().await.ok() }
}

/// One conversation of a client.
struct Room {
    key: String,
    said: u32,
    stream: Stream,
    /// Tasks that were acknowledged and whose end was not seen.
    open: Vec<String>,
    ended: Vec<String>,
}

/// A client's life.
pub struct Client {
    voice: Voice,
    rng: StdRng,
    rooms: Vec<Room>,
    rooms_made: u32,
}

impl Client {
    pub fn new(voice: Voice, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed.wrapping_add(voice.client as u64));
        let mut client = Self { voice, rng, rooms: Vec::new(), rooms_made: 0 };
        for _ in 0..ROOMS {
            let room = client.new_room();
            client.rooms.push(room);
        }
        client
    }

    fn new_room(&mut self) -> Room {
        self.rooms_made += 1;
        let (client, user) = (self.voice.client, self.voice.user.clone());
        Room {
            key: format!("c{client}-{}", self.rooms_made),
            said: 0,
            stream: Stream { client, user, ..Stream::default() },
            open: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Makes the note that it will write into. Before anything is killed.
    pub async fn prepare(&self) {
        let saying = Saying { room: "prepare", kind: Kind::Note, class: "high", words: "znew", wait: true };
        let made = self.voice.say(&saying, false).await;
        assert!(made.acks.iter().any(|a| a.answer.is_some()), "the note was not made: {made:?}");
    }

    /// Talks until it is told to end, and then waits for everything that is open.
    pub async fn live(mut self) {
        while !self.voice.around.over.load(Relaxed) {
            let n = self.rng.random_range(0..self.rooms.len());
            match self.rng.random_range(0..100) {
                0..74 => self.talk(n).await,
                74..86 => {
                    let conversation = self.rooms[n].stream.conversation.clone();
                    if !conversation.is_empty() {
                        self.voice.read(&conversation).await;
                    }
                }
                86..93 => self.voice.trespass(&mut self.rng).await,
                _ => pause(Duration::from_millis(self.rng.random_range(1..80))).await,
            }
            if self.rooms[n].said >= ROOM_MESSAGES_MAX {
                self.follow(n, true).await;
                let room = self.new_room();
                self.leave(n, room);
            }
        }
        for n in 0..self.rooms.len() {
            self.follow(n, true).await;
            let room = self.new_room();
            self.leave(n, room);
        }
    }

    /// Writes a room's stream down and takes another in its place.
    fn leave(&mut self, n: usize, room: Room) {
        let old = std::mem::replace(&mut self.rooms[n], room);
        if !old.stream.conversation.is_empty() {
            self.voice.around.recorder.write().streams.push(old.stream);
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
        let key = self.rooms[n].key.clone();
        let submit = self.voice.say(&Saying { room: &key, kind, class, words: "", wait: false }, again).await;
        let Some(ack) = submit.acks.first() else { return };
        let room = &mut self.rooms[n];
        room.said += 1;
        room.stream.conversation.clone_from(&ack.conversation);
        room.open.push(ack.task.clone());
        if kind == Kind::Slow {
            pause(Duration::from_millis(self.rng.random_range(0..300))).await;
            self.voice.cancel(ack).await;
        }
        // A note is written into by one turn at a time. Other turns may wait in line behind one another.
        let is_long = self.rooms[n].open.len() > 3;
        if kind == Kind::Note || is_long || self.rng.random_bool(0.6) {
            self.follow(n, kind == Kind::Note).await;
        }
    }

    /// Follows a conversation until what is open in it has ended; gives up after a while if that need not be.
    async fn follow(&mut self, n: usize, must: bool) {
        let limit = if must { PATIENCE } else { Duration::from_secs(10) };
        let since = Instant::now();
        while !self.rooms[n].open.is_empty() && since.elapsed() < limit {
            // A client of its own will, too, is cut off now and then.
            let events_max = if self.rng.random_bool(0.2) { self.rng.random_range(1..8) } else { usize::MAX };
            if !self.connect(n, events_max).await {
                pause(Duration::from_millis(10)).await;
            }
        }
    }

    /// One connection of a stream; false if there was none.
    async fn connect(&mut self, n: usize, events_max: usize) -> bool {
        let room = &mut self.rooms[n];
        let last = room.stream.seen.last().map_or(room.stream.after, |s| s.0);
        let path = format!("/api/v1/conversations/{}/stream", room.stream.conversation);
        let request = self.voice.get(&path).header("last-event-id", last.to_string());
        let Ok(Ok(answer)) = tokio::time::timeout(REQUEST_MAX, request.send()).await else { return false };
        if answer.status() != 200 {
            return false;
        }
        room.stream.connections += 1;
        listen(room, answer, events_max).await;
        true
    }
}

/// Takes events in until nothing is open, the connection ends, or it is enough.
async fn listen(room: &mut Room, answer: Response, events_max: usize) {
    use futures_util::StreamExt;
    let mut bytes = answer.bytes_stream();
    let mut text: Vec<u8> = Vec::new();
    let until = room.stream.seen.len().saturating_add(events_max);
    while !room.open.is_empty() && room.stream.seen.len() < until {
        let Ok(Some(Ok(chunk))) = tokio::time::timeout(REQUEST_MAX, bytes.next()).await else { return };
        text.extend_from_slice(&chunk);
        while let Some(end) = text.windows(2).position(|w| w == b"\n\n") {
            let block: Vec<u8> = text.drain(..end + 2).collect();
            take_in(room, &String::from_utf8_lossy(&block));
        }
    }
}

fn take_in(room: &mut Room, block: &str) {
    let field = |name: &str| block.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    if field("event:") == Some("reset") {
        room.stream.resets += 1;
    }
    let data = field("data:").unwrap_or_default();
    room.stream.tokens.extend(tokens_in(data));
    let (Some(id), Some(kind)) = (field("id:").and_then(|id| id.parse::<u64>().ok()), field("event:")) else { return };
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    let task = event["task_id"].as_str().unwrap_or_default().to_owned();
    if ["answered", "failed", "cancelled"].contains(&kind) && room.open.contains(&task) {
        room.open.retain(|t| *t != task);
        room.ended.push(task.clone());
    }
    room.stream.seen.push((id, kind.to_owned(), task));
}
