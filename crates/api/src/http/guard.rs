//! Middleware of every HTTP and gRPC request. On the way in: request id, limit of concurrent requests, origin, key and scope,
//! rate limit. On the way out: the shape of errors, headers, and the log line.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use annie_core::ports::Clock;
use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Version, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tracing::{Instrument, field::Empty};

use super::{
    connections::{ConnectionState, network_of},
    problem::{Dialect, render_error},
};
use crate::{
    api::AppState,
    auth::{self, Caller, Left, Need, OriginRules, Placeholder, Rate, check_origin},
    error::{ApiError, Code},
    ops,
};

/// The header with the request id.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The maximum length of a request id that is accepted from a caller, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// Headers that a proxy adds. A request with one of them does not count as local, whatever its connection is.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// The remote address of the connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The outermost middleware.
pub async fn outside(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let clock = state.kernel.env().clock.clone();
    let from_us = clock.monotonic_us();
    let id = request_id(&state, request.headers());
    let path = request.uri().path().to_owned();
    let dialect = dialect(&path, request.headers());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched".to_owned(), |m| match dialect {
        Dialect::Grpc if ops::is_path(&path) => path.clone(),
        _ => m.as_str().to_owned(),
    });
    // The kernel adds the ids of the conversation and the task when it accepts a message.
    let span = tracing::info_span!("request", %id, %method, route, conversation = Empty, task = Empty);
    let response = match state.shared.requests.clone().try_acquire_owned() {
        Ok(_permit) => next.run(request).instrument(span.clone()).await,
        Err(_) => ApiError::new(Code::Overloaded, "too many requests at once").retry_in_ms(1_000).into_response(),
    };
    let status = response.status();
    if let Some(error) = response.extensions().get::<ApiError>() {
        tracing::info!(parent: &span, code = error.code.as_str(), detail = error.detail, "refused");
    }
    let mut response = render_error(response, dialect, &path, &id);
    add_headers(response.headers_mut(), dialect, &id);
    measure(clock.as_ref(), from_us, route, status.as_u16());
    response
}

#[expect(clippy::cast_precision_loss, reason = "a duration in a histogram")]
fn measure(clock: &dyn Clock, from_us: u64, route: String, status: u16) {
    let seconds = clock.monotonic_us().saturating_sub(from_us) as f64 / 1e6;
    let class = match status {
        0..400 => "ok",
        400..500 => "refused",
        _ => "failed",
    };
    metrics::histogram!("annie_request_seconds", "route" => route, "outcome" => class).record(seconds);
}

/// The caller's request id if it is valid, else a new one.
fn request_id(state: &AppState, headers: &HeaderMap) -> String {
    let given = headers.get(&REQUEST_ID).and_then(|v| v.to_str().ok());
    let fits =
        |id: &&str| !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.bytes().all(|b| b.is_ascii_graphic());
    match given.filter(fits) {
        Some(id) => id.to_owned(),
        None => format!("req_{}", state.kernel.env().uuid().simple()),
    }
}

fn dialect(path: &str, headers: &HeaderMap) -> Dialect {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if kind.starts_with("application/grpc") {
        Dialect::Grpc
    } else if path.starts_with("/v1/") {
        Dialect::OpenAi
    } else {
        Dialect::Problem
    }
}

