//! The former versions of files that `files.write` replaced, in a folder `.annie-trash` beside them for 30 days.

use std::io;

use annie_core::{ids::IntentId, time::Micros};
use cap_std::{ambient_authority, fs::Dir};

use super::FileFolder;
use crate::error::SkillError;

/// The folder of former versions in each allowed folder.
pub(super) const TRASH: &str = ".annie-trash";

/// Keeps the present version of a file, and returns its path in the folder.
pub(super) fn keep(dir: &Dir, path: &str, now: Micros, intent: IntentId) -> io::Result<String> {
    let seconds = now.0 / 1_000_000;
    let name = path.replace('/', "_");
    // Long names would not fit behind the time.
    let name: String = name.chars().rev().take(100).collect::<Vec<_>>().into_iter().rev().collect();
    let kept = format!("{TRASH}/{seconds}-{intent}-{name}");
    dir.create_dir_all(TRASH)?;
    // A link keeps the whole file without copying it. Not every file system has links.
    match dir.hard_link(path, dir, &kept) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(kept),
        Err(_) => dir.copy(path, dir, &kept).map(|_| kept),
        Ok(()) => Ok(kept),
    }
}

/// Removes the versions that were kept before this time.
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
