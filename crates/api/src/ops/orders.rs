//! Orders of operators: pause a class, suspend or quarantine a conversation, hold a breaker open, reset a restart budget, set the
//! level of the log.

use annie_actors::Order;
use annie_core::{
    event::{Priority, Scope as DataScope},
    ids::{ConversationId, Incarnation},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    acts::{Subject, optional_reason, reason, recorded},
    row::{
        Call, Operation,
        Verb::{Get, Post},
        route,
    },
    skills::unknown_skill,
};
use crate::{
    api::{LogLevel, actor_path},
    auth::{
        KeyScope::{JobsControl, OpsControl, OpsRead},
        Need::Scope,
    },
    error::{ApiError, Code},
    grpc::{
        convert::{self, path_id},
        v1,
    },
    http::{
        extract::{Body, Id, Name, whole_option},
        schema,
    },
};

/// The operations that give and lift orders.
pub(super) fn table() -> Vec<Operation> {
    [classes(), conversations(), drains(), others()].into_iter().flatten().collect()
}

fn classes() -> Vec<Operation> {
    let about_pause =
        |Body(asked): &Body<Pause>| Subject::of(asked.priority.as_str()).because(&asked.reason).unless(asked.dry_run);
    let about_resume = |Body(asked): &Body<ResumeClass>| {
        Subject::of(asked.priority.as_str()).because(asked.reason.as_deref().unwrap_or_default())
    };
    vec![
        route(Get, "/api/v1/orders", Scope(OpsRead), list_orders, Orders::from)
            .about("list_orders", "operations", LIST, "orders")
            .rpc("/annie.v1.Actions/ListOrders", |_: v1::ListOrdersRequest| Ok(()), listed),
        route(
            Post,
            "/api/v1/classes/pause",
            Scope(OpsControl),
            recorded("class.pause", about_pause, pause_class),
            Given::from,
        )
        .about("pause_class", "operations", PAUSE, "classes pause")
        .rpc("/annie.v1.Actions/PauseClass", asked_pause, given),
        route(
            Post,
            "/api/v1/classes/resume",
            Scope(OpsControl),
            recorded("class.resume", about_resume, resume_class),
            |lifted| Lifted { lifted },
        )
        .about("resume_class", "operations", "Resume a paused class.", "classes resume")
        .rpc("/annie.v1.Actions/ResumeClass", asked_resume, |lifted| v1::LiftedResponse { lifted }),
    ]
}

fn conversations() -> Vec<Operation> {
    let about_suspend = |(Id(id), Body(asked)): &(Id<ConversationId>, Body<Because>)| {
        Subject::of(id).because(&asked.reason).unless(asked.dry_run)
    };
    let about_continue = |(Id(id), Body(asked)): &(Id<ConversationId>, Body<Why>)| {
        Subject::of(id).because(asked.reason.as_deref().unwrap_or_default())
    };
    let about_quarantine = |(Id(id), Body(asked)): &(Id<ConversationId>, Body<Quarantine>)| {
        Subject::of(id).because(&asked.reason).unless(asked.dry_run)
    };
    vec![
        route(
            Post,
            "/api/v1/conversations/{id}/suspend",
            Scope(JobsControl),
            recorded("conversation.suspend", about_suspend, suspend),
            Given::from,
        )
        .about("suspend_conversation", "conversations", SUSPEND, "conversations suspend")
        .rpc("/annie.v1.Actions/SuspendConversation", asked_suspend, given),
        route(
            Post,
            "/api/v1/conversations/{id}/continue",
            Scope(JobsControl),
            recorded("conversation.continue", about_continue, continue_conversation),
            |lifted| Lifted { lifted },
        )
        .about("continue_conversation", "conversations", "Continue a suspended conversation.", "conversations continue")
        .rpc("/annie.v1.Actions/ContinueConversation", asked_continue, |lifted| v1::LiftedResponse { lifted }),
        route(
            Post,
            "/api/v1/conversations/{id}/quarantine",
            Scope(OpsControl),
            recorded("conversation.quarantine", about_quarantine, quarantine),
            Given::from,
        )
        .about("quarantine_conversation", "conversations", QUARANTINE, "conversations quarantine")
        .rpc("/annie.v1.Actions/QuarantineConversation", asked_quarantine, given),
    ]
}

