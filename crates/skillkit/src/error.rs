//! What can go wrong in a skill, and the one place where it becomes an outcome.

use std::io;

use annie_core::{
    outcome::Outcome,
    ports::{StoreError, StoreErrorKind},
    skill::{Effect, SkillSpec},
};
use serde_json::json;

/// Why a skill could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// An argument does not fit; the flag is named without dashes.
    #[error("--{flag} {what}")]
    Argument {
        /// Which flag.
        flag: String,
        /// What is wrong with it, as the rest of a sentence.
        what: String,
    },
    /// The arguments do not fit each other, or are no object.
    #[error("{0}")]
    Arguments(String),
    /// The thing that was asked for is not there.
    #[error("{what}")]
    NotFound {
        /// What is not there, as a sentence.
        what: String,
        /// What was perhaps meant.
        near: Vec<String>,
    },
    /// Something else is in the way.
    #[error("{0}")]
    Conflict(String),
    /// More than a limit allows.
    #[error("{0}")]
    TooLarge(String),
    /// A path that leaves its folder, or tries to.
    #[error("{0}")]
    Outside(String),
    /// What is asked for is kept where this process cannot reach it.
    #[error("{0}")]
    Elsewhere(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's words.
        source: io::Error,
    },
    /// The skills folder cannot be watched.
    #[error("cannot watch the skills folder: {0}")]
    Watch(String),
}

impl SkillError {
    pub(crate) fn argument(flag: &str, what: impl Into<String>) -> Self {
        Self::Argument { flag: flag.to_owned(), what: what.into() }
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::NotFound { what: what.into(), near: Vec::new() }
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    /// The outcome that a caller gets; wrong arguments come with the right usage.
    pub(crate) fn into_outcome(self, spec: &SkillSpec) -> Outcome {
        let said = self.to_string();
        match self {
            Self::Argument { .. } | Self::Arguments(_) => {
                let usage = format!("{said}\nUsage: {}\nTry `{} --help`.", spec.synopsis(), spec.name);
                Outcome::permanent("invalid_arguments", usage)
            }
            Self::NotFound { near, .. } => Outcome::permanent("not_found", said).with_alternatives(near),
            Self::Conflict(_) => Outcome::permanent("conflict", said),
            Self::TooLarge(_) => Outcome::permanent("invalid_arguments", said),
            Self::Outside(_) => Outcome::blocked("outside_folder", said),
            Self::Elsewhere(_) => Outcome::blocked("elsewhere", said),
            Self::Store(error) => store_outcome(&error, spec.effect),
            Self::Io { source, .. } => io_outcome(said, source.kind(), spec.effect),
            Self::Watch(_) => Outcome::transient("io", said),
        }
    }
}

/// A lost connection, for one, says nothing of a commit that was on its way.
fn store_outcome(error: &StoreError, effect: Effect) -> Outcome {
    let word = match error.kind {
        StoreErrorKind::Locked => "store_locked",
        StoreErrorKind::Full => "store_full",
        StoreErrorKind::Unavailable => "store_unavailable",
        StoreErrorKind::Corrupt => "store_corrupt",
        StoreErrorKind::Internal => "store_internal",
    };
    let said = format!("The store could not do it ({}).", error.what);
    if matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Internal) && effect != Effect::Read {
        return cut(word, &said).with_detail(error.detail.clone());
    }
    let outcome = if error.is_retryable() { Outcome::transient(word, said) } else { Outcome::permanent(word, said) };
    outcome.with_detail(error.detail.clone())
}

fn io_outcome(said: String, kind: io::ErrorKind, effect: Effect) -> Outcome {
    match kind {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Outcome::permanent("io_denied", said),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Outcome::transient("disk_full", said),
        _ if effect != Effect::Read => cut("io", &said),
        _ => Outcome::transient("io", said),
    }
}

/// The outcome of a run that failed where its effect may have taken place already. The breaker resumes an idempotent one under
/// its intent; another one is told as it is, so that no caller tries it again as if nothing had happened.
fn cut(error_type: &str, said: &str) -> Outcome {
    Outcome::unknown(format!("{said} Its effect may or may not have happened."), json!({"broke_off": error_type}))
}
