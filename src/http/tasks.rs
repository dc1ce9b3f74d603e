//! Tasks: the state of messages, and commands on them.

use annie_actors::Control;
use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId},
    ports::{TaskRow, TaskState},
};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Body, Id, page_of},
    problem::Problem,
    schema,
};
use crate::{
    api::{self, AppState, page},
    auth::Caller,
    error::ApiError,
};

/// A task: a message and all work until its final event.
#[derive(Debug, Serialize, ToSchema)]
pub struct Task {
    #[schema(value_type = schema::TaskId)]
    id: TaskId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// `queued`, `running`, `suspended`, `completed`, `failed` or `cancelled`.
    #[schema(value_type = schema::TaskState)]
    status: TaskState,
    #[schema(value_type = schema::Priority)]
    priority: Priority,
    /// The source: the front end or channel that the message came from.
    source: String,
    /// The first 80 characters of the message.
    title: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    received_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// The error code of a failed task.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Of a completed task: `done`, `paused`, `declined`, `no_action`, `gave_up` or `incomplete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::AnswerOutcome>)]
    outcome: Option<String>,
}

impl From<TaskRow> for Task {
    fn from(row: TaskRow) -> Self {
        let (error, outcome) = (row.failure(), row.outcome());
        Self {
            id: row.id,
            conversation_id: row.conversation,
            status: row.state,
            priority: row.priority,
            source: row.source,
            title: row.title,
            received_at: row.received_at.to_string(),
            started_at: row.started_at.map(|at| at.to_string()),
            ended_at: row.ended_at.map(|at| at.to_string()),
            error,
            outcome,
        }
    }
}

/// Tasks, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Tasks {
    tasks: Vec<Task>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TasksPage {
    /// Only tasks that have not ended.
    #[serde(default)]
    open: bool,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

/// List your tasks.
#[utoipa::path(
    get, path = "/api/v1/tasks", tag = "jobs", params(TasksPage),
    responses((status = 200, body = Tasks), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_tasks(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<TasksPage>,
) -> Result<Json<Tasks>, ApiError> {
    let (before, limit) = page_of(page.next.as_deref(), page.limit.as_deref())?;
    let rows = state.kernel.tasks(caller.scope(), page.open, before, limit).await?;
    let next = page::next_of(&rows, limit, TaskRow::page_start);
    Ok(Json(Tasks { tasks: rows.into_iter().map(Into::into).collect(), next }))
}

/// Get a task.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}", tag = "jobs", params(("id" = schema::TaskId, Path)),
    responses((status = 200, body = Task), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_task(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<Task>, ApiError> {
    Ok(Json(state.kernel.task(caller.scope(), id).await?.into()))
}

/// Whether a task was cancelled.
#[derive(Debug, Serialize, ToSchema)]
pub struct CancelledTask {
    /// False if the task had ended before.
    cancelled: bool,
}

/// Cancel a task.
#[utoipa::path(
    post, path = "/api/v1/tasks/{id}/cancel", tag = "jobs", params(("id" = schema::TaskId, Path)),
    responses((status = 200, body = CancelledTask), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn cancel_task(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<CancelledTask>, ApiError> {
    let cancelled = state.kernel.cancel(caller.scope(), id, &caller.name()).await?;
    Ok(Json(CancelledTask { cancelled }))
}

/// Whether a command on a task was carried out.
#[derive(Debug, Serialize, ToSchema)]
pub struct ControlledTask {
    /// False if the task had ended before.
    done: bool,
}

async fn control(
    state: &AppState,
    caller: &Caller,
    id: TaskId,
    what: Control,
) -> Result<Json<ControlledTask>, ApiError> {
    let done = state.kernel.control(caller.scope(), id, what, &caller.name()).await?;
    Ok(Json(ControlledTask { done }))
}

/// Suspend a task: no further round of it starts until it is continued. The current round ends normally.
#[utoipa::path(
    post, path = "/api/v1/tasks/{id}/suspend", tag = "jobs", params(("id" = schema::TaskId, Path)),
    responses((status = 200, body = ControlledTask), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn suspend_task(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<ControlledTask>, ApiError> {
    control(&state, &caller, id, Control::Suspend).await
}

/// Continue a suspended task.
#[utoipa::path(
    post, path = "/api/v1/tasks/{id}/continue", tag = "jobs", params(("id" = schema::TaskId, Path)),
    responses((status = 200, body = ControlledTask), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn continue_task(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<ControlledTask>, ApiError> {
    control(&state, &caller, id, Control::Continue).await
}

/// The new class of a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPriority {
    /// `high`, `normal`, `low` or `background`.
    #[schema(value_type = schema::QueuedPriority)]
    priority: Priority,
}

/// Change the class of a task.
#[utoipa::path(
    post, path = "/api/v1/tasks/{id}/priority", tag = "jobs", params(("id" = schema::TaskId, Path)), request_body = NewPriority,
    responses((status = 200, body = ControlledTask), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn set_priority(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
    Body(new): Body<NewPriority>,
) -> Result<Json<ControlledTask>, ApiError> {
    let done = api::set_priority(&state, &caller, id, new.priority).await?;
    Ok(Json(ControlledTask { done }))
}
