//! Dead letters: tasks that failed after all retries, kept so that they can be retried.

use annie_actors::{ManyDeadLetters, ManyDone};
use annie_core::{
    dead_letter::DeadLetterState,
    event::Priority,
    ids::{ConversationId, TaskId},
    ports::DeadLetterRow,
    time::Micros,
};
use axum::{Json, extract::State};
use chrono::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Body, Id, page_of, whole_option},
    messages::Accepted,
    problem::Problem,
    schema,
};
use crate::{
    api::{AppState, DeadLetterOptions, page, scope_of, shown_event},
    auth::Caller,
    error::ApiError,
};

/// A dead letter: a failed task that can be retried.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadLetter {
    /// The failed task.
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The first 80 characters of the message.
    title: String,
    #[schema(value_type = schema::Priority)]
    priority: Priority,
    /// `waiting`, `retried`, `discarded` or `archived`.
    #[schema(value_type = schema::DeadLetterState)]
    state: DeadLetterState,
    /// The error code of the failure.
    error: String,
    /// The text that was sent in the conversation.
    answer: String,
    /// The details for operators.
    detail: String,
    /// The failed attempts, oldest first.
    tried: Vec<String>,
    /// When the first attempt failed, RFC 3339.
    #[schema(format = DateTime)]
    since: String,
    /// When the task is retried automatically; absent if it is retried only on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    retry_at: Option<String>,
    /// The task of the retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskId>)]
    retried_by: Option<TaskId>,
    /// RFC 3339.
    #[schema(format = DateTime)]
    failed_at: String,
    /// When the state last changed, RFC 3339.
    #[schema(format = DateTime)]
    changed_at: String,
}

impl From<DeadLetterRow> for DeadLetter {
    fn from(row: DeadLetterRow) -> Self {
        Self {
            task_id: row.task,
            conversation_id: row.conversation,
            title: row.title,
            priority: row.priority,
            state: row.state,
            error: row.code,
            answer: row.text,
            detail: row.detail,
            tried: row.dead_letter.tried,
            since: row.dead_letter.since.to_string(),
            retry_at: row.dead_letter.retry_at.map(|at| at.to_string()),
            retried_by: row.retried_by,
            failed_at: row.failed_at.to_string(),
            changed_at: row.changed_at.to_string(),
        }
    }
}

