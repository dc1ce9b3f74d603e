//! `[secrets]`: the key that seals stored secrets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    backend::read_key,
    environment::Environment,
    error::{ConfigError, Location},
    typed::KeyError,
};
use crate::secrets::SealingKey;

/// How a key is made.
const KEY_FIX: &str = "make one with `openssl rand -hex 32`";

/// `[secrets]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecretSettings {
    /// A file that contains the key: 64 hexadecimal digits.
    pub key_file: Option<PathBuf>,
    /// The environment variable that contains the key.
    pub key_env: Option<String>,
}

impl SecretSettings {
    /// The key; `None` if none is configured.
    ///
    /// # Errors
    /// If the key cannot be read or is not valid.
    pub fn key(&self, environment: &Environment) -> Result<Option<SealingKey>, ConfigError> {
        let (location, key) = if let Some(path) = &self.key_file {
            (Location::file(path), read_key(path, "secrets.key_file")?)
        } else if let Some(name) = &self.key_env {
            let location = Location::Environment(name.clone());
            let Some(key) = environment.get(name) else {
                let what = "secrets.key_env reads the key of stored secrets from here, and it is not set or empty";
                return Err(ConfigError::new(location, what, format!("set {name}, or use key_file")));
            };
            (location, annie_llm::Secret::new(key))
        } else {
            return Ok(None);
        };
        SealingKey::parse(&key).map(Some).map_err(|what| ConfigError::new(location, what, KEY_FIX))
    }

    /// Checks that only one source is given.
    pub(super) fn check(&self) -> Result<(), KeyError> {
        if self.key_file.is_some() && self.key_env.is_some() {
            return Err(KeyError::value(&["secrets", "key_env"], "key_file is given too", "keep one of the two"));
        }
        Ok(())
    }
}
