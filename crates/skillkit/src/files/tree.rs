//! Sources of skill files: the folder that is embedded in the binary, or a folder on disk. A folder on disk is opened as a
//! capability, so no path and no symbolic link can reach outside it. Its traversal has limits.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, DirEntry},
};

use super::problem::{Problem, Report};
use crate::error::SkillError;

/// Size limit for a skill file, a supporting file, and a note, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// How deep folders may be nested.
const DEPTH_MAX: usize = 6;
/// How many folders are traversed at most.
const FOLDERS_MAX: usize = 20_000;
/// How many files are listed at most.
const FILES_MAX: usize = 50_000;

/// The content of a tree.
pub(crate) struct Listing {
    /// File paths, with `/` between the parts, sorted.
    pub(crate) paths: Vec<String>,
    /// Entries that could not be listed.
    pub(crate) problems: Vec<Problem>,
    /// False if the root itself could not be read: then the content is unknown, not empty.
    pub(crate) readable: bool,
}

/// A tree of skill files.
pub(crate) trait Tree: Send + Sync {
    /// Lists all files.
    fn list(&self) -> Listing;
    /// Reads one file's text.
    fn read(&self, path: &str) -> Result<String, SkillError>;
    /// Reads the text of a file below a folder. No path and no symbolic link may lead out of the folder.
    fn read_in(&self, folder: &str, path: &str) -> Result<String, SkillError>;
    /// The origin of a file of this tree, in the format of `SkillSpec::source`.
    fn source(&self, path: &str) -> String;
    /// The folder on disk; `None` if the files are not in one.
    fn folder(&self) -> Option<&Path>;
}

/// The files under `skills/` at build time.
pub(crate) struct Bundled;

static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/bundled.rs"));

impl Tree for Bundled {
    fn list(&self) -> Listing {
        let paths = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        Listing { paths, problems: Vec::new(), readable: true }
    }

    fn read(&self, path: &str) -> Result<String, SkillError> {
        let found = FILES.iter().find(|(own, _)| *own == path);
        found
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| SkillError::not_found(format!("There is no file {path}.")))
    }

    fn read_in(&self, folder: &str, path: &str) -> Result<String, SkillError> {
        self.read(&format!("{folder}/{path}"))
    }

    fn source(&self, _path: &str) -> String {
        "bundled".to_owned()
    }

    fn folder(&self) -> Option<&Path> {
        None
    }
}

#[cfg(test)]
/// Files in memory, such as one that is not written yet.
pub(crate) struct TextTree(pub(crate) std::collections::BTreeMap<String, String>);

#[cfg(test)]
impl Tree for TextTree {
    fn list(&self) -> Listing {
        Listing { paths: self.0.keys().cloned().collect(), problems: Vec::new(), readable: true }
    }

    fn read(&self, path: &str) -> Result<String, SkillError> {
        self.0.get(path).cloned().ok_or_else(|| SkillError::not_found(format!("There is no file {path}.")))
    }

    fn read_in(&self, folder: &str, path: &str) -> Result<String, SkillError> {
        self.read(&format!("{folder}/{path}"))
    }

    fn source(&self, path: &str) -> String {
        path.to_owned()
    }

    fn folder(&self) -> Option<&Path> {
        None
    }
}

/// A folder on disk.
pub(crate) struct FolderTree {
    root: Dir,
    /// The path of the root, if it is known.
    path: Option<PathBuf>,
    /// Only files below this folder are listed.
    under: String,
}

impl FolderTree {
    pub(crate) fn open(root: &Path) -> Result<Self, SkillError> {
        Self::open_under(root, "")
    }

    pub(crate) fn open_under(root: &Path, under: &str) -> Result<Self, SkillError> {
        let path = root.canonicalize().ok();
        let root = Dir::open_ambient_dir(root, ambient_authority())
            .map_err(|e| SkillError::io(format!("cannot open the folder {}", root.display()), e))?;
        Ok(Self { root, path, under: under.to_owned() })
    }

    /// A tree over an open folder.
    pub(crate) fn within(root: Dir) -> Self {
        Self { root, path: None, under: String::new() }
    }

