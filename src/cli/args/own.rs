//! The arguments of the commands about a user's own data: to-dos, memories and notes.

use clap::{Subcommand, ValueEnum};

/// `annie todos`
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Todos {
    /// List to-dos, the open ones if nothing else is said
    List {
        /// Words that title, description or tags must have
        words: Vec<String>,
        /// Which to-dos
        #[arg(long, value_enum, default_value_t = TodoStatus::Open)]
        status: TodoStatus,
    },
    /// Add a to-do
    Add {
        /// The title
        #[arg(required = true)]
        title: Vec<String>,
        /// When it is due: tomorrow, "friday 14:00", 2026-02-28
        #[arg(long, value_name = "DATE")]
        due: Option<String>,
        /// How important it is
        #[arg(long, value_enum)]
        priority: Option<TodoPriority>,
        /// Words to find it by, separated by commas
        #[arg(long, value_delimiter = ',')]
        tags: Vec<String>,
        /// The number of the to-do that it is a part of
        #[arg(long, value_name = "NUMBER")]
        parent: Option<u64>,
    },
    /// Finish a to-do
    Done {
        /// Its number, as the list shows it behind the #
        number: u64,
    },
    /// Move a to-do into the trash, for 30 days
    Delete {
        /// Its number, as the list shows it behind the #
        number: u64,
    },
    /// Bring a to-do back from the trash
    Restore {
        /// Its number, or words of its title
        #[arg(required = true)]
        which: Vec<String>,
    },
}

/// How important a to-do is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TodoPriority {
    /// Can wait
    Low,
    /// As usual
    Medium,
    /// Before others
    High,
    /// Before everything else
    Critical,
}

impl TodoPriority {
    /// The name of the priority in the skill.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// Which to-dos are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TodoStatus {
    /// To be done
    Open,
    /// Open, and their date has passed
    Overdue,
    /// Finished
    Done,
    /// All that are not deleted
    All,
    /// In the trash
    Deleted,
}

impl TodoStatus {
    /// The name of the status in the skill.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Overdue => "overdue",
            Self::Done => "done",
            Self::All => "all",
            Self::Deleted => "deleted",
        }
    }
}

/// `annie memory`
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Memory {
    /// List what is remembered, the most important first
    List {
        /// List what was forgotten in the last 30 days
        #[arg(long)]
        deleted: bool,
    },
    /// Remember a statement
    Add {
        /// The statement
        #[arg(required = true)]
        statement: Vec<String>,
    },
    /// Correct a memory
    Update {
        /// Its number, as the list shows it behind the #
        number: u64,
        /// The corrected statement, as a whole
        #[arg(required = true)]
        statement: Vec<String>,
    },
    /// Forget a memory; it can be restored for 30 days
    Delete {
        /// Its number, or words that only this memory has
        #[arg(required = true)]
        which: Vec<String>,
    },
    /// Bring a memory back
    Restore {
        /// Its number, or words that only this memory has
        #[arg(required = true)]
        which: Vec<String>,
    },
}

/// `annie notes`
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Notes {
    /// List the titles of the notes
    List {
        /// List what was deleted in the last 30 days
        #[arg(long)]
        deleted: bool,
    },
    /// Show a note
    Show {
        /// Its title
        #[arg(required = true)]
        title: Vec<String>,
    },
    /// Give a note another title
    Rename {
        /// Its title
        title: String,
        /// The new title, with its folders
        to: String,
    },
    /// Move a note into the trash, for 30 days
    Delete {
        /// Its title
        #[arg(required = true)]
        title: Vec<String>,
    },
    /// Bring a note back from the trash
    Restore {
        /// Its title
        #[arg(required = true)]
        title: Vec<String>,
    },
}
