//! Notes belong to the account that Annie runs as, and to nobody else on the machine: folders have mode 0700, files 0600.

use std::{io, path::Path};

use cap_std::fs::{
    Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt as _, Permissions, PermissionsExt as _,
};

/// The rights of everybody but the owner.
const OTHERS: u32 = 0o077;

/// Makes a folder and those above it, where they are missing.
pub(super) fn make_folder(dir: &Dir, path: &str) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    dir.create_dir_with(path, &builder)
}

/// How a file is opened for writing, and made if it is missing.
pub(super) fn for_writing() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// Makes the folder of all notes, and takes the rights of others from it if an earlier version gave them.
pub(super) fn make_root(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let mut builder = std::fs::DirBuilder::new();
    DirBuilderExt::mode(builder.recursive(true), 0o700);
    builder.create(path)?;
    let mode = PermissionsExt::mode(&std::fs::metadata(path)?.permissions()) & 0o777;
    if mode & OTHERS != 0 {
        // A folder of another account keeps its rights; those of each user's folder below it are looked at too.
        let _ = std::fs::set_permissions(path, PermissionsExt::from_mode(mode & !OTHERS));
    }
    Ok(())
}

/// Takes the rights of others from everything in a folder that others may enter. The folder itself comes last, so that a
/// crash in between is made up for.
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
        // A symbolic link has no rights of its own, and what it leads to is not ours to change.
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
