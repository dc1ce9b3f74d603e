//! `[egress]`: the requests of skills to other machines. The rules are applied in [`annie_skillkit::HttpEgress`].

use std::collections::BTreeMap;

use annie_skillkit::{EgressLimits, EgressRules, HostPort};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};
use crate::secrets::valid_secret_name;

/// Below the time limit of a skill run, 30 s: a run that reaches that limit counts against the skill.
const TOTAL_MS_MAX: u64 = 29_000;

/// `[egress]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressSettings {
    /// Whether skills may send requests to other machines at all.
    pub enabled: bool,
    /// The only hosts that may be reached; an empty list means all public hosts.
    pub hosts: Vec<String>,
    /// The ports that may be reached.
    pub ports: Vec<u16>,
    /// Addresses in private networks and on this machine that may be reached, each with its port.
    pub allow_private: Vec<String>,
    /// The name of the secret that is sent to each of these hosts as `Authorization: Bearer`. Without a port the host means
    /// port 443.
    pub credentials: BTreeMap<String, String>,
    /// Whether `web.fetch` obeys the rules of each site for automatic readers (`robots.txt`).
    pub robots: bool,
    /// The maximum number of redirects of a request.
    pub redirects_max: u32,
    /// The maximum size of a response, in bytes after decompression.
    pub reply_bytes_max: usize,
    /// The maximum time for connecting to a host, in milliseconds.
    pub connect_ms_max: u64,
    /// The maximum time for a request with all its redirects, in milliseconds.
    pub total_ms_max: u64,
}

impl Default for EgressSettings {
    fn default() -> Self {
        let EgressLimits { redirects_max, reply_bytes_max, connect_ms_max, total_ms_max } = EgressLimits::default();
        Self {
            enabled: false,
            hosts: Vec::new(),
            ports: vec![80, 443],
            allow_private: Vec::new(),
            credentials: BTreeMap::new(),
            robots: false,
            redirects_max,
            reply_bytes_max,
            connect_ms_max,
            total_ms_max,
        }
    }
}

impl EgressSettings {
    /// The rules of the client; `None` if requests to other machines are switched off. An address that [`Config`] has not
    /// checked and that is not valid is left out.
    #[must_use]
    pub fn rules(&self) -> Option<EgressRules> {
        let Self { redirects_max, reply_bytes_max, connect_ms_max, total_ms_max, .. } = *self;
        self.enabled.then(|| EgressRules {
            hosts: self.hosts.clone(),
            ports: self.ports.clone(),
            private: self.allow_private.iter().filter_map(|text| HostPort::parse(text).ok()).collect(),
            credentials: self
                .credentials
                .iter()
                .filter_map(|(at, name)| Some((address(at).ok()?, name.clone())))
                .collect(),
            grants: Vec::new(),
            limits: EgressLimits { redirects_max, reply_bytes_max, connect_ms_max, total_ms_max },
        })
    }
}

/// The address of a host that may have no port.
fn address(host: &str) -> Result<HostPort, String> {
    HostPort::parse(host).or_else(|_| HostPort::parse(&format!("{host}:443")))
}

/// Whether a text is a host name, or `*.` and a domain.
fn is_host_pattern(text: &str) -> bool {
    let host = text.strip_prefix("*.").unwrap_or(text);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !host.is_empty() && host.chars().all(is_part) && !host.starts_with('.')
}

impl Config {
    /// The errors in `[egress]`.
    pub(super) fn egress_problems(&self) -> Vec<KeyError> {
        let egress = &self.egress;
        let mut found = Vec::new();
        if let Some(host) = egress.hosts.iter().find(|host| !is_host_pattern(host)) {
            let fix = "write a host without scheme and port, such as example.org or *.example.org";
            found.push(KeyError::value(&["egress", "hosts"], &format!("{host:?} is no host"), fix));
        }
        if egress.ports.contains(&0) {
            found.push(KeyError::value(&["egress", "ports"], "0 is no port", "write ports such as 443"));
        }
        if let Some(Err(what)) = egress.allow_private.iter().map(|text| HostPort::parse(text)).find(Result::is_err) {
            let fix = "write each as host:port, such as \"127.0.0.1:8080\" or \"nas.local:80\"";
            found.push(KeyError::value(&["egress", "allow_private"], &what, fix));
        }
        for (host, name) in &egress.credentials {
            let wrong = address(host).err();
            let wrong = wrong
                .or_else(|| (!valid_secret_name(name)).then(|| format!("{name:?} cannot be the name of a secret")));
            let fix = "write \"api.example.org\" = \"the-name-of-a-secret\"";
            let is_wrong = wrong.is_some();
            found.extend(wrong.map(|what| KeyError::value(&["egress", "credentials"], &what, fix)));
            let rules = egress.rules().filter(|_| !is_wrong);
            let idle = rules.and_then(|rules| rules.idle_credential(&address(host).ok()?));
            let idle = idle.map(|why| format!("the secret for {host:?} would never be sent: {why}"));
            let fix = "allow the host for https in hosts and ports, or list it with its port in allow_private";
            found.extend(idle.map(|what| KeyError::value(&["egress", "credentials"], &what, fix)));
        }
        let limits = [
            ("reply_bytes_max", egress.reply_bytes_max as u64),
            ("connect_ms_max", egress.connect_ms_max),
            ("total_ms_max", egress.total_ms_max),
        ];
        let zeros = limits.iter().filter(|(_, value)| *value == 0);
        found.extend(zeros.map(|(key, _)| KeyError::value(&["egress", key], "it is 0", "give at least 1")));
        if egress.total_ms_max > TOTAL_MS_MAX {
            let what = "a skill that takes 30000 ms counts as failed, for all users and sites";
            found.push(KeyError::value(&["egress", "total_ms_max"], what, &format!("give at most {TOTAL_MS_MAX}")));
        }
        found
    }
}
