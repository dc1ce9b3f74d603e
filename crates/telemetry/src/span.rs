//! Spans, and the ids that follow from the log: the same log always gives the same spans.

use std::fmt;

use annie_core::{ids::TaskId, time::Micros};
use sha2::{Digest, Sha256};

use crate::names;

/// The id of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub [u8; 16]);

impl TraceId {
    /// The trace of a task: its UUID. Therefore the digits of a task's id find its trace.
    #[must_use]
    pub fn of(task: TaskId) -> Self {
        Self(*task.uuid().as_bytes())
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The id of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// The span of a part of a task. `key` is unique in the task, and follows from the log.
    #[must_use]
    pub fn of(task: TaskId, key: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(task.uuid().as_bytes());
        hash.update(key.as_bytes());
        let digest = hash.finalize();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        // An id of zeros stands for "no span".
        bytes[7] |= u8::from(bytes == [0; 8]);
        Self(bytes)
    }

    /// The span of a task's message, the parent of all other spans of the task.
    #[must_use]
    pub fn of_message(task: TaskId) -> Self {
        Self::of(task, names::MESSAGE)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work within Annie.
    Internal,
    /// A request that Annie received.
    Server,
    /// A request that Annie sent.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// A flag.
    Flag(bool),
    /// A list of texts.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// An attribute: its name, and its value.
pub type Attribute = (&'static str, Value);

/// An event of a span: a point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// The kind of the stored event.
    pub name: &'static str,
    /// The time.
    pub at: Micros,
    /// The attributes.
    pub attributes: Vec<Attribute>,
}

/// A reference to a span of another trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
}

impl Link {
    /// The message of a task.
    pub fn to(task: TaskId) -> Self {
        Self { trace: TraceId::of(task), span: SpanId::of_message(task) }
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace.
    pub trace: TraceId,
    /// The id.
    pub id: SpanId,
    /// The parent; `None` for the first span of a trace.
    pub parent: Option<SpanId>,
    /// The name.
    pub name: String,
    /// The role.
    pub kind: SpanKind,
    /// The start.
    pub start: Micros,
    /// The end; not before the start.
    pub end: Micros,
    /// The attributes.
    pub attributes: Vec<Attribute>,
    /// What occurred within the span.
    pub marks: Vec<Mark>,
    /// Spans of other traces.
    pub links: Vec<Link>,
    /// The error code, if the span failed.
    pub error: Option<String>,
}

impl Span {
    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }

    /// Marks the span as failed.
    pub fn fail(&mut self, code: &str) {
        self.set(names::ERROR_TYPE, code);
        self.error = Some(code.to_owned());
    }
}
