//! Problems of skill files: location, description, and fix.

use std::fmt;

use serde::Serialize;

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file is not used; its last good version or the bundled one stays in use.
    Error,
    /// The file is used, but strict validation refuses it.
    Lenient,
    /// The file is valid and used, but a feature that it requests is not supported.
    Unsupported,
    /// Information only; nothing is refused.
    Notice,
}

impl Severity {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Lenient => "lenient",
            Self::Unsupported => "unsupported",
            Self::Notice => "notice",
        }
    }
}

/// One problem of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file's path, relative to the skills folder.
    pub file: String,
    /// The line in the file, counted from 1, if it is known.
    pub line: Option<u32>,
    /// The severity.
    pub severity: Severity,
    /// The problem.
    pub what: String,
    /// How to fix the problem.
    pub fix: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Lenient => "not strict",
            Severity::Unsupported => "not supported",
            Severity::Notice => "notice",
        };
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {word}: {}; {}", self.what, self.fix)
    }
}

/// Collects the problems of one file.
pub(crate) struct Report {
    file: String,
    found: Vec<Problem>,
}

impl Report {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), found: Vec::new() }
    }

    pub(crate) fn error(&mut self, line: Option<u32>, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Error, line, what.into(), fix.into());
    }

    pub(crate) fn lenient(&mut self, line: Option<u32>, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Lenient, line, what.into(), fix.into());
    }

    pub(crate) fn unsupported(&mut self, line: Option<u32>, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Unsupported, line, what.into(), fix.into());
    }

    pub(crate) fn notice(&mut self, line: Option<u32>, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Notice, line, what.into(), fix.into());
    }

    fn add(&mut self, severity: Severity, line: Option<u32>, what: String, fix: String) {
        self.found.push(Problem { file: self.file.clone(), line, severity, what, fix });
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.found.iter().any(|p| p.severity == Severity::Error)
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.found
    }
}
