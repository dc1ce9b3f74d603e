//! Long-running operations: what is awaited, the key of one, and the way in for its result. Whoever brings the result shows
//! the operation's own key, and needs no other.

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
    auth::{Caller, bearer},
    door::{AppState, page},
    error::{Code, Fault},
};

/// The header with an operation's key, for callers whose `Authorization` is taken.
const KEY_HEADER: &str = "x-operation-key";

/// An operation.
#[derive(Debug, Serialize, ToSchema)]
pub struct LongOperation {
    #[schema(value_type = schema::OperationId)]
    id: OperationId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The task whose skill started it.
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    skill: String,
    /// Whether its result is awaited.
    open: bool,
    /// RFC 3339.
    opened_at: String,
    /// Until when its result is awaited, RFC 3339.
    expires_at: String,
    /// The task that told of its result or of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskId>)]
    closed_by: Option<TaskId>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// Ask again with this as `next` for the rest; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OperationsPage {
    /// Only those whose result is awaited.
    #[serde(default)]
    open: bool,
    /// The `next` of an earlier page: this one goes on behind it.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    next: Option<String>,
    /// How many at most; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

/// Your long-running operations.
#[utoipa::path(
    get, path = "/api/v1/operations", tag = "jobs", params(OperationsPage),
    responses((status = 200, body = LongOperations), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_operations(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<OperationsPage>,
) -> Result<Json<LongOperations>, Fault> {
    let (before, limit) = page_of(page.next.as_deref(), page.limit.as_deref())?;
    let rows = state.kernel.operations(caller.scope(), page.open, before, limit).await?;
    let next = page::next_of(&rows, limit, OperationRow::place);
    Ok(Json(LongOperations { operations: rows.into_iter().map(Into::into).collect(), next }))
}

/// One operation.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}", tag = "jobs", params(("id" = schema::OperationId, Path)),
    responses((status = 200, body = LongOperation), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_operation(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<OperationId>,
) -> Result<Json<LongOperation>, Fault> {
    Ok(Json(state.kernel.operation(caller.scope(), id).await?.into()))
}

/// What whoever brings the result needs.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResultKey {
    #[schema(value_type = schema::OperationId)]
    id: OperationId,
    /// Opens this operation and nothing else. A secret.
    key: String,
    /// Where the result is posted.
    path: String,
}

/// An operation's key.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}/key", tag = "jobs", params(("id" = schema::OperationId, Path)),
    responses((status = 200, body = ResultKey), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_operation_key(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<OperationId>,
) -> Result<Json<ResultKey>, Fault> {
    let grant = state.kernel.operation_key(&caller.user, id).await?;
    Ok(Json(ResultKey { id: grant.id, key: grant.key, path: grant.path }))
}

/// What came of an operation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewResult {
    /// Whether it worked.
    ok: bool,
    /// What is told.
    #[serde(default)]
    text: String,
    /// What belongs to it, for the model.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    data: Value,
}

/// Bring an operation's result: it becomes a message in the conversation that the operation was started in. The same result
/// again is acknowledged again. Needs the operation's key and no other.
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
) -> Result<Json<Accepted>, Fault> {
    let result = OperationResult { ok: new.ok, text: new.text, data: new.data };
    Ok(Json(state.kernel.finish_operation(id, &key, result).await?.into()))
}

/// The key that is shown. Looked for before anything else, so that strangers learn nothing.
pub struct OwnKey(String);

impl FromRequestParts<AppState> for OwnKey {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Fault> {
        let shown = header_text(&parts.headers, KEY_HEADER)?.or_else(|| bearer(&parts.headers));
        let why = "send the operation's key as `Authorization: Bearer …` or `X-Operation-Key: …`";
        shown.map(|key| Self(key.to_owned())).ok_or_else(|| Fault::new(Code::Unauthenticated, why))
    }
}
