//! `[files]`: the folders of this machine that skills may use. They become [`annie_skillkit::FileRules`].

use std::path::{Path, PathBuf};

use annie_core::ids::UserId;
use annie_skillkit::{FileFolder, FileRules};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};

/// The most folders: each is a part of the texts that models read.
const FOLDERS_MAX: usize = 32;
/// The longest name of a folder, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// `[files]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileSettings {
    /// The folders that skills may use (`[[files.folder]]`); an empty list means none.
    pub folder: Vec<FileFolderConfig>,
    /// The maximum size of a file that is read, in bytes.
    pub read_bytes_max: usize,
    /// The maximum size of a file that is written, in bytes.
    pub write_bytes_max: usize,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self { folder: Vec::new(), read_bytes_max: 4 * 1024 * 1024, write_bytes_max: 1024 * 1024 }
    }
}

/// What skills may do in a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    /// List, search and read.
    #[default]
    Read,
    /// Write too.
    Write,
}

/// One `[[files.folder]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileFolderConfig {
    /// The folder, a whole path.
    pub path: PathBuf,
    /// What skills may do in it.
    #[serde(default)]
    pub access: FileAccess,
    /// The first part of the paths that skills use; absent means the folder's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The users that may use it; an empty list means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
}

impl FileFolderConfig {
    fn name(&self) -> String {
        let own = || self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.name.clone().unwrap_or_else(own)
    }
}

impl Config {
    /// The files that skills may use.
    #[must_use]
    pub fn file_rules(&self) -> FileRules {
        let FileSettings { folder, read_bytes_max, write_bytes_max } = self.files.clone();
        let folders = folder.into_iter().map(|folder| FileFolder {
            name: folder.name(),
            writes: folder.access == FileAccess::Write,
            path: folder.path,
            users: folder.users,
        });
        FileRules { folders: folders.collect(), read_bytes_max, write_bytes_max }
    }

    /// A folder that contains the data folder or is in it: skills would read and change the data of all users.
    #[must_use]
    pub fn files_in_data(&self, data: &Path) -> Option<&Path> {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let data = whole(data);
        let overlaps = |path: &&Path| whole(path).starts_with(&data) || data.starts_with(whole(path));
        self.files.folder.iter().map(|folder| folder.path.as_path()).find(overlaps)
    }

    /// The errors in `[files]`.
    pub(super) fn file_problems(&self) -> Vec<KeyError> {
        let files = &self.files;
        let mut found = Vec::new();
        let mut add = |key: &str, what: &str, fix: &str| found.push(KeyError::value(&["files", key], what, fix));
        for (key, value) in [("read_bytes_max", files.read_bytes_max), ("write_bytes_max", files.write_bytes_max)] {
            if value == 0 {
                add(key, "it is 0", "give at least 1");
            }
        }
        if files.folder.len() > FOLDERS_MAX {
            add("folder", &format!("there are more than {FOLDERS_MAX}"), "name a folder that contains several");
        }
        for (n, folder) in files.folder.iter().enumerate() {
            let name = folder.name();
            if !folder.path.is_absolute() {
                let what = format!("{:?} is not a whole path", folder.path.display().to_string());
                add("folder", &what, "write it from `/` on");
            }
            let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.');
            if !is_name || name.contains('/') || name.chars().any(char::is_control) {
                let fix = "give it a name of 1 to 40 bytes without a slash: name = \"documents\"";
                add("folder", &format!("{name:?} cannot be the name of a folder"), fix);
            } else if files.folder[..n].iter().any(|other| other.name() == name) {
                add("folder", &format!("two folders have the name {name:?}"), "give one of them another name");
            }
            if let Some(user) = folder.users.iter().find(|user| UserId::new(user.as_str()).is_err()) {
                add("folder", &format!("{user:?} cannot be a user"), "write users = [\"ann\"]");
            }
        }
        found
    }
}
