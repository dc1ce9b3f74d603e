//! What goes to a model and what comes back, free of any provider's wire: `annie-llm` translates.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::caller::CallOptions;

/// How long a provider may keep a prompt prefix [S0 6A.3].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheTtl {
    /// The default of five minutes.
    FiveMinutes,
    /// The extended hour, for the part that all conversations share.
    OneHour,
}

/// One part of the system prompt; the stable parts come first, and a longer time to live never follows a shorter one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemPart {
    /// The text.
    pub text: String,
    /// Ends a cacheable prefix here.
    pub cache: Option<CacheTtl>,
}

/// One call of a tool, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's id for it, unique within the reply.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON text, exactly as they came: they may be broken.
    pub arguments: String,
}

/// One message of a model's context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the user, or results of commands, which models expect on the user's side.
    User {
        /// Volatile context of this turn, sent before the text: memories, task summary, the time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<String>,
        /// The text.
        text: String,
    },
    /// From the model.
    Assistant {
        /// The text; may be empty beside tool calls.
        text: String,
        /// The calls it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// See [`ModelReply::provider_state`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_state: Option<Value>,
    },
    /// The result of one tool call.
    Tool {
        /// Which call.
        call_id: String,
        /// The result.
        text: String,
        /// The call failed, was not run, or nobody knows what became of it. Some providers tell the model so.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// From the kernel: a hint or a correction. Clients send it on the user's side; it is never what the user asked for.
    Note {
        /// The text.
        text: String,
    },
}

impl Message {
    /// A plain user message.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { context: None, text: text.into() }
    }

    /// A hint of the kernel.
    #[must_use]
    pub fn note(text: impl Into<String>) -> Self {
        Self::Note { text: text.into() }
    }

    /// A plain assistant message.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), tool_calls: Vec::new(), provider_state: None }
    }

    /// An assistant message that asks for calls.
    #[must_use]
    pub fn calling(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self::Assistant { text: text.into(), tool_calls, provider_state: None }
    }

    /// The result of a call that went well.
    #[must_use]
    pub fn result(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Tool { call_id: call_id.into(), text: text.into(), is_error: false }
    }

    /// How many bytes of text it carries.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::User { context, text } => text.len() + context.as_ref().map_or(0, String::len),
            Self::Assistant { text, tool_calls, provider_state } => {
                let calls = tool_calls.iter().map(|c| c.name.len() + c.arguments.len() + 16).sum::<usize>();
                text.len() + calls + provider_state.as_ref().map_or(0, |state| state.to_string().len())
            }
            Self::Tool { text, .. } | Self::Note { text } => text.len(),
        }
    }
}

/// A tool as the model is told of it. `parameters` is JSON Schema with its keys in a fixed order, so that the same set of
/// tools is always the same bytes [S4 8.3].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDef {
    /// The name to call it by.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// The arguments must fit the schema to the letter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

/// One model call: everything that a backend needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// A model name that overrides the backend's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The system prompt in parts.
    pub system: Vec<SystemPart>,
    /// The context.
    pub messages: Vec<Message>,
    /// How many leading messages are history that the next call will repeat: the last of them ends a cacheable prefix.
    #[serde(default)]
    pub stable_messages: usize,
    /// The tools, in their fixed order; empty for a sub-agent that speaks commands.
    pub tools: Vec<ToolDef>,
    /// Names of the skills that this agent may use beside `tools`. The model is not told of them here: the client
    /// recognises a call that the model wrote as text by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skill_names: Vec<String>,
    /// The longest answer, in tokens.
    pub output_tokens_max: u32,
    /// The conversation's id: a provider that routes by it (OpenRouter) keeps finding its prompt cache.
    pub session_id: String,
    /// Scheduling class, 0 (most urgent) to 4, for servers that order requests themselves, such as vLLM.
    #[serde(default)]
    pub priority: u8,
    /// What the caller of the turn asked of its answer.
    #[serde(default, skip_serializing_if = "CallOptions::is_default")]
    pub options: CallOptions,
}

/// What a call cost, in the provider's own count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens of the answer, reasoning included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Of the input, read from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Of the input, written to the provider's cache.
    #[serde(default)]
    pub cache_written_tokens: u64,
    /// Of the output, reasoning.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// Price in US dollars, where the provider says it.
    #[serde(default)]
    pub cost_usd: f64,
}

impl Usage {
    /// Adds another call's cost to this. Sums saturate, and money is kept to the billionth of a dollar: so few digits come
    /// back from JSON as they were, and a replay adds up to the same.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_written_tokens = self.cache_written_tokens.saturating_add(other.cache_written_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.cost_usd = ((self.cost_usd + other.cost_usd) * 1e9).round() / 1e9;
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It was done.
    #[default]
    Stop,
    /// It ran into the token limit: the text is cut.
    Length,
    /// It asked for tools.
    ToolCalls,
    /// The provider withheld content.
    ContentFilter,
}