fn add_headers(headers: &mut HeaderMap, dialect: Dialect, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    if dialect == Dialect::Grpc {
        return;
    }
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    ] {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The inner middleware: authorisation.
pub async fn inside(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let left = match admit(&state, &mut request).await {
        Ok(left) => left,
        Err(error) => return error.into_response(),
    };
    let dialect = dialect(request.uri().path(), request.headers());
    let wait = grpc_timeout(request.headers()).filter(|_| dialect == Dialect::Grpc);
    let answer = next.run(request);
    let mut response = match wait {
        None => answer.await,
        Some(wait) => match tokio::time::timeout(wait, answer).await {
            Ok(response) => response,
            Err(_) => ApiError::new(Code::DeadlineExceeded, "not done within the caller's deadline").into_response(),
        },
    };
    if dialect == Dialect::Grpc
        && let Some(error) = undecodable(response.headers())
    {
        return error.into_response();
    }
    if let Some(left) = left.filter(|_| dialect == Dialect::OpenAi) {
        for (name, value) in [
            ("x-ratelimit-limit-requests", left.limit.to_string()),
            ("x-ratelimit-remaining-requests", left.remaining.to_string()),
            ("x-ratelimit-reset-requests", format!("{}ms", left.reset_ms)),
        ] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
    }
    response
}

async fn admit(state: &AppState, request: &mut Request) -> Result<Option<Left>, ApiError> {
    let rules = OriginRules {
        hosts: &state.limits.allowed_hosts,
        origins: &state.limits.allowed_origins,
        needs_keys: state.auth.needs_keys(),
    };
    check_host(request)?;
    check_origin(rules, request.method(), request.uri(), request.headers())?;
    check_encoding(request)?;
    let local = is_local(request);
    match need(request)? {
        Need::Nothing => return Ok(None),
        Need::LocalOr(_) if local => return Ok(None),
        Need::OperationKey => return count_by_network(state, request),
        Need::LocalOr(scope) | Need::Scope(scope) => {
            let identified = state.auth.identify(request.headers(), local, placeholder(request)).await;
            let caller = account(state, request, identified)?;
            caller.must(scope)?;
            request.extensions_mut().insert(caller);
        }
        Need::AnyKey => {
            let identified = state.auth.identify(request.headers(), local, placeholder(request)).await;
            let caller = account(state, request, identified)?;
            request.extensions_mut().insert(caller);
        }
    }
    let Some(key) = request.extensions().get::<Caller>().and_then(|c| c.key.as_deref()) else { return Ok(None) };
    counted(state, key, "with this key").map(Some)
}

/// OpenAI's clients always send a key, even if none is required.
fn placeholder(request: &Request) -> Placeholder {
    match dialect(request.uri().path(), request.headers()) {
        Dialect::OpenAi => Placeholder::Allowed,
        Dialect::Problem | Dialect::Grpc => Placeholder::Refused,
    }
}

/// Counts a wrong key by its network, and records on the connection that a caller was authenticated.
fn account(state: &AppState, request: &Request, identified: Result<Caller, ApiError>) -> Result<Caller, ApiError> {
    match identified {
        Ok(caller) => {
            if let Some(connection) = request.extensions().get::<Arc<ConnectionState>>() {
                connection.set_known();
            }
            Ok(caller)
        }
        Err(error) if error.code == Code::Unauthenticated && auth::shown(request.headers()).is_some() => {
            metrics::counter!("annie_wrong_keys_total").increment(1);
            let limits = &state.limits;
            let rate = Rate { per_minute: limits.wrong_keys_per_minute_max, burst: limits.wrong_keys_burst_max };
            let now_us = state.kernel.env().clock.monotonic_us();
            // A valid key is accepted even if other clients behind the same address send wrong ones.
            let counted = state.shared.wrong_keys.take(&network(request), rate, now_us);
            Err(counted.map_or_else(|ms| too_many_wrong_keys(rate).retry_in_ms(ms), |_| error))
        }
        Err(error) => Err(error),
    }
}

fn too_many_wrong_keys(rate: Rate) -> ApiError {
    ApiError::new(Code::RateLimited, format!("more than {} wrong keys a minute from this address", rate.per_minute))
}

/// The network of a request, as text for the rate limits.
fn network(request: &Request) -> String {
    request.extensions().get::<Peer>().map_or("unknown".to_owned(), |Peer(at)| network_of(at.ip()).to_string())
}

/// Refuses a request without a `Host` header, or with several: a proxy in front may take it for a request to another host (RFC
/// 9112, 3.2).
fn check_host(request: &Request) -> Result<(), ApiError> {
    let count = request.headers().get_all(header::HOST).iter().count();
    let is_wrong = count > 1 || (count == 0 && request.version() == Version::HTTP_11);
    if is_wrong {
        return Err(ApiError::invalid(format!("send the `Host` header once, not {count} times")).at("Host"));
    }
    Ok(())
}

/// Refuses a compressed body, which would be read as invalid JSON. gRPC has its own header for compression.
fn check_encoding(request: &Request) -> Result<(), ApiError> {
    let Some(encoding) = request.headers().get(header::CONTENT_ENCODING) else { return Ok(()) };
    if encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
        return Ok(());
    }
    let why = format!("send the body as it is, not with `content-encoding: {}`", encoding.to_str().unwrap_or("?"));
    Err(ApiError::new(Code::UnsupportedMediaType, why).at("Content-Encoding"))
}