fn drains() -> Vec<Operation> {
    let about_drain = |Body(asked): &Body<Because>| Subject::of("server").because(&asked.reason).unless(asked.dry_run);
    let about_end =
        |Body(asked): &Body<Why>| Subject::of("server").because(asked.reason.as_deref().unwrap_or_default());
    vec![
        route(Post, "/api/v1/drain", Scope(OpsControl), recorded("server.drain", about_drain, drain), Given::from)
            .about("drain", "operations", DRAIN, "drain")
            .rpc("/annie.v1.Actions/Drain", asked_drain, given),
        route(Post, "/api/v1/undrain", Scope(OpsControl), recorded("server.undrain", about_end, undrain), |lifted| {
            Lifted { lifted }
        })
        .about("undrain", "operations", "Accept messages again after a drain.", "undrain")
        .rpc(
            "/annie.v1.Actions/Undrain",
            |r: v1::UndrainRequest| Ok(Body(Why { reason: Some(r.reason) })),
            |lifted| v1::LiftedResponse { lifted },
        ),
    ]
}

fn others() -> Vec<Operation> {
    let about_open = |(Name(skill), Body(asked)): &(Name, Body<Because>)| {
        Subject::of(skill).because(&asked.reason).unless(asked.dry_run)
    };
    let about_budget = |Body(asked): &Body<Budget>| Subject::of(actor_path(&asked.path)).because(&asked.reason);
    let about_level = |Body(asked): &Body<NewLevel>| Subject::of(&asked.level).because(&asked.reason);
    vec![
        route(
            Post,
            "/api/v1/breakers/{skill}/open",
            Scope(OpsControl),
            recorded("breaker.open", about_open, open_breaker),
            Given::from,
        )
        .about("open_breaker", "operations", OPEN, "breakers open")
        .rpc("/annie.v1.Actions/OpenBreaker", asked_open, given),
        route(
            Post,
            "/api/v1/actors/reset-budget",
            Scope(OpsControl),
            recorded("actor.reset_budget", about_budget, reset_budget),
            |restarts_left| RestartsLeft { restarts_left },
        )
        .about("reset_budget", "operations", BUDGET, "actors reset-budget")
        .rpc("/annie.v1.Actions/ResetBudget", asked_budget, |restarts_left| v1::ResetBudgetResponse { restarts_left }),
        route(Get, "/api/v1/log-level", Scope(OpsRead), get_level, LogLevelView::from)
            .about("get_log_level", "operations", "Get the level of the log.", "log show")
            .rpc("/annie.v1.Actions/GetLogLevel", |_: v1::GetLogLevelRequest| Ok(()), level),
        route(
            Post,
            "/api/v1/log-level",
            Scope(OpsControl),
            recorded("log.level", about_level, set_level),
            LogLevelView::from,
        )
        .about("set_log_level", "operations", LEVEL, "log level")
        .rpc("/annie.v1.Actions/SetLogLevel", asked_level, level),
    ]
}

const LIST: &str = "List the orders of operators that are in force: paused classes, suspended and quarantined conversations, \
                    breakers held open.";
const PAUSE: &str = "Pause a class: no further round of it starts, also after a restart, until it is resumed. Rounds under way \
                     end normally.";
const SUSPEND: &str =
    "Suspend a conversation: no further round of its tasks starts, also of later ones, until it is continued.";
const DRAIN: &str =
    "Drain the server: it accepts no message, also after a restart, until this is lifted. Accepted work goes on.";
const QUARANTINE: &str =
    "Put a conversation in quarantine: its open turns fail, and so does each message, until it is resumed.";
const OPEN: &str =
    "Hold a skill's breaker open: no call is admitted, also after a restart, until the breaker is closed.";
const BUDGET: &str = "Give a supervisor, or the Engine of a conversation, its whole restart budget again.";
const LEVEL: &str = "Set the level of the log until the next start of the server.";

/// An order that was given, or that would be given.
pub(super) struct GivenOrder {
    order: Option<Order>,
    effect: String,
}

