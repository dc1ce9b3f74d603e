//! Lists the files of the web page with their contents, so that the program contains them and a new file needs no list.

use std::{
    env,
    error::Error,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// The folder of the page, seen from this package.
const WEB: &str = "../../web";
/// The kinds of files that the page consists of. Other files, such as licences, are not embedded.
const KINDS: [&str; 7] = ["html", "css", "js", "svg", "json", "woff2", "png"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={WEB}");
    let root = fs::canonicalize(WEB)?;
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&root)?.to_string_lossy().replace('\\', "/");
        writeln!(table, "({name:?}, include_bytes!({:?}).as_slice()),", file.to_string_lossy())?;
    }
    table.push(']');
    #[expect(clippy::disallowed_methods, reason = "a build script is told its folder this way")]
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("page.rs"), table)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            // A changed file is noticed by its folder only if the folder itself is watched.
            println!("cargo:rerun-if-changed={}", path.display());
            collect(&path, files)?;
        } else if path.extension().and_then(|kind| kind.to_str()).is_some_and(|kind| KINDS.contains(&kind)) {
            files.push(path);
        }
    }
    Ok(())
}
