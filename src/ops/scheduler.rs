//! The queue, the voice gate and the breakers.

use std::convert::identity;

use annie_actors::GateGrant;
use annie_core::breaker::BreakerState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::row::{
    Call, Operation,
    Verb::{Get, Post},
    command, route,
};
use crate::{
    api,
    auth::{
        KeyScope::{OpsControl, OpsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::v1,
    http::{
        extract::{Body, Name, whole},
        schema,
    },
};

/// The operations on the queue, the voice gate and the breakers.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/queue", Scope(OpsRead), get_queue, identity)
            .about("get_queue", "operations", QUEUE, "queue")
            .untyped()
            .rpc("/annie.v1.Scheduler/Queue", |_: v1::QueueRequest| Ok(()), queue),
        route(Post, "/api/v1/gate/hold", Scope(OpsControl), hold_gate, Held::from)
            .about(
                "hold_gate",
                "operations",
                "Close the voice gate for everything except voice, or renew it.",
                "gate hold",
            )
            .rpc("/annie.v1.Scheduler/HoldGate", asked_hold, v1::HoldGateResponse::from),
        route(Post, "/api/v1/gate/release", Scope(OpsControl), release_gate, |released| Released { released })
            .about("release_gate", "operations", "Open the voice gate.", "gate release")
            .rpc("/annie.v1.Scheduler/ReleaseGate", asked_release, |released| v1::ReleaseGateResponse { released }),
        route(Get, "/api/v1/breakers", Scope(OpsRead), list_breakers, Breakers::from)
            .about("list_breakers", "operations", "List the circuit breakers of the skills.", "breakers list")
            .rpc("/annie.v1.Actors/ListBreakers", |_: v1::ListBreakersRequest| Ok(()), listed),
        command("/api/v1/breakers/{skill}/reset", Scope(OpsControl), reset_breaker, "The breaker is closed")
            .about(
                "reset_breaker",
                "operations",
                "Close a skill's breaker, so that its next call is admitted.",
                "breakers reset",
            )
            .rpc(
                "/annie.v1.Actors/ResetBreaker",
                |r: v1::ResetBreakerRequest| Ok(Name(r.skill)),
                |()| v1::ResetBreakerResponse {},
            ),
    ]
}

const QUEUE: &str = "Get the queue: the waiting tasks with the reason of their wait, and the running rounds.";

async fn get_queue(call: Call, (): ()) -> Result<Value, ApiError> {
    Ok(call.state.kernel.queue().await?)
}

fn queue(queue: Value) -> v1::QueueResponse {
    v1::QueueResponse { queue_json: queue.to_string() }
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

impl From<GateGrant> for Held {
    fn from(grant: GateGrant) -> Self {
        Self { epoch: grant.epoch, until: grant.until.to_string() }
    }
}

impl From<GateGrant> for v1::HoldGateResponse {
    fn from(grant: GateGrant) -> Self {
        Self { epoch: grant.epoch, until_us: grant.until.0 }
    }
}

fn asked_hold(asked: v1::HoldGateRequest) -> Result<Body<Hold>, ApiError> {
    let v1::HoldGateRequest { backend, holder, ttl_ms } = asked;
    Ok(Body(Hold { backend, holder, ttl_ms }))
}

async fn hold_gate(call: Call, Body(hold): Body<Hold>) -> Result<GateGrant, ApiError> {
    api::hold_gate(&call.state, &hold.backend, &hold.holder, hold.ttl_ms).await
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

fn asked_release(asked: v1::ReleaseGateRequest) -> Result<Body<Release>, ApiError> {
    let v1::ReleaseGateRequest { backend, holder } = asked;
    Ok(Body(Release { backend, holder }))
}

async fn release_gate(call: Call, Body(gate): Body<Release>) -> Result<bool, ApiError> {
    api::release_gate(&call.state, &gate.backend, &gate.holder).await
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

impl From<api::BreakerLine> for v1::Breaker {
    fn from(line: api::BreakerLine) -> Self {
        let opened_at = line.opened_at.and_then(|at| chrono::DateTime::parse_from_rfc3339(&at).ok());
        Self {
            skill: line.skill,
            state: line.state.map_or("", BreakerState::as_str).to_owned(),
            failures: line.failures,
            trips: line.trips,
            opened_at_us: opened_at.map(|at| at.timestamp_micros()),
            runs: line.runs,
        }
    }
}

/// The circuit breakers of the skills.
#[derive(Debug, Serialize, ToSchema)]
pub struct Breakers {
    /// Ordered by skill. A skill that was not called since the start has no breaker, unless its breaker was open before.
    breakers: Vec<BreakerLine>,
}

impl From<Vec<api::BreakerLine>> for Breakers {
    fn from(lines: Vec<api::BreakerLine>) -> Self {
        Self { breakers: lines.into_iter().map(Into::into).collect() }
    }
}

fn listed(lines: Vec<api::BreakerLine>) -> v1::ListBreakersResponse {
    v1::ListBreakersResponse { breakers: lines.into_iter().map(Into::into).collect() }
}

async fn list_breakers(call: Call, (): ()) -> Result<Vec<api::BreakerLine>, ApiError> {
    Ok(api::list_breakers(&call.state).await)
}

async fn reset_breaker(call: Call, Name(skill): Name) -> Result<(), ApiError> {
    api::reset_breaker(&call.state, &call.caller, &skill).await
}
