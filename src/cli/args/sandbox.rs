//! The arguments of the hidden command that enters the sandbox.

use std::{ffi::OsString, path::PathBuf};

use annie_process::SandboxLevel;
use clap::Args;

/// `annie __sandbox`
#[derive(Debug, Default, Args)]
pub struct SandboxArgs {
    /// The level that must be in force
    #[arg(long, value_name = "LEVEL", value_parser = SandboxLevel::parse, default_value_t)]
    pub level: SandboxLevel,
    /// The only folder in which the program may write
    #[arg(long, value_name = "FOLDER")]
    pub folder: PathBuf,
    /// A folder or file that the program may read
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Let the program reach other machines
    #[arg(long)]
    pub network: bool,
    /// The process that is told whether the program started
    #[arg(long, value_name = "PID")]
    pub parent: Option<i32>,
    /// The descriptor of that process through which it is told
    #[arg(long, value_name = "FD", requires = "parent")]
    pub tell_fd: Option<i32>,
    /// The program and its arguments; without one, print what is in force
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}
