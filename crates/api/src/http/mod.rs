//! The HTTP front end: native JSON under `/api/v1`, the OpenAI-compatible API under `/v1`, and gRPC on the same port. One file
//! per resource. Operations that gRPC and the command line offer too are in `crates/api/src/ops`, with their scopes; the scopes of the
//! other routes are in `auth/policy.rs`.

mod connections;
pub(crate) mod extract;
mod guard;
pub mod keys;
mod live;
mod mcp;
pub(crate) mod messages;
mod notifications;
mod openai;
mod openapi;
mod page;
pub(crate) mod problem;
mod result;
pub(crate) mod schema;
mod serve;
mod status;
mod stream;
mod strict;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::get,
};
pub use openapi::document;
pub use serve::serve;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::AppState,
    error::{ApiError, Code},
    grpc, ops,
};

/// The router of all HTTP and gRPC routes.
pub fn app(state: AppState) -> Router {
    let (api, _) = api().split_for_parts();
    Router::new()
        .merge(api)
        .merge(openai::routes())
        .route("/", get(page::page))
        .route("/page/{hash}/{*path}", get(page::asset))
        .route("/api/openapi.json", get(openapi::json))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(state.clone())
        .merge(grpc::routes(&state))
        .layer(DefaultBodyLimit::max(state.limits.body_bytes_max))
        .layer(from_fn_with_state(state.clone(), guard::inside))
        .layer(CatchPanicLayer::custom(handler_panicked))
        .layer(from_fn_with_state(state, guard::outside))
}

/// The native routes with their documentation: those of the table of operations, and the others.
fn api() -> OpenApiRouter<AppState> {
    let others = OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(messages::post_message))
        .routes(routes!(stream::stream_conversation))
        .routes(routes!(result::finish_operation))
        .routes(routes!(notifications::stream_notifications))
        .routes(routes!(live::stream_live))
        .routes(routes!(mcp::post_mcp))
        .routes(routes!(keys::list_keys, keys::create_key))
        .routes(routes!(keys::revoke_key))
        .routes(routes!(status::get_status))
        .routes(routes!(status::healthz))
        .routes(routes!(status::readyz))
        .routes(routes!(status::metrics));
    ops::ALL.iter().fold(others, |router, operation| router.routes(operation.route()))
}

async fn unknown_path() -> ApiError {
    ApiError::new(Code::NotFound, "there is nothing at this address; `/api/openapi.json` lists what there is")
}

async fn wrong_method() -> ApiError {
    ApiError::new(Code::MethodNotAllowed, "this address does not know this method; see `/api/openapi.json`")
}

/// Answers a panicked handler with an internal error. A panic is a bug, and affects only this request.
fn handler_panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let what = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    metrics::counter!("annie_api_panics_total").increment(1);
    // The handler may have stored a message before it panicked.
    ApiError::internal(&format!("a handler panicked: {what}")).of_stored().into_response()
}

#[cfg(test)]
mod tests;
