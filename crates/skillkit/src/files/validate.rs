//! Strict validation for authors: all problems of a folder of skills, of one skill, or of one file.

use std::{path::Path, sync::Arc};

use super::{
    command::DOMAIN_FILE,
    load::load,
    problem::{Problem, Severity},
    tree::{FolderTree, Tree},
};
use crate::error::SkillError;

/// All problems of a skills folder, of one skill's or domain's folder in it, or of one file, worst first. The path is usable
/// if [`Problem::is_error`] holds for none of them, and strictly valid if [`Problem::is_failure`] holds for none.
///
/// # Errors
/// Fails if the path cannot be opened.
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
    /// Whether the file is not used because of this problem.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Whether strict validation refuses the file because of this problem: each problem that is more than information.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self.severity {
            Severity::Error | Severity::Lenient | Severity::Unsupported => true,
            Severity::Notice => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn problem_texts(path: &Path) -> Vec<String> {
        validate(path).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn validation_lists_all_problems_worst_first() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (path, text) in [
            ("tasks/_domain.md", "---\nname: todo\n---\n"),
            ("tasks/search.md", "---\ndescription: d\neffect: sometimes\ntimeout_ms: 0\ncolour: red\n---\n"),
            ("Tasks/get.md", "---\nname: Tasks.get\ndescription: d\neffect: read\nexternal: false\n---\nx\n"),
            ("greet/SKILL.md", "---\nname: Greet\ndescription: d\n---\nx\n"),
        ] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        assert_eq!(
            problem_texts(root),
            [
                "Tasks/get.md: error: `Tasks.get` cannot be a skill's name; rename folder and file: lower case letters, \
                 digits, `-` and `_`, at most 64 bytes together",
                "tasks/_domain.md: error: `description` is missing; say in one sentence what it does and when to use it: \
                 planners and models choose by it",
                "tasks/search.md:3: error: `effect: sometimes` is unknown; write `effect: read`, `idempotent` or `once`",
                "tasks/search.md:4: error: `timeout_ms` is out of range; write milliseconds from 1 to 600000, or leave it \
                 out for 30000",
                "greet/SKILL.md:2: not strict: `name: Greet` differs from the folder `greet`; give folder and skill the \
                 same name",
                "greet/SKILL.md:2: not strict: `Greet` has upper case letters or underscores; use lower case letters, \
                 digits and single hyphens",
                "tasks/_domain.md:2: not strict: `name: todo` does not fit the folder; write `name: tasks` or leave it out",
                "tasks/search.md: not strict: `name` is missing; write `name: tasks.search`",
                "tasks/search.md: not strict: `external` is missing; write `external: false`, or true if it reaches other \
                 machines",
                "tasks/search.md:5: not strict: unknown key `colour`; known are name, description, effect, external, \
                 timeout_ms, handler, run, request, response, arguments, network, alternatives, fallback, answer, schedule, \
                 timezone, built",
                "tasks/search.md: not strict: the body is empty; show at least one example: it is what `--help` prints",
            ]
        );
        assert_eq!(problem_texts(&root.join("greet")).len(), 2);
        assert_eq!(problem_texts(&root.join("greet/SKILL.md")).len(), 2);
        assert_eq!(problem_texts(&root.join("tasks")).len(), 8);
        assert_eq!(problem_texts(&root.join("tasks/search.md")).len(), 6);
        assert!(validate(&root.join("nothing")).is_err());
        assert!(validate(&root.join("greet")).unwrap().iter().all(Problem::is_failure));
    }
}
