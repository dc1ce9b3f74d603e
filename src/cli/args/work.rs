//! The arguments of the commands about work (jobs, dead letters, operations, notifications, the voice gate), and the options
//! of a message.

use std::path::PathBuf;

use annie_core::{
    dead_letter::DeadLetterState,
    event::Priority,
    ids::{OperationId, TaskId},
    spend::UsageBy,
};
use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::{Named, PageArgs, Watch};

/// Options of a message.
#[derive(Debug, Clone, Default, Args)]
pub struct More {
    /// Priority; default: derived from the text
    #[arg(long, value_enum, value_name = "CLASS")]
    pub priority: Option<ClassArg>,
    /// Private message: only local backends may run it
    #[arg(long)]
    pub private: bool,
    /// Name of the work: equal work of this name that already waits is done once
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Join the running turn instead of queueing behind it
    #[arg(long)]
    pub steer: bool,
    /// Start after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub delay: Option<u64>,
    /// Start when this task has ended; may be given several times
    #[arg(long, value_name = "TASK")]
    pub after: Vec<TaskId>,
    /// Never treat the text as a job command
    #[arg(long)]
    pub verbatim: bool,
    /// Do not wait for the answer: print the task's id and leave the work to the server, with priority normal unless another is given
    #[arg(long)]
    pub detach: bool,
}

/// The class of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClassArg {
    /// A person waits for it
    High,
    /// Wanted soon
    Normal,
    /// Not urgent
    Low,
    /// When no other work waits
    Background,
}

impl From<ClassArg> for Priority {
    fn from(class: ClassArg) -> Self {
        match class {
            ClassArg::High => Self::High,
            ClassArg::Normal => Self::Normal,
            ClassArg::Low => Self::Low,
            ClassArg::Background => Self::Background,
        }
    }
}

/// `annie jobs`
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Jobs {
    /// List running, waiting (in queue order) and suspended tasks
    List(Watch),
    /// Cancel a task
    Cancel {
        /// Number in the list, or task id
        #[arg(value_parser = JobRef::parse)]
        job: JobRef,
    },
    /// Suspend a task: no further round of it starts
    Pause {
        /// Number in the list, or task id
        #[arg(value_parser = JobRef::parse)]
        job: JobRef,
    },
    /// Resume a suspended task
    Resume {
        /// Number in the list, or task id
        #[arg(value_parser = JobRef::parse)]
        job: JobRef,
    },
    /// Change the class of a task
    Priority {
        /// Number in the list, or task id
        #[arg(value_parser = JobRef::parse)]
        job: JobRef,
        /// The new class
        #[arg(value_enum)]
        class: ClassArg,
    },
}

/// A job as people name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRef {
    /// Number in the list, from 1.
    Number(usize),
    /// Id of the task.
    Id(TaskId),
}

impl JobRef {
    /// Parses a number or a task id.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(0) => Err("the numbers begin with 1".to_owned()),
            Ok(number) => Ok(Self::Number(number)),
            Err(_) => text.parse().map(Self::Id).map_err(|e: annie_core::ids::IdError| e.to_string()),
        }
    }
}

/// `annie dlq`
#[derive(Debug, Subcommand)]
pub enum DeadLetters {
    /// List the newest dead letters
    List {
        /// Only dead letters in this state
        #[arg(long, value_enum)]
        state: Option<DeadLetterStateArg>,
        #[command(flatten)]
        which: DeadLetterFilterArgs,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a dead letter with all its attempts
    Show {
        /// The task that failed
        task: TaskId,
        /// The user of the task; needs a key with the scope impersonate
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// Retry one dead letter now, or many waiting ones
    Retry(OneOrManyDeadLetters),
    /// Discard one dead letter for good, or many waiting ones
    Discard(OneOrManyDeadLetters),
}

/// A filter for dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DeadLetterFilterArgs {
    /// Only those that failed with this code, for example `model_unavailable`
    #[arg(long, value_name = "CODE")]
    pub error: Option<String>,
    /// Only those of this class
    #[arg(long, value_enum, value_name = "CLASS")]
    pub class: Option<ClassArg>,
    /// Only those of this user; needs a key with the scope impersonate
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Only those that failed at least so long ago: 30m, 6h, 2d
    #[arg(long, value_name = "AGE", value_parser = age_ms)]
    pub older_than: Option<i64>,
    /// Only those that failed within the last: 30m, 6h, 2d
    #[arg(long, value_name = "AGE", value_parser = age_ms)]
    pub newer_than: Option<i64>,
}

/// One dead letter, or all that match a filter.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)
    .args(["task", "all", "error", "class", "user", "older_than", "newer_than"])))]
