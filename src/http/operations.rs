//! Long-running operations: lists, the key of an operation, and the delivery of its result. The external system that delivers
//! the result authenticates with the operation's own key and needs no API key.

use annie_actors::OperationResult;
use annie_core::{
    ids::{ConversationId, OperationId, TaskId},
    ports::OperationRow,
};
use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::request::Parts,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Body, Id, header_text, page_of},
    messages::Accepted,
    problem::Problem,
    schema,
};
use crate::{
    api::{AppState, page},
    auth::{Caller, bearer},
    error::{ApiError, Code},
};

/// The header with an operation's key, for clients that cannot send it in `Authorization`.
const KEY_HEADER: &str = "x-operation-key";

/// A long-running operation that a skill started.
#[derive(Debug, Serialize, ToSchema)]
pub struct LongOperation {
    #[schema(value_type = schema::OperationId)]
    id: OperationId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The task whose skill started the operation.
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    skill: String,
    /// Whether the result is still awaited.
    open: bool,
    /// RFC 3339.
    #[schema(format = DateTime)]
    opened_at: String,
    /// The time until which the result is awaited, RFC 3339.
    #[schema(format = DateTime)]
    expires_at: String,
    /// The task that received the result, or the failure to get one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskId>)]
    closed_by: Option<TaskId>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    closed_at: Option<String>,
}

impl From<OperationRow> for LongOperation {
    fn from(row: OperationRow) -> Self {
        Self {
            id: row.id,
            conversation_id: row.conversation,
            task_id: row.task,
            skill: row.skill,
            open: row.closed_by.is_none(),
            opened_at: row.opened_at.to_string(),
            expires_at: row.expires_at.to_string(),
            closed_by: row.closed_by,
            closed_at: row.closed_at.map(|at| at.to_string()),
        }
    }
}

/// Operations, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct LongOperations {
    operations: Vec<LongOperation>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OperationsPage {
    /// Only operations whose result is still awaited.
    #[serde(default)]
    open: bool,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

/// List your long-running operations.
#[utoipa::path(
    get, path = "/api/v1/operations", tag = "jobs", params(OperationsPage),
    responses((status = 200, body = LongOperations), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_operations(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<OperationsPage>,
) -> Result<Json<LongOperations>, ApiError> {
    let (before, limit) = page_of(page.next.as_deref(), page.limit.as_deref())?;
    let rows = state.kernel.operations(caller.scope(), page.open, before, limit).await?;
    let next = page::next_of(&rows, limit, OperationRow::page_start);
    Ok(Json(LongOperations { operations: rows.into_iter().map(Into::into).collect(), next }))
}

/// Get an operation.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}", tag = "jobs", params(("id" = schema::OperationId, Path)),
    responses((status = 200, body = LongOperation), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_operation(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<OperationId>,
) -> Result<Json<LongOperation>, ApiError> {
    Ok(Json(state.kernel.operation(caller.scope(), id).await?.into()))
}

/// The key and the path with which the external system delivers the result.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResultKey {
    #[schema(value_type = schema::OperationId)]
    id: OperationId,
    /// Authorises the result of this operation and nothing else. A secret.
    key: String,
    /// The path to which the result is posted.
    path: String,
}

/// Get the key of an operation.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}/key", tag = "jobs", params(("id" = schema::OperationId, Path)),
    responses((status = 200, body = ResultKey), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_operation_key(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<OperationId>,
) -> Result<Json<ResultKey>, ApiError> {
    let grant = state.kernel.operation_key(&caller.user, id).await?;
    Ok(Json(ResultKey { id: grant.id, key: grant.key, path: grant.path }))
}

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
