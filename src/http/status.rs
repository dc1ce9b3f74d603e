//! How the server is: for people, for service managers, for Prometheus.

use annie_actors::{Health, Kernel};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::problem::Problem;
use crate::{
    door::{AppState, VERSION},
    telemetry,
};

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Status {
    version: &'static str,
    uptime_s: u64,
    /// `sqlite`, `memory` …
    store: &'static str,
    /// Whether callers need a key.
    needs_keys: bool,
    /// Whether it takes messages.
    ready: bool,
    /// What is not as it should be.
    problems: Vec<String>,
    /// What does not work, though messages are taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// Faults may be injected here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    chaos: bool,
    /// Actors alive.
    actors: usize,
    /// Deaths that nobody asked for, since the start.
    crashes_total: u64,
    skills: usize,
    backends: Vec<BackendStatus>,
}

/// A model backend.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackendStatus {
    name: String,
    model: String,
    /// What it is, plainly: a language model, or that it is only a planner.
    about: String,
    /// Whether rounds are expected to be answered there; absent if nobody can tell now. Messages are taken without any, too:
    /// who waits is told of the failure, and the rest is put off.
    #[serde(skip_serializing_if = "Option::is_none")]
    up: Option<bool>,
    /// `up`; `failing`: its last rounds failed, though it may be there; `down`: it is not asked at present. Absent if it is
    /// too busy to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// What kind of server it said to be, and its version; absent if it has not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// The settings used for its kind of server; absent until it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<SettingText>,
    /// Prompt and answer together, in tokens. Its value is absent while nobody has said: prompts are fitted to
    /// `turn.context_tokens_max` then.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_tokens_max: Option<SettingNumber>,
    /// Rounds at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<SettingNumber>,
    /// Rounds that failed since the last one that was answered.
    failed_rounds: u64,
    /// Since when rounds fail, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since: Option<String>,
    /// The last failure of a round, or of the look whether the endpoint is there; absent while all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<BackendError>,
}

/// A number, and who says it.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingNumber {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    /// `configured`: the operator; `server`: the server itself; `default`: neither.
    from: String,
}

/// A word, and who says it.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingText {
    value: String,
    /// `configured`: the operator; `server`: the server itself; `default`: neither.
    from: String,
}

/// Why a backend is not well.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackendError {
    /// `auth`, `payment`, `unavailable`, `timeout` …
    kind: String,
    /// The provider's words, without secrets.
    detail: String,
}

impl BackendStatus {
    fn of(name: String, model: String, about: String, view: &Value) -> Self {
        let outcomes = &view["outcomes"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let failed_rounds = outcomes["failed_rounds"].as_u64().unwrap_or(0);
        let number =
            |key: &str, from: &str| text(&view[from]).map(|from| SettingNumber { value: view[key].as_u64(), from });
        let said = &view["server"];
        let server = text(&said["server"]).map(|server| match said["version"].as_str() {
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
            state: text(&view["state"]),
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

/// How the server is.
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
        uptime_s: kernel.now().since_ms(state.doors.started_at) / 1_000,
        store: kernel.store().name(),
        needs_keys: state.auth.needs_keys(),
        ready: health.ready,
        problems: health.problems,
        warnings: state.warnings(),
        chaos: state.chaos.is_some(),
        actors: health.actors,
        crashes_total: health.crashes_total,
        skills: kernel.catalog().skills().iter().count(),
        backends,
    })
}

/// What a backend's actor says. The scheduler is not asked: it would render its whole queue.
async fn backend_view(kernel: &Kernel, backend: &str) -> Option<Value> {
    let (_, view) = kernel.view(&format!("/resources/backends/backend:{backend}")).await.ok()?;
    view
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = String)))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether messages are taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ready {
    ready: bool,
    /// Faults may be injected here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    chaos: bool,
    /// What is not as it should be.
    problems: Vec<String>,
    /// What does not work, though messages are taken: `notes` at most. The status says why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The warning that callers without a key get.
const NOTES_WARNING: &str = "the notes skills do not work: `annie status` says why";

/// Messages are taken: the store answers and the permanent actors live.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, body = Ready), (status = 503, body = Ready, description = "Not now"))
)]
pub async fn readyz(State(state): State<AppState>) -> (StatusCode, Json<Ready>) {
    let Health { ready, problems, .. } = state.kernel.health().await;
    // Anybody may ask, so the text of a warning, which names paths, stays in the status.
    let warnings = state.warnings().iter().map(|_| NOTES_WARNING.to_owned()).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready, chaos: state.chaos.is_some(), problems, warnings }))
}

/// Numbers for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn metrics(State(state): State<AppState>) -> Response {
    let Some(recorder) = &state.metrics else { return "# nothing is recorded\n".into_response() };
    let page = telemetry::render(recorder, &state.kernel);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}