/// An order in force.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OrderLine {
    /// `paused_class`, `suspended_conversation`, `open_breaker`, `quarantine` or `drain`.
    kind: String,
    /// The class, the conversation, the skill, or `server`.
    target: String,
    /// The user, and the public id of the key.
    by: String,
    reason: String,
    /// When it was given, RFC 3339.
    #[schema(format = DateTime)]
    at: String,
}

impl From<Order> for OrderLine {
    fn from(order: Order) -> Self {
        let Order { kind, target, by, reason, at, user: _ } = order;
        Self { kind: kind.as_str().to_owned(), target, by, reason, at: at.to_string() }
    }
}

fn wire(order: Order) -> v1::Order {
    let Order { kind, target, by, reason, at, user: _ } = order;
    v1::Order { kind: kind.as_str().to_owned(), target, by, reason, at_us: at.0 }
}

/// The orders in force.
#[derive(Debug, Serialize, ToSchema)]
pub struct Orders {
    /// By kind and target.
    orders: Vec<OrderLine>,
}

impl From<Vec<Order>> for Orders {
    fn from(orders: Vec<Order>) -> Self {
        Self { orders: orders.into_iter().map(Into::into).collect() }
    }
}

fn listed(orders: Vec<Order>) -> v1::ListOrdersResponse {
    v1::ListOrdersResponse { orders: orders.into_iter().map(wire).collect() }
}

async fn list_orders(call: Call, (): ()) -> Result<Vec<Order>, ApiError> {
    Ok(call.state.kernel.orders())
}

/// The order that was given.
#[derive(Debug, Serialize, ToSchema)]
pub struct Given {
    /// The order; absent if the request only asked what would happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<OrderLine>,
    /// What the order does, or would do.
    effect: String,
    /// Whether the request only asked what would happen.
    dry_run: bool,
}

impl From<GivenOrder> for Given {
    fn from(GivenOrder { order, effect }: GivenOrder) -> Self {
        Self { dry_run: order.is_none(), order: order.map(Into::into), effect }
    }
}

fn given(GivenOrder { order, effect }: GivenOrder) -> v1::OrderResponse {
    v1::OrderResponse { dry_run: order.is_none(), order: order.map(wire), effect }
}

/// Whether an order was lifted.
#[derive(Debug, Serialize, ToSchema)]
pub struct Lifted {
    /// False if there was no such order.
    lifted: bool,
}

/// A class to pause.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// `high`, `normal`, `low` or `background`.
    #[schema(value_type = schema::QueuedPriority)]
    priority: Priority,
    /// The reason, which the status and the record of actions show.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

fn asked_pause(asked: v1::PauseClassRequest) -> Result<Body<Pause>, ApiError> {
    let v1::PauseClassRequest { priority, reason, dry_run } = asked;
    Ok(Body(Pause { priority: class(priority)?, reason, dry_run }))
}

fn class(number: i32) -> Result<Priority, ApiError> {
    convert::priority(number)?.ok_or_else(|| ApiError::invalid("say which priority").at("priority"))
}

async fn pause_class(call: Call, Body(asked): Body<Pause>) -> Result<GivenOrder, ApiError> {
    let (why, word) = (reason(Some(&asked.reason))?, asked.priority.as_str());
    if asked.priority == Priority::Realtime {
        return Err(ApiError::invalid("voice is not queued and cannot be paused").at("priority"));
    }
    let queue = call.state.kernel.queue().await?;
    let is_of_class = |task: &&serde_json::Value| task["priority"] == word;
    let waiting = queue["waiting"].as_array().into_iter().flatten().filter(is_of_class).count();
    let effect = format!("no round of class {word} starts until the class is resumed; {waiting} tasks of it wait now");
    let order = match asked.dry_run {
        true => None,
        false => Some(call.state.kernel.pause_class(asked.priority, &call.caller.name(), &why).await?),
    };
    Ok(GivenOrder { order, effect })
}

/// A class to resume.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeClass {
    /// `high`, `normal`, `low` or `background`.
    #[schema(value_type = schema::QueuedPriority)]
    priority: Priority,
    /// A reason for the record of actions.
    #[serde(default)]
    reason: Option<String>,
}

