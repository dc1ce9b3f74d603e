//! Restricts notes to the account that Annie runs as: folders have mode 0700, files 0600.

use std::{io, path::Path};

use cap_std::fs::{
    Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt as _, Permissions, PermissionsExt as _,
};

/// The permissions of group and others.
const OTHERS: u32 = 0o077;

/// Creates a folder and its missing parents.
pub(super) fn make_folder(dir: &Dir, path: &str) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    dir.create_dir_with(path, &builder)
}

/// Options that open a file for writing, and create it if it is missing.
pub(super) fn for_writing() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// Creates the folder of all notes, and removes the permissions of others that an earlier version granted.
pub(super) fn make_root(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let mut builder = std::fs::DirBuilder::new();
    DirBuilderExt::mode(builder.recursive(true), 0o700);
    builder.create(path)?;
    let mode = PermissionsExt::mode(&std::fs::metadata(path)?.permissions()) & 0o777;
    if mode & OTHERS != 0 {
        // This fails for a folder of another account, which keeps its mode; each user's folder below it is checked as well.
        let _ = std::fs::set_permissions(path, PermissionsExt::from_mode(mode & !OTHERS));
    }
    Ok(())
}

/// Removes the permissions of others from a folder that they may enter, and from everything in it. The folder itself is
/// last, so that an interrupted pass is repeated.
pub(super) fn close(all: &Dir, own: &str) -> io::Result<()> {
    if all.metadata(own)?.permissions().mode() & OTHERS == 0 {
        return Ok(());
    }
    close_below(&all.open_dir(own)?)?;
    restrict(all, Path::new(own))
}

fn close_below(dir: &Dir) -> io::Result<()> {
    for entry in dir.entries()? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        // A symbolic link has no permissions of its own, and its target must not be changed.
        if kind.is_dir() {
            close_below(&entry.open_dir()?)?;
        }
        if kind.is_dir() || kind.is_file() {
            restrict(dir, Path::new(&name))?;
        }
    }
    Ok(())
}

fn restrict(dir: &Dir, path: &Path) -> io::Result<()> {
    let mode = dir.symlink_metadata(path)?.permissions().mode() & 0o777;
    if mode & OTHERS == 0 { Ok(()) } else { dir.set_permissions(path, Permissions::from_mode(mode & !OTHERS)) }
}