/// Callers without an API key are rate-limited by network, so that keys of operations cannot be guessed quickly.
fn count_by_network(state: &AppState, request: &Request) -> Result<Option<Left>, ApiError> {
    counted(state, &format!("peer {}", network(request)), "from this address").map(Some)
}

fn counted(state: &AppState, client: &str, described: &str) -> Result<Left, ApiError> {
    let rate = Rate { per_minute: state.limits.requests_per_minute_max, burst: state.limits.requests_burst_max };
    let now_us = state.kernel.env().clock.monotonic_us();
    state.shared.rates.take(client, rate, now_us).map_err(|ms| {
        let why = format!("more than {} requests a minute {described}", rate.per_minute);
        ApiError::new(Code::RateLimited, why).retry_in_ms(ms)
    })
}

/// The requirement of the route. An unknown path requires a key, so that unauthenticated callers learn nothing.
fn need(request: &Request) -> Result<Need, ApiError> {
    let path = request.uri().path();
    let Some(matched) = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) else {
        return Ok(Need::AnyKey);
    };
    let (method, route) = match matched.strip_suffix("/{*rest}") {
        Some(_) => ("RPC", path),
        None => (request.method().as_str(), matched),
    };
    match ops::need(method, route) {
        Some(need) => Ok(need),
        // The router itself answers a wrong method.
        None if ops::is_path(route) => Ok(Need::AnyKey),
        None if method == "RPC" => Err(ApiError::new(Code::MethodNotAllowed, "there is no such method")),
        None => {
            tracing::error!(method, route, "a route has no rule");
            Err(ApiError::new(Code::Forbidden, "this route is closed"))
        }
    }
}

/// Converts the gRPC library's status for an undecodable message into an [`ApiError`]: the request is wrong, not the server.
/// Statuses of Annie have details, those of the library have none.
fn undecodable(headers: &HeaderMap) -> Option<ApiError> {
    let status = tonic::Status::from_header_map(headers).filter(|s| s.details().is_empty())?;
    match status.code() {
        tonic::Code::OutOfRange => Some(ApiError::new(Code::TooLarge, status.message())),
        tonic::Code::Internal => Some(ApiError::invalid(status.message())),
        _ => None,
    }
}

/// Whether a request comes from this machine, and not through a proxy.
pub(super) fn is_local(request: &Request) -> bool {
    let direct = !FORWARDED.iter().any(|name| request.headers().contains_key(*name));
    let peer = request.extensions().get::<Peer>();
    direct && peer.is_some_and(|Peer(at)| at.ip().to_canonical().is_loopback())
}

/// The deadline of a gRPC caller: up to eight digits and a unit.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let at = text.len().checked_sub(1).filter(|n| (1..=8).contains(n) && text.is_char_boundary(*n))?;
    let count: u64 = text[..at].parse().ok()?;
    Some(match &text[at..] {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_header_requires_a_unit() {
        let parse = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            grpc_timeout(&headers)
        };
        assert_eq!(parse("2S"), Some(Duration::from_secs(2)));
        assert_eq!(parse("150m"), Some(Duration::from_millis(150)));
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        for bad in ["", "S", "10", "999999999S", "1x", "-1S"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
