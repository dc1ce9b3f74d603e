//! `[[channel]]`: where the answers of messages with an address are delivered.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use annie_channels::{Webhook, WebhookConfig, WebhookError, WebhookHookError};
use annie_core::{
    ids::UserId,
    ports::{Channel, Clock},
};
use annie_llm::Secret;
use serde::{Deserialize, Serialize};

use super::{
    backend::{host_of, read_key},
    environment::Environment,
    error::{ConfigError, Location},
    settings::Config,
    typed::KeyError,
};

/// The most channels.
const CHANNELS_MAX: usize = 32;
/// The longest name of a channel, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// The form of a name, for people.
const NAME_FIX: &str = "use 1 to 40 lower-case letters, digits and underscores";

/// Whether a text can be the name of a channel. Channels of extensions have names of the same form.
pub(super) fn valid_channel_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}

/// The kind of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelKind {
    /// Posts each text to a URL.
    Webhook,
}

/// `[[channel]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelConfig {
    /// The name, which addresses contain.
    pub name: String,
    /// The kind.
    pub kind: ChannelKind,
    /// The URL to which texts are posted. It is not shown, because it may contain a token.
    pub url: Secret,
    /// A file that contains the key of the signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The environment variable that contains the key of the signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    /// The users who may use the channel; empty for all.
    #[serde(default)]
    pub users: Vec<String>,
    /// The receiver ignores a delivery whose id it has received before.
    #[serde(default)]
    pub deduplicates: bool,
}

/// A channel of the configuration that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// Its secret is missing.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its settings are not valid.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The settings of a hook that is a service are not valid.
    #[error(transparent)]
    Hook(#[from] WebhookHookError),
}

impl ChannelConfig {
    /// Builds the channel.
    ///
    /// # Errors
    /// If the secret is missing or not valid.
    pub fn channel(&self, environment: &Environment, clock: Arc<dyn Clock>) -> Result<Arc<dyn Channel>, ChannelError> {
        let of = format!("channel `{}`", self.name);
        let secret = signing_key(&of, self.secret_file.as_deref(), self.secret_env.as_deref(), environment)?;
        match self.kind {
            ChannelKind::Webhook => {
                let config = WebhookConfig {
                    name: self.name.clone(),
                    url: self.url.expose().to_owned(),
                    secret: secret.expose().to_owned(),
                    users: self.users.clone(),
                    deduplicates: self.deduplicates,
                };
                Ok(Arc::new(Webhook::new(config, annie_llm::http_client(), clock)?))
            }
        }
    }

    /// All errors in this channel's keys.
    fn problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        if !valid_channel_name(&self.name) {
            found.push(KeyError::value(&["channel", index, "name"], &format!("{:?} is no name", self.name), NAME_FIX));
        }
        let url = self.url.expose();
        if !(url.starts_with("http://") || url.starts_with("https://")) || host_of(url).is_none() {
            let fix = "write it as https://example.org/annie";
            found.push(KeyError::value(&["channel", index, "url"], "it is no URL with http:// or https://", fix));
        }
        if self.secret_file.is_some() == self.secret_env.is_some() {
            let what = "it needs one secret, with which its requests are signed";
            found.push(KeyError::value(&["channel", index], what, "give secret_file or secret_env, not both"));
        }
        if let Some(user) = self.users.iter().find(|user| UserId::new(user.as_str()).is_err()) {
            let fix = "use 1 to 128 bytes without control characters";
            found.push(KeyError::value(&["channel", index, "users"], &format!("{user:?} cannot be a user id"), fix));
        }
        found
    }
}

/// The key of the signatures of a channel or a hook.
pub(super) fn signing_key(
    of: &str,
    file: Option<&Path>,
    variable: Option<&str>,
    environment: &Environment,
) -> Result<Secret, ConfigError> {
    if let Some(path) = file {
        return read_key(path, &format!("{of}: secret_file"));
    }
    let name = variable.unwrap_or_default();
    let secret = environment.get(name).map(str::trim).filter(|secret| !secret.is_empty());
    secret.map(Secret::new).ok_or_else(|| {
        ConfigError::new(
            Location::Environment(name.to_owned()),
            format!("{of} reads its secret from here, and it is not set or empty"),
            format!("set {name}, or use secret_file"),
        )
    })
}

impl Config {
    /// The configured channels.
    ///
    /// # Errors
    /// If a secret is missing or a channel cannot be built.
    pub fn channels(
        &self,
        environment: &Environment,
        clock: &Arc<dyn Clock>,
    ) -> Result<Vec<Arc<dyn Channel>>, ChannelError> {
        self.channel.iter().map(|channel| channel.channel(environment, clock.clone())).collect()
    }

    /// The errors of all channels.
    pub(super) fn channel_problems(&self) -> Vec<KeyError> {
        let count = self.channel.len();
        if count > CHANNELS_MAX {
            let what = format!("there are {count} channels, at most {CHANNELS_MAX} are allowed");
            return vec![KeyError::value(&["channel"], &what, "remove some of them")];
        }
        let (mut found, mut names) = (Vec::new(), BTreeSet::new());
        for (at, channel) in self.channel.iter().enumerate() {
            let index = at.to_string();
            found.extend(channel.problems(&index));
            if !names.insert(channel.name.as_str()) {
                let what = format!("another channel is named {:?} too", channel.name);
                found.push(KeyError::value(&["channel", &index, "name"], &what, "give each its own name"));
            }
        }
        found
    }
}
