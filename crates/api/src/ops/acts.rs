//! The record of what operators did: the wrapper that records an operation, and the operations that list and verify the record.

use annie_actors::{Act, ActFilter, ActRequest, ActsPage, Kernel};
use annie_core::{act::ActResult, time::Micros};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    api::page::{self, Page},
    auth::{KeyScope::OpsRead, Need::Scope},
    error::{ApiError, Code},
    grpc::v1,
    http::extract::{Args, time},
};

/// The maximum length of a reason, in characters.
pub(super) const REASON_CHARS_MAX: usize = 200;

/// The operations on the record.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/actions", Scope(OpsRead), list_actions, Actions::from)
            .about("list_actions", "audit", LIST, "actions")
            .rpc("/annie.v1.Actions/List", asked_list, listed),
        route(Get, "/api/v1/actions/verify", Scope(OpsRead), verify_actions, VerifiedActions::from)
            .about("verify_actions", "audit", VERIFY, "audit verify")
            .rpc("/annie.v1.Actions/Verify", asked_verify, verified),
    ]
}

const LIST: &str = "List what operators did, newest first: the action, its target, its reason and its result.";
const VERIFY: &str = "Verify the chain of the recorded actions, a page of entries at a time.";

/// What the record says about a request.
pub(super) struct Subject {
    target: String,
    reason: String,
    is_recorded: bool,
}

impl Subject {
    /// A request about a target.
    pub fn of(target: impl ToString) -> Self {
        Self { target: target.to_string(), reason: String::new(), is_recorded: true }
    }

    /// The reason that the request gives.
    pub fn because(self, reason: &str) -> Self {
        Self { reason: reason.trim().to_owned(), ..self }
    }

    /// A request that only asks what would happen is not recorded.
    pub fn unless(self, is_dry: bool) -> Self {
        Self { is_recorded: !is_dry, ..self }
    }
}

/// The handler of an operation, with a record of each request before and after it.
pub(super) fn recorded<I, O, F>(
    act: &'static str,
    about: impl Fn(&I) -> Subject + Send + Sync + 'static,
    run: impl Fn(Call, I) -> F + Send + Sync + 'static,
) -> impl Fn(Call, I) -> BoxFuture<'static, Result<O, ApiError>> + Send + Sync + 'static
where
    I: Send + 'static,
    O: Send + 'static,
    F: Future<Output = Result<O, ApiError>> + Send + 'static,
{
    move |call, input| {
        let Subject { target, reason, is_recorded } = about(&input);
        let (kernel, by, channel) = (call.state.kernel.clone(), call.caller.name(), call.channel);
        let work = run(call, input);
        Box::pin(async move {
            if !is_recorded {
                return work.await;
            }
            recording(&kernel, ActRequest { act, target, reason, by, channel }, work).await
        })
    }
}

/// Carries an act out, with a record before and after it.
pub(crate) async fn recording<O>(
    kernel: &Kernel,
    asked: ActRequest,
    work: impl Future<Output = Result<O, ApiError>>,
) -> Result<O, ApiError> {
    let begun = kernel.begin_act(&asked).await;
    let done = work.await;
    let (result, detail) = match &done {
        Ok(_) => (ActResult::Done, String::new()),
        Err(error) => (result_of(error), format!("{}: {}", error.code.as_str(), error.detail)),
    };
    kernel.end_act(begun, result, &detail).await;
    done
}

/// An error after which something may have been changed is a failure, any other one a refusal.
const fn result_of(error: &ApiError) -> ActResult {
    match error.code {
        Code::Internal | Code::Unavailable | Code::DeadlineExceeded => ActResult::Failed,
        _ => ActResult::Refused,
    }
}

/// The reason of an action that needs one.
///
/// # Errors
/// If it is missing or too long.
pub(super) fn reason(text: Option<&str>) -> Result<String, ApiError> {
    let text = optional_reason(text)?;
    if text.is_empty() {
        let why = "say why (--reason on the command line): the record of actions shows it";
        return Err(ApiError::invalid(why).at("reason"));
    }
    Ok(text)
}

/// The reason of an action that needs none.
///
/// # Errors
/// If it is too long.
pub(super) fn optional_reason(text: Option<&str>) -> Result<String, ApiError> {
    let text = text.unwrap_or_default().trim();
    if text.chars().count() > REASON_CHARS_MAX {
        return Err(ApiError::invalid(format!("a reason has at most {REASON_CHARS_MAX} characters")).at("reason"));
    }
    Ok(text.to_owned())
}

/// A recorded action.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActionLine {
    /// Its number in the chain.
    number: u64,
    /// When it was requested, RFC 3339.
    #[schema(format = DateTime)]
    at: String,
    /// The node that carried it out.
    node: String,
    /// The user, and the public id of the key.
    by: String,
    /// The front end: `http` or `grpc`.
    channel: String,
    /// The kind, such as `actor.kill`.
    action: String,
    /// The path of an actor, a class, a skill, a conversation or a task.
    target: String,
    reason: String,
    /// `done`, `refused` or `failed`; absent if it is under way, or its end was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'static str>,
    /// The error of an action that was not done; empty if it was.
    detail: String,
    /// When it ended, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    ended_at: Option<String>,
}

