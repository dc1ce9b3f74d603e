//! What every request passes on its way in and out, HTTP and gRPC alike: an id, a place, the check of its origin, its key
//! and its scope, the rate limit; and on the way out the shape of its errors, its headers, its line in the log.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use annie_core::ports::Clock;
use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Version, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tracing::Instrument;

use super::{
    connections::{Standing, network_of},
    problem::{Dialect, dress},
};
use crate::{
    auth::{self, Caller, Left, Need, OriginRules, Placeholder, Rate, check_origin},
    door::AppState,
    error::{Code, Fault},
};

/// The header with the request's id.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is taken over from a caller, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// Headers that a proxy adds: whoever sends them is not on this machine, whatever the connection says.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Who is at the other end of the connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The outermost layer.
pub async fn outside(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let clock = state.kernel.env().clock.clone();
    let from_us = clock.monotonic_us();
    let id = request_id(&state, request.headers());
    let path = request.uri().path().to_owned();
    let dialect = dialect(&path, request.headers());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched".to_owned(), |m| match dialect {
        Dialect::Grpc if auth::is_path(&path) => path.clone(),
        _ => m.as_str().to_owned(),
    });
    let span = tracing::info_span!("request", %id, %method, route);
    let response = match state.doors.requests.clone().try_acquire_owned() {
        Ok(_place) => next.run(request).instrument(span.clone()).await,
        Err(_) => Fault::new(Code::Overloaded, "too many requests at once").retry_in_ms(1_000).into_response(),
    };
    let status = response.status();
    if let Some(fault) = response.extensions().get::<Fault>() {
        tracing::info!(parent: &span, code = fault.code.as_str(), detail = fault.detail, "refused");
    }
    let mut response = dress(response, dialect, &path, &id);
    adorn(response.headers_mut(), dialect, &id);
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

/// The caller's id for the request if it can be kept, else one of ours.
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

