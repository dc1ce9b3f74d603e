//! What every viewer of the page sees alike: the summary, the queue, the last hour, the actor tree. Each is read when a viewer
//! watches, and shared by all that watch at that time, so that many open pages cost about as much as one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use annie_actors::{Kernel, NodeInfo, PulseMinute};
use annie_core::time::Micros;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::{AppState, QueueView};
use crate::{error::ApiError, http::schema};

/// How long a reading is used. Shorter than the interval at which a viewer asks, so that each interval brings a new one.
const FRESH: Duration = Duration::from_millis(800);
/// A tree is read again only after this many times the duration of a reading, so that watching it costs 5 % of a core at most.
const TREE_PAUSE_FACTOR: u32 = 20;

/// A value that was read at a time.
struct Cached<T>(Mutex<Option<(Instant, Duration, T)>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Cached<T> {
    /// The value, read anew if it is too old. `pause` makes its maximum age of the duration of the last reading.
    async fn get<F>(&self, pause: impl Fn(Duration) -> Duration, read: F) -> Result<T, ApiError>
    where
        F: AsyncFnOnce() -> Result<T, ApiError>,
    {
        let mut slot = self.0.lock().await;
        if let Some((at, took, value)) = slot.as_ref()
            && at.elapsed() < pause(*took)
        {
            return Ok(value.clone());
        }
        let begun = Instant::now();
        let value = read().await?;
        *slot = Some((Instant::now(), begun.elapsed(), value.clone()));
        Ok(value)
    }
}

/// The shared readings of one server.
#[derive(Default)]
pub(crate) struct Board {
    summary: Cached<Arc<str>>,
    queue: Cached<Arc<str>>,
    overview: Cached<Arc<str>>,
    tree: Cached<Arc<Vec<NodeInfo>>>,
}

impl Board {
    /// The summary as JSON.
    pub async fn summary(&self, state: &AppState) -> Result<Arc<str>, ApiError> {
        self.summary.get(|_| FRESH, async || text(&Summary::read(state).await)).await
    }

    /// The queue as JSON.
    pub async fn queue(&self, kernel: &Kernel) -> Result<Arc<str>, ApiError> {
        self.queue.get(|_| FRESH, async || text(&QueueView::read(kernel).await?)).await
    }

    /// The last hour as JSON.
    pub async fn overview(&self, state: &AppState) -> Result<Arc<str>, ApiError> {
        self.overview.get(|_| FRESH, async || text(&Overview::read(&state.kernel, state.shared.started_at))).await
    }

    /// All actors, sorted by path.
    pub async fn tree(&self, kernel: &Kernel) -> Result<Arc<Vec<NodeInfo>>, ApiError> {
        let pause = |took: Duration| (took * TREE_PAUSE_FACTOR).max(FRESH);
        self.tree.get(pause, async || Ok(Arc::new(kernel.tree()))).await
    }
}

fn text<T: Serialize>(value: &T) -> Result<Arc<str>, ApiError> {
    serde_json::to_string(value).map(Arc::from).map_err(|error| ApiError::internal(&error.to_string()))
}

/// The state of the server in a few numbers.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Summary {
    version: &'static str,
    /// Whether the server accepts messages.
    ready: bool,
    /// Problems that prevent the server from being ready.
    problems: Vec<String>,
    /// Features that do not work although messages are accepted.
    warnings: Vec<String>,
    /// Rounds that run now.
    running: u64,
    /// Tasks that wait for a permit.
    waiting: u64,
    /// Deferred tasks.
    deferred: u64,
    /// Live actors.
    actors: usize,
    /// Crashes since the start.
    crashes_total: u64,
    backends: Vec<BackendSummary>,
    /// Whether faults may be injected into this server.
    chaos: bool,
    /// RFC 3339.
    #[schema(format = DateTime)]
    started_at: String,
    /// The number of commits of the log since the start: when it changes, lists may have changed.
    changes: u64,
}

/// A backend in a few words.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct BackendSummary {
    name: String,
    #[schema(value_type = Option<schema::BackendState>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    running: u64,
    /// Whether voice has closed it for all other rounds.
    is_gate_closed: bool,
}

impl Summary {
    async fn read(state: &AppState) -> Self {
        let kernel = &state.kernel;
        let (health, view) = tokio::join!(kernel.health(), kernel.view("/scheduler"));
        let view = view.ok().and_then(|(_, view)| view).unwrap_or_default();
        let backends: Vec<BackendSummary> = view["backends"].as_array().into_iter().flatten().map(backend).collect();
        let warnings = state.warnings().into_iter().map(|warning| warning.text);
        let warnings = warnings.chain(health.warnings).chain(kernel.disabled_hooks()).collect();
        Self {
            version: super::VERSION,
            ready: health.ready,
            problems: health.problems,
            warnings,
            running: backends.iter().map(|b| b.running).sum(),
            waiting: view["waiting"].as_u64().unwrap_or(0),
            deferred: view["deferred"].as_u64().unwrap_or(0),
            actors: health.actors,
            crashes_total: health.crashes_total,
            backends,
            chaos: state.chaos.is_some(),
            started_at: state.shared.started_at.to_string(),
            changes: *kernel.commits().borrow(),
        }
    }
}

fn backend(view: &Value) -> BackendSummary {
    BackendSummary {
        name: view["backend"].as_str().unwrap_or_default().to_owned(),
        state: view["state"].as_str().map(str::to_owned),
        running: view["running"].as_u64().unwrap_or(0),
        is_gate_closed: view["gate"]["closed"].as_bool().unwrap_or(false),
    }
}

/// How the server was doing in the last hour.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Overview {
    /// When the server began to count, RFC 3339: at its start. Nothing before is in the minutes.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "annie_core::time::rfc3339")]
    pub since: Micros,
    /// The last 60 minutes, oldest first. The last of them is not over.
    pub minutes: Vec<Minute>,
}

/// One minute.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Minute {
    /// When it began, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "annie_core::time::rfc3339")]
    pub at: Micros,
    /// Tasks that ended, failed ones included.
    pub turns: u32,
    /// Tasks that failed.
    pub failures: u32,
    /// The most tasks that waited at the same time.
    pub waiting_max: u32,
    /// Actors that were started again after an end.
    pub restarts: u32,
    /// Tokens of the answers of rounds that ended, reasoning included.
    pub output_tokens: u64,
    /// The time from the request of a round to its first token that 95 % of the rounds did not exceed, in milliseconds, rounded
    /// up; absent if no round ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_p95_ms: Option<u64>,
}

impl From<PulseMinute> for Minute {
    fn from(minute: PulseMinute) -> Self {
        let PulseMinute { at, turns, failures, waiting_max, restarts, output_tokens, first_token_p95_ms } = minute;
        Self { at, turns, failures, waiting_max, restarts, output_tokens, first_token_p95_ms }
    }
}

impl Overview {
    /// The last hour.
    pub fn read(kernel: &Kernel, since: Micros) -> Self {
        Self { since, minutes: kernel.last_hour().into_iter().map(Minute::from).collect() }
    }
}
