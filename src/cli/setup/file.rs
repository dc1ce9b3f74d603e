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
        put(&draft, path, backup.is_some()).and_then(|()| sync_folder(path)).map_err(|e| {
            let kept = backup.as_ref().map_or(String::new(), |at| format!("; the old file is also {}", at.display()));
            Failure::io(&format!("cannot write {}{kept}", path.display()), &e)
        })?;
        Ok(backup)
    });
    let _ = fs::remove_file(&draft);
    done
}

/// Gives the draft its name in one step, so that a process that dies leaves the old file or the new one.
fn put(draft: &Path, path: &Path, replaces: bool) -> io::Result<()> {
    if replaces {
        return fs::rename(draft, path);
    }
    // A link is made only where nothing is: a file that appeared meanwhile is kept.
    match fs::hard_link(draft, path) {
        Err(e) if has_no_links(&e) => {
            // Taking the name first keeps another's file on a file system without hard links, too.
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            fs::rename(draft, path).inspect_err(|_| drop(fs::remove_file(path)))
        }
        done => done,
    }
}

/// Whether a file system refuses hard links, such as FAT and some network mounts.
fn has_no_links(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
        || e.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
}

/// A new name is safe on the disk once its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder)?.sync_all().or_else(|e| if syncs_no_folder(&e) { Ok(()) } else { Err(e) })
}

/// Whether a file system syncs files but no folders, such as FAT and some network mounts: the file has its name by then.
fn syncs_no_folder(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
        || e.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
}

fn draft_of(draft: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Gives a file the first free name of a backup, beside its own.
fn back_up(path: &Path) -> io::Result<PathBuf> {
    for number in 1..=BACKUPS_MAX {
        let backup = beside(path, &format!("bak-{number}"));
        let kept = fs::hard_link(path, &backup);
        match kept.or_else(|e| if has_no_links(&e) { copy(path, &backup) } else { Err(e) }) {
            Ok(()) => return Ok(backup),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other(format!("there are {BACKUPS_MAX} backups")))
}

/// The backup as a copy, on a file system without hard links.
fn copy(path: &Path, backup: &Path) -> io::Result<()> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(backup)?;
    io::copy(&mut fs::File::open(path)?, &mut copy)?;
    copy.sync_all()
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{end}"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_kept_until_the_new_one_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (path, gone) = (folder.path().join("annie.toml"), folder.path().join("draft"));
        fs::write(&path, "mode = \"direct\"\n").unwrap();
        let backup = back_up(&path).unwrap();
        assert!(put(&gone, &path, true).is_err(), "there is no draft to put there");
        for at in [&path, &backup] {
            assert_eq!(fs::read_to_string(at).unwrap(), "mode = \"direct\"\n", "{}", at.display());
        }
    }

    #[test]
    fn folder_that_its_file_system_cannot_sync_is_no_failed_write() {
        let of = |errno: rustix::io::Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        use rustix::io::Errno;
        assert!([Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS].map(of).iter().all(syncs_no_folder));
        assert!(![Errno::IO, Errno::NOSPC].map(of).iter().any(syncs_no_folder));
    }

    #[test]
    fn first_file_is_not_put_over_one_that_appeared_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (path, draft) = (folder.path().join("annie.toml"), folder.path().join("draft"));
        fs::write(&draft, "new").unwrap();
        fs::write(&path, "another's").unwrap();
        assert_eq!(put(&draft, &path, false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }

    #[test]
    fn backup_that_is_copied_takes_no_name_that_is_in_use_and_is_its_owners() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, backup) = (folder.path().join("annie.toml"), folder.path().join("backup"));
        fs::write(&path, "old").unwrap();
        copy(&path, &backup).unwrap();
        assert_eq!(fs::read_to_string(&backup).unwrap(), "old");
        assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(copy(&path, &backup).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
