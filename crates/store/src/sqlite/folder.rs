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

/// Opens a file for its owner alone, and makes it if it is not there.
pub(super) fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    restrict(path, 0o600);
    Ok(file)
}

/// Takes rights from what somebody else may have made. What belongs to another account stays as it is: `annie doctor` warns.
pub(super) fn restrict(path: &Path, mode: u32) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let Ok(there) = std::fs::metadata(path) else { return };
        let now = there.permissions().mode() & 0o777;
        if now & !mode != 0 && std::fs::set_permissions(path, PermissionsExt::from_mode(now & mode)).is_err() {
            tracing::warn!(path = %path.display(), mode = format!("{now:o}"), "open to other users of this machine");
        }
    }
}

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
        restrict(folder, 0o700);
        let file = private_file(&folder.join(LOCK_FILE)).map_err(failed_io(WHAT))?;
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
