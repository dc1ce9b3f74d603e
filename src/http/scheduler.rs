//! The queue, the voice gate and the breakers.

use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    extract::{Body, Name},
    problem::Problem,
};
use crate::{auth::Caller, door::AppState, error::Fault};

/// The longest name of a gate's holder, in bytes.
const HOLDER_BYTES_MAX: usize = 128;

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
    holder: String,
    /// For how long unless renewed: 500 to 60000; less or more is taken as the nearest of these.
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

fn holder(name: &str) -> Result<&str, Fault> {
    if name.is_empty() || name.len() > HOLDER_BYTES_MAX || name.chars().any(char::is_control) {
        let why = format!("a holder's name has 1 to {HOLDER_BYTES_MAX} bytes and no control characters");
        return Err(Fault::invalid(why).at("holder"));
    }
    Ok(name)
}

/// Close the voice gate for everything but voice, or renew it.
#[utoipa::path(
    post, path = "/api/v1/gate/hold", tag = "operations", request_body = Hold,
    responses((status = 200, body = Held), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn hold_gate(State(state): State<AppState>, Body(hold): Body<Hold>) -> Result<Json<Held>, Fault> {
    let grant = state.kernel.hold_gate(&hold.backend, holder(&hold.holder)?, hold.ttl_ms).await?;
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
    let released = state.kernel.release_gate(&gate.backend, holder(&gate.holder)?).await?;
    Ok(Json(Released { released }))
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
    crate::door::reset_breaker(&state, &caller, &skill)?;
    Ok(StatusCode::NO_CONTENT)
}
