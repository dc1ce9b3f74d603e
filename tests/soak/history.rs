//! What clients asked and were told, with times, and what was found afterwards: the log, and what was done outside.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// What a message asks for, and so what its turn does.
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
    /// A program that writes to a file: a `once` effect outside the process.
    Send,
}

impl Kind {
    /// The word in the message by which the model knows what to do.
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

/// What was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    pub at_us: u64,
    pub task: String,
    pub conversation: String,
    pub seq: u64,
    pub class: String,
    /// The answer, if it was waited for and came.
    pub answer: Option<String>,
}

/// A message that a client sent, once or more often.
#[derive(Debug, Clone, PartialEq)]
pub struct Submit {
    pub client: usize,
    pub user: String,
    pub token: String,
    pub kind: Kind,
    /// When it was first sent.
    pub from_us: u64,
    /// Every acknowledgement that it got.
    pub acks: Vec<Ack>,
    /// Codes of refusals.
    pub refused: Vec<String>,
    /// How often nobody knows what became of it: no answer, or one that leaves it open.
    pub unknown: u32,
}

/// A conversation's stream as one client saw it, over all its connections.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stream {
    pub client: usize,
    pub user: String,
    pub conversation: String,
    /// Behind which place it began.
    pub after: u64,
    /// Every event: place, kind, task.
    pub seen: Vec<(u64, String, String)>,
    /// Tokens that were in it.
    pub tokens: Vec<String>,
    /// How often the server said that the place does not exist.
    pub resets: u32,
    pub connections: u32,
}

/// What was said, as a client read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub user: String,
    pub conversation: String,
    pub from_us: u64,
    /// The lowest place that the page goes back to.
    pub down_to: u64,
    /// Place, role, task, tokens.
    pub messages: Vec<(u64, String, String, Vec<String>)>,
}

/// A wish to cancel.
#[derive(Debug, Clone, PartialEq)]
pub struct Cancel {
    pub conversation: String,
    pub task: String,
    /// What the server said; nothing if nobody knows.
    pub done: Option<bool>,
}

/// A try to see what belongs to somebody else.
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

/// An event of the log, as far as it is looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEvent {
    pub seq: u64,
    pub task: String,
    pub agent: String,
    pub kind: String,
    /// Of a message: `high`, `normal` …
    pub class: String,
    /// Of a run: its intent.
    pub intent: String,
    /// Of a failure: its code.
    pub code: String,
    /// Tokens in its own words: the message's, the answer's.
    pub tokens: Vec<String>,
    /// Intents of `once` runs that it planned.
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

/// What there is when everything is over.
#[derive(Debug, Default)]
pub struct Found {
    /// By conversation.
    pub logs: BTreeMap<String, Log>,
    /// How often each token was sent by the program, as its file says.
    pub sent: BTreeMap<String, u32>,
    /// How often each token stands in the notes.
    pub noted: BTreeMap<String, u32>,
    /// What `annie doctor` complained about.
    pub doctor: Option<String>,
}

/// Where clients write down what they do.
pub struct Recorder {
    begun: Instant,
    history: Mutex<History>,
    tokens: AtomicU64,
}

impl Recorder {
    pub fn new() -> Self {
        Self { begun: Instant::now(), history: Mutex::default(), tokens: AtomicU64::new(0) }
    }

    /// Microseconds since the beginning.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub fn write(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A word that no other message has: `TK<client>N<number>E`.
    pub fn token(&self, client: usize) -> String {
        format!("TK{client}N{}E", self.tokens.fetch_add(1, Relaxed))
    }

    pub fn take(&self) -> History {
        std::mem::take(&mut *self.write())
    }
}

/// The tokens in a text, in their order.
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
