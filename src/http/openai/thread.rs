//! The conversation that a client with tools of its own keeps and posts whole: read into the kernel's messages, and refused
//! where a model's provider would refuse it.

use std::collections::BTreeMap;

use annie_core::message::{Message, ToolCall};

use super::request::{ChatMessage, PostedCall};
use crate::error::{Code, Fault};

/// A conversation that is being read.
#[derive(Debug, Default)]
pub struct Reader {
    system: Vec<String>,
    messages: Vec<Message>,
    /// Calls without a result, with their names.
    open: BTreeMap<String, String>,
}

impl Reader {
    /// Goes on with a conversation that was read before.
    pub fn behind(system: String, messages: Vec<Message>) -> Self {
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

    pub fn user(&mut self, text: String, field: &str) -> Result<(), Fault> {
        self.answered(field)?;
        self.messages.push(Message::user(text));
        Ok(())
    }

    /// The model's words, and the calls behind them: both may come in pieces, and belong to one message.
    pub fn assistant(&mut self, text: String, calls: Vec<ToolCall>, field: &str) -> Result<(), Fault> {
        if let Some(Message::Assistant { text: said, tool_calls, .. }) = self.messages.last_mut() {
            if !said.is_empty() && !text.is_empty() {
                said.push_str("\n\n");
            }
            said.push_str(&text);
            self.open.extend(calls.iter().map(|c| (c.id.clone(), c.name.clone())));
            tool_calls.extend(calls);
            return Ok(());
        }
        self.answered(field)?;
        self.open.extend(calls.iter().map(|c| (c.id.clone(), c.name.clone())));
        let mut message = Message::assistant(text);
        if let Message::Assistant { tool_calls, .. } = &mut message {
            *tool_calls = calls;
        }
        self.messages.push(message);
        Ok(())
    }

    pub fn result(&mut self, call_id: &str, text: String, field: String) -> Result<(), Fault> {
        if self.open.remove(call_id).is_none() {
            let why =
                format!("{call_id:?} is the result of no call: a result follows the assistant's message with its call");
            return Err(Fault::invalid(why).at(field));
        }
        self.messages.push(Message::result(call_id, text));
        Ok(())
    }

    fn answered(&self, field: &str) -> Result<(), Fault> {
        let Some((id, name)) = self.open.first_key_value() else { return Ok(()) };
        let why = format!("the call {id:?} of {name} has no result yet: it comes before anything else is said");
        Err(Fault::invalid(why).at(field))
    }

    /// The instructions, and the messages.
    pub fn finish(self, field: &str) -> Result<(String, Vec<Message>), Fault> {
        self.answered(field)?;
        match self.messages.last() {
            Some(Message::Tool { .. }) => {}
            Some(Message::User { text, .. }) if !text.trim().is_empty() => {}
            _ => {
                let why = "the last message must be the user's or a tool's result, and must say something";
                return Err(Fault::invalid(why).at(field));
            }
        }
        Ok((self.system.join("\n\n"), self.messages))
    }
}

/// A call as it was posted.
pub fn call(posted: &PostedCall) -> ToolCall {
    let arguments = posted.function.arguments.clone();
    ToolCall { id: posted.id.clone(), name: posted.function.name.clone(), arguments }
}

/// The instructions and messages of a completion.
pub fn of_messages(posted: &[ChatMessage]) -> Result<(String, Vec<Message>), Fault> {
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
                return Err(Fault::new(Code::Unsupported, why).at(format!("{field}.role")));
            }
        }
    }
    reader.finish("messages")
}

/// What the turn is called by, and what its route goes by: the user's last words, or what the last results say.
pub fn title(messages: &[Message]) -> String {
    /// More of it is not read by anybody.
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

    fn read(messages: Value) -> Result<(String, Vec<Message>), Fault> {
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
    fn a_posted_conversation_keeps_its_roles_and_calls() {
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
    fn a_conversation_that_a_provider_would_refuse_is_refused_with_its_place() {
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
