//! The body of a response request.

use annie_core::{
    caller::CallOptions,
    message::{Message, ToolCall, ToolDef},
};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::{
    params::{self, SamplingParams, given, shown},
    request,
    thread::Reader,
};
use crate::{
    api::ConversationRef,
    error::{ApiError, Code},
};

/// The body. The types of optional fields are checked manually, so that an error names the field.
#[derive(Debug, Deserialize)]
pub struct ResponseRequest {
    pub model: String,
    input: Value,
    #[serde(default)]
    pub instructions: Option<String>,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(flatten)]
    sampling: SamplingParams,
    #[serde(default)]
    text: Option<Value>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    parallel_tool_calls: Option<Value>,
    #[serde(default)]
    background: Option<Value>,
    #[serde(default)]
    prompt: Option<Value>,
    #[serde(default)]
    conversation: Option<Value>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

impl ResponseRequest {
    /// Refuses parameters that would change the answer if they were supported.
    pub fn check(&self) -> Result<(), ApiError> {
        let is_set = |v: &Option<Value>| given(v.as_ref()).is_some_and(|v| *v != Value::Bool(false));
        params::refuse(&[
            ("background", is_set(&self.background), "post to /api/v1/messages for work in the background"),
            ("prompt", is_set(&self.prompt), "stored prompts are not kept here; send the text as `instructions`"),
            (
                "conversation",
                is_set(&self.conversation) && self.previous_response_id.is_some(),
                "give `conversation` or `previous_response_id`, not both",
            ),
        ])
    }

    pub fn previous(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// The conversation that the client names, if any.
    pub fn conversation(&self, headers: &HeaderMap) -> Option<ConversationRef> {
        let named = given(self.conversation.as_ref());
        let named = named.and_then(|c| c.as_str().or_else(|| c["id"].as_str())).filter(|id| !id.is_empty());
        match named {
            Some(id) if id.parse::<annie_core::ids::ConversationId>().is_ok() => {
                Some(ConversationRef::Id(id.to_owned()))
            }
            Some(key) => Some(ConversationRef::Key(key.to_owned())),
            None => request::conversation(headers, self.metadata.as_ref()),
        }
    }

    pub fn with_skills(&self) -> bool {
        request::offers_skills(self.metadata.as_ref())
    }

    fn format(&self) -> Option<&Value> {
        given(self.text.as_ref()).and_then(|text| text.get("format"))
    }

    pub fn is_formed(&self) -> bool {
        self.format().is_some_and(|format| format["type"] != "text")
    }

    /// The fields of the request that the response repeats.
    pub fn echoed(&self) -> Value {
        let or = |value: Option<&Value>, default: Value| given(value).cloned().unwrap_or(default);
        serde_json::json!({
            "instructions": self.instructions, "previous_response_id": self.previous_response_id,
            "text": { "format": or(self.format(), serde_json::json!({ "type": "text" })) },
            "tools": or(self.tools.as_ref(), Value::Array(Vec::new())),
            "tool_choice": or(self.tool_choice.as_ref(), "auto".into()),
            "parallel_tool_calls": or(self.parallel_tool_calls.as_ref(), true.into()),
            "metadata": self.metadata.clone().unwrap_or_default(),
        })
    }

    /// The options of the request for the backend, and the client's tools.
    pub fn options(&self) -> Result<(CallOptions, Vec<ToolDef>), ApiError> {
        let tools = params::tools(self.tools.as_ref())?;
        let options = params::options(
            &self.sampling,
            params::format(self.format(), "text.format")?,
            params::tool_choice(self.tool_choice.as_ref(), &tools)?,
            params::switch(self.parallel_tool_calls.as_ref(), "parallel_tool_calls")?,
        )?;
        Ok((options, tools))
    }

    fn items(&self) -> Result<Vec<Item<'_>>, ApiError> {
        match &self.input {
            Value::String(text) => Ok(vec![Item::Message("user", text.clone())]),
            Value::Array(items) => {
                items.iter().enumerate().filter_map(|(n, item)| Item::read(item, n).transpose()).collect()
            }
            other => Err(ApiError::invalid(format!("input is a text or a list, not {}", shown(other))).at("input")),
        }
    }

    /// Whether the input contains tool calls or results.
    pub fn has_calls(&self) -> bool {
        let is_call = |item: &Value| item["type"].as_str().is_some_and(|kind| kind.starts_with("function_call"));
        self.input.as_array().is_some_and(|items| items.iter().any(is_call))
    }

    /// The system messages and the messages of the thread, appended to those of the earlier response.
    pub fn thread(&self, system: String, before: Vec<Message>) -> Result<(String, Vec<Message>), ApiError> {
        let mut reader = Reader::continuing(system, before);
        for (n, item) in self.items()?.into_iter().enumerate() {
            let field = format!("input[{n}]");
            match item {
                Item::Message("system" | "developer", text) => reader.system(text),
                Item::Message("assistant", text) => reader.assistant(text, Vec::new(), &field)?,
                Item::Message(_, text) => reader.user(text, &field)?,
                Item::Call(call) => reader.assistant(String::new(), vec![call], &field)?,
                Item::Result(id, text) => reader.result(id, text, format!("{field}.call_id"))?,
            }
        }
        reader.finish("input")
    }

