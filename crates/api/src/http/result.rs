//! The delivery of the result of a long-running operation. The external system that delivers it authenticates with the
//! operation's own key and needs no API key.

use annie_actors::OperationResult;
use annie_core::ids::OperationId;
use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::request::Parts,
};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    extract::{Body, Id, header_text},
    messages::Accepted,
    problem::Problem,
    schema,
};
use crate::{
    api::AppState,
    auth::bearer,
    error::{ApiError, Code},
};

/// The header with an operation's key, for clients that cannot send it in `Authorization`.
const KEY_HEADER: &str = "x-operation-key";

/// The result of an operation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewResult {
    /// Whether the operation succeeded.
    ok: bool,
    /// The text of the result.
    #[serde(default)]
    text: String,
    /// Data of the result for the model.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    data: Value,
}

/// Deliver the result of an operation. It becomes a message in the conversation that the operation was started in. If the same
/// result is delivered again, it is acknowledged again. Requires the operation's own key and no API key.
#[utoipa::path(
    post, path = "/api/v1/resume/{id}", tag = "jobs", request_body = NewResult, security(("key" = [])),
    params(
        ("id" = schema::OperationId, Path),
        ("X-Operation-Key" = Option<String>, Header, description = "The operation's key, if not as a bearer token"),
    ),
    responses((status = 200, body = Accepted), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn finish_operation(
    State(state): State<AppState>,
    OwnKey(key): OwnKey,
    Id(id): Id<OperationId>,
    Body(new): Body<NewResult>,
) -> Result<Json<Accepted>, ApiError> {
    let result = OperationResult { ok: new.ok, text: new.text, data: new.data };
    Ok(Json(state.kernel.finish_operation(id, &key, result).await?.into()))
}

/// The key in the request. It is checked before everything else, so that unauthenticated callers learn nothing.
pub struct OwnKey(String);

impl FromRequestParts<AppState> for OwnKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, ApiError> {
        let shown = header_text(&parts.headers, KEY_HEADER)?.or_else(|| bearer(&parts.headers));
        let why = "send the operation's key as `Authorization: Bearer …` or `X-Operation-Key: …`";
        shown.map(|key| Self(key.to_owned())).ok_or_else(|| ApiError::new(Code::Unauthenticated, why))
    }
}
