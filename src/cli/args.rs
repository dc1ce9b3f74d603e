//! The command line: every command, flag and its help.

mod chaos;
mod doctor;
mod migrate;
mod work;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use annie_core::{
    event::Mode,
    ids::{ConversationId, TaskId},
};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub use chaos::*;
pub use doctor::*;
pub use migrate::*;
pub use work::*;

use crate::door::check_key;

/// A kernel for AI agents: talk to it, look into it, operate it.
#[derive(Debug, Parser)]
#[command(name = "annie", version, propagate_version = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  annie ask \"Create a task to review PR 42 due tomorrow\"
  annie chat
  annie serve
  annie setup && annie doctor

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 not found, 4 not allowed, 5 unavailable, 6 answered but not done, 130 Ctrl-C.
Without a server, ask and chat run the kernel in this process on the data folder.";

/// Flags of every command.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Read this configuration file too; it wins over the usual ones
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Use this data folder
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data: Option<PathBuf>,
    /// Talk to the server at this address, and to no other
    #[arg(long, global = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub url: Option<String>,
    /// Show the server the key in this file
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,
    /// Write JSON on stdout, one object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// No colours, no drafts
    #[arg(long, global = true, visible_alias = "no-color")]
    pub plain: bool,
    /// Say nothing but data and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(Serve),
    /// Ask one thing, and see the agents and skills that work for the answer
    Ask(Ask),
    /// Talk, line by line
    Chat(Chat),
    /// How the server is
    Status,
    /// Look at the living actors, and operate them
    Actors {
        /// What to do.
        #[command(subcommand)]
        command: Actors,
    },
    /// Who waits for a model's round, where and why
    Queue,
    /// The voice gate: while somebody speaks, nothing but voice starts
    Gate {
        /// What to do.
        #[command(subcommand)]
        command: Gate,
    },
    /// The guarded doors to the skills
    Breakers {
        /// What to do.
        #[command(subcommand)]
        command: Breakers,
    },
    /// What was talked about, and the way out of quarantine
    Conversations {
        /// What to do.
        #[command(subcommand)]
        command: Conversations,
    },
    /// Messages and what became of them
    Tasks {
        /// What to do.
        #[command(subcommand)]
        command: Tasks,
    },
    /// What is being worked on, and what is done about it
    Jobs {
        /// What to do; default: list
        #[command(subcommand)]
        command: Option<Jobs>,
    },
    /// Dead letters: what failed in every way that was tried
    Dlq {
        /// What to do.
        #[command(subcommand)]
        command: DeadLetters,
    },
    /// Long-running work of skills, whose results come later
    Operations {
        /// What to do.
        #[command(subcommand)]
        command: Operations,
    },
    /// What was told beside the conversations
    Notifications(Notifications),
    /// What Annie can do
    #[command(disable_help_subcommand = true)]
    Skills {
        /// What to do.
        #[command(subcommand)]
        command: Skills,
    },
    /// API keys
    Key {
        /// What to do.
        #[command(subcommand)]
        command: Key,
    },
    /// The configuration
    Config {
        /// What to do.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Check data folder, database, skills, backends, disk and clock; with --probe, what the models can
    Doctor(Doctor),
    /// Look for model servers on this machine, try them, and write the configuration that fits
    Setup(Setup),
    /// Copy everything that is kept from SQLite to PostgreSQL, or back
    Migrate(Migrate),
    /// Inject faults into a server that was started for that, and prove what it survives
    Chaos {
        /// What to do.
        #[command(subcommand)]
        command: Chaos,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version,
    /// Run a program under limits, and end it with whoever started this
    #[command(name = "run-limited", hide = true)]
    RunLimited(RunLimited),
}

/// `annie run-limited`
#[derive(Debug, Default, Args)]
pub struct RunLimited {
    /// Address space, in bytes
    #[arg(long, value_name = "N")]
    pub as_bytes: Option<u64>,
    /// CPU time, in seconds
    #[arg(long, value_name = "N")]
    pub cpu_s: Option<u64>,
    /// Open files
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// Processes of this user
    #[arg(long, value_name = "N")]
    pub procs: Option<u64>,
    /// Give up if this is not the process that started it
    #[arg(long, value_name = "PID")]
    pub parent: Option<i32>,
    /// Tell through this descriptor of the parent that the program never began
    #[arg(long, value_name = "FD", requires = "parent")]
    pub tell_fd: Option<i32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `annie serve`
#[derive(Debug, Default, Args)]
pub struct Serve {
    /// Listen here
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub bind: Option<SocketAddr>,
    /// Listen on this port of the configured address; 0 takes a free one
    #[arg(long)]
    pub port: Option<u16>,
    /// Once ready, write address and process id as JSON into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ready_file: Option<PathBuf>,
    /// What is logged: error, warn, info, debug, trace, or for each module
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Start although the database is empty and the data folder says that it was not
    #[arg(long)]
    pub accept_empty_database: bool,
}

/// Where a message is said.
#[derive(Debug, Clone, Default, Args)]
pub struct Place {
    /// Talk in this conversation: its id, or any name of your own
    #[arg(long, short, value_name = "ID|NAME", conflicts_with = "new", value_parser = Named::parse)]
    pub conversation: Option<Named>,
    /// Begin a new conversation, which the next commands go on with
    #[arg(long)]
    pub new: bool,
    /// How the turn runs
    #[arg(long, value_enum)]
    pub mode: Option<ModeArg>,
}

/// `annie ask`
#[derive(Debug, Default, Args)]
#[command(
    after_help = "Examples:\n  annie ask \"what is due?\"\n  git diff | annie ask -\n  annie ask --json \"what is due?\" | jq -r 'select(.kind == \"result\").text'"
)]
pub struct Ask {
    /// What to say; `-` reads it from stdin
    #[arg(required = true, num_args = 1..)]
    pub text: Vec<String>,
    /// Where to say it.
    #[command(flatten)]
    pub place: Place,
    /// What else it wishes.
    #[command(flatten)]
    pub more: More,
}