impl From<Act> for ActionLine {
    fn from(act: Act) -> Self {
        let Act { number, at, node, by, channel, act, target, reason, result, detail, ended_at } = act;
        let (at, ended_at) = (at.to_string(), ended_at.map(|at| at.to_string()));
        Self {
            number,
            at,
            node,
            by,
            channel,
            action: act,
            target,
            reason,
            result: result.map(ActResult::as_str),
            detail,
            ended_at,
        }
    }
}

fn wire(act: Act) -> v1::Action {
    let Act { number, at, node, by, channel, act, target, reason, result, detail, ended_at } = act;
    v1::Action {
        number,
        at_us: at.0,
        node,
        by,
        channel,
        action: act,
        target,
        reason,
        result: result.map_or("", ActResult::as_str).to_owned(),
        detail,
        ended_at_us: ended_at.map(|at| at.0),
    }
}

/// Recorded actions.
#[derive(Debug, Serialize, ToSchema)]
pub struct Actions {
    /// Newest first.
    actions: Vec<ActionLine>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<Page<Act>> for Actions {
    fn from(page: Page<Act>) -> Self {
        Self { actions: page.rows.into_iter().map(Into::into).collect(), next: page.next }
    }
}

fn listed(page: Page<Act>) -> v1::ListActionsResponse {
    let actions = page.rows.into_iter().map(wire).collect();
    v1::ListActionsResponse { actions, next: page.next.unwrap_or_default() }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ActionsPage {
    /// Only actions about this target, such as `/scheduler` or `task_…`, or about a path below it.
    under: Option<String>,
    /// Only actions at this time or later, RFC 3339.
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Micros>,
    /// Only actions before this time, RFC 3339.
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = DateTime)]
    before: Option<Micros>,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

fn asked_list(asked: v1::ListActionsRequest) -> Result<Args<ActionsPage>, ApiError> {
    let v1::ListActionsRequest { under, from_us, before_us, next, limit } = asked;
    let (from, before) = (from_us.map(Micros), before_us.map(Micros));
    Ok(Args(ActionsPage { under: Some(under), from, before, next: Some(next), limit: page::text_of(limit) }))
}

async fn list_actions(call: Call, Args(asked): Args<ActionsPage>) -> Result<Page<Act>, ApiError> {
    let limit = page::ROWS.of_text(asked.limit.as_deref())?;
    let ActionsPage { under, from, before, next, .. } = asked;
    let below = page::cursor(next.as_deref())?;
    let acts = call.state.kernel.acts(ActFilter { under, from, before, below, limit }).await?;
    Ok(Page::of(acts, limit, |act| act.number))
}

/// A page of a verification.
#[derive(Debug, Serialize, ToSchema)]
pub struct VerifiedActions {
    /// The number of entries that were verified: two of each action.
    entries: u64,
    /// The number of differences.
    broken_total: u64,
    /// The first differences: `number` of the entry, and `what` is wrong.
    #[schema(value_type = Vec<Object>)]
    broken: Value,
    /// The number of the page's last entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_number: Option<u64>,
    /// The digest of the page's last entry. Note it outside of the database: a later verification can be compared with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_digest: Option<String>,
    /// The time of the page's last entry, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    last_at: Option<String>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn broken(page: &ActsPage) -> impl Iterator<Item = Value> {
    page.broken.iter().map(|(number, what)| json!({"number": number, "what": what}))
}

fn next_of(page: &ActsPage) -> Option<String> {
    page.last.as_ref().filter(|_| page.has_more).map(|(number, _)| number.to_string())
}

impl From<ActsPage> for VerifiedActions {
    fn from(page: ActsPage) -> Self {
        let (broken, next) = (broken(&page).collect(), next_of(&page));
        let ActsPage { entries, broken_total, last, last_at, .. } = page;
        let (last_number, last_digest) = last.unzip();
        let last_at = last_at.map(|at| at.to_string());
        Self { entries, broken_total, broken, last_number, last_digest, last_at, next }
    }
}

fn verified(page: ActsPage) -> v1::VerifyActionsResponse {
    let (broken, next) = (broken(&page).map(|one| one.to_string()).collect(), next_of(&page));
    let ActsPage { entries, broken_total, last, last_at, .. } = page;
    let (last_number, last_digest) = last.unwrap_or_default();
    v1::VerifyActionsResponse {
        entries,
        broken_total,
        broken,
        last_number,
        last_digest,
        last_at_us: last_at.map(|at| at.0),
        next: next.unwrap_or_default(),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EntriesPage {
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of entries; 100 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

fn asked_verify(asked: v1::VerifyActionsRequest) -> Result<Args<EntriesPage>, ApiError> {
    Ok(Args(EntriesPage { next: Some(asked.next), limit: page::text_of(asked.limit) }))
}

async fn verify_actions(call: Call, Args(asked): Args<EntriesPage>) -> Result<ActsPage, ApiError> {
    let limit = page::EVENTS.of_text(asked.limit.as_deref())?;
    let after: u64 = page::cursor(asked.next.as_deref())?.unwrap_or(0);
    Ok(call.state.kernel.verify_acts(after, limit).await?)
}
