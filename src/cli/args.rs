//! The command line: every command, flag and its help.

mod agents;
mod chaos;
mod data;
mod doctor;
mod events;
mod examples;
mod migrate;
mod orders;
mod own;
mod replay;
mod sandbox;
mod skills;
mod top;
mod work;
mod workflows;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use annie_core::{
    event::Mode,
    ids::{ConversationId, TaskId},
};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub use agents::*;
pub use chaos::*;
pub use data::*;
pub use doctor::*;
pub use events::*;
pub use examples::{command_line, parsed};
pub use migrate::*;
pub use orders::*;
pub use own::*;
pub use replay::*;
pub use sandbox::*;
pub use skills::*;
pub use top::*;
pub use work::*;
pub use workflows::*;

use crate::api::check_key;

/// A kernel for AI agents: send messages, inspect and operate it.
#[derive(Debug, Parser)]
#[command(name = "annie", version, propagate_version = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  annie ask \"Create a task to review PR 42 due tomorrow\"
  annie chat
  annie serve
  annie setup && annie doctor

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 not found, 4 not allowed, 5 unavailable, 6 answered but not done, 130 Ctrl-C, 143 ended by a signal.
Without a server, ask and chat run the kernel in this process on the data folder.";

/// The heading of the flags of every command in a page of help.
const GLOBAL_OPTIONS: &str = "Global options";