impl Finish {
    /// Whether the model came to its own end.
    #[must_use]
    pub const fn is_stop(&self) -> bool {
        matches!(self, Self::Stop)
    }
}

/// What the client mended in a reply before anybody saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// Thinking stood in the text and was taken out of it.
    Thinking,
    /// Tokens of the model's chat template had leaked into the text and were taken out of it.
    StopToken,
    /// A call was written as text.
    TextCall,
    /// A call's arguments were no JSON, and one mistake was mended.
    Arguments,
    /// A kind that a later version of Annie knows.
    #[serde(other)]
    Other,
}

impl Repair {
    /// The word for it in events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Thinking => "thinking",
            Self::StopToken => "stop_token",
            Self::TextCall => "text_call",
            Self::Arguments => "arguments",
            Self::Other => "other",
        }
    }
}

/// The largest [`ModelReply::provider_state`], in bytes: a larger one is not kept, since a part of it is worth nothing.
pub const PROVIDER_STATE_BYTES_MAX: usize = 64 * 1024;

/// A model's whole reply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The visible text.
    pub text: String,
    /// The tool calls, in order. Tool calls make it a tool round whatever `finish` says: some servers say `stop` beside
    /// them.
    pub tool_calls: Vec<ToolCall>,
    /// Why it stopped.
    pub finish: Finish,
    /// What it cost.
    pub usage: Usage,
    /// The model that answered.
    pub model: String,
    /// The replier says itself that it did not do what was asked. The offline planner knows this; a language model does not say it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
    /// Opaque state of the provider that must come back with this reply's calls in later rounds of the turn: Gemini's
    /// thought signatures, DeepSeek's reasoning, OpenRouter's reasoning details. The client that wrote it names itself in
    /// it, and sends back only its own. At most [`PROVIDER_STATE_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_state: Option<Value>,
    /// What the client mended in it, each kind once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
}

/// What kind of failure a model call had; decides what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// 429; try after the hint.
    RateLimited,
    /// The prompt does not fit.
    Overflow,
    /// 401 or 403: the key is wrong.
    Auth,
    /// 402: no credit.
    Payment,
    /// Refused for its content.
    Content,
    /// No first token, or silence in the middle, for too long.
    Timeout,
    /// The stream ended before its end.
    Truncated,
    /// 5xx, connection refused, overloaded.
    Unavailable,
    /// The provider says the request is wrong.
    InvalidRequest,
    /// The answer is not what the protocol says, or is larger than allowed.
    Protocol,
    /// A backend that works by itself had begun, and nobody knows what it did.
    InDoubt,
    /// The backend or its model takes no tool definitions. The same request without tools may work.
    ToolsUnsupported,
}

impl ModelErrorKind {
    /// Whether this failure is about the one request. It says nothing of the next round, and its backend is well.
    #[must_use]
    pub const fn is_about_request(self) -> bool {
        matches!(self, Self::Content | Self::Overflow | Self::InvalidRequest | Self::ToolsUnsupported)
    }

    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Overflow => "overflow",
            Self::Auth => "auth",
            Self::Payment => "payment",
            Self::Content => "content",
            Self::Timeout => "timeout",
            Self::Truncated => "truncated",
            Self::Unavailable => "unavailable",
            Self::InvalidRequest => "invalid_request",
            Self::Protocol => "protocol",
            Self::InDoubt => "in_doubt",
            Self::ToolsUnsupported => "tools_unsupported",
        }
    }
}

/// A model call that gave no reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("model call failed ({}): {detail}", kind.as_str())]
pub struct ModelError {
    /// What kind.
    pub kind: ModelErrorKind,
    /// The provider's words, with secrets removed.
    pub detail: String,
    /// When the provider wants to be asked again, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whether any draft text had been streamed before it failed.
    #[serde(default)]
    pub after_first_token: bool,
}

impl ModelError {
    /// A failure of this kind.
    #[must_use]
    pub fn new(kind: ModelErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), retry_after_ms: None, after_first_token: false }
    }

    /// Whether the endpoint says that its model, or the server as it was started, takes no tools.
    #[must_use]
    pub fn refuses_tools(&self) -> bool {
        const NOT: [&str; 8] = [
            "not support",
            "n't support",
            "unsupported",
            "requires",
            "not enabled",
            "not available",
            "not implemented",
            "that support tool",
        ];
        let may_say_so = matches!(
            self.kind,
            ModelErrorKind::InvalidRequest | ModelErrorKind::Unavailable | ModelErrorKind::Protocol
        );
        let said = self.detail.to_lowercase();
        let says_so = may_say_so
            && (said.contains("tool") || said.contains("function call"))
            && NOT.iter().any(|n| said.contains(n));
        says_so || self.kind == ModelErrorKind::ToolsUnsupported
    }

    /// Whether the same call may work later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ModelErrorKind::RateLimited
                | ModelErrorKind::Timeout
                | ModelErrorKind::Truncated
                | ModelErrorKind::Unavailable
        )
    }
}
