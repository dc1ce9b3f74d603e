//! The source of the skills of files: finds the skill in the file catalogue, and runs the handler or fills the prompt. Every
//! failure becomes an outcome; panics, time limits and breakers are the caller's responsibility. The router has checked the
//! arguments.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use annie_core::{
    approval::UntrustedText,
    context::Frames,
    ids::UserId,
    outcome::Outcome,
    ports::{Catalog, Chore, Documents, Egress, Fut, Secrets, SkillCall, SkillSource},
    skill::{ActiveSkill, PromptContext, SCRIPTS_FOLDER, SkillChange, SkillFormat, SkillSet, SkillSpec, called},
    state::{StateText, Unset, fill, placeholders},
    time::Micros,
};
use arc_swap::ArcSwap;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    approved::{self, BuiltSkill, DecisionError, SkillDecision},
    builtin::{
        files::{FileRules, Files},
        memory::data::MemoryDecay,
        notes::Notes,
        state::{self, temp::TempState},
        web::{Robots, SearchRules},
    },
    catalog::FileCatalog,
    error::SkillError,
    files::{Entry, Kind, Script, Tree, substitute},
    handler::{Ctx, PromptArgs, Ran, decode_prompt},
    request,
    script::{self, Owner, ProgramRules, Programs},
    trash::Purge,
};

/// The most background writes at once that record when memories were found.
const TOUCHES_MAX: u32 = 32;

/// The dependencies of the built-in handlers.
pub struct RunnerParts {
    /// The data of the skills: to-dos of `tasks.*`, which are not tasks of the kernel, and memories of `memory.*`.
    pub documents: Arc<dyn Documents>,
    /// The skills to run.
    pub catalog: Arc<FileCatalog>,
    /// The folder of the users' notes (`<data>/notes`), created with the first note.
    pub notes_folder: PathBuf,
    /// Whether that folder is the one notes folder of the database, or the operator wants separate folders. If not, the
    /// notes skills refuse to run: the notes are in a folder that this process cannot reach, and its own folder would
    /// show a part of them as all notes.
    pub are_notes_here: bool,
    /// The way of skills to other machines. `None` if the operator has not enabled it: then the catalogue must not list skills
    /// that need it (see [`FileCatalog::reaching_out`]).
    pub egress: Option<Arc<dyn Egress>>,
    /// Masks opened secrets in the outcomes of all skills.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// Whether `web.fetch` asks the rules of each site for automatic readers (`robots.txt`).
    pub respects_robots: bool,
    /// The files of this machine that skills may use.
    pub files: FileRules,
    /// The search engine of `web.search`. `None` if there is none: then the catalogue must not list the skill (see
    /// [`FileCatalog::searching`]).
    pub search: Option<SearchRules>,
    /// The user of this installation, whose folder the skill files are in. Only in this user's conversations are skill files
    /// written, and only this user approves them.
    pub owner: UserId,
    /// The origins of text that may become no instruction: no schedule and no skill file is written from it.
    pub untrusted: UntrustedText,
    /// How memories that are not used lose rank in searches.
    pub memory_decay: MemoryDecay,
    /// How programs of skills are run. `None` if none is: then the catalogue must not list such skills (see
    /// [`FileCatalog::running_programs`]).
    pub programs: Option<ProgramRules>,
}

pub(crate) struct Tools {
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) catalog: Arc<FileCatalog>,
    /// The skills of all sources, for the skill `system.help`.
    pub(crate) all_skills: ArcSwap<SkillSet>,
    pub(crate) notes: Notes,
    pub(crate) egress: Option<Arc<dyn Egress>>,
    pub(crate) secrets: Option<Arc<dyn Secrets>>,
    pub(crate) respects_robots: bool,
    pub(crate) robots: Robots,
    pub(crate) files: Files,
    pub(crate) search: Option<SearchRules>,
    pub(crate) programs: Option<Programs>,
    pub(crate) owner: UserId,
    pub(crate) untrusted: UntrustedText,
    /// Locked while a skill file is written.
    pub(crate) building: Mutex<()>,
    pub(crate) memory_decay: MemoryDecay,
    pub(crate) touches: Arc<Semaphore>,
    pub(crate) temp: TempState,
}

/// Lists and runs the skills of a [`FileCatalog`]: bundled files, files of the data folder, and their built-in handlers.
pub struct Runner {
    tools: Arc<Tools>,
}

impl Runner {
    /// Creates a runner with these dependencies.
    #[must_use]
    pub fn new(parts: RunnerParts) -> Self {
        let tools = Tools {
            documents: parts.documents,
            all_skills: ArcSwap::new(parts.catalog.skills()),
            catalog: parts.catalog,
            notes: Notes::new(parts.notes_folder, parts.are_notes_here),
            egress: parts.egress,
            secrets: parts.secrets,
            respects_robots: parts.respects_robots,
            robots: Robots::default(),
            files: Files::new(parts.files),
            search: parts.search,
            programs: parts.programs.map(Programs::new),
            owner: parts.owner,
            untrusted: parts.untrusted,
            memory_decay: parts.memory_decay,
            building: Mutex::default(),
            touches: Arc::new(Semaphore::new(TOUCHES_MAX as usize)),
            temp: TempState::default(),
        };
        Self { tools: Arc::new(tools) }
    }

