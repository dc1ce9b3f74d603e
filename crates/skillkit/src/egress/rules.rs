//! The rules of the operator: which hosts and ports skills may reach, and how much one request may take.

use std::net::IpAddr;

use annie_core::ports::EgressError;
use reqwest::Url;

use super::addresses::is_public;

/// The port of http, which is not encrypted.
const HTTP_PORT: u16 = 80;
/// Maximum length of a URL, in bytes. Longer ones are refused before anything else is done with them.
const URL_BYTES_MAX: usize = 8_192;

/// The limits of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressLimits {
    /// The maximum number of redirects.
    pub redirects_max: u32,
    /// The maximum size of a response, in bytes after decompression.
    pub reply_bytes_max: usize,
    /// The maximum time for connecting to a host, in milliseconds.
    pub connect_ms_max: u64,
    /// The maximum time for the request with all redirects and the whole response, in milliseconds. Less than the time limit
    /// of a skill run, so that the skill itself can report it.
    pub total_ms_max: u64,
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self { redirects_max: 5, reply_bytes_max: 2 * 1024 * 1024, connect_ms_max: 5_000, total_ms_max: 20_000 }
    }
}

/// The rules for addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressRules {
    /// The hosts that may be reached: `example.org`, or `*.example.org` for its subdomains. Empty means all public hosts.
    pub hosts: Vec<String>,
    /// The ports that may be reached.
    pub ports: Vec<u16>,
    /// The only addresses that may be reached although they are not public. `hosts` and `ports` do not apply to them.
    pub private: Vec<HostPort>,
    /// The names of the secrets that are sent as `Authorization: Bearer` to exactly these addresses, over https or to a
    /// listed private address.
    pub credentials: Vec<(HostPort, String)>,
    /// The names of further secrets that a skill may send in a header to these addresses, under the same condition.
    pub grants: Vec<(HostPort, String)>,
    /// The limits of one request.
    pub limits: EgressLimits,
}

/// A host with a port, as URLs spell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// Reads `127.0.0.1:8080`, `[::1]:8080` or `nas.local:80`.
    ///
    /// # Errors
    /// If the text has no host, no port, or something else.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a host with a port, such as 127.0.0.1:8080");
        let (_, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        // The URL parser normalises the host as it does for requests.
        let url = Url::parse(&format!("http://{text}/")).map_err(|_| wrong())?;
        let is_plain = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if port == 0 || !is_plain || !url.username().is_empty() || url.port_or_known_default() != Some(port) {
            return Err(wrong());
        }
        Ok(Self { host: host_of(&url).ok_or_else(wrong)?, port })
    }

    /// The host and port of a URL; `None` if it is not valid.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        Some(Self { host: host_of(&url)?, port: url.port_or_known_default()? })
    }
}

/// An address that a request may be sent to.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) url: Url,
    host: String,
    port: u16,
    /// The operator listed the address, so its host may resolve to an address that is not public.
    pub(super) is_private: bool,
}

impl Target {
    /// The host, with the port unless it is the usual one of the scheme.
    pub(super) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Whether no third party on the way reads the request: it is encrypted, or the operator listed the address.
    fn is_confidential(&self) -> bool {
        self.url.scheme() == "https" || self.is_private
    }

    /// Whether credentials for the one may be sent to the other.
    pub(super) fn is_same_origin(&self, other: &Self) -> bool {
        (self.url.scheme(), &self.host, self.port) == (other.url.scheme(), &other.host, other.port)
    }
}

impl EgressRules {
    /// The target of a URL.
    ///
    /// # Errors
    /// If the URL is not valid, or the rules do not allow its address. A name is checked again when it is resolved.
    pub(super) fn target(&self, url: &str) -> Result<Target, EgressError> {
        if url.len() > URL_BYTES_MAX {
            return Err(EgressError::Invalid(format!("the URL is longer than {URL_BYTES_MAX} bytes")));
        }
        let url = Url::parse(url).map_err(|why| EgressError::Invalid(format!("it is not a valid URL: {why}")))?;
        self.checked(url)
    }

