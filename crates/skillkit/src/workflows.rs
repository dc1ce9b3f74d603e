//! The files of workflows: `<data>/workflows/<name>.md`. They are read when a run begins or a list is requested, so a changed file
//! needs no reload, and a broken one starts nothing.

use std::{
    io,
    path::{Path, PathBuf},
};

use annie_core::{
    ports::{Fut, WorkflowFile, Workflows},
    skill::valid_skill_name,
    workflow::{WORKFLOW_BYTES_MAX, Workflow, WorkflowHead, WorkflowLimits, WorkflowProblem, read},
};
use serde_json::Value;

use crate::{
    error::SkillError,
    files::{Frontmatter, Problem, Report, arguments},
};

/// The keys at the head of a file.
const KEYS: [&str; 4] = ["name", "description", "arguments", "steps"];
/// The most files of the folder that are read.
const FILES_MAX: usize = 500;

/// The folder of the workflows of this installation.
#[derive(Debug, Clone)]
pub struct WorkflowFolder {
    folder: PathBuf,
    limits: WorkflowLimits,
}

impl WorkflowFolder {
    /// The workflows in this folder, which need not exist.
    #[must_use]
    pub const fn new(folder: PathBuf, limits: WorkflowLimits) -> Self {
        Self { folder, limits }
    }

    fn list(&self) -> Result<Vec<WorkflowFile>, String> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(format!("cannot read the folder {}: {error}", self.folder.display())),
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".md").map(str::to_owned))
            .take(FILES_MAX)
            .collect();
        names.sort_unstable();
        Ok(names.iter().filter_map(|name| self.file(name)).collect())
    }

    fn file(&self, name: &str) -> Option<WorkflowFile> {
        // A name is one part of a path, and never leads out of the folder.
        if !valid_skill_name(name) || name.contains('.') {
            return None;
        }
        let path = self.folder.join(format!("{name}.md"));
        let text = match text_of(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                let fix = format!("make it a readable text file of at most {WORKFLOW_BYTES_MAX} bytes");
                let problem = WorkflowProblem { step: String::new(), what: error.to_string(), fix };
                return Some(WorkflowFile {
                    name: name.to_owned(),
                    description: String::new(),
                    read: Err(vec![problem]),
                });
            }
        };
        let mut report = Report::new(&format!("{name}.md"));
        let (description, workflow) = parse(name, &text, &self.limits, &mut report);
        let problems = report.into_problems();
        let read = match workflow {
            Some(workflow) if problems.iter().all(|problem| !problem.is_failure()) => Ok(workflow),
            _ => Err(problems.into_iter().map(of_file).collect()),
        };
        Some(WorkflowFile { name: name.to_owned(), description, read })
    }
}

/// A problem of a file in the form of the core. The file is known to its reader.
fn of_file(problem: Problem) -> WorkflowProblem {
    let what = match problem.line {
        Some(line) => format!("line {line}: {}", problem.what),
        None => problem.what,
    };
    WorkflowProblem { step: String::new(), what, fix: problem.fix }
}

fn text_of(path: &Path) -> io::Result<String> {
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() || meta.len() > WORKFLOW_BYTES_MAX as u64 {
        return Err(io::Error::other(format!("it is no file of at most {WORKFLOW_BYTES_MAX} bytes")));
    }
    std::fs::read_to_string(path)
}

/// The description and the workflow of a file's text. Every problem is reported.
fn parse(name: &str, text: &str, limits: &WorkflowLimits, report: &mut Report) -> (String, Option<Workflow>) {
    let Some(front) = Frontmatter::read(text, report) else { return (String::new(), None) };
    for key in front.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        report.error(front.line_of(&key), format!("unknown key `{key}`"), format!("known are {}", KEYS.join(", ")));
    }
    if let Some(own) = front.text("name", report).filter(|own| own != name) {
        let fix = format!("write `name: {name}`, or rename the file");
        report.error(front.line_of("name"), format!("`name: {own}` differs from the file's name"), fix);
    }
    let description = front.text("description", report).unwrap_or_default();
    if description.is_empty() {
        report.error(front.line_of("description"), "`description` is missing", "say in one sentence what it does");
    }
    let args = arguments(&front, report);
    let steps = front.get("steps").and_then(|steps| serde_json::to_value(steps).ok()).unwrap_or(Value::Null);
    let head = WorkflowHead { name: name.to_owned(), description: description.clone(), args };
    match read(head, &steps, limits) {
        Ok(workflow) => (description, Some(workflow)),
        Err(problems) => {
            for WorkflowProblem { step, what, fix } in problems {
                let what = if step.is_empty() { what } else { format!("step `{step}`: {what}") };
                report.error(None, what, fix);
            }
            (description, None)
        }
    }
}

