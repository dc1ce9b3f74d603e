//! Tasks: the state of messages, and commands on them.

use annie_actors::Control;
use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId},
    ports::{TaskRow, TaskState},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    acts::{Subject, recorded},
    input::OpenPage,
    row::{
        Call, Operation,
        Verb::{Get, Post},
        route,
    },
};
use crate::{
    api::page::Page,
    auth::{
        KeyScope::{JobsControl, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::{
        convert::{self, path_id},
        v1,
    },
    http::{
        extract::{Args, Body, Id},
        schema,
    },
};

/// The operations on tasks.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/tasks", Scope(JobsRead), list_tasks, Tasks::from)
            .about("list_tasks", "jobs", "List your tasks.", "tasks list")
            .rpc("/annie.v1.Jobs/List", asked_page, listed),
        route(Get, "/api/v1/tasks/{id}", Scope(JobsRead), get_task, Task::from)
            .about("get_task", "jobs", "Get a task.", "tasks show")
            .rpc("/annie.v1.Jobs/Get", |r: v1::GetTaskRequest| path_id("task_id", &r.task_id), wire),
        route(
            Post,
            "/api/v1/tasks/{id}/cancel",
            Scope(JobsControl),
            recorded("task.cancel", about, cancel_task),
            |cancelled| CancelledTask { cancelled },
        )
        .about("cancel_task", "jobs", "Cancel a task.", "tasks cancel")
        .rpc(
            "/annie.v1.Jobs/Cancel",
            |r: v1::CancelTaskRequest| path_id("task_id", &r.task_id),
            |cancelled| v1::CancelTaskResponse { cancelled },
        ),
        route(
            Post,
            "/api/v1/tasks/{id}/suspend",
            Scope(JobsControl),
            recorded("task.suspend", about, suspend_task),
            |done| ControlledTask { done },
        )
        .about("suspend_task", "jobs", SUSPEND, "jobs pause")
        .rpc("/annie.v1.Jobs/Suspend", |r: v1::ControlTaskRequest| path_id("task_id", &r.task_id), controlled),
        route(
            Post,
            "/api/v1/tasks/{id}/continue",
            Scope(JobsControl),
            recorded("task.continue", about, continue_task),
            |done| ControlledTask { done },
        )
        .about("continue_task", "jobs", "Continue a suspended task.", "jobs resume")
        .rpc("/annie.v1.Jobs/Continue", |r: v1::ControlTaskRequest| path_id("task_id", &r.task_id), controlled),
        route(
            Post,
            "/api/v1/tasks/{id}/priority",
            Scope(JobsControl),
            recorded("task.priority", about_priority, set_priority),
            |done| ControlledTask { done },
        )
        .about("set_priority", "jobs", "Change the class of a task.", "jobs priority")
        .rpc("/annie.v1.Jobs/SetPriority", asked_priority, controlled),
    ]
}

fn about(Id(id): &Id<TaskId>) -> Subject {
    Subject::of(id)
}

fn about_priority((Id(id), Body(new)): &(Id<TaskId>, Body<NewPriority>)) -> Subject {
    Subject::of(id).because(&format!("to class {}", new.priority.as_str()))
}

const SUSPEND: &str =
    "Suspend a task: no further round of it starts until it is continued. The current round ends normally.";

const fn controlled(done: bool) -> v1::ControlTaskResponse {
    v1::ControlTaskResponse { done }
}

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

/// A task as gRPC shows it.
fn wire(row: TaskRow) -> v1::Task {
    let (error, outcome) = (row.failure().unwrap_or_default(), row.outcome().unwrap_or_default());
    v1::Task {
        id: row.id.to_string(),
        conversation_id: row.conversation.to_string(),
        state: convert::state_of(row.state).into(),
        priority: convert::priority_of(row.priority).into(),
        source: row.source,
        title: row.title,
        received_at_us: row.received_at.0,
        started_at_us: row.started_at.map(|at| at.0),
        ended_at_us: row.ended_at.map(|at| at.0),
        error,
        outcome,
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

impl From<Page<TaskRow>> for Tasks {
    fn from(page: Page<TaskRow>) -> Self {
        Self { tasks: page.rows.into_iter().map(Into::into).collect(), next: page.next }
    }
}

fn listed(page: Page<TaskRow>) -> v1::ListTasksResponse {
    let tasks = page.rows.into_iter().map(wire).collect();
    v1::ListTasksResponse { tasks, next: page.next.unwrap_or_default() }
}

fn asked_page(asked: v1::ListTasksRequest) -> Result<Args<OpenPage>, ApiError> {
    let v1::ListTasksRequest { open, limit, next } = asked;
    Ok(OpenPage::of_rpc(open, limit, next))
}

async fn list_tasks(call: Call, Args(page): Args<OpenPage>) -> Result<Page<TaskRow>, ApiError> {
    let (open, before, limit) = page.parts()?;
    let rows = call.state.kernel.tasks(call.caller.scope(), open, before, limit).await?;
    Ok(Page::of(rows, limit, TaskRow::page_start))
}

async fn get_task(call: Call, Id(id): Id<TaskId>) -> Result<TaskRow, ApiError> {
    Ok(call.state.kernel.task(call.caller.scope(), id).await?)
}

/// Whether a task was cancelled.
#[derive(Debug, Serialize, ToSchema)]
pub struct CancelledTask {
    /// False if the task had ended before.
    cancelled: bool,
}

async fn cancel_task(call: Call, Id(id): Id<TaskId>) -> Result<bool, ApiError> {
    Ok(call.state.kernel.cancel(call.caller.scope(), id, &call.caller.name()).await?)
}

/// Whether a command on a task was carried out.
#[derive(Debug, Serialize, ToSchema)]
pub struct ControlledTask {
    /// False if the task had ended before.
    done: bool,
}

async fn control(call: Call, id: TaskId, control: Control) -> Result<bool, ApiError> {
    Ok(call.state.kernel.control(call.caller.scope(), id, control, &call.caller.name()).await?)
}

async fn suspend_task(call: Call, Id(id): Id<TaskId>) -> Result<bool, ApiError> {
    control(call, id, Control::Suspend).await
}

async fn continue_task(call: Call, Id(id): Id<TaskId>) -> Result<bool, ApiError> {
    control(call, id, Control::Continue).await
}

/// The new class of a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPriority {
    /// `high`, `normal`, `low` or `background`.
    #[schema(value_type = schema::QueuedPriority)]
    priority: Priority,
}

fn asked_priority(asked: v1::SetPriorityRequest) -> Result<(Id<TaskId>, Body<NewPriority>), ApiError> {
    let priority = convert::priority(asked.priority)?;
    let priority = priority.ok_or_else(|| ApiError::invalid("say which priority").at("priority"))?;
    Ok((path_id("task_id", &asked.task_id)?, Body(NewPriority { priority })))
}

async fn set_priority(call: Call, (Id(id), Body(new)): (Id<TaskId>, Body<NewPriority>)) -> Result<bool, ApiError> {
    if new.priority == Priority::Realtime {
        return Err(ApiError::invalid("`realtime` is reserved for voice; use `high`").at("priority"));
    }
    control(call, id, Control::Reprioritise(new.priority)).await
}
