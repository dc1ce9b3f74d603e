//! Writes the configuration file atomically, readable by its owner only, and never over an existing file without a backup.

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

/// Maximum number of backups of one file.
const BACKUPS_MAX: u32 = 1_000;

/// Writes the file if its text is a valid configuration. With `replaces`, an existing file becomes a backup, whose path is
/// returned.
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

/// Renames the draft atomically, so that a crash leaves either the old file or the new one.
fn put(draft: &Path, path: &Path, replaces: bool) -> io::Result<()> {
    if replaces {
        return fs::rename(draft, path);
    }
    // A hard link is created only if the name is free, so a file that appeared meanwhile is kept.
    match fs::hard_link(draft, path) {
        Err(e) if has_no_links(&e) => {
            // On a file system without hard links, creating the file first also protects a file of another process.
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

/// Syncs the folder of a file, because a new name is durable only after that.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder)?.sync_all().or_else(|e| if syncs_no_folder(&e) { Ok(()) } else { Err(e) })
}

/// Whether a file system syncs files but not folders, such as FAT and some network mounts. The file has its name already.
fn syncs_no_folder(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
        || e.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
}

fn draft_of(draft: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Creates a backup under the first free backup name in the same folder.
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

/// Creates the backup as a copy, on a file system without hard links.
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
    fn unsupported_folder_sync_is_not_a_write_failure() {
        let of = |errno: rustix::io::Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        use rustix::io::Errno;
        assert!([Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS].map(of).iter().all(syncs_no_folder));
        assert!(![Errno::IO, Errno::NOSPC].map(of).iter().any(syncs_no_folder));
    }

    #[test]
    fn first_file_does_not_replace_one_that_appeared_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (path, draft) = (folder.path().join("annie.toml"), folder.path().join("draft"));
        fs::write(&draft, "new").unwrap();
        fs::write(&path, "another's").unwrap();
        assert_eq!(put(&draft, &path, false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }

    #[test]
    fn copied_backup_takes_a_free_name_and_is_private() {
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