/// `annie chat`
#[derive(Debug, Default, Args)]
#[command(
    after_help = "Inside: /help, /status, /steer TEXT, /new, /quit; and what is being done is asked and told in plain words: \"what are you working on?\", \"cancel that\". Ctrl-C stops the running answer, twice it ends the chat."
)]
pub struct Chat {
    /// Where to say it.
    #[command(flatten)]
    pub place: Place,
    /// Nothing that is said leaves the house: only local backends may run it
    #[arg(long)]
    pub private: bool,
}

/// How turns run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// An orchestrator with sub-agents
    #[value(name = "multi_agent")]
    MultiAgent,
    /// One agent with all skills behind one tool
    #[value(name = "single_loop")]
    SingleLoop,
    /// One agent with a tool for each skill
    #[value(name = "direct")]
    Direct,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::MultiAgent => Self::MultiAgent,
            ModeArg::SingleLoop => Self::SingleLoop,
            ModeArg::Direct => Self::Direct,
        }
    }
}

/// `annie actors`
#[derive(Debug, Subcommand)]
pub enum Actors {
    /// All of them
    Tree(TreePage),
    /// One of them, with its own view of its state
    Show {
        /// Where it stands: /scheduler
        path: String,
    },
    /// End one in good order; a permanent one starts again
    Stop(OneActor),
    /// End one at once, as a fault would
    Kill(OneActor),
    /// End one and start it again
    Restart(OneActor),
    /// The last deaths that nobody asked for
    Crashes,
}

/// Which part of the tree.
#[derive(Debug, Clone, Args)]
pub struct TreePage {
    /// Only what stands here or below: /conversations
    #[arg(long, value_name = "PATH")]
    pub under: Option<String>,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub limit: u32,
    /// Go on behind an earlier list, with the word that it ended with
    #[arg(long, value_name = "PLACE")]
    pub next: Option<String>,
}

/// Which life of which actor.
#[derive(Debug, Clone, Args)]
pub struct OneActor {
    /// Where it stands: /scheduler
    pub path: String,
    /// Only this life of it, as `tree` shows it
    #[arg(long, value_name = "N")]
    pub incarnation: Option<u64>,
    /// Also the root, `/`: the whole server ends with it
    #[arg(long)]
    pub force: bool,
}

/// `annie breakers`
#[derive(Debug, Subcommand)]
pub enum Breakers {
    /// Circuit breakers with their state: of skills called since the start, and those left open before it
    List,
    /// Close a skill's breaker: its next call passes
    Reset {
        /// The skill's name: tasks.create
        skill: String,
    },
}

/// Which part of a list.
#[derive(Debug, Clone, Args)]
pub struct PageArgs {
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
    /// Go on behind an earlier list, with the word that it ended with
    #[arg(long, value_name = "PLACE")]
    pub next: Option<String>,
}

/// `annie conversations`
#[derive(Debug, Subcommand)]
pub enum Conversations {
    /// The newest ones
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Those of stateless API calls too
        #[arg(long)]
        all: bool,
    },
    /// Take a parked one out of quarantine; with the scope ops:control also another user's
    Resume {
        /// Its id
        id: ConversationId,
    },
}

/// `annie tasks`
#[derive(Debug, Subcommand)]
pub enum Tasks {
    /// The newest ones
    List {
        /// Only those that have not ended
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// One of them
    Show {
        /// Its id
        id: TaskId,
    },
    /// Stop one
    Cancel {
        /// Its id
        id: TaskId,
    },
}

/// `annie skills`
#[derive(Debug, Subcommand)]
pub enum Skills {
    /// All of them
    List {
        /// Only those of this domain
        domain: Option<String>,
    },
    /// How to use one
    Help {
        /// Its name: tasks.create
        name: String,
    },
    /// Check skill files strictly
    Validate {
        /// A folder of skills, one skill's folder, or a file; default: the data folder's
        #[arg(value_hint = ValueHint::AnyPath)]
        path: Option<PathBuf>,
    },
}

/// `annie key`
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make one; its text is shown this once
    Create {
        /// A name for people
        name: String,
        /// Whose data it opens; default: server.user
        #[arg(long)]
        user: Option<String>,
        /// What it may do: chat, jobs:read, jobs:control, ops:read, ops:control, admin, impersonate, voice
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', default_values = ["chat", "jobs:read", "jobs:control"])]
        scopes: Vec<String>,
        /// It ends after so many days
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: Option<u32>,
        /// Write its text into this new file of mode 0600 instead of stdout
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
    },
    /// All of them, without their secrets
    List,
    /// End one for good
    Revoke {
        /// Its id, as `list` shows it
        id: String,
    },
}

/// `annie config`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Write a commented file of mode 0600
    Init {
        /// Where; default: the user's own
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Check a file, or everything that counts
    Check {
        /// This file alone
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// What counts, secrets masked
    Show {
        /// Also where each value comes from
        #[arg(long)]
        origin: bool,
    },
}

/// A conversation as people name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// By its id.
    Id(ConversationId),
    /// By a name of their own.
    Key(String),
}

impl Named {
    /// An id if it is one, otherwise a name.
    ///
    /// # Errors
    /// If it looks like an id and is none: nobody means a new conversation by that. If no door takes such a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(e) if text.starts_with("conv_") => Err(annie_core::ids::IdError::to_string(&e)),
            Err(_) => check_key(text).map(|()| Self::Key(text.to_owned())).map_err(|fault| fault.detail),
        }
    }
}
