//! The workflows that the operator's files define.

use super::Fut;
use crate::workflow::{Workflow, WorkflowProblem};

/// One file that defines a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowFile {
    /// Its name, which is that of the file.
    pub name: String,
    /// What the file says about its purpose; empty if it cannot be read.
    pub description: String,
    /// The workflow, or all problems of the file.
    pub read: Result<Workflow, Vec<WorkflowProblem>>,
}

/// The workflows of this installation as their files are now.
pub trait Workflows: Send + Sync {
    /// All files, sorted by name. A folder that cannot be read is an error for people.
    fn all(&self) -> Fut<'_, Result<Vec<WorkflowFile>, String>>;

    /// The file of a workflow; `None` if there is none.
    fn find<'a>(&'a self, name: &'a str) -> Fut<'a, Option<WorkflowFile>>;
}

/// An installation without workflows.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWorkflows;

impl Workflows for NoWorkflows {
    fn all(&self) -> Fut<'_, Result<Vec<WorkflowFile>, String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn find<'a>(&'a self, _name: &'a str) -> Fut<'a, Option<WorkflowFile>> {
        Box::pin(async { None })
    }
}
