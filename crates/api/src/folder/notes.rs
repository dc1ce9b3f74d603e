//! Decides which notes folder is valid if several processes share a database. Notes are files. If each process had a folder of
//! its own, each would show its part as the whole. The first folder that is used with a database belongs to it. The notes
//! skills of a process with another folder refuse.

use std::{
    io::{Error, ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use annie_core::ports::{Entropy, Store, StoreError};

/// The file with the id of a notes folder. No note title can lead to it.
const ID_FILE: &str = ".annie-folder";
/// The name under which the database stores the id of its folder, among its secrets.
pub const KEPT_AS: &str = "notes_folder";

/// The notes folder as this process found it.
#[derive(Debug, Clone)]
pub struct NotesFolder {
    path: PathBuf,
    is_home: bool,
}

/// Why notes cannot be kept in this folder, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotesProblem {
    /// The problem.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl NotesFolder {
    /// The notes folder of a process. If the database is shared and has no folder yet, this folder becomes the database's.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub async fn find(
        is_separate: bool,
        store: &dyn Store,
        entropy: &dyn Entropy,
        path: PathBuf,
    ) -> Result<Self, StoreError> {
        let is_home = is_separate || is_home(store, entropy, &path).await?;
        Ok(Self { path, is_home })
    }

    /// Like [`Self::find`], but changes nothing: neither the folder nor the database receives an id.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub async fn inspect(is_separate: bool, store: &dyn Store, path: PathBuf) -> Result<Self, StoreError> {
        if is_separate || !store.is_shared() {
            return Ok(Self { path, is_home: true });
        }
        Self::compare(store, path).await
    }

    /// Like [`Self::inspect`], also for a database that is not shared. Used before its content is copied to a shared database.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub async fn compare(store: &dyn Store, path: PathBuf) -> Result<Self, StoreError> {
        let is_home = match (store.known_secret(KEPT_AS).await?, read(&path.join(ID_FILE))) {
            (Some(known), Ok(own)) => own == Some(known),
            (None, Ok(_)) => true,
            // As at a start: a folder whose id cannot be read cannot be identified.
            (_, Err(_)) => false,
        };
        Ok(Self { path, is_home })
    }

    /// Whether the notes skills may use this folder.
    pub const fn is_home(&self) -> bool {
        self.is_home
    }

    /// The current problem; nothing if notes can be read and written.
    pub fn problem(&self) -> Option<NotesProblem> {
        let path = self.path.display();
        if let Some(error) = self.unusable() {
            let what = format!("notes cannot be kept in {path}: {error}");
            let fix = "check its owner and rights, and that its disk is not mounted read-only".to_owned();
            return Some(NotesProblem { what, fix });
        }
        if self.is_home {
            return None;
        }
        let what =
            format!("the notes of this database are in another folder than {path}: the notes skills refuse here");
        let fix = format!(
            "share that folder (a mount or a symbolic link in this place), or copy it with `cp -a OTHER/notes/. {path}/`; or \
             set data.separate_notes = true if every process is to keep notes of its own"
        );
        Some(NotesProblem { what, fix })
    }

    /// Whether the folder cannot be read and written, regardless of the database that it belongs to.
    pub fn is_unusable(&self) -> bool {
        self.unusable().is_some()
    }

    /// Why the folder, or its nearest existing parent, cannot be read and written.
    fn unusable(&self) -> Option<String> {
        use rustix::fs::Access;
        let there = self.path.ancestors().find(|part| part.exists())?;
        if !there.is_dir() {
            return Some(format!("{} is no folder", there.display()));
        }
        let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::access(there, wanted).err().map(|error| error.to_string())
    }
}

/// Whether this notes folder belongs to the database.
///
/// # Errors
/// If the store cannot be read or written.
async fn is_home(store: &dyn Store, entropy: &dyn Entropy, notes: &Path) -> Result<bool, StoreError> {
    if !store.is_shared() {
        return Ok(true);
    }
    let own = match id_of(notes, entropy) {
        Ok(id) => id,
        Err(error) => {
            tracing::warn!(folder = %notes.display(), %error, "the notes folder cannot be identified");
            return Ok(false);
        }
    };
    Ok(store.secret(KEPT_AS, own).await? == own)
}

