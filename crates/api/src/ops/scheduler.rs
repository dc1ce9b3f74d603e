//! The queue, the voice gate and the breakers.

use std::convert::identity;

use annie_actors::{GateGrant, KernelError, OrderKind};
use annie_core::breaker::BreakerState;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    acts::{Subject, recorded},
    row::{
        Call, Operation,
        Verb::{Get, Post},
        command, route,
    },
    skills::unknown_skill,
};
use crate::{
    api::{Minute, Overview, QueueView},
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

/// The maximum length of a gate holder's name, in bytes.
const HOLDER_BYTES_MAX: usize = 128;
/// The path prefix of the breaker actors, before the skill's name.
const BREAKERS: &str = "/breakers/breaker:";

/// The operations on the queue, the voice gate and the breakers.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/queue", Scope(OpsRead), get_queue, identity)
            .about("get_queue", "operations", QUEUE, "queue")
            .rpc("/annie.v1.Scheduler/Queue", |_: v1::QueueRequest| Ok(()), queue),
        route(Get, "/api/v1/overview", Scope(OpsRead), get_overview, identity)
            .about("get_overview", "operations", OVERVIEW, "overview")
            .rpc("/annie.v1.Scheduler/Overview", |_: v1::OverviewRequest| Ok(()), overview),
        route(Post, "/api/v1/gate/hold", Scope(OpsControl), hold_gate, Held::from)
            .about(
                "hold_gate",
                "operations",
                "Close the voice gate for everything except voice, or renew it.",
                "gate hold",
            )
            .rpc("/annie.v1.Scheduler/HoldGate", asked_hold, held),
        route(
            Post,
            "/api/v1/gate/release",
            Scope(OpsControl),
            recorded("gate.release", about_gate, release_gate),
            |released| Released { released },
        )
        .about("release_gate", "operations", "Open the voice gate.", "gate release")
        .rpc("/annie.v1.Scheduler/ReleaseGate", asked_release, |released| v1::ReleaseGateResponse { released }),
        route(Get, "/api/v1/breakers", Scope(OpsRead), list_breakers, |breakers| Breakers { breakers })
            .about("list_breakers", "operations", "List the circuit breakers of the skills.", "breakers list")
            .rpc("/annie.v1.Actors/ListBreakers", |_: v1::ListBreakersRequest| Ok(()), listed),
        command(
            "/api/v1/breakers/{skill}/reset",
            Scope(OpsControl),
            recorded("breaker.close", |Name(skill): &Name| Subject::of(skill), reset_breaker),
            "The breaker is closed",
        )
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

const OVERVIEW: &str = "Get the last hour by minutes: turns, failures, waiting tasks, restarts, and the wait for the first token, since the start of \
     the server.";

async fn get_queue(call: Call, (): ()) -> Result<QueueView, ApiError> {
    QueueView::read(&call.state.kernel).await
}

fn queue(queue: QueueView) -> v1::QueueResponse {
    v1::QueueResponse { queue_json: serde_json::to_string(&queue).unwrap_or_default() }
}

async fn get_overview(call: Call, (): ()) -> Result<Overview, ApiError> {
    Ok(Overview::read(&call.state.kernel, call.state.shared.started_at))
}

fn overview(overview: Overview) -> v1::OverviewResponse {
    let minute = |minute: Minute| v1::OverviewMinute {
        at_us: minute.at.0,
        turns: minute.turns,
        failures: minute.failures,
        waiting_max: minute.waiting_max,
        restarts: minute.restarts,
        output_tokens: minute.output_tokens,
        first_token_p95_ms: minute.first_token_p95_ms,
    };
    v1::OverviewResponse { since_us: overview.since.0, minutes: overview.minutes.into_iter().map(minute).collect() }
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

/// The granted hold as gRPC shows it.
fn held(grant: GateGrant) -> v1::HoldGateResponse {
    v1::HoldGateResponse { epoch: grant.epoch, until_us: grant.until.0 }
}

fn asked_hold(asked: v1::HoldGateRequest) -> Result<Body<Hold>, ApiError> {
    let v1::HoldGateRequest { backend, holder, ttl_ms } = asked;
    Ok(Body(Hold { backend, holder, ttl_ms }))
}

async fn hold_gate(call: Call, Body(hold): Body<Hold>) -> Result<GateGrant, ApiError> {
    Ok(call.state.kernel.hold_gate(&hold.backend, holder(&hold.holder)?, hold.ttl_ms).await?)
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

/// The backend, or the first one.
fn about_gate(Body(gate): &Body<Release>) -> Subject {
    Subject::of(if gate.backend.is_empty() { "gate" } else { &gate.backend }).because(&gate.holder)
}

async fn release_gate(call: Call, Body(gate): Body<Release>) -> Result<bool, ApiError> {
    Ok(call.state.kernel.release_gate(&gate.backend, holder(&gate.holder)?).await?)
}

fn holder(name: &str) -> Result<&str, ApiError> {
    if name.is_empty() || name.len() > HOLDER_BYTES_MAX || name.chars().any(char::is_control) {
        let why = format!("a holder's name has 1 to {HOLDER_BYTES_MAX} bytes and no control characters");
        return Err(ApiError::invalid(why).at("holder"));
    }
    Ok(name)
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
    /// The order of an operator that holds the breaker open: who gave it, since when, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
}

impl BreakerLine {
    fn of(skill: String, view: &Value) -> Self {
        let number = |key: &str| view[key].as_u64().unwrap_or(0);
        let state = BreakerState::deserialize(&view["state"]).ok();
        let opened_at = view["opened_at"].as_str().filter(|_| state != Some(BreakerState::Closed)).map(str::to_owned);
        let (failures, trips, runs) = (number("failures"), number("trips"), number("runs"));
        Self { skill, state, failures, trips, opened_at, runs, held: None }
    }
}

impl From<BreakerLine> for v1::Breaker {
    fn from(line: BreakerLine) -> Self {
        let opened_at = line.opened_at.and_then(|at| chrono::DateTime::parse_from_rfc3339(&at).ok());
        Self {
            skill: line.skill,
            state: line.state.map_or("", BreakerState::as_str).to_owned(),
            failures: line.failures,
            trips: line.trips,
            opened_at_us: opened_at.map(|at| at.timestamp_micros()),
            runs: line.runs,
            held: line.held.unwrap_or_default(),
        }
    }
}

/// The circuit breakers of the skills.
#[derive(Debug, Serialize, ToSchema)]
pub struct Breakers {
    /// Ordered by skill. A skill that was not called since the start has no breaker, unless its breaker was open before.
    breakers: Vec<BreakerLine>,
}

fn listed(lines: Vec<BreakerLine>) -> v1::ListBreakersResponse {
    v1::ListBreakersResponse { breakers: lines.into_iter().map(Into::into).collect() }
}

/// The live breakers in the order of their skills, each with its own view of its state.
async fn list_breakers(call: Call, (): ()) -> Result<Vec<BreakerLine>, ApiError> {
    let kernel = &call.state.kernel;
    let paths: Vec<String> = kernel.tree().into_iter().map(|a| a.path.to_string()).collect();
    let asked = paths.iter().filter_map(|path| {
        let skill = path.strip_prefix(BREAKERS).filter(|rest| !rest.contains('/'))?.to_owned();
        Some(async move {
            let view = kernel.view(path).await.ok().and_then(|(_, view)| view).unwrap_or_default();
            BreakerLine::of(skill, &view)
        })
    });
    let mut lines = join_all(asked).await;
    for order in kernel.orders().into_iter().filter(|order| order.kind == OrderKind::OpenBreaker) {
        let at = lines.binary_search_by(|line| line.skill.as_str().cmp(&order.target)).unwrap_or_else(|at| {
            lines.insert(at, BreakerLine::of(order.target.clone(), &Value::Null));
            at
        });
        if let Some(line) = lines.get_mut(at) {
            (line.state, line.opened_at) = (Some(BreakerState::Open), Some(order.at.to_string()));
            line.held = Some(order.sentence());
        }
    }
    Ok(lines)
}

async fn reset_breaker(call: Call, Name(skill): Name) -> Result<(), ApiError> {
    let kernel = &call.state.kernel;
    match kernel.reset_breaker(&skill).await {
        Err(KernelError::NotFound(_)) => {
            let skills = kernel.catalog().skills();
            if skills.get(&skill).is_none() {
                return Err(unknown_skill(&skills.near(&skill)));
            }
            let mut error = ApiError::not_found("breaker");
            error.detail = format!("{skill} has not failed since the start: there is nothing to close");
            return Err(error);
        }
        done => done?,
    }
    Ok(())
}
