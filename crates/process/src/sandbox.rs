//! What a sandboxed program may do.

use std::{ffi::OsString, fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

/// How much of the sandbox the operating system must enforce.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLevel {
    /// All of it: otherwise the program is not started.
    #[default]
    Strict,
    /// The seccomp filter, and as much of Landlock as this kernel has, but at least its rules for files.
    BestEffort,
}

impl SandboxLevel {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::BestEffort => "best_effort",
        }
    }

    /// Reads the name in the configuration.
    ///
    /// # Errors
    /// The names that exist.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = [Self::Strict, Self::BestEffort].into_iter().find(|level| level.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is no level: write strict or best_effort"))
    }
}

impl fmt::Display for SandboxLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a program may do besides computing. It may read the programs and libraries of the machine, and nothing else that is
/// not listed here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// The level that must be in force.
    pub level: SandboxLevel,
    /// The only folder in which the program may write, an absolute path.
    pub folder: PathBuf,
    /// Further folders and files that it may read and execute, as absolute paths. A missing one is ignored.
    pub read: Vec<PathBuf>,
    /// Whether it may open connections to other machines.
    pub network: bool,
}

impl Sandbox {
    /// The sandbox as flags of `annie __sandbox`.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = vec!["--level".into(), self.level.as_str().into()];
        flags.extend([OsString::from("--folder"), self.folder.clone().into()]);
        for path in &self.read {
            flags.extend([OsString::from("--read"), path.clone().into()]);
        }
        flags.extend(self.network.then(|| OsString::from("--network")));
        flags
    }
}
