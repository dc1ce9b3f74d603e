//! The records of `files.write` in a folder `.annie-trash` beside the files, for 30 days: the former version of a file that was
//! replaced, or an empty file for a file that is new or had the content already. The name of a record has the intent of the write, so that a write that is
//! run again after an interruption is recognised.

use std::io;

use annie_core::{ids::IntentId, time::Micros};
use cap_std::{ambient_authority, fs::Dir};

use super::FileFolder;
use crate::error::SkillError;

/// The folder of records in each allowed folder.
pub(super) const TRASH: &str = ".annie-trash";
/// How much of a file's path stands in the name of its record, in bytes. With the time and the intent the name stays below the
/// 255 bytes that file systems allow.
const NAME_BYTES_MAX: usize = 150;

/// What one intent wrote: a new file, a file whose former version is at this path, or nothing, because the file had the content.
pub(super) enum Record {
    New,
    Former(String),
    Same,
}

/// The end of the name of a record that says that nothing was written.
const SAME: &str = ".same";

/// Records the write of an intent before it happens: keeps the present version of the file if there is one.
pub(super) fn record(dir: &Dir, path: &str, is_new: bool, now: Micros, intent: IntentId) -> io::Result<Record> {
    let seconds = now.0 / 1_000_000;
    dir.create_dir_all(TRASH)?;
    let record = if is_new {
        dir.create(format!("{TRASH}/{seconds}-{intent}"))?.sync_all()?;
        Record::New
    } else {
        let name = path.replace('/', "_");
        let kept = format!(
            "{TRASH}/{seconds}-{intent}-{}",
            &name[name.ceil_char_boundary(name.len().saturating_sub(NAME_BYTES_MAX))..]
        );
        // A link keeps the whole file without copying it. Not every file system has links.
        if dir.hard_link(path, dir, &kept).is_err() {
            dir.copy(path, dir, &kept)?;
            // The former version is lost with the rename: its copy must be on the disk before.
            dir.open(&kept)?.sync_all()?;
        }
        Record::Former(kept)
    };
    // Otherwise a power failure could keep the write and lose its record.
    dir.open(TRASH)?.sync_all()?;
    Ok(record)
}

/// Records that an intent wrote nothing, because the file had the content already.
pub(super) fn record_same(dir: &Dir, now: Micros, intent: IntentId) -> io::Result<Record> {
    dir.create_dir_all(TRASH)?;
    dir.create(format!("{TRASH}/{}-{intent}{SAME}", now.0 / 1_000_000))?.sync_all()?;
    dir.open(TRASH)?.sync_all()?;
    Ok(Record::Same)
}

/// The record of an intent.
pub(super) fn find(dir: &Dir, intent: IntentId) -> io::Result<Option<Record>> {
    let entries = match dir.read_dir(TRASH) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let intent = intent.to_string();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        match name.split_once('-').and_then(|(_, rest)| rest.strip_prefix(&intent)) {
            Some("") => return Ok(Some(Record::New)),
            Some(SAME) => return Ok(Some(Record::Same)),
            Some(rest) if rest.starts_with('-') => return Ok(Some(Record::Former(format!("{TRASH}/{name}")))),
            _ => {}
        }
    }
    Ok(None)
}

/// Removes the records of an intent whose write did not happen.
pub(super) fn remove(dir: &Dir, intent: IntentId) -> io::Result<()> {
    let intent = intent.to_string();
    for entry in dir.read_dir(TRASH)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.split_once('-').is_some_and(|(_, rest)| rest.starts_with(&intent)) {
            entry.remove_file()?;
        }
    }
    Ok(())
}

/// Removes the records that were made before this time.
pub(super) fn purge(folder: &FileFolder, before: Micros) -> Result<u64, SkillError> {
    let failed = |error| SkillError::io(format!("cannot purge the former versions in {}", folder.name), error);
    let Ok(dir) = Dir::open_ambient_dir(&folder.path, ambient_authority()) else { return Ok(0) };
    let entries = match dir.read_dir(TRASH) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(error)),
    };
    let mut purged = 0;
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kept_at = name.split('-').next().and_then(|seconds| seconds.parse::<i64>().ok());
        if kept_at.is_some_and(|seconds| seconds < before.0 / 1_000_000) {
            entry.remove_file().map_err(failed)?;
            purged += 1;
        }
    }
    Ok(purged)
}
