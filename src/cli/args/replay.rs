//! The arguments of the commands about conversations, their replays, copies and audit.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::{Because, Named, PageArgs};

/// `annie replay`
#[derive(Debug, Clone, Args)]
pub struct Replay {
    /// The conversation: its id, or the name that you gave to `annie ask --conversation`
    #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
    pub conversation: Named,
    /// Show the state after this event; default: the last one
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    pub until: Option<u64>,
    /// Also show the differences from the state after this event
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: Option<u64>,
    /// Compare the decisions of the core with those that are stored; exit code 1 if they differ
    #[arg(long)]
    pub check: bool,
}

/// `annie conversations fork`
#[derive(Debug, Clone, Args)]
pub struct Fork {
    /// The conversation: its id, or the name that you gave to `annie ask --conversation`
    #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
    pub id: Named,
    /// The last event whose state the copy has; default: the last one
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    pub at: Option<u64>,
}

/// `annie conversations`
#[derive(Debug, Subcommand)]
pub enum Conversations {
    /// List the newest conversations
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Include those of stateless API requests
        #[arg(long)]
        all: bool,
    },
    /// Show the last messages of a conversation
    Show {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Print all messages of a conversation, the oldest first, a line of JSON each
    Export {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
        /// Print the event log instead, which `annie conversations import` reads
        #[arg(long)]
        events: bool,
        /// Replace the texts of people, models and skills in the event log
        #[arg(long, requires = "events")]
        redact: bool,
    },
    /// Begin a new conversation with the history of another one up to an event; no effect is repeated
    Fork(Fork),
    /// Import an event log under a new id: its events are records and are not carried out
    Import {
        /// The file that `annie conversations export --events` printed
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Search titles and messages: all words must occur
    Search {
        /// The words
        #[arg(required = true, num_args = 1..)]
        words: Vec<String>,
    },
    /// Give a conversation a title
    Rename {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
        /// The title
        #[arg(required = true, num_args = 1..)]
        title: Vec<String>,
    },
    /// Delete a conversation: it is hidden, and erased after the time in the trash
    Delete {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
        /// Cancel its open tasks first
        #[arg(long)]
        force: bool,
        /// The reason, which is recorded with the erasure
        #[arg(long, default_value = "")]
        reason: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// List the deleted conversations that can be restored
    Trash,
    /// Restore a deleted conversation
    Restore {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
    },
    /// Take a conversation out of quarantine; with the scope ops:control also another user's
    Resume {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
    },
    /// Suspend a conversation: no further round of its tasks starts, also of later ones, until `continue`
    Suspend {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
        #[command(flatten)]
        because: Because,
    },
    /// Continue a suspended conversation
    Continue {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
        /// Why; the record of actions shows it
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Put a conversation in quarantine: its open turns fail, and so does each message, until `resume`
    Quarantine {
        /// The conversation: its id, or the name that you gave to `annie ask --conversation`
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        id: Named,
        #[command(flatten)]
        because: Because,
        /// Needed, because the open turns of the conversation fail
        #[arg(long)]
        force: bool,
    },
}

/// `annie audit`
#[derive(Debug, Clone, Subcommand)]
pub enum Audit {
    /// Compare the stored events with their seals; exit code 1 if they differ
    Verify {
        /// Also compare a seal that was noted earlier, as this command printed it
        #[arg(long, value_name = "NUMBER:DIGEST")]
        head: Option<String>,
    },
    /// Print who decided what and why, a line of JSON each, without the texts of messages and results
    Export {
        /// Only this conversation, by its id or name; default: all of yours
        #[arg(value_name = "ID|NAME", value_parser = Named::parse)]
        conversation: Option<Named>,
    },
}
