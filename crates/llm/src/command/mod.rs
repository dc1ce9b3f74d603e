//! A program as a backend: one round is one run of a configured command-line agent. No shell is involved. The argument list
//! is fixed except for the prompt, which is one argument or stdin. The program gets an empty environment except for the
//! variables that are passed on, and a process group of its own that ends with the call. Its time and its output are
//! limited and, through the shim, its memory, CPU, files and processes.

mod config;
mod hook;
mod outcome;
mod prompt;
mod run;

use std::{fmt, path::Path};

use annie_core::{
    message::{ModelError, ModelErrorKind, ModelReply, ModelRequest},
    ports::{DraftSink, Fut, Model},
};

use annie_process::Launch;
pub use annie_process::ProcessLimits;
pub use config::{CommandConfig, FailureWords};
pub use hook::ProgramHook;

use crate::error::LlmError;

/// A model behind a program on this machine.
pub struct CommandModel {
    config: CommandConfig,
    /// The whole environment of the program.
    environment: Vec<(String, String)>,
}

impl CommandModel {
    /// Creates a model for one configured program. `lookup` reads the variables of this process that are passed on. Does
    /// not start the program.
    ///
    /// # Errors
    /// Fails if a setting is invalid.
    pub fn new(config: CommandConfig, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, LlmError> {
        config.validate()?;
        let passed = config.env_pass.iter().filter_map(|name| Some((name.clone(), lookup(name)?)));
        let own = config.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let environment = passed.chain(own).collect();
        Ok(Self { config, environment })
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &CommandConfig {
        &self.config
    }

    /// The start of the program for one prompt. The operator named the program, so it has no sandbox.
    fn launch(&self, prompt: String) -> Launch {
        let config = &self.config;
        Launch {
            program: config.program.clone(),
            args: prompt::fill(&config.args, &prompt),
            environment: self.environment.clone(),
            folder: config.folder.clone(),
            input: (!config.is_prompt_an_argument()).then(|| prompt.into_bytes()),
            run_ms_max: config.run_ms_max,
            output_bytes_max: config.output_bytes_max,
            stderr_bytes_max: config.stderr_bytes_max,
            limits: config.limits,
            shim: config.shim.clone(),
            sandbox: None,
        }
    }
}

impl fmt::Debug for CommandModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Model for CommandModel {
    fn id(&self) -> &str {
        &self.config.name
    }

    fn about(&self) -> String {
        let program = self.config.program.file_name().unwrap_or_default().to_string_lossy();
        format!("an agentic program: `{program}` as the backend `{}`", self.config.name)
    }

    fn call<'a>(&'a self, request: &'a ModelRequest, drafts: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>> {
        Box::pin(run::run(self, request, drafts))
    }

    fn check(&self) -> Fut<'_, Result<(), ModelError>> {
        Box::pin(async move {
            is_there(&self.config.program, "program", |m| m.is_file() && is_executable(m)).await?;
            is_there(&self.config.folder, "folder", std::fs::Metadata::is_dir).await
        })
    }
}

async fn is_there(path: &Path, setting: &str, is_right: impl Fn(&std::fs::Metadata) -> bool) -> Result<(), ModelError> {
    let wrong =
        |why: &str| ModelError::new(ModelErrorKind::Unavailable, format!("{setting} {}: {why}", path.display()));
    let found = tokio::fs::metadata(path).await.map_err(|e| wrong(&e.to_string()))?;
    if is_right(&found) { Ok(()) } else { Err(wrong("it is not what is needed")) }
}

fn is_executable(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests;
