//! The queue as callers see it.

use annie_actors::Kernel;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{error::ApiError, http::schema, ops::orders::OrderLine};

/// The waiting tasks, the running rounds and the backends.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// In the order of their positions; tasks without a position come last.
    waiting: Vec<WaitingTask>,
    running: Vec<RunningRound>,
    /// In the order of the configuration.
    backends: Vec<QueueBackend>,
    /// The orders of operators that keep tasks from running.
    #[serde(default)]
    orders: Vec<OrderLine>,
}

/// A task that waits.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WaitingTask {
    #[schema(value_type = schema::TaskId)]
    task_id: String,
    /// `waiting` for a permit, `between` two rounds, `held` by its user, or `delayed` until a time or another task.
    state: String,
    /// `realtime`, `high`, `normal`, `low` or `background`.
    priority: String,
    /// The position in the queue of its backend, from 1.
    position: Option<u64>,
    /// The class as which it counts after its wait, from 0 (realtime) to 4.0 (background).
    effective: Option<f64>,
    /// The backend in whose queue it waits.
    backend: Option<String>,
    /// How long it has waited for a permit.
    waited_ms: u64,
    /// The expected time until its next round starts.
    start_in_ms: Option<u64>,
    rounds_done: u64,
    /// How often it was parked for another task.
    preemptions: u64,
    /// The reason of its wait, for people.
    why: String,
}

/// A round that runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunningRound {
    #[schema(value_type = schema::TaskId)]
    task_id: String,
    backend: String,
    /// When its permit was granted, RFC 3339.
    #[schema(format = DateTime)]
    since: String,
}

/// A backend as the scheduler knows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QueueBackend {
    backend: String,
    /// Rounds that run on it.
    running: u64,
    /// Concurrent rounds; absent if unknown.
    slots: Option<u64>,
    /// `up`, `failing` or `down`.
    #[schema(value_type = schema::BackendState)]
    state: String,
    up: bool,
    /// Whether its endpoint answered the last check.
    reachable: bool,
    /// Consecutive failures of its breaker.
    failures: u64,
    /// How often its breaker opened.
    trips: u64,
    /// Tasks that wait for it and could run.
    ready: u64,
    /// The usual duration of a round.
    round_ms: u64,
    outcomes: BackendOutcomes,
    gate: VoiceGate,
    window: RateWindow,
    /// What else is known: its limits and what its server reported.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// How the last rounds of a backend ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BackendOutcomes {
    /// Failed rounds since the last successful one.
    failed_rounds: u64,
    /// RFC 3339.
    #[schema(format = DateTime)]
    failing_since: Option<String>,
    last_error: Option<BackendFailure>,
}

/// A failure of a backend.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BackendFailure {
    /// `auth`, `payment`, `unavailable`, `timeout` ...
    kind: String,
    /// The provider's message, without secrets.
    detail: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    at: String,
}

/// The voice gate of a backend.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VoiceGate {
    /// Whether only voice runs.
    closed: bool,
    holder: Option<String>,
    /// Increases with every new holder.
    epoch: Option<u64>,
    /// When it opens unless it is renewed, RFC 3339.
    #[schema(format = DateTime)]
    until: Option<String>,
    /// Voice tasks that keep it closed.
    #[schema(value_type = Vec<schema::TaskId>)]
    voices: Vec<String>,
    closed_ms_total: u64,
}

/// The requests that a backend may receive in the present window of time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RateWindow {
    /// Requests in the present window.
    used: u64,
    /// Why it receives no round for which a person waits; absent if it receives them.
    urgent: Option<String>,
    /// Why it receives no other round; absent if it receives them.
    others: Option<String>,
}

impl QueueView {
    /// The queue now.
    ///
    /// # Errors
    /// If the scheduler does not answer.
    pub async fn read(kernel: &Kernel) -> Result<Self, ApiError> {
        let queue = kernel.queue().await?;
        let view = Self::deserialize(queue);
        let view = view.map_err(|error| ApiError::internal(&format!("the queue is not as described: {error}")))?;
        Ok(Self { orders: kernel.orders().into_iter().map(Into::into).collect(), ..view })
    }
}
