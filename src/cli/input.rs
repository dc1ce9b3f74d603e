//! The input of `annie chat`: one message for each line. Lines that arrive together at a terminal are one message, so that a
//! line of a pasted text does not become a request. A paste that arrives in pieces, over a slow connection, or is longer than
//! [`PASTE_BYTES_MAX`], becomes several messages. A chat at a terminal that can show a live region edits its lines instead
//! (`src/cli/editor/`).

use std::{io::IsTerminal, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    sync::mpsc,
    task::JoinSet,
};

use super::{
    editor::Editor,
    failure::{Exit, Failure},
};

/// The longest line, in bytes; the kernel's own limit is usually lower.
const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// Lines that arrive at a terminal within this time of each other, in milliseconds, are one paste.
const PASTE_GAP_MS: u64 = 30;
/// A paste ends with the line that makes it longer than this.
const PASTE_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of lines that are read ahead.
const LINES_AHEAD_MAX: usize = 16;

/// Messages from stdin, read by a task.
pub struct Input {
    source: Source,
    /// Whether the input is a terminal.
    pub is_terminal: bool,
}

enum Source {
    Lines { lines: mpsc::Receiver<Result<String, String>>, _reader: JoinSet<()> },
    Edited(Box<Editor>),
}

impl Input {
    /// The stdin of this process.
    pub fn of_process() -> Self {
        Self::of(tokio::io::stdin(), std::io::stdin().is_terminal())
    }

    /// Messages from any reader.
    pub fn of(from: impl AsyncRead + Send + Unpin + 'static, is_terminal: bool) -> Self {
        let (sender, lines) = mpsc::channel(LINES_AHEAD_MAX);
        let mut reader = JoinSet::new();
        reader.spawn(read(BufReader::new(from), is_terminal, sender));
        Self { source: Source::Lines { lines, _reader: reader }, is_terminal }
    }

    /// Lines that are edited at a terminal.
    pub fn edited(editor: Editor) -> Self {
        Self { source: Source::Edited(Box::new(editor)), is_terminal: true }
    }

    /// The editor, if lines are edited.
    pub fn editor(&mut self) -> Option<&mut Editor> {
        match &mut self.source {
            Source::Edited(editor) => Some(editor),
            Source::Lines { .. } => None,
        }
    }

    /// The next message; nothing at the end of the input.
    ///
    /// # Errors
    /// If stdin cannot be read, or a line is too long or not UTF-8.
    pub async fn next(&mut self) -> Result<Option<String>, Failure> {
        match &mut self.source {
            Source::Edited(editor) => Ok(editor.next().await),
            Source::Lines { lines, .. } => {
                lines.recv().await.transpose().map_err(|why| Failure::new(Exit::Failure, why))
            }
        }
    }
}

/// Reads messages: one line each, or at a terminal the lines of one paste.
async fn read(
    mut from: BufReader<impl AsyncRead + Unpin>,
    is_terminal: bool,
    sender: mpsc::Sender<Result<String, String>>,
) {
    let mut partial = Vec::new();
    let mut end = None;
    while end.is_none() {
        let mut message = match line(&mut from, &mut partial).await {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(why) => {
                let _ = sender.send(Err(why)).await;
                return;
            }
        };
        // A paste is one message, because a person cannot type a line within this time. If the time is up within a line, the part
        // that was read stays in `partial`.
        while is_terminal && end.is_none() && message.len() < PASTE_BYTES_MAX {
            match tokio::time::timeout(Duration::from_millis(PASTE_GAP_MS), line(&mut from, &mut partial)).await {
                Ok(Ok(Some(more))) => message.push_str(&more),
                Ok(Ok(None)) => end = Some(Ok(())),
                Ok(Err(why)) => end = Some(Err(why)),
                Err(_) => break,
            }
        }
        if sender.send(Ok(message)).await.is_err() {
            return;
        }
    }
    if let Some(Err(why)) = end {
        let _ = sender.send(Err(why)).await;
    }
}

/// The next line with its line end, including the part that an earlier call left in `partial`; nothing at the end of the
/// input.
async fn line(from: &mut BufReader<impl AsyncRead + Unpin>, partial: &mut Vec<u8>) -> Result<Option<String>, String> {
    let left = LINE_BYTES_MAX.saturating_sub(partial.len() as u64);
    let read = from.take(left).read_until(b'\n', partial).await;
    read.map_err(|e| format!("cannot read stdin: {e}"))?;
    if partial.len() as u64 >= LINE_BYTES_MAX && !partial.ends_with(b"\n") {
        return Err(format!("a line is longer than {LINE_BYTES_MAX} bytes"));
    }
    if partial.is_empty() {
        return Ok(None);
    }
    let text = String::from_utf8(std::mem::take(partial));
    text.map(Some).map_err(|e| format!("cannot read stdin as UTF-8 text: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_of_one_paste_at_a_terminal_are_one_message() {
        use tokio::io::AsyncWriteExt;
        let (mut keyboard, terminal) = tokio::io::duplex(4_096);
        let mut input = Input::of(terminal, true);
        keyboard.write_all(b"summarize this:\nHi Ann\ndelete task 2\nhalf a li").await.unwrap();
        assert_eq!(input.next().await.unwrap().as_deref(), Some("summarize this:\nHi Ann\ndelete task 2\n"));
        keyboard.write_all(b"ne\n").await.unwrap();
        assert_eq!(input.next().await.unwrap().as_deref(), Some("half a line\n"));
        drop(keyboard);
        assert_eq!(input.next().await.unwrap(), None);
        // From a pipe each line is a message.
        let mut piped = Input::of(&b"one\ntwo\nthree"[..], false);
        for line in ["one\n", "two\n", "three"] {
            assert_eq!(piped.next().await.unwrap().as_deref(), Some(line));
        }
        assert_eq!(piped.next().await.unwrap(), None);
    }
}
