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
use utoipa::ToSchema;

use super::problem::Problem;
use crate::door::{AppState, VERSION};

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
}

/// How the server is.
#[utoipa::path(
    get, path = "/api/v1/status", tag = "operations",
    responses((status = 200, body = Status), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_status(State(state): State<AppState>) -> Json<Status> {
    let kernel = &state.kernel;
    let backends = kernel.models().into_iter().map(async |(name, model, about)| {
        let up = is_up(kernel, &name).await;
        BackendStatus { name, model, about, up }
    });
    let (health, backends) = tokio::join!(kernel.health(), join_all(backends));
    Json(Status {
        version: VERSION,
        uptime_s: kernel.now().since_ms(state.doors.started_at) / 1_000,
        store: kernel.store().name(),
        needs_keys: state.auth.needs_keys(),
        ready: health.ready,
        problems: health.problems,
        chaos: state.chaos.is_some(),
        actors: health.actors,
        crashes_total: health.crashes_total,
        skills: kernel.catalog().skills().iter().count(),
        backends,
    })
}

/// What a backend's actor says. The scheduler is not asked: it would render its whole queue.
async fn is_up(kernel: &Kernel, backend: &str) -> Option<bool> {
    let (_, view) = kernel.view(&format!("/resources/backends/backend:{backend}")).await.ok()?;
    view?["up"].as_bool()
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
}

/// Messages are taken: the store answers and the permanent actors live.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, body = Ready), (status = 503, body = Ready, description = "Not now"))
)]
pub async fn readyz(State(state): State<AppState>) -> (StatusCode, Json<Ready>) {
    let Health { ready, problems, .. } = state.kernel.health().await;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready, chaos: state.chaos.is_some(), problems }))
}

/// Numbers for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn metrics(State(state): State<AppState>) -> Response {
    let Some(recorder) = &state.metrics else { return "# nothing is recorded\n".into_response() };
    recorder.run_upkeep();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], recorder.render()).into_response()
}
