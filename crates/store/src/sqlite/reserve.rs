//! Disk space that is reserved for a start on a full disk. SQLite creates two files beside a database that it opens, which
//! fails on a full disk: without the reserve, a process that was shut down normally could not start again, not even to read.

use std::{
    fs::{File, remove_file, rename},
    io::{Error, ErrorKind, Write},
    path::Path,
};

use super::folder::private_file;

/// The reserve file in a data folder.
const RESERVE_FILE: &str = "annie.reserve";
const DRAFT_FILE: &str = "annie.reserve.tmp";
/// Space for the index of the write-ahead log (32 KiB), its first frames, and the small files of a start.
const RESERVE_BYTES: u64 = 256 * 1024;
/// Bytes per write: a block of most file systems.
const BLOCK_BYTES: usize = 4096;

/// Reserves the space. On a full disk it reserves what is left after a start, so that nothing else uses it; the next start
/// tries to reserve the rest.
pub(super) fn keep(folder: &Path) {
    let path = folder.join(RESERVE_FILE);
    let kept_bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    if kept_bytes >= RESERVE_BYTES {
        return;
    }
    let draft = folder.join(DRAFT_FILE);
    match fill(&draft) {
        Ok(bytes) if bytes > kept_bytes && rename(&draft, &path).is_ok() => {}
        Ok(_) | Err(_) => {
            let _ = remove_file(&draft);
            tracing::debug!("no space is reserved for a start on a full disk");
        }
    }
}

/// Writes the reserve file, as large as possible; returns its size in bytes.
fn fill(draft: &Path) -> Result<u64, Error> {
    let mut file: File = private_file(draft)?;
    file.set_len(0)?;
    let mut bytes = 0;
    while bytes < RESERVE_BYTES {
        match file.write_all(&[0; BLOCK_BYTES]) {
            Ok(()) => bytes += BLOCK_BYTES as u64,
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Releases the space. False if none was reserved.
pub(super) fn release(folder: &Path) -> bool {
    remove_file(folder.join(RESERVE_FILE)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_kept_once_and_released_once() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!release(folder.path()));
        keep(folder.path());
        keep(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        assert_eq!(std::fs::metadata(folder.path().join(RESERVE_FILE)).unwrap().len(), RESERVE_BYTES);
        assert!(release(folder.path()) && !release(folder.path()));
    }
}
