//! The commands about work: jobs, dead letters, operations, notifications, the gate; and what a message may wish.

use std::path::PathBuf;

use annie_core::{
    event::Priority,
    ids::{OperationId, TaskId},
    letter::LetterState,
};
use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::PageArgs;

/// What a message may wish besides.
#[derive(Debug, Clone, Default, Args)]
pub struct More {
    /// How urgent it is; default: its words decide
    #[arg(long, value_enum, value_name = "CLASS")]
    pub priority: Option<ClassArg>,
    /// It must not leave the house: only local backends may run it
    #[arg(long)]
    pub private: bool,
    /// Names the work: equal work of this name that waits already is done once
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// It joins the answer that is being worked on, instead of waiting behind it
    #[arg(long)]
    pub steer: bool,
    /// It begins when so many seconds have gone by
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub delay: Option<u64>,
    /// It begins when this task has ended; may be given several times
    #[arg(long, value_name = "TASK")]
    pub after: Vec<TaskId>,
    /// Its words are never an order about tasks
    #[arg(long)]
    pub verbatim: bool,
    /// Do not wait for the answer: write the task's id, and leave it to the server
    #[arg(long)]
    pub detach: bool,
}

/// How urgent something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClassArg {
    /// Somebody waits for it
    High,
    /// Somebody wants it soon
    Normal,
    /// It has time
    Low,
    /// Whenever nothing else is to be done
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
    /// What runs, what waits in the order of the queue, what is held back
    List,
    /// End one
    Cancel {
        /// Its number in the list, or its id
        #[arg(value_parser = JobRef::parse)]
        job: JobRef,
    },
    /// Hold one back: no further round of it starts
    Pause {
        /// Its number in the list, or its id
        #[arg(value_parser = JobRef::parse)]
        job: JobRef,
    },
    /// Let one go on that was held back
    Resume {
        /// Its number in the list, or its id
        #[arg(value_parser = JobRef::parse)]
        job: JobRef,
    },
    /// Make one more or less urgent
    Priority {
        /// Its number in the list, or its id
        #[arg(value_parser = JobRef::parse)]
        job: JobRef,
        /// Its new class
        #[arg(value_enum)]
        class: ClassArg,
    },
}

/// A job as people name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRef {
    /// By its number in the list.
    Number(usize),
    /// By its task.
    Id(TaskId),
}

impl JobRef {
    /// A number, or an id.
    ///
    /// # Errors
    /// If it is neither.
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
    /// The newest ones
    List {
        /// Only those in this state
        #[arg(long, value_enum)]
        state: Option<LetterStateArg>,
        #[command(flatten)]
        which: LetterFilterArgs,
        #[command(flatten)]
        page: PageArgs,
    },
    /// One, with everything that was tried
    Show {
        /// The task that failed
        task: TaskId,
        /// Whose it is; the key must be allowed to speak for others
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// Try one again now, or many waiting ones
    Retry(OneOrManyLetters),
    /// Put one aside for good, or many waiting ones
    Discard(OneOrManyLetters),
}

/// Which dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct LetterFilterArgs {
    /// Only those that failed with this code, as `model_unavailable`
    #[arg(long, value_name = "CODE")]
    pub error: Option<String>,
    /// Only those of this class
    #[arg(long, value_enum, value_name = "CLASS")]
    pub class: Option<ClassArg>,
    /// Only this user's; the key must be allowed to speak for others
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Only those that failed so long ago or earlier: 30m, 6h, 2d
    #[arg(long, value_name = "AGE", value_parser = age_ms)]
    pub older_than: Option<i64>,
    /// Only those that failed within so long: 30m, 6h, 2d
    #[arg(long, value_name = "AGE", value_parser = age_ms)]
    pub newer_than: Option<i64>,
}

/// One dead letter, or those that are meant.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)
    .args(["task", "all", "error", "class", "user", "older_than", "newer_than"])))]
pub struct OneOrManyLetters {
    /// The task that failed; with --user, another user's
    #[arg(conflicts_with_all = ["all", "error", "class", "older_than", "newer_than", "limit", "yes", "dry_run"])]
    pub task: Option<TaskId>,
    /// All that wait, or of them those that the other flags take
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub filter: LetterFilterArgs,
    /// At most so many, the newest first
    #[arg(long, short = 'n', default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub limit: u32,
    /// Do not ask back
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Only say how many are meant
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
}

/// A length of time such as `30m`, in milliseconds.
fn age_ms(text: &str) -> Result<i64, String> {
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

/// Where a dead letter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LetterStateArg {
    /// It may be tried again
    Waiting,
    /// It was
    Retried,
    /// Somebody did not want it any more
    Discarded,
    /// Its time is up
    Archived,
}

impl From<LetterStateArg> for LetterState {
    fn from(state: LetterStateArg) -> Self {
        match state {
            LetterStateArg::Waiting => Self::Waiting,
            LetterStateArg::Retried => Self::Retried,
            LetterStateArg::Discarded => Self::Discarded,
            LetterStateArg::Archived => Self::Archived,
        }
    }
}

/// `annie operations`
#[derive(Debug, Subcommand)]
pub enum Operations {
    /// The newest ones
    List {
        /// Only those whose result is awaited
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// One of them
    Show {
        /// Its id
        id: OperationId,
    },
    /// What whoever brings its result needs: a secret
    Key {
        /// Its id
        id: OperationId,
    },
    /// Bring its result
    Finish {
        /// Its id
        id: OperationId,
        /// What came of it
        #[arg(required = true, num_args = 1..)]
        text: Vec<String>,
        /// It did not work
        #[arg(long)]
        failed: bool,
        /// What belongs to it, for the model: JSON
        #[arg(long, value_name = "JSON")]
        result_data: Option<String>,
        /// The file with its key; default: the server is asked, which tells its owner
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        operation_key_file: Option<PathBuf>,
    },
}

/// `annie notifications`
#[derive(Debug, Clone, Default, Args)]
pub struct Notifications {
    /// Go on with those that come
    #[arg(long, short)]
    pub follow: bool,
    /// Only those behind this place
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub after: u64,
    /// Go on behind an earlier list, with the word that it ended with
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["follow", "after"])]
    pub next: Option<String>,
    /// At most so many, without --follow
    #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
}

/// `annie gate`
#[derive(Debug, Subcommand)]
pub enum Gate {
    /// Every backend's gate
    Show,
    /// Close it for everything but voice, until Ctrl-C
    Hold {
        /// Which one, and for whom.
        #[command(flatten)]
        on: OnBackend,
        /// How long it stays closed if this command dies, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(500..=60_000))]
        ttl_ms: u64,
    },
    /// Open it
    Release {
        /// Which one, and for whom.
        #[command(flatten)]
        on: OnBackend,
    },
}

/// Which gate, held by whom.
#[derive(Debug, Clone, Args)]
pub struct OnBackend {
    /// The backend; default: the first
    #[arg(long, default_value = "", hide_default_value = true)]
    pub backend: String,
    /// Who holds it
    #[arg(long, default_value = "the command line")]
    pub holder: String,
}
