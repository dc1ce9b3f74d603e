//! The body of a chat completion request. Unknown parameters are ignored, as OpenAI's servers do; an error in a known one names
//! it.

use annie_core::{
    caller::{CallOptions, CallerRequest, Thread},
    event::Mode,
};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    params::{self, SamplingParams, given},
    thread,
};
use crate::{
    api::ConversationRef,
    error::{ApiError, Code},
};

/// The maximum size of the posted history with which a new conversation starts, in bytes; older messages are left out.
pub(super) const PREAMBLE_BYTES_MAX: usize = 128 * 1024;

/// The body of a completion request.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    pub model: String,
    pub messages: Vec<ChatMessage>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    sampling: SamplingParams,
    #[serde(default)]
    n: Option<Value>,
    #[serde(default)]
    logprobs: Option<Value>,
    #[serde(default)]
    logit_bias: Option<Value>,
    #[serde(default)]
    modalities: Option<Value>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    parallel_tool_calls: Option<Value>,
    #[serde(default)]
    functions: Option<Value>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
pub struct StreamOptions {
    #[serde(default)]
    pub include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub struct ChatMessage {
    pub(super) role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<PostedCall>>,
    #[serde(default)]
    pub(super) tool_call_id: Option<String>,
}

/// A call that the model made in an earlier answer.
#[derive(Debug, Deserialize)]
pub struct PostedCall {
    pub id: String,
    pub function: PostedFunction,
}

#[derive(Debug, Deserialize)]
pub struct PostedFunction {
    pub name: String,
    #[serde(default)]
    pub arguments: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

impl ChatMessage {
    /// The text of the message. Parts that cannot be read are named in it, so that the answer can mention them.
    pub(super) fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let part = |p: &Part| match (&p.text, p.kind.as_str()) {
                    (Some(text), _) => text.clone(),
                    (None, kind) => format!("[{kind}: this attachment cannot be read here]"),
                };
                parts.iter().map(part).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl ChatMessage {
    fn is_system(&self) -> bool {
        matches!(self.role.as_str(), "system" | "developer")
    }

    /// Whether the message has no text but only attachments that cannot be read.
    fn is_unreadable(&self) -> bool {
        let Some(Content::Parts(parts)) = &self.content else { return false };
        !parts.is_empty()
            && parts.iter().all(|p| p.text.as_ref().is_none_or(|text| text.trim().is_empty()))
            && parts.iter().any(|p| p.text.is_none())
    }
}

/// The prompt and the messages before it.
#[derive(Debug, PartialEq, Eq)]
pub struct Prompt {
    pub text: String,
    pub before: Vec<(String, String)>,
}

impl ChatRequest {
    /// Refuses parameters that would change the answer if they were supported.
    pub fn check(&self) -> Result<(), ApiError> {
        let lists = |v: &Option<Value>| given(v.as_ref()).is_some_and(|v| v.as_array().is_none_or(|a| !a.is_empty()));
        let is_set = |v: &Option<Value>| given(v.as_ref()).is_some_and(|v| *v != Value::Bool(false));
        let speaks = given(self.modalities.as_ref())
            .is_some_and(|m| m.as_array().is_none_or(|list| list.iter().any(|kind| kind != "text")));
        let biased = given(self.logit_bias.as_ref()).is_some_and(|v| v.as_object().is_none_or(|map| !map.is_empty()));
        params::refuse(&[
            ("functions", lists(&self.functions), "this is the old form of `tools`; use that"),
            ("n", given(self.n.as_ref()).is_some_and(|n| *n != 1), "there is one answer to a message; leave this out"),
            ("logprobs", is_set(&self.logprobs), "probabilities of tokens are not passed on; leave this out"),
            ("logit_bias", biased, "biases of tokens are not passed on; leave this out"),
            ("modalities", speaks, "answers are text; leave this out"),
        ])
    }

