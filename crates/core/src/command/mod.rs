//! The command grammar: what a model writes in ```` ```cmd ```` blocks, and what a person types at a prompt [S0 6.1].
//!
//! Three steps, each usable alone: [`extract`] finds the commands of a reply, [`parse`] reads one command as words and
//! flags, [`resolve`] checks it against the skills as they are. Models write commands from memory, so the grammar forgives
//! what cannot be misunderstood, and every refusal names the flag and shows the right usage: the model corrects itself.

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

/// The most commands that one reply may carry.
pub const COMMANDS_MAX: usize = 20;

/// The longest command, in bytes, with its multi-line values.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// Why a text is not a command. The text goes to the model as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Nothing but white space.
    #[error("the command is empty")]
    Empty,
    /// More commands than [`COMMANDS_MAX`] in one reply; the first ones are taken.
    #[error(
        "the reply has {count} commands, and at most {COMMANDS_MAX} are taken from one reply: the last {} were not run",
        count - COMMANDS_MAX
    )]
    TooMany {
        /// How many there were.
        count: usize,
    },
    /// A command longer than [`COMMAND_BYTES_MAX`].
    #[error("the command `{start}…` has {bytes} bytes, and at most {COMMAND_BYTES_MAX} are allowed: it was not run")]
    TooLong {
        /// Its first characters.
        start: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A quote without its partner.
    #[error("the quote opened at line {line}, column {column} is never closed: {near} <- here")]
    OpenQuote {
        /// The line of the command, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The text up to and including the quote, and a little of what follows.
        near: String,
    },
    /// `-x` where only `--flags` exist.
    #[error("{flag} is not a flag: flags have two dashes and a name (put a value that begins with a dash in quotes)")]
    ShortFlag {
        /// What was written.
        flag: String,
    },
    /// `--=value`, `--!`.
    #[error("{flag:?} is not a flag: after the two dashes comes a name of letters, digits, - and _")]
    BadFlag {
        /// What was written.
        flag: String,
    },
    /// The first word is a flag.
    #[error("a command begins with the name of a skill, not with {flag}")]
    NoName {
        /// What was written.
        flag: String,
    },
}

/// The first characters of a text, on one line, for an error.
fn start_of(text: &str) -> String {
    text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
