//! Dead letters: work that failed in every way that was tried, kept to be tried again.

use annie_core::{
    event::{Event, Priority},
    ids::{ConversationId, TaskId},
    letter::LetterState,
    ports::LetterRow,
};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Id, page_of},
    messages::Accepted,
    problem::Problem,
    schema,
};
use crate::{auth::Caller, door::AppState, error::Fault};

/// A dead letter.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadLetter {
    /// The task that failed.
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The message's first 80 characters.
    title: String,
    #[schema(value_type = schema::Priority)]
    priority: Priority,
    /// `waiting`, `retried`, `discarded` or `archived`.
    #[schema(value_type = schema::LetterState)]
    state: LetterState,
    /// The failure's code.
    error: String,
    /// What was told in the conversation.
    answer: String,
    /// What is told to operators.
    detail: String,
    /// What was tried, oldest first.
    tried: Vec<String>,
    /// When the first of the tries failed, RFC 3339.
    since: String,
    /// When it is tried again by itself; absent if somebody has to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<String>,
    /// The task that tries again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TaskId>)]
    retried_by: Option<TaskId>,
    /// RFC 3339.
    failed_at: String,
    /// For `before` of the next page.
    failed_us: i64,
    /// When its state last changed, RFC 3339.
    changed_at: String,
}

impl From<LetterRow> for DeadLetter {
    fn from(row: LetterRow) -> Self {
        Self {
            task_id: row.task,
            conversation_id: row.conversation,
            title: row.title,
            priority: row.priority,
            state: row.state,
            error: row.code,
            answer: row.text,
            detail: row.detail,
            tried: row.letter.tried,
            since: row.letter.since.to_string(),
            retry_at: row.letter.retry_at.map(|at| at.to_string()),
            retried_by: row.retried_by,
            failed_at: row.failed_at.to_string(),
            failed_us: row.failed_at.0,
            changed_at: row.changed_at.to_string(),
        }
    }
}

/// Dead letters, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadLetters {
    dead_letters: Vec<DeadLetter>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LettersPage {
    /// Only those in this state: `waiting`, `retried`, `discarded` or `archived`.
    #[param(value_type = Option<schema::LetterState>)]
    state: Option<LetterState>,
    /// Only those that failed before this instant, in microseconds.
    before: Option<i64>,
    /// 1 to 500; 50 by default, and for 0.
    limit: Option<u32>,
}

/// Your dead letters.
#[utoipa::path(
    get, path = "/api/v1/dead-letters", tag = "jobs", params(LettersPage),
    responses((status = 200, body = DeadLetters), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_letters(
    State(state): State<AppState>,
    caller: Caller,
    Args(page): Args<LettersPage>,
) -> Result<Json<DeadLetters>, Fault> {
    let (before, limit) = page_of(page.before, page.limit);
    let rows = state.kernel.letters(caller.scope(), page.state, before, limit).await?;
    Ok(Json(DeadLetters { dead_letters: rows.into_iter().map(Into::into).collect() }))
}

/// A dead letter with everything that was tried.
#[derive(Debug, Serialize, ToSchema)]
pub struct WholeLetter {
    #[serde(flatten)]
    letter: DeadLetter,
    /// The message.
    text: String,
    /// The tasks that tried before this one, oldest first.
    #[schema(value_type = Vec<schema::TaskId>)]
    before: Vec<TaskId>,
    /// What happened in the task, oldest first; of a long one the last 500 events.
    #[schema(value_type = Vec<schema::Event>)]
    events: Vec<Event>,
}

/// One dead letter, with the full history of what was tried.
#[utoipa::path(
    get, path = "/api/v1/dead-letters/{id}", tag = "jobs", params(("id" = schema::TaskId, Path, description = "The task that failed")),
    responses((status = 200, body = WholeLetter), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_letter(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<WholeLetter>, Fault> {
    let found = state.kernel.letter(caller.scope(), id).await?;
    Ok(Json(WholeLetter { letter: found.row.into(), text: found.text, before: found.before, events: found.events }))
}

/// Try a dead letter again now, as something that a person waits for.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/{id}/retry", tag = "jobs", params(("id" = schema::TaskId, Path)),
    responses((status = 200, body = Accepted), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn retry_letter(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<Accepted>, Fault> {
    Ok(Json(state.kernel.retry_letter(caller.scope(), id, &caller.name()).await?.into()))
}

/// Whether a dead letter was put aside.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiscardedLetter {
    /// False if it did not wait any more.
    discarded: bool,
}

/// Put a dead letter aside for good.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/{id}/discard", tag = "jobs", params(("id" = schema::TaskId, Path)),
    responses((status = 200, body = DiscardedLetter), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn discard_letter(
    State(state): State<AppState>,
    caller: Caller,
    Id(id): Id<TaskId>,
) -> Result<Json<DiscardedLetter>, Fault> {
    let discarded = state.kernel.discard_letter(caller.scope(), id, &caller.name()).await?;
    Ok(Json(DiscardedLetter { discarded }))
}
