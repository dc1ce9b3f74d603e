//! The commands of fault injection.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::chaos::{Deed, Target};

/// `annie chaos`
#[derive(Debug, Subcommand)]
pub enum Chaos {
    /// The places that were passed since the start: where a fault can strike
    Points {
        /// Only those that contain this
        text: Option<String>,
    },
    /// Put a fault on the list
    Inject(Inject),
    /// The faults on the list, with how often they struck
    List,
    /// Take faults off the list
    Clear {
        /// Only this one
        id: Option<u64>,
    },
    /// What was done once, as counted outside of everything that is killed
    Effects {
        /// Only those whose marker begins so
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Send load, inject faults, and check that nothing was lost, doubled or repeated
    Run(Run),
}

/// What strikes where, a line for each target, and how it is said.
fn deeds_and_examples() -> String {
    let words = |target: Target| target.deeds().iter().map(|deed: &Deed| deed.as_str()).collect::<Vec<_>>().join(", ");
    let lines: String =
        Target::ALL.iter().map(|target| format!("  {:<8} {}\n", target.as_str(), words(*target))).collect();
    format!("Deeds:\n{lines}\n{EXAMPLES}")
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
#[command(after_help = deeds_and_examples())]
pub struct Inject {
    /// actor, task, mail, store, model, skill, clock, files or process
    pub target: String,
    /// What it does: one of those below that strike there
    pub deed: String,
    /// Which one: an actor's kind or path, a task's or store's step, a backend, a skill; `*` is any text
    #[arg(long, value_name = "PLACE", default_value = "*")]
    pub at: String,
    /// Where in it: before:Wake, mailbox:Append, arrival:Wake, after; `*` is any text
    #[arg(long, default_value = "*")]
    pub point: String,
    /// For how long, if it waits
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub wait_ms: u32,
    /// How far the clock jumps
    #[arg(long, value_name = "MS", default_value_t = 0, allow_hyphen_values = true)]
    pub by_ms: i64,
    /// Let so many passings be before the first strike
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: u64,
    /// Strike so often at most
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub strikes: u64,
    /// Strike once
    #[arg(long, conflicts_with = "strikes")]
    pub once: bool,
    /// Out of a thousand passings so many
    #[arg(long, value_name = "PERMILLE", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub chance: u32,
    /// Which of them: the same seed strikes the same passings
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 0)]
    pub for_s: u64,
}

/// `annie chaos run`
#[derive(Debug, Args)]
#[command(after_help = "\
With --url, or where a server runs on the data folder that is named with --data, that server is struck: it must have
`[chaos] enabled = true`. Otherwise a server of its own is started on a throwaway folder, with the offline planner, and
started again whenever it dies. Scenarios that end the process need that.")]
pub struct Run {
    /// Which scenario, or `all`; `list` names them
    pub scenario: String,
    /// Users that send at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub users: u32,
    /// Messages that each of them sends at least
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub messages: u32,
    /// How long the faults go on, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub window_ms: u64,
    /// How long to wait for what is open when the faults are over, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    pub patience_ms: u64,
    /// The same seed injects the same faults; default: a fresh one, which is printed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Keep the throwaway folder, and put it here: a folder that is empty or not there yet
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub keep: Option<PathBuf>,
}
