//! Runs skills: finds the skill in the current catalogue, checks its arguments, and runs the handler or fills the prompt.
//! Every failure becomes an outcome; panics, time limits and breakers are the caller's responsibility.

use std::{path::PathBuf, sync::Arc};

use annie_core::{
    outcome::Outcome,
    ports::{Fut, Memories, SkillCall, SkillRunner, Todos},
    skill::SkillSpec,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    builtin::notes::Notes,
    catalog::FileCatalog,
    error::SkillError,
    files::{Entry, Kind, Tree, substitute},
    handler::{Ctx, Ran, decode_prompt},
};

/// The most background writes at once that record when memories were found.
const TOUCHES_MAX: u32 = 32;

/// The dependencies of the built-in handlers.
pub struct RunnerParts {
    /// The users' to-do lists, for the skills `tasks.*`. Their entries are not tasks of the kernel.
    pub todos: Arc<dyn Todos>,
    /// The users' long-term memories, for the skills `memory.*`.
    pub memories: Arc<dyn Memories>,
    /// The skills to run. The skill `system.help` describes them.
    pub catalog: Arc<FileCatalog>,
    /// The folder of the users' notes (`<data>/notes`), created with the first note.
    pub notes_folder: PathBuf,
    /// Whether that folder is the one notes folder of the database, or the operator wants separate folders. If not, the
    /// notes skills refuse to run: the notes are in a folder that this process cannot reach, and its own folder would
    /// show a part of them as all notes.
    pub are_notes_here: bool,
}

pub(crate) struct Tools {
    pub(crate) todos: Arc<dyn Todos>,
    pub(crate) memories: Arc<dyn Memories>,
    pub(crate) catalog: Arc<FileCatalog>,
    pub(crate) notes: Notes,
    pub(crate) touches: Arc<Semaphore>,
}

/// Runs the skills of a [`FileCatalog`].
pub struct Runner {
    tools: Arc<Tools>,
}

impl Runner {
    /// Creates a runner with these dependencies.
    #[must_use]
    pub fn new(parts: RunnerParts) -> Self {
        let tools = Tools {
            todos: parts.todos,
            memories: parts.memories,
            catalog: parts.catalog,
            notes: Notes::new(parts.notes_folder, parts.are_notes_here),
            touches: Arc::new(Semaphore::new(TOUCHES_MAX as usize)),
        };
        Self { tools: Arc::new(tools) }
    }

    /// Waits until the background writes have ended. Called before the store is closed.
    pub async fn settle(&self) {
        // This fails only on a closed semaphore, and the semaphore is never closed.
        drop(self.tools.touches.acquire_many(TOUCHES_MAX).await);
    }

    fn prepare(&self, call: &SkillCall) -> Result<Entry, Box<Outcome>> {
        let snapshot = self.tools.catalog.snapshot();
        let Some(entry) = snapshot.entry(&call.skill) else {
            let message = format!("There is no skill `{}`.", call.skill);
            let near = snapshot.set.near(&call.skill);
            return Err(Box::new(Outcome::permanent("unknown_skill", message).with_alternatives(near)));
        };
        match entry.spec.check_arguments(&call.arguments) {
            Ok(()) => Ok(entry.clone()),
            Err(error) => Err(Box::new(Outcome::permanent("invalid_arguments", error.to_string()))),
        }
    }

    fn ctx(&self, spec: Arc<SkillSpec>, call: SkillCall) -> Ctx {
        Ctx { tools: Arc::clone(&self.tools), spec, call }
    }
}

impl SkillRunner for Runner {
    fn run(&self, mut call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async move {
            let entry = match self.prepare(&call) {
                Ok(entry) => entry,
                Err(refused) => return refused.clipped(),
            };
            let arguments = std::mem::take(&mut call.arguments);
            let outcome = match entry.kind {
                Kind::Command(builtin) => (builtin.run)(self.ctx(entry.spec, call), arguments).await,
                Kind::Prompt { tree, folder, files } => {
                    let spec = Arc::clone(&entry.spec);
                    let ran =
                        run_blocking(move || prompt(&entry.spec, tree.as_ref(), &folder, &files, arguments)).await;
                    ran.unwrap_or_else(|error| error.into_outcome(&spec))
                }
            };
            outcome.clipped()
        })
    }

    fn reconcile(&self, mut call: SkillCall) -> Fut<'_, Option<Outcome>> {
        Box::pin(async move {
            let entry = self.prepare(&call).ok()?;
            let Kind::Command(builtin) = entry.kind else { return None };
            let arguments = std::mem::take(&mut call.arguments);
            (builtin.reconcile)(self.ctx(entry.spec, call), arguments).await.map(Outcome::clipped)
        })
    }
}

/// Runs file work off the asynchronous threads; a panic in it is propagated to the caller.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SkillError> + Send + 'static,
) -> Result<T, SkillError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(SkillError::io("file work", std::io::Error::other("the process is stopping"))),
        },
    }
}

/// A prompt skill's instructions with their arguments, or one of its supporting files.
fn prompt(spec: &SkillSpec, tree: &dyn Tree, folder: &str, files: &[String], arguments: Value) -> Ran {
    let args = decode_prompt(arguments)?;
    let name = &spec.name;
    if let Some(file) = args.file {
        let file = file.trim().trim_start_matches("./");
        if !files.iter().any(|f| f == file) {
            let what = format!("The skill {name} has no file '{file}'.");
            return Err(SkillError::NotFound { what, near: files.to_vec() });
        }
        let text = tree.read(&format!("{folder}/{file}"))?;
        return Ok(Outcome::success(text).with_evidence(json!({"skill": name, "file": file})));
    }
    let mut text = substitute(&spec.body, args.args.as_deref().unwrap_or_default());
    if !files.is_empty() {
        let list: Vec<String> = files.iter().map(|f| format!("- {f}")).collect();
        text.push_str(&format!("\n\nSupporting files (read one with --file PATH):\n{}", list.join("\n")));
    }
    let content = format!("<skill_content name=\"{name}\">\n{text}\n</skill_content>");
    Ok(Outcome::success(content).with_evidence(json!({"skill": name})))
}

#[cfg(test)]
pub(crate) mod tests;