pub struct OneOrManyDeadLetters {
    /// The task that failed; with --user, a task of that user
    #[arg(conflicts_with_all = ["all", "error", "class", "older_than", "newer_than", "limit", "yes", "dry_run"])]
    pub task: Option<TaskId>,
    /// All waiting dead letters, or those of them that match the other flags
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub filter: DeadLetterFilterArgs,
    /// Maximum number, the newest first
    #[arg(long, short = 'n', default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub limit: u32,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Only count the matching ones
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
}

/// Parses a duration such as `30m`; the result is in milliseconds.
pub(super) fn age_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is no age: write a number and s, m, h or d, as 30m or 2d");
    let at = text.len().checked_sub(1).filter(|at| text.is_char_boundary(*at)).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let unit_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.parse::<u32>().map(|number| i64::from(number) * unit_ms).map_err(|_| wrong())
}

/// The state of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeadLetterStateArg {
    /// May be retried
    Waiting,
    /// Was retried
    Retried,
    /// Was discarded by a user
    Discarded,
    /// Exceeded its maximum age
    Archived,
}

impl From<DeadLetterStateArg> for DeadLetterState {
    fn from(state: DeadLetterStateArg) -> Self {
        match state {
            DeadLetterStateArg::Waiting => Self::Waiting,
            DeadLetterStateArg::Retried => Self::Retried,
            DeadLetterStateArg::Discarded => Self::Discarded,
            DeadLetterStateArg::Archived => Self::Archived,
        }
    }
}

