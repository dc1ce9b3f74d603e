//! The lock of a data folder: one process at a time uses it, whichever database stores its log.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use annie_core::ports::{StoreError, StoreErrorKind};

use super::errors::failed_io;

/// The file whose lock shows that a process uses the folder.
const LOCK_FILE: &str = "annie.lock";
const WHAT: &str = "locking the data folder";

/// Opens a file with access for its owner only, and creates it if it is missing.
pub(super) fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    restrict(path, 0o600);
    Ok(file)
}

/// Removes rights of other users from a file. The rights of a file of another account cannot be changed: `annie doctor` warns
/// about it.
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

/// The lock is held as long as this value exists, and is released at the latest with the process.
#[derive(Debug)]
pub struct FolderLock(#[expect(dead_code, reason = "an open file holds its lock")] File);

impl FolderLock {
    /// Creates the folder, with access for its owner only, and takes its lock.
    ///
    /// # Errors
    /// `Locked` if another process uses the folder, otherwise the reason why it cannot be used.
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
