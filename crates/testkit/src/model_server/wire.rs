//! Turns a [`Reply`] into bytes on the wire: the events of a stream or one JSON body, then the packets, pauses and
//! endings.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    CallShape, Reply, Spoken, messages,
    reply::{Call, Content, Ending},
};

/// One step of sending a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Send(Bytes),
    Wait(Duration),
    Stall,
    Cut,
    Reset,
    Repeat(Bytes),
}

/// The error that makes the server drop a connection.
#[derive(Debug)]
pub(super) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the script breaks this connection")
    }
}

impl std::error::Error for Broken {}

/// The content type and the actions of a reply.
pub(super) fn render(reply: &Reply, spoken: Spoken, streams: bool) -> (&'static str, VecDeque<Action>) {
    let (kind, frames) = match (&reply.content, spoken) {
        (Content::Body(body), _) => ("application/json", vec![body.clone().into_bytes()]),
        (Content::Error { kind, message }, _) => {
            ("application/json", vec![error(reply.status(), spoken, *kind, message).to_string().into_bytes()])
        }
        (Content::Events(events), Spoken::Completions) => ("text/event-stream", framed(reply, events.clone())),
        (Content::Events(events), Spoken::Messages) => ("text/event-stream", messages::framed(reply, events.clone())),
        (Content::Answer { .. }, Spoken::Completions) if streams => ("text/event-stream", framed(reply, chunks(reply))),
        (Content::Answer { .. }, Spoken::Messages) if streams => {
            ("text/event-stream", messages::framed(reply, messages::events(reply)))
        }
        (Content::Answer { .. }, Spoken::Completions) => {
            ("application/json", vec![whole(reply).to_string().into_bytes()])
        }
        (Content::Answer { .. }, Spoken::Messages) => {
            ("application/json", vec![messages::whole(reply).to_string().into_bytes()])
        }
    };
    let mut actions = VecDeque::new();
    actions.extend(reply.first_after.map(Action::Wait));
    if reply.ending == Ending::Endless {
        // The first event of a stream that carries text; a plain body is a single frame.
        let first_text = if spoken == Spoken::Messages { 3 } else { 2 };
        let endless = frames.into_iter().take(first_text).next_back().unwrap_or_default();
        actions.push_back(Action::Repeat(endless.into()));
        return (kind, actions);
    }
    for frame in frames.into_iter().take(reply.ending_after_events) {
        match reply.packet_bytes {
            Some(size) => {
                actions.extend(frame.chunks(size.max(1)).map(|p| Action::Send(Bytes::copy_from_slice(p))));
            }
            None => actions.push_back(Action::Send(frame.into())),
        }
    }
    match reply.ending {
        Ending::Stall => actions.push_back(Action::Stall),
        Ending::Cut => actions.push_back(Action::Cut),
        Ending::Reset => actions.push_back(Action::Reset),
        Ending::Clean | Ending::Endless => {}
    }
    (kind, actions)
}

fn error(status: u16, spoken: Spoken, kind: Option<&str>, message: &str) -> Value {
    match spoken {
        Spoken::Completions => {
            json!({"error": {"message": message, "type": kind.unwrap_or("error"), "param": null, "code": null}})
        }
        Spoken::Messages => messages::error(status, kind, message),
    }
}

/// Counts a client that disconnects before the last action is done.
struct HangUp(Option<Arc<watch::Sender<u64>>>);

impl HangUp {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.send_modify(|n| *n += 1);
        }
    }
}

/// Sends the actions as a body.
pub(super) fn play(
    actions: VecDeque<Action>,
    hung_up: Arc<watch::Sender<u64>>,
) -> impl Stream<Item = Result<Bytes, Broken>> + Send + 'static {
    stream::unfold((actions, HangUp(Some(hung_up))), |(mut actions, mut guard)| async move {
        loop {
            match actions.front().cloned() {
                None => {
                    guard.disarm();
                    return None;
                }
                Some(Action::Repeat(bytes)) => {
                    // Lets the runtime notice a client that has disconnected.
                    tokio::task::yield_now().await;
                    return Some((Ok(bytes), (actions, guard)));
                }
                Some(Action::Stall) => std::future::pending::<()>().await,
                Some(Action::Wait(delay)) => {
                    actions.pop_front();
                    tokio::time::sleep(delay).await;
                }
                Some(action @ (Action::Cut | Action::Reset)) => {
                    if action == Action::Cut {
                        // Lets the server flush what it has.
                        tokio::task::yield_now().await;
                    }
                    guard.disarm();
                    return Some((Err(Broken), (VecDeque::new(), guard)));
                }
                Some(Action::Send(bytes)) => {
                    actions.pop_front();
                    if actions.is_empty() {
                        guard.disarm();
                    }
                    return Some((Ok(bytes), (actions, guard)));
                }
            }
        }
    })
}

