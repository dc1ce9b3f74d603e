//! Configuration errors: location, problem and fix. No text repeats a value that may be secret.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The source of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// The built-in default.
    Default,
    /// A file; line and column count from 1 and are absent if unknown.
    File {
        /// The path of the file.
        path: PathBuf,
        /// Line and column.
        at: Option<(usize, usize)>,
    },
    /// An environment variable.
    Environment(String),
    /// A command-line flag.
    Flag(String),
}

impl Location {
    /// A file without a line.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self::File { path: path.to_owned(), at: None }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, at: None } => path.display().fmt(f),
            Self::File { path, at: Some((line, column)) } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// An error in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {what}{}", others(.fix, .more))]
pub struct ConfigError {
    /// The location of the error.
    pub location: Location,
    /// The problem.
    pub what: String,
    /// How to fix it.
    pub fix: String,
    /// Further errors.
    pub more: Vec<Self>,
}

/// The other errors, each on its own line. If there are several errors, each line includes its fix.
fn others(fix: &str, more: &[ConfigError]) -> String {
    let own = if more.is_empty() { String::new() } else { format!(" ({fix})") };
    more.iter().fold(own, |text, e| format!("{text}\n{}: {} ({})", e.location, e.what, e.fix))
}

impl ConfigError {
    /// Combines several errors into one, in the order of their locations.
    pub(crate) fn all(mut errors: Vec<Self>) -> Option<Self> {
        errors.sort_by_key(|e| match &e.location {
            Location::File { path, at } => (Some(path.clone()), *at),
            _ => (None, None),
        });
        errors.dedup();
        let mut errors = errors.into_iter();
        let first = errors.next()?;
        Some(Self { more: errors.collect(), ..first })
    }

    pub(crate) fn new(location: Location, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { location, what: what.into(), fix: fix.into(), more: Vec::new() }
    }
}
