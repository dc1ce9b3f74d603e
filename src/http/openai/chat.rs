//! `POST /v1/chat/completions`: a message in, and its answer as one piece or as a stream.

use annie_core::message::ToolCall;
use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{
    attempt::{Asked, Attempt},
    chunks::{Chunks, usage},
    request::{ChatRequest, Said, mode_of},
    thread,
    turn::{Answer, TurnWish, begin, failed, name_conversation, on_behalf, streamed},
};
use crate::{
    auth::Caller,
    door::AppState,
    error::Fault,
    http::{extract::Hashed, messages::client_id},
};

/// What every part of one completion says of itself.
#[derive(Debug, Clone)]
pub struct Label {
    pub id: String,
    pub created_s: i64,
    pub model: String,
}

/// The handler.
pub async fn complete(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    Hashed(request, body_sha256, _): Hashed<ChatRequest>,
) -> Result<Response, Fault> {
    let caller = on_behalf(caller, &headers)?;
    request.check()?;
    request.check_roles()?;
    let mode = mode_of(&request.model)?;
    let asked = request.request()?;
    let said = match &asked.thread {
        Some(thread) => Said { text: thread::title(&thread.messages), before: Vec::new() },
        None => request.said()?,
    };
    let is_formed = asked.options.format.is_some();
    let place = request.conversation(&headers);
    let key = client_id(None, &headers)?;
    let this = Asked { surface: "chat", place: place.as_ref(), body_sha256 };
    let attempt = Attempt::of(&state, &caller, &headers, key.as_deref(), this).await?;
    let stateless = place.is_none();
    let wish = TurnWish { stateless, place, mode, text: said.text, preamble: said.before, request: asked };
    let begun = begin(&state, caller, (key, attempt), wish).await?;
    let label = Label {
        id: format!("chatcmpl-{}", begun.task.uuid().simple()),
        created_s: state.kernel.now().0 / 1_000_000,
        model: request.model,
    };
    let conversation = begun.conversation;
    let mut response = if request.stream == Some(true) {
        let with_usage = request.stream_options.and_then(|o| o.include_usage) == Some(true);
        // Of a repeat, drafts may have gone by: only the whole answer is sure. And only that was held against its form.
        let chunks = Chunks::new(label, begun.task, !begun.repeated && !is_formed, with_usage);
        streamed(begun.feed, chunks, begun.stay)
    } else {
        let event = begun.end(&state).await?;
        let Some(answer) = Answer::of(&event.body) else { return Err(failed(&event.body)) };
        Json(whole(&answer, &label)).into_response()
    };
    name_conversation(&mut response, conversation);
    Ok(response)
}

/// The answer in one piece.
fn whole(answer: &Answer<'_>, label: &Label) -> Value {
    let mut message = json!({ "role": "assistant", "content": answer.text, "refusal": null });
    if !answer.calls.is_empty() {
        message["tool_calls"] = answer.calls.iter().map(tool_call).collect();
        if answer.text.is_empty() {
            message["content"] = Value::Null;
        }
    }
    json!({
        "id": label.id, "object": "chat.completion", "created": label.created_s, "model": label.model,
        "choices": [{ "index": 0, "message": message, "finish_reason": answer.finish_reason(), "logprobs": null }],
        "usage": answer.usage.map_or(Value::Null, usage),
    })
}

/// A call as a message holds it.
pub fn tool_call(call: &ToolCall) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}
