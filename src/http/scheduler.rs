//! The queue, the voice gate and the breakers.

use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    extract::{Body, Name, whole},
    problem::Problem,
};
use crate::{
    auth::Caller,
    door::{self, AppState, BreakerLine},
    error::Fault,
};

/// Who waits, where and why, and which rounds run.
#[utoipa::path(
    get, path = "/api/v1/queue", tag = "operations",
    responses((status = 200, body = Object), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_queue(State(state): State<AppState>) -> Result<Json<Value>, Fault> {
    Ok(Json(state.kernel.queue().await?))
}

/// Who speaks, where and for how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The backend; the first if absent.
    #[serde(default)]
    backend: String,
    /// Who holds it; the same again renews.
    #[schema(min_length = 1, max_length = 128)]
    holder: String,
    /// For how long unless renewed: 500 to 60000; less or more is taken as the nearest of these.
    #[serde(deserialize_with = "whole")]
    ttl_ms: u64,
}

/// The gate is held.
#[derive(Debug, Serialize, ToSchema)]
pub struct Held {
    /// Rises with every new holder.
    epoch: u64,
    /// RFC 3339.
    until: String,
}

/// Close the voice gate for everything but voice, or renew it.
#[utoipa::path(
    post, path = "/api/v1/gate/hold", tag = "operations", request_body = Hold,
    responses((status = 200, body = Held), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn hold_gate(State(state): State<AppState>, Body(hold): Body<Hold>) -> Result<Json<Held>, Fault> {
    let grant = door::hold_gate(&state, &hold.backend, &hold.holder, hold.ttl_ms).await?;
    Ok(Json(Held { epoch: grant.epoch, until: grant.until.to_string() }))
}

/// Who stops speaking.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The backend; the first if absent.
    #[serde(default)]
    backend: String,
    /// Who held it.
    #[schema(min_length = 1, max_length = 128)]
    holder: String,
}

/// Whether the gate was opened.
#[derive(Debug, Serialize, ToSchema)]
pub struct Released {
    /// False if this holder did not hold it.
    released: bool,
}

/// Open the voice gate again.
#[utoipa::path(
    post, path = "/api/v1/gate/release", tag = "operations", request_body = Release,
    responses((status = 200, body = Released), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn release_gate(State(state): State<AppState>, Body(gate): Body<Release>) -> Result<Json<Released>, Fault> {
    let released = door::release_gate(&state, &gate.backend, &gate.holder).await?;
    Ok(Json(Released { released }))
}

/// The breakers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Breakers {
    /// By skill. A skill that was not called since the start has none.
    breakers: Vec<BreakerLine>,
}

/// The guarded doors to the skills, with their state.
#[utoipa::path(
    get, path = "/api/v1/breakers", tag = "operations",
    responses((status = 200, body = Breakers), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_breakers(State(state): State<AppState>) -> Json<Breakers> {
    Json(Breakers { breakers: door::list_breakers(&state).await })
}

/// Close a skill's breaker: its next call passes.
#[utoipa::path(
    post, path = "/api/v1/breakers/{skill}/reset", tag = "operations", params(("skill" = String, Path)),
    responses((status = 204, description = "It is closed"), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn reset_breaker(
    State(state): State<AppState>,
    caller: Caller,
    Name(skill): Name,
) -> Result<StatusCode, Fault> {
    door::reset_breaker(&state, &caller, &skill).await?;
    Ok(StatusCode::NO_CONTENT)
}