    /// The options of the request for the backend. If the request has tools or results of tools, the client keeps the
    /// conversation, which is then returned as a thread.
    pub fn request(&self) -> Result<CallerRequest, ApiError> {
        let tools = params::tools(self.tools.as_ref())?;
        let options: CallOptions = params::options(
            &self.sampling,
            params::format(self.response_format.as_ref(), params::NESTED)?,
            params::tool_choice(self.tool_choice.as_ref(), &tools)?,
            params::switch(self.parallel_tool_calls.as_ref(), "parallel_tool_calls")?,
        )?;
        let with_results = |m: &ChatMessage| m.role == "tool" || m.tool_calls.as_ref().is_some_and(|c| !c.is_empty());
        if tools.is_empty() && !self.messages.iter().any(with_results) {
            let instructions: Vec<String> =
                self.messages.iter().filter(|m| m.is_system()).map(ChatMessage::text).collect();
            return Ok(CallerRequest { options, instructions: instructions.join("\n\n"), ..CallerRequest::default() });
        }
        let (system, messages) = thread::of_messages(&self.messages)?;
        let with_skills = offers_skills(self.metadata.as_ref());
        let thread = Some(Thread { system, messages, tools, with_skills });
        Ok(CallerRequest { options, thread, ..CallerRequest::default() })
    }

    /// Refuses an unknown role.
    pub fn check_roles(&self) -> Result<(), ApiError> {
        const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
        for (n, message) in self.messages.iter().enumerate() {
            if !ROLES.contains(&message.role.as_str()) {
                let why = format!("there is no role {:?}; the roles are {}", message.role, ROLES.join(", "));
                return Err(ApiError::invalid(why).at(format!("messages[{n}].role")));
            }
        }
        Ok(())
    }

    /// The trailing messages of the user as the prompt, and the messages before them. System messages at any position are
    /// instructions.
    pub fn prompt(&self) -> Result<Prompt, ApiError> {
        let messages: Vec<&ChatMessage> = self.messages.iter().filter(|m| !m.is_system()).collect();
        let trailing = messages.iter().rev().take_while(|m| m.role == "user").count();
        let (before, now) = messages.split_at(messages.len() - trailing);
        if !now.is_empty() && now.iter().all(|m| m.is_unreadable()) {
            return Err(attachments_only("messages"));
        }
        let now: Vec<String> = now.iter().map(|m| m.text()).filter(|t| !t.trim().is_empty()).collect();
        if now.is_empty() {
            return Err(ApiError::invalid("the last message must be the user's, and must say something").at("messages"));
        }
        let before = before.iter().map(|m| (m.role.clone(), m.text())).filter(|(_, text)| !text.trim().is_empty());
        Ok(Prompt { text: now.join("\n\n"), before: newest(before.collect()) })
    }

