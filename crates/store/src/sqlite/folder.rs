//! The lock of a data folder: one process at a time works in it, whichever database it keeps its log in.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use annie_core::ports::{StoreError, StoreErrorKind};

use super::errors::failed_io;

/// The file whose lock says that a process uses the folder.
const LOCK_FILE: &str = "annie.lock";
const WHAT: &str = "locking the data folder";

/// Held as long as this lives, and gone with the process.
#[derive(Debug)]
pub struct FolderLock(#[expect(dead_code, reason = "an open file holds its lock")] File);

impl FolderLock {
    /// Makes the folder, for its owner alone, and takes its lock.
    ///
    /// # Errors
    /// `Locked` if another process uses the folder, otherwise why it cannot be used.
    pub fn take(folder: &Path) -> Result<Self, StoreError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder).map_err(failed_io(WHAT))?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join(LOCK_FILE))
            .map_err(failed_io(WHAT))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError {
                kind: StoreErrorKind::Locked,
                what: WHAT,
                detail: format!("{} is in use by another process", folder.display()),
            }),
            Err(TryLockError::Error(error)) => Err(failed_io(WHAT)(error)),
        }
    }
}
