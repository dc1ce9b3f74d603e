//! `[[backend]]`: one member of the pool, a model endpoint or a program. The keys of the pool (capabilities, privacy, slots,
//! the source of the secret) are in the same table as those of [`annie_llm::ModelConfig`] or [`annie_llm::CommandConfig`],
//! which document their own keys.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use annie_core::{
    event::Mode,
    limits::MainInterface,
    route::{BackendFacts, Cost, Privacy, RateWindow, RouteTable, RouteTableError},
};
use annie_llm::{CommandConfig, ModelConfig, Profile, Secret};
use serde::{Deserialize, Serialize};

use super::{
    environment::Environment,
    error::{ConfigError, Location},
    typed::KeyError,
};

/// The maximum size of a key file, in bytes.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;
/// Host name suffixes that are reserved for private networks (RFC 6761, 6762, 8375, and `internal`).
const PRIVATE_NAMES: [&str; 4] = [".localhost", ".local", ".home.arpa", ".internal"];

/// One configured backend.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendConfig {
    /// The keys of the pool.
    pub pool: Pool,
    /// The keys of the client.
    pub client: ClientConfig,
}

/// The client of a backend.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientConfig {
    /// A model server.
    Model(ModelConfig),
    /// A program on this machine.
    Command(CommandConfig),
}

/// The kind of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A model server.
    #[default]
    Model,
    /// A program, such as a command-line agent.
    Command,
}

/// The pool's settings of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Whether the backend is a model server or a program.
    pub kind: Kind,
    /// Concurrent rounds: 1 for a GPU that serves single requests. Absent means the number that the server reports, or
    /// [`SLOTS_USUAL`].
    pub slots: Option<u32>,
    /// Abilities beyond answering, in the words that the rules use: `tools`, `voice`, `files`, `git`, `shell`, `web` …
    pub capabilities: BTreeSet<String>,
    /// Where the requests are processed. Absent means local for a self-hosted server at a private address, else cloud.
    pub privacy: Option<Privacy>,
    /// The maximum length of prompt and answer together, in tokens. Absent means the window that the server reports; if it
    /// reports none, prompts of any length are tried.
    pub context_tokens_max: Option<u32>,
    /// The request quota. Absent means that only rate-limit replies of the provider count.
    pub window: Option<RateWindow>,
    /// The mode of turns that are routed to this backend, if the caller does not choose one. Absent means the general `mode`.
    pub mode: Option<Mode>,
    /// How the agent that answers the user calls skills on this backend. Absent means `turn.main_interface`.
    pub interface: Option<MainInterface>,
    /// The words with which users request this backend. Absent means its name.
    pub called: Option<Vec<String>>,
    /// A file that contains the API key.
    pub api_key_file: Option<PathBuf>,
    /// The environment variable that contains the API key.
    pub api_key_env: Option<String>,
}

/// The number of slots if neither the configuration nor the server specifies it.
const SLOTS_USUAL: u32 = 4;
/// The highest temperature that any provider accepts.
const TEMPERATURE_MAX: f32 = 2.0;
/// Client keys that a table of defaults does not contain.
const OPTIONAL_KEYS: [&str; 7] =
    ["api_key", "api_version", "headers", "output_tokens_max", "price", "proxy", "temperature"];

impl Default for Pool {
    fn default() -> Self {
        Self {
            kind: Kind::Model,
            slots: None,
            capabilities: BTreeSet::new(),
            privacy: None,
            context_tokens_max: None,
            window: None,
            mode: None,
            interface: None,
            called: None,
            api_key_file: None,
            api_key_env: None,
        }
    }
}

impl BackendConfig {
    /// The keys of the pool; every other key belongs to the client.
    pub(super) const POOL_KEYS: [&'static str; 11] = [
        "kind",
        "slots",
        "capabilities",
        "privacy",
        "context_tokens_max",
        "window",
        "mode",
        "interface",
        "called",
        "api_key_file",
        "api_key_env",
    ];

