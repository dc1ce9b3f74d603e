//! `annie data`.

use clap::Subcommand;

/// What follows the help of `annie data`.
pub const DATA_HELP: &str = "\
Documents are what skills store of a user, such as to-dos and memories. Notes are files in the data folder, and conversations are
in the log: they are neither exported nor deleted here. With SQLite the server must be stopped, because it holds the data folder.

Example:
  annie data export --user ann > ann.jsonl";

/// `annie data`
#[derive(Debug, Subcommand)]
pub enum Data {
    /// Print all documents of a user, one JSON object a line; archived ones too
    Export {
        /// The user
        #[arg(long)]
        user: String,
    },
    /// Delete all documents of a user; without --yes, only show how many there are
    Delete {
        /// The user
        #[arg(long)]
        user: String,
        /// Delete them. This cannot be undone
        #[arg(long)]
        yes: bool,
    },
}
