//! The actor tree: list, view, operate.

use annie_actors::{Crash, NodeInfo, Operation};
use annie_core::ids::Incarnation;
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Body, whole_option},
    problem::Problem,
};
use crate::{
    api::{AppState, Target, TreePage, actor_path, operate_actor, page},
    auth::Caller,
    error::ApiError,
};

/// Actors, ordered by path.
#[derive(Debug, Serialize, ToSchema)]
pub struct Tree {
    /// Path, kind, incarnation, status, mailbox, and the message that is being handled.
    #[schema(value_type = Vec<Object>)]
    actors: Vec<NodeInfo>,
    /// The number of actors in the subtree, on this page and all others.
    total: usize,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TreeArgs {
    /// Only the subtree at this path.
    under: Option<String>,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^(/[ -~]*)?$")]
    next: Option<String>,
    /// The maximum number of rows; 1000 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 5000)]
    limit: Option<String>,
}

/// List actors.
#[utoipa::path(
    get, path = "/api/v1/actors", tag = "operations", params(TreeArgs),
    responses((status = 200, body = Tree), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_actors(State(state): State<AppState>, Args(args): Args<TreeArgs>) -> Result<Json<Tree>, ApiError> {
    let limit = page::ACTORS.of_text(args.limit.as_deref())?;
    let after = args.next.as_deref().unwrap_or_default();
    let under = args.under.as_deref().unwrap_or_default();
    let TreePage { actors, total, next } = TreePage::of(&state.kernel, under, after, limit)?;
    Ok(Json(Tree { actors, total, next }))
}

/// An actor and its own view of its state.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActorView {
    #[schema(value_type = Object)]
    actor: NodeInfo,
    /// The actor's own view of its state; absent if the actor is too busy to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<Value>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ViewArgs {
    /// The path of the actor, such as `/scheduler`.
    path: String,
}

/// Get an actor.
#[utoipa::path(
    get, path = "/api/v1/actors/view", tag = "operations", params(ViewArgs),
    responses((status = 200, body = ActorView), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn view_actor(
    State(state): State<AppState>,
    Args(args): Args<ViewArgs>,
) -> Result<Json<ActorView>, ApiError> {
    let (actor, view) = state.kernel.view(&actor_path(&args.path)).await?;
    Ok(Json(ActorView { actor, view }))
}

/// Crashes of actors.
#[derive(Debug, Serialize, ToSchema)]
pub struct Crashes {
    /// Oldest first: path, incarnation, reason, time, and the kinds of the last messages.
    #[schema(value_type = Vec<Object>)]
    crashes: Vec<Crash>,
}

/// List the most recent crashes. Stops that an operator requested are not included.
#[utoipa::path(
    get, path = "/api/v1/actors/crashes", tag = "operations",
    responses((status = 200, body = Crashes), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_crashes(State(state): State<AppState>) -> Json<Crashes> {
    Json(Crashes { crashes: state.kernel.crashes() })
}

/// An operator command on an actor.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// The path of the actor.
    path: String,
    /// The expected incarnation. The command is refused if the actor has another one.
    #[serde(default, deserialize_with = "whole_option")]
    incarnation: Option<u64>,
    /// A reason for the log.
    #[serde(default)]
    reason: Option<String>,
    /// Required for the root (`/`), because the whole server ends with it.
    #[serde(default)]
    force: bool,
}

/// The actor as it was when the operation took effect.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActorSnapshot {
    #[schema(value_type = Object)]
    actor: NodeInfo,
}

async fn act(
    state: &AppState,
    caller: &Caller,
    act: Act,
    operation: Operation,
) -> Result<Json<ActorSnapshot>, ApiError> {
    let Act { path, incarnation, reason, force } = act;
    let target = Target { path, incarnation: incarnation.map(Incarnation), reason: reason.unwrap_or_default(), force };
    let actor = operate_actor(state, caller, target, operation).await?;
    Ok(Json(ActorSnapshot { actor }))
}

/// Stop an actor gracefully.
#[utoipa::path(
    post, path = "/api/v1/actors/stop", tag = "operations", request_body = Act,
    responses((status = 200, body = ActorSnapshot), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn stop_actor(
    State(state): State<AppState>,
    caller: Caller,
    Body(body): Body<Act>,
) -> Result<Json<ActorSnapshot>, ApiError> {
    act(&state, &caller, body, Operation::Stop).await
}

/// Kill an actor at once.
#[utoipa::path(
    post, path = "/api/v1/actors/kill", tag = "operations", request_body = Act,
    responses((status = 200, body = ActorSnapshot), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn kill_actor(
    State(state): State<AppState>,
    caller: Caller,
    Body(body): Body<Act>,
) -> Result<Json<ActorSnapshot>, ApiError> {
    act(&state, &caller, body, Operation::Kill).await
}

/// Stop an actor and start its next incarnation.
#[utoipa::path(
    post, path = "/api/v1/actors/restart", tag = "operations", request_body = Act,
    responses((status = 200, body = ActorSnapshot), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn restart_actor(
    State(state): State<AppState>,
    caller: Caller,
    Body(body): Body<Act>,
) -> Result<Json<ActorSnapshot>, ApiError> {
    act(&state, &caller, body, Operation::Restart).await
}
