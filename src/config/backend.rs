//! `[[backend]]`: one member of the pool, a model endpoint or a program. The pool's own keys (who it is for, its permits,
//! where its secret comes from) stand beside those of [`annie_llm::ModelConfig`] or [`annie_llm::CommandConfig`], which say
//! what they mean.

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
    error::{ConfigError, Place},
    typed::KeyError,
};

/// The largest key file that is read, in bytes.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;
/// Ends of host names that are kept for networks of one's own (RFC 6761, 6762, 8375, and `internal`).
const PRIVATE_NAMES: [&str; 4] = [".localhost", ".local", ".home.arpa", ".internal"];

/// One backend as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendConfig {
    /// Keys of the pool.
    pub pool: Pool,
    /// Keys of what is behind it.
    pub client: ClientConfig,
}

/// What is behind a backend.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientConfig {
    /// A model server.
    Model(ModelConfig),
    /// A program on this machine.
    Command(CommandConfig),
}

/// Which of the two it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A model server.
    #[default]
    Model,
    /// A program that works by itself, such as a command-line agent.
    Command,
}

/// What the pool and not the client knows of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// A model server or a program.
    pub kind: Kind,
    /// Rounds that it runs at a time: 1 for a single-request GPU. Absent means what its server says, or [`SLOTS_USUAL`].
    pub slots: Option<u32>,
    /// What it can do beyond answering, in words that the rules use: `tools`, `voice`, `files`, `git`, `shell`, `web` …
    pub capabilities: BTreeSet<String>,
    /// Where its work is done; absent means local for a server of one's own, else cloud.
    pub privacy: Option<Privacy>,
    /// The longest prompt and answer together, in tokens; absent means what its server says. If that is nothing, anything is
    /// tried.
    pub context_tokens_max: Option<u32>,
    /// How many requests it takes; absent means that only the provider's own words count.
    pub window: Option<RateWindow>,
    /// How turns run that are meant for it, where the caller does not say; absent means the general `mode`.
    pub mode: Option<Mode>,
    /// How the agent that answers the user calls skills there; absent means `turn.main_interface`.
    pub interface: Option<MainInterface>,
    /// What users call it when they ask for it by name; absent means its own name.
    pub called: Option<Vec<String>>,
    /// A file that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
}

/// Rounds at a time where neither the configuration nor the server says.
const SLOTS_USUAL: u32 = 4;
/// The highest temperature that any provider takes.
const TEMPERATURE_MAX: f32 = 2.0;
/// Keys of clients that are not in a table of defaults.
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
    /// The keys that are the pool's; every other is the client's.
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.client {
            ClientConfig::Model(model) => &model.name,
            ClientConfig::Command(command) => &command.name,
        }
    }

    /// What the pool knows of it, with what follows from its other keys.
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
            // Whom a program asks in turn nobody can see.
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

    /// What is behind it, with its secret found.
    ///
    /// # Errors
    /// If the file or the variable is not there, or empty.
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
                    Place::Environment(name.clone()),
                    format!("{of} wants its key from here, and it is not set or empty"),
                    format!("set {name}, or use api_key_file"),
                ));
            };
            model.api_key = Some(Secret::new(key));
        }
        Ok(client)
    }

    /// Every key that does not fit.
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
            // A key that was told of already is told of once.
            if !found.iter().any(|e| e.path == path) {
                found.push(KeyError::value(path, &what, "see `annie config init` for an example"));
            }
        }
        found
    }

    /// The key that a client's complaint is about: its first word, unless it is about the whole.
    fn key_named_in<'a>(&self, complaint: &'a str) -> &'a str {
        let known = match &self.client {
            ClientConfig::Model(model) => toml::Table::try_from(model),
            ClientConfig::Command(command) => toml::Table::try_from(command),
        };
        let known = known.unwrap_or_default();
        let first = complaint.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        if known.contains_key(first) || OPTIONAL_KEYS.contains(&first) { first } else { "" }
    }

    /// The pool's keys, each by itself, so that the one that does not fit is known.
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

/// Where a model server's work is done if nobody says: here if its address is this machine's own, and in the house if it is one
/// that people run themselves at an address of a network of their own. Anything else may pass on what it is told. A service
/// that is named as one (`openrouter`, `openai`, `anthropic`, `azure`) does its work elsewhere, whatever stands before it. A
/// proxy reads every request on its way, wherever the server is: behind one nothing is local.
fn privacy_of(model: &ModelConfig) -> Privacy {
    let is_own = matches!(model.profile, Profile::LlamaCpp | Profile::Ollama | Profile::Vllm);
    let host = host_of(&model.base_url).filter(|_| model.proxy.is_none());
    let is_local = host.is_some_and(|host| match model.profile {
        Profile::Generic => is_loopback(&host),
        _ => is_own && is_private(&host),
    });
    if is_local { Privacy::Local } else { Privacy::Cloud }
}

/// The host of an address, in small letters.
pub(super) fn host_of(url: &str) -> Option<String> {
    url.parse::<axum::http::Uri>().ok().and_then(|url| url.host().map(str::to_ascii_lowercase))
}

/// Whether an address is in a network of the operator's own, but not on this machine: there the configured profile decides
/// whether a backend is local.
pub(crate) fn is_in_own_network(url: &str) -> bool {
    host_of(url).is_some_and(|host| is_private(&host) && !is_loopback(&host))
}

/// Whether a host, in small letters, is this machine.
fn is_loopback(host: &str) -> bool {
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(at) => at.to_canonical().is_loopback(),
        Err(_) => host == "localhost",
    }
}

/// Whether a host, in small letters, is on this machine or in a network of one's own.
fn is_private(host: &str) -> bool {
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

/// The key in a file, without the white space around it. `what` names the setting.
pub(crate) fn read_key(path: &std::path::Path, what: &str) -> Result<Secret, ConfigError> {
    use std::io::Read;
    let place = || Place::file(path);
    let failed = |e: std::io::Error| {
        ConfigError::new(place(), format!("{what}: cannot read the file: {e}"), "check the path and who may read it")
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        let said = format!("{what}: the file must hold the key and nothing else");
        return Err(ConfigError::new(place(), said, "write the key into it, on one line"));
    }
    Ok(Secret::new(key))
}
