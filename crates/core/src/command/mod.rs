//! The command grammar, for ```` ```cmd ```` blocks in a model's reply and for commands typed at a prompt [S0 6.1].
//!
//! There are three steps, each usable alone. [`extract`] finds the commands of a reply, [`parse`] splits one command into
//! words and flags, and [`resolve`] checks it against the current skills. Models write commands from memory, so the grammar
//! accepts deviations that are unambiguous. Every error names the flag and shows the right usage, so that the model can
//! correct itself.

mod draft;
mod extract;
mod labels;
mod lex;
mod parse;
mod resolve;
#[cfg(test)]
mod tests;

pub use draft::DraftFilter;
pub use extract::{extract, extract_for, prose_in_blocks, prose_in_blocks_for};
pub use lex::quote;
pub use parse::{Loose, Parsed, parse};
pub use resolve::{Resolution, resolve};

/// Maximum number of commands in one reply.
pub const COMMANDS_MAX: usize = 20;

/// Maximum length of a command with its multi-line values, in bytes.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// A text is not a valid command. The error's text is shown to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The text is blank.
    #[error("the command is empty")]
    Empty,
    /// The reply has more commands than [`COMMANDS_MAX`]. Only the first ones are run.
    #[error(
        "the reply has {count} commands, and at most {COMMANDS_MAX} are taken from one reply: the last {} were not run",
        count - COMMANDS_MAX
    )]
    TooMany {
        /// Number of commands.
        count: usize,
    },
    /// The command is longer than [`COMMAND_BYTES_MAX`].
    #[error("the command `{start}…` has {bytes} bytes, and at most {COMMAND_BYTES_MAX} are allowed: it was not run")]
    TooLong {
        /// Its first characters.
        start: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A quote is not closed.
    #[error("the quote opened at line {line}, column {column} is never closed: {near} <- here")]
    OpenQuote {
        /// The line of the command, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The text up to and including the quote, and a few characters after it.
        near: String,
    },
    /// `-x`, although only `--flags` exist.
    #[error("{flag} is not a flag: flags have two dashes and a name (put a value that begins with a dash in quotes)")]
    ShortFlag {
        /// The text as written.
        flag: String,
    },
    /// An invalid flag, such as `--=value` or `--!`.
    #[error("{flag:?} is not a flag: after the two dashes comes a name of letters, digits, - and _")]
    BadFlag {
        /// The text as written.
        flag: String,
    },
    /// The command begins with a flag instead of a name.
    #[error("a command begins with the name of a skill, not with {flag}")]
    NoName {
        /// The text as written.
        flag: String,
    },
}

/// The first 60 characters of a text, on one line, for an error.
fn start_of(text: &str) -> String {
    text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
