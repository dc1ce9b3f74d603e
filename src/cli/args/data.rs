//! `annie data`.

use clap::{Subcommand, ValueEnum};

/// What follows the help of `annie data`.
pub const DATA_HELP: &str = "\
The data of a user are the documents of skills, such as to-dos and memories, and the conversations. Notes are files in the data
folder: they are neither exported nor deleted here. With SQLite the server must be stopped, because it holds the data folder.

Example:
  annie data export --user ann > ann.jsonl";

/// A kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DataKind {
    /// To-dos
    Todos,
    /// Memories
    Memories,
}

impl DataKind {
    /// The word of the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Todos => "todos",
            Self::Memories => "memories",
        }
    }
}

/// `annie data`
#[derive(Debug, Subcommand)]
pub enum Data {
    /// List or search your to-dos or your memories, as a running server has them
    List {
        /// What to list
        kind: DataKind,
        /// Words to search for
        words: Vec<String>,
        /// List the trash instead
        #[arg(long, conflicts_with = "words")]
        deleted: bool,
    },
    /// Print all documents and events of a user, one JSON object a line; also of the trash
    Export {
        /// The user
        #[arg(long)]
        user: String,
    },
    /// Delete all documents of a user and erase the conversations; without --yes, only show how many there are
    Delete {
        /// The user
        #[arg(long)]
        user: String,
        /// Delete them. This cannot be undone
        #[arg(long)]
        yes: bool,
    },
    /// Rewrite the SQLite database without the space of deleted rows, in which erased content may remain
    Compact,
}
