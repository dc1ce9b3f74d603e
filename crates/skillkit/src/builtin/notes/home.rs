//! The notes folder of one user.

use std::io::{self, Write as _};

use cap_std::fs::Dir;

use super::{
    name::{path_of, title_of},
    private,
};
use crate::{
    error::SkillError,
    files::{FILE_BYTES_MAX, FolderTree, Tree, read_text},
};

/// How many notes one user may have.
pub(super) const NOTES_MAX: usize = 10_000;
/// Folder of the lock file; hidden, so that no title can name it.
const LOCK_FOLDER: &str = ".annie";
/// How many titles an error suggests.
const NEAR_MAX: usize = 3;
/// The origin of titles in errors: the skill that lists them.
pub(super) const LIST: &str = "notes.list";

pub(super) struct Home {
    pub(super) dir: Dir,
}

impl Home {
    pub(super) const fn new(dir: Dir) -> Self {
        Self { dir }
    }

    /// Waits until no other process changes these notes, and excludes other processes until the file is dropped.
    pub(super) fn lock(&self) -> Result<std::fs::File, SkillError> {
        let locked = (|| {
            private::make_folder(&self.dir, LOCK_FOLDER)?;
            let file = self.dir.open_with(format!("{LOCK_FOLDER}/lock"), &private::for_writing())?.into_std();
            file.lock()?;
            Ok(file)
        })();
        locked.map_err(|e| SkillError::io("cannot lock the notes", e))
    }

    /// The files of all notes, sorted.
    pub(super) fn list(&self) -> Result<Vec<String>, SkillError> {
        let dir = self.dir.try_clone().map_err(|e| SkillError::io("cannot open the notes folder", e))?;
        let mut paths = FolderTree::within(dir).list().paths;
        paths.retain(|path| path.ends_with(".md"));
        Ok(paths)
    }

    /// A note's text; `None` if the file does not exist.
    pub(super) fn read(&self, path: &str) -> Result<Option<String>, SkillError> {
        match read_text(&self.dir, path) {
            Ok(text) => Ok(Some(text)),
            Err(SkillError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The file of an existing note: by its title in any case, or by the last part of the title if that is unambiguous.
    pub(super) fn find(&self, title: &str) -> Result<String, SkillError> {
        let wanted = path_of(title)?;
        if self.dir.symlink_metadata(&wanted).is_ok() {
            return Ok(wanted);
        }
        let paths = self.list()?;
        let wanted = title_of(&wanted).to_lowercase();
        let whole = paths.iter().filter(|p| title_of(p).to_lowercase() == wanted);
        let last = paths.iter().filter(|p| title_of(p).to_lowercase().rsplit('/').next() == Some(&wanted));
        let mut found: Vec<&String> = whole.chain(last).collect();
        found.dedup();
        match found.as_slice() {
            [only] => Ok((*only).clone()),
            [] => {
                let (what, near) = (format!("There is no note '{}'.", title.trim()), near(&paths, &wanted));
                let origins = if near.is_empty() { Vec::new() } else { vec![LIST.to_owned()] };
                Err(SkillError::NotFound { what, near }.naming(origins))
            }
            several => {
                let titles: Vec<&str> = several.iter().map(|p| title_of(p)).collect();
                let error = SkillError::argument("title", format!("could be several notes: {}", titles.join(", ")));
                Err(error.naming(vec![LIST.to_owned()]))
            }
        }
    }

    /// Replaces a file atomically: after a crash it has either the old or the new text, never a part.
    pub(super) fn replace(&self, path: &str, text: &str) -> Result<(), SkillError> {
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(SkillError::TooLarge(format!(
                "A note has at most {FILE_BYTES_MAX} bytes, not {}.",
                text.len()
            )));
        }
        let folder = folder_of(path);
        let file = path.rsplit('/').next().unwrap_or(path);
        let written = (|| {
            private::make_folder(&self.dir, folder)?;
            let folder = self.dir.open_dir(folder)?;
            let temporary = format!(".{file}.tmp");
            let mut new = folder.open_with(&temporary, private::for_writing().truncate(true))?;
            new.write_all(text.as_bytes())?;
            new.sync_all()?;
            folder.rename(&temporary, &folder, file)?;
            // The rename is durable only after the folder is synchronised.
            folder.open(".")?.sync_all()
        })();
        written.map_err(|error| self.write_failure(path, folder, error))
    }

    fn write_failure(&self, path: &str, folder: &str, error: io::Error) -> SkillError {
        match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory => {
                SkillError::Conflict(format!("'{}' is in the way of something else.", title_of(path)))
            }
            io::ErrorKind::PermissionDenied if self.leads_outside(folder) => {
                SkillError::Outside(format!("'{}' leads outside the notes folder.", title_of(path)))
            }
            _ => SkillError::io(format!("cannot write the note '{}'", title_of(path)), error),
        }
    }

    /// Moves a file to a path where nothing is. The caller holds the lock, so that nothing appears there in between.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), SkillError> {
        if self.dir.symlink_metadata(to).is_ok() {
            return Err(SkillError::Conflict(format!(
                "There is another note '{}' already. Rename that one first.",
                title_of(to)
            )));
        }
        let (from_folder, to_folder) = (folder_of(from), folder_of(to));
        let renamed = (|| {
            private::make_folder(&self.dir, to_folder)?;
            self.dir.rename(from, &self.dir, to)?;
            // The rename is durable only after both folders are synchronised.
            self.dir.open_dir(to_folder)?.open(".")?.sync_all()?;
            self.dir.open_dir(from_folder)?.open(".")?.sync_all()
        })();
        renamed.map_err(|error| self.write_failure(to, to_folder, error))
    }

    /// Removes a file; one that does not exist is no error.
    pub(super) fn remove(&self, path: &str) -> Result<(), SkillError> {
        match self.dir.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SkillError::io(format!("cannot remove '{}'", title_of(path)), error))
            }
            _ => Ok(()),
        }
    }

    fn leads_outside(&self, folder: &str) -> bool {
        let mut parts = String::new();
        folder.split('/').any(|part| {
            parts.push_str(part);
            let is_link = self.dir.symlink_metadata(&parts).map_or(true, |m| m.is_symlink());
            parts.push('/');
            is_link
        })
    }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(folder, _)| folder)
}

fn near(paths: &[String], wanted: &str) -> Vec<String> {
    let words: Vec<&str> = wanted.split(|c: char| !c.is_alphanumeric()).filter(|w| w.len() > 2).collect();
    let hit = |path: &&String| words.iter().any(|w| path.to_lowercase().contains(w));
    paths.iter().filter(hit).take(NEAR_MAX).map(|p| title_of(p).to_owned()).collect()
}
