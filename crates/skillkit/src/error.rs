//! Errors of skills, and their conversion into outcomes.

use std::io;

use annie_core::{
    outcome::Outcome,
    ports::{EgressError, StoreError, StoreErrorKind},
    skill::{Effect, SkillSpec},
};
use serde_json::json;

use annie_core::state::UNSET_STATE;

/// Why a skill failed.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// An argument is invalid; the flag is named without dashes.
    #[error("--{flag} {what}")]
    Argument {
        /// The flag.
        flag: String,
        /// The problem, as the rest of a sentence.
        what: String,
    },
    /// The arguments contradict each other, or are not an object.
    #[error("{0}")]
    Arguments(String),
    /// The requested thing does not exist.
    #[error("{what}")]
    NotFound {
        /// The missing thing, as a sentence.
        what: String,
        /// Similar existing names.
        near: Vec<String>,
    },
    /// A text needs values of the state that are not set.
    #[error("{0}")]
    Unset(String),
    /// The request conflicts with an existing thing.
    #[error("{0}")]
    Conflict(String),
    /// A limit was exceeded.
    #[error("{0}")]
    TooLarge(String),
    /// A file that is not a text.
    #[error("{0}")]
    NotText(String),
    /// A path outside its folder.
    #[error("{0}")]
    Outside(String),
    /// The requested data is stored where this process cannot reach it.
    #[error("{0}")]
    Elsewhere(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// The attempted action.
        what: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A request to another machine got no usable response.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// Requests to other machines are switched off.
    #[error("requests to other machines are switched off; the operator can enable them with egress.enabled")]
    EgressOff,
    /// No search engine is configured.
    #[error("no search engine is configured; the operator can name one with web_search.kind")]
    NoSearch,
    /// This process starts no programs for skills.
    #[error("this process starts no programs for skills")]
    ProgramsOff,
    /// A program is not installed, or cannot be executed.
    #[error("{0}")]
    ProgramMissing(String),
    /// The operator has not listed the program.
    #[error("{0}")]
    NotAllowed(String),
    /// A conversation wrote the skill, and no person has approved its present content. Nothing was run.
    #[error("{0}")]
    AwaitsApproval(String),
    /// The sandbox is not in force on this machine at the required level. Nothing was run.
    #[error("the program was not run: {0}")]
    SandboxMissing(String),
    /// What a run needs cannot be prepared. Nothing was run.
    #[error("{what}: {source}")]
    Setup {
        /// The attempted action.
        what: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The skills folder cannot be watched.
    #[error("cannot watch the skills folder: {0}")]
    Watch(String),
    /// An error whose text names stored texts, which others may have written.
    #[error("{error}")]
    Naming {
        /// The error.
        error: Box<Self>,
        /// The origins of the texts.
        origins: Vec<String>,
    },
}

impl SkillError {
    pub(crate) fn argument(flag: &str, what: impl Into<String>) -> Self {
        Self::Argument { flag: flag.to_owned(), what: what.into() }
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::NotFound { what: what.into(), near: Vec::new() }
    }

    /// The error with the origins of the stored texts that it names.
    pub(crate) fn naming(self, origins: Vec<String>) -> Self {
        if origins.is_empty() { self } else { Self::Naming { error: Box::new(self), origins } }
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    /// Converts the error into the caller's outcome; for invalid arguments it includes the usage.
    pub(crate) fn into_outcome(self, spec: &SkillSpec) -> Outcome {
        let message = self.to_string();
        match self {
            Self::Argument { .. } | Self::Arguments(_) => {
                let usage = format!("{message}\nUsage: {}\nTry `{} --help`.", spec.synopsis(), spec.name);
                Outcome::permanent("invalid_arguments", usage)
            }
            Self::NotFound { near, .. } => Outcome::permanent("not_found", message).with_alternatives(near),
            Self::Unset(_) => Outcome::permanent(UNSET_STATE, message),
            Self::Conflict(_) => Outcome::permanent("conflict", message),
            Self::TooLarge(_) => Outcome::permanent("invalid_arguments", message),
            Self::NotText(_) => Outcome::permanent("binary_file", message),
            Self::Outside(_) => Outcome::blocked("outside_folder", message),
            Self::Elsewhere(_) => Outcome::blocked("elsewhere", message),
            Self::Store(error) => store_outcome(&error, spec.effect),
            Self::Io { source, .. } => io_outcome(message, source.kind(), spec.effect),
            Self::Egress(error) => egress_outcome(&error, spec.effect, Host::OfTheCaller),
            Self::EgressOff => Outcome::blocked("egress_off", message),
            Self::NoSearch => Outcome::blocked("search_off", message),
            Self::ProgramsOff => Outcome::blocked("programs_off", message),
            Self::ProgramMissing(_) => Outcome::permanent("program_missing", message),
            Self::NotAllowed(_) => Outcome::blocked("not_allowed", message),
            Self::AwaitsApproval(_) => Outcome::blocked("awaiting_approval", message),
            Self::SandboxMissing(_) => Outcome::blocked("sandbox_unavailable", message),
            Self::Setup { .. } | Self::Watch(_) => Outcome::transient("io", message),
            Self::Naming { error, origins } => error.into_outcome(spec).with_origins(origins),
        }
    }
}

/// A lost connection, for example, does not show whether a pending commit took effect.
fn store_outcome(error: &StoreError, effect: Effect) -> Outcome {
    let word = match error.kind {
        StoreErrorKind::Locked => "store_locked",
        StoreErrorKind::Full => "store_full",
        StoreErrorKind::Unavailable => "store_unavailable",
        StoreErrorKind::Corrupt => "store_corrupt",
        StoreErrorKind::Internal => "store_internal",
    };
    let message = format!("The store could not do it ({}).", error.what);
    if matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Internal) && effect != Effect::Read {
        return cut(word, &message).with_detail(error.detail.clone());
    }
    let outcome =
        if error.is_retryable() { Outcome::transient(word, message) } else { Outcome::permanent(word, message) };
    outcome.with_detail(error.detail.clone())
}

/// Who chose the host of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    /// The caller, by an argument. The types of failures begin with `site_`: they say nothing about the skill's health.
    OfTheCaller,
    /// The skill: it has one host, without which it does not work.
    OfTheSkill,
}

