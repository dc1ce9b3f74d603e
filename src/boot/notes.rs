//! Which folder of notes counts, where several processes share a database. Notes are files: with a folder for each process,
//! every process would show its part as the whole. The first folder that meets a database is the database's; the skills of a
//! process with another folder refuse.

use std::{
    io::{Error, ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use annie_core::ports::{Entropy, Store, StoreError};

/// The file in a folder of notes that tells it from others; no title reaches it.
const ID_FILE: &str = ".annie-folder";
/// Under which name the database keeps the id of its folder.
const KEPT_AS: &str = "notes_folder";

/// Whether this folder of notes is the database's.
///
/// # Errors
/// If the store does not say.
pub async fn is_home(store: &dyn Store, entropy: &dyn Entropy, notes: &Path) -> Result<bool, StoreError> {
    if !store.is_shared() {
        return Ok(true);
    }
    let own = match id_of(notes, entropy) {
        Ok(id) => id,
        Err(error) => {
            tracing::warn!(folder = %notes.display(), %error, "the folder of notes cannot be told from others");
            return Ok(false);
        }
    };
    Ok(store.secret(KEPT_AS, own).await? == own)
}

/// The id of a folder, made if it has none.
fn id_of(notes: &Path, entropy: &dyn Entropy) -> std::io::Result<[u8; 32]> {
    let path = notes.join(ID_FILE);
    if let Some(id) = read(&path)? {
        return Ok(id);
    }
    std::fs::create_dir_all(notes)?;
    let fresh = [(); 4].map(|()| format!("{:016x}", entropy.next_u64())).concat();
    // Linked in its place when it is whole: processes that start at the same time on a mounted folder get the same one.
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
    use annie_store::MemoryStore;

    use super::*;
    use crate::system;

    #[tokio::test]
    async fn first_folder_of_a_shared_database_is_its_folder_and_another_is_not() {
        let store = MemoryStore::new();
        let folder = tempfile::tempdir().unwrap();
        let [one, two, link] = ["one", "two", "link"].map(|name| folder.path().join(name));
        let entropy = system::env().entropy;
        assert!(is_home(&store, entropy.as_ref(), &one).await.unwrap());
        assert!(!is_home(&store, entropy.as_ref(), &two).await.unwrap());
        assert!(is_home(&store, entropy.as_ref(), &one).await.unwrap(), "after a restart too");
        std::os::unix::fs::symlink(&one, &link).unwrap();
        assert!(is_home(&store, entropy.as_ref(), &link).await.unwrap(), "the same folder in another place");
        std::fs::write(two.join(ID_FILE), "half").unwrap();
        assert!(!is_home(&store, entropy.as_ref(), &two).await.unwrap(), "a damaged id is no proof");
        assert_eq!(std::fs::read_dir(&one).unwrap().count(), 1, "no draft is left");
    }
}
