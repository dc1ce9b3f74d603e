//! A response as a JSON object: the repeated fields of its request, and its output items.

use annie_core::{
    ids::TaskId,
    message::{Finish, ToolCall, Usage},
    time::Micros,
};
use serde_json::{Value, json};

use super::{super::turn::Answer, request::ResponseRequest};
use crate::{error::ApiError, http::problem};

/// The fields that every event of one response repeats.
#[derive(Debug, Clone)]
pub struct Label {
    hex: String,
    created_s: i64,
    model: String,
    echoed: Value,
}

impl Label {
    pub fn new(request: &ResponseRequest, task: TaskId, now: Micros) -> Self {
        let hex = task.uuid().simple().to_string();
        Self { hex, created_s: now.0 / 1_000_000, model: request.model.clone(), echoed: request.echoed() }
    }

    /// The id of the message in the response.
    pub fn message_id(&self) -> String {
        format!("msg_{}", self.hex)
    }

    pub fn call_id(&self, n: usize) -> String {
        format!("fc_{}_{n}", self.hex)
    }

    /// The response object with this status and output.
    pub fn object(&self, status: &str, output: Vec<Value>) -> Value {
        let mut object = json!({
            "id": format!("resp_{}", self.hex), "object": "response", "created_at": self.created_s, "status": status,
            "background": false, "error": null, "incomplete_details": null, "model": self.model, "output": output,
            "usage": null, "store": true, "truncation": "disabled", "reasoning": { "effort": null, "summary": null },
        });
        for (name, value) in self.echoed.as_object().into_iter().flatten() {
            object[name] = value.clone();
        }
        object
    }

    /// The response object of a failure.
    pub fn failed(&self, error: &ApiError) -> Value {
        let mut object = self.object("failed", Vec::new());
        let error = &problem::openai(error)["error"];
        object["error"] = json!({ "code": error["code"], "message": error["message"] });
        object
    }
}

/// The text of an answer as an output item.
pub fn message(label: &Label, status: &str, content: Vec<Value>) -> Value {
    json!({ "id": label.message_id(), "type": "message", "status": status, "role": "assistant", "content": content })
}

/// A part of a message's content.
pub fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// A call of a client's tool as an output item.
pub fn call(label: &Label, n: usize, call: &ToolCall, status: &str, arguments: &str) -> Value {
    json!({
        "id": label.call_id(n), "type": "function_call", "status": status, "call_id": call.id, "name": call.name,
        "arguments": arguments,
    })
}

fn usage(cost: &Usage) -> Value {
    json!({
        "input_tokens": cost.input_tokens, "input_tokens_details": { "cached_tokens": cost.cached_tokens },
        "output_tokens": cost.output_tokens, "output_tokens_details": { "reasoning_tokens": cost.reasoning_tokens },
        "total_tokens": cost.input_tokens.saturating_add(cost.output_tokens),
    })
}

/// Whether an answer has text. An answer that consists of calls only has none.
pub const fn has_text(answer: &Answer<'_>) -> bool {
    !answer.text.is_empty() || answer.calls.is_empty()
}

/// The status of an answer in OpenAI's terms: whether it is complete.
pub const fn status_of(answer: &Answer<'_>) -> &'static str {
    if why_cut(answer).is_some() { "incomplete" } else { "completed" }
}

const fn why_cut(answer: &Answer<'_>) -> Option<&'static str> {
    match answer.finish {
        Finish::Length => Some("max_output_tokens"),
        Finish::ContentFilter => Some("content_filter"),
        Finish::Stop | Finish::ToolCalls => None,
    }
}

/// The whole response.
pub fn whole(label: &Label, answer: &Answer<'_>) -> Value {
    with_output(label, answer, answer.text)
}

/// The whole response, of which this text was sent before.
pub fn with_output(label: &Label, answer: &Answer<'_>, text: &str) -> Value {
    let status = status_of(answer);
    let mut output = Vec::new();
    if has_text(answer) || !text.is_empty() {
        output.push(message(label, status, vec![text_part(text)]));
    }
    output.extend(answer.calls.iter().enumerate().map(|(n, c)| call(label, n, c, "completed", &c.arguments)));
    let mut object = label.object(status, output);
    if let Some(reason) = why_cut(answer) {
        object["incomplete_details"] = json!({ "reason": reason });
    }
    object["usage"] = usage(answer.usage.unwrap_or(&Usage::default()));
    object
}
