//! Permissions of a key. Scopes are stored with the key and never taken from a request.

use std::{fmt, str::FromStr};

/// One permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyScope {
    /// Send messages and read one's own conversations.
    Chat,
    /// Read one's own tasks.
    JobsRead,
    /// Cancel, suspend and reprioritise one's own tasks, by routes and by job commands in messages, and resume one's own
    /// conversations.
    JobsControl,
    /// Read the actor tree, the queue, the status and the metrics.
    OpsRead,
    /// Stop, kill and restart actors; control breakers and the voice gate.
    OpsControl,
    /// Create and revoke keys; implies every other scope except `impersonate`.
    Admin,
    /// Act for another user, named in the request. Never implied by another scope.
    Impersonate,
    /// Send spoken messages of a voice session. Such messages run at once, outside the queue.
    Voice,
}

impl KeyScope {
    /// All scopes.
    pub const ALL: [Self; 8] = [
        Self::Chat,
        Self::JobsRead,
        Self::JobsControl,
        Self::OpsRead,
        Self::OpsControl,
        Self::Admin,
        Self::Impersonate,
        Self::Voice,
    ];

    /// The name of the scope, as stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::JobsRead => "jobs:read",
            Self::JobsControl => "jobs:control",
            Self::OpsRead => "ops:read",
            Self::OpsControl => "ops:control",
            Self::Admin => "admin",
            Self::Impersonate => "impersonate",
            Self::Voice => "voice",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for KeyScope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no scope {text:?}; the scopes are {known}")
        })
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grants(u8);

impl Grants {
    /// Every scope.
    #[must_use]
    pub fn all() -> Self {
        Self::of(KeyScope::ALL)
    }

    /// These scopes and the scopes that they imply.
    #[must_use]
    pub fn of(scopes: impl IntoIterator<Item = KeyScope>) -> Self {
        let mut bits = scopes.into_iter().fold(0, |bits, scope| bits | scope.bit());
        if bits & KeyScope::Admin.bit() != 0 {
            bits |= !KeyScope::Impersonate.bit();
        }
        Self(bits)
    }

    /// The scopes with these stored names; an unknown name grants nothing.
    #[must_use]
    pub fn of_words(words: &[String]) -> Self {
        Self::of(words.iter().filter_map(|w| w.parse().ok()))
    }

    /// Whether the scope is granted.
    #[must_use]
    pub const fn has(self, scope: KeyScope) -> bool {
        self.0 & scope.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_scope_implies_every_scope_except_impersonate() {
        let admin = Grants::of([KeyScope::Admin]);
        for scope in KeyScope::ALL {
            assert_eq!(admin.has(scope), scope != KeyScope::Impersonate, "{scope}");
        }
        let both = Grants::of([KeyScope::Admin, KeyScope::Impersonate]);
        assert!(both.has(KeyScope::Impersonate));
    }

    #[test]
    fn unknown_scope_name_grants_nothing() {
        assert_eq!(Grants::of_words(&["root".to_owned()]), Grants::default());
        assert!("root".parse::<KeyScope>().unwrap_err().contains("jobs:read"));
        assert_eq!("ops:read".parse(), Ok(KeyScope::OpsRead));
    }
}
