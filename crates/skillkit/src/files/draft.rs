//! A skill that is not written yet: its files in memory, checked as strictly as files on disk.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    load::{Entry, Item, load},
    problem::Problem,
    tree::{Listing, Tree},
};
use crate::error::SkillError;

/// The files of a draft.
struct Draft {
    files: BTreeMap<String, String>,
    /// The folder that the files will be in.
    folder: PathBuf,
}

impl Tree for Draft {
    fn list(&self) -> Listing {
        Listing { paths: self.files.keys().cloned().collect(), problems: Vec::new(), readable: true }
    }

    fn read(&self, path: &str) -> Result<String, SkillError> {
        self.files.get(path).cloned().ok_or_else(|| SkillError::not_found(format!("There is no file {path}.")))
    }

    fn read_in(&self, folder: &str, path: &str) -> Result<String, SkillError> {
        self.read(&format!("{folder}/{path}"))
    }

    fn source(&self, path: &str) -> String {
        format!("skills/{path}")
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }
}

/// The skill of one of these files, and the problems of all of them, worst first.
pub(crate) fn draft(folder: &Path, path: &str, files: BTreeMap<String, String>) -> (Option<Entry>, Vec<Problem>) {
    let tree: Arc<dyn Tree> = Arc::new(Draft { files, folder: folder.to_owned() });
    let mut layer = load(&tree);
    layer.problems.sort_by_key(|problem| problem.severity);
    let entry = match layer.items.remove(path) {
        Some(Item::Skill(entry)) => Some(entry),
        Some(Item::Domain { .. }) | None => None,
    };
    (entry, layer.problems)
}
