//! The description of `/v1/responses` and `/v1/embeddings`, limited to what is specific to Annie: OpenAI's documentation has
//! the rest.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::chat::OpenAiError;

/// The input: a text, or items of which the last is a message of the user or the result of a call.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the handler reads")]
enum ResponseInput {
    Text(String),
    Items(Vec<ResponseInputItem>),
}

/// An item of the input: a message, a call of a client's tool, or its result.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the handler reads")]
enum ResponseInputItem {
    Message(InputMessage),
    Call(FunctionCall),
    Result(FunctionCallOutput),
}

/// The author of a message in the input.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes what the handler reads")]
enum InputRole {
    System,
    Developer,
    User,
    Assistant,
}

/// A message of the input.
#[derive(Serialize, ToSchema)]
struct InputMessage {
    /// `message`, or absent.
    #[schema(pattern = "^message$")]
    r#type: Option<String>,
    role: InputRole,
    /// A text, or parts in OpenAI's format.
    content: Value,
}

/// A call of a client's tool.
#[derive(Serialize, ToSchema)]
struct FunctionCall {
    #[schema(pattern = "^function_call$")]
    r#type: String,
    /// The id to which the result of the call refers.
    call_id: String,
    name: String,
    /// The arguments as JSON text.
    arguments: String,
    id: Option<String>,
    status: Option<String>,
}

/// The result of a call.
#[derive(Serialize, ToSchema)]
struct FunctionCallOutput {
    #[schema(pattern = "^function_call_output$")]
    r#type: String,
    /// The id of the call.
    call_id: String,
    /// A text, or parts in OpenAI's format.
    output: Value,
}

/// A response request. Other parameters of OpenAI's API are read, refused or ignored as docs/operating.md says.
#[derive(Serialize, ToSchema)]
struct ResponseRequest {
    /// `annie`, or `annie/` and a mode.
    model: String,
    input: ResponseInput,
    /// Instructions for the model, placed before everything else.
    instructions: Option<String>,
    /// The response that this one continues.
    previous_response_id: Option<String>,
    /// The conversation of the response, by its id or by a name of your own.
    conversation: Option<Value>,
    /// Respond with server-sent events.
    stream: Option<bool>,
    #[schema(minimum = 1)]
    max_output_tokens: Option<u32>,
    #[schema(minimum = 0.0, maximum = 2.0)]
    temperature: Option<f64>,
    #[schema(minimum = 0.0, maximum = 1.0)]
    top_p: Option<f64>,
    /// The client's functions.
    tools: Option<Vec<Map<String, Value>>>,
    /// `auto`, `none`, `required`, or a function.
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    /// The format of the answer: `{"format": {"type": "json_schema", ...}}`.
    text: Option<Value>,
    metadata: Option<Map<String, Value>>,
}

/// A part of an answer's text.
#[derive(Serialize, ToSchema)]
struct OutputText {
    #[schema(pattern = "^output_text$")]
    r#type: String,
    text: String,
    annotations: Vec<Value>,
    logprobs: Vec<Value>,
}

/// The status of an item of the output.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes what the handler writes")]
enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
}

/// The text of an answer.
#[derive(Serialize, ToSchema)]
struct OutputMessage {
    id: String,
    #[schema(pattern = "^message$")]
    r#type: String,
    /// `in_progress`, `completed` or `incomplete`.
    status: ItemStatus,
    #[schema(pattern = "^assistant$")]
    role: String,
    content: Vec<OutputText>,
}

/// An item of the output.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the handler writes")]
enum ResponseOutputItem {
    Message(OutputMessage),
    Call(FunctionCall),
}

/// Numbers of input and output tokens.
#[derive(Serialize, ToSchema)]
struct ResponseUsage {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    input_tokens_details: Map<String, Value>,
    output_tokens_details: Map<String, Value>,
}

/// Why an answer is not complete.
#[derive(Serialize, ToSchema)]
struct IncompleteDetails {
    /// `max_output_tokens` or `content_filter`.
    reason: String,
}

/// The status of a response.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes what the handler writes")]
enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

/// A response.
#[derive(Serialize, ToSchema)]
struct ResponseObject {
    #[schema(pattern = "^resp_[0-9a-f]{32}$")]
    id: String,
    #[schema(pattern = "^response$")]
    object: String,
    /// Seconds since 1970, as in OpenAI's API.
    created_at: i64,
    /// `in_progress`, `completed`, `incomplete` or `failed`.
    status: ResponseStatus,
    model: String,
    output: Vec<ResponseOutputItem>,
    usage: Option<ResponseUsage>,
    error: Option<Value>,
    incomplete_details: Option<IncompleteDetails>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    metadata: Map<String, Value>,
}

/// A server-sent event of a response.
#[derive(Serialize, ToSchema)]
struct ResponseEvent {
    /// `response.created`, `response.output_text.delta`, `response.completed` ...
    event: String,
    /// The event in OpenAI's format as JSON on one line.
    data: String,
}

/// The inputs of embeddings: a text or a list of texts, or their tokens.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the handler reads")]
enum EmbeddingInput {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u64>),
    ManyTokens(Vec<Vec<u64>>),
}

/// The encoding of a vector.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes what the handler reads")]
enum EncodingFormat {
    Float,
    Base64,
}

/// An embeddings request.
#[derive(Serialize, ToSchema)]
struct EmbeddingRequest {
    /// `annie`, or the name of a backend's embedding model.
    model: String,
    input: EmbeddingInput,
    encoding_format: Option<EncodingFormat>,
    #[schema(minimum = 1)]
    dimensions: Option<u32>,
}

/// One vector.
#[derive(Serialize, ToSchema)]
struct Embedding {
    #[schema(pattern = "^embedding$")]
    object: String,
    index: u64,
    /// A list of numbers, or a text in base64.
    embedding: Value,
}

/// Embeddings, as the backend returned them.
#[derive(Serialize, ToSchema)]
struct Embeddings {
    #[schema(pattern = "^list$")]
    object: String,
    data: Vec<Embedding>,
    model: String,
    usage: Option<Map<String, Value>>,
}

/// Send a message and get its answer in the format of OpenAI's Responses API.
#[utoipa::path(
    post, path = "/v1/responses", tag = "openai", request_body = ResponseRequest,
    responses(
        (status = 200, description = "The response",
            content((ResponseObject = "application/json"), (ResponseEvent = "text/event-stream"))),
        (status = "default", body = OpenAiError, description = "An error")
    )
)]
#[expect(dead_code, reason = "describes a handler")]
pub fn create() {}

/// Create embeddings of texts on a backend that supports them.
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "openai", request_body = EmbeddingRequest,
    responses((status = 200, body = Embeddings), (status = "default", body = OpenAiError, description = "An error"))
)]
#[expect(dead_code, reason = "describes a handler")]
pub fn embed() {}