    fn walk(&self, folder: &str, walk: &mut Walk) -> io::Result<()> {
        let mut entries: Vec<DirEntry> =
            self.root.read_dir(if folder.is_empty() { "." } else { folder })?.collect::<io::Result<_>>()?;
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let Ok(name) = entry.file_name().into_string() else {
                walk.refuse(folder, "a file's name is not UTF-8", "rename it");
                continue;
            };
            if name.starts_with('.') || name == "node_modules" {
                continue;
            }
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            match self.root.metadata(&path) {
                Ok(found) if found.is_dir() => self.descend(&path, walk),
                Ok(found) if found.is_file() => walk.add(path),
                Ok(_) => {}
                Err(_) if entry.file_type().is_ok_and(|t| t.is_symlink()) => {
                    walk.refuse(&path, "the link leaves the folder or leads nowhere", "put the file itself here");
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => walk.refuse(&path, &format!("cannot be read: {error}"), "check its permissions"),
            }
        }
        Ok(())
    }

    fn descend(&self, path: &str, walk: &mut Walk) {
        if path.split('/').count() > DEPTH_MAX {
            walk.refuse(path, &format!("lies more than {DEPTH_MAX} folders deep"), "move it up");
            return;
        }
        walk.folders += 1;
        if walk.folders > FOLDERS_MAX {
            walk.refuse_once(path, &format!("the tree has more than {FOLDERS_MAX} folders"), "keep only skills here");
            return;
        }
        if let Err(error) = self.walk(path, walk) {
            walk.refuse(path, &format!("cannot be listed: {error}"), "check its permissions");
        }
    }
}

impl Tree for FolderTree {
    fn list(&self) -> Listing {
        let mut walk = Walk::default();
        let readable = match self.walk(&self.under, &mut walk) {
            Ok(()) => true,
            Err(error) => {
                walk.refuse("", &format!("the folder cannot be listed: {error}"), "check that it exists");
                false
            }
        };
        walk.paths.sort();
        Listing { paths: walk.paths, problems: walk.problems, readable }
    }

    fn read(&self, path: &str) -> Result<String, SkillError> {
        read_text(&self.root, path)
    }

    fn read_in(&self, folder: &str, path: &str) -> Result<String, SkillError> {
        let folder =
            self.root.open_dir(folder).map_err(|e| SkillError::io(format!("cannot open the folder {folder}"), e))?;
        read_text(&folder, path)
    }

    fn source(&self, path: &str) -> String {
        format!("skills/{path}")
    }

    fn folder(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// Reads one text file of a folder, within its size limit.
pub(crate) fn read_text(root: &Dir, path: &str) -> Result<String, SkillError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            SkillError::not_found(format!("There is no file {path}."))
        }
        io::ErrorKind::PermissionDenied if root.symlink_metadata(path).map_or(true, |m| m.is_symlink()) => {
            SkillError::Outside(format!("{path} leads outside its folder."))
        }
        _ => SkillError::io(format!("cannot read {path}"), error),
    };
    // Checked before the file is opened, because opening a named pipe blocks until it has a writer.
    if !root.metadata(path).map_err(failed)?.is_file() {
        return Err(SkillError::not_found(format!("{path} is not a file.")));
    }
    let file = root.open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(SkillError::TooLarge(format!("{path} is larger than {FILE_BYTES_MAX} bytes.")));
    }
    String::from_utf8(bytes).map_err(|_| SkillError::Arguments(format!("{path} is not UTF-8 text.")))
}

#[derive(Default)]
struct Walk {
    paths: Vec<String>,
    problems: Vec<Problem>,
    folders: usize,
}

impl Walk {
    fn add(&mut self, path: String) {
        if self.paths.len() < FILES_MAX {
            self.paths.push(path);
        } else {
            self.refuse_once(&path, &format!("the tree has more than {FILES_MAX} files"), "keep only skills here");
        }
    }

    fn refuse(&mut self, path: &str, what: &str, fix: &str) {
        let mut report = Report::new(if path.is_empty() { "." } else { path });
        report.error(None, what, fix);
        self.problems.extend(report.into_problems());
    }

    fn refuse_once(&mut self, path: &str, what: &str, fix: &str) {
        if !self.problems.iter().any(|p| p.what == what) {
            self.refuse(path, what, fix);
        }
    }
}
