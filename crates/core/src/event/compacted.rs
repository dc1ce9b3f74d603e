//! The event that replaces the older part of a conversation in prompts.

use serde::{Deserialize, Serialize};

use super::is_zero;
use crate::message::Usage;

/// Why a conversation is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionCause {
    /// As many messages have come since the last compaction as the configuration says.
    Count,
    /// Messages that no summary covers did not fit into the model's window.
    Window,
    /// A model server refused a prompt as too long.
    Overflow,
}

impl CompactionCause {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Window => "window",
            Self::Overflow => "overflow",
        }
    }
}

/// A summary stands for the older part of a conversation in later prompts. The log keeps all events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compacted {
    /// The number of the compaction in its conversation, from 1. A compaction with another number than the next changes nothing.
    pub number: u32,
    /// Why the conversation was compacted.
    pub cause: CompactionCause,
    /// The first exchange that the summary covers and no earlier summary covered, counted from 1 over the whole conversation.
    pub first: u64,
    /// The last exchange that the summary covers.
    pub last: u64,
    /// The number of messages in these exchanges, without those of private turns.
    pub messages: u32,
    /// How many of the covered messages later prompts still contain word for word. An exchange is never split, so there may be
    /// one more.
    pub overlap_messages: u32,
    /// The summary: of these exchanges and of what the summary before it said.
    pub summary: String,
    /// The origins of text in the conversation that is not the user's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// The backend whose model wrote the summary. Empty if the kernel made it from requests and receipts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub backend: String,
    /// Why no model wrote it. Empty if one did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub without_model: String,
    /// Cost of the model call.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub usage: Usage,
}

impl Compacted {
    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let s = if self.messages == 1 { "" } else { "s" };
        format!("compacted {} message{s}: later prompts contain a summary of them", self.messages)
    }
}