/// Dead letters, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadLetters {
    dead_letters: Vec<DeadLetter>,
    /// The number of matching dead letters, on this page and all others.
    total: u64,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadLettersPage {
    /// Only dead letters in this state: `waiting`, `retried`, `discarded` or `archived`.
    #[param(value_type = Option<schema::DeadLetterState>)]
    state: Option<DeadLetterState>,
    /// Only failures with this error code.
    error: Option<String>,
    /// Only this class.
    #[param(value_type = Option<schema::Priority>)]
    priority: Option<Priority>,
    /// Only this user's. Another user than your own requires the scope `impersonate`.
    #[param(value_type = Option<schema::UserId>)]
    user: Option<String>,
    /// Only failures at this time or later, RFC 3339.
    #[param(format = DateTime)]
    failed_from: Option<String>,
    /// Only failures before this time, RFC 3339.
    #[param(format = DateTime)]
    failed_before: Option<String>,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

/// List your dead letters.
#[utoipa::path(
    get, path = "/api/v1/dead-letters", tag = "jobs", params(DeadLettersPage),
    responses((status = 200, body = DeadLetters), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_dead_letters(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<DeadLettersPage>,
) -> Result<Json<DeadLetters>, ApiError> {
    let (before, limit) = page_of(page.next.as_deref(), page.limit.as_deref())?;
    let scope = scope_of(&caller, page.user.as_deref())?;
    let DeadLettersPage { state: in_state, error, priority, failed_from, failed_before, .. } = page;
    let (failed_from, failed_before) = (instant("failed_from", failed_from)?, instant("failed_before", failed_before)?);
    let filter = DeadLetterOptions { state: in_state, error, priority, failed_from, failed_before }.filter();
    let total = state.kernel.count_dead_letters(scope.clone(), filter.clone()).await?;
    let rows = state.kernel.dead_letters(scope, filter, before, limit).await?;
    let next = page::next_of(&rows, limit, DeadLetterRow::page_start);
    Ok(Json(DeadLetters { dead_letters: rows.into_iter().map(Into::into).collect(), total, next }))
}

/// Parses a time.
fn instant(field: &'static str, text: Option<String>) -> Result<Option<Micros>, ApiError> {
    let read = |text: String| {
        let at = DateTime::parse_from_rfc3339(&text);
        let wrong = |e| ApiError::invalid(format!("it must be a time such as 2026-09-27T09:00:00Z: {e}")).at(field);
        at.map(|at| Micros::from_utc(at.to_utc())).map_err(wrong)
    };
    text.map(read).transpose()
}

/// A dead letter with the history of all attempts.
#[derive(Debug, Serialize, ToSchema)]
pub struct WholeDeadLetter {
    #[serde(flatten)]
    dead_letter: DeadLetter,
    /// The text of the message.
    text: String,
    /// The tasks of earlier attempts, oldest first.
    #[schema(value_type = Vec<schema::TaskId>)]
    before: Vec<TaskId>,
    /// The events of the task, oldest first; of a long task the last 500.
    #[schema(value_type = Vec<schema::Event>)]
    events: Vec<Value>,
}

/// Get a dead letter with the history of all attempts.
#[utoipa::path(
    get, path = "/api/v1/dead-letters/{id}", tag = "jobs", params(("id" = schema::TaskId, Path, description = "The failed task")),
    responses((status = 200, body = WholeDeadLetter), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_dead_letter(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<WholeDeadLetter>, ApiError> {
    let found = state.kernel.dead_letter(caller.scope(), id).await?;
    let events = found.events.iter().map(shown_event).collect();
    Ok(Json(WholeDeadLetter { dead_letter: found.row.into(), text: found.text, before: found.before, events }))
}

/// Retry a dead letter now, in class `high`.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/{id}/retry", tag = "jobs", params(("id" = schema::TaskId, Path)),
    responses((status = 200, body = Accepted), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn retry_dead_letter(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<Accepted>, ApiError> {
    Ok(Json(state.kernel.retry_dead_letter(caller.scope(), id, &caller.name()).await?.into()))
}

/// Whether a dead letter was discarded.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiscardedDeadLetter {
    /// False if it was not waiting any more.
    discarded: bool,
}

/// Discard a dead letter permanently.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/{id}/discard", tag = "jobs", params(("id" = schema::TaskId, Path)),
    responses((status = 200, body = DiscardedDeadLetter), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn discard_dead_letter(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<DiscardedDeadLetter>, ApiError> {
    let discarded = state.kernel.discard_dead_letter(caller.scope(), id, &caller.name()).await?;
    Ok(Json(DiscardedDeadLetter { discarded }))
}

/// The filter of a bulk command on waiting dead letters. Fields that are absent match all of your dead letters.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManyDeadLettersOptions {
    /// Only failures with this error code.
    error: Option<String>,
    /// Only this class.
    #[schema(value_type = Option<schema::Priority>)]
    priority: Option<Priority>,
    /// Only this user's. Another user than your own requires the scope `impersonate`.
    #[schema(value_type = Option<schema::UserId>)]
    user: Option<String>,
    /// Only failures at this time or later, RFC 3339.
    #[schema(format = DateTime)]
    failed_from: Option<String>,
    /// Only failures before this time, RFC 3339.
    #[schema(format = DateTime)]
    failed_before: Option<String>,
    /// The maximum number of dead letters to process, the newest first; 100 by default.
    #[serde(default, deserialize_with = "whole_option")]
    #[schema(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Required to carry the command out. Otherwise nothing is changed and the response only has the counts.
    #[serde(default)]
    confirmed: bool,
}

impl ManyDeadLettersOptions {
    fn checked(self, caller: &Caller) -> Result<ManyDeadLetters, ApiError> {
        let Self { error, priority, user, failed_from, failed_before, limit, confirmed } = self;
        let (failed_from, failed_before) =
            (instant("failed_from", failed_from)?, instant("failed_before", failed_before)?);
        let filter = DeadLetterOptions { state: None, error, priority, failed_from, failed_before }.filter();
        let limit = page::BULK.of(limit)?;
        Ok(ManyDeadLetters { scope: scope_of(caller, user.as_deref())?, filter, limit, is_confirmed: confirmed })
    }
}

/// The result of a bulk command on dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub struct ManyDeadLettersDone {
    /// The number of matching dead letters before this call.
    matching: u64,
    /// The number that was processed.
    done: u32,
    /// The number of matching dead letters that remain.
    left: u64,
    /// Why the command ended before its limit, for example because the queue is full; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    /// The failed tasks that will be retried, each by a new task when the queue has capacity.
    #[schema(value_type = Vec<schema::TaskId>)]
    task_ids: Vec<TaskId>,
}

impl From<ManyDone> for ManyDeadLettersDone {
    fn from(many: ManyDone) -> Self {
        let ManyDone { matching, done, left, stopped, tasks } = many;
        Self { matching, done, left, stopped, task_ids: tasks }
    }
}

/// Schedule many waiting dead letters for a retry in class `background` when the queue has capacity. Without `confirmed` they
/// are only counted.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/retry", tag = "jobs", request_body = ManyDeadLettersOptions,
    responses((status = 200, body = ManyDeadLettersDone), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn retry_dead_letters(
    State(state): State<AppState>,
    caller: Caller,
    Body(options): Body<ManyDeadLettersOptions>,
) -> Result<Json<ManyDeadLettersDone>, ApiError> {
    let options = options.checked(&caller)?;
    Ok(Json(state.kernel.retry_dead_letters(options, &caller.name()).await?.into()))
}

/// Discard many waiting dead letters permanently. Without `confirmed` they are only counted.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/discard", tag = "jobs", request_body = ManyDeadLettersOptions,
    responses((status = 200, body = ManyDeadLettersDone), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn discard_dead_letters(
    State(state): State<AppState>,
    caller: Caller,
    Body(options): Body<ManyDeadLettersOptions>,
) -> Result<Json<ManyDeadLettersDone>, ApiError> {
    let options = options.checked(&caller)?;
    Ok(Json(state.kernel.discard_dead_letters(options, &caller.name()).await?.into()))
}
