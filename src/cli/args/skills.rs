//! The arguments of `annie skills`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum, ValueHint};

/// `annie skills`
#[derive(Debug, Subcommand)]
pub enum Skills {
    /// List all skills
    List {
        /// Only skills of this domain
        domain: Option<String>,
    },
    /// List the slash commands, such as /commit
    Commands,
    /// Show how to use a skill
    Help {
        /// The skill's name: tasks.create
        name: String,
    },
    /// Run a skill on your own data, without a model; a prompt skill in the background
    #[command(after_help = "Example: annie skills run tasks.search --status overdue")]
    Run {
        /// Run it also if it reaches other machines, or cannot be undone or repeated
        #[arg(long)]
        yes: bool,
        /// The skill and its flags
        #[arg(required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// List the problems of all skill files: what is not used, what replaces another skill, and how to fix it
    Problems,
    /// Check skill files: errors fail the command, and with --strict warnings too
    Validate {
        /// Treat warnings as errors, as programs with the published format do
        #[arg(long)]
        strict: bool,
        /// A folder of skills, one skill's folder, or a file; default: the data folder's
        #[arg(value_hint = ValueHint::AnyPath)]
        path: Option<PathBuf>,
    },
    /// Begin a new skill: write a file with the places to fill in into your folder of skills
    #[command(after_help = "Example: annie skills new weather.now --kind request")]
    New {
        /// The skill's name: one word for a prompt skill, otherwise a domain and a verb: weather.now
        name: String,
        /// What the skill is
        #[arg(long, value_enum, default_value_t = SkillKind::Prompt)]
        kind: SkillKind,
    },
    /// Show the file of a skill, where it comes from, and whether it may run
    Show {
        /// The skill's name
        name: String,
    },
    /// Try a skill, also one that sends a request
    #[command(after_help = "Example: annie skills test weather.now --city Berlin")]
    Test {
        /// Try it also if its effect cannot be undone or repeated
        #[arg(long)]
        yes: bool,
        /// The skill and its flags
        #[arg(required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Approve the content of a skill that a conversation wrote, so that it may run
    Approve {
        /// The skill's name
        name: String,
        /// The hash of the content that you have read; without it the content is shown at a terminal, and you are asked
        #[arg(long)]
        hash: Option<String>,
    },
    /// Withdraw the approval of a skill, so that it no longer runs
    Withdraw {
        /// The skill's name
        name: String,
    },
}

/// What a new skill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SkillKind {
    /// Instructions for the model
    Prompt,
    /// An HTTP request
    Request,
    /// A program in the sandbox
    Script,
}
