//! The queue, the voice gate and the breakers.

use annie_core::breaker::BreakerState;
use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    extract::{Body, Name, whole},
    problem::Problem,
    schema,
};
use crate::{
    api::{self, AppState},
    auth::Caller,
    error::ApiError,
};

/// Get the queue: the waiting tasks with the reason of their wait, and the running rounds.
#[utoipa::path(
    get, path = "/api/v1/queue", tag = "operations",
    responses((status = 200, body = Object), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_queue(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    Ok(Json(state.kernel.queue().await?))
}

/// The options of holding the voice gate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The backend; the first if absent.
    #[serde(default)]
    backend: String,
    /// The holder; a call by the same holder renews the gate.
    #[schema(min_length = 1, max_length = 128)]
    holder: String,
    /// The time until the gate opens unless it is renewed: 500 to 60000 ms; values outside are clamped.
    #[serde(deserialize_with = "whole")]
    ttl_ms: u64,
}

/// The granted hold of the voice gate.
#[derive(Debug, Serialize, ToSchema)]
pub struct Held {
    /// Increases with every new holder.
    epoch: u64,
    /// RFC 3339.
    #[schema(format = DateTime)]
    until: String,
}

/// Close the voice gate for everything except voice, or renew it.
#[utoipa::path(
    post, path = "/api/v1/gate/hold", tag = "operations", request_body = Hold,
    responses((status = 200, body = Held), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn hold_gate(State(state): State<AppState>, Body(hold): Body<Hold>) -> Result<Json<Held>, ApiError> {
    let grant = api::hold_gate(&state, &hold.backend, &hold.holder, hold.ttl_ms).await?;
    Ok(Json(Held { epoch: grant.epoch, until: grant.until.to_string() }))
}

/// The options of releasing the voice gate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The backend; the first if absent.
    #[serde(default)]
    backend: String,
    /// The holder of the gate.
    #[schema(min_length = 1, max_length = 128)]
    holder: String,
}

/// Whether the gate was opened.
#[derive(Debug, Serialize, ToSchema)]
pub struct Released {
    /// False if this holder did not hold the gate.
    released: bool,
}

/// Open the voice gate.
#[utoipa::path(
    post, path = "/api/v1/gate/release", tag = "operations", request_body = Release,
    responses((status = 200, body = Released), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn release_gate(
    State(state): State<AppState>,
    Body(gate): Body<Release>,
) -> Result<Json<Released>, ApiError> {
    let released = api::release_gate(&state, &gate.backend, &gate.holder).await?;
    Ok(Json(Released { released }))
}

/// The state of a skill's breaker. Listed are skills that were called since the start, and skills whose breaker was open before
/// it.
#[derive(Debug, Serialize, ToSchema)]
pub struct BreakerLine {
    /// The name of the skill.
    skill: String,
    /// `closed`, `open` or `half_open`; absent if the breaker is too busy to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::BreakerState>)]
    state: Option<BreakerState>,
    /// Consecutive failures.
    failures: u64,
    /// How often the breaker opened since it last closed.
    trips: u64,
    /// When the breaker opened, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    opened_at: Option<String>,
    /// Runs in progress.
    runs: u64,
}

impl From<api::BreakerLine> for BreakerLine {
    fn from(line: api::BreakerLine) -> Self {
        let api::BreakerLine { skill, state, failures, trips, opened_at, runs } = line;
        Self { skill, state, failures, trips, opened_at, runs }
    }
}

/// The circuit breakers of the skills.
#[derive(Debug, Serialize, ToSchema)]
pub struct Breakers {
    /// Ordered by skill. A skill that was not called since the start has no breaker, unless its breaker was open before.
    breakers: Vec<BreakerLine>,
}

/// List the circuit breakers of the skills.
#[utoipa::path(
    get, path = "/api/v1/breakers", tag = "operations",
    responses((status = 200, body = Breakers), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_breakers(State(state): State<AppState>) -> Json<Breakers> {
    Json(Breakers { breakers: api::list_breakers(&state).await.into_iter().map(Into::into).collect() })
}

/// Close a skill's breaker, so that its next call is admitted.
#[utoipa::path(
    post, path = "/api/v1/breakers/{skill}/reset", tag = "operations", params(("skill" = String, Path)),
    responses((status = 204, description = "The breaker is closed"), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn reset_breaker(
    State(state): State<AppState>,
    caller: Caller,
    Name(skill): Name,
) -> Result<StatusCode, ApiError> {
    api::reset_breaker(&state, &caller, &skill).await?;
    Ok(StatusCode::NO_CONTENT)
}