    /// The name of the backend.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.client {
            ClientConfig::Model(model) => &model.name,
            ClientConfig::Command(command) => &command.name,
        }
    }

    /// The facts that the pool uses, including defaults that follow from other keys.
    #[must_use]
    pub fn facts(&self) -> BackendFacts {
        let Pool { slots, capabilities, privacy, context_tokens_max, window, mode, interface, called, .. } =
            self.pool.clone();
        let name = self.name().to_owned();
        let (usual, cost, acts) = match &self.client {
            ClientConfig::Model(model) => {
                let cost = model.price.map(|p| Cost { input_usd: p.input, output_usd: p.output });
                (privacy_of(model), cost, false)
            }
            // The services that a program contacts are unknown.
            ClientConfig::Command(_) => (Privacy::Cloud, None, true),
        };
        let model = match &self.client {
            ClientConfig::Model(model) => Some(model),
            ClientConfig::Command(_) => None,
        };
        BackendFacts {
            called: called.unwrap_or_else(|| vec![name.clone()]),
            name,
            capabilities,
            privacy: privacy.unwrap_or(usual),
            context_tokens_max,
            output_tokens_max: model.and_then(|model| model.output_tokens_max),
            reasons: model.is_some_and(ModelConfig::reasons),
            is_hosted: model.is_some_and(|model| model.profile.is_hosted()),
            slots: slots.unwrap_or(SLOTS_USUAL),
            learns_slots: slots.is_none() && !acts,
            cost,
            window,
            mode,
            interface,
            acts,
        }
    }

    /// The client with its secret resolved.
    ///
    /// # Errors
    /// If the file or the variable is missing or empty.
    pub fn ready(&self, environment: &Environment) -> Result<ClientConfig, ConfigError> {
        let mut client = self.client.clone();
        let ClientConfig::Model(model) = &mut client else { return Ok(client) };
        let of = format!("backend `{}`", model.name);
        if let Some(path) = &self.pool.api_key_file {
            model.api_key = Some(read_key(path, &format!("{of}: api_key_file"))?);
        }
        if let Some(name) = &self.pool.api_key_env {
            let Some(key) = environment.get(name).map(str::trim).filter(|k| !k.is_empty()) else {
                return Err(ConfigError::new(
                    Location::Environment(name.clone()),
                    format!("{of} reads its key from here, and it is not set or empty"),
                    format!("set {name}, or use api_key_file"),
                ));
            };
            model.api_key = Some(Secret::new(key));
        }
        Ok(client)
    }

    /// All errors in this backend's keys.
    pub(super) fn problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        let name = self.name();
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let begins = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if !begins || name.len() > 64 || !name.bytes().all(fits) {
            let fix = "use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first";
            found.push(KeyError::value(&["backend", index, "name"], &format!("{name:?} is no name"), fix));
        }
        found.extend(self.pool_problems(index));
        let complaints = match &self.client {
            ClientConfig::Model(model) => {
                let keys = [model.api_key.is_some(), self.pool.api_key_file.is_some(), self.pool.api_key_env.is_some()];
                if keys.into_iter().filter(|given| *given).count() > 1 {
                    let fix = "keep one of api_key, api_key_file and api_key_env";
                    found.push(KeyError::value(&["backend", index], "its key is given more than once", fix));
                }
                if model.temperature.is_some_and(|t| !(0.0..=TEMPERATURE_MAX).contains(&t)) {
                    let (path, fix) = (["backend", index, "temperature"], "give 0 to 2, or leave it out");
                    found.push(KeyError::value(&path, "it is no temperature", fix));
                }
                model.problems()
            }
            ClientConfig::Command(command) => {
                let keys = [
                    ("api_key_file", self.pool.api_key_file.is_some()),
                    ("api_key_env", self.pool.api_key_env.is_some()),
                ];
                found.extend(keys.into_iter().filter(|(_, given)| *given).map(|(key, _)| {
                    let fix = "name the variable in env_pass, or set it in env";
                    KeyError::value(&["backend", index, key], "a program is given no key", fix)
                }));
                command.problems()
            }
        };
        for what in complaints {
            let key = self.key_named_in(&what);
            let path = ["backend", index, key];
            let path = if key.is_empty() { &path[..2] } else { &path[..] };
            // A key that has an error already is not reported again.
            if !found.iter().any(|e| e.path == path) {
                found.push(KeyError::value(path, &what, "see `annie config sample` for an example"));
            }
        }
        found
    }

    /// The key that an error of the client is about: its first word. Empty if the error is about the whole table.
    fn key_named_in<'a>(&self, complaint: &'a str) -> &'a str {
        let known = match &self.client {
            ClientConfig::Model(model) => toml::Table::try_from(model),
            ClientConfig::Command(command) => toml::Table::try_from(command),
        };
        let known = known.unwrap_or_default();
        let first = complaint.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        if known.contains_key(first) || OPTIONAL_KEYS.contains(&first) { first } else { "" }
    }

    /// Errors in the pool's keys. Each key is checked separately, so that the error names the right one.
    fn pool_problems(&self, index: &str) -> Vec<KeyError> {
        let BackendFacts { capabilities, context_tokens_max, slots, cost, window, called, .. } = self.facts();
        let plain = || BackendFacts { name: "one".to_owned(), ..BackendFacts::default() };
        let each = [
            ("slots", BackendFacts { slots, ..plain() }, "give at least 1"),
            (
                "capabilities",
                BackendFacts { capabilities, ..plain() },
                "write words such as \"git\", \"shell\", \"voice\"",
            ),
            ("context_tokens_max", BackendFacts { context_tokens_max, ..plain() }, "give the model's context window"),
            ("price", BackendFacts { cost, ..plain() }, "give US dollars per million tokens, 0 or more"),
            ("window", BackendFacts { window, ..plain() }, "write it as { requests_max = 60, window_ms = 3600000 }"),
            ("called", BackendFacts { called, ..plain() }, "write words such as [\"claude\"], or [] for none"),
        ];
        let wrong = |(key, facts, fix): (&str, BackendFacts, &str)| match RouteTable::new(Vec::new(), &[facts]) {
            Err(RouteTableError::Backend { what, .. }) => Some(KeyError::value(&["backend", index, key], &what, fix)),
            _ => None,
        };
        each.into_iter().filter_map(wrong).collect()
    }
}

