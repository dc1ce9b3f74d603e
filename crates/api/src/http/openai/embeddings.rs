//! `POST /v1/embeddings`: forwarded to a backend that supports them.

use annie_actors::{EmbedError, KernelError};
use annie_core::message::ModelErrorKind;
use axum::{Json, extract::State, http::HeaderMap};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{params::given, turn::on_behalf};
use crate::{
    api::AppState,
    auth::Caller,
    error::{ApiError, Code},
    http::extract::Body,
};

/// The maximum number of inputs in one request, as texts or as lists of tokens.
const INPUTS_MAX: usize = 2_048;

/// The body of the request.
#[derive(Debug, Deserialize)]
pub struct EmbeddingRequest {
    model: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    encoding_format: Option<Value>,
    #[serde(default)]
    dimensions: Option<Value>,
}

impl EmbeddingRequest {
    fn check(&self) -> Result<Map<String, Value>, ApiError> {
        let is_token = |v: &Value| v.is_u64();
        let is_text = |v: &Value| v.as_str().is_some_and(|text| !text.is_empty());
        let is_tokens = |v: &Value| v.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_token));
        let fits = match &self.input {
            Value::Array(list) if !list.is_empty() => {
                // A single text as tokens may be as long as the model accepts.
                let is_few = list.len() <= INPUTS_MAX;
                list.iter().all(is_token) || is_few && (list.iter().all(is_text) || list.iter().all(is_tokens))
            }
            one => is_text(one),
        };
        if !fits {
            let why = format!(
                "input is a text that is not empty, or its tokens as whole numbers, or a list of 1 to {INPUTS_MAX} of either"
            );
            return Err(ApiError::invalid(why).at("input"));
        }
        let mut body = Map::from_iter([("input".to_owned(), self.input.clone())]);
        if let Some(format) = given(self.encoding_format.as_ref()) {
            if format != "float" && format != "base64" {
                return Err(ApiError::invalid("encoding_format is float or base64").at("encoding_format"));
            }
            body.insert("encoding_format".to_owned(), format.clone());
        }
        if let Some(dimensions) = given(self.dimensions.as_ref()) {
            if dimensions.as_u64().is_none_or(|n| n == 0) {
                return Err(ApiError::invalid("dimensions is a whole number above 0").at("dimensions"));
            }
            body.insert("dimensions".to_owned(), dimensions.clone());
        }
        Ok(body)
    }
}

/// The handler.
pub async fn embed(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    Body(request): Body<EmbeddingRequest>,
) -> Result<Json<Value>, ApiError> {
    let caller = on_behalf(caller, &headers)?;
    let body = request.check()?;
    let model = Some(request.model.as_str()).filter(|model| *model != "annie");
    let reply = state.kernel.embed(caller.user, model, body).await.map_err(error)?;
    Ok(Json(reply))
}

fn error(error: EmbedError) -> ApiError {
    match error {
        EmbedError::NoModel(models) if models.is_empty() => {
            let why = "no backend here makes embeddings: its operator sets `embeddings` of a [[backend]]";
            ApiError::new(Code::Unsupported, why).at("model")
        }
        EmbedError::NoModel(models) => {
            let mut error = ApiError::not_found("model").at("model");
            error.detail = format!("there is no such embedding model; say annie, or one of {}", models.join(", "));
            error
        }
        EmbedError::Full(refusal) => KernelError::Full(refusal).into(),
        EmbedError::Model(error) if error.kind.is_cap() => {
            let facts = json!({ "error": error.kind.as_str() });
            ApiError::new(Code::RateLimited, error.detail).with_facts(facts)
        }
        EmbedError::Model(error) => {
            let (code, why) = match error.kind {
                ModelErrorKind::RateLimited => (Code::RateLimited, "the backend has too many requests now; try again"),
                ModelErrorKind::Overflow => (Code::ContextTooLong, "the input does not fit into the model"),
                ModelErrorKind::InvalidRequest => (Code::InvalidRequest, "the backend did not accept the request"),
                ModelErrorKind::Unavailable | ModelErrorKind::Timeout => {
                    (Code::Unavailable, "the backend cannot be reached now")
                }
                _ => (Code::TurnFailed, "the backend failed"),
            };
            tracing::warn!(%error, "embeddings failed");
            ApiError::new(code, why).with_facts(json!({ "error": error.kind.as_str() }))
        }
    }
}
