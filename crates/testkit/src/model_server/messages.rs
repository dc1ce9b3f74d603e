//! Replies in the protocol of Anthropic's Messages: the events of a stream, a whole message, an error.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{
    CallShape, Reply,
    reply::{Call, Content},
    wire::pieces,
};

/// The signature of a thinking block, which shows whether a later request has changed it.
pub(super) fn signature(thought: &str) -> String {
    let sum = thought.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("c2ln{sum:016x}")
}

/// An error of the kind that belongs to the status, unless `kind` names one.
pub(super) fn error(status: u16, kind: Option<&str>, message: &str) -> Value {
    let kind = kind.unwrap_or(match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        529 => "overloaded_error",
        _ => "api_error",
    });
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
}

/// Frames with the names of the events. If the reply has comments, ping events are added as well.
pub(super) fn framed(reply: &Reply, events: Vec<String>) -> Vec<Vec<u8>> {
    let end = if reply.crlf { "\r\n" } else { "\n" };
    let ping = format!(": a comment{end}{end}event: ping{end}data: {{\"type\": \"ping\"}}{end}{end}");
    events
        .into_iter()
        .map(|event| {
            let parsed: Value = serde_json::from_str(&event).unwrap_or(Value::Null);
            let name = parsed["type"].as_str().unwrap_or("message");
            let before = if reply.comments { ping.as_str() } else { "" };
            format!("{before}event: {name}{end}data: {event}{end}{end}").into_bytes()
        })
        .collect()
}

fn usage(reply: &Reply) -> (Value, Value) {
    if reply.usage.is_null() {
        return (Value::Null, Value::Null);
    }
    let of = |path: &str| reply.usage.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let (cached, written) =
        (of("/prompt_tokens_details/cached_tokens"), of("/prompt_tokens_details/cache_write_tokens"));
    let plain = of("/prompt_tokens").saturating_sub(cached).saturating_sub(written);
    let prompt = json!({"input_tokens": plain, "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written, "output_tokens": 1});
    (prompt, json!({"output_tokens": of("/completion_tokens")}))
}

fn stop_reason(reply: &Reply, finish: &str) -> Value {
    if !reply.finished {
        return Value::Null;
    }
    let reason = match finish {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    };
    reason.into()
}

/// The events of a streamed message.
pub(super) fn events(reply: &Reply) -> Vec<String> {
    let Content::Answer { text, reasoning, calls, finish } = &reply.content else { return Vec::new() };
    let (prompt, answer) = usage(reply);
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "fake-model", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": prompt});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    let mut index = 0;
    let mut block = |empty: Value, deltas: Vec<Value>| {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": empty}));
        events.extend(
            deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !reasoning.is_empty() {
        let mut deltas: Vec<Value> = pieces(reasoning, reply.piece_bytes)
            .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
            .collect();
        deltas.push(json!({"type": "signature_delta", "signature": signature(reasoning)}));
        block(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
    }
    if !text.is_empty() || calls.is_empty() {
        let deltas = pieces(text, reply.piece_bytes).map(|piece| json!({"type": "text_delta", "text": piece}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    events.extend(call_events(calls, index, reply));
    events.push(json!({"type": "message_delta",
        "delta": {"stop_reason": stop_reason(reply, finish), "stop_sequence": null}, "usage": answer}));
    if reply.done {
        events.push(json!({"type": "message_stop"}));
    }
    events.into_iter().map(|event| event.to_string()).collect()
}

/// The blocks of the calls: one after the other, interleaved, or each complete at its start.
fn call_events(calls: &[Call], first: usize, reply: &Reply) -> Vec<Value> {
    let is_whole = !matches!(reply.shape, CallShape::Fragments | CallShape::SameIndex | CallShape::Interleaved);
    let begin = |at: usize, call: &Call| {
        let id = if reply.shape == CallShape::NoIds { "" } else { &call.id };
        let input = if is_whole { serde_json::from_str(&call.arguments).unwrap_or(json!({})) } else { json!({}) };
        let block = json!({"type": "tool_use", "id": id, "name": call.name, "input": input});
        json!({"type": "content_block_start", "index": first + at, "content_block": block})
    };
    let more = |at: usize, piece: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": piece});
        json!({"type": "content_block_delta", "index": first + at, "delta": delta})
    };
    let stop = |at: usize| json!({"type": "content_block_stop", "index": first + at});
    let mut events = Vec::new();
    if reply.shape == CallShape::Interleaved {
        events.extend(calls.iter().enumerate().map(|(at, call)| begin(at, call)));
        let mut queues: Vec<VecDeque<&str>> =
            calls.iter().map(|call| pieces(&call.arguments, reply.piece_bytes).collect()).collect();
        while queues.iter().any(|queue| !queue.is_empty()) {
            for (at, queue) in queues.iter_mut().enumerate() {
                events.extend(queue.pop_front().map(|piece| more(at, piece)));
            }
        }
        events.extend((0..calls.len()).map(stop));
        return events;
    }
    for (at, call) in calls.iter().enumerate() {
        events.push(begin(at, call));
        if !is_whole {
            events.extend(pieces(&call.arguments, reply.piece_bytes).map(|piece| more(at, piece)));
        }
        events.push(stop(at));
    }
    events
}

/// The message as one body.
pub(super) fn whole(reply: &Reply) -> Value {
    let Content::Answer { text, reasoning, calls, finish } = &reply.content else { return Value::Null };
    let mut content = Vec::new();
    if !reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": reasoning, "signature": signature(reasoning)}));
    }
    if !text.is_empty() || calls.is_empty() {
        content.push(json!({"type": "text", "text": text}));
    }
    content.extend(calls.iter().map(|call| {
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or(json!({}));
        json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
    }));
    let (mut usage, answer) = usage(reply);
    if let (Value::Object(usage), Value::Object(answer)) = (&mut usage, answer) {
        usage.extend(answer);
    }
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "fake-model", "content": content,
        "stop_reason": stop_reason(reply, finish), "stop_sequence": null, "usage": usage})
}

/// The texts of a request by role; `system` and `tool` are blocks in this protocol, not messages.
pub(super) fn texts_of(body: &Value, role: &str) -> Vec<String> {
    let blocks = |content: &Value, kind: &str, field: &str| -> Vec<String> {
        let parts = content.as_array().into_iter().flatten().filter(|part| part["type"] == kind);
        parts.map(|part| part[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    if role == "system" {
        let text = body["system"].as_str().map(str::to_owned);
        return text.into_iter().chain(Some(blocks(&body["system"], "text", "text").concat())).collect();
    }
    let from = if role == "tool" { "user" } else { role };
    let messages = body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == from);
    messages
        .flat_map(|message| match (role, message["content"].as_str()) {
            ("tool", _) => blocks(&message["content"], "tool_result", "content"),
            (_, Some(text)) => vec![text.to_owned()],
            (_, None) => Some(blocks(&message["content"], "text", "text").concat())
                .filter(|text| !text.is_empty())
                .into_iter()
                .collect(),
        })
        .collect()
}
