//! Dead letters: tasks that failed after all retries, kept so that they can be retried.

use annie_actors::{DeadLetterDetail, ManyDeadLetters, ManyDone, Submitted};
use annie_core::{
    dead_letter::DeadLetterState,
    event::{self, Priority},
    ids::{ConversationId, TaskId, UserId},
    ports::{DeadLetterFilter, DeadLetterRow},
    time::Micros,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    acts::{Subject, recorded},
    row::{
        Call, Operation,
        Verb::{Get, Post},
        route,
    },
};
use crate::{
    api::{
        page::{self, Page},
        shown_event,
    },
    auth::{
        Caller,
        KeyScope::{self, JobsControl, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::{
        convert::{self, path_id},
        v1,
    },
    http::{
        extract::{Args, Body, Id, page_of, time, whole_option},
        messages::Accepted,
        schema,
    },
};

/// The operations on dead letters.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/dead-letters", Scope(JobsRead), list_dead_letters, DeadLetters::from)
            .about("list_dead_letters", "jobs", "List your dead letters.", "dlq list")
            .rpc("/annie.v1.DeadLetters/List", asked_page, listed),
        route(Get, "/api/v1/dead-letters/{id}", Scope(JobsRead), get_dead_letter, WholeDeadLetter::from)
            .about("get_dead_letter", "jobs", "Get a dead letter with the history of all attempts.", "dlq show")
            .id("The failed task")
            .rpc("/annie.v1.DeadLetters/Get", |r: v1::GetDeadLetterRequest| path_id("task_id", &r.task_id), whole),
        route(
            Post,
            "/api/v1/dead-letters/retry",
            Scope(JobsControl),
            recorded("dead_letters.retry", about_many, retry_many),
            ManyDeadLettersDone::from,
        )
        .about("retry_dead_letters", "jobs", RETRY_MANY, "dlq retry")
        .rpc("/annie.v1.DeadLetters/RetryMany", asked_many, many_done),
        route(
            Post,
            "/api/v1/dead-letters/discard",
            Scope(JobsControl),
            recorded("dead_letters.discard", about_many, discard_many),
            ManyDeadLettersDone::from,
        )
        .about("discard_dead_letters", "jobs", DISCARD_MANY, "dlq discard")
        .rpc("/annie.v1.DeadLetters/DiscardMany", asked_many, many_done),
        route(
            Post,
            "/api/v1/dead-letters/{id}/retry",
            Scope(JobsControl),
            recorded("dead_letter.retry", about, retry_dead_letter),
            Accepted::from,
        )
        .about("retry_dead_letter", "jobs", "Retry a dead letter now, in class `high`.", "dlq retry")
        .rpc(
            "/annie.v1.DeadLetters/Retry",
            |r: v1::RetryDeadLetterRequest| path_id("task_id", &r.task_id),
            convert::submitted,
        ),
        route(
            Post,
            "/api/v1/dead-letters/{id}/discard",
            Scope(JobsControl),
            recorded("dead_letter.discard", about, discard_dead_letter),
            |discarded| DiscardedDeadLetter { discarded },
        )
        .about("discard_dead_letter", "jobs", "Discard a dead letter permanently.", "dlq discard")
        .rpc(
            "/annie.v1.DeadLetters/Discard",
            |r: v1::DiscardDeadLetterRequest| path_id("task_id", &r.task_id),
            |discarded| v1::DiscardDeadLetterResponse { discarded },
        ),
    ]
}

fn about(Id(id): &Id<TaskId>) -> Subject {
    Subject::of(id)
}

/// A bulk command that only counts is not recorded.
fn about_many(Body(options): &Body<ManyDeadLettersOptions>) -> Subject {
    let class = options.priority.map(|class| format!("class {}", class.as_str()));
    let error = options.error.as_ref().filter(|error| !error.is_empty()).map(|error| format!("error {error}"));
    let user = options.user.as_ref().map(|user| format!("user {user}"));
    let filter: Vec<String> = [class, error, user].into_iter().flatten().collect();
    Subject::of("dead letters").because(&filter.join(", ")).unless(!options.confirmed)
}

const RETRY_MANY: &str = "Schedule many waiting dead letters for a retry in class `background` when the queue has capacity. \
    Without `confirmed` they\nare only counted.";
