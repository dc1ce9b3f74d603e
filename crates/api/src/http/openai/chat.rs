//! `POST /v1/chat/completions`: a message and its answer, whole or as a stream.

use annie_core::message::ToolCall;
use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{
    attempt::{Attempt, RequestIdentity},
    chunks::{Chunks, usage},
    request::{ChatRequest, Prompt, mode_of},
    thread,
    turn::{Answer, TurnOptions, begin, failed, name_conversation, on_behalf, streamed},
};
use crate::{
    api::AppState,
    auth::Caller,
    error::ApiError,
    http::{extract::Hashed, messages::client_id},
};

/// The fields that every part of one completion repeats.
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
) -> Result<Response, ApiError> {
    let caller = on_behalf(caller, &headers)?;
    request.check()?;
    request.check_roles()?;
    let mode = mode_of(&request.model)?;
    let caller_request = request.request()?;
    let prompt = match &caller_request.thread {
        Some(thread) => Prompt { text: thread::title(&thread.messages), before: Vec::new() },
        None => request.prompt()?,
    };
    let is_formed = caller_request.options.format.is_some();
    let conversation_ref = request.conversation(&headers);
    let key = client_id(None, &headers)?;
    let identity = RequestIdentity { surface: "chat", conversation_ref: conversation_ref.as_ref(), body_sha256 };
    let attempt = Attempt::of(&state, &caller, &headers, key.as_deref(), identity).await?;
    let stateless = conversation_ref.is_none();
    let options = TurnOptions {
        stateless,
        conversation_ref,
        mode,
        text: prompt.text,
        preamble: prompt.before,
        request: caller_request,
    };
    let begun = begin(&state, caller, (key, attempt), options).await?;
    let label = Label {
        id: format!("chatcmpl-{}", begun.task.uuid().simple()),
        created_s: state.kernel.now().0 / 1_000_000,
        model: request.model,
    };
    let conversation = begun.conversation;
    let mut response = if request.stream == Some(true) {
        let with_usage = request.stream_options.and_then(|o| o.include_usage) == Some(true);
        // The drafts of a repeated request may be over, so only the whole answer is complete. And only the whole answer was
        // validated against a requested format.
        let chunks = Chunks::new(label, begun.task, !begun.repeated && !is_formed, with_usage);
        streamed(begun.feed, chunks, begun.guard)
    } else {
        let event = begun.end(&state).await?;
        let Some(answer) = Answer::of(&event.body) else { return Err(failed(&event.body)) };
        Json(whole(&answer, &label)).into_response()
    };
    name_conversation(&mut response, conversation);
    Ok(response)
}

/// The whole answer.
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

/// A tool call in the format of a message.
pub fn tool_call(call: &ToolCall) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}