    /// The conversation that the client names, if any.
    pub fn conversation(&self, headers: &HeaderMap) -> Option<ConversationRef> {
        conversation(headers, self.metadata.as_ref())
    }
}

/// The error for a prompt without text: the placeholders of attachments must not count as the user's text.
pub fn attachments_only(field: &str) -> ApiError {
    let why = "the message has only attachments, which cannot be read here: add text";
    ApiError::new(Code::Unsupported, why).at(field)
}

/// The conversation that a client names, if any.
pub fn conversation(headers: &HeaderMap, metadata: Option<&Map<String, Value>>) -> Option<ConversationRef> {
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let key = header("x-openwebui-chat-id")
        .or_else(|| header("x-annie-conversation"))
        .or_else(|| Some(metadata?.get("conversation_id")?.as_str()?.to_owned()))
        .filter(|key| !key.is_empty())?;
    Some(if key.parse::<annie_core::ids::ConversationId>().is_ok() {
        ConversationRef::Id(key)
    } else {
        ConversationRef::Key(key)
    })
}

/// Whether the request enables Annie's skills in addition to the client's tools.
pub fn offers_skills(metadata: Option<&Map<String, Value>>) -> bool {
    metadata.is_some_and(|m| m.get("annie_skills").is_some_and(|v| v == "on"))
}

/// The mode that a model name selects.
pub fn mode_of(model: &str) -> Result<Option<Mode>, ApiError> {
    known_mode(model).ok_or_else(|| {
        let known = super::model_ids().join(", ");
        let mut error = ApiError::not_found("model").at("model");
        error.detail = format!("there is no model {model:?}; the models are {known}");
        error
    })
}

/// The mode that a model name selects; nothing if there is no such model.
#[expect(clippy::option_option, reason = "the plain name leaves the mode to the conversation")]
pub fn known_mode(model: &str) -> Option<Option<Mode>> {
    match model.strip_prefix("annie")? {
        "" => Some(None),
        agent => {
            let agent = agent.strip_prefix('/')?;
            super::MODES.into_iter().find(|m| m.as_str() == agent).map(Some)
        }
    }
}

/// The newest messages that fit into [`PREAMBLE_BYTES_MAX`].
pub fn newest(mut before: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut bytes = 0;
    let keep = before.iter().rev().take_while(|(_, text)| {
        bytes += text.len();
        bytes <= PREAMBLE_BYTES_MAX
    });
    let keep = keep.count();
    before.split_off(before.len() - keep)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(body: Value) -> ChatRequest {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn chat_request_takes_trailing_user_messages_as_prompt() {
        let prompt = request(json!({"model": "annie", "messages": [
            {"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "tool_calls": []}, {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "x"}}]},
            {"role": "user", "content": "What is it?"},
        ]}));
        assert_eq!(prompt.request().unwrap().instructions, "Be kind.");
        let prompt = prompt.prompt().unwrap();
        assert_eq!(prompt.text, "Look:\n[image_url: this attachment cannot be read here]\n\nWhat is it?");
        let pair = |role: &str, text: &str| (role.to_owned(), text.to_owned());
        assert_eq!(prompt.before, [pair("user", "Hi"), pair("assistant", "Hello")]);
    }

    #[test]
    fn chat_request_drops_oldest_messages_of_long_history() {
        let long = "x".repeat(PREAMBLE_BYTES_MAX - 1);
        let prompt = request(json!({"model": "annie", "messages": [
            {"role": "user", "content": "old"}, {"role": "assistant", "content": long}, {"role": "user", "content": "now"},
        ]}));
        assert_eq!(prompt.prompt().unwrap().before.len(), 1);
    }

    #[test]
    fn chat_request_refuses_unsupported_parameters_but_not_empty_ones() {
        let with = |key: &str, value: Value| {
            let mut body = json!({"model": "annie", "messages": [{"role": "user", "content": "x"}]});
            body[key] = value;
            request(body).check().err().map(|f| (f.code, f.field.unwrap()))
        };
        assert_eq!(with("functions", json!([{}])), Some((Code::Unsupported, "functions".into())));
        assert_eq!(with("logprobs", json!(true)), Some((Code::Unsupported, "logprobs".into())));
        assert_eq!(with("modalities", json!(["text", "audio"])), Some((Code::Unsupported, "modalities".into())));
        assert_eq!(with("n", json!(2)), Some((Code::Unsupported, "n".into())));
        for (key, value) in
            [("tools", json!([])), ("logprobs", json!(false)), ("n", json!(1)), ("service_tier", json!("auto"))]
        {
            assert_eq!(with(key, value), None, "{key}");
        }
        let silent = request(json!({"model": "annie", "messages": [{"role": "assistant", "content": "x"}]}));
        assert_eq!(silent.prompt().unwrap_err().field.as_deref(), Some("messages"));
        let image = json!({"type": "image_url", "image_url": {"url": "x"}});
        let only = |parts: Value| request(json!({"model": "annie", "messages": [{"role": "user", "content": parts}]}));
        for parts in [json!([image]), json!([image, {"type": "text", "text": " "}])] {
            let refused = only(parts).prompt().unwrap_err();
            assert!(refused.code == Code::Unsupported && refused.detail.contains("attachments"), "{refused:?}");
        }
        assert!(only(json!([image, {"type": "text", "text": "what is it?"}])).prompt().is_ok());
    }

    #[test]
    fn chat_request_conversation_comes_from_header_or_metadata() {
        let body = json!({"model": "annie", "messages": [], "metadata": {"conversation_id": "m"}});
        let mut headers = HeaderMap::new();
        assert_eq!(request(body.clone()).conversation(&headers), Some(ConversationRef::Key("m".into())));
        headers.insert("x-annie-conversation", "a".parse().unwrap());
        assert_eq!(request(body.clone()).conversation(&headers), Some(ConversationRef::Key("a".into())));
        let id = format!("conv_{}", "0".repeat(32));
        headers.insert("x-openwebui-chat-id", id.parse().unwrap());
        assert_eq!(request(body).conversation(&headers), Some(ConversationRef::Id(id)));
    }

    #[test]
    fn model_name_selects_the_mode() {
        assert_eq!(known_mode("annie"), Some(None));
        assert_eq!(known_mode("annie/direct"), Some(Some(Mode::Direct)));
        for bad in ["gpt-4o", "annie/", "annie/x", "anniedirect", ""] {
            assert_eq!(known_mode(bad), None, "{bad}");
        }
    }
}
