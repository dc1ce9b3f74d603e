//! Reads the conversation that a client with its own tools keeps and posts completely. A conversation that a model provider
//! would refuse is refused.

use std::collections::BTreeMap;

use annie_core::message::{Message, ToolCall};

use super::request::{ChatMessage, PostedCall};
use crate::error::{ApiError, Code};

/// A conversation that is being read.
#[derive(Debug, Default)]
pub struct Reader {
    system: Vec<String>,
    messages: Vec<Message>,
    /// The ids of calls without a result, with the names of their tools.
    open: BTreeMap<String, String>,
}

impl Reader {
    /// Continues a conversation that was read before.
    pub fn continuing(system: String, messages: Vec<Message>) -> Self {
        let mut open = BTreeMap::new();
        for message in &messages {
            match message {
                Message::Assistant { tool_calls, .. } => {
                    open.extend(tool_calls.iter().map(|c| (c.id.clone(), c.name.clone())));
                }
                Message::Tool { call_id, .. } => drop(open.remove(call_id)),
                _ => {}
            }
        }
        Self { system: Some(system).filter(|s| !s.is_empty()).into_iter().collect(), messages, open }
    }

    pub fn system(&mut self, text: String) {
        self.system.extend(Some(text).filter(|t| !t.trim().is_empty()));
    }

    pub fn user(&mut self, text: String, field: &str) -> Result<(), ApiError> {
        self.require_results(field)?;
        self.messages.push(Message::user(text));
        Ok(())
    }

    /// Adds text of the model or calls after it. Both may arrive in several items, which belong to one message.
    pub fn assistant(&mut self, text: String, calls: Vec<ToolCall>, field: &str) -> Result<(), ApiError> {
        if let Some(Message::Assistant { text: previous, tool_calls, .. }) = self.messages.last_mut() {
            if !previous.is_empty() && !text.is_empty() {
                previous.push_str("\n\n");
            }
            previous.push_str(&text);
            self.open.extend(calls.iter().map(|c| (c.id.clone(), c.name.clone())));
            tool_calls.extend(calls);
            return Ok(());
        }
        self.require_results(field)?;
        self.open.extend(calls.iter().map(|c| (c.id.clone(), c.name.clone())));
        let mut message = Message::assistant(text);
        if let Message::Assistant { tool_calls, .. } = &mut message {
            *tool_calls = calls;
        }
        self.messages.push(message);
        Ok(())
    }

    pub fn result(&mut self, call_id: &str, text: String, field: String) -> Result<(), ApiError> {
        if self.open.remove(call_id).is_none() {
            let why =
                format!("{call_id:?} is the result of no call: a result follows the assistant's message with its call");
            return Err(ApiError::invalid(why).at(field));
        }
        self.messages.push(Message::result(call_id, text));
        Ok(())
    }

    fn require_results(&self, field: &str) -> Result<(), ApiError> {
        let Some((id, name)) = self.open.first_key_value() else { return Ok(()) };
        let why = format!("the call {id:?} of {name} has no result yet: the result must precede any other message");
        Err(ApiError::invalid(why).at(field))
    }

    /// The instructions and the messages.
    pub fn finish(self, field: &str) -> Result<(String, Vec<Message>), ApiError> {
        self.require_results(field)?;
        match self.messages.last() {
            Some(Message::Tool { .. }) => {}
            Some(Message::User { text, .. }) if !text.trim().is_empty() => {}
            _ => {
                let why = "the last message must be the user's or a tool's result, and must say something";
                return Err(ApiError::invalid(why).at(field));
            }
        }
        Ok((self.system.join("\n\n"), self.messages))
    }
}

/// Converts a posted call.
pub fn call(posted: &PostedCall) -> ToolCall {
    let arguments = posted.function.arguments.clone();
    ToolCall { id: posted.id.clone(), name: posted.function.name.clone(), arguments }
}

/// The instructions and messages of a completion.
pub fn of_messages(posted: &[ChatMessage]) -> Result<(String, Vec<Message>), ApiError> {
    let mut reader = Reader::default();
    for (n, message) in posted.iter().enumerate() {
        let field = format!("messages[{n}]");
        match message.role.as_str() {
            "system" | "developer" => reader.system(message.text()),
            "user" => reader.user(message.text(), &field)?,
            "assistant" => {
                let calls = message.tool_calls.iter().flatten().map(call).collect();
                reader.assistant(message.text(), calls, &field)?;
            }
            "tool" => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                reader.result(id, message.text(), format!("{field}.tool_call_id"))?;
            }
            _ => {
                let why = "results of the old `functions` are not taken beside `tools`; use the role `tool`";
                return Err(ApiError::new(Code::Unsupported, why).at(format!("{field}.role")));
            }
        }
    }
    reader.finish("messages")
}

/// The title of the turn, which also determines its route: the last texts of the user or of tool results.
pub fn title(messages: &[Message]) -> String {
    /// The length after which the title is truncated.
    const CHARS_MAX: usize = 2_000;
    let trailing = messages.iter().rev().take_while(|m| !matches!(m, Message::Assistant { .. }));
    let mut texts: Vec<&str> = trailing
        .filter_map(|m| match m {
            Message::User { text, .. } | Message::Tool { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .filter(|text| !text.trim().is_empty())
        .collect();
    texts.reverse();
    let text: String = texts.join("\n\n").chars().take(CHARS_MAX).collect();
    if text.is_empty() { "[an empty result]".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(messages: Value) -> Result<(String, Vec<Message>), ApiError> {
        of_messages(&serde_json::from_value::<Vec<ChatMessage>>(messages).unwrap())
    }

    fn calling(id: &str) -> Value {
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "add", "arguments": "{}"}}]})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "3"})
    }

    #[test]
    fn thread_reader_keeps_roles_and_calls() {
        let user = json!({"role": "user", "content": "1 + 2?"});
        let (system, messages) =
            read(json!([{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, user, calling("c"), result("c")]))
                .unwrap();
        assert_eq!(system, "A\n\nB");
        let Message::Assistant { tool_calls, .. } = &messages[1] else { panic!("{messages:?}") };
        assert_eq!((tool_calls[0].id.as_str(), tool_calls[0].name.as_str()), ("c", "add"));
        assert_eq!(messages[2], Message::result("c", "3"));
        assert_eq!(title(&messages), "3");
    }

    #[test]
    fn thread_reader_refuses_invalid_sequence_with_its_field() {
        let user = json!({"role": "user", "content": "x"});
        for (messages, field) in [
            (json!([user, result("c")]), "messages[1].tool_call_id"),
            (json!([user, calling("c"), result("d")]), "messages[2].tool_call_id"),
            (json!([user, calling("c"), result("c"), result("c")]), "messages[3].tool_call_id"),
            (json!([user, calling("c"), user]), "messages[2]"),
            (json!([user, calling("c")]), "messages"),
            (json!([user, calling("c"), result("c"), {"role": "assistant", "content": "3"}]), "messages"),
            (json!([user, {"role": "function", "name": "f", "content": "3"}]), "messages[1].role"),
            (json!([]), "messages"),
        ] {
            assert_eq!(read(messages.clone()).unwrap_err().field.as_deref(), Some(field), "{messages}");
        }
    }
}
