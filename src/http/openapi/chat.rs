//! The description of the OpenAI-compatible surface, as far as it is Annie's own: OpenAI's documentation has the rest.

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
    /// What answers behind the name.
    description: String,
}

/// Models.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers write")]
struct Models {
    #[schema(pattern = "^list$")]
    object: String,
    data: Vec<Model>,
}

/// An error in OpenAI's shape.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers write")]
pub struct OpenAiError {
    error: OpenAiProblem,
}

/// What is wrong, in OpenAI's words.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers write")]
pub struct OpenAiProblem {
    message: String,
    r#type: String,
    /// The parameter that is wrong.
    param: Option<String>,
    code: Option<String>,
}

/// Who says something.
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

/// A message of the history, or the one that is answered.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers read")]
struct CompletionMessage {
    role: Role,
    /// Text, or parts of OpenAI's kinds.
    #[schema(value_type = Option<String>)]
    content: Option<String>,
}

/// A completion that is asked for. Other parameters of OpenAI's are read or ignored as its documentation of Annie says.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handlers read")]
struct CompletionRequest {
    /// `annie`, or `annie/` and a mode.
    model: String,
    /// The last ones are the user's.
    #[schema(min_items = 1)]
    messages: Vec<CompletionMessage>,
    /// As server-sent events: chunks of OpenAI's shape, then `[DONE]`.
    stream: Option<bool>,
}

/// A server-sent event of a completion.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the handler writes")]
struct Chunk {
    /// A chunk of OpenAI's shape as JSON on one line, or `[DONE]`.
    data: String,
}

/// The models.
#[utoipa::path(
    get, path = "/v1/models", tag = "openai",
    responses((status = 200, body = Models), (status = "default", body = OpenAiError, description = "An error"))
)]
#[expect(dead_code, reason = "describes a handler")]
fn list_models() {}

/// One model.
#[utoipa::path(
    get, path = "/v1/models/{id}", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Model), (status = "default", body = OpenAiError, description = "An error"))
)]
#[expect(dead_code, reason = "describes a handler")]
fn get_model() {}

/// Say something and have its answer, in OpenAI's shape. Without a conversation (`metadata.conversation_id`,
/// `X-Annie-Conversation`) the posted messages are all that is known.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai", request_body = CompletionRequest,
    responses(
        (status = 200, description = "The completion", content((Object = "application/json"), (Chunk = "text/event-stream"))),
        (status = "default", body = OpenAiError, description = "An error")
    )
)]
#[expect(dead_code, reason = "describes a handler")]
fn complete() {}
