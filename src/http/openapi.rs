//! The description of the native interface, made from the handlers. `docs/openapi.json` is its golden copy: a change of the
//! interface is seen in review.

use std::sync::LazyLock;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        OpenApi as Document,
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Annie",
        description = "A kernel for AI agents. Errors are RFC 9457 problems with a stable `code`. Chat clients may also use the \
            OpenAI-compatible `/v1`, and gRPC (`annie.v1`, with reflection) on the same port.",
        license(name = "Apache-2.0")
    ),
    modifiers(&Keys)
)]
struct Head;

struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut Document) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("key", scheme);
        document.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>("key", [])]);
    }
}

/// What stands above the routes.
pub(super) fn head() -> Document {
    Head::openapi()
}

/// The whole description.
#[must_use]
pub fn document() -> Document {
    super::api().into_openapi()
}

static TEXT: LazyLock<String> = LazyLock::new(|| document().to_pretty_json().unwrap_or_default());

/// `GET /api/openapi.json`.
pub async fn json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}