/// Flags of every command.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Read this configuration file too; it overrides the default ones
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Use this data folder
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data: Option<PathBuf>,
    /// Use the server at this address, and no other
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_name = "URL", value_hint = ValueHint::Url)]
    pub url: Option<String>,
    /// Use the API key in this file
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,
    /// Write JSON to stdout, one object a line
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pub json: bool,
    /// No colours, no drafts
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, visible_alias = "no-color")]
    pub plain: bool,
    /// Print only data and errors
    #[arg(long, short, global = true, help_heading = GLOBAL_OPTIONS)]
    pub quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(Serve),
    /// Send one message, and show the agents and skills that work on it
    Ask(Ask),
    /// Send messages interactively, line by line
    Chat(Chat),
    /// Show the state of the server
    Status,
    /// Inspect and operate the running actors
    Actors {
        /// The subcommand.
        #[command(subcommand)]
        command: Actors,
    },
    /// List what operators did: what, about what, why, and the result
    Actions(Actions),
    /// Verify the audit chain and export audit trails
    Audit {
        /// The subcommand.
        #[command(subcommand)]
        command: Audit,
    },
    /// List the orders of operators that are in force
    Orders,
    /// Accept no messages, also after a restart, until `undrain`; accepted work goes on
    Drain(Because),
    /// Accept messages again
    Undrain {
        /// Why; the record of actions shows it
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Pause and resume classes of tasks
    Classes {
        /// The subcommand.
        #[command(subcommand)]
        command: Classes,
    },
    /// The level of the server's log
    Log {
        /// The subcommand.
        #[command(subcommand)]
        command: LogCommand,
    },
    /// Replay a conversation: its state at an event, differences, and whether all decisions agree
    Replay(Replay),
    /// Show what the server does now: backends, queue and the busiest actors
    Top(Top),
    /// Show the tasks that wait for a model round, where and why
    Queue(Watch),
    /// The last hour: turns, failures, waits and restarts
    Overview,
    /// The voice gate: while it is closed, only voice rounds start
    Gate {
        /// The subcommand.
        #[command(subcommand)]
        command: Gate,
    },
    /// The circuit breakers of the skills
    Breakers {
        /// The subcommand.
        #[command(subcommand)]
        command: Breakers,
    },
    /// List, show, copy, export and import conversations, and resume a quarantined one
    Conversations {
        /// The subcommand.
        #[command(subcommand)]
        command: Conversations,
    },
    /// Messages and their results
    Tasks {
        /// The subcommand.
        #[command(subcommand)]
        command: Tasks,
    },
    /// List and control open tasks
    Jobs {
        /// The subcommand; default: list
        #[command(subcommand)]
        command: Option<Jobs>,
    },
    /// Dead letters: tasks whose every attempt failed
    Dlq {
        /// The subcommand.
        #[command(subcommand)]
        command: DeadLetters,
    },
    /// Show what model calls cost: tokens and US dollars
    Usage(UsageArgs),
    /// List and decide calls of skills that wait for your approval
    Approvals {
        /// The subcommand.
        #[command(subcommand)]
        command: Option<Approvals>,
    },
    /// List the running sub-agents, and steer or stop one
    Agents {
        /// The subcommand.
        #[command(subcommand)]
        command: Option<Agents>,
    },
    /// Long-running work of skills, whose results arrive later
    Operations {
        /// The subcommand.
        #[command(subcommand)]
        command: Operations,
    },
    /// Schedules: messages that are sent again and again at fixed times
    Cron {
        /// The subcommand.
        #[command(subcommand)]
        command: Cron,
    },
    /// To-dos of which you are notified at a time
    Reminders {
        /// The subcommand.
        #[command(subcommand)]
        command: Reminders,
    },
    /// Values under keys of a conversation, of you and of the application
    State {
        /// The subcommand.
        #[command(subcommand)]
        command: State,
    },
    /// Search the events of all conversations
    Events(Events),
    /// Notifications about background work that has ended
    Notifications(Notifications),
    /// List and check skills
    #[command(disable_help_subcommand = true)]
    Skills {
        /// The subcommand.
        #[command(subcommand)]
        command: Skills,
    },
    /// Workflows: steps that a file lists, and their runs
    Workflows {
        /// The subcommand.
        #[command(subcommand)]
        command: Workflows,
    },
    /// Your to-dos; `annie tasks` is about messages
    Todos {
        /// The subcommand.
        #[command(subcommand)]
        command: Todos,
    },
    /// What Annie remembers about you
    Memory {
        /// The subcommand.
        #[command(subcommand)]
        command: Memory,
    },
    /// Your notes
    Notes {
        /// The subcommand.
        #[command(subcommand)]
        command: Notes,
    },
    /// MCP servers, whose tools are skills
    Mcp {
        /// The subcommand.
        #[command(subcommand)]
        command: Mcp,
    },
    /// Secrets that skills send to other machines
    Secret {
        /// The subcommand.
        #[command(subcommand)]
        command: SecretCommand,
    },
    /// API keys
    Key {
        /// The subcommand.
        #[command(subcommand)]
        command: Key,
    },
    /// The configuration
    Config {
        /// The subcommand.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Check data folder, database, skills, backends, disk and clock; with --probe, test the models
    Doctor(Doctor),
    /// Find model servers on this machine, test them, and write a matching configuration
    Setup(Setup),
    /// Copy all data from SQLite to PostgreSQL, or back
    Migrate(Migrate),
    /// Export or delete what skills store of a user, such as to-dos and memories
    #[command(after_help = DATA_HELP)]
    Data {
        /// The subcommand.
        #[command(subcommand)]
        command: Data,
    },
    /// Inject faults into a server that was started for that, and check what it survives
    Chaos {
        /// The subcommand.
        #[command(subcommand)]
        command: Chaos,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version,
    /// Run a program under limits, and end it when the parent process ends
    #[command(name = "run-limited", hide = true)]
    RunLimited(RunLimited),
    /// Enter the sandbox, and become another program
    #[command(name = "__sandbox", hide = true)]
    Sandbox(SandboxArgs),
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
    /// The size of a written file, in bytes
    #[arg(long, value_name = "N")]
    pub file_bytes: Option<u64>,
    /// Processes and threads of the program
    #[arg(long, value_name = "N")]
    pub own_procs: Option<u64>,
    /// Fail unless this is the parent process
    #[arg(long, value_name = "PID")]
    pub parent: Option<i32>,
    /// Report through this descriptor of the parent whether the program started
    #[arg(long, value_name = "FD", requires = "parent")]
    pub tell_fd: Option<i32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `annie serve`
#[derive(Debug, Default, Args)]
pub struct Serve {
    /// Listen on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub bind: Option<SocketAddr>,
    /// Listen on this port of the configured address; 0 takes a free one
    #[arg(long)]
    pub port: Option<u16>,
    /// Once ready, write address and process id as JSON into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ready_file: Option<PathBuf>,
    /// Log level: error, warn, info, debug, trace, or one for each module
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Start although the database is empty and the data folder records that it was not
    #[arg(long)]
    pub accept_empty_database: bool,
}

/// The conversation of a message.
#[derive(Debug, Clone, Default, Args)]
pub struct ConversationArgs {
    /// Use this conversation: its id, or any name of your own
    #[arg(long, short, value_name = "ID|NAME", conflicts_with = "new", value_parser = Named::parse)]
    pub conversation: Option<Named>,
    /// Begin a new conversation, which the next commands continue
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
    /// The message; `-` reads it from stdin
    #[arg(required = true, num_args = 1..)]
    pub text: Vec<String>,
    /// The conversation.
    #[command(flatten)]
    pub target: ConversationArgs,
    /// Options of the message.
    #[command(flatten)]
    pub more: More,
}

/// `annie chat`
#[derive(Debug, Default, Args)]
#[command(
    after_help = "Inside: /help, /status, /steer TEXT, /new, /quit. Running work is listed and controlled in plain words: \"what are you working on?\", \"cancel that\". Ctrl-C stops the running answer, a second Ctrl-C ends the chat."
)]
pub struct Chat {
    /// The conversation.
    #[command(flatten)]
    pub target: ConversationArgs,
    /// Private messages: only local backends may run them
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
    /// List all actors
    Tree(TreePage),
    /// Show one actor, with its own view of its state
    Show {
        /// The actor's path: /scheduler
        path: String,
    },
    /// Stop an actor in good order; a permanent one is restarted
    Stop(OneActor),
    /// Kill an actor at once, as a crash would
    Kill(OneActor),
    /// Stop an actor and start it again
    Restart(OneActor),
    /// Give a supervisor or an Engine its whole restart budget again
    ResetBudget(BudgetArgs),
    /// List the last crashes
    Crashes,
}

/// Limits a listing of the tree to a part.
#[derive(Debug, Clone, Args)]
pub struct TreePage {
    /// Only the actor at this path and those below it: /conversations
    #[arg(long, value_name = "PATH")]
    pub under: Option<String>,
    /// Maximum number of entries
    #[arg(long, short = 'n', default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub limit: u32,
    /// Continue an earlier list; the cursor is printed at its end
    #[arg(long, value_name = "CURSOR")]
    pub next: Option<String>,
    #[command(flatten)]
    pub watch: Watch,
}

/// An actor, and optionally its incarnation.
#[derive(Debug, Clone, Args)]
pub struct OneActor {
    /// The actor's path: /scheduler
    pub path: String,
    /// Only if the actor has this incarnation number, as `tree` shows it
    #[arg(long, value_name = "N")]
    pub incarnation: Option<u64>,
    /// Allow the root, `/`, with which the whole server ends, and to kill or restart whichever incarnation runs
    #[arg(long)]
    pub force: bool,
    /// Why; the record of actions shows it. Needed to kill and to restart
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Only say what would happen
    #[arg(long)]
    pub dry_run: bool,
}

/// `annie breakers`
#[derive(Debug, Subcommand)]
pub enum Breakers {
    /// List circuit breakers with their state: of skills called since the start, and those that were open before it
    List,
    /// Close a skill's breaker: its next call is admitted
    Reset {
        /// The skill's name: tasks.create
        skill: String,
    },
    /// Hold a skill's breaker open: no call is admitted until `reset`, also after a restart
    Open {
        /// The skill's name: tasks.create
        skill: String,
        #[command(flatten)]
        because: Because,
    },
}

/// `annie mcp`
#[derive(Debug, Subcommand)]
pub enum Mcp {
    /// List the MCP servers with the state of their connections
    List {
        /// List their tools instead, each with the hash of its definition
        #[arg(long)]
        tools: bool,
    },
    /// Answer MCP requests from stdin on stdout: send messages to the running server, and run skills on your own data
    Serve,
    /// Print the MCP servers of another program's configuration in the form of Annie's
    Import {
        /// A JSON file in the shape of Claude Desktop or VS Code
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Limits a listing to a page.
#[derive(Debug, Clone, Args)]
pub struct PageArgs {
    /// Maximum number of entries
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
    /// Continue an earlier list; the cursor is printed at its end
    #[arg(long, value_name = "CURSOR")]
    pub next: Option<String>,
}

/// `annie tasks`
#[derive(Debug, Subcommand)]
pub enum Tasks {
    /// List the newest tasks
    List {
        /// Only tasks that have not ended
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one task
    Show {
        /// The task's id
        id: TaskId,
    },
    /// Cancel a task
    Cancel {
        /// The task's id
        id: TaskId,
    },
}

/// `annie secret`
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Store a secret, sealed with the key of the configuration; the value is read from stdin or a file
    Set {
        /// The name that the configuration refers to
        name: String,
        /// The user that the secret belongs to; default: all users of the installation
        #[arg(long)]
        user: Option<String>,
        /// Read the value from this file instead of stdin
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// List the names of all secrets, without their values
    List,
    /// Delete a secret
    Delete {
        /// The name, as `list` shows it
        name: String,
        /// The user that the secret belongs to; default: the installation
        #[arg(long)]
        user: Option<String>,
    },
}

/// `annie key`
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Create a key; it is shown only once
    Create {
        /// A name to recognise the key
        name: String,
        /// The user whose data the key gives access to; default: server.user
        #[arg(long)]
        user: Option<String>,
        /// The scopes of the key: chat, jobs:read, jobs:control, ops:read, ops:control, admin, impersonate, voice
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', default_values = ["chat", "jobs:read", "jobs:control"])]
        scopes: Vec<String>,
        /// Number of days until the key expires
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: Option<u32>,
        /// Write the key into this new file of mode 0600 instead of stdout
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
        /// Do not ask, also if it is the first key and cannot make others
        #[arg(long)]
        yes: bool,
    },
    /// List all keys, without their secrets
    List,
    /// Show the user and the scopes of the key in use
    #[command(name = "self")]
    Own,
    /// Revoke a key for good
    Revoke {
        /// The key's id, as `list` shows it
        id: String,
    },
}

/// `annie config`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Write a commented file of mode 0600, with every key and its values
    Init {
        /// The file, or `-` for stdout; default: the user's own configuration file
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Print the commented file of `init`: every key with its values
    Sample,
    /// Check a file, or the effective configuration
    Check {
        /// Check only this file
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Show the effective configuration, secrets masked
    Show {
        /// Also show the origin of each value
        #[arg(long)]
        origin: bool,
    },
    /// Show the settings with which the running server was started, with the origin of each value
    Running,
}

/// A conversation as people name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The id of an existing conversation.
    Id(ConversationId),
    /// A name that the user chose.
    Key(String),
}

impl Named {
    /// Parses an id, or else a name.
    ///
    /// # Errors
    /// If the text starts like an id and is not a valid one, because such a name is certainly a mistake; or if the front ends
    /// reject the name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(e) if text.starts_with("conv_") => Err(annie_core::ids::IdError::to_string(&e)),
            Err(_) => check_key(text).map(|()| Self::Key(text.to_owned())).map_err(|error| error.detail),
        }
    }
}
