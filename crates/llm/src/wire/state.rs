//! State that a provider wants back with its calls: Gemini's `extra_content`, DeepSeek's `reasoning_content`, OpenRouter's
//! `reasoning_details`, Anthropic's thinking blocks. The client records the backend's name in it, because another provider
//! cannot read it.

use annie_core::message::PROVIDER_STATE_BYTES_MAX;
use serde_json::{Map, Value, json};

use crate::config::ModelConfig;

/// Parts of the names or addresses of models that want their reasoning back with their calls.
const WANT_REASONING: [&str; 6] = ["deepseek", "kimi", "moonshot", "minimax", "glm", "mimo"];

/// The state of a reply that is still arriving.
#[derive(Debug, Default)]
pub(crate) struct StateParts {
    reasoning: String,
    details: Vec<Value>,
    blocks: Vec<Value>,
    bytes: usize,
    /// Whether the model wants its reasoning back; `None` until it is determined.
    wants_reasoning: Option<bool>,
}

impl StateParts {
    pub fn reasoning(&mut self, config: &ModelConfig, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let is_wanted = *self.wants_reasoning.get_or_insert_with(|| wants_reasoning(config));
        if is_wanted && self.grow(piece.len()) {
            self.reasoning.push_str(piece);
        }
    }

    /// Adds pieces of reasoning. The pieces of one block are joined, as the provider had it.
    pub fn details(&mut self, pieces: Value) {
        let Value::Array(pieces) = pieces else { return };
        for piece in pieces {
            if !self.grow(piece.to_string().len()) {
                return;
            }
            match self.details.last_mut() {
                Some(last) if is_same_block(last, &piece) => join(last, piece),
                _ => self.details.push(piece),
            }
        }
    }

    /// Adds a content block, or a placeholder for one whose content is elsewhere in the reply.
    pub fn block(&mut self, block: Value) {
        if self.grow(block.to_string().len()) {
            self.blocks.push(block);
        }
    }

    fn grow(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes <= PROVIDER_STATE_BYTES_MAX
    }

    /// The state of a reply with these calls, as (id, extra content); `None` if the provider sent none, or too much.
    pub fn finish(self, config: &ModelConfig, model: &str, calls: &[(String, Value)]) -> Option<Value> {
        let extras: Vec<Value> = calls
            .iter()
            .filter(|(_, extra)| !extra.is_null())
            .map(|(id, extra)| json!({"id": id, "extra_content": extra}))
            .collect();
        let mut state = Map::new();
        if !self.reasoning.is_empty() {
            state.insert("reasoning_content".to_owned(), self.reasoning.into());
        }
        if !self.details.is_empty() {
            state.insert("reasoning_details".to_owned(), self.details.into());
        }
        // Without thinking the blocks only define an order.
        if self.blocks.iter().any(is_thinking) {
            state.insert("blocks".to_owned(), self.blocks.into());
        }
        if !extras.is_empty() {
            state.insert("calls".to_owned(), extras.into());
        }
        if calls.is_empty() || state.is_empty() {
            return None;
        }
        state.insert("by".to_owned(), origin(config, model).into());
        let state = Value::Object(state);
        (self.bytes <= PROVIDER_STATE_BYTES_MAX && state.to_string().len() <= PROVIDER_STATE_BYTES_MAX).then_some(state)
    }
}

/// Whether this is a block of Anthropic's that must be returned unchanged.
pub(super) fn is_thinking(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

fn wants_reasoning(config: &ModelConfig) -> bool {
    let named = format!("{} {}", config.base_url, config.model).to_lowercase();
    WANT_REASONING.iter().any(|part| named.contains(part))
}

fn is_same_block(last: &Value, piece: &Value) -> bool {
    let index = &piece["index"];
    !index.is_null() && last["index"] == *index && last["type"] == piece["type"]
}

fn join(last: &mut Value, piece: Value) {
    let (Some(last), Value::Object(piece)) = (last.as_object_mut(), piece) else { return };
    for (key, value) in piece {
        match (last.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if matches!(key.as_str(), "text" | "summary" | "data") => {
                text.push_str(&more);
            }
            (_, value) => drop(last.insert(key, value)),
        }
    }
}

fn origin(config: &ModelConfig, model: &str) -> String {
    format!("{}/{model}", config.name)
}

/// A stored state, if this backend and model produced it.
#[derive(Debug, Clone, Copy)]
pub(super) struct State<'a>(Option<&'a Value>);

impl<'a> State<'a> {
    pub fn own(stored: Option<&'a Value>, config: &ModelConfig, model: &str) -> Self {
        Self(stored.filter(|state| state["by"] == origin(config, model)))
    }

    pub fn reasoning_content(self) -> Option<&'a str> {
        self.0?["reasoning_content"].as_str()
    }

    pub fn reasoning_details(self) -> Option<&'a Value> {
        self.0?.get("reasoning_details")
    }

    /// The blocks of the reply, in order.
    pub fn blocks(self) -> Option<&'a [Value]> {
        self.0?["blocks"].as_array().map(Vec::as_slice)
    }

    pub fn extra_content(self, call_id: &str) -> Option<&'a Value> {
        let calls = self.0?["calls"].as_array()?;
        calls.iter().find(|call| call["id"] == call_id)?.get("extra_content")
    }
}