    /// Whether the user's prompt has no text but only attachments that cannot be read.
    fn is_unreadable(&self) -> bool {
        let is_message = |item: &&Value| {
            matches!(item["type"].as_str(), None | Some("message"))
                && !matches!(item["role"].as_str(), Some("system" | "developer"))
        };
        let messages = self.input.as_array().into_iter().flatten().filter(is_message);
        let mut now = messages.rev().take_while(|item| item["role"] == "user").peekable();
        now.peek().is_some() && now.all(|item| has_attachments_only(&item["content"]))
    }

    /// The prompt of the request, without tool calls.
    pub fn prompt(&self) -> Result<Prompt, ApiError> {
        let mut instructions: Vec<String> = self.instructions.iter().cloned().collect();
        let mut before = Vec::new();
        for item in self.items()? {
            match item {
                Item::Message("system" | "developer", text) => instructions.push(text),
                Item::Message(role, text) => before.push((role.to_owned(), text)),
                Item::Call(_) | Item::Result(..) => {}
            }
        }
        if self.is_unreadable() {
            return Err(request::attachments_only("input"));
        }
        instructions.retain(|text| !text.trim().is_empty());
        before.retain(|(_, text)| !text.trim().is_empty());
        let trailing = before.iter().rev().take_while(|(role, _)| role == "user").count();
        let now = before.split_off(before.len() - trailing);
        if now.is_empty() {
            let why = "the last item must be the user's, and must say something";
            return Err(ApiError::invalid(why).at("input"));
        }
        let now: Vec<String> = now.into_iter().map(|(_, text)| text).collect();
        Ok(Prompt { instructions: instructions.join("\n\n"), text: now.join("\n\n"), before })
    }
}

/// The prompt of a request.
pub struct Prompt {
    /// The instructions for the model, from the parameter and from items.
    pub instructions: String,
    /// The trailing messages of the user.
    pub text: String,
    /// Role and text of the messages before the prompt.
    pub before: Vec<(String, String)>,
}

/// An item of the input.
enum Item<'a> {
    /// Role and text.
    Message(&'a str, String),
    Call(ToolCall),
    Result(&'a str, String),
}

impl<'a> Item<'a> {
    /// Absent for items without content for a model, such as reasoning, which belongs to the model that wrote it.
    fn read(item: &'a Value, n: usize) -> Result<Option<Self>, ApiError> {
        const ROLES: [&str; 4] = ["system", "developer", "user", "assistant"];
        let at = |name: &str| format!("input[{n}].{name}");
        let word = |name: &str| item[name].as_str().ok_or_else(|| ApiError::invalid("it must be a text").at(at(name)));
        match item["type"].as_str() {
            None | Some("message") => {
                let role = item["role"].as_str().unwrap_or_default();
                if !ROLES.contains(&role) {
                    let why = format!("there is no role {}; the roles are {}", shown(&item["role"]), ROLES.join(", "));
                    return Err(ApiError::invalid(why).at(at("role")));
                }
                Ok(Some(Self::Message(role, text_of(&item["content"]))))
            }
            Some("function_call") => {
                let (id, name) = (word("call_id")?.to_owned(), word("name")?.to_owned());
                let arguments = item["arguments"].as_str().unwrap_or("{}").to_owned();
                Ok(Some(Self::Call(ToolCall { id, name, arguments })))
            }
            Some("function_call_output") => Ok(Some(Self::Result(word("call_id")?, text_of(&item["output"])))),
            Some("reasoning") => Ok(None),
            Some(_) => {
                let why = format!("items of type {} cannot be read here; leave them out", shown(&item["type"]));
                Err(ApiError::new(Code::Unsupported, why).at(at("type")))
            }
        }
    }
}

fn has_attachments_only(content: &Value) -> bool {
    let words = |part: &Value| part["text"].as_str().or_else(|| part["refusal"].as_str()).map(str::to_owned);
    let Some(parts) = content.as_array() else { return false };
    let is_silent = parts.iter().all(|part| words(part).is_none_or(|text| text.trim().is_empty()));
    is_silent && parts.iter().any(|part| words(part).is_none())
}

/// The text of a content. Parts that cannot be read are named in it, so that the answer can mention them.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let part = |part: &Value| match (part["text"].as_str(), part["refusal"].as_str()) {
                (Some(text), _) | (None, Some(text)) => text.to_owned(),
                (None, None) => {
                    let kind = part["type"].as_str().unwrap_or("part");
                    format!("[{kind}: this attachment cannot be read here]")
                }
            };
            parts.iter().map(part).collect::<Vec<_>>().join("\n")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
