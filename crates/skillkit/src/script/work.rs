//! The folder of one run of a program.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::error::SkillError;

/// How many times a folder is removed. A program that was just killed may have written a last file.
const ATTEMPTS_MAX: u32 = 3;

/// The runs of this process are counted, so that each folder has a name of its own.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// A folder that only this user can open. Dropping it removes it.
pub(super) struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// Makes a folder below this one (blocking).
    pub(super) fn create(root: &Path) -> Result<Self, SkillError> {
        let path = root.join(format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed)));
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|e| SkillError::Setup { what: format!("cannot make the folder {}", path.display()), source: e })?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || remove(&path))),
            Err(_) => remove(&path),
        }
    }
}

/// Removes the folder of all runs, which an earlier process may have left (blocking).
pub(super) fn clear(root: &Path) {
    remove(root);
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS_MAX {
        match fs::remove_dir_all(path) {
            Ok(()) => return,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
            Err(error) => tracing::debug!(%error, path = %path.display(), "a folder of a run is not empty yet"),
        }
    }
}
