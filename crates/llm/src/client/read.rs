//! Reads response bodies: server-sent events with limits on the first token, on silence and on size, or a whole body with a
//! limit on its size.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use annie_core::message::ModelErrorKind;
use bytes::{Buf, Bytes};
use eventsource_stream::{EventStreamError, Eventsource};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Response;
use tokio::time::Instant;

use super::OpenAiModel;
use crate::wire::{assemble::Assembler, failure::Failure};

/// Size limit of a stream, as a multiple of the reply's limit: each token has a JSON frame around it.
const FRAME_FACTOR: usize = 64;
/// Lower bound for a stream's size limit, in bytes: comments and frames of a short reply under a small limit.
const WIRE_BYTES_MIN: usize = 1024 * 1024;
/// Length of the longest field name that an event stream may begin with, in bytes.
const FIELD_BYTES_MAX: usize = 6;
/// Size limit for one event, in bytes. The parser keeps an event whole, and reads an unfinished line again with every
/// packet.
const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes handed to the parser at once: with every line, the parser moves all bytes that it has not read yet.
const SLICE_BYTES_MAX: usize = 8 * 1024;
/// The UTF-8 byte order mark, which some servers send before the text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Time limit for a stream to close after its last event, in milliseconds. A connection that is closed properly can be
/// reused.
const CLOSE_MS_MAX: u64 = 100;
/// Time limit for silence after the stop reason, in milliseconds: the usage comes then. Gateways that repeat a stop reason
/// in every event send text after it.
const REST_MS_MAX: u64 = 2_000;

/// Reads events into the assembler until the reply is complete or the stream ends. A connection error after a complete
/// reply is not a failure.
pub(super) async fn events(
    model: &OpenAiModel,
    begun: Vec<u8>,
    response: Response,
    first_token_by: Instant,
    assembler: &mut Assembler<'_>,
) -> Result<(), Failure> {
    let started = Arc::new(AtomicBool::new(false));
    let guarded = guarded(model, begun, response, first_token_by, Arc::clone(&started));
    let mut events = pin!(guarded.eventsource());
    let mut end_by: Option<Instant> = None;
    loop {
        let event = match end_by {
            Some(end_by) => tokio::time::timeout_at(end_by, events.next()).await.unwrap_or_default(),
            None => events.next().await,
        };
        let event = match event {
            Some(Ok(event)) if !assembler.is_done() => event,
            Some(Err(error)) if end_by.is_none() => return Err(unreadable(error)),
            _ => return Ok(()),
        };
        assembler.event(&event.data)?;
        started.store(assembler.started(), Ordering::Relaxed);
        if assembler.is_done() {
            end_by = Some(Instant::now() + Duration::from_millis(CLOSE_MS_MAX));
        } else if assembler.is_whole() {
            end_by = Some(Instant::now() + Duration::from_millis(REST_MS_MAX));
        }
    }
}

fn unreadable(error: EventStreamError<Failure>) -> Failure {
    match error {
        EventStreamError::Transport(failure) => failure,
        EventStreamError::Utf8(_) => Failure::new(ModelErrorKind::Protocol, "the stream is not UTF-8", false),
        EventStreamError::Parser(_) => Failure::new(ModelErrorKind::Protocol, "not server-sent events", false),
    }
}

struct Guarded<S> {
    bytes: S,
    /// Received bytes that have not been passed to the parser yet.
    pending: Bytes,
    has_begun: bool,
    started: Arc<AtomicBool>,
    first_token_by: Instant,
    idle: Duration,
    /// Bytes of the current line (`line_bytes`) and of the current event (`event_bytes`), without line ends.
    line_bytes: usize,
    event_bytes: usize,
    is_after_cr: bool,
    left_bytes: usize,
}

/// The body's bytes under the limits. The first token must arrive in time, even if the server keeps the connection alive
/// with comments. After it only silence is limited, and a comment counts as activity.
fn guarded<'a>(
    model: &'a OpenAiModel,
    begun: Vec<u8>,
    response: Response,
    first_token_by: Instant,
    started: Arc<AtomicBool>,
) -> impl Stream<Item = Result<Bytes, Failure>> + Send + 'a {
    let config = &model.config;
    let state = Guarded {
        bytes: Box::pin(stream::iter([Ok(Bytes::from(begun))]).chain(response.bytes_stream())),
        pending: Bytes::new(),
        has_begun: false,
        started,
        first_token_by,
        idle: Duration::from_millis(config.idle_ms_max),
        line_bytes: 0,
        event_bytes: 0,
        is_after_cr: false,
        left_bytes: config.reply_bytes_max.saturating_mul(FRAME_FACTOR).max(WIRE_BYTES_MIN),
    };
    stream::unfold(Some(state), move |state| async move {
        let mut state = state?;
        let result = loop {
            if let Some(slice) = state.slice() {
                break state.admit(slice);
            }
            let started = state.started.load(Ordering::Relaxed);
            let until = if started { Instant::now() + state.idle } else { state.first_token_by };
            match tokio::time::timeout_at(until, state.bytes.next()).await {
                Ok(None) => return None,
                Ok(Some(Ok(bytes))) => state.push(bytes),
                Ok(Some(Err(error))) => break Err(model.broken(&error)),
                Err(_) if started => {
                    let detail = format!("silence for {} ms in the middle of the reply", config.idle_ms_max);
                    break Err(Failure::new(ModelErrorKind::Timeout, detail, false));
                }
                Err(_) => break Err(model.no_first_token()),
            }
        };
        let next = result.is_ok().then_some(state);
        Some((result, next))
    })
}

