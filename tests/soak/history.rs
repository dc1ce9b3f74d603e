//! What clients requested and received, with times, and what was found afterwards: the log, and the external effects.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// The work that a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An answer.
    Plain,
    /// An answer after a while: something to cancel.
    Slow,
    /// A note that is appended to: one skill, `idempotent`.
    Note,
    /// Two sub-agents, one skill each.
    Agents,
    /// The agentic backend writes to a file: a `once` effect outside the process.
    Send,
}

impl Kind {
    /// The word in the message by which the model recognises the kind.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Plain => "zplain",
            Self::Slow => "zslow",
            Self::Note => "znote",
            Self::Agents => "zagents",
            Self::Send => "zsend",
        }
    }

    /// The kind that a text asks for.
    pub fn of(text: &str) -> Option<Self> {
        [Self::Plain, Self::Slow, Self::Note, Self::Agents, Self::Send].into_iter().find(|k| text.contains(k.word()))
    }
}

/// An acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    pub at_us: u64,
    pub task: String,
    pub conversation: String,
    pub seq: u64,
    pub class: String,
    /// The answer, if the client waited for it and it came.
    pub answer: Option<String>,
}

/// A message that a client sent, once or several times.
#[derive(Debug, Clone, PartialEq)]
pub struct Submit {
    pub client: usize,
    pub user: String,
    pub token: String,
    pub kind: Kind,
    /// The time of the first attempt.
    pub from_us: u64,
    /// All acknowledgements of the message.
    pub acks: Vec<Ack>,
    /// The codes of its refusals.
    pub refused: Vec<String>,
    /// The number of attempts with an unknown outcome: no reply, or one that leaves it open.
    pub unknown: u32,
}

/// A conversation's stream as one client saw it, over all its connections.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stream {
    pub client: usize,
    pub user: String,
    pub conversation: String,
    /// The sequence number after which the stream began.
    pub after: u64,
    /// All events: sequence number, kind, task.
    pub seen: Vec<(u64, String, String)>,
    /// The tokens in the stream.
    pub tokens: Vec<String>,
    /// How often the server reported that the position does not exist.
    pub resets: u32,
    pub connections: u32,
}

/// The messages of a conversation as a client read them.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub user: String,
    pub conversation: String,
    pub from_us: u64,
    /// The lowest sequence number that the page covers.
    pub down_to: u64,
    /// Sequence number, role, task, tokens.
    pub messages: Vec<(u64, String, String, Vec<String>)>,
}

/// A cancellation request.
#[derive(Debug, Clone, PartialEq)]
pub struct Cancel {
    pub conversation: String,
    pub task: String,
    /// The reply of the server; nothing if the outcome is unknown.
    pub done: Option<bool>,
}

/// An attempt to see a conversation of another user.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreign {
    pub user: String,
    pub conversation: String,
    pub status: u16,
}

/// Everything that clients did and saw.
#[derive(Debug, Default)]
pub struct History {
    pub submits: Vec<Submit>,
    pub streams: Vec<Stream>,
    pub reads: Vec<Read>,
    pub cancels: Vec<Cancel>,
    pub foreigns: Vec<Foreign>,
}

/// An event of the log, as far as it is checked.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEvent {
    pub seq: u64,
    pub task: String,
    pub agent: String,
    pub kind: String,
    /// The class of a message: `high`, `normal` …
    pub class: String,
    /// The intent of a run.
    pub intent: String,
    /// The code of a failure.
    pub code: String,
    /// The tokens in the event's own text: that of the message or the answer.
    pub tokens: Vec<String>,
    /// The intents of `once` runs that the event planned.
    pub once: Vec<String>,
}

impl LogEvent {
    pub fn is_final(&self) -> bool {
        ["answered", "failed", "cancelled"].contains(&self.kind.as_str())
    }
}

/// A conversation's log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Log {
    pub user: String,
    pub events: Vec<LogEvent>,
}

/// The state after a soak.
#[derive(Debug, Default)]
pub struct Found {
    /// The logs by conversation.
    pub logs: BTreeMap<String, Log>,
    /// How often the agentic backend sent each token, according to its file.
    pub sent: BTreeMap<String, u32>,
    /// How often each token is in the notes.
    pub noted: BTreeMap<String, u32>,
    /// The fault that `annie doctor` reported.
    pub doctor: Option<String>,
}

/// Records what the clients do.
pub struct Recorder {
    begun: Instant,
    history: Mutex<History>,
    tokens: AtomicU64,
}

impl Recorder {
    pub fn new() -> Self {
        Self { begun: Instant::now(), history: Mutex::default(), tokens: AtomicU64::new(0) }
    }

    /// Microseconds since the start.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub fn write(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A word that is in no other message: `TK<client>N<number>E`.
    pub fn token(&self, client: usize) -> String {
        format!("TK{client}N{}E", self.tokens.fetch_add(1, Relaxed))
    }

    pub fn take(&self) -> History {
        std::mem::take(&mut *self.write())
    }
}

/// The tokens in a text, in order.
pub fn tokens_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("TK") {
        let rest = text.get(at + 2..).unwrap_or_default();
        let inner = rest.find(|c: char| !c.is_ascii_digit() && c != 'N').unwrap_or(rest.len());
        if inner > 2 && rest.get(inner..).is_some_and(|r| r.starts_with('E')) {
            found.extend(text.get(at..at + 3 + inner).map(str::to_owned));
        }
    }
    found
}