/// The outcome of a request without a usable response.
pub(crate) fn egress_outcome(error: &EgressError, effect: Effect, host: Host) -> Outcome {
    let message = format!("The request failed: {error}.");
    let (word, own_word, is_transient) = match error {
        EgressError::Invalid(_) => return Outcome::permanent("invalid_arguments", message),
        EgressError::Denied(_) => return Outcome::blocked("ssrf_blocked", message),
        EgressError::Credential(_) => return Outcome::blocked("credential_unavailable", message),
        EgressError::Setup(_) => return Outcome::permanent("egress_setup", message),
        EgressError::Unreached(_) => {
            let word = if host == Host::OfTheCaller { "site_unreachable" } else { "unreachable" };
            return Outcome::transient(word, format!("{message} Nothing was sent, so nothing has happened."));
        }
        EgressError::Timeout { .. } => ("site_timeout", "timeout", true),
        EgressError::Network(_) => ("site_unreachable", "unreachable", true),
        EgressError::TooLarge { .. } => ("site_too_large", "response_too_large", false),
        EgressError::ContentType(_) => ("site_content_type", "parse_error", false),
        EgressError::Redirects { .. } => ("site_redirects", "http_redirects", false),
    };
    let word = if host == Host::OfTheCaller { word } else { own_word };
    if effect != Effect::Read {
        return cut(word, &message);
    }
    if is_transient { Outcome::transient(word, message) } else { Outcome::permanent(word, message) }
}

fn io_outcome(message: String, kind: io::ErrorKind, effect: Effect) -> Outcome {
    match kind {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Outcome::permanent("io_denied", message),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Outcome::transient("disk_full", message),
        _ if effect != Effect::Read => cut("io", &message),
        _ => Outcome::transient("io", message),
    }
}

/// The outcome of a run that failed after its effect may have taken place. The breaker resumes an idempotent run under its
/// intent.
/// A `once` run is reported as unknown, so that no caller repeats it as if nothing had happened.
pub(crate) fn cut(error_type: &str, message: &str) -> Outcome {
    Outcome::unknown(format!("{message} Its effect may or may not have happened."), json!({"broke_off": error_type}))
}

#[cfg(test)]
mod tests {
    use annie_core::outcome::Status;

    use super::*;

    #[test]
    fn failed_request_of_a_skill_with_an_effect_leaves_the_effect_in_doubt() {
        for (error, read, once) in [
            (EgressError::Denied("no".into()), Status::ErrorBlocked, Status::ErrorBlocked),
            (EgressError::Invalid("no".into()), Status::ErrorPermanent, Status::ErrorPermanent),
            (EgressError::Timeout { ms_max: 1 }, Status::ErrorTransient, Status::Unknown),
            (EgressError::Unreached("no".into()), Status::ErrorTransient, Status::ErrorTransient),
            (EgressError::Network("no".into()), Status::ErrorTransient, Status::Unknown),
            (EgressError::TooLarge { bytes_max: 1 }, Status::ErrorPermanent, Status::Unknown),
        ] {
            let of = |effect| egress_outcome(&error, effect, Host::OfTheCaller).status;
            assert_eq!((of(Effect::Read), of(Effect::Once)), (read, once), "{error}");
        }
    }
}