/// Server-sent events with these data lines, each in its own frame.
fn framed(reply: &Reply, mut events: Vec<String>) -> Vec<Vec<u8>> {
    if reply.done {
        events.push("[DONE]".to_owned());
    }
    let end = if reply.crlf { "\r\n" } else { "\n" };
    events
        .into_iter()
        .map(|event| {
            let comment = if reply.comments { format!(": OPENROUTER PROCESSING{end}{end}") } else { String::new() };
            format!("{comment}data: {event}{end}{end}").into_bytes()
        })
        .collect()
}

/// The chunks of a streamed completion.
fn chunks(reply: &Reply) -> Vec<String> {
    let Content::Answer { text, reasoning, calls, finish } = &reply.content else {
        return Vec::new();
    };
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    deltas.extend(pieces(reasoning, reply.piece_bytes).map(|p| json!({"reasoning": p})));
    deltas.extend(pieces(text, reply.piece_bytes).map(|p| json!({"content": p})));
    deltas.extend(call_deltas(calls, reply.shape, reply.piece_bytes).into_iter().map(|c| json!({"tool_calls": [c]})));
    let mut chunks: Vec<String> = deltas.into_iter().map(|d| chunk(&d, None)).collect();
    if reply.finished {
        chunks.push(chunk(&json!({}), Some(finish)));
    }
    if !reply.usage.is_null() {
        chunks.push(
            json!({"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model",
            "choices": [], "usage": reply.usage})
            .to_string(),
        );
    }
    chunks
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    json!({"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    .to_string()
}

/// The pieces of a text, each at most `bytes` bytes long but at least one character.
pub(super) fn pieces(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let mut cut = bytes.clamp(first, rest.len().max(first));
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        let (piece, left) = rest.split_at(cut);
        rest = left;
        Some(piece)
    })
}

fn call_deltas(calls: &[Call], shape: CallShape, piece_bytes: usize) -> Vec<Value> {
    let head = |i: usize, call: &Call| json!({"index": i, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}});
    let more = |i: usize, piece: &str| json!({"index": i, "function": {"arguments": piece}});
    let one_by_one = |index: &dyn Fn(usize) -> usize| -> Vec<Value> {
        calls
            .iter()
            .enumerate()
            .flat_map(|(i, call)| {
                std::iter::once(head(index(i), call))
                    .chain(pieces(&call.arguments, piece_bytes).map(|p| more(index(i), p)).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    match shape {
        CallShape::Fragments => one_by_one(&|i| i),
        CallShape::SameIndex => one_by_one(&|_| 0),
        CallShape::Interleaved => {
            let mut deltas: Vec<Value> = calls.iter().enumerate().map(|(i, c)| head(i, c)).collect();
            let mut queues: Vec<VecDeque<&str>> =
                calls.iter().map(|c| pieces(&c.arguments, piece_bytes).collect()).collect();
            while queues.iter().any(|q| !q.is_empty()) {
                for (i, queue) in queues.iter_mut().enumerate() {
                    deltas.extend(queue.pop_front().map(|p| more(i, p)));
                }
            }
            deltas
        }
        CallShape::Whole | CallShape::ObjectArguments | CallShape::NoIndex | CallShape::NoIds => {
            calls.iter().enumerate().map(|(i, call)| whole_call(i, call, shape)).collect()
        }
    }
}

fn whole_call(index: usize, call: &Call, shape: CallShape) -> Value {
    let arguments = match shape {
        CallShape::ObjectArguments => serde_json::from_str(&call.arguments).unwrap_or(Value::Null),
        _ => Value::from(call.arguments.as_str()),
    };
    let mut delta = json!({"type": "function", "function": {"name": call.name, "arguments": arguments}});
    if shape != CallShape::NoIndex {
        delta["index"] = index.into();
    }
    if shape != CallShape::NoIds {
        delta["id"] = call.id.as_str().into();
    }
    delta
}

/// The completion as one JSON body.
fn whole(reply: &Reply) -> Value {
    let Content::Answer { text, reasoning, calls, finish } = &reply.content else {
        return Value::Null;
    };
    let mut message = json!({"role": "assistant", "content": text});
    if !reasoning.is_empty() {
        message["reasoning"] = reasoning.as_str().into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.iter().enumerate().map(|(i, c)| whole_call(i, c, reply.shape)).collect();
    }
    let finish = reply.finished.then_some(finish);
    let mut body = json!({"id": "gen-1", "object": "chat.completion", "created": 1, "model": "fake-model",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}]});
    if !reply.usage.is_null() {
        body["usage"] = reply.usage.clone();
    }
    body
}
