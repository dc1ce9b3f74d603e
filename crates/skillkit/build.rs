//! Embeds the bundled skills folder: writes one `(path, include_str!)` line for each file under `skills/`.
//!
//! A build script of thirty lines instead of an embedding crate: nothing to keep up to date, text only (a file that is
//! not UTF-8 fails the build), and a new skill file needs no list line.

use std::{env, ffi::OsString, fmt::Write as _, fs, io, path::Path};

fn main() -> io::Result<()> {
    // Asked for when it runs: a script that was compiled in another checkout with the same target folder still finds its own.
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
