//! The settings of a program that serves as a backend. Only programs named here are ever started.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use annie_core::message::ModelErrorKind;
use annie_process::ProcessLimits;
use serde::{Deserialize, Serialize};

use super::prompt::PROMPT;
use crate::{Secret, error::LlmError};

/// Recognises the cause of a failed run. All conditions that are given must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureWords {
    /// The exit code.
    #[serde(default)]
    pub exit: Option<i32>,
    /// A text in stderr or stdout, compared without regard to case.
    #[serde(default)]
    pub contains: Option<String>,
    /// The kind of error that a match stands for.
    pub kind: ModelErrorKind,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandConfig {
    /// The name of this backend for people and routes.
    pub name: String,
    /// The program's absolute path.
    pub program: PathBuf,
    /// The program's arguments. If one contains `{prompt}`, the prompt replaces it and is on the command line, which every
    /// user of the machine may read. Otherwise the prompt goes to stdin.
    pub args: Vec<String>,
    /// The working directory, an absolute path.
    pub folder: PathBuf,
    /// Variables of Annie's own environment that the program gets; it gets no others of it.
    pub env_pass: Vec<String>,
    /// Further environment variables; their values are secrets.
    pub env: BTreeMap<String, Secret>,
    /// Time limit for one run, in milliseconds.
    pub run_ms_max: u64,
    /// Size limit for stdout, in bytes.
    pub output_bytes_max: usize,
    /// How many bytes from the end of stderr are kept for the error.
    pub stderr_bytes_max: usize,
    /// Size limit for the prompt, in bytes. The kernel accepts at most 128 KiB as one argument; stdin accepts more.
    pub prompt_bytes_max: usize,
    /// Limits that the kernel enforces.
    pub limits: ProcessLimits,
    /// Maps failures to kinds of error; the first match applies. By a match the operator also asserts that the failed run
    /// had no effect. A failure without a match is `truncated`: the program began and did not finish.
    pub failures: Vec<FailureWords>,
    /// The program that sets the limits and then runs the configured program: `annie` itself. Not a user setting. Without
    /// it there are no kernel limits, and the program outlives an Annie that is killed.
    #[serde(skip)]
    pub shim: Option<PathBuf>,
}

impl Default for CommandConfig {
    fn default() -> Self {
        Self {
            name: "command".to_owned(),
            program: PathBuf::new(),
            args: Vec::new(),
            folder: PathBuf::new(),
            env_pass: ["PATH", "HOME", "LANG", "TZ"].map(str::to_owned).into(),
            env: BTreeMap::new(),
            run_ms_max: 600_000,
            output_bytes_max: 1024 * 1024,
            stderr_bytes_max: 4 * 1024,
            prompt_bytes_max: Self::ARGUMENT_BYTES_MAX,
            limits: ProcessLimits::default(),
            failures: Vec::new(),
            shim: None,
        }
    }
}

impl CommandConfig {
    /// The kernel's limit for one argument with its terminator, less an allowance for the text around the prompt.
    const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1_024;

    /// Whether the prompt is an argument; otherwise it goes to stdin.
    #[must_use]
    pub fn is_prompt_an_argument(&self) -> bool {
        self.args.iter().any(|a| a.contains(PROMPT))
    }

    /// Checks the settings without accessing the machine.
    ///
    /// # Errors
    /// Returns the first invalid setting.
    pub fn validate(&self) -> Result<(), LlmError> {
        let first = self.problems().into_iter().next();
        first.map_or(Ok(()), |what| Err(LlmError::Config { name: self.name.clone(), what }))
    }

    /// Every invalid setting, as far as that can be determined without running the program.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (setting, path) in [("program", &self.program), ("folder", &self.folder)] {
            if path.as_os_str().is_empty() {
                found.push(format!("{setting} is missing"));
            } else if !path.is_absolute() {
                found.push(format!("{setting} {:?} is not a whole path", path.display().to_string()));
            }
        }
        if self.args.iter().map(|a| a.matches(PROMPT).count()).sum::<usize>() > 1 {
            found.push(format!("args has {PROMPT} more than once"));
        }
        if self.is_prompt_an_argument() && takes_code(&self.program, &self.args) {
            found.push("a shell must not be given the prompt as code; name the program itself".to_owned());
        }
        let names = self.env_pass.iter().chain(self.env.keys());
        if let Some(name) = names.into_iter().find(|n| n.is_empty() || n.contains(['=', '\0'])) {
            found.push(format!("{name:?} is no name of a variable"));
        }
        let values = self.env.values().map(Secret::expose).chain(self.args.iter().map(String::as_str));
        if values.into_iter().any(|text| text.contains('\0')) {
            found.push("args or env has a NUL".to_owned());
        }
        for (setting, value) in [
            ("run_ms_max", self.run_ms_max),
            ("output_bytes_max", self.output_bytes_max as u64),
            ("prompt_bytes_max", self.prompt_bytes_max as u64),
        ] {
            if value == 0 {
                found.push(format!("{setting} must be at least 1"));
            }
        }
        if self.is_prompt_an_argument() && self.prompt_bytes_max > Self::ARGUMENT_BYTES_MAX {
            let max = Self::ARGUMENT_BYTES_MAX;
            found.push(format!("prompt_bytes_max is more than the {max} that fit into an argument; use stdin"));
        }
        let is_vague = |f: &&FailureWords| f.exit.is_none() && f.contains.as_ref().is_none_or(String::is_empty);
        if self.failures.iter().any(|f| is_vague(&f)) {
            found.push("failures: an entry has neither `exit` nor `contains`".to_owned());
        }
        found
    }

    /// Masks every secret of the program's environment in a text.
    pub(super) fn scrub(&self, text: &str) -> String {
        self.env.values().fold(text.to_owned(), |text, secret| secret.scrub(&text))
    }
}

/// Whether the program is a shell that would execute an argument as code.
fn takes_code(program: &Path, args: &[String]) -> bool {
    const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox"];
    let is_shell = program.file_name().and_then(|n| n.to_str()).is_some_and(|n| SHELLS.contains(&n));
    is_shell && args.iter().any(|a| a.starts_with('-') && !a.starts_with("--") && a.contains('c'))
}
