//! Strict validation for authors: everything that is wrong with a folder of skills, with one skill, or with one file.

use std::{path::Path, sync::Arc};

use super::{
    command::DOMAIN_FILE,
    load::load,
    problem::{Problem, Severity},
    tree::{FolderTree, Tree},
};
use crate::error::SkillError;

/// All problems of a skills folder, of one skill's or domain's folder in it, or of one file, worst first. Valid means: none
/// but notices.
///
/// # Errors
/// If the path cannot be opened.
pub fn validate(path: &Path) -> Result<Vec<Problem>, SkillError> {
    let path = path.canonicalize().map_err(|e| SkillError::io(format!("cannot open {}", path.display()), e))?;
    let (folder, file) = match path.file_name().filter(|_| path.is_file()) {
        Some(name) => (path.parent().unwrap_or(&path), Some(name.to_string_lossy().into_owned())),
        None => (path.as_path(), None),
    };
    let is_part = file.is_some() || ["SKILL.md", "skill.md", DOMAIN_FILE].iter().any(|f| folder.join(f).is_file());
    let (root, under) = match (folder.parent(), folder.file_name()) {
        (Some(parent), Some(name)) if is_part => (parent, name.to_string_lossy().into_owned()),
        _ => (folder, String::new()),
    };
    let tree: Arc<dyn Tree> = Arc::new(FolderTree::open_under(root, &under)?);
    let mut problems = load(&tree).problems;
    if let Some(file) = file {
        let own = format!("{under}/{file}");
        problems.retain(|p| p.file == own);
    }
    problems.sort_by_key(|p| p.severity);
    Ok(problems)
}

impl Problem {
    /// Whether strict validation refuses the file for this.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.severity != Severity::Notice
    }
}
