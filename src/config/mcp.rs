//! `[[mcp]]`: servers whose tools are skills. The servers are followed by [`annie_mcp::McpSource`].

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use annie_core::skill::Effect;
use annie_llm::Secret;
use annie_mcp::ProtocolChoice;
use annie_process::ProcessLimits;
use annie_skillkit::{EgressLimits, EgressRules, HostPort};
use serde::{Deserialize, Serialize};

use super::{
    backend::{host_of, is_private},
    settings::Config,
    typed::KeyError,
};
use crate::secrets::valid_secret_name;

/// The most servers.
const SERVERS_MAX: usize = 32;
/// The longest name of a server, in bytes: it is a part of the names of skills, which have at most 64.
const NAME_BYTES_MAX: usize = 20;
/// How long a connection to a service may take, in milliseconds.
const CONNECT_MS_MAX: u64 = 5_000;

/// `[[mcp]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServerConfig {
    /// The name; the tools are the skills `mcp.NAME.TOOL`.
    pub name: String,
    /// A server that is switched off is not started.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The program with its arguments, for a server that is reached over its pipes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The program's working directory; absent means the program's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Variables of Annie's own environment that the program gets; it gets no others of it.
    #[serde(default = "passed")]
    pub env_pass: Vec<String>,
    /// Further variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Secret>,
    /// Variables whose values are stored secrets, each with the name of its secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_secrets: BTreeMap<String, String>,
    /// Limits that the operating system enforces on the program.
    #[serde(default)]
    pub process: ProcessLimits,
    /// The URL, for a server that is reached by HTTP. It is not shown, because it may contain a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Secret>,
    /// The name of the stored secret that is sent as `Authorization: Bearer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<String>,
    /// Whether the URL may be on this machine or in a private network.
    #[serde(default)]
    pub allow_private: bool,
    /// The protocol revision.
    #[serde(default)]
    pub protocol: ProtocolChoice,
    /// Time limit of one request, in milliseconds.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Size limit of one message of the server, in bytes.
    #[serde(default = "message_bytes_max")]
    pub message_bytes_max: usize,
    /// The time between two lists of the tools, in milliseconds.
    #[serde(default = "refresh_ms")]
    pub refresh_ms: u64,
    /// Whether a tool that the server calls read-only is a skill that only reads.
    #[serde(default)]
    pub trust_annotations: bool,
    /// The effects of tools, by the server's name of the tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effects: BTreeMap<String, Effect>,
    /// Whether the tools reach other machines, so that no private turn runs them.
    #[serde(default = "yes")]
    pub external: bool,
    /// The hashes of approved definitions, by the server's name of the tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pins: BTreeMap<String, String>,
}

const fn yes() -> bool {
    true
}

fn passed() -> Vec<String> {
    ["PATH", "HOME", "LANG", "TZ"].map(str::to_owned).into()
}

const fn timeout_ms() -> u64 {
    30_000
}

const fn message_bytes_max() -> usize {
    4 * 1024 * 1024
}

const fn refresh_ms() -> u64 {
    300_000
}

impl McpServerConfig {
    /// The program and its arguments.
    #[must_use]
    pub fn program(&self) -> Option<(PathBuf, Vec<String>)> {
        let (program, arguments) = self.command.split_first()?;
        Some((PathBuf::from(program), arguments.to_vec()))
    }

