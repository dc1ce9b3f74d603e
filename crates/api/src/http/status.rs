//! The status of the server: for people, for service managers and for Prometheus.

use annie_actors::{Health, Kernel, OrderKind};
use annie_core::route::BackendState;
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{problem::Problem, schema};
use crate::{
    api::{AppState, Feature, VERSION, Warning},
    telemetry,
};

/// The status of the server.
#[derive(Debug, Serialize, ToSchema)]
pub struct Status {
    version: &'static str,
    uptime_s: u64,
    /// `sqlite`, `memory` …
    store: &'static str,
    /// Whether callers need a key.
    needs_keys: bool,
    /// Whether the server accepts messages.
    ready: bool,
    /// Problems that prevent the server from being ready.
    problems: Vec<String>,
    /// Features that do not work although messages are accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
    /// Whether faults may be injected into this server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    chaos: bool,
    /// The number of live actors.
    actors: usize,
    /// The number of crashes of actors since the start.
    crashes_total: u64,
    skills: usize,
    backends: Vec<BackendStatus>,
}

/// A model backend.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackendStatus {
    name: String,
    model: String,
    /// A description: a language model, or the offline planner.
    about: String,
    /// Whether rounds are expected to succeed; absent if this is unknown. Messages are accepted even if no backend is up:
    /// messages for which a client waits then fail visibly, and all others are deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    up: Option<bool>,
    /// `up`; `failing`: the last rounds failed although the backend may be reachable; `down`: the backend receives no requests
    /// at present. Absent if the backend's actor is too busy to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::BackendState>)]
    state: Option<BackendState>,
    /// The kind and version that the server reported; absent if it reported none.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// The profile with which requests are adapted to the server; absent until the server was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<SettingText>,
    /// The maximum length of prompt and answer together, in tokens. Its value is absent while it is unknown; prompts are then
    /// fitted to `turn.context_tokens_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_tokens_max: Option<SettingNumber>,
    /// The number of concurrent rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<SettingNumber>,
    /// The number of failed rounds since the last successful one.
    failed_rounds: u64,
    /// When rounds started to fail, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    failing_since: Option<String>,
    /// The last failure of a round, or of the check whether the endpoint is reachable; absent while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<BackendError>,
}

/// A number and its source.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingNumber {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    /// The source: `configured` (by the operator), `server` (reported by the server), or `default`.
    from: String,
}

/// A text and its source.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingText {
    value: String,
    /// The source: `configured` (by the operator), `server` (reported by the server), or `default`.
    from: String,
}

/// The last error of a backend.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackendError {
    /// `auth`, `payment`, `unavailable`, `timeout` …
    kind: String,
    /// The provider's message, without secrets.
    detail: String,
}

impl BackendStatus {
    fn of(name: String, model: String, about: String, view: &Value) -> Self {
        let outcomes = &view["outcomes"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let failed_rounds = outcomes["failed_rounds"].as_u64().unwrap_or(0);
        let number =
            |key: &str, from: &str| text(&view[from]).map(|from| SettingNumber { value: view[key].as_u64(), from });
        let reported = &view["server"];
        let server = text(&reported["server"]).map(|server| match reported["version"].as_str() {
            Some(version) => format!("{server} {version}"),
            None => server,
        });
        let profile = text(&view["profile"]).zip(text(&view["profile_from"]));
        let error = if failed_rounds > 0 { &outcomes["last_error"] } else { &view["check_error"] };
        Self {
            name,
            model,
            about,
            up: view["up"].as_bool(),
            state: BackendState::deserialize(&view["state"]).ok(),
            server,
            profile: profile.map(|(value, from)| SettingText { value, from }),
            context_tokens_max: number("context_tokens_max", "context_tokens_from"),
            slots: number("slots", "slots_from"),
            failed_rounds,
            failing_since: text(&outcomes["failing_since"]),
            last_error: text(&error["kind"])
                .map(|kind| BackendError { kind, detail: text(&error["detail"]).unwrap_or_default() }),
        }
    }
}

/// Get the status of the server.
#[utoipa::path(
    get, path = "/api/v1/status", tag = "operations",
    responses((status = 200, body = Status), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_status(State(state): State<AppState>) -> Json<Status> {
    let kernel = &state.kernel;
    let backends = kernel.models().into_iter().map(async |(name, model, about)| {
        let view = backend_view(kernel, &name).await.unwrap_or_default();
        BackendStatus::of(name, model, about, &view)
    });
    let (health, backends) = tokio::join!(kernel.health(), join_all(backends));
    Json(Status {
        version: VERSION,
        uptime_s: kernel.now().since_ms(state.shared.started_at) / 1_000,
        store: kernel.store().name(),
        needs_keys: state.auth.needs_keys(),
        ready: health.ready,
        problems: health.problems,
        warnings: [
            state.warnings(),
            health.warnings.into_iter().map(of_extensions).collect(),
            kernel.disabled_hooks().into_iter().map(of_hooks).collect(),
        ]
        .concat(),
        chaos: state.chaos.is_some(),
        actors: health.actors,
        crashes_total: health.crashes_total,
        skills: kernel.catalog().skills().iter().count(),
        backends,
    })
}

fn of_extensions(text: String) -> Warning {
    Warning { about: Feature::Extensions, text }
}

fn of_hooks(text: String) -> Warning {
    Warning { about: Feature::Hooks, text }
}

/// The view of a backend's actor. The scheduler is not asked, because it would render its whole queue.
async fn backend_view(kernel: &Kernel, backend: &str) -> Option<Value> {
    let (_, view) = kernel.view(&format!("/resources/backends/backend:{backend}")).await.ok()?;
    view
}

/// Check that the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = String)))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the server accepts messages.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ready {
    ready: bool,
    /// Whether faults may be injected into this server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    chaos: bool,
    /// Problems that prevent the server from being ready.
    problems: Vec<String>,
    /// Features that do not work although messages are accepted: the notes skills, and paused classes. The status has the details.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The warning for callers without a key.
const NOTES_WARNING: &str = "the notes skills do not work: `annie status` says why";

/// Check that the server accepts messages: the store answers and the permanent actors are alive.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, body = Ready), (status = 503, body = Ready, description = "Not ready"))
)]
pub async fn readyz(State(state): State<AppState>) -> (StatusCode, Json<Ready>) {
    let Health { ready, problems, .. } = state.kernel.health().await;
    // This route is public, so the text of a warning, which contains paths, is only in the status.
    let paused = state.kernel.orders().into_iter().filter(|order| order.kind == OrderKind::PausedClass);
    let paused =
        paused.map(|order| format!("class {} is paused by an operator: `annie status` says why", order.target));
    let warnings = state.notes_warning().map(|_| NOTES_WARNING.to_owned()).into_iter().chain(paused).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready, chaos: state.chaos.is_some(), problems, warnings }))
}

/// Get the metrics for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn metrics(State(state): State<AppState>) -> Response {
    let Some(recorder) = &state.metrics else { return "# nothing is recorded\n".into_response() };
    let page = telemetry::render(recorder, &state.kernel);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}
