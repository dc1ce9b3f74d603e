//! The output of commands: data on stdout, messages on stderr, colours only on terminals that allow them. No other code of
//! this package writes to stdout or stderr.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;
use crate::config::Environment;

/// A shared writer.
pub type Sink = Arc<Mutex<dyn Write + Send>>;

/// The output flags of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// JSON output, for programs.
    pub json: bool,
    /// No colours, no drafts: plain lines.
    pub plain: bool,
    /// Only data and errors.
    pub quiet: bool,
}

/// The output of a command.
#[derive(Clone)]
pub struct Console {
    /// The output flags.
    pub manner: Manner,
    /// Whether drafts of an answer may be shown as they arrive.
    pub live: bool,
    color: bool,
    out: Sink,
    err: Sink,
}

/// Colours by meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Less important.
    Dim,
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// A name.
    Name,
}

/// A handler of Ctrl-C. While it exists, Ctrl-C does not end the process.
pub struct Presses(Signal);

impl Presses {
    /// Installs the handler.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new() -> Result<Self, Failure> {
        signal(SignalKind::interrupt()).map(Self).map_err(|e| Failure::io("cannot wait for Ctrl-C", &e))
    }

    /// Waits for the next Ctrl-C. One that comes between two calls is not lost.
    pub async fn next(&mut self) {
        self.0.recv().await;
    }
}

impl Console {
    /// Writes to stdout and stderr of the process.
    #[must_use]
    pub fn of_process(manner: Manner, environment: &Environment) -> Self {
        let plain = manner.plain || manner.json;
        Self {
            manner,
            live: !plain && io::stdout().is_terminal(),
            color: !plain && io::stderr().is_terminal() && !environment.no_color(),
            out: Arc::new(Mutex::new(io::stdout())),
            err: Arc::new(Mutex::new(io::stderr())),
        }
    }

    /// Other sinks, for tests.
    #[cfg(test)]
    pub fn into_sinks(manner: Manner, out: Sink, err: Sink) -> Self {
        Self { manner, live: false, color: false, out, err }
    }

    /// Whether the output is JSON.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.manner.json
    }

    /// Writes data unchanged.
    ///
    /// # Errors
    /// If stdout is closed.
    pub fn data(&self, text: &str) -> Result<(), Failure> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| Failure::io("cannot write to stdout", &e))
    }

    /// Writes a line of data.
    ///
    /// # Errors
    /// If stdout is closed.
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.data(&format!("{text}\n"))
    }

    /// Writes a JSON value on one line.
    ///
    /// # Errors
    /// If stdout is closed.
    pub fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|e| Failure::new(super::failure::Exit::Failure, format!("cannot say this in JSON: {e}")))?;
        self.line(&text)
    }

    /// Writes a message for people, unless `--quiet` is set. Errors are ignored.
    pub fn say(&self, text: &str) {
        if !self.manner.quiet {
            self.say_always(text);
        }
    }

    /// Writes a message for people, also with `--quiet`. Errors are ignored.
    pub fn say_always(&self, text: &str) {
        let mut err = self.err.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(err, "{text}");
    }

    /// Writes an error with its fix.
    pub fn error(&self, failure: &Failure) {
        self.say_always(&format!("{} {}", self.ink(Ink::Bad, "error:"), failure.what));
        if let Some(fix) = &failure.fix {
            self.say_always(&format!("  {} {fix}", self.ink(Ink::Dim, "fix:")));
        }
        if let Some(id) = &failure.request_id {
            self.say_always(&format!("  {} {id}", self.ink(Ink::Dim, "request:")));
        }
    }

    /// Colours a text for stderr.
    #[must_use]
    pub fn ink(&self, ink: Ink, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Dim => "2",
            Ink::Good => "32",
            Ink::Bad => "1;31",
            Ink::Name => "36",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Replaces control characters, so that untrusted text cannot move the terminal's cursor or change its title.
#[must_use]
pub fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// One line of at most `chars_max` characters.
#[must_use]
pub fn clipped(text: &str, chars_max: usize) -> String {
    let line = tame(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= chars_max {
        return line;
    }
    line.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// A table with headings and without borders.
#[must_use]
pub fn table(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(headings.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| clipped(cell, 100)).collect::<Vec<_>>());
    }
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_does_not_control_the_terminal() {
        assert_eq!(tame("a\u{1b}[2Jb\nc\u{7}"), "a\u{fffd}[2Jb\nc\u{fffd}");
        assert_eq!(clipped("  one\n two\tthree ", 9), "one two …");
    }

    #[test]
    fn table_is_plain_text_in_columns() {
        let rows = vec![vec!["a".to_owned(), "one".to_owned()], vec!["long".to_owned(), "two".to_owned()]];
        assert_eq!(table(&["id", "word"], rows), "id    word\na     one\nlong  two");
    }
}
