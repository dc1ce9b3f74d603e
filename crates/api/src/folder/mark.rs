//! The mark of a data folder records what its database held when this program last used it. Without the mark, a database that
//! was lost or emptied would start without keys and accept every caller on this machine. With it, such a start is refused.

use std::{
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
};

use annie_core::{
    event::Scope,
    ports::{Before, Store, StoreError},
    time::Micros,
};
use serde::{Deserialize, Serialize};

/// The name of the file in a data folder.
const MARK_FILE: &str = "database.mark";
/// Held from reading the mark until it is written, because [`Mark::note_keys`] and [`Mark::advance`] can run at the same time.
static WRITING: Mutex<()> = Mutex::new(());

/// What a database holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// Whether it has API keys, including revoked ones.
    pub keys: bool,
    /// Whether it has conversations.
    pub conversations: bool,
    /// The time of the newest event, in microseconds since 1970; 0 if there was none. Written within a second of a commit. A
    /// database whose newest event is older has lost the end of its log, for example by a truncated write-ahead log.
    pub newest_event_us: i64,
}

impl Mark {
    /// The mark of a database that held everything.
    const FULL: Self = Self { keys: true, conversations: true, newest_event_us: 0 };

    /// Reads what a store holds.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        let newest = store.conversations(Scope::Operator, Before::NEWEST, 1).await?;
        let newest_event_us = newest.first().map_or(0, |row| row.updated_at.0);
        Ok(Self { keys: !store.keys().await?.is_empty(), conversations: !newest.is_empty(), newest_event_us })
    }

    /// Reads the mark of a folder. An unreadable mark counts as the mark of a full database, so that damage never removes
    /// protection.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        match std::fs::read(folder.join(MARK_FILE)) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or(Self::FULL),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::default(),
            Err(error) => {
                tracing::warn!(%error, "the mark of the data folder could not be read");
                Self::FULL
            }
        }
    }

    /// Advances the mark of a folder in use. Keys that were recorded after `self` was read from the store stay recorded.
    pub fn advance(self, folder: &Path) {
        let _one = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        Self { keys: self.keys || Self::read(folder).keys, ..self }.write(folder);
    }

    /// Writes the mark atomically. A failed write, for example on a full disk, does not prevent the start: the mark stays as it
    /// was.
    pub fn write(self, folder: &Path) {
        if Self::read(folder) == self {
            return;
        }
        if let Err(error) = self.try_write(folder) {
            tracing::warn!(%error, "the mark of the data folder could not be written");
        }
    }

    fn try_write(self, folder: &Path) -> std::io::Result<()> {
        let (path, draft) = (folder.join(MARK_FILE), folder.join("database.mark.tmp"));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&draft)?;
        file.write_all(serde_json::to_string(&self)?.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(draft, path)
    }

    /// Records that keys exist.
    pub fn note_keys(folder: &Path) {
        let _one = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        Self { keys: true, ..Self::read(folder) }.write(folder);
    }

    /// The time up to which this folder's database once held events that `found` lacks; nothing if none are missing.
    #[must_use]
    pub fn lost_until(self, found: Self) -> Option<Micros> {
        (found.newest_event_us < self.newest_event_us).then_some(Micros(self.newest_event_us))
    }

    /// What `found` lacks compared with this mark.
    #[must_use]
    pub fn missing_in(self, found: Self) -> Option<&'static str> {
        match (self.keys && !found.keys, self.conversations && !found.conversations) {
            (true, true) => Some("API keys and conversations"),
            (true, false) => Some("API keys"),
            (false, true) => Some("conversations"),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_round_trips_and_damaged_file_counts_as_full() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Mark::read(folder.path()), Mark::default());
        let mark = Mark { keys: false, conversations: true, newest_event_us: 7 };
        mark.write(folder.path());
        assert_eq!(Mark::read(folder.path()), mark);
        Mark::note_keys(folder.path());
        assert_eq!(Mark::read(folder.path()), Mark { keys: true, ..mark });
        let later = Mark { newest_event_us: 8, ..mark };
        later.advance(folder.path());
        assert_eq!(
            Mark::read(folder.path()),
            Mark { keys: true, ..later },
            "keys recorded in the meantime stay recorded"
        );
        assert_eq!(mark.lost_until(Mark { newest_event_us: 6, ..mark }), Some(Micros(7)));
        assert_eq!(mark.lost_until(mark), None);
        std::fs::write(folder.path().join(MARK_FILE), "{").unwrap();
        assert_eq!(Mark::read(folder.path()).missing_in(Mark::default()), Some("API keys and conversations"));
        std::fs::remove_file(folder.path().join(MARK_FILE)).unwrap();
        std::fs::create_dir(folder.path().join(MARK_FILE)).unwrap();
        assert_eq!(Mark::read(folder.path()), Mark::FULL, "an unreadable mark is not a missing mark");
    }
}
