//! The arguments of `annie top` and of commands that show the same again.

use clap::{Args, ValueEnum};

/// Repeats a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct Watch {
    /// Show it again every so many seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub watch: Option<u64>,
}

/// `annie top`
#[derive(Debug, Clone, Args)]
pub struct Top {
    /// What the actors are sorted by
    #[arg(long, value_enum, default_value_t = TopBy::Busy)]
    pub by: TopBy,
    /// Maximum number of actors
    #[arg(long = "limit", short = 'n', default_value_t = 20, value_parser = number)]
    pub number: usize,
    /// Seconds between two measurements
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub every: u64,
    /// Measure once and end
    #[arg(long)]
    pub once: bool,
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=5_000).contains(n)).ok_or_else(|| "write a number from 1 to 5000".to_owned())
}

/// The order of actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopBy {
    /// Time in handlers
    Busy,
    /// Messages handled per second
    Messages,
    /// Messages waiting
    Mailbox,
}
