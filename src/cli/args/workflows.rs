//! The arguments of `annie workflows`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

/// `annie workflows`
#[derive(Debug, Subcommand)]
pub enum Workflows {
    /// List the workflows
    List,
    /// Show a workflow by its name, or the steps of a run by its task
    Show {
        /// The name of a workflow, or the id of a run's task
        what: String,
    },
    /// Run a workflow as a background task
    #[command(after_help = "Example: annie workflows run digest --arg topic=tea --arg days=3")]
    Run {
        /// The name of the workflow
        name: String,
        /// An argument: NAME=VALUE
        #[arg(long = "arg", value_name = "NAME=VALUE")]
        args: Vec<String>,
        /// The idempotency key: a repetition with the same key is the same run
        #[arg(long)]
        key: Option<String>,
        /// Only local backends may run its agents
        #[arg(long)]
        private: bool,
    },
    /// Check the file of a workflow, and print all problems at once
    Validate {
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}
