//! Dead letters: work that failed in every way that was tried, kept to be tried again.

use annie_actors::{ManyDone, ManyLetters};
use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId},
    letter::LetterState,
    ports::LetterRow,
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
    auth::Caller,
    door::{AppState, LetterWish, page, scope_of, shown_event},
    error::Fault,
};

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
            changed_at: row.changed_at.to_string(),
        }
    }
}

/// Dead letters, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadLetters {
    dead_letters: Vec<DeadLetter>,
    /// How many there are, on this page and all others.
    total: u64,
    /// Ask again with this as `next` for the rest; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LettersPage {
    /// Only those in this state: `waiting`, `retried`, `discarded` or `archived`.
    #[param(value_type = Option<schema::LetterState>)]
    state: Option<LetterState>,
    /// Only those that failed with this code.
    error: Option<String>,
    /// Only those of this class.
    #[param(value_type = Option<schema::Priority>)]
    priority: Option<Priority>,
    /// Only this user's; another user than your own takes the scope `impersonate`.
    #[param(value_type = Option<schema::UserId>)]
    user: Option<String>,
    /// Only those that failed at this instant or later, RFC 3339.
    #[param(format = DateTime)]
    failed_from: Option<String>,
    /// Only those that failed before this instant, RFC 3339.
    #[param(format = DateTime)]
    failed_before: Option<String>,
    /// The `next` of an earlier page: this one goes on behind it.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    next: Option<String>,
    /// How many at most; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
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
    let (before, limit) = page_of(page.next.as_deref(), page.limit.as_deref())?;
    let scope = scope_of(&caller, page.user.as_deref())?;
    let LettersPage { state: in_state, error, priority, failed_from, failed_before, .. } = page;
    let (failed_from, failed_before) = (instant("failed_from", failed_from)?, instant("failed_before", failed_before)?);
    let filter = LetterWish { state: in_state, error, priority, failed_from, failed_before }.filter();
    let total = state.kernel.count_letters(scope.clone(), filter.clone()).await?;
    let rows = state.kernel.letters(scope, filter, before, limit).await?;
    let next = page::next_of(&rows, limit, LetterRow::place);
    Ok(Json(DeadLetters { dead_letters: rows.into_iter().map(Into::into).collect(), total, next }))
}

/// An instant out of a text.
fn instant(field: &'static str, text: Option<String>) -> Result<Option<Micros>, Fault> {
    let read = |text: String| {
        let at = DateTime::parse_from_rfc3339(&text);
        let wrong = |e| Fault::invalid(format!("it must be a time such as 2026-09-27T09:00:00Z: {e}")).at(field);
        at.map(|at| Micros::from_utc(at.to_utc())).map_err(wrong)
    };
    text.map(read).transpose()
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
    events: Vec<Value>,
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
    let events = found.events.iter().map(shown_event).collect();
    Ok(Json(WholeLetter { letter: found.row.into(), text: found.text, before: found.before, events }))
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

/// Which waiting dead letters are meant: what is not given takes all of yours.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManyLettersWish {
    /// Only those that failed with this code.
    error: Option<String>,
    /// Only those of this class.
    #[schema(value_type = Option<schema::Priority>)]
    priority: Option<Priority>,
    /// Only this user's; another user than your own takes the scope `impersonate`.
    #[schema(value_type = Option<schema::UserId>)]
    user: Option<String>,
    /// Only those that failed at this instant or later, RFC 3339.
    #[schema(format = DateTime)]
    failed_from: Option<String>,
    /// Only those that failed before this instant, RFC 3339.
    #[schema(format = DateTime)]
    failed_before: Option<String>,
    /// How many at most, the newest first; 100 by default.
    #[serde(default, deserialize_with = "whole_option")]
    #[schema(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Do it. Without it nothing is done, and the answer says how many are meant.
    #[serde(default)]
    confirmed: bool,
}

impl ManyLettersWish {
    fn checked(self, caller: &Caller) -> Result<ManyLetters, Fault> {
        let Self { error, priority, user, failed_from, failed_before, limit, confirmed } = self;
        let (failed_from, failed_before) =
            (instant("failed_from", failed_from)?, instant("failed_before", failed_before)?);
        let filter = LetterWish { state: None, error, priority, failed_from, failed_before }.filter();
        let limit = page::BULK.of(limit)?;
        Ok(ManyLetters { scope: scope_of(caller, user.as_deref())?, filter, limit, is_confirmed: confirmed })
    }
}

/// What became of many dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub struct ManyLettersDone {
    /// How many were meant before this call.
    matching: u64,
    /// How many it was done with.
    done: u32,
    /// How many are left.
    left: u64,
    /// Why it ended before its limit, as when the queue is full; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    /// The failed tasks that are tried again, each by a task of its own as there is room.
    #[schema(value_type = Vec<schema::TaskId>)]
    task_ids: Vec<TaskId>,
}

impl From<ManyDone> for ManyLettersDone {
    fn from(many: ManyDone) -> Self {
        let ManyDone { matching, done, left, stopped, tasks } = many;
        Self { matching, done, left, stopped, task_ids: tasks }
    }
}

/// Have many waiting dead letters tried again as there is room, in class `background`. Without `confirmed` they are only counted.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/retry", tag = "jobs", request_body = ManyLettersWish,
    responses((status = 200, body = ManyLettersDone), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn retry_letters(
    State(state): State<AppState>,
    caller: Caller,
    Body(wish): Body<ManyLettersWish>,
) -> Result<Json<ManyLettersDone>, Fault> {
    let wish = wish.checked(&caller)?;
    Ok(Json(state.kernel.retry_letters(wish, &caller.name()).await?.into()))
}

/// Put many waiting dead letters aside for good. Without `confirmed` they are only counted.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/discard", tag = "jobs", request_body = ManyLettersWish,
    responses((status = 200, body = ManyLettersDone), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn discard_letters(
    State(state): State<AppState>,
    caller: Caller,
    Body(wish): Body<ManyLettersWish>,
) -> Result<Json<ManyLettersDone>, Fault> {
    let wish = wish.checked(&caller)?;
    Ok(Json(state.kernel.discard_letters(wish, &caller.name()).await?.into()))
}
