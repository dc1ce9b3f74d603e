//! The edited line of a chat at a terminal. The terminal gives each key at once, so that a line can be edited while an answer
//! is written above it. Ctrl-C remains a signal. The terminal is restored when the editor is dropped, also by a panic.

mod history;
mod keys;
mod line;

use std::{io::Write as _, path::Path, time::Duration};

use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};

use self::{
    history::History,
    keys::{Decoder, Key},
    line::{Done, Line},
};
use super::{
    console::{Console, Ink, tame},
    failure::Failure,
    screen::Edited,
};

const PROMPT: &str = "> ";
/// Enter is part of a paste if more follows within this time, in milliseconds. A person cannot type so fast, and a terminal
/// without bracketed paste sends the lines of a paste like typed ones.
const PASTE_GAP_MS: u64 = 30;
/// Maximum number of keys that are read ahead.
const KEYS_AHEAD_MAX: usize = 1_024;
/// How many bytes are read at a time.
const READ_BYTES: usize = 4_096;

/// A terminal whose keys are read one by one, until this is dropped.
struct KeyMode {
    saved: Termios,
}

impl KeyMode {
    fn enter() -> std::io::Result<Self> {
        let mode = Self { saved: tcgetattr(std::io::stdin())? };
        mode.apply()?;
        Ok(mode)
    }

    /// Switches to single keys, and asks the terminal to mark pastes.
    fn apply(&self) -> std::io::Result<()> {
        let mut keys = self.saved.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
        // Enter and the line breaks of a paste arrive as the terminal sends them, and Ctrl-S does not stop the output.
        keys.input_modes -= InputModes::ICRNL | InputModes::IXON;
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &keys)?;
        let mut out = std::io::stderr();
        out.write_all(b"\x1b[?2004h")?;
        out.flush()
    }
}

impl Drop for KeyMode {
    fn drop(&mut self) {
        let mut out = std::io::stderr();
        let _ = out.write_all(b"\x1b[?2004l").and_then(|()| out.flush());
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.saved);
    }
}

/// The line of a chat, and the keys that change it.
pub struct Editor {
    console: Console,
    line: Line,
    history: History,
    commands: Vec<String>,
    keys: mpsc::Receiver<Key>,
    resized: Signal,
    continued: Signal,
    /// The prompt is shown although nothing is typed.
    is_idle: bool,
    mode: KeyMode,
    _reader: JoinSet<()>,
}

impl Editor {
    /// Switches the terminal of this process to single keys. A private chat reads and stores no history.
    ///
    /// # Errors
    /// If the terminal cannot be controlled.
    pub fn open(console: &Console, folder: &Path, is_private: bool) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::io("cannot control the terminal", &e);
        let history = History::of(folder, is_private);
        let (resized, continued) =
            (SignalKind::window_change(), SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()));
        let (resized, continued) = (signal(resized).map_err(failed)?, signal(continued).map_err(failed)?);
        let mode = KeyMode::enter().map_err(failed)?;
        let (sender, keys) = mpsc::channel(KEYS_AHEAD_MAX);
        let mut reader = JoinSet::new();
        reader.spawn(read(tokio::io::stdin(), sender));
        let line = Line::after(history.lines());
        let console = console.clone();
        let commands = Vec::new();
        Ok(Self { console, line, history, commands, keys, resized, continued, is_idle: false, mode, _reader: reader })
    }

    /// Sets the commands that Tab completes.
    pub fn set_commands(&mut self, commands: Vec<String>) {
        self.commands = commands;
    }

    /// Shows the prompt if the chat is idle. A line that was begun is shown in any case.
    pub fn show(&mut self, is_idle: bool) {
        self.is_idle = is_idle;
        let text = self.line.text();
        let edited = Edited { prompt: PROMPT, text: text.to_owned(), cursor: self.line.cursor() };
        self.console.show_edited((is_idle || !text.is_empty()).then_some(edited));
    }

    /// The next line; nothing at the end of the input. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                key = self.keys.recv() => {
                    match self.line.press(key?, &self.commands) {
                        Done::Edited => {}
                        Done::Submitted(line) => {
                            self.submitted(&line);
                            return Some(line);
                        }
                        Done::Ended => return None,
                        Done::Candidates(names) => self.console.say_always(&self.console.ink(Ink::Dim, &names.join("  "))),
                        Done::Cleared => self.console.clear(),
                    }
                    self.show(self.is_idle);
                }
                _ = self.resized.recv() => self.console.redraw(),
                _ = self.continued.recv() => {
                    // The shell has changed the mode of the terminal.
                    let _ = self.mode.apply();
                    self.console.redraw();
                }
            }
        }
    }

    /// Moves the line from the live region to the output.
    fn submitted(&mut self, line: &str) {
        self.console.show_edited(None);
        self.console.say_always(&format!("{PROMPT}{}", tame(line)));
        if !line.trim().is_empty() {
            self.line.remember(line);
            self.history.store(line);
        }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.console.show_edited(None);
    }
}

/// Reads keys until the end of the input.
async fn read(mut from: impl AsyncRead + Unpin, sender: mpsc::Sender<Key>) {
    let mut decoder = Decoder::default();
    let mut bytes = vec![0; READ_BYTES];
    let mut is_enter_held = false;
    loop {
        let read = if is_enter_held || decoder.is_within_sequence() {
            match tokio::time::timeout(Duration::from_millis(PASTE_GAP_MS), from.read(&mut bytes)).await {
                Ok(read) => read,
                Err(_) => {
                    decoder.is_silent();
                    if std::mem::take(&mut is_enter_held) && sender.send(Key::Enter).await.is_err() {
                        return;
                    }
                    continue;
                }
            }
        } else {
            from.read(&mut bytes).await
        };
        let read = read.unwrap_or(0);
        let mut keys = decoder.keys(&bytes[..read]);
        if is_enter_held {
            keys.insert(0, Key::Enter);
        }
        is_enter_held = read > 0 && keys.last() == Some(&Key::Enter);
        let ready = keys.len() - usize::from(is_enter_held);
        for (n, key) in keys.drain(..ready).enumerate() {
            // More follows, so that this is a line of a paste.
            let is_paste = key == Key::Enter && (is_enter_held || n + 1 < ready);
            let key = if is_paste { Key::Text("\n".to_owned()) } else { key };
            if sender.send(key).await.is_err() {
                return;
            }
        }
        if read == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_that_arrive_together_are_one_text_and_enter_alone_submits() {
        let (mut keyboard, terminal) = tokio::io::duplex(4_096);
        let (sender, mut keys) = mpsc::channel(64);
        let mut reader = JoinSet::new();
        reader.spawn(read(terminal, sender));
        let mut next = async |count: usize| {
            let mut line = String::new();
            for _ in 0..count {
                match keys.recv().await {
                    Some(Key::Text(text)) => line.push_str(&text),
                    other => line.push_str(&format!("[{other:?}]")),
                }
            }
            line
        };
        keyboard.write_all(b"a\rb\r").await.unwrap();
        assert_eq!(next(4).await, "a\nb[Some(Enter)]");
        keyboard.write_all(b"c\r").await.unwrap();
        assert_eq!(next(1).await, "c");
        keyboard.write_all(b"d\x1b").await.unwrap();
        assert_eq!(next(2).await, "\nd");
        // Escape alone does nothing.
        tokio::time::advance(Duration::from_millis(PASTE_GAP_MS * 2)).await;
        tokio::task::yield_now().await;
        keyboard.write_all(b"e\r").await.unwrap();
        drop(keyboard);
        assert_eq!(next(3).await, "e[Some(Enter)][None]");
    }
}
