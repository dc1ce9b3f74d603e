//! Keeps foreign web pages out. A page in a browser on this machine can reach a loopback port, under a host name of its
//! choosing (DNS rebinding); its `Host` and `Origin` give it away.

use axum::http::{HeaderMap, Method, Uri, header};

use crate::error::{Code, Fault};

/// What is allowed besides the obvious.
#[derive(Debug, Clone, Copy)]
pub struct OriginRules<'a> {
    /// Host names that a caller without a key may use besides loopback ones.
    pub hosts: &'a [String],
    /// Origins of pages that may change things besides this server's own: `https://chat.example.org`.
    pub origins: &'a [String],
    /// Whether callers need a key. Without one, the check of the host is all that stands between a page and the kernel.
    pub needs_keys: bool,
}

/// Refuses requests that a foreign page makes.
///
/// # Errors
/// `foreign_origin`, saying which header and which setting.
pub fn check_origin(rules: OriginRules<'_>, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
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

fn forbidden(why: String) -> Fault {
    Fault::new(Code::ForeignOrigin, why)
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
    fn without_keys_only_loopback_names_and_listed_ones_are_served() {
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
    fn a_foreign_page_changes_nothing() {
        for needs_keys in [false, true] {
            assert!(!check(needs_keys, Method::POST, "localhost:1", Some("https://evil.example")));
            assert!(!check(needs_keys, Method::POST, "localhost:1", Some("null")));
            assert!(!check(needs_keys, Method::POST, "localhost:1", Some("http://localhost:2")));
            assert!(check(needs_keys, Method::POST, "localhost:1", Some("http://localhost:1")));
            assert!(check(needs_keys, Method::POST, "localhost:1", Some("https://chat.example.org")));
        }
        assert!(
            !check(false, Method::GET, "localhost:1", Some("https://evil.example")),
            "nor does it read without a key"
        );
        assert!(check(true, Method::GET, "localhost:1", Some("https://evil.example")), "its own key it may show");
    }
}
