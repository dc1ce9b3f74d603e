//! Long-running operations: lists, and the key of an operation. The delivery of a result is in
//! `crates/api/src/http/result.rs` and `crates/api/src/grpc/operations.rs`, because it needs the operation's key and no caller.

use annie_core::{
    ids::{ConversationId, OperationId, TaskId},
    ports::{OperationGrant, OperationRow},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    input::OpenPage,
    row::{Call, Operation, Verb::Get, route},
};
use crate::{
    api::page::Page,
    auth::{
        KeyScope::{JobsControl, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::{convert::path_id, v1},
    http::{
        extract::{Args, Id},
        schema,
    },
};

/// The operations on long-running operations.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/operations", Scope(JobsRead), list_operations, LongOperations::from)
            .about("list_operations", "jobs", "List your long-running operations.", "operations list")
            .rpc("/annie.v1.Operations/List", asked_page, listed),
        route(Get, "/api/v1/operations/{id}", Scope(JobsRead), get_operation, LongOperation::from)
            .about("get_operation", "jobs", "Get an operation.", "operations show")
            .rpc("/annie.v1.Operations/Get", |r: v1::GetOperationRequest| path_id("id", &r.id), wire),
        route(Get, "/api/v1/operations/{id}/key", Scope(JobsControl), get_operation_key, ResultKey::from)
            .about("get_operation_key", "jobs", "Get the key of an operation.", "operations key")
            .rpc("/annie.v1.Operations/Key", |r: v1::OperationKeyRequest| path_id("id", &r.id), wire_key),
    ]
}

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

/// An operation as gRPC shows it.
pub(super) fn wire(row: OperationRow) -> v1::Operation {
    v1::Operation {
        id: row.id.to_string(),
        conversation_id: row.conversation.to_string(),
        task_id: row.task.to_string(),
        skill: row.skill,
        open: row.closed_by.is_none(),
        opened_at_us: row.opened_at.0,
        expires_at_us: row.expires_at.0,
        closed_by: row.closed_by.map(|task| task.to_string()).unwrap_or_default(),
        closed_at_us: row.closed_at.map(|at| at.0),
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

impl From<Page<OperationRow>> for LongOperations {
    fn from(page: Page<OperationRow>) -> Self {
        Self { operations: page.rows.into_iter().map(Into::into).collect(), next: page.next }
    }
}

fn listed(page: Page<OperationRow>) -> v1::ListOperationsResponse {
    let operations = page.rows.into_iter().map(wire).collect();
    v1::ListOperationsResponse { operations, next: page.next.unwrap_or_default() }
}

fn asked_page(asked: v1::ListOperationsRequest) -> Result<Args<OpenPage>, ApiError> {
    let v1::ListOperationsRequest { open, limit, next } = asked;
    Ok(OpenPage::of_rpc(open, limit, next))
}

async fn list_operations(call: Call, Args(page): Args<OpenPage>) -> Result<Page<OperationRow>, ApiError> {
    let (open, before, limit) = page.parts()?;
    let rows = call.state.kernel.operations(call.caller.scope(), open, before, limit).await?;
    Ok(Page::of(rows, limit, OperationRow::page_start))
}

async fn get_operation(call: Call, Id(id): Id<OperationId>) -> Result<OperationRow, ApiError> {
    Ok(call.state.kernel.operation(call.caller.scope(), id).await?)
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

impl From<OperationGrant> for ResultKey {
    fn from(grant: OperationGrant) -> Self {
        Self { id: grant.id, key: grant.key, path: grant.path }
    }
}

/// The key as gRPC shows it.
fn wire_key(grant: OperationGrant) -> v1::OperationKey {
    v1::OperationKey { id: grant.id.to_string(), key: grant.key, path: grant.path }
}

async fn get_operation_key(call: Call, Id(id): Id<OperationId>) -> Result<OperationGrant, ApiError> {
    Ok(call.state.kernel.operation_key(&call.caller.user, id).await?)
}