/// All problems of one file, for its author, and the workflow if there are none.
///
/// # Errors
/// If the file cannot be read.
pub fn validate_workflow(path: &Path, limits: &WorkflowLimits) -> Result<(Vec<Problem>, Option<Workflow>), SkillError> {
    let shown = path.display().to_string();
    let text = text_of(path).map_err(|error| SkillError::io(format!("cannot read {shown}"), error))?;
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let mut report = Report::new(&shown);
    if !valid_skill_name(name) || name.contains('.') || path.extension().is_none_or(|ending| ending != "md") {
        let fix = "rename it: lower case letters, digits and `-`, then `.md`";
        report.error(None, "this cannot be the name of a workflow's file", fix);
    }
    let (_, workflow) = parse(name, &text, limits, &mut report);
    Ok((report.into_problems(), workflow))
}

impl Workflows for WorkflowFolder {
    fn all(&self) -> Fut<'_, Result<Vec<WorkflowFile>, String>> {
        let own = self.clone();
        Box::pin(async move {
            let listed = tokio::task::spawn_blocking(move || own.list()).await;
            listed.unwrap_or_else(|error| Err(error.to_string()))
        })
    }

    fn find<'a>(&'a self, name: &'a str) -> Fut<'a, Option<WorkflowFile>> {
        let (own, name) = (self.clone(), name.to_owned());
        Box::pin(async move { tokio::task::spawn_blocking(move || own.file(&name)).await.ok().flatten() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "---\nname: tea\ndescription: Makes tea.\narguments:\n  kind: {type: text, required: true}\nsteps:\n  - id: \
                        list\n    skill: tasks.search\n    args: {query: \"{args.kind}\"}\n---\nProse.\n";

    fn folder() -> (tempfile::TempDir, WorkflowFolder) {
        let folder = tempfile::tempdir().unwrap();
        let own = WorkflowFolder::new(folder.path().to_owned(), WorkflowLimits::default());
        (folder, own)
    }

    #[test]
    fn workflow_file_is_read_each_time_and_its_problems_are_listed() {
        let (folder, own) = folder();
        std::fs::write(folder.path().join("tea.md"), GOOD).unwrap();
        std::fs::write(folder.path().join("notes.txt"), "x").unwrap();
        let file = own.file("tea").unwrap();
        assert_eq!(file.description, "Makes tea.");
        assert_eq!(file.read.unwrap().args[0].name, "kind");
        std::fs::write(folder.path().join("tea.md"), GOOD.replace("args.kind", "args.sort")).unwrap();
        let problems = own.list().unwrap().remove(0).read.unwrap_err();
        assert_eq!(problems[0].what, "step `list`: `{args.sort}` is no argument");
        assert!(own.file("../tea").is_none() && own.file("coffee").is_none());
    }

    #[test]
    fn validation_lists_all_problems_of_head_and_steps() {
        let (folder, _) = folder();
        let path = folder.path().join("Tea.md");
        std::fs::write(&path, "---\nname: coffee\ncolour: red\nsteps:\n  - skill: x.y\n  - id: a\n---\n").unwrap();
        let (problems, workflow) = validate_workflow(&path, &WorkflowLimits::default()).unwrap();
        assert!(workflow.is_none());
        let what: Vec<&str> = problems.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(
            what,
            [
                "this cannot be the name of a workflow's file",
                "unknown key `colour`",
                "`name: coffee` differs from the file's name",
                "`description` is missing",
                "step `step 1`: it has no name",
                "step `a`: it does nothing",
            ]
        );
    }

    #[test]
    fn file_that_is_too_large_is_a_problem() {
        let (folder, own) = folder();
        std::fs::write(folder.path().join("tea.md"), "x".repeat(WORKFLOW_BYTES_MAX + 1)).unwrap();
        assert!(own.file("tea").unwrap().read.unwrap_err()[0].what.contains("65536 bytes"));
    }
}