impl<S> Guarded<S> {
    /// Appends received bytes, and removes a byte order mark at the beginning of the body.
    fn push(&mut self, bytes: Bytes) {
        self.pending = if self.pending.is_empty() { bytes } else { [&self.pending[..], &bytes[..]].concat().into() };
        if !self.has_begun && self.pending.len() >= BYTE_ORDER_MARK.len() {
            self.has_begun = true;
            if self.pending.starts_with(BYTE_ORDER_MARK) {
                self.pending.advance(BYTE_ORDER_MARK.len());
            }
        }
    }

    /// Takes the next bytes for the parser.
    fn slice(&mut self) -> Option<Bytes> {
        let bytes = self.pending.len().min(SLICE_BYTES_MAX);
        (self.has_begun && bytes > 0).then(|| self.pending.split_to(bytes))
    }

    /// Counts bytes against the limits of one event and of the whole stream.
    fn admit(&mut self, bytes: Bytes) -> Result<Bytes, Failure> {
        self.left_bytes = self.left_bytes.saturating_sub(bytes.len());
        for byte in &bytes {
            match byte {
                b'\n' if self.is_after_cr => {}
                b'\n' | b'\r' => {
                    // An empty line ends an event.
                    self.event_bytes = if self.line_bytes == 0 { 0 } else { self.event_bytes };
                    self.line_bytes = 0;
                }
                _ => {
                    self.line_bytes += 1;
                    self.event_bytes += 1;
                }
            }
            self.is_after_cr = *byte == b'\r';
        }
        if self.left_bytes == 0 || self.event_bytes > EVENT_BYTES_MAX {
            return Err(Failure::new(ModelErrorKind::Protocol, "the stream is larger than allowed", false));
        }
        Ok(bytes)
    }
}

impl OpenAiModel {
    /// Converts an error in the middle of a body.
    fn broken(&self, error: &reqwest::Error) -> Failure {
        let mut failure = self.transport(error);
        if failure.error.kind == ModelErrorKind::Unavailable {
            failure.error.kind = ModelErrorKind::Truncated;
        }
        failure
    }
}

/// Reads the first chunks of a body, until enough bytes that are not white space have come to recognise its format.
pub(super) async fn beginning(model: &OpenAiModel, response: &mut Response) -> Result<Vec<u8>, Failure> {
    /// Enough to distinguish events from JSON.
    const BYTES_MAX: usize = 1024;
    let mut begun = Vec::new();
    while begun.len() < BYTES_MAX && begun.trim_ascii().len() < FIELD_BYTES_MAX {
        let Some(bytes) = response.chunk().await.map_err(|error| model.broken(&error))? else { break };
        begun.extend_from_slice(&bytes);
        if begun.trim_ascii_start().starts_with(b"{") {
            break;
        }
    }
    Ok(begun)
}

/// Whether a body that begins with these bytes is an event stream.
pub(super) fn is_event_stream(begun: &[u8]) -> bool {
    let begun = without_mark(begun).trim_ascii_start();
    [&b"data:"[..], b":", b"event:", b"id:", b"retry:"].iter().any(|field| begun.starts_with(field))
}

/// Removes a byte order mark at the beginning.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Reads a whole body of at most `bytes_max` bytes.
pub(super) async fn whole(
    model: &OpenAiModel,
    begun: Vec<u8>,
    mut response: Response,
    bytes_max: usize,
) -> Result<Vec<u8>, Failure> {
    let mut body = begun;
    while let Some(bytes) = response.chunk().await.map_err(|error| model.broken(&error))? {
        if body.len() + bytes.len() > bytes_max {
            let detail = format!("the response is larger than {bytes_max} bytes");
            return Err(Failure::new(ModelErrorKind::Protocol, detail, false));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

#[cfg(test)]
mod tests;