fn asked_resume(asked: v1::ResumeClassRequest) -> Result<Body<ResumeClass>, ApiError> {
    Ok(Body(ResumeClass { priority: class(asked.priority)?, reason: Some(asked.reason) }))
}

async fn resume_class(call: Call, Body(asked): Body<ResumeClass>) -> Result<bool, ApiError> {
    optional_reason(asked.reason.as_deref())?;
    Ok(call.state.kernel.resume_class(asked.priority).await?)
}

/// A request with a reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Because {
    /// The reason, which the record of actions shows.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

fn asked_suspend(asked: v1::SuspendConversationRequest) -> Result<(Id<ConversationId>, Body<Because>), ApiError> {
    let v1::SuspendConversationRequest { conversation_id, reason, dry_run } = asked;
    Ok((path_id("conversation_id", &conversation_id)?, Body(Because { reason, dry_run })))
}

/// The conversations that a caller may suspend and continue: its own ones, and with `ops:control` all, because the commands reveal
/// nothing of their content.
fn scope_of(call: &Call) -> DataScope {
    if call.caller.grants.has(OpsControl) { DataScope::Operator } else { call.caller.scope() }
}

async fn suspend(
    call: Call,
    (Id(id), Body(asked)): (Id<ConversationId>, Body<Because>),
) -> Result<GivenOrder, ApiError> {
    let (why, scope) = (reason(Some(&asked.reason))?, scope_of(&call));
    let effect = format!("no round of {id} starts until the conversation is continued; its messages wait");
    let order = if asked.dry_run {
        call.state.kernel.conversation(scope, id).await?;
        None
    } else {
        Some(call.state.kernel.suspend_conversation(scope, id, &call.caller.name(), &why).await?)
    };
    Ok(GivenOrder { order, effect })
}

/// A request that may have a reason.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// A reason for the record of actions.
    #[serde(default)]
    reason: Option<String>,
}

fn asked_continue(asked: v1::ContinueConversationRequest) -> Result<(Id<ConversationId>, Body<Why>), ApiError> {
    let v1::ContinueConversationRequest { conversation_id, reason } = asked;
    Ok((path_id("conversation_id", &conversation_id)?, Body(Why { reason: Some(reason) })))
}

async fn continue_conversation(
    call: Call,
    (Id(id), Body(asked)): (Id<ConversationId>, Body<Why>),
) -> Result<bool, ApiError> {
    optional_reason(asked.reason.as_deref())?;
    let scope = scope_of(&call);
    Ok(call.state.kernel.continue_conversation(scope, id).await?)
}

/// A conversation to put in quarantine.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Quarantine {
    /// The reason, which the record of actions shows.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
    /// Required, because the open turns of the conversation fail.
    #[serde(default)]
    force: bool,
}

fn asked_quarantine(
    asked: v1::QuarantineConversationRequest,
) -> Result<(Id<ConversationId>, Body<Quarantine>), ApiError> {
    let v1::QuarantineConversationRequest { conversation_id, reason, dry_run, force } = asked;
    Ok((path_id("conversation_id", &conversation_id)?, Body(Quarantine { reason, dry_run, force })))
}

async fn quarantine(
    call: Call,
    (Id(id), Body(asked)): (Id<ConversationId>, Body<Quarantine>),
) -> Result<GivenOrder, ApiError> {
    let why = reason(Some(&asked.reason))?;
    let effect = format!("the open turns of {id} fail, and so does each message, until the conversation is resumed");
    if asked.dry_run {
        call.state.kernel.conversation(DataScope::Operator, id).await?;
        return Ok(GivenOrder { order: None, effect });
    }
    if !asked.force {
        let why = format!("{effect}: set `force` (--force) if that is meant");
        return Err(ApiError::invalid(why).at("force"));
    }
    let order = call.state.kernel.quarantine_conversation(id, &call.caller.name(), &why).await?;
    Ok(GivenOrder { order: Some(order), effect })
}

fn asked_drain(asked: v1::DrainRequest) -> Result<Body<Because>, ApiError> {
    Ok(Body(Because { reason: asked.reason, dry_run: asked.dry_run }))
}

