//! The gRPC front end (`proto/annie/v1`), on the same port and behind the same guard as HTTP, with health and reflection. The
//! methods of the table of operations are answered by one adapter; the others, such as streams, have one file per service.
//! Errors of handlers are converted to statuses in one module.

mod actors;
pub mod chaos;
mod chat;
pub(crate) mod convert;
mod events;
mod notifications;
mod operations;
mod status;
pub(crate) mod unary;

use std::pin::Pin;

pub(crate) use annie_proto::DESCRIPTOR;
pub use annie_proto::v1;
use axum::{
    Router,
    extract::{Request as AxumRequest, State},
    middleware::{Next, from_fn_with_state},
    response::Response as AxumResponse,
    routing::any,
};
use futures_util::Stream;
pub(crate) use status::status;
use tonic::{Request, Status, service::Routes};
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use crate::{api::AppState, auth::Caller, error::ApiError, ops};

/// The services with a health status; the empty name is the whole server.
pub(crate) const SERVICES: [&str; 23] = [
    "",
    "annie.v1.Chat",
    "annie.v1.Jobs",
    "annie.v1.DeadLetters",
    "annie.v1.Operations",
    "annie.v1.Approvals",
    "annie.v1.Agents",
    "annie.v1.Notifications",
    "annie.v1.Scheduler",
    "annie.v1.Schedules",
    "annie.v1.Usage",
    "annie.v1.Reminders",
    "annie.v1.Conversations",
    "annie.v1.Actors",
    "annie.v1.Skills",
    "annie.v1.State",
    "annie.v1.Workflows",
    "annie.v1.Events",
    "annie.v1.Replay",
    "annie.v1.Audit",
    "annie.v1.Keys",
    "annie.v1.Actions",
    "annie.v1.Chaos",
];

/// The stream that a streaming method returns.
type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The implementation of all services.
#[derive(Clone)]
struct Service {
    state: AppState,
}

macro_rules! bounded {
    ($server:expr, $limits:expr) => {
        $server
            .max_decoding_message_size($limits.grpc_request_bytes_max)
            .max_encoding_message_size($limits.grpc_response_bytes_max)
    };
}

/// The gRPC routes.
pub(crate) fn routes(state: &AppState) -> Router {
    let (api, limits) = (Service { state: state.clone() }, &state.limits);
    let mut routes = Routes::from(Router::new())
        .add_service(bounded!(v1::chat_server::ChatServer::new(api.clone()), limits))
        .add_service(bounded!(v1::operations_server::OperationsServer::new(api.clone()), limits))
        .add_service(bounded!(v1::notifications_server::NotificationsServer::new(api.clone()), limits))
        .add_service(bounded!(v1::actors_server::ActorsServer::new(api.clone()), limits))
        .add_service(bounded!(v1::events_server::EventsServer::new(api.clone()), limits))
        .add_service(bounded!(v1::chaos_server::ChaosServer::new(api), limits))
        .add_service(health(&state.shared.health));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Some clients support only the old revision.
    match (reflection().build_v1(), reflection().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => routes = routes.add_service(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => tracing::error!(%error, "gRPC reflection is not available"),
    }
    let table = TABLE_ONLY.iter().fold(routes.prepare().into_axum_router(), |router, service| {
        router.route(&format!("/{service}/{{*rest}}"), any(unknown_method))
    });
    table.route_layer(from_fn_with_state(state.clone(), from_table))
}

/// Services whose methods are all in the table of operations. Their routes have the pattern of the generated services, by which
/// the guard knows that the path is a method.
const TABLE_ONLY: [&str; 16] = [
    "annie.v1.Jobs",
    "annie.v1.DeadLetters",
    "annie.v1.Approvals",
    "annie.v1.Agents",
    "annie.v1.Scheduler",
    "annie.v1.Schedules",
    "annie.v1.Reminders",
    "annie.v1.Conversations",
    "annie.v1.Skills",
    "annie.v1.State",
    "annie.v1.Workflows",
    "annie.v1.Usage",
    "annie.v1.Replay",
    "annie.v1.Audit",
    "annie.v1.Keys",
    "annie.v1.Actions",
];

/// Answers a method of the table of operations; the other methods are those of the generated services.
async fn from_table(State(state): State<AppState>, request: AxumRequest, next: Next) -> AxumResponse {
    match ops::ALL.iter().find_map(|operation| operation.adapter(request.uri().path())) {
        Some(adapter) => adapter(state, request).await,
        None => next.run(request).await,
    }
}

async fn unknown_method() -> AxumResponse {
    Status::unimplemented("there is no such method").into_http()
}

fn health(reporter: &HealthReporter) -> HealthServer<HealthService> {
    HealthServer::new(HealthService::from_health_reporter(reporter.clone()))
}

/// Reports the services as serving from now on.
pub(crate) async fn open(reporter: &HealthReporter) {
    for service in SERVICES {
        reporter.set_service_status(service, ServingStatus::Serving).await;
    }
}

/// The caller, which the guard has added to the request.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let known = request.extensions().get::<Caller>().cloned();
    known.ok_or_else(|| status(&ApiError::new(crate::error::Code::Unauthenticated, "this method needs a caller"), None))
}

/// An error as the status of a method.
fn refused(error: impl Into<ApiError>) -> Status {
    status(&error.into(), None)
}