    /// Waits until the background writes have ended. Called before the store is closed.
    pub async fn settle(&self) {
        // This fails only on a closed semaphore, and the semaphore is never closed.
        drop(self.tools.touches.acquire_many(TOUCHES_MAX).await);
    }

    /// The catalogue of the files.
    pub(crate) fn catalog(&self) -> Arc<FileCatalog> {
        self.tools.catalog.clone()
    }

    /// The chore that purges what users deleted 30 days ago.
    #[must_use]
    pub fn purge(&self) -> Arc<dyn Chore> {
        Arc::new(Purge(Arc::clone(&self.tools)))
    }

    /// The skills that conversations of a user wrote.
    pub(crate) async fn built(&self, user: &UserId) -> Result<Vec<BuiltSkill>, SkillError> {
        if *user != self.tools.owner {
            return Ok(Vec::new());
        }
        approved::list(&self.tools).await
    }

    /// Stores the decision of a person about a skill that a conversation wrote.
    pub(crate) async fn decide(
        &self,
        user: &UserId,
        by: &str,
        name: &str,
        decision: SkillDecision,
        at: Micros,
    ) -> Result<BuiltSkill, DecisionError> {
        approved::decide(&self.tools, user, by, name, decision, at).await
    }

    /// Sets the skills that the skill `system.help` describes.
    pub(crate) fn publish(&self, all_skills: Arc<SkillSet>) {
        self.tools.all_skills.store(all_skills);
    }

    /// The outcome without the secrets that this process has opened. A server may repeat what it received.
    pub(crate) fn scrubbed(&self, outcome: Outcome) -> Outcome {
        match &self.tools.secrets {
            Some(secrets) => outcome.map_texts(&|text| secrets.scrubbed(text)),
            None => outcome,
        }
    }

    /// The skill in the present files. They may have changed since the caller read the list.
    fn entry(&self, name: &str) -> Option<Entry> {
        self.tools.catalog.snapshot().entry(name).cloned()
    }

    async fn run_script(&self, script: &Script, spec: &SkillSpec, call: &SkillCall, arguments: Value) -> Ran {
        let programs = self.tools.programs.as_ref().ok_or(SkillError::ProgramsOff)?;
        programs.run(script::job(script, &spec.args, arguments)?, spec, call).await
    }

    async fn run_own_script(&self, owner: Owner, args: PromptArgs, call: &SkillCall) -> Ran {
        let programs = self.tools.programs.as_ref().ok_or(SkillError::ProgramsOff)?;
        let spec = Arc::clone(&owner.spec);
        let job = run_blocking(move || owner.job(args.script.as_deref().unwrap_or_default(), &args)).await?;
        programs.run(job, &spec, call).await
    }

    fn ctx(&self, spec: Arc<SkillSpec>, call: SkillCall) -> Ctx {
        Ctx { tools: Arc::clone(&self.tools), spec, call, requests: Arc::default() }
    }
}

/// The outcome of a call of a skill that does not exist, with similar names.
pub(crate) fn unknown_skill(name: &str, all_skills: &SkillSet) -> Outcome {
    let message = format!("There is no skill `{name}`.");
    Outcome::permanent("unknown_skill", message).with_alternatives(all_skills.near(name))
}

impl SkillSource for Runner {
    fn name(&self) -> &str {
        "files"
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        Ok(self.tools.catalog.skills())
    }

    fn run(&self, mut call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async move {
            let Some(entry) = self.entry(&call.skill) else {
                return unknown_skill(&call.skill, &self.tools.all_skills.load_full());
            };
            if let Err(refused) = approved::admit(&self.tools, &entry).await {
                return refused.into_outcome(&entry.spec);
            }
            let arguments = std::mem::take(&mut call.arguments);
            match entry.kind {
                Kind::Command(builtin) => (builtin.run)(self.ctx(entry.spec, call), arguments).await,
                Kind::Script(script) => {
                    let ran = self.run_script(&script, &entry.spec, &call, arguments).await;
                    ran.unwrap_or_else(|error| error.into_outcome(&entry.spec))
                }
                Kind::Request(template) => {
                    let ctx = self.ctx(Arc::clone(&entry.spec), call);
                    let ran = request::run(&ctx, &template, arguments).await;
                    ctx.finished(ran)
                }
                Kind::Prompt { tree, folder, files } => {
                    let spec = called(&entry.spec, &arguments);
                    let args = match decode_prompt(arguments) {
                        Ok(args) => args,
                        Err(error) => return error.into_outcome(&spec),
                    };
                    if args.script.is_some() {
                        let folder = tree.folder().map(|root| root.join(&folder));
                        let owner = Owner { spec: Arc::clone(&spec), is_built: entry.built.is_some(), folder, files };
                        let ran = self.run_own_script(owner, args, &call).await;
                        return ran.unwrap_or_else(|error| error.into_outcome(&spec));
                    }
                    let instructions = match Instructions::of(&self.tools, Arc::clone(&spec), &call).await {
                        Ok(instructions) => instructions,
                        Err(error) => return error.into_outcome(&spec),
                    };
                    let ran = run_blocking(move || prompt(&instructions, tree.as_ref(), &folder, &files, args));
                    ran.await.unwrap_or_else(|error| error.into_outcome(&spec))
                }
            }
        })
    }

    fn reconcile(&self, mut call: SkillCall) -> Fut<'_, Option<Outcome>> {
        Box::pin(async move {
            let entry = self.entry(&call.skill)?;
            let Kind::Command(builtin) = entry.kind else { return None };
            let arguments = std::mem::take(&mut call.arguments);
            (builtin.reconcile)(self.ctx(entry.spec, call), arguments).await
        })
    }

    fn changes(&self) -> Fut<'_, Result<(), String>> {
        Box::pin(async move { Arc::clone(&self.tools.catalog).watch().await.map_err(|error| error.to_string()) })
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

