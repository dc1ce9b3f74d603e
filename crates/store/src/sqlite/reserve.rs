//! Space that is kept for a start on a full disk. SQLite makes two files beside a database that it opens, and on a full disk
//! cannot: without this, a process that stopped in good order would not come up again, not even to read.

use std::{
    fs::{File, remove_file, rename},
    io::{Error, Write},
    path::Path,
};

use super::folder::private_file;

/// The file in a data folder.
const RESERVE_FILE: &str = "annie.reserve";
const DRAFT_FILE: &str = "annie.reserve.tmp";
/// Room for the index of the write-ahead log (32 KiB), its first frames, and the small files of a start.
const RESERVE_BYTES: usize = 256 * 1024;

/// Sees to it that the space is there. A disk that is full now gets another chance at the next start.
pub(super) fn keep(folder: &Path) {
    let path = folder.join(RESERVE_FILE);
    if std::fs::metadata(&path).is_ok_and(|file| file.len() >= RESERVE_BYTES as u64) {
        return;
    }
    let draft = folder.join(DRAFT_FILE);
    if let Err(error) = fill(&draft).and_then(|()| rename(&draft, &path)) {
        let _ = remove_file(&draft);
        tracing::debug!(%error, "no space is kept for a start on a full disk");
    }
}

fn fill(draft: &Path) -> Result<(), Error> {
    let mut file: File = private_file(draft)?;
    file.write_all(&[0; RESERVE_BYTES])
}

/// Gives the space free. False if none was kept.
pub(super) fn release(folder: &Path) -> bool {
    remove_file(folder.join(RESERVE_FILE)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_kept_once_and_given_free_once() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!release(folder.path()));
        keep(folder.path());
        keep(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        assert_eq!(std::fs::metadata(folder.path().join(RESERVE_FILE)).unwrap().len(), RESERVE_BYTES as u64);
        assert!(release(folder.path()) && !release(folder.path()));
    }
}
