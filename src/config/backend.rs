//! `[[backend]]`: one model endpoint. Its own keys (the permits, where the secret comes from) stand beside those of
//! [`annie_llm::ModelConfig`], which says what they mean.

use std::path::PathBuf;

use annie_llm::{ModelConfig, Secret};
use serde::{Deserialize, Serialize};

use super::{
    environment::Environment,
    error::{ConfigError, Place},
    typed::KeyError,
};

/// The largest key file that is read, in bytes.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;

/// One backend as it is written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BackendConfig {
    /// Keys of the pool.
    pub pool: Pool,
    /// Keys of the client.
    pub model: ModelConfig,
}

/// What the pool and not the client knows of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Rounds that it runs at a time: 1 for a single-request GPU.
    pub slots: u32,
    /// A file that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
}

impl Default for Pool {
    fn default() -> Self {
        Self { slots: 4, api_key_file: None, api_key_env: None }
    }
}

/// One backend with its secret found.
pub struct ReadyBackend {
    /// Rounds at a time.
    pub slots: u32,
    /// The client's settings.
    pub model: ModelConfig,
}

impl BackendConfig {
    /// The keys that are the pool's; every other is the client's.
    pub(super) const POOL_KEYS: [&'static str; 3] = ["slots", "api_key_file", "api_key_env"];

    pub(super) fn check(&self, index: &str) -> Result<(), KeyError> {
        let name = &self.model.name;
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
            let fix = "use 1 to 64 letters, digits, dots, dashes and underscores";
            return Err(KeyError::value(&["backend", index, "name"], &format!("{name:?} is no name"), fix));
        }
        if self.pool.slots == 0 {
            return Err(KeyError::value(&["backend", index, "slots"], "it is 0", "give at least 1"));
        }
        let keys = [self.model.api_key.is_some(), self.pool.api_key_file.is_some(), self.pool.api_key_env.is_some()];
        if keys.into_iter().filter(|given| *given).count() > 1 {
            let fix = "keep one of api_key, api_key_file and api_key_env";
            return Err(KeyError::value(&["backend", index], "its key is given more than once", fix));
        }
        self.model.validate().map_err(|e| {
            let what = match e {
                annie_llm::LlmError::Config { what, .. } => what,
                other => other.to_string(),
            };
            KeyError::value(&["backend", index], &what, "see `annie config init` for an example")
        })
    }

    /// With the secret found.
    ///
    /// # Errors
    /// If the file or the variable is not there, or empty.
    pub fn ready(&self, environment: &Environment) -> Result<ReadyBackend, ConfigError> {
        let mut model = self.model.clone();
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
        Ok(ReadyBackend { slots: self.pool.slots, model })
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