    /// The target of a parsed URL, such as that of a redirect.
    pub(super) fn checked(&self, mut url: Url) -> Result<Target, EgressError> {
        let denied = |why: String| Err(EgressError::Denied(why));
        if !matches!(url.scheme(), "http" | "https") {
            return denied(format!("only http and https are allowed, and not {}", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return denied("a URL with a user name or a password is not allowed".to_owned());
        }
        let (Some(host), Some(port)) = (host_of(&url), url.port_or_known_default()) else {
            return Err(EgressError::Invalid("the URL has no host".to_owned()));
        };
        url.set_fragment(None);
        if url.as_str().len() > URL_BYTES_MAX {
            return denied(format!("the URL is longer than {URL_BYTES_MAX} bytes"));
        }
        let target = Target { url, is_private: self.is_private(&host, port), host, port };
        if target.is_private {
            return Ok(target);
        }
        if !self.ports.contains(&port) {
            return denied(format!("port {port} of {} is not allowed by egress.ports", target.host));
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|pattern| is_host(pattern, &target.host)) {
            return denied(format!("{} is not allowed by egress.hosts", target.host));
        }
        if address_of(&target.host).is_some_and(|address| !is_public(address)) {
            return denied(not_public(&target.host));
        }
        Ok(target)
    }

    fn is_private(&self, host: &str, port: u16) -> bool {
        self.private.iter().any(|private| private.host == host && private.port == port)
    }

    /// The name of the secret that is sent to a target.
    pub(super) fn credential(&self, target: &Target) -> Option<&str> {
        let is_its = |(at, _): &&(HostPort, String)| at.host == target.host && at.port == target.port;
        let found = self.credentials.iter().find(is_its).filter(|_| target.is_confidential());
        found.map(|(_, name)| name.as_str())
    }

    /// Whether a skill may send a secret to a target: the operator named it for exactly this address.
    pub(super) fn is_granted(&self, target: &Target, name: &str) -> bool {
        let mut named = self.credentials.iter().chain(&self.grants);
        let is_its = |(at, own): &(HostPort, String)| at.host == target.host && at.port == target.port && own == name;
        target.is_confidential() && named.any(is_its)
    }

    /// Why a request to this URL is refused before it is sent; `None` if it is not. The text is for people.
    #[must_use]
    pub fn refusal(&self, url: &str) -> Option<String> {
        self.target(url).err().map(|why| why.to_string())
    }

    /// Why a secret for this address is never sent; `None` if requests to the address get it. The text is for people.
    #[must_use]
    pub fn idle_credential(&self, at: &HostPort) -> Option<String> {
        let host = if at.host.contains(':') { format!("[{}]", at.host) } else { at.host.clone() };
        match self.target(&format!("https://{host}:{}/", at.port)) {
            Err(why) => Some(why.to_string()),
            Ok(target) if at.port == HTTP_PORT && !target.is_private => {
                Some(format!("requests to port {HTTP_PORT} of {host} are not encrypted"))
            }
            Ok(_) => None,
        }
    }
}

/// The text of a refusal.
pub(super) fn not_public(host: &str) -> String {
    format!("{host} is not a public address; only egress.allow_private allows it")
}

/// The host of a URL without the brackets of an IPv6 address and without a final dot.
fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    (!host.is_empty()).then(|| host.to_owned())
}

/// The address, if a host is one. The URL parser has converted decimal, octal and hexadecimal forms.
fn address_of(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}

fn is_host(pattern: &str, host: &str) -> bool {
    let pattern = pattern.trim_end_matches('.').to_ascii_lowercase();
    match pattern.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|sub| sub.len() > 1 && sub.ends_with('.')),
        None => pattern == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> EgressRules {
        EgressRules { ports: vec![80, 443], ..EgressRules::default() }
    }

    fn is_denied(rules: &EgressRules, url: &str) -> bool {
        matches!(rules.target(url), Err(EgressError::Denied(_)))
    }

