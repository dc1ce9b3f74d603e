//! The output of commands: data on stdout, messages on stderr, colours only on terminals that allow them. No other code of
//! this package writes to stdout or stderr.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError},
};

use annie_core::hidden::{is_hidden, shown};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    failure::Failure,
    screen::{Edited, Screen, Size},
};
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
    /// Whether stderr is a terminal that can show a live region below the output.
    has_region: bool,
    is_out_terminal: bool,
    screen: Arc<Mutex<Screen>>,
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

/// The signals that end a process, for a command that must restore the terminal first. By default none is handled here, and a
/// signal ends the process at once.
#[derive(Default)]
pub struct Terminations(Option<[Signal; 3]>);

impl Terminations {
    /// Handles SIGTERM, SIGHUP, and SIGQUIT, which Ctrl-\ sends.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new() -> Result<Self, Failure> {
        let handled = |kind| signal(kind).map_err(|e| Failure::io("cannot wait for signals", &e));
        let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        let [terminate, hangup, quit] = kinds.map(handled);
        Ok(Self(Some([terminate?, hangup?, quit?])))
    }

    /// Waits for a signal.
    pub async fn next(&mut self) {
        match &mut self.0 {
            Some([terminate, hangup, quit]) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                    _ = quit.recv() => {}
                }
            }
            None => std::future::pending().await,
        }
    }
}

impl Console {
    /// Writes to stdout and stderr of the process.
    #[must_use]
    pub fn of_process(manner: Manner, environment: &Environment) -> Self {
        let plain = manner.plain || manner.json;
        let is_out_terminal = io::stdout().is_terminal();
        Self {
            manner,
            live: !plain && is_out_terminal,
            color: !plain && io::stderr().is_terminal() && !environment.no_color(),
            has_region: !plain && io::stderr().is_terminal() && !environment.is_dumb_terminal(),
            is_out_terminal,
            screen: Arc::default(),
            out: Arc::new(Mutex::new(io::stdout())),
            err: Arc::new(Mutex::new(io::stderr())),
        }
    }

    /// Other sinks, for tests.
    #[cfg(test)]
    pub fn into_sinks(manner: Manner, out: Sink, err: Sink) -> Self {
        let (screen, color) = (Arc::default(), false);
        Self { manner, live: false, color, has_region: false, is_out_terminal: false, screen, out, err }
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
        let written = self.above_region(text, self.is_out_terminal, false, || {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        });
        written.map_err(|e| Failure::io("cannot write to stdout", &e))
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
        let line = format!("{text}\n");
        // A message does not continue a row of an answer that is being written.
        self.above_region(&line, true, true, || self.to_stderr(&line));
    }

    fn to_stderr(&self, text: &str) {
        let mut err = self.err.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    }

    // The live region

    /// Whether the terminal can show a live region.
    #[must_use]
    pub const fn has_region(&self) -> bool {
        self.has_region
    }

    /// Whether it may be shown what a turn waits for.
    #[must_use]
    pub const fn has_status(&self) -> bool {
        self.has_region && !self.manner.quiet
    }

    /// Width of the terminal on stdout, in columns. Absent if stdout is no terminal, or plain output is wanted.
    #[must_use]
    pub fn columns(&self) -> Option<usize> {
        let is_fitted = self.is_out_terminal && !self.manner.plain && !self.manner.json;
        let size = is_fitted.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    }

    fn size() -> Size {
        rustix::termios::tcgetwinsize(io::stderr()).map_or_else(|_| Size::default(), |s| Size::of(s.ws_col, s.ws_row))
    }

    /// Writes output: removes the live region before it, and draws the region again below it.
    fn above_region<T>(&self, text: &str, is_on_terminal: bool, begins_row: bool, write: impl FnOnce() -> T) -> T {
        if !self.has_region {
            return write();
        }
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let size = Self::size();
        self.to_stderr(&screen.erase(size));
        if begins_row && screen.is_within_row() {
            self.to_stderr("\n");
            screen.advance("\n", size);
        }
        let written = write();
        if is_on_terminal {
            screen.advance(text, size);
        }
        self.to_stderr(&screen.draw(size));
        written
    }

    fn change_region(&self, change: impl FnOnce(&mut Screen) -> bool) {
        if !self.has_region {
            return;
        }
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut screen) {
            let size = Self::size();
            let erased = screen.erase(size);
            self.to_stderr(&(erased + &screen.draw(size)));
        }
    }

    /// Shows what a turn waits for, or nothing.
    pub fn show_status(&self, status: Option<String>) {
        self.change_region(|screen| screen.set_status(status));
    }

    /// Shows the line that is being edited, or nothing.
    pub fn show_edited(&self, edited: Option<Edited>) {
        self.change_region(|screen| screen.set_edited(edited));
    }

    /// Draws the live region again, for a terminal of another size.
    pub fn redraw(&self) {
        self.change_region(|_| true);
    }

    /// Clears the terminal.
    pub fn clear(&self) {
        self.change_region(|screen| {
            *screen = Screen::default();
            self.to_stderr("\u{1b}[H\u{1b}[2J");
            true
        });
    }

    /// Writes an error with its fix.
    pub fn error(&self, failure: &Failure) {
        // A part of the text may come from a server.
        self.say_always(&format!("{} {}", self.ink(Ink::Bad, "error:"), tame(&failure.what)));
        if let Some(fix) = &failure.fix {
            self.say_always(&format!("  {} {}", self.ink(Ink::Dim, "fix:"), tame(fix)));
        }
        if let Some(id) = &failure.request_id {
            self.say_always(&format!("  {} {}", self.ink(Ink::Dim, "request:"), tame(id)));
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

/// Replaces control characters, so that untrusted text cannot move the terminal's cursor or change its title. Characters that hide
/// or reorder others are shown by their number; those that scripts and emoji need stay.
#[must_use]
pub fn tame(text: &str) -> String {
    let mut tamed = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200c}'..='\u{200f}' => tamed.push(c),
            c if c.is_control() => tamed.push('\u{fffd}'),
            c if is_hidden(c) => tamed.push_str(&shown(c)),
            c => tamed.push(c),
        }
    }
    tamed
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
        assert_eq!(tame("rm \u{202e}a\u{2069}\u{200b}b 👩\u{200d}💻"), "rm <U+202E>a<U+2069><U+200B>b 👩\u{200d}💻");
        assert_eq!(clipped("  one\n two\tthree ", 9), "one two …");
    }

    #[test]
    fn error_of_a_server_does_not_control_the_terminal() {
        let err: Arc<Mutex<Vec<u8>>> = Arc::default();
        let console = Console::into_sinks(Manner::default(), Arc::new(Mutex::new(Vec::new())), err.clone());
        let mut failure = Failure::new(crate::cli::failure::Exit::Failure, "no\u{1b}[2J").fix("try\u{1b}]0;x\u{7}");
        failure.request_id = Some("r\u{1b}c".to_owned());
        console.error(&failure);
        let shown = String::from_utf8(err.lock().unwrap().clone()).unwrap();
        assert!(shown.contains("no\u{fffd}[2J") && !shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    }

    #[test]
    fn table_is_plain_text_in_columns() {
        let rows = vec![vec!["a".to_owned(), "one".to_owned()], vec!["long".to_owned(), "two".to_owned()]];
        assert_eq!(table(&["id", "word"], rows), "id    word\na     one\nlong  two");
    }
}
