//! What is wrong with a configuration: where, what, and how to put it right. No text of these repeats a value that may be
//! secret.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nobody said anything.
    Default,
    /// A file, with line and column from 1 where they are known.
    File {
        /// Which.
        path: PathBuf,
        /// Line and column.
        at: Option<(usize, usize)>,
    },
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl Place {
    /// Somewhere in a file.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self::File { path: path.to_owned(), at: None }
    }
}

impl fmt::Display for Place {
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

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}{}", others(.fix, .more))]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub what: String,
    /// How to put it right.
    pub fix: String,
    /// What else is wrong.
    pub more: Vec<Self>,
}

/// The other mistakes, each on a line of its own. Where there are several, each has its fix beside it.
fn others(fix: &str, more: &[ConfigError]) -> String {
    let own = if more.is_empty() { String::new() } else { format!(" ({fix})") };
    more.iter().fold(own, |text, e| format!("{text}\n{}: {} ({})", e.place, e.what, e.fix))
}

impl ConfigError {
    /// Several mistakes as one error, in the order of their places.
    pub(crate) fn all(mut errors: Vec<Self>) -> Option<Self> {
        errors.sort_by_key(|e| match &e.place {
            Place::File { path, at } => (Some(path.clone()), *at),
            _ => (None, None),
        });
        errors.dedup();
        let mut errors = errors.into_iter();
        let first = errors.next()?;
        Some(Self { more: errors.collect(), ..first })
    }

    pub(crate) fn new(place: Place, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { place, what: what.into(), fix: fix.into(), more: Vec::new() }
    }
}
