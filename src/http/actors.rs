//! The living tree: look, question, strike.

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
    auth::Caller,
    door::{AppState, Target, TreePage, actor_path, operate_actor, page},
    error::Fault,
};

/// Actors, sorted by path.
#[derive(Debug, Serialize, ToSchema)]
pub struct Tree {
    /// Path, kind, incarnation, status, mailbox and what is being handled.
    #[schema(value_type = Vec<Object>)]
    actors: Vec<NodeInfo>,
    /// How many there are, whether or not they fitted.
    total: usize,
    /// Ask again with this as `next` for the rest; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TreeArgs {
    /// Only what stands here or below.
    under: Option<String>,
    /// The `next` of an earlier page: this one goes on behind it.
    #[param(pattern = "^(/[ -~]*)?$")]
    next: Option<String>,
    /// How many at most; 1000 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 5000)]
    limit: Option<String>,
}

/// The tree.
#[utoipa::path(
    get, path = "/api/v1/actors", tag = "operations", params(TreeArgs),
    responses((status = 200, body = Tree), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_actors(State(state): State<AppState>, Args(args): Args<TreeArgs>) -> Result<Json<Tree>, Fault> {
    let limit = page::ACTORS.of_text(args.limit.as_deref())?;
    let after = args.next.as_deref().unwrap_or_default();
    let under = args.under.as_deref().unwrap_or_default();
    let TreePage { actors, total, next } = TreePage::of(&state.kernel, under, after, limit)?;
    Ok(Json(Tree { actors, total, next }))
}

/// One actor and what it says of itself.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActorView {
    #[schema(value_type = Object)]
    actor: NodeInfo,
    /// Its own view of its state; absent if it is too busy to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<Value>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ViewArgs {
    /// Where it stands: `/scheduler`.
    path: String,
}

/// One actor.
#[utoipa::path(
    get, path = "/api/v1/actors/view", tag = "operations", params(ViewArgs),
    responses((status = 200, body = ActorView), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn view_actor(State(state): State<AppState>, Args(args): Args<ViewArgs>) -> Result<Json<ActorView>, Fault> {
    let (actor, view) = state.kernel.view(&actor_path(&args.path)).await?;
    Ok(Json(ActorView { actor, view }))
}

/// Deaths that nobody asked for.
#[derive(Debug, Serialize, ToSchema)]
pub struct Crashes {
    /// Oldest first: path, incarnation, reason, when, and the last messages' kinds.
    #[schema(value_type = Vec<Object>)]
    crashes: Vec<Crash>,
}

/// The last deaths that nobody asked for.
#[utoipa::path(
    get, path = "/api/v1/actors/crashes", tag = "operations",
    responses((status = 200, body = Crashes), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_crashes(State(state): State<AppState>) -> Json<Crashes> {
    Json(Crashes { crashes: state.kernel.crashes() })
}

/// Which life to strike, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// Where it stands.
    path: String,
    /// Refused if another life than this stands there.
    #[serde(default, deserialize_with = "whole_option")]
    incarnation: Option<u64>,
    /// For the log.
    #[serde(default)]
    reason: Option<String>,
    /// Needed for the root, `/`: without it the whole server ends.
    #[serde(default)]
    force: bool,
}

/// The life that was struck, as it was.
#[derive(Debug, Serialize, ToSchema)]
pub struct Struck {
    #[schema(value_type = Object)]
    actor: NodeInfo,
}

async fn act(state: &AppState, caller: &Caller, act: Act, operation: Operation) -> Result<Json<Struck>, Fault> {
    let Act { path, incarnation, reason, force } = act;
    let target = Target { path, incarnation: incarnation.map(Incarnation), reason: reason.unwrap_or_default(), force };
    let actor = operate_actor(state, caller, target, operation).await?;
    Ok(Json(Struck { actor }))
}

/// End a life in good order.
#[utoipa::path(
    post, path = "/api/v1/actors/stop", tag = "operations", request_body = Act,
    responses((status = 200, body = Struck), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn stop_actor(
    State(state): State<AppState>,
    caller: Caller,
    Body(body): Body<Act>,
) -> Result<Json<Struck>, Fault> {
    act(&state, &caller, body, Operation::Stop).await
}

/// End a life at once.
#[utoipa::path(
    post, path = "/api/v1/actors/kill", tag = "operations", request_body = Act,
    responses((status = 200, body = Struck), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn kill_actor(
    State(state): State<AppState>,
    caller: Caller,
    Body(body): Body<Act>,
) -> Result<Json<Struck>, Fault> {
    act(&state, &caller, body, Operation::Kill).await
}

/// End a life and start the next.
#[utoipa::path(
    post, path = "/api/v1/actors/restart", tag = "operations", request_body = Act,
    responses((status = 200, body = Struck), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn restart_actor(
    State(state): State<AppState>,
    caller: Caller,
    Body(body): Body<Act>,
) -> Result<Json<Struck>, Fault> {
    act(&state, &caller, body, Operation::Restart).await
}
