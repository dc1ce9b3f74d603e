//! Requests to models and their replies, independent of any provider's wire format. `annie-llm` translates.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::caller::CallOptions;

/// How long a provider may keep a prompt prefix [S0 6A.3].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheTtl {
    /// The default: five minutes.
    FiveMinutes,
    /// The extended time of one hour, for the part that all conversations share.
    OneHour,
}

/// One part of the system prompt. The stable parts come first, and a longer cache lifetime never follows a shorter one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemPart {
    /// The text.
    pub text: String,
    /// Ends a cacheable prefix after this part.
    pub cache: Option<CacheTtl>,
}

/// One call of a tool, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's id of the call, unique within the reply.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON text, exactly as received; they may be invalid.
    pub arguments: String,
}

/// One message of a model's context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// A message from the user, or results of commands, which models expect in the user role.
    User {
        /// Volatile context of this turn, placed before the text: memories, task summary, the time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<String>,
        /// The text.
        text: String,
    },
    /// A message from the model.
    Assistant {
        /// The text. May be empty if there are tool calls.
        text: String,
        /// The requested calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// See [`ModelReply::provider_state`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_state: Option<Value>,
    },
    /// The result of one tool call.
    Tool {
        /// The id of the call.
        call_id: String,
        /// The result.
        text: String,
        /// Whether the call failed, was not run, or has an unknown outcome. Some providers pass this flag to the model.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// A hint or a correction from the kernel. Clients send it in the user role. It is never a request of the user.
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

    /// The result of a successful call.
    #[must_use]
    pub fn result(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Tool { call_id: call_id.into(), text: text.into(), is_error: false }
    }

    /// Size of all its text, in bytes.
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

/// A tool as described to the model. `parameters` is JSON Schema with its keys in a fixed order, so that the same set of
/// tools always gives the same bytes [S4 8.3].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDef {
    /// The name.
    pub name: String,
    /// What the tool does, and when to use it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Whether the arguments must conform to the schema strictly.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

/// One model call: everything that a backend needs for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// A model name that overrides the backend's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The system prompt in parts.
    pub system: Vec<SystemPart>,
    /// The context.
    pub messages: Vec<Message>,
    /// Number of leading messages that are history and that the next call will repeat. The last of them ends a cacheable
    /// prefix.
    #[serde(default)]
    pub stable_messages: usize,
    /// The tools, in their fixed order. Empty for a sub-agent that uses commands.
    pub tools: Vec<ToolDef>,
    /// Names of the skills that this agent may use in addition to `tools`. They are not sent to the model: by them, the
    /// client recognises a call that the model wrote as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skill_names: Vec<String>,
    /// Maximum length of the answer, in tokens.
    pub output_tokens_max: u32,
    /// The conversation's id. A provider that routes by it (OpenRouter) finds its prompt cache again.
    pub session_id: String,
    /// Scheduling class, 0 (most urgent) to 4, for servers that order requests themselves, such as vLLM.
    #[serde(default)]
    pub priority: u8,
    /// The parameters that the turn's caller set for its answer.
    #[serde(default, skip_serializing_if = "CallOptions::is_default")]
    pub options: CallOptions,
}

/// Cost of one or more calls, as counted by the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens of the answer, reasoning included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Input tokens written to the provider's cache.
    #[serde(default)]
    pub cache_written_tokens: u64,
    /// Output tokens used for reasoning.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// Price in US dollars. 0 if the provider does not report it.
    #[serde(default)]
    pub cost_usd: f64,
}

impl Usage {
    /// The largest number of tokens that one call can have. The sums of thousands of such calls fit into 64 bits with a sign.
    pub const TOKENS_MAX: u64 = 1 << 40;
    /// The largest price of one call in US dollars, for the same reason.
    pub const COST_USD_MAX: f64 = 1e6;

    /// The usage without numbers that no call can have. A server that reports such numbers is broken.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let tokens = |n: u64| n.min(Self::TOKENS_MAX);
        Self {
            input_tokens: tokens(self.input_tokens),
            output_tokens: tokens(self.output_tokens),
            cached_tokens: tokens(self.cached_tokens),
            cache_written_tokens: tokens(self.cache_written_tokens),
            reasoning_tokens: tokens(self.reasoning_tokens),
            cost_usd: self.cost_usd.clamp(0.0, Self::COST_USD_MAX),
        }
    }

    /// Adds the cost of another call. Sums saturate. Money is rounded to a billionth of a dollar: numbers with so few digits
    /// survive a JSON round trip, so that a replay gives the same sum.
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
    /// It finished.
    #[default]
    Stop,
    /// It reached the token limit, and the text is truncated.
    Length,
    /// It requested tool calls.
    ToolCalls,
    /// The provider's content filter withheld content.
    ContentFilter,
}

impl Finish {
    /// Whether the model finished by itself.
    #[must_use]
    pub const fn is_stop(&self) -> bool {
        matches!(self, Self::Stop)
    }
}

