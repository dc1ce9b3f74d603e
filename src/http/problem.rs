//! How a [`Fault`] looks over HTTP: RFC 9457 problem+json, except under `/v1`, where it has OpenAI's shape, and in answer to
//! gRPC, where it is a status. A handler only returns the fault; it is dressed on its way out, where the request's id is
//! known.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    error::{Code, Fault},
    grpc,
};

/// The type of every error body of `/api`.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Which shape an error takes.
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
    /// A name of the kind of problem, as a URI.
    #[serde(rename = "type")]
    pub kind: String,
    /// A sentence that is the same for every problem of the kind.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong here and how to put it right.
    pub detail: String,
    /// The path that was asked.
    pub instance: String,
    /// The kind as a stable word.
    pub code: &'static str,
    /// The part of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// When to come back, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// More facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub facts: Option<Box<Value>>,
    /// The request's id, also in the log.
    pub request_id: String,
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(self.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives a response that carries a fault its body.
pub fn dress(mut response: Response, dialect: Dialect, path: &str, request_id: &str) -> Response {
    let Some(fault) = response.extensions_mut().remove::<Fault>() else { return response };
    if dialect == Dialect::Grpc {
        return grpc::status(&fault, Some(request_id)).into_http();
    }
    let (kind, body) = match dialect {
        Dialect::OpenAi => ("application/json", openai(&fault)),
        _ => (PROBLEM_JSON, problem(&fault, path, request_id)),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(seconds) = fault.retry_after_s() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if fault.code == Code::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"annie\""));
    }
    // OpenAI's libraries repeat 408, 409, 429 and 5xx by themselves and send no id with it: a message that is stored would be
    // said again as another one, and its effects would happen again.
    if dialect == Dialect::OpenAi && (fault.is_stored || fault.code == Code::TurnFailed) {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    *response.body_mut() = Body::from(body.to_string());
    response
}

fn problem(fault: &Fault, path: &str, request_id: &str) -> Value {
    let problem = Problem {
        kind: format!("urn:annie:problem:{}", fault.code.as_str()),
        title: fault.code.title(),
        status: fault.code.http(),
        detail: fault.detail.clone(),
        instance: path.to_owned(),
        code: fault.code.as_str(),
        field: fault.field.clone(),
        retry_after_ms: fault.retry_after_ms,
        facts: fault.facts.clone(),
        request_id: request_id.to_owned(),
    };
    serde_json::to_value(problem).unwrap_or_default()
}

/// An error as OpenAI's libraries know it.
pub fn openai(fault: &Fault) -> Value {
    let (kind, code) = match fault.code {
        Code::Unauthenticated => ("authentication_error", "invalid_api_key"),
        Code::Forbidden | Code::ForeignOrigin => ("permission_error", "insufficient_permissions"),
        Code::NotFound if fault.field.as_deref() == Some("model") => ("invalid_request_error", "model_not_found"),
        Code::Unsupported => ("invalid_request_error", "unsupported_parameter"),
        Code::ContextTooLong => ("invalid_request_error", "context_length_exceeded"),
        Code::QueueFull | Code::TooSoon | Code::RateLimited => ("rate_limit_error", "rate_limit_exceeded"),
        code if code.http() < 500 => ("invalid_request_error", code.as_str()),
        code => ("server_error", code.as_str()),
    };
    json!({ "error": { "message": fault.detail, "type": kind, "param": fault.field, "code": code } })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seen(fault: Fault, dialect: Dialect) -> (Response, Value) {
        let response = dress(fault.into_response(), dialect, "/x", "req_1");
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
        (Response::from_parts(parts, Body::empty()), serde_json::from_slice(&bytes).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_problem_says_what_where_and_under_which_id() {
        let fault = Fault::new(Code::QueueFull, "full").at("priority").retry_in_ms(1_200);
        let (response, body) = seen(fault, Dialect::Problem).await;
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "2");
        assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
        assert_eq!(body["code"], "queue_full");
        assert_eq!(body["type"], "urn:annie:problem:queue_full");
        assert_eq!((&body["field"], &body["request_id"]), (&json!("priority"), &json!("req_1")));
        assert_eq!(body["instance"], "/x");
    }

    #[tokio::test]
    async fn openai_libraries_find_the_words_that_they_know() {
        for (fault, kind, code) in [
            (Fault::new(Code::Unauthenticated, "x"), "authentication_error", "invalid_api_key"),
            (Fault::not_found("model").at("model"), "invalid_request_error", "model_not_found"),
            (Fault::not_found("conversation"), "invalid_request_error", "not_found"),
            (Fault::new(Code::RateLimited, "x"), "rate_limit_error", "rate_limit_exceeded"),
            (Fault::new(Code::ContextTooLong, "x"), "invalid_request_error", "context_length_exceeded"),
            (Fault::new(Code::Unsupported, "x").at("tools"), "invalid_request_error", "unsupported_parameter"),
            (Fault::new(Code::Unavailable, "x"), "server_error", "unavailable"),
        ] {
            let status = fault.code.http();
            let (response, body) = seen(fault, Dialect::OpenAi).await;
            assert_eq!(response.status(), status);
            assert_eq!((&body["error"]["type"], &body["error"]["code"]), (&json!(kind), &json!(code)));
        }
        let (response, _) = seen(Fault::new(Code::TurnFailed, "x"), Dialect::OpenAi).await;
        assert_eq!(response.headers()["x-should-retry"], "false");
    }

    #[tokio::test]
    async fn grpc_gets_a_status_in_a_good_response() {
        let (response, _) = seen(Fault::new(Code::Forbidden, "no"), Dialect::Grpc).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "7");
    }
}
