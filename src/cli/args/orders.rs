//! The arguments of the commands about what operators did, and about their orders.

use clap::{Args, Subcommand};

use super::{ClassArg, work::age_ms};

/// `annie actions`
#[derive(Debug, Clone, Args)]
pub struct Actions {
    /// Only actions about this target, or about an actor below it: /scheduler
    #[arg(long, value_name = "TARGET")]
    pub under: Option<String>,
    /// Only actions of the last: 30m, 6h, 2d
    #[arg(long, value_name = "AGE", value_parser = age_ms)]
    pub newer_than: Option<i64>,
    /// Only actions at this time or later, RFC 3339: 2026-02-18T15:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "newer_than")]
    pub from: Option<String>,
    /// Only actions before this time, RFC 3339
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// Maximum number of entries
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
    /// Continue an earlier list; the cursor is printed at its end
    #[arg(long, value_name = "CURSOR")]
    pub next: Option<String>,
}

/// The reason of an order, and whether it is only tried.
#[derive(Debug, Clone, Args)]
pub struct Because {
    /// Why; the record of actions shows it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Only say what would happen
    #[arg(long)]
    pub dry_run: bool,
}

/// `annie classes`
#[derive(Debug, Subcommand)]
pub enum Classes {
    /// Pause a class: no further round of it starts, also after a restart
    Pause {
        /// The class
        class: ClassArg,
        #[command(flatten)]
        because: Because,
    },
    /// Resume a paused class
    Resume {
        /// The class
        class: ClassArg,
        /// Why; the record of actions shows it
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// `annie log`
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Show the level of the server's log
    Show,
    /// Set the level of the server's log until its next start
    Level {
        /// error, warn, info, debug, trace, or levels per module: info,annie_actors=debug; "" restores the configured one
        level: String,
        /// Why; the record of actions shows it
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// `annie actors reset-budget`
#[derive(Debug, Clone, Args)]
pub struct BudgetArgs {
    /// The path of a supervisor or of an Engine: /infra
    pub path: String,
    /// Only if the actor has this incarnation number, as `tree` shows it
    #[arg(long, value_name = "N")]
    pub incarnation: Option<u64>,
    /// Why; the record of actions shows it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}