/// The id of a folder; created if it has none.
fn id_of(notes: &Path, entropy: &dyn Entropy) -> std::io::Result<[u8; 32]> {
    let path = notes.join(ID_FILE);
    if let Some(id) = read(&path)? {
        return Ok(id);
    }
    std::fs::create_dir_all(notes)?;
    let fresh = [(); 4].map(|()| format!("{:016x}", entropy.next_u64())).concat();
    // The complete file is linked to its name, so that processes that start at the same time on a mounted folder get the same
    // id.
    let draft = notes.join(format!("{ID_FILE}.{}", fresh.get(..16).unwrap_or_default()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(fresh.as_bytes())?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&draft, &path);
    std::fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    read(&path)?.ok_or_else(|| Error::from(ErrorKind::NotFound))
}

fn read(path: &Path) -> std::io::Result<Option<[u8; 32]>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = || Error::new(ErrorKind::InvalidData, format!("{} is damaged", path.display()));
    let mut id = [0; 32];
    if text.len() != 2 * id.len() {
        return Err(damaged());
    }
    for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| damaged())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| damaged())?;
    }
    Ok(Some(id))
}

#[cfg(test)]
mod tests {
    use annie_core::ports::Operations as _;
    use annie_store::MemoryStore;

    use super::*;
    use crate::system;

    #[tokio::test]
    async fn notes_folder_reports_problem_when_foreign_or_unusable_and_inspect_claims_nothing() {
        let store = MemoryStore::new();
        let folder = tempfile::tempdir().unwrap();
        let [one, two, file] = ["one", "two", "file"].map(|name| folder.path().join(name));
        let entropy = system::env().entropy;
        let inspect = async |path: &PathBuf| NotesFolder::inspect(false, &store, path.clone()).await.unwrap();
        assert!(inspect(&two).await.is_home() && !two.exists(), "inspect creates no folder");
        std::fs::create_dir(&one).unwrap();
        std::fs::write(one.join(ID_FILE), "07".repeat(32)).unwrap();
        assert!(inspect(&one).await.is_home());
        assert_eq!(store.known_secret(KEPT_AS).await.unwrap(), None, "inspect claims nothing");
        let first = NotesFolder::find(false, &store, entropy.as_ref(), one.clone()).await.unwrap();
        assert_eq!(first.problem(), None);
        let fresh = inspect(&two).await.problem().expect("the database has another folder");
        assert!(fresh.what.contains("in another folder than") && !two.exists(), "{fresh:?}");
        assert!(inspect(&one).await.is_home());
        std::fs::write(one.join(ID_FILE), "half").unwrap();
        assert!(!inspect(&one).await.is_home(), "a start refuses a damaged id too");
        let second = NotesFolder::find(false, &store, entropy.as_ref(), two.clone()).await.unwrap();
        let problem = second.problem().unwrap();
        assert!(
            problem.what.contains("in another folder than") && problem.fix.contains("cp -a OTHER/notes/. "),
            "{problem:?}"
        );
        assert_eq!(NotesFolder::inspect(false, &store, two.clone()).await.unwrap().problem(), Some(problem));
        assert_eq!(NotesFolder::find(true, &store, entropy.as_ref(), two).await.unwrap().problem(), None);
        std::fs::write(&file, "").unwrap();
        let no_folder = NotesFolder::inspect(false, &store, file).await.unwrap().problem().unwrap();
        assert!(no_folder.what.contains("is no folder"), "{no_folder:?}");
    }

    #[tokio::test]
    async fn first_notes_folder_of_shared_database_is_home_and_others_are_not() {
        let store = MemoryStore::new();
        let folder = tempfile::tempdir().unwrap();
        let [one, two, link] = ["one", "two", "link"].map(|name| folder.path().join(name));
        let entropy = system::env().entropy;
        assert!(is_home(&store, entropy.as_ref(), &one).await.unwrap());
        assert!(!is_home(&store, entropy.as_ref(), &two).await.unwrap());
        assert!(is_home(&store, entropy.as_ref(), &one).await.unwrap(), "after a restart too");
        std::os::unix::fs::symlink(&one, &link).unwrap();
        assert!(is_home(&store, entropy.as_ref(), &link).await.unwrap(), "the same folder through a link");
        std::fs::write(two.join(ID_FILE), "half").unwrap();
        assert!(!is_home(&store, entropy.as_ref(), &two).await.unwrap(), "a damaged id is no proof");
        assert_eq!(std::fs::read_dir(&one).unwrap().count(), 1, "no draft is left");
    }
}
