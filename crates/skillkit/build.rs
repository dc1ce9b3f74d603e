//! Embeds the bundled skills folder: writes one `(path, include_str!)` line for each file under `skills/`.
//!
//! A build script of thirty lines replaces an embedding crate: no dependency to update, and text only (a file that is not
//! UTF-8 fails the build). A new skill file needs no entry in a list.

use std::{env, ffi::OsString, fmt::Write as _, fs, io, path::Path};

fn main() -> io::Result<()> {
    // Read at run time, because the script may have been compiled in another checkout that shares the target folder.
    let package = set_by_cargo("CARGO_MANIFEST_DIR")?;
    let root = Path::new(&package).join("../../skills").canonicalize()?;
    let out = set_by_cargo("OUT_DIR")?;
    let mut paths = Vec::new();
    walk(&root, "", &mut paths)?;
    paths.sort();
    let mut code = String::from("&[\n");
    for path in &paths {
        let full = root.join(path);
        writeln!(code, "    ({path:?}, include_str!({:?})),", full.display().to_string()).map_err(io::Error::other)?;
    }
    code.push_str("]\n");
    println!("cargo::rerun-if-changed={}", root.display());
    fs::write(Path::new(&out).join("bundled.rs"), code)
}

fn set_by_cargo(name: &str) -> io::Result<OsString> {
    env::var_os(name).ok_or_else(|| io::Error::other(format!("cargo sets {name} for build scripts")))
}

fn walk(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}
