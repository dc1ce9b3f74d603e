//! Secrets of users and of the installation, opened only where they leave the process.

use super::Fut;
use crate::{ids::UserId, ports::StoreError, secret::Secret};

/// A secret that cannot be opened. The texts never contain a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No key is configured.
    #[error("the secret {name:?} is stored, and no key is configured that opens it")]
    NoKey {
        /// The name of the secret.
        name: String,
    },
    /// Another key seals the secret, or its row was changed.
    #[error("the configured key does not open the secret {name:?}")]
    WrongKey {
        /// The name of the secret.
        name: String,
    },
    /// The store failed.
    #[error("the secret cannot be read: {0}")]
    Store(#[from] StoreError),
}

/// Opens stored secrets.
pub trait Secrets: Send + Sync {
    /// The secret of this name that belongs to the user, or else to the installation. `None` if there is neither.
    fn secret(&self, user: Option<UserId>, name: String) -> Fut<'_, Result<Option<Secret>, SecretError>>;

    /// The text with a mask for each secret that this process has opened, also where it is encoded as base64 or for a URL.
    fn scrubbed(&self, text: &str) -> String;
}
