//! Protects against foreign web pages. A page in a browser on this machine can reach a loopback port under any host name (DNS
//! rebinding). Its `Host` and `Origin` headers reveal it.

use axum::http::{HeaderMap, Method, Uri, header};

use crate::error::{ApiError, Code};

/// What is allowed in addition to the defaults.
#[derive(Debug, Clone, Copy)]
pub struct OriginRules<'a> {
    /// Host names that a caller without a key may use, in addition to loopback names.
    pub hosts: &'a [String],
    /// Origins of pages that may make changes, in addition to this server's own origin, such as `https://chat.example.org`.
    pub origins: &'a [String],
    /// Whether callers need a key. If not, the check of the host is the only protection against foreign pages.
    pub needs_keys: bool,
}

/// Refuses requests of foreign pages.
///
/// # Errors
/// `foreign_origin`, naming the header and the setting.
pub fn check_origin(rules: OriginRules<'_>, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let authority = uri
        .authority()
        .map(|a| a.as_str())
        .or_else(|| headers.get(header::HOST).and_then(|h| h.to_str().ok()))
        .unwrap_or_default();
    if !rules.needs_keys {
        let host = host_of(authority);
        if !is_loopback(host) && !rules.hosts.iter().any(|h| h.eq_ignore_ascii_case(host)) {
            return Err(forbidden(format!(
                "without keys only loopback host names are served, not {host:?}; add it to `allowed_hosts` or make a key"
            )));
        }
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !changes && rules.needs_keys {
        return Ok(());
    }
    let origin = origin.to_str().unwrap_or_default();
    let own = origin.split_once("://").is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(authority));
    if own || rules.origins.iter().any(|o| o.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    Err(forbidden(format!("pages of {origin:?} may not do this; add it to `allowed_origins` if they should")))
}

fn forbidden(why: String) -> ApiError {
    ApiError::new(Code::ForeignOrigin, why)
}

/// The host of `host:port` or `[v6]:port`.
fn host_of(authority: &str) -> &str {
    let authority = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = host.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(needs_keys: bool, method: Method, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        let (hosts, origins) = (["annie.lan".to_owned()], ["https://chat.example.org".to_owned()]);
        let rules = OriginRules { hosts: &hosts, origins: &origins, needs_keys };
        check_origin(rules, &method, &Uri::from_static("/api/v1/messages"), &headers).is_ok()
    }

    #[test]
    fn origin_check_without_keys_allows_loopback_and_listed_hosts_only() {
        for (host, fine) in [
            ("localhost:8780", true),
            ("127.0.0.1", true),
            ("127.9.9.9:1", true),
            ("[::1]:8780", true),
            ("annie.lan:80", true),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("evil@localhost", true),
            ("localhost@evil.example", false),
            ("", false),
        ] {
            assert_eq!(check(false, Method::GET, host, None), fine, "{host}");
        }
        assert!(check(true, Method::GET, "annie.example.org", None));
    }

    #[test]
    fn origin_check_refuses_changes_by_foreign_pages() {
        for needs_keys in [false, true] {
            assert!(!check(needs_keys, Method::POST, "localhost:1", Some("https://evil.example")));
            assert!(!check(needs_keys, Method::POST, "localhost:1", Some("null")));
            assert!(!check(needs_keys, Method::POST, "localhost:1", Some("http://localhost:2")));
            assert!(check(needs_keys, Method::POST, "localhost:1", Some("http://localhost:1")));
            assert!(check(needs_keys, Method::POST, "localhost:1", Some("https://chat.example.org")));
        }
        assert!(
            !check(false, Method::GET, "localhost:1", Some("https://evil.example")),
            "a foreign page may not read without a key"
        );
        assert!(
            check(true, Method::GET, "localhost:1", Some("https://evil.example")),
            "a page with its own key may read"
        );
    }
}