/// A repair that the client made to a reply before passing it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// Reasoning in the text was removed.
    Thinking,
    /// Tokens of the model's chat template in the text were removed.
    StopToken,
    /// A call that was written as text was parsed.
    TextCall,
    /// A call's arguments were invalid JSON, and one mistake was corrected.
    Arguments,
    /// A kind that a later version of Annie has added.
    #[serde(other)]
    Other,
}

impl Repair {
    /// The name in events and metrics.
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

/// Maximum size of [`ModelReply::provider_state`], in bytes. A larger state is dropped, because a part of it is useless.
pub const PROVIDER_STATE_BYTES_MAX: usize = 64 * 1024;

/// A complete reply of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The visible text.
    pub text: String,
    /// The tool calls, in order. If there are any, the reply is a tool round whatever `finish` says, because some servers
    /// send `stop` together with tool calls.
    pub tool_calls: Vec<ToolCall>,
    /// Why the model stopped.
    pub finish: Finish,
    /// Cost of the call.
    pub usage: Usage,
    /// The model that answered.
    pub model: String,
    /// The backend reported that it did not do what was asked. The offline planner knows this; language models do not report
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
    /// Opaque state of the provider that must be sent back with this reply's calls in later rounds of the turn: Gemini's
    /// thought signatures, DeepSeek's reasoning, OpenRouter's reasoning details. The client that wrote it stores its own
    /// name in it and sends back only its own state. At most [`PROVIDER_STATE_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_state: Option<Value>,
    /// The repairs that the client made, each kind once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
    /// The reply is that of an earlier equal request. It cost nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

/// The kind of a failed model call. It determines what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// 429. Retry after the hinted time.
    RateLimited,
    /// The prompt is too long for the model's context.
    Overflow,
    /// 401 or 403: the key is invalid.
    Auth,
    /// 402: no credit left.
    Payment,
    /// Refused because of its content.
    Content,
    /// No first token within the time limit, or no further token for too long.
    Timeout,
    /// The stream ended prematurely.
    Truncated,
    /// 5xx, connection refused, overloaded.
    Unavailable,
    /// The provider reports an invalid request.
    InvalidRequest,
    /// The reply violates the protocol or exceeds the size limit.
    Protocol,
    /// An agentic backend had begun the round, and its effects are unknown.
    InDoubt,
    /// The backend or its model does not accept tool definitions. The same request without tools may succeed.
    ToolsUnsupported,
    /// The server could not read the tool calls that its model wrote. The same request without tools may succeed.
    MalformedCall,
    /// The round would have exceeded the cap on the spending of its turn. The detail is a text for the user.
    TurnSpendCap,
    /// The round would have exceeded the cap on the spending of its conversation, or of its user on this day. The detail is a
    /// text for the user.
    SpendCap,
    /// The round would have exceeded the cap on the model calls of its conversation. The detail is a text for the user.
    CallCap,
}

impl ModelErrorKind {
    /// Whether the failure is caused by this request alone. Then the next round is unaffected, and the backend is healthy.
    #[must_use]
    pub const fn is_about_request(self) -> bool {
        let is_of_the_request = matches!(
            self,
            Self::Content | Self::Overflow | Self::InvalidRequest | Self::ToolsUnsupported | Self::MalformedCall
        );
        is_of_the_request || self.is_cap()
    }

    /// Whether a cap kept the round from calling a model.
    #[must_use]
    pub const fn is_cap(self) -> bool {
        matches!(self, Self::TurnSpendCap | Self::SpendCap | Self::CallCap)
    }

    /// The wire name.
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
            Self::MalformedCall => "malformed_call",
            Self::TurnSpendCap => "turn_spend_cap",
            Self::SpendCap => "spend_cap",
            Self::CallCap => "call_cap",
        }
    }
}

/// A failed model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("model call failed ({}): {detail}", kind.as_str())]
pub struct ModelError {
    /// The kind of failure.
    pub kind: ModelErrorKind,
    /// The provider's message, with secrets removed.
    pub detail: String,
    /// The provider's hint for the next attempt, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whether any draft text had been streamed before it failed.
    #[serde(default)]
    pub after_first_token: bool,
}

impl ModelError {
    /// A failure of this kind, without a hint and before the first token.
    #[must_use]
    pub fn new(kind: ModelErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), retry_after_ms: None, after_first_token: false }
    }

    /// Whether the endpoint reports that its model, or the server with its current options, does not support tools.
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
        let may_report = matches!(
            self.kind,
            ModelErrorKind::InvalidRequest | ModelErrorKind::Unavailable | ModelErrorKind::Protocol
        );
        let detail_lower = self.detail.to_lowercase();
        let is_reported = may_report
            && (detail_lower.contains("tool") || detail_lower.contains("function call"))
            && NOT.iter().any(|n| detail_lower.contains(n));
        is_reported || self.kind == ModelErrorKind::ToolsUnsupported
    }

    /// Whether the same call may succeed later.
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
