//! Writes the configuration: whole or not at all, readable by its owner only, and never over a file that is there.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{
    cli::failure::{Exit, Failure},
    config::Sources,
};

/// Backups of one file, at most.
const BACKUPS_MAX: u32 = 1_000;

/// Writes it, if it is a configuration. With `replaces`, a file that is there becomes a backup, whose path is answered.
pub(super) fn write(path: &Path, text: &str, replaces: bool) -> Result<Option<PathBuf>, Failure> {
    let failed = |e: io::Error| Failure::io(&format!("cannot write {}", path.display()), &e);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    let draft = beside(path, &format!("new-{}", std::process::id()));
    let written = draft_of(&draft, text).map_err(failed);
    let done = written.and_then(|()| {
        Sources::only(draft.clone())
            .load()
            .map_err(|e| Failure::new(Exit::Failure, format!("it would not be valid: {e}")))?;
        let backup = if replaces && path.exists() { Some(back_up(path).map_err(failed)?) } else { None };
        // A link is made only where nothing is: whoever wrote a file there meanwhile keeps it.
        fs::hard_link(&draft, path).map_err(failed)?;
        Ok(backup)
    });
    let _ = fs::remove_file(&draft);
    done
}

fn draft_of(draft: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Moves a file to the first free name of a backup.
fn back_up(path: &Path) -> io::Result<PathBuf> {
    for number in 1..=BACKUPS_MAX {
        let backup = beside(path, &format!("bak-{number}"));
        match fs::hard_link(path, &backup) {
            Ok(()) => {
                fs::remove_file(path)?;
                return Ok(backup);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other(format!("there are {BACKUPS_MAX} backups")))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{end}"));
    path.with_file_name(name)
}
