//! The lines that were typed into chats, in a file of the data folder that only its owner may read. A line that contains a
//! secret is not stored, and a private chat stores none.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use annie_core::redact::{Redaction, redact};

use crate::system::write_private;

/// The file in the data folder.
const FILE: &str = "cli_history";
/// Maximum number of stored lines: beyond it the oldest are removed at the start of a chat.
const LINES_MAX: usize = 1_000;
/// The longest line that is stored, in bytes.
const LINE_BYTES_MAX: usize = 4_096;
/// A larger file is not read, in bytes: it was not written by this program.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Words after which people write a secret.
const SECRET_WORDS: [&str; 6] = ["password", "passwd", "passphrase", "secret", "api key", "api_key"];

/// The stored lines.
#[derive(Debug)]
pub struct History {
    /// Nothing is stored without a file.
    file: Option<PathBuf>,
}

impl History {
    /// The history in a data folder. A private chat has none.
    #[must_use]
    pub fn of(folder: &Path, is_private: bool) -> Self {
        Self { file: (!is_private).then(|| folder.join(FILE)) }
    }

    /// Reads the newest lines, oldest first. A history that cannot be read is empty.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let Some(file) = &self.file else { return Vec::new() };
        if std::fs::metadata(file).is_ok_and(|about| about.len() > FILE_BYTES_MAX) {
            return Vec::new();
        }
        let bytes = std::fs::read(file).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let stored: Vec<&str> = text.lines().collect();
        let newest = &stored[stored.len().saturating_sub(LINES_MAX)..];
        if newest.len() < stored.len() {
            let _ = write_private(file, &(newest.join("\n") + "\n"));
        }
        newest.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Stores a line, if it may be stored. A failure is ignored: the line is sent in any case.
    pub fn store(&self, line: &str) {
        let Some(file) = self.file.as_ref().filter(|_| may_be_stored(line)) else { return };
        let Ok(text) = serde_json::to_string(line) else { return };
        let _ = append(file, &(text + "\n"));
    }
}

/// Appends with one write, so that two chats do not mix their lines.
fn append(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut open = OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
    // A file that was copied may have wider permissions.
    open.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    open.write_all(text.as_bytes())
}

fn may_be_stored(line: &str) -> bool {
    let lower = line.to_lowercase();
    let has_secret = SECRET_WORDS.iter().any(|word| lower.contains(word))
        || !redact(&mut line.to_owned(), &[Redaction::Secrets, Redaction::Pii], "").is_empty();
    // As in every shell, a line that begins with a space is not stored.
    !line.trim().is_empty() && !line.starts_with(' ') && line.len() <= LINE_BYTES_MAX && !has_secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_read_back_with_its_line_breaks_and_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path(), false);
        assert_eq!(history.lines(), Vec::<String>::new());
        history.store("one\ntwo");
        assert_eq!(history.lines(), ["one\ntwo"]);
        let file = folder.path().join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "broken\n".to_owned() + &"\"x\"\n".repeat(LINES_MAX + 5)).unwrap();
        assert_eq!(history.lines().len(), LINES_MAX);
        history.store("last");
        assert_eq!(history.lines().last().map(String::as_str), Some("last"));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn secrets_and_private_chats_are_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path(), false);
        let key = format!("use sk-proj-{}", "a1B2c3D4".repeat(6));
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        for line in ["my Password is hunter2", &key, "  hidden", "", &long] {
            history.store(line);
        }
        History::of(folder.path(), true).store("private");
        assert_eq!(history.lines(), Vec::<String>::new());
        assert!(!folder.path().join(FILE).exists());
    }
}