/// `annie operations`
#[derive(Debug, Subcommand)]
pub enum Operations {
    /// List the newest operations
    List {
        /// Only operations without a result
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one operation
    Show {
        /// The operation's id
        id: OperationId,
    },
    /// Show the secret key and path for delivering the result
    Key {
        /// The operation's id
        id: OperationId,
    },
    /// Deliver the result of an operation
    Finish {
        /// The operation's id
        id: OperationId,
        /// The result, as text
        #[arg(required = true, num_args = 1..)]
        text: Vec<String>,
        /// The operation failed
        #[arg(long)]
        failed: bool,
        /// Data of the result, for the model: JSON
        #[arg(long, value_name = "JSON")]
        result_data: Option<String>,
        /// File with the operation's key; default: the server is asked, which shows it to the owner
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        operation_key_file: Option<PathBuf>,
    },
}

/// `annie cron`
#[derive(Debug, Subcommand)]
pub enum Cron {
    /// List all schedules
    List,
    /// Have a message sent again and again
    Add {
        /// When: "every weekday at 8", or a cron expression such as "0 8 * * MON-FRI"
        when: String,
        /// The message: a prompt, or /skill with arguments
        #[arg(required = true, num_args = 1..)]
        text: Vec<String>,
        /// IANA time zone; default: the user's own
        #[arg(long)]
        timezone: Option<String>,
        /// The conversation of the message: its id or your name for it; default: one of its own
        #[arg(long, value_name = "ID|NAME", value_parser = Named::parse)]
        conversation: Option<Named>,
    },
    /// Pause a schedule
    Pause {
        /// The schedule's number
        number: u64,
    },
    /// Resume a schedule that is paused
    Resume {
        /// The schedule's number
        number: u64,
    },
    /// Remove a schedule
    Remove {
        /// The schedule's number
        number: u64,
    },
    /// Send the message of a schedule now
    RunNow {
        /// The schedule's number
        number: u64,
    },
    /// Show the next ten times of a schedule
    Next {
        /// The schedule's number
        number: u64,
    },
}

/// `annie state`
#[derive(Debug, Subcommand)]
pub enum State {
    /// List the values that you see
    List {
        /// Also those of this conversation
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
    },
    /// Show a value; with --json also its last changes
    Get {
        /// user:name, app:name, or name with --conversation
        key: String,
        /// The conversation of a key without a prefix
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
    },
    /// Set a value
    Set {
        /// user:name, app:name, or name with --conversation
        key: String,
        /// The value
        #[arg(required = true, num_args = 1..)]
        value: Vec<String>,
        /// The conversation of a key without a prefix
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
        /// The value is JSON and not a text
        #[arg(long)]
        parse: bool,
    },
    /// Delete a value
    Delete {
        /// user:name, app:name, or name with --conversation
        key: String,
        /// The conversation of a key without a prefix
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
    },
}

/// `annie reminders`
#[derive(Debug, Subcommand)]
pub enum Reminders {
    /// List the reminders that are to come
    List,
    /// Be reminded of something: a new to-do
    Add {
        /// When: "in 10 minutes", "tomorrow 9:00", "friday 2pm"
        when: String,
        /// What to remind you of
        #[arg(required = true, num_args = 1..)]
        title: Vec<String>,
    },
    /// Cancel a reminder; its to-do stays
    Cancel {
        /// The to-do's number
        number: u64,
    },
    /// Be reminded of a to-do later
    Snooze {
        /// The to-do's number
        number: u64,
        /// Minutes from now
        #[arg(default_value_t = 10)]
        minutes: u32,
    },
}

/// `annie approvals`
#[derive(Debug, Clone, Subcommand)]
pub enum Approvals {
    /// List the calls that wait for an approval
    List,
    /// Approve a call, so that it is made
    Approve {
        /// The task whose call waits
        task: TaskId,
        /// The number of the request; default: the only one that waits
        #[arg(long, value_name = "NUMBER")]
        number: Option<u32>,
        /// Later calls of the skill in this conversation need no approval
        #[arg(long)]
        for_conversation: bool,
        /// Run with these arguments instead: JSON
        #[arg(long, value_name = "JSON")]
        arguments: Option<String>,
    },
    /// Deny a call, so that it is not made
    Deny {
        /// The task whose call waits
        task: TaskId,
        /// The number of the request; default: the only one that waits
        #[arg(long, value_name = "NUMBER")]
        number: Option<u32>,
        /// The reason, for the model and the user
        reason: Vec<String>,
    },
}

/// `annie notifications`
#[derive(Debug, Clone, Default, Args)]
pub struct Notifications {
    /// Keep waiting for new ones
    #[arg(long, short)]
    pub follow: bool,
    /// Only those after this id
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub after: u64,
    /// Continue an earlier list; the cursor is printed at its end
    #[arg(long, value_name = "CURSOR", conflicts_with_all = ["follow", "after"])]
    pub next: Option<String>,
    /// Maximum number, without --follow
    #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
}

/// `annie gate`
#[derive(Debug, Subcommand)]
pub enum Gate {
    /// Show the gate of every backend
    Show,
    /// Close a gate for all rounds except voice, until Ctrl-C
    Hold {
        /// The gate and its holder.
        #[command(flatten)]
        on: OnBackend,
        /// How long the gate stays closed if this command is killed, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(500..=60_000))]
        ttl_ms: u64,
    },
    /// Open a gate
    Release {
        /// The gate and its holder.
        #[command(flatten)]
        on: OnBackend,
    },
}

/// A backend's gate, and its holder.
#[derive(Debug, Clone, Args)]
pub struct OnBackend {
    /// The backend; default: the first
    #[arg(long, default_value = "", hide_default_value = true)]
    pub backend: String,
    /// Name of the holder
    #[arg(long, default_value = "the command line")]
    pub holder: String,
}

/// `annie usage`
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// What the sums are made for
    #[arg(long, value_enum, default_value_t = UsageByArg::Day)]
    pub by: UsageByArg,
    /// The first day in UTC, such as 2026-02-18
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// The last day in UTC
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// The usage of all users; the key needs the scope `admin`
    #[arg(long)]
    pub all: bool,
    /// Maximum number of rows
    #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
}

/// What the sums of usage are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageByArg {
    /// Each day (UTC), newest first
    Day,
    /// Each user
    User,
    /// Each conversation
    Conversation,
    /// The skills that the rounds called
    Skill,
    /// Each backend
    Backend,
}

impl UsageByArg {
    /// The wire word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => UsageBy::Day.as_str(),
            Self::User => UsageBy::User.as_str(),
            Self::Conversation => UsageBy::Conversation.as_str(),
            Self::Skill => UsageBy::Skill.as_str(),
            Self::Backend => UsageBy::Backend.as_str(),
        }
    }
}