const DISCARD_MANY: &str = "Discard many waiting dead letters permanently. Without `confirmed` they are only counted.";

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

/// A dead letter as gRPC shows it.
pub(super) fn wire(row: DeadLetterRow) -> v1::DeadLetter {
    v1::DeadLetter {
        task_id: row.task.to_string(),
        conversation_id: row.conversation.to_string(),
        title: row.title,
        priority: convert::priority_of(row.priority).into(),
        state: state_of(row.state).into(),
        error: row.code,
        answer: row.text,
        detail: row.detail,
        tried: row.dead_letter.tried,
        since_us: row.dead_letter.since.0,
        retry_at_us: row.dead_letter.retry_at.map(|at| at.0),
        retried_by: row.retried_by.map(|task| task.to_string()).unwrap_or_default(),
        failed_at_us: row.failed_at.0,
        changed_at_us: row.changed_at.0,
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

/// A page of dead letters, and the number of all that match.
type Listed = (Page<DeadLetterRow>, u64);

impl From<Listed> for DeadLetters {
    fn from((page, total): Listed) -> Self {
        Self { dead_letters: page.rows.into_iter().map(Into::into).collect(), total, next: page.next }
    }
}

fn listed((page, total): Listed) -> v1::ListDeadLettersResponse {
    let dead_letters = page.rows.into_iter().map(wire).collect();
    v1::ListDeadLettersResponse { dead_letters, next: page.next.unwrap_or_default(), total }
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
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = DateTime)]
    failed_from: Option<Micros>,
    /// Only failures before this time, RFC 3339.
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = DateTime)]
    failed_before: Option<Micros>,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

fn asked_page(asked: v1::ListDeadLettersRequest) -> Result<Args<DeadLettersPage>, ApiError> {
    Ok(Args(DeadLettersPage {
        state: state_from(asked.state)?,
        error: Some(asked.error),
        priority: convert::priority(asked.priority)?,
        user: some(asked.user),
        failed_from: asked.failed_from_us.map(Micros),
        failed_before: asked.failed_before_us.map(Micros),
        next: Some(asked.next),
        limit: page::text_of(asked.limit),
    }))
}

async fn list_dead_letters(call: Call, Args(page): Args<DeadLettersPage>) -> Result<Listed, ApiError> {
    let (before, limit) = page_of(page.next.as_deref(), page.limit.as_deref())?;
    let scope = scope_of(&call.caller, page.user.as_deref())?;
    let DeadLettersPage { state, error, priority, failed_from, failed_before, .. } = page;
    let code = error.filter(|code| !code.is_empty());
    let filter =
        DeadLetterFilter { state, code, class: priority, failed_from, failed_before, ..DeadLetterFilter::default() };
    let kernel = &call.state.kernel;
    let total = kernel.count_dead_letters(scope.clone(), filter.clone()).await?;
    let rows = kernel.dead_letters(scope, filter, before, limit).await?;
    Ok((Page::of(rows, limit, DeadLetterRow::page_start), total))
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

impl From<DeadLetterDetail> for WholeDeadLetter {
    fn from(found: DeadLetterDetail) -> Self {
        let events = found.events.iter().map(shown_event).collect();
        Self { dead_letter: found.row.into(), text: found.text, before: found.before, events }
    }
}

fn whole(found: DeadLetterDetail) -> v1::WholeDeadLetter {
    v1::WholeDeadLetter {
        dead_letter: Some(wire(found.row)),
        text: found.text,
        before: found.before.iter().map(ToString::to_string).collect(),
        events: found.events.iter().map(convert::event).collect(),
    }
}

async fn get_dead_letter(call: Call, Id(id): Id<TaskId>) -> Result<DeadLetterDetail, ApiError> {
    Ok(call.state.kernel.dead_letter(call.caller.scope(), id).await?)
}

async fn retry_dead_letter(call: Call, Id(id): Id<TaskId>) -> Result<Submitted, ApiError> {
    Ok(call.state.kernel.retry_dead_letter(call.caller.scope(), id, &call.caller.name()).await?)
}

/// Whether a dead letter was discarded.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiscardedDeadLetter {
    /// False if it was not waiting any more.
    discarded: bool,
}

