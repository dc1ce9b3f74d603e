//! The events of a copy of a conversation.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{ConversationId, Seq};

/// A part of a copy of a conversation: an event of the original, or the history with which the copy begins. Neither opens a task, so
/// nothing of the original is carried out again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Copied {
    /// The original.
    pub of: ConversationId,
    /// The sequence number in the original: of the event, or of the last event before the copy.
    pub original_seq: Seq,
    /// The event of the original, as it was exported. Later turns do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Value>,
    /// What the turns of the copy see of the original, oldest first. Empty if the event of the original is present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<CopiedExchange>,
    /// The summary of the older part of the original, with which the copy begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<CopiedSummary>,
    /// The bytes of the imported events up to this one. Their sum has a limit.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub bytes: u64,
}

/// The summary of the older part of the original.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedSummary {
    /// The summary.
    pub text: String,
    /// The number of exchanges at the end of the copied history that the summary does not cover.
    pub not_covered: u64,
    /// The number of exchanges at the end of the copied history that prompts contain word for word.
    pub word_for_word: u64,
    /// The origins of text in the original that is not the user's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
}

/// A request and its answer in the original.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedExchange {
    /// The user's text.
    pub user: String,
    /// The answer, or what was not carried out.
    pub answer: String,
    /// Whether only private turns see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// Whether the texts may be those of other people.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_outside: bool,
}
