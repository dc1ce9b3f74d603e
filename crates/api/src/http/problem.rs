//! Renders an [`ApiError`] for HTTP: as RFC 9457 problem+json; under `/v1` in OpenAI's format; and for gRPC requests as a
//! status. A handler only returns the error. It is rendered on the way out, where the request id is known.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    error::{ApiError, Code},
    grpc,
};

/// The content type of every error body of `/api`.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The format of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `application/problem+json`.
    Problem,
    /// `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
    /// A gRPC status without a message.
    Grpc,
}

/// An error body of `/api` (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    /// The kind of problem, as a URI.
    #[serde(rename = "type")]
    pub kind: String,
    /// A sentence that is the same for every problem of this kind.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and how to fix it.
    pub detail: String,
    /// The path of the request.
    pub instance: String,
    /// The stable name of the kind.
    pub code: &'static str,
    /// The field of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// When the request may be retried, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// More facts for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub facts: Option<Box<Value>>,
    /// The request id, which is also in the server's log.
    pub request_id: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(self.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self);
        response
    }
}

/// Renders the error that a response carries into its body.
pub fn render_error(mut response: Response, dialect: Dialect, path: &str, request_id: &str) -> Response {
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    if dialect == Dialect::Grpc {
        return grpc::status(&error, Some(request_id)).into_http();
    }
    let (kind, body) = match dialect {
        Dialect::OpenAi => ("application/json", openai(&error)),
        _ => (PROBLEM_JSON, problem(&error, path, request_id)),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(seconds) = error.retry_after_s() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.code == Code::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"annie\""));
    }
    // OpenAI's libraries automatically repeat requests after 408, 409, 429 and 5xx, without an id. If the message is stored,
    // the repeat would be stored as another message, and its effects would happen again.
    if dialect == Dialect::OpenAi && (error.is_stored || error.code == Code::TurnFailed) {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    *response.body_mut() = Body::from(body.to_string());
    response
}

fn problem(error: &ApiError, path: &str, request_id: &str) -> Value {
    let problem = Problem {
        kind: format!("urn:annie:problem:{}", error.code.as_str()),
        title: error.code.title(),
        status: error.code.http(),
        detail: error.detail.clone(),
        instance: path.to_owned(),
        code: error.code.as_str(),
        field: error.field.clone(),
        retry_after_ms: error.retry_after_ms,
        facts: error.facts.clone(),
        request_id: request_id.to_owned(),
    };
    serde_json::to_value(problem).unwrap_or_default()
}

/// An error in OpenAI's format.
pub fn openai(error: &ApiError) -> Value {
    // The code of the failure says more than that a turn failed.
    let failure = error.facts.as_ref().and_then(|facts| facts["error"].as_str());
    let (kind, code) = match error.code {
        Code::TurnFailed => ("server_error", failure.unwrap_or(Code::TurnFailed.as_str())),
        Code::Unauthenticated => ("authentication_error", "invalid_api_key"),
        Code::Forbidden | Code::ForeignOrigin => ("permission_error", "insufficient_permissions"),
        Code::NotFound if error.field.as_deref() == Some("model") => ("invalid_request_error", "model_not_found"),
        Code::Unsupported => ("invalid_request_error", "unsupported_parameter"),
        Code::ContextTooLong => ("invalid_request_error", "context_length_exceeded"),
        Code::QueueFull | Code::TooSoon | Code::RateLimited => ("rate_limit_error", "rate_limit_exceeded"),
        code if code.http() < 500 => ("invalid_request_error", code.as_str()),
        code => ("server_error", code.as_str()),
    };
    // The text of a message is a field of the native API only.
    let param = error.field.as_deref().filter(|field| *field != "text");
    json!({ "error": { "message": error.detail, "type": kind, "param": param, "code": code } })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seen(error: ApiError, dialect: Dialect) -> (Response, Value) {
        let response = render_error(error.into_response(), dialect, "/x", "req_1");
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
        (Response::from_parts(parts, Body::empty()), serde_json::from_slice(&bytes).unwrap_or_default())
    }

    #[tokio::test]
    async fn problem_body_has_code_field_instance_and_request_id() {
        let error = ApiError::new(Code::QueueFull, "full").at("priority").retry_in_ms(1_200);
        let (response, body) = seen(error, Dialect::Problem).await;
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "2");
        assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
        assert_eq!(body["code"], "queue_full");
        assert_eq!(body["type"], "urn:annie:problem:queue_full");
        assert_eq!((&body["field"], &body["request_id"]), (&json!("priority"), &json!("req_1")));
        assert_eq!(body["instance"], "/x");
    }

    #[tokio::test]
    async fn openai_errors_use_types_and_codes_of_openai() {
        for (error, kind, code) in [
            (ApiError::new(Code::Unauthenticated, "x"), "authentication_error", "invalid_api_key"),
            (ApiError::not_found("model").at("model"), "invalid_request_error", "model_not_found"),
            (ApiError::not_found("conversation"), "invalid_request_error", "not_found"),
            (ApiError::new(Code::RateLimited, "x"), "rate_limit_error", "rate_limit_exceeded"),
            (ApiError::new(Code::ContextTooLong, "x"), "invalid_request_error", "context_length_exceeded"),
            (ApiError::new(Code::Unsupported, "x").at("tools"), "invalid_request_error", "unsupported_parameter"),
            (ApiError::new(Code::Unavailable, "x"), "server_error", "unavailable"),
        ] {
            let status = error.code.http();
            let (response, body) = seen(error, Dialect::OpenAi).await;
            assert_eq!(response.status(), status);
            assert_eq!((&body["error"]["type"], &body["error"]["code"]), (&json!(kind), &json!(code)));
        }
        let (response, _) = seen(ApiError::new(Code::TurnFailed, "x"), Dialect::OpenAi).await;
        assert_eq!(response.headers()["x-should-retry"], "false");
    }

    #[tokio::test]
    async fn grpc_error_is_a_status_in_a_200_response() {
        let (response, _) = seen(ApiError::new(Code::Forbidden, "no"), Dialect::Grpc).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "7");
    }
}
