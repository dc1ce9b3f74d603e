//! Reads bodies: server-sent events with a limit on the first token, on silence and on size, or a whole body with a limit
//! on its size.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use annie_core::message::ModelErrorKind;
use bytes::Bytes;
use eventsource_stream::{EventStreamError, Eventsource};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Response;
use tokio::time::Instant;

use super::OpenAiModel;
use crate::wire::{assemble::Assembler, failure::Failure};

/// What a stream may hold beside the reply itself, as a factor: a chunk's JSON frame around a token.
const FRAME_FACTOR: usize = 64;
/// The least that a stream may hold, in bytes: comments and frames of a short reply under a small limit.
const WIRE_BYTES_MIN: usize = 1024 * 1024;
/// The longest field name with which a stream of events may begin, in bytes.
const FIELD_BYTES_MAX: usize = 6;
/// The longest line of a stream, in bytes: the parser looks at an unfinished line again with every packet.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Reads events into the assembler until the stream ends.
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
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| match error {
            EventStreamError::Transport(failure) => failure,
            EventStreamError::Utf8(_) => Failure::new(ModelErrorKind::Protocol, "the stream is not UTF-8", false),
            EventStreamError::Parser(_) => Failure::new(ModelErrorKind::Protocol, "not server-sent events", false),
        })?;
        assembler.event(&event.data)?;
        started.store(assembler.started(), Ordering::Relaxed);
    }
    Ok(())
}

struct Guarded<S> {
    bytes: S,
    started: Arc<AtomicBool>,
    first_token_by: Instant,
    idle: Duration,
    line_bytes: usize,
    left_bytes: usize,
}

/// The body's bytes under the limits. A first token must come by its time even if the server keeps the line alive with
/// comments; after it only silence counts, and a comment breaks silence.
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
        started,
        first_token_by,
        idle: Duration::from_millis(config.idle_ms_max),
        line_bytes: 0,
        left_bytes: config.reply_bytes_max.saturating_mul(FRAME_FACTOR).max(WIRE_BYTES_MIN),
    };
    stream::unfold(Some(state), move |state| async move {
        let mut state = state?;
        let started = state.started.load(Ordering::Relaxed);
        let until = if started { Instant::now() + state.idle } else { state.first_token_by };
        let result = match tokio::time::timeout_at(until, state.bytes.next()).await {
            Ok(None) => return None,
            Ok(Some(Ok(bytes))) => state.admit(bytes),
            Ok(Some(Err(error))) => Err(model.broken(&error)),
            Err(_) if started => {
                let detail = format!("silence for {} ms in the middle of the reply", config.idle_ms_max);
                Err(Failure::new(ModelErrorKind::Timeout, detail, false))
            }
            Err(_) => Err(model.no_first_token()),
        };
        let next = result.is_ok().then_some(state);
        Some((result, next))
    })
}

impl<S> Guarded<S> {
    /// Counts bytes against the limits of a line and of the whole.
    fn admit(&mut self, bytes: Bytes) -> Result<Bytes, Failure> {
        self.left_bytes = self.left_bytes.saturating_sub(bytes.len());
        self.line_bytes = match bytes.iter().rposition(|b| *b == b'\n') {
            Some(at) => bytes.len() - at,
            None => self.line_bytes + bytes.len(),
        };
        if self.left_bytes == 0 || self.line_bytes > LINE_BYTES_MAX {
            return Err(Failure::new(ModelErrorKind::Protocol, "the stream is larger than allowed", false));
        }
        Ok(bytes)
    }
}

impl OpenAiModel {
    /// A body that broke off.
    fn broken(&self, error: &reqwest::Error) -> Failure {
        let mut failure = self.transport(error);
        if failure.error.kind == ModelErrorKind::Unavailable {
            failure.error.kind = ModelErrorKind::Truncated;
        }
        failure
    }
}

/// The first bytes of a body that are not all white space.
pub(super) async fn beginning(model: &OpenAiModel, response: &mut Response) -> Result<Vec<u8>, Failure> {
    /// Enough to tell events from JSON.
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

/// Whether a body that begins like this is a stream of events.
pub(super) fn is_event_stream(begun: &[u8]) -> bool {
    let begun = begun.trim_ascii_start();
    [&b"data:"[..], b":", b"event:", b"id:", b"retry:"].iter().any(|field| begun.starts_with(field))
}

/// Reads a whole body of at most so many bytes.
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