/// A prompt skill with its body, in which the values of the state stand.
struct Instructions {
    spec: Arc<SkillSpec>,
    body: Result<String, Unset>,
    /// The origins of the values.
    origins: Vec<String>,
}

impl Instructions {
    /// Fills the body. A dollar of a value is escaped, so that a value names no argument.
    async fn of(tools: &Tools, spec: Arc<SkillSpec>, call: &SkillCall) -> Result<Self, SkillError> {
        let (mut values, mut origins) = (BTreeMap::new(), BTreeSet::new());
        for placeholder in placeholders(&spec.body).into_iter().filter(|found| !found.is_escaped) {
            let Some(StateText { text, origin }) = state::value(tools, call, &placeholder.key).await? else { continue };
            origins.extend(origin.iter().cloned());
            values.insert(placeholder.key, StateText { text: text.replace('$', "\\$"), origin });
        }
        let body = fill(&spec.body, &Frames::of(call.task), &|key| values.get(key).cloned());
        Ok(Self { spec, body, origins: origins.into_iter().collect() })
    }
}

/// A prompt skill's instructions with their arguments, one of its supporting files, or its end.
fn prompt(of: &Instructions, tree: &dyn Tree, folder: &str, files: &[String], args: PromptArgs) -> Ran {
    let Instructions { spec, body, origins } = of;
    let name = &spec.name;
    if args.done {
        let text = format!("The skill {name} is done: its instructions no longer apply.");
        return Ok(Outcome::success(text).with_skill_change(SkillChange::End));
    }
    if let Some(file) = args.file {
        let file = file.trim().trim_start_matches("./");
        if !files.iter().any(|f| f == file) {
            let what = format!("The skill {name} has no file '{file}'.");
            return Err(SkillError::NotFound { what, near: files.to_vec() });
        }
        let text = tree.read_in(folder, file)?;
        return Ok(Outcome::success(text).with_evidence(json!({"skill": name, "file": file})));
    }
    if let Err(Unset(keys)) = body {
        let first = keys.first().map_or("", String::as_str);
        let what = format!(
            "The skill {name} needs values that are not set: {}. Set them first, such as with `state.set --key {first}`, or by \
             `annie state set {first} VALUE`.",
            keys.join(", ")
        );
        return Err(SkillError::Unset(what));
    }
    let body = body.as_deref().unwrap_or_default();
    let mut text = substitute(body, args.args.as_deref().unwrap_or_default());
    let has_scripts = matches!(spec.format, SkillFormat::Prompt { scripts: Some(_), .. });
    let is_script = |file: &&String| has_scripts && file.starts_with(SCRIPTS_FOLDER);
    let (scripts, others): (Vec<&String>, Vec<&String>) = files.iter().partition(is_script);
    for (title, files) in [
        ("Supporting files (read one with --file PATH)", others),
        ("Scripts (run one with --script PATH --args \"...\", read one with --file PATH)", scripts),
    ] {
        if !files.is_empty() {
            let list: Vec<String> = files.iter().map(|file| format!("- {file}")).collect();
            text.push_str(&format!("\n\n{title}:\n{}", list.join("\n")));
        }
    }
    let content = format!("<skill_content name=\"{name}\">\n{text}\n</skill_content>");
    let active = active(spec, &content);
    let change = match spec.format {
        SkillFormat::Prompt { context: PromptContext::Fork, .. } => SkillChange::Fork(active),
        SkillFormat::Prompt { .. } | SkillFormat::Command => SkillChange::Begin(active),
    };
    let outcome = Outcome::success(content).with_evidence(json!({"skill": name})).with_origins(origins.clone());
    Ok(outcome.with_skill_change(change))
}

/// The skill as it stays active with these instructions.
fn active(spec: &SkillSpec, content: &str) -> ActiveSkill {
    let active = ActiveSkill::new(&spec.name, content);
    match &spec.format {
        SkillFormat::Command => active,
        SkillFormat::Prompt { model_invocable, allowed_tools, .. } => {
            ActiveSkill { allowed_tools: allowed_tools.clone(), is_for_users: !model_invocable, ..active }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