async fn drain(call: Call, Body(asked): Body<Because>) -> Result<GivenOrder, ApiError> {
    let why = reason(Some(&asked.reason))?;
    let effect = "the server accepts no messages until `annie undrain`; accepted work goes on, and so do schedules and \
                  reminders";
    let order = match asked.dry_run {
        true => None,
        false => Some(call.state.kernel.drain_by_order(&call.caller.name(), &why).await?),
    };
    Ok(GivenOrder { order, effect: effect.to_owned() })
}

async fn undrain(call: Call, Body(asked): Body<Why>) -> Result<bool, ApiError> {
    optional_reason(asked.reason.as_deref())?;
    Ok(call.state.kernel.end_drain().await?)
}

fn asked_open(asked: v1::OpenBreakerRequest) -> Result<(Name, Body<Because>), ApiError> {
    let v1::OpenBreakerRequest { skill, reason, dry_run } = asked;
    Ok((Name(skill), Body(Because { reason, dry_run })))
}

async fn open_breaker(call: Call, (Name(skill), Body(asked)): (Name, Body<Because>)) -> Result<GivenOrder, ApiError> {
    let (why, kernel) = (reason(Some(&asked.reason))?, &call.state.kernel);
    let skills = kernel.catalog().skills();
    if skills.get(&skill).is_none() {
        return Err(unknown_skill(&skills.near(&skill)));
    }
    let effect = format!("no call of {skill} is admitted until its breaker is closed; runs under way end normally");
    let order = match asked.dry_run {
        true => None,
        false => Some(kernel.open_breaker(&skill, &call.caller.name(), &why).await?),
    };
    Ok(GivenOrder { order, effect })
}

/// An actor whose restart budget is reset.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The path of a supervisor, such as `/infra`, or of an Engine.
    path: String,
    /// The expected incarnation. The command is refused if the actor has another one.
    #[serde(default, deserialize_with = "whole_option")]
    incarnation: Option<u64>,
    /// The reason, which the record of actions shows.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
}

/// The restart budget after its reset.
#[derive(Debug, Serialize, ToSchema)]
pub struct RestartsLeft {
    restarts_left: u32,
}

fn asked_budget(asked: v1::ResetBudgetRequest) -> Result<Body<Budget>, ApiError> {
    let v1::ResetBudgetRequest { path, incarnation, reason } = asked;
    Ok(Body(Budget { path, incarnation: Some(incarnation).filter(|n| *n > 0), reason }))
}

async fn reset_budget(call: Call, Body(asked): Body<Budget>) -> Result<u32, ApiError> {
    reason(Some(&asked.reason))?;
    let path = actor_path(&asked.path);
    Ok(call.state.kernel.reset_budget(&path, asked.incarnation.map(Incarnation)).await?)
}

/// The level of the log.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogLevelView {
    /// The level, or a list of levels by module.
    level: String,
    /// The level of the configuration, which holds again after a restart.
    configured: String,
}

impl From<LogLevel> for LogLevelView {
    fn from(LogLevel { level, configured }: LogLevel) -> Self {
        Self { level, configured }
    }
}

fn level(LogLevel { level, configured }: LogLevel) -> v1::LogLevelResponse {
    v1::LogLevelResponse { level, configured }
}

fn no_log() -> ApiError {
    ApiError::new(Code::Unavailable, "this process has no log whose level can be set")
}

async fn get_level(call: Call, (): ()) -> Result<LogLevel, ApiError> {
    call.state.log.as_ref().map(|log| log.level()).ok_or_else(no_log)
}

/// The new level of the log.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLevel {
    /// Such as `info`, or `info,annie_actors=debug`; empty restores the configured one.
    #[schema(max_length = 500)]
    level: String,
    /// The reason, which the record of actions shows.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
}

fn asked_level(asked: v1::SetLogLevelRequest) -> Result<Body<NewLevel>, ApiError> {
    Ok(Body(NewLevel { level: asked.level, reason: asked.reason }))
}

async fn set_level(call: Call, Body(asked): Body<NewLevel>) -> Result<LogLevel, ApiError> {
    reason(Some(&asked.reason))?;
    let log = call.state.log.as_ref().ok_or_else(no_log)?;
    log.set(asked.level.trim()).map_err(|why| ApiError::invalid(why).at("level"))
}
