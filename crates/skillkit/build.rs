//! Embeds the bundled skills folder: writes one `(path, include_str!)` line for each file under `skills/`.
//!
//! A build script of thirty lines instead of an embedding crate: nothing to keep up to date, text only (a file that is
//! not UTF-8 fails the build), and a new skill file needs no list line.

use std::{env, fmt::Write as _, fs, io, path::Path};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../skills").canonicalize()?;
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR for build scripts"))?;
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
