//! Reads replies of Messages: events that open, fill and close the blocks of a reply, or a whole reply. Unknown events,
//! blocks and fields are ignored, as the protocol requires.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::wire::{
    Decode,
    assemble::{CallPiece, Parts},
    failure::{self, Failure},
    usage::WireUsage,
};

/// Reads the events of one reply.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Open blocks by their index.
    open: BTreeMap<u64, Open>,
}

/// A block that is still arriving.
#[derive(Debug)]
enum Open {
    Text,
    Thinking {
        thinking: String,
        signature: String,
    },
    /// Kept unchanged.
    Redacted(Value),
    Call {
        id: String,
        /// Complete arguments from the start event, used only if no pieces follow.
        whole: Value,
        has_pieces: bool,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: String,
    message: Option<Message>,
    index: u64,
    content_block: Value,
    delta: Delta,
    usage: Option<WireUsage>,
    error: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    model: Option<String>,
    content: Vec<Value>,
    stop_reason: Option<String>,
    usage: Option<WireUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Delta {
    r#type: String,
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

impl Decode for Decoder {
    fn read(&mut self, data: &[u8], parts: &mut Parts<'_>) -> Result<(), Failure> {
        if data.trim_ascii() == b"[DONE]" {
            // Gateways add it.
            parts.done();
            return Ok(());
        }
        let event: Event = serde_json::from_slice(data).map_err(|error| parts.not_a_reply(&error.to_string(), data))?;
        match event.r#type.as_str() {
            _ if !event.error.is_null() => {
                let body: Value = serde_json::from_slice(data).unwrap_or(Value::Null);
                return Err(failure::inside(parts.config(), &body));
            }
            "message_start" => {
                parts.answers();
                let message = event.message.unwrap_or_default();
                parts.model(message.model);
                parts.cost_so_far(message.usage);
            }
            "content_block_start" => {
                parts.answers();
                self.begin(event.index, event.content_block, parts)?;
            }
            "content_block_delta" => self.extend(event.index, event.delta, parts)?,
            "content_block_stop" => self.end(event.index, parts)?,
            "message_delta" => {
                parts.cost_so_far(event.usage);
                parts.stopped(event.delta.stop_reason);
            }
            "message_stop" => parts.done(),
            "message" => {
                let message: Message =
                    serde_json::from_slice(data).map_err(|error| parts.not_a_reply(&error.to_string(), data))?;
                self.whole(message, parts)?;
            }
            "" => return Err(parts.not_a_reply("it has no `type`", data)),
            // `ping`, and event types added to the protocol later.
            _ => {}
        }
        Ok(())
    }
}

impl Decoder {
    fn whole(&mut self, message: Message, parts: &mut Parts<'_>) -> Result<(), Failure> {
        parts.answers();
        parts.model(message.model);
        for (index, block) in message.content.into_iter().enumerate() {
            self.begin(index as u64, block, parts)?;
            self.end(index as u64, parts)?;
        }
        parts.cost_so_far(message.usage);
        parts.stopped(message.stop_reason);
        Ok(())
    }

    fn begin(&mut self, index: u64, block: Value, parts: &mut Parts<'_>) -> Result<(), Failure> {
        let text = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
        let open = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                parts.text(&text("text"))?;
                Open::Text
            }
            "thinking" => {
                let thinking = text("thinking");
                parts.thought(thinking.clone())?;
                Open::Thinking { thinking, signature: text("signature") }
            }
            "redacted_thinking" => Open::Redacted(block),
            "tool_use" => {
                let (id, name) = (text("id"), text("name"));
                parts.call(CallPiece { index, id: id.clone(), name, ..CallPiece::default() })?;
                Open::Call { id, whole: block["input"].clone(), has_pieces: false }
            }
            _ => return Ok(()),
        };
        self.open.insert(index, open);
        Ok(())
    }

    fn extend(&mut self, index: u64, delta: Delta, parts: &mut Parts<'_>) -> Result<(), Failure> {
        match (self.open.get_mut(&index), delta.r#type.as_str()) {
            (Some(Open::Text) | None, "text_delta") => parts.text(&delta.text.unwrap_or_default())?,
            (Some(Open::Thinking { thinking, .. }), "thinking_delta") => {
                let piece = delta.thinking.unwrap_or_default();
                thinking.push_str(&piece);
                parts.thought(piece)?;
            }
            (Some(Open::Thinking { signature, .. }), "signature_delta") => {
                let piece = delta.signature.unwrap_or_default();
                parts.grow(piece.len())?;
                signature.push_str(&piece);
            }
            (Some(Open::Call { has_pieces, .. }), "input_json_delta") => {
                let arguments = delta.partial_json.unwrap_or_default();
                *has_pieces |= !arguments.is_empty();
                parts.call(CallPiece { index, arguments, ..CallPiece::default() })?;
            }
            // Citations, blocks of other kinds.
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, index: u64, parts: &mut Parts<'_>) -> Result<(), Failure> {
        match self.open.remove(&index) {
            None => {}
            Some(Open::Text) => parts.state().block(json!({"type": "text"})),
            Some(Open::Thinking { thinking, signature }) => {
                let block = json!({"type": "thinking", "thinking": thinking, "signature": signature});
                parts.state().block(block);
            }
            Some(Open::Redacted(block)) => parts.state().block(block),
            Some(Open::Call { id, whole, has_pieces }) => {
                let is_given = whole.as_object().is_some_and(|object| !object.is_empty());
                if is_given && !has_pieces {
                    let arguments = whole.to_string();
                    parts.call(CallPiece { index, arguments, ..CallPiece::default() })?;
                }
                parts.state().block(json!({"type": "tool_use", "id": id}));
            }
        }
        Ok(())
    }
}