    /// The folder in which the program runs.
    #[must_use]
    pub fn folder_of(&self, program: &Path) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| program.parent().unwrap_or(Path::new("/")).to_owned())
    }

    /// The rules of the client that reaches the URL and nothing else; `None` if there is no valid URL.
    #[must_use]
    pub fn egress_rules(&self) -> Option<EgressRules> {
        let (at, port) = address_of(self.url.as_ref()?.expose())?;
        let limits = EgressLimits {
            redirects_max: 0,
            reply_bytes_max: self.message_bytes_max,
            connect_ms_max: CONNECT_MS_MAX.min(self.timeout_ms),
            total_ms_max: self.timeout_ms,
        };
        Some(EgressRules {
            ports: vec![port],
            private: if self.allow_private { vec![at.clone()] } else { Vec::new() },
            credentials: self.bearer.iter().map(|name| (at.clone(), name.clone())).collect(),
            limits,
            ..EgressRules::default()
        })
    }

    /// All errors in this server's keys.
    fn problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        let mut add = |key: &str, what: &str, fix: &str| found.push(KeyError::value(&["mcp", index, key], what, fix));
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let begins = self.name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        if !begins || self.name.len() > NAME_BYTES_MAX || !self.name.bytes().all(fits) {
            let fix = "use 1 to 20 lower-case letters, digits and underscores, a letter first";
            add("name", &format!("{:?} is no name", self.name), fix);
        }
        for (key, value) in [
            ("timeout_ms", self.timeout_ms),
            ("message_bytes_max", self.message_bytes_max as u64),
            ("refresh_ms", self.refresh_ms),
        ] {
            if value == 0 {
                add(key, "it is 0", "give at least 1");
            }
        }
        let is_hash = |hash: &String| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        if let Some((tool, _)) = self.pins.iter().find(|(_, hash)| !is_hash(hash)) {
            add("pins", &format!("that of {tool:?} is no hash"), "copy it from `annie mcp list --tools`");
        }
        let secrets = self.env_secrets.values().map(|name| ("env_secrets", name));
        for (key, name) in secrets.chain(self.bearer.iter().map(|name| ("bearer", name))) {
            if !valid_secret_name(name) {
                add(key, &format!("{name:?} cannot be the name of a secret"), "name one of `annie secret list`");
            }
        }
        match (&self.url, self.command.is_empty()) {
            (None, false) => found.extend(self.program_problems(index)),
            (Some(url), true) => found.extend(self.url_problems(index, url.expose())),
            _ => found.push(KeyError::value(
                &["mcp", index],
                "it needs a program or a URL",
                "give command = [\"/path/of/program\"] or url, not both",
            )),
        }
        found
    }

    fn program_problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        let mut add = |key: &str, what: &str, fix: &str| found.push(KeyError::value(&["mcp", index, key], what, fix));
        if !self.command.first().is_some_and(|program| program.starts_with('/')) {
            add("command", "the program is not a whole path", "begin it with a slash; `command -v NAME` shows it");
        }
        if self.command.iter().any(|part| part.contains('\0')) {
            add("command", "a part has a NUL", "remove it");
        }
        if self.folder.as_ref().is_some_and(|folder| !folder.is_absolute()) {
            add("folder", "it is not a whole path", "begin it with a slash");
        }
        let is_name = |name: &&String| !name.is_empty() && !name.contains(['=', '\0']);
        let mut names = self.env_pass.iter().chain(self.env.keys()).chain(self.env_secrets.keys());
        if let Some(name) = names.find(|name| !is_name(name)) {
            add("env", &format!("{name:?} is no name of a variable"), "write NAME = \"value\"");
        }
        for (key, is_given) in [("bearer", self.bearer.is_some()), ("allow_private", self.allow_private)] {
            if is_given {
                add(key, "a program has no URL", "remove it, or use env_secrets for a token");
            }
        }
        found
    }

    fn url_problems(&self, index: &str, url: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        let mut add = |key: &str, what: &str, fix: &str| found.push(KeyError::value(&["mcp", index, key], what, fix));
        let fix = "write it as https://example.org/mcp";
        match host_of(url) {
            Some(_) if address_of(url).is_none() => add("url", "it is no URL with http:// or https://", fix),
            Some(host) if is_private(&host) && !self.allow_private => {
                let fix = "set allow_private = true for this server if you trust it";
                add("url", "its host is on this machine or in a private network", fix);
            }
            Some(_) => {}
            None => add("url", "it is no URL with http:// or https://", fix),
        }
        for (key, is_given) in [
            ("folder", self.folder.is_some()),
            ("env", !self.env.is_empty()),
            ("env_secrets", !self.env_secrets.is_empty()),
        ] {
            if is_given {
                add(key, "a URL starts no program", "remove it, or use bearer for a token");
            }
        }
        found
    }
}

/// The host and the port of a URL.
fn address_of(url: &str) -> Option<(HostPort, u16)> {
    let url = url.parse::<axum::http::Uri>().ok()?;
    let usual = match url.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = url.authority()?;
    if authority.as_str().contains('@') {
        return None;
    }
    let port = authority.port_u16().unwrap_or(usual);
    HostPort::parse(&format!("{}:{port}", authority.host())).ok().map(|at| (at, port))
}

impl Config {
    /// The errors of all servers.
    pub(super) fn mcp_problems(&self) -> Vec<KeyError> {
        let count = self.mcp.len();
        if count > SERVERS_MAX {
            let what = format!("there are {count} servers, at most {SERVERS_MAX} are allowed");
            return vec![KeyError::value(&["mcp"], &what, "remove some of them")];
        }
        let (mut found, mut names) = (Vec::new(), BTreeSet::new());
        for (at, server) in self.mcp.iter().enumerate() {
            let index = at.to_string();
            found.extend(server.problems(&index));
            if !names.insert(server.name.as_str()) {
                let what = format!("another server is named {:?} too", server.name);
                found.push(KeyError::value(&["mcp", &index, "name"], &what, "give each its own name"));
            }
        }
        found
    }
}