async fn discard_dead_letter(call: Call, Id(id): Id<TaskId>) -> Result<bool, ApiError> {
    Ok(call.state.kernel.discard_dead_letter(call.caller.scope(), id, &call.caller.name()).await?)
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
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>, format = DateTime)]
    failed_from: Option<Micros>,
    /// Only failures before this time, RFC 3339.
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>, format = DateTime)]
    failed_before: Option<Micros>,
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
        let (class, code) = (priority, error.filter(|code| !code.is_empty()));
        let filter =
            DeadLetterFilter { state: None, code, class, failed_from, failed_before, ..DeadLetterFilter::default() };
        let limit = page::BULK.of(limit)?;
        Ok(ManyDeadLetters { scope: scope_of(caller, user.as_deref())?, filter, limit, is_confirmed: confirmed })
    }
}

fn asked_many(asked: v1::ManyDeadLettersRequest) -> Result<Body<ManyDeadLettersOptions>, ApiError> {
    Ok(Body(ManyDeadLettersOptions {
        error: Some(asked.error),
        priority: convert::priority(asked.priority)?,
        user: some(asked.user),
        failed_from: asked.failed_from_us.map(Micros),
        failed_before: asked.failed_before_us.map(Micros),
        limit: Some(asked.limit).filter(|limit| *limit != 0),
        confirmed: asked.confirmed,
    }))
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

fn many_done(many: ManyDone) -> v1::ManyDeadLettersResponse {
    let ManyDone { matching, done, left, stopped, tasks } = many;
    let task_ids = tasks.iter().map(ToString::to_string).collect();
    v1::ManyDeadLettersResponse { matching, done, left, stopped: stopped.unwrap_or_default(), task_ids }
}

async fn retry_many(call: Call, Body(options): Body<ManyDeadLettersOptions>) -> Result<ManyDone, ApiError> {
    let options = options.checked(&call.caller)?;
    Ok(call.state.kernel.retry_dead_letters(options, &call.caller.name()).await?)
}

async fn discard_many(call: Call, Body(options): Body<ManyDeadLettersOptions>) -> Result<ManyDone, ApiError> {
    let options = options.checked(&call.caller)?;
    Ok(call.state.kernel.discard_dead_letters(options, &call.caller.name()).await?)
}

/// The user whose rows are listed: the caller, or a user for whom the caller may act.
///
/// # Errors
/// `forbidden` for another user without the scope `impersonate`.
fn scope_of(caller: &Caller, user: Option<&str>) -> Result<event::Scope, ApiError> {
    let Some(user) = user else { return Ok(caller.scope()) };
    let user = UserId::new(user).map_err(|e| ApiError::from(e).at("user"))?;
    if user != caller.user {
        caller.must(KeyScope::Impersonate).map_err(|error| error.at("user"))?;
    }
    Ok(event::Scope::User(user))
}

/// The text, unless it is empty.
fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn state_from(number: i32) -> Result<Option<DeadLetterState>, ApiError> {
    Ok(match v1::DeadLetterState::try_from(number) {
        Ok(v1::DeadLetterState::Unspecified) => None,
        Ok(v1::DeadLetterState::Waiting) => Some(DeadLetterState::Waiting),
        Ok(v1::DeadLetterState::Retried) => Some(DeadLetterState::Retried),
        Ok(v1::DeadLetterState::Discarded) => Some(DeadLetterState::Discarded),
        Ok(v1::DeadLetterState::Archived) => Some(DeadLetterState::Archived),
        Err(_) => return Err(ApiError::invalid(format!("there is no state {number}")).at("state")),
    })
}

const fn state_of(state: DeadLetterState) -> v1::DeadLetterState {
    match state {
        DeadLetterState::Waiting => v1::DeadLetterState::Waiting,
        DeadLetterState::Retried => v1::DeadLetterState::Retried,
        DeadLetterState::Discarded => v1::DeadLetterState::Discarded,
        DeadLetterState::Archived => v1::DeadLetterState::Archived,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_dead_letter_state_conversion_round_trips() {
        for state in
            [DeadLetterState::Waiting, DeadLetterState::Retried, DeadLetterState::Discarded, DeadLetterState::Archived]
        {
            assert_eq!(state_from(state_of(state).into()).unwrap(), Some(state));
        }
        assert_eq!(state_from(0).unwrap(), None);
        assert_eq!(state_from(9).unwrap_err().code.grpc(), tonic::Code::InvalidArgument);
    }
}