fn adorn(headers: &mut HeaderMap, dialect: Dialect, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    if dialect == Dialect::Grpc {
        return;
    }
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        (
            "content-security-policy",
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
        ),
    ] {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The inner layer: who may pass.
pub async fn inside(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let left = match admit(&state, &mut request).await {
        Ok(left) => left,
        Err(fault) => return fault.into_response(),
    };
    let dialect = dialect(request.uri().path(), request.headers());
    let wait = grpc_timeout(request.headers()).filter(|_| dialect == Dialect::Grpc);
    let answer = next.run(request);
    let mut response = match wait {
        None => answer.await,
        Some(wait) => match tokio::time::timeout(wait, answer).await {
            Ok(response) => response,
            Err(_) => Fault::new(Code::DeadlineExceeded, "not done within the caller's deadline").into_response(),
        },
    };
    if dialect == Dialect::Grpc
        && let Some(fault) = not_understood(response.headers())
    {
        return fault.into_response();
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

async fn admit(state: &AppState, request: &mut Request) -> Result<Option<Left>, Fault> {
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
        Need::OperationKey => return by_peer(state, request),
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

/// OpenAI's clients always send a key, also where none is needed.
fn placeholder(request: &Request) -> Placeholder {
    match dialect(request.uri().path(), request.headers()) {
        Dialect::OpenAi => Placeholder::Allowed,
        Dialect::Problem | Dialect::Grpc => Placeholder::Refused,
    }
}

/// Counts a wrong key by the address that it comes from, and notes on the connection that a caller was let in.
fn account(state: &AppState, request: &Request, identified: Result<Caller, Fault>) -> Result<Caller, Fault> {
    match identified {
        Ok(caller) => {
            if let Some(standing) = request.extensions().get::<Arc<Standing>>() {
                standing.set_known();
            }
            Ok(caller)
        }
        Err(fault) if fault.code == Code::Unauthenticated && auth::shown(request.headers()).is_some() => {
            metrics::counter!("annie_wrong_keys_total").increment(1);
            let limits = &state.limits;
            let rate = Rate { per_minute: limits.wrong_keys_per_minute_max, burst: limits.wrong_keys_burst_max };
            let now_us = state.kernel.env().clock.monotonic_us();
            // A valid key passes whatever its neighbours behind one address send.
            let counted = state.doors.wrong_keys.take(&network(request), rate, now_us);
            Err(counted.map_or_else(|ms| too_many_wrong_keys(rate).retry_in_ms(ms), |_| fault))
        }
        Err(fault) => Err(fault),
    }
}

fn too_many_wrong_keys(rate: Rate) -> Fault {
    Fault::new(Code::RateLimited, format!("more than {} wrong keys a minute from this address", rate.per_minute))
}

/// Where a request comes from, as it is counted.
fn network(request: &Request) -> String {
    request.extensions().get::<Peer>().map_or("unknown".to_owned(), |Peer(at)| network_of(at.ip()).to_string())
}

/// Refuses a request that does not say for which host it is, or says it twice: a proxy in front may take it for another
/// host's (RFC 9112, 3.2).
fn check_host(request: &Request) -> Result<(), Fault> {
    let count = request.headers().get_all(header::HOST).iter().count();
    let is_wrong = count > 1 || (count == 0 && request.version() == Version::HTTP_11);
    if is_wrong {
        return Err(Fault::invalid(format!("send the `Host` header once, not {count} times")).at("Host"));
    }
    Ok(())
}

/// Refuses a body that is compressed, which would be read as broken JSON. gRPC has its own header for that.
fn check_encoding(request: &Request) -> Result<(), Fault> {
    let Some(encoding) = request.headers().get(header::CONTENT_ENCODING) else { return Ok(()) };
    if encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
        return Ok(());
    }
    let why = format!("send the body as it is, not with `content-encoding: {}`", encoding.to_str().unwrap_or("?"));
    Err(Fault::new(Code::UnsupportedMediaType, why).at("Content-Encoding"))
}

/// Whoever shows no API key is counted by the address that they come from: keys of operations cannot be tried out fast.
fn by_peer(state: &AppState, request: &Request) -> Result<Option<Left>, Fault> {
    counted(state, &format!("peer {}", network(request)), "from this address").map(Some)
}

fn counted(state: &AppState, who: &str, told: &str) -> Result<Left, Fault> {
    let rate = Rate { per_minute: state.limits.requests_per_minute_max, burst: state.limits.requests_burst_max };
    let now_us = state.kernel.env().clock.monotonic_us();
    state.doors.rates.take(who, rate, now_us).map_err(|ms| {
        let why = format!("more than {} requests a minute {told}", rate.per_minute);
        Fault::new(Code::RateLimited, why).retry_in_ms(ms)
    })
}

/// What the route asks for. A path that is not routed asks for a key first, so that strangers learn nothing.
fn need(request: &Request) -> Result<Need, Fault> {
    let path = request.uri().path();
    let Some(matched) = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) else {
        return Ok(Need::AnyKey);
    };
    let (method, route) = match matched.strip_suffix("/{*rest}") {
        Some(_) => ("RPC", path),
        None => (request.method().as_str(), matched),
    };
    match auth::need(method, route) {
        Some(need) => Ok(need),
        // The router answers a wrong method by itself.
        None if auth::is_path(route) => Ok(Need::AnyKey),
        None if method == "RPC" => Err(Fault::new(Code::MethodNotAllowed, "there is no such method")),
        None => {
            tracing::error!(method, route, "a route without a rule");
            Err(Fault::new(Code::Forbidden, "this route is closed"))
        }
    }
}

/// What the gRPC library says of a message that it could not read, in our own words: a request that is wrong and not
/// something that broke here. Our own statuses have details, the library's have none.
fn not_understood(headers: &HeaderMap) -> Option<Fault> {
    let status = tonic::Status::from_header_map(headers).filter(|s| s.details().is_empty())?;
    match status.code() {
        tonic::Code::OutOfRange => Some(Fault::new(Code::TooLarge, status.message())),
        tonic::Code::Internal => Some(Fault::invalid(status.message())),
        _ => None,
    }
}

/// Whether a request comes from this machine, and not through a proxy on it.
pub(super) fn is_local(request: &Request) -> bool {
    let direct = !FORWARDED.iter().any(|name| request.headers().contains_key(*name));
    let peer = request.extensions().get::<Peer>();
    direct && peer.is_some_and(|Peer(at)| at.ip().to_canonical().is_loopback())
}

/// A gRPC caller's deadline: up to eight digits and a unit.
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
    fn a_deadline_has_a_unit() {
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