/// The default privacy of a model server. It is local if the address is on this machine, or if the profile is one of a
/// self-hosted server and the address is in a private network. Any other server may forward requests. The profile of a public
/// service (`openrouter`, `openai`, `anthropic`, `azure`) always means cloud, whatever the address. With a proxy nothing is
/// local, because the proxy can read every request.
fn privacy_of(model: &ModelConfig) -> Privacy {
    let is_own = matches!(model.profile, Profile::LlamaCpp | Profile::Ollama | Profile::Vllm);
    let host = host_of(&model.base_url).filter(|_| model.proxy.is_none());
    let is_local = host.is_some_and(|host| match model.profile {
        Profile::Generic => is_loopback(&host),
        _ => is_own && is_private(&host),
    });
    if is_local { Privacy::Local } else { Privacy::Cloud }
}

/// The host of a URL, in lower case.
pub(super) fn host_of(url: &str) -> Option<String> {
    url.parse::<axum::http::Uri>().ok().and_then(|url| url.host().map(str::to_ascii_lowercase))
}

/// Whether an address is in a private network but not on this machine. For such an address the configured profile decides
/// whether the backend is local.
pub(crate) fn is_in_own_network(url: &str) -> bool {
    host_of(url).is_some_and(|host| is_private(&host) && !is_loopback(&host))
}

/// Whether a host, in lower case, is this machine.
fn is_loopback(host: &str) -> bool {
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(at) => at.to_canonical().is_loopback(),
        Err(_) => host == "localhost",
    }
}

/// Whether a host, in lower case, is on this machine or in a private network.
pub(super) fn is_private(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(at)) => at.is_loopback() || at.is_private() || at.is_link_local(),
        Ok(IpAddr::V6(at)) => at.to_ipv4_mapped().map_or_else(
            || at.is_loopback() || at.is_unique_local() || at.is_unicast_link_local(),
            |at| is_private(&at.to_string()),
        ),
        Err(_) => host == "localhost" || PRIVATE_NAMES.iter().any(|end| host.ends_with(end)),
    }
}

/// The key in a file, without surrounding white space. `what` names the setting in errors.
pub(crate) fn read_key(path: &std::path::Path, what: &str) -> Result<Secret, ConfigError> {
    use std::io::Read;
    let location = || Location::file(path);
    let failed = |e: std::io::Error| {
        ConfigError::new(location(), format!("{what}: cannot read the file: {e}"), "check the path and its permissions")
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        let problem = format!("{what}: the file must hold the key and nothing else");
        return Err(ConfigError::new(location(), problem, "write the key into it, on one line"));
    }
    Ok(Secret::new(key))
}
