//! The names of spans and attributes: those of OpenTelemetry's semantic conventions for generative AI, which are still in
//! development, and Annie's own. No other file spells a name.

/// `gen_ai.operation.name` of a round.
pub const CHAT: &str = "chat";
/// `gen_ai.operation.name` of an agent.
pub const INVOKE_AGENT: &str = "invoke_agent";
/// `gen_ai.operation.name` of a run of a skill.
pub const EXECUTE_TOOL: &str = "execute_tool";
/// The span of a message: from its acceptance to its final event.
pub const MESSAGE: &str = "message";
/// The span of a wait: of a task for its turn, or of a round for its permit.
pub const QUEUE: &str = "queue";

pub const OPERATION: &str = "gen_ai.operation.name";
pub const PROVIDER: &str = "gen_ai.provider.name";
pub const CONVERSATION: &str = "gen_ai.conversation.id";
pub const AGENT_ID: &str = "gen_ai.agent.id";
pub const AGENT_NAME: &str = "gen_ai.agent.name";
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// In seconds.
pub const TIME_TO_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub const CACHE_CREATION_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
pub const TOOL_NAME: &str = "gen_ai.tool.name";
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub const ERROR_TYPE: &str = "error.type";
pub const SERVICE_NAME: &str = "service.name";
pub const SERVICE_VERSION: &str = "service.version";
pub const SERVICE_INSTANCE: &str = "service.instance.id";

// Content. Written only if the operator asks for it.
pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";

// Annie's own. The conventions have no name for these.
pub const TASK: &str = "annie.task.id";
pub const SOURCE: &str = "annie.source";
pub const CHANNEL: &str = "annie.channel";
pub const PRIORITY: &str = "annie.priority";
pub const OUTCOME: &str = "annie.outcome";
pub const MODE: &str = "annie.mode";
pub const BACKEND: &str = "annie.backend";
pub const ROUND: &str = "annie.round";
pub const IS_CACHED: &str = "annie.cached";
/// In US dollars.
pub const COST_USD: &str = "annie.usage.cost_usd";
pub const INTENT: &str = "annie.intent.id";
pub const EFFECT: &str = "annie.skill.effect";
pub const REASON: &str = "annie.reason";
