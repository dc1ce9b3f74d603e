//! Files of this machine, in the folders that the operator allowed. Each folder is opened as a capability, so that neither a path nor
//! a symbolic link reaches outside it.

pub(crate) mod list;
mod place;
pub(crate) mod read;
pub(crate) mod search;
mod trash;
pub(crate) mod write;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use annie_core::{ids::UserId, time::Micros};
use place::Place;

use crate::{error::SkillError, handler::Ctx, runner::run_blocking};

/// A folder that skills may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFolder {
    /// The first part of the paths that skills use.
    pub name: String,
    /// The folder on this machine.
    pub path: PathBuf,
    /// Whether skills may write in the folder.
    pub writes: bool,
    /// The users that may use the folder; empty for all.
    pub users: Vec<String>,
}

/// Which files skills may use. The operator sets these rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileRules {
    /// The folders; empty means that no file may be used.
    pub folders: Vec<FileFolder>,
    /// The maximum size of a file that is read, in bytes.
    pub read_bytes_max: usize,
    /// The maximum size of a file that is written, in bytes.
    pub write_bytes_max: usize,
}

/// The files that skills may use.
pub(crate) struct Files {
    rules: FileRules,
    /// Excludes other writers between a comparison and the write that follows.
    writing: Mutex<()>,
}

impl Files {
    pub(crate) fn new(rules: FileRules) -> Self {
        Self { rules, writing: Mutex::default() }
    }

    /// The folders of a user, by name.
    fn folders(&self, user: &UserId) -> Result<Vec<&FileFolder>, SkillError> {
        if self.rules.folders.is_empty() {
            let what = "No folder is allowed. The operator can allow one in annie.toml: [[files.folder]] with path = \
                        \"/home/ann/documents\" and access = \"read\" or \"write\".";
            return Err(SkillError::NotAllowed(what.to_owned()));
        }
        let is_own =
            |folder: &&FileFolder| folder.users.is_empty() || folder.users.iter().any(|own| own == user.as_str());
        Ok(self.rules.folders.iter().filter(is_own).collect())
    }

    /// Removes former versions of files that were replaced before this time, and returns how many.
    pub(crate) fn purge(&self, before: Micros) -> u64 {
        let mut purged = 0;
        for folder in self.rules.folders.iter().filter(|folder| folder.writes) {
            match trash::purge(folder, before) {
                Ok(own) => purged += own,
                Err(error) => {
                    tracing::warn!(%error, folder = folder.name, "former versions of files could not be removed")
                }
            }
        }
        purged
    }
}

/// Runs file work at a path, off the asynchronous threads.
async fn at<T: Send + 'static>(
    ctx: &Ctx,
    path: &str,
    work: impl FnOnce(&Place, &FileRules) -> Result<T, SkillError> + Send + 'static,
) -> Result<T, SkillError> {
    let (tools, user, path) = (Arc::clone(&ctx.tools), ctx.call.user.clone(), path.to_owned());
    run_blocking(move || work(&Place::find(&tools.files.folders(&user)?, &path)?, &tools.files.rules)).await
}

#[cfg(test)]
mod tests;