    #[test]
    fn rules_allow_public_hosts_and_refuse_addresses_in_every_spelling() {
        for url in
            ["https://example.org/a?b#c", "http://EXAMPLE.org:80", "https://1.1.1.1/", "http://[2606:4700::1111]/"]
        {
            assert!(rules().target(url).is_ok(), "{url}");
        }
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://0/",
            "http://10.1.2.3/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::127.0.0.1]/",
            "http://[fe80::1]/",
            "http://user@example.org/",
            "http://user:pass@example.org/",
            "http://example.org@127.0.0.1/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "gopher://example.org/",
            "http://example.org:22/",
            "https://example.org:8443/",
        ] {
            assert!(is_denied(&rules(), url), "{url}: {:?}", rules().target(url).map(|target| target.url));
        }
        for url in ["", "example.org", "http://", "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://a b/"] {
            assert!(matches!(rules().target(url), Err(EgressError::Invalid(_))), "{url}");
        }
        assert!(rules().target("http://①②⑦.0.0.1/").is_err());
        let long = format!("https://example.org/{}", "x".repeat(URL_BYTES_MAX));
        assert!(matches!(rules().target(&long), Err(EgressError::Invalid(_))));
    }

    #[test]
    fn rules_with_hosts_allow_only_these() {
        let rules = EgressRules { hosts: vec!["Example.org".to_owned(), "*.wiki.test".to_owned()], ..rules() };
        for url in ["https://example.org/", "https://example.org./", "https://en.wiki.test/", "https://a.b.wiki.test/"]
        {
            assert!(rules.target(url).is_ok(), "{url}");
        }
        for url in
            ["https://www.example.org/", "https://wiki.test/", "https://evilwiki.test/", "https://.wiki.test.evil/"]
        {
            assert!(rules.target(url).is_err(), "{url}");
        }
    }

    #[test]
    fn rules_allow_a_listed_private_address_with_its_port_only() {
        let private =
            ["127.0.0.1:8080", "[::1]:80", "Nas.local:5000"].map(|text| HostPort::parse(text).unwrap()).into();
        let rules = EgressRules { private, ..rules() };
        for url in ["http://127.0.0.1:8080/", "http://0x7f.1:8080/", "http://[::1]/", "http://nas.local:5000/x"] {
            assert!(rules.target(url).unwrap().is_private, "{url}");
        }
        for url in ["http://127.0.0.1/", "http://127.0.0.2:8080/", "http://[::1]:8080/", "http://nas.local:5001/"] {
            assert!(is_denied(&rules, url), "{url}");
        }
        assert!(!rules.target("http://nas.local/").unwrap().is_private, "the name is resolved and checked");
        for text in ["", "127.0.0.1", "nas:0", "nas:99999", "http://nas:80", "nas:80/x", "u@nas:80", ":80", "a b:80"] {
            assert!(HostPort::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn credential_is_for_its_own_address_over_https_or_a_listed_private_address_only() {
        let at = |text: &str| HostPort::parse(text).unwrap();
        let credentials =
            ["api.test:443", "plain.test:80", "127.0.0.1:8080"].map(|text| (at(text), "token".to_owned())).into();
        let rules = EgressRules { credentials, private: vec![at("127.0.0.1:8080")], ..rules() };
        let credential = |url: &str| rules.credential(&rules.target(url).unwrap()).map(str::to_owned);
        for url in ["https://api.test/x", "https://API.test:443/", "http://127.0.0.1:8080/"] {
            assert_eq!(credential(url).as_deref(), Some("token"), "{url}");
        }
        for url in [
            "http://api.test/",
            "https://api.test:80/",
            "http://plain.test/",
            "https://www.api.test/",
            "https://api.test.evil.test/",
        ] {
            assert_eq!(credential(url), None, "{url}");
        }
    }

    #[test]
    fn credential_that_is_never_sent_is_idle_with_the_reason() {
        let at = |text: &str| HostPort::parse(text).unwrap();
        let private = vec![at("127.0.0.1:80"), at("[::1]:8443")];
        let rules = EgressRules { hosts: vec!["*.test".to_owned()], private, ..rules() };
        for (address, part) in [
            ("plain.test:80", "are not encrypted"),
            ("api.test:8443", "not allowed by egress.ports"),
            ("example.org:443", "not allowed by egress.hosts"),
            ("[::1]:443", "not allowed by egress.hosts"),
        ] {
            let why = rules.idle_credential(&at(address)).unwrap_or_default();
            assert!(why.contains(part), "{address}: {why}");
        }
        for address in ["api.test:443", "127.0.0.1:80", "[::1]:8443"] {
            assert_eq!(rules.idle_credential(&at(address)), None, "{address}");
        }
    }

    #[test]
    fn target_of_another_host_port_or_scheme_is_another_origin() {
        let rules = EgressRules { ports: vec![80, 443, 8443], ..EgressRules::default() };
        let target = |url: &str| rules.target(url).unwrap();
        let first = target("https://example.org/a");
        assert!(first.is_same_origin(&target("https://EXAMPLE.org:443/b")));
        for url in ["http://example.org/a", "https://example.org:8443/a", "https://www.example.org/a"] {
            assert!(!first.is_same_origin(&target(url)), "{url}");
        }
        assert_eq!(first.authority(), "example.org");
        assert_eq!(target("https://a.test:8443/").authority(), "a.test:8443");
    }
}
