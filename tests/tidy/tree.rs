//! The project's own files, read once.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use super::lexer::{code_of, test_regions};

/// Folders that are not the project's own.
const NOT_OURS: &[&str] = &[".git", "target", "node_modules", "__pycache__", ".venv"];
/// Endings of the project's text files.
const TEXT: &[&str] =
    &["rs", "md", "toml", "sql", "sh", "py", "yaml", "yml", "proto", "service", "json", "html", "css", "js", "ts"];
/// Text files without an ending.
const NAMED: &[&str] = &["justfile", "Containerfile", "run", ".gitignore"];

/// The folder of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// One text file.
pub struct File {
    /// The path from the root, with `/` between folders.
    pub path: String,
    pub text: String,
}

/// One Rust file.
pub struct Source {
    pub path: String,
    pub text: String,
    /// The text without comments and strings. All bytes keep their offsets.
    pub code: String,
}

impl Source {
    /// Whether the whole file is only for tests, benchmarks or examples.
    pub fn is_for_tests(&self) -> bool {
        let path = self.path.as_str();
        let parts = ["tests/", "benches/", "examples/"];
        parts.iter().any(|p| path.starts_with(p) || path.contains(&format!("/{p}"))) || path.ends_with("/tests.rs")
    }

    /// The code without test-only regions.
    pub fn shipped(&self) -> String {
        if self.is_for_tests() {
            return String::new();
        }
        let mut code = self.code.clone();
        for region in test_regions(&self.code) {
            let blank: String = self.code[region.clone()].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            // A character may be longer than a blank. Such a region can only be in strings, which are hidden already.
            if blank.len() == region.len() {
                code.replace_range(region, &blank);
            }
        }
        code
    }

    /// The line number of a byte offset.
    pub fn line_of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }
}

/// All text files.
pub fn files() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut paths = Vec::new();
        walk(root(), &mut paths);
        paths.sort();
        let read = |path: PathBuf| {
            let name = path.strip_prefix(root()).expect("it was found below the root");
            Some(File { path: name.to_str()?.to_owned(), text: fs::read_to_string(&path).ok()? })
        };
        paths.into_iter().filter_map(read).collect()
    })
}

/// All Rust files.
pub fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let rust = files().iter().filter(|f| f.path.ends_with(".rs"));
        rust.map(|f| Source { path: f.path.clone(), text: f.text.clone(), code: code_of(&f.text) }).collect()
    })
}

/// The text of a file that must exist.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Fails with all violations, not only with the first one.
pub fn all_well(rule: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{rule}:\n  {}", wrong.join("\n  "));
}

fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
        let entry = entry.expect("an entry of the project can be read");
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else { continue };
        if path.is_dir() {
            if !NOT_OURS.contains(&name) {
                walk(&path, into);
            }
        } else if NAMED.contains(&name) || path.extension().and_then(|e| e.to_str()).is_some_and(|e| TEXT.contains(&e))
        {
            into.push(path);
        }
    }
}
