//! The trash of a user's notes: a hidden folder in the user's folder, which no title can name. A deleted note is a pair of files
//! under the id of the intent that deleted it: the note, and an entry with its path and the time.

use annie_core::time::Micros;
use cap_std::{ambient_authority, fs::Dir};
use serde::{Deserialize, Serialize};

use super::{
    Notes,
    home::{Home, LIST},
    journal,
    name::title_of,
};
use crate::error::SkillError;

/// Hidden, so that no title can name it.
const FOLDER: &str = ".annie/trash";
/// How many notes the trash of one user may have.
const NOTES_MAX: usize = 10_000;

/// What is known of a deleted note.
#[derive(Serialize, Deserialize)]
struct Entry {
    note: String,
    deleted_at: Micros,
}

/// A note in the trash.
pub(super) struct Trashed {
    /// The intent that deleted it.
    id: String,
    /// Its path before it was deleted.
    pub(super) note: String,
    pub(super) deleted_at: Micros,
}

fn note_path(id: &str) -> String {
    format!("{FOLDER}/{id}.md")
}

fn entry_path(id: &str) -> String {
    format!("{FOLDER}/{id}.json")
}

/// Prepares the trash for a note, and returns its new path. The entry is written first: one without a note is ignored.
pub(super) fn place(home: &Home, intent: &str, note: &str, now: Micros) -> Result<String, SkillError> {
    if home.dir.symlink_metadata(note).is_ok_and(|found| !found.is_file()) {
        return Err(SkillError::Outside(format!("'{}' is a link or a folder, not a note.", title_of(note))));
    }
    if entries(home)?.len() >= NOTES_MAX {
        let what =
            format!("There are {NOTES_MAX} deleted notes already. They are removed 30 days after their deletion.");
        return Err(SkillError::TooLarge(what));
    }
    let entry = Entry { note: note.to_owned(), deleted_at: now };
    let json = serde_json::to_string(&entry).map_err(|e| SkillError::io("cannot write to the trash", e.into()))?;
    home.replace(&entry_path(intent), &json)?;
    Ok(note_path(intent))
}

/// The notes in the trash, the last deleted first.
pub(super) fn list(home: &Home) -> Result<Vec<Trashed>, SkillError> {
    let mut trashed = entries(home)?;
    trashed.retain(|entry| home.dir.symlink_metadata(note_path(&entry.id)).is_ok());
    trashed.sort_by(|a, b| (b.deleted_at, &b.id).cmp(&(a.deleted_at, &a.id)));
    Ok(trashed)
}

/// All entries, also those whose note was restored or never moved here.
fn entries(home: &Home) -> Result<Vec<Trashed>, SkillError> {
    let failed = |e| SkillError::io("cannot read the trash of notes", e);
    let Ok(folder) = home.dir.open_dir(FOLDER) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for file in folder.entries().map_err(failed)? {
        let name = file.map_err(failed)?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
        let entry = home.read(&entry_path(id))?.and_then(|text| serde_json::from_str::<Entry>(&text).ok());
        if let Some(Entry { note, deleted_at }) = entry {
            found.push(Trashed { id: id.to_owned(), note, deleted_at });
        }
    }
    Ok(found)
}

/// The deleted note of a title in any case, or of the last part of one. Of several with the same title it is the one that was
/// deleted last.
pub(super) fn find(home: &Home, title: &str) -> Result<Trashed, SkillError> {
    let wanted = super::name::path_of(title)?;
    let wanted = title_of(&wanted).to_lowercase();
    let mut trashed = list(home)?;
    let is_whole = |entry: &Trashed| title_of(&entry.note).to_lowercase() == wanted;
    if let Some(at) = trashed.iter().position(is_whole) {
        return Ok(trashed.swap_remove(at));
    }
    trashed.retain(|entry| title_of(&entry.note).to_lowercase().rsplit('/').next() == Some(&wanted));
    let mut titles: Vec<String> = trashed.iter().map(|entry| title_of(&entry.note).to_owned()).collect();
    titles.sort();
    titles.dedup();
    match titles.as_slice() {
        [_] => Ok(trashed.swap_remove(0)),
        [] => Err(SkillError::NotFound {
            what: format!("There is no deleted note '{}'.", title.trim()),
            near: vec!["notes.list --deleted".to_owned()],
        }),
        several => {
            let error = SkillError::argument("title", format!("could be several notes: {}", several.join(", ")));
            Err(error.naming(vec![LIST.to_owned()]))
        }
    }
}

/// The old and the new path of a note that is to be restored.
pub(super) fn way_back(home: &Home, trashed: &Trashed) -> Result<(String, String), SkillError> {
    journal::finish_move(home, &trashed.id)?;
    Ok((note_path(&trashed.id), trashed.note.clone()))
}

/// Removes the entry of a note that was moved out of the trash from this path.
pub(super) fn forget_entry(home: &Home, from: &str) -> Result<(), SkillError> {
    match from.strip_prefix(FOLDER).and_then(|path| path.strip_prefix('/')).and_then(|path| path.strip_suffix(".md")) {
        Some(id) => home.remove(&entry_path(id)),
        None => Ok(()),
    }
}

impl Notes {
    /// Removes the notes of all users that were deleted before a time, and returns their number. The notes of a user whose folder
    /// cannot be changed stay, and the log says so.
    pub(crate) fn purge(&self, before: Micros) -> Result<u64, SkillError> {
        if !self.is_here || !self.folder.is_dir() {
            return Ok(0);
        }
        let failed = |e| SkillError::io("cannot open the notes folder", e);
        let all = Dir::open_ambient_dir(&self.folder, ambient_authority()).map_err(failed)?;
        let mut purged = 0;
        for user in all.entries().map_err(failed)? {
            let user = user.map_err(failed)?;
            if !user.file_type().map_err(failed)?.is_dir() {
                continue;
            }
            let own = user.open_dir().map_err(failed).and_then(|dir| purge_own(&Home::new(dir), before));
            match own {
                Ok(own) => purged += own,
                Err(error) => tracing::warn!(%error, folder = ?user.file_name(), "deleted notes could not be removed"),
            }
        }
        Ok(purged)
    }
}

fn purge_own(home: &Home, before: Micros) -> Result<u64, SkillError> {
    if home.dir.symlink_metadata(FOLDER).is_err() {
        return Ok(0);
    }
    let _only = home.lock()?;
    let mut purged = 0;
    for old in entries(home)?.into_iter().filter(|entry| entry.deleted_at < before) {
        let note = note_path(&old.id);
        purged += u64::from(home.dir.symlink_metadata(&note).is_ok());
        home.remove(&note)?;
        home.remove(&entry_path(&old.id))?;
    }
    Ok(purged)
}
