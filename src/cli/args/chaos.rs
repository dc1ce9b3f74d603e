//! The commands of fault injection.

use std::path::PathBuf;

use annie_chaos::{FaultKind, Target};
use clap::{Args, Subcommand, ValueHint};

/// `annie chaos`
#[derive(Debug, Subcommand)]
pub enum Chaos {
    /// List the fault points that were passed since the start
    Points {
        /// Only those that contain this text
        text: Option<String>,
    },
    /// Inject a fault
    Inject(Inject),
    /// List the injected faults, with how often they took effect
    List,
    /// Remove faults
    Clear {
        /// Only the fault with this id
        id: Option<u64>,
    },
    /// Count the `once` effects, from a file that survives kills
    Effects {
        /// Only effects whose marker starts with this
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Send load, inject faults, and check that nothing was lost, doubled or repeated
    Run(Run),
}

/// The fault kinds of each target, one line each, and examples.
fn kinds_and_examples() -> String {
    let words =
        |target: Target| target.kinds().iter().map(|kind: &FaultKind| kind.as_str()).collect::<Vec<_>>().join(", ");
    let lines: String =
        Target::ALL.iter().map(|target| format!("  {:<8} {}\n", target.as_str(), words(*target))).collect();
    format!("Faults:\n{lines}\n{EXAMPLES}")
}

const EXAMPLES: &str = "\
Examples:
  annie chaos inject actor kill --at engine --point 'before:*' --chance 20 --for 10
  annie chaos inject store lose_reply --at commit --once
  annie chaos inject store stale --at events --wait-ms 200 --once
  annie chaos inject mail twice --at conversations --point 'arrival:*'
  annie chaos inject model slow --wait-ms 800
  annie chaos inject clock jump --by-ms=-3600000 --for 5
  annie chaos inject task abort --at commit --point after --skip 4 --once";

/// `annie chaos inject`
#[derive(Debug, Args)]
#[command(after_help = kinds_and_examples())]
pub struct Inject {
    /// actor, task, mail, store, model, skill, clock, files or process
    pub target: String,
    /// The fault: one of those below that the target supports
    pub kind: String,
    /// The actor (kind or path), step of a task or store, backend or skill; `*` matches any text
    #[arg(long, value_name = "PLACE", default_value = "*")]
    pub at: String,
    /// The fault point in it: before:Wake, mailbox:Append, arrival:Wake, after; `*` matches any text
    #[arg(long, default_value = "*")]
    pub point: String,
    /// How long the fault waits, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub wait_ms: u32,
    /// How far the clock jumps, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0, allow_hyphen_values = true)]
    pub by_ms: i64,
    /// Number of passes before the first injection
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: u64,
    /// Maximum number of injections; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub injections: u64,
    /// Inject only once
    #[arg(long, conflicts_with = "injections")]
    pub once: bool,
    /// Probability of each pass, in permille
    #[arg(long, value_name = "PERMILLE", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub chance: u32,
    /// Seed of the choice: the same seed injects at the same passes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Duration of the fault in seconds; 0 is no limit
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 0)]
    pub for_s: u64,
}

/// `annie chaos run`
#[derive(Debug, Args)]
#[command(after_help = "\
With --url, or if a server runs on the data folder that is named with --data, the faults are injected into that server: it
must have `[chaos] enabled = true`. Otherwise the command starts its own server on a temporary folder, with the offline
planner, and restarts it whenever it dies. Scenarios that end the process need that.")]
pub struct Run {
    /// The scenario, or `all`; `list` shows them
    #[arg(required_unless_present = "plan")]
    pub scenario: Option<String>,
    /// Inject the faults of this file: `wait MILLISECONDS` or the arguments of `inject` on each line
    #[arg(long, value_name = "FILE", conflicts_with = "scenario", value_hint = ValueHint::FilePath)]
    pub plan: Option<PathBuf>,
    /// Number of concurrent users
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub users: u32,
    /// Minimum number of messages of each user
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub messages: u32,
    /// How long faults are injected, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub window_ms: u64,
    /// How long to wait for open messages after the faults, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    pub patience_ms: u64,
    /// Seed; the same seed injects the same faults; default: a random one, which is printed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Use this folder instead of a temporary one, and keep it: it must be empty or absent
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub keep: Option<PathBuf>,
}
