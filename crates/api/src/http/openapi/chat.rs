//! The description of the OpenAI-compatible API, limited to what is specific to Annie: OpenAI's documentation has the rest.

use utoipa::{OpenApi, ToSchema};

/// The routes.
#[derive(OpenApi)]
#[openapi(paths(list_models, get_model, complete, super::responses::create, super::responses::embed))]
pub struct Routes;

/// A model, as OpenAI describes one.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers write")]
struct Model {
    /// `annie`, or `annie/` and a mode.
    id: String,
    #[schema(pattern = "^model$")]
    object: String,
    /// Seconds since 1970.
    created: i64,
    owned_by: String,
    /// The models behind the name.
    description: String,
}

/// A list of models.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers write")]
struct Models {
    #[schema(pattern = "^list$")]
    object: String,
    data: Vec<Model>,
}

/// An error in OpenAI's format.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers write")]
pub struct OpenAiError {
    error: OpenAiProblem,
}

/// The error in OpenAI's terms.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers write")]
pub struct OpenAiProblem {
    message: String,
    r#type: String,
    /// The parameter that is wrong.
    param: Option<String>,
    code: Option<String>,
}

/// The author of a message.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes what the handlers read")]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

/// A message of the history, or the prompt.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers read")]
struct CompletionMessage {
    role: Role,
    /// Text, or parts in OpenAI's format.
    #[schema(value_type = Option<String>)]
    content: Option<String>,
}

/// A completion request. Other parameters of OpenAI's API are read or ignored as docs/operating.md says.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers read")]
struct CompletionRequest {
    /// `annie`, or `annie/` and a mode.
    model: String,
    /// The last messages are those of the user.
    #[schema(min_items = 1)]
    messages: Vec<CompletionMessage>,
    /// Respond with server-sent events: chunks in OpenAI's format, then `[DONE]`.
    stream: Option<bool>,
}

/// A server-sent event of a completion.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handler writes")]
struct Chunk {
    /// A chunk in OpenAI's format as JSON on one line, or `[DONE]`.
    data: String,
}

/// List the models.
#[utoipa::path(
    get, path = "/v1/models", tag = "openai",
    responses((status = 200, body = Models), (status = "default", body = OpenAiError, description = "An error"))
)]
#[expect(dead_code, reason = "describes a handler")]
fn list_models() {}

/// Get a model.
#[utoipa::path(
    get, path = "/v1/models/{id}", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Model), (status = "default", body = OpenAiError, description = "An error"))
)]
#[expect(dead_code, reason = "describes a handler")]
fn get_model() {}

/// Send a message and get its answer in OpenAI's format. If the request names no conversation (`metadata.conversation_id`,
/// `X-Annie-Conversation`), only the posted messages are used.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai", request_body = CompletionRequest,
    responses(
        (status = 200, description = "The completion", content((Object = "application/json"), (Chunk = "text/event-stream"))),
        (status = "default", body = OpenAiError, description = "An error")
    )
)]
#[expect(dead_code, reason = "describes a handler")]
fn complete() {}
