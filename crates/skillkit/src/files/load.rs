//! Builds skills from a tree of files: determines the kind of each file and the handler that runs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use annie_core::{
    schedule::FileSchedule,
    skill::{Effect, SCRIPTS_FOLDER, SkillFormat, SkillSpec},
};

use super::{
    built::Built,
    command::{self, CommandFile, DOMAIN_FILE},
    problem::{Problem, Report},
    prompt,
    request::RequestFile,
    script::{Place, Script, ScriptFile},
    tree::Tree,
};
use crate::{
    builtin,
    handler::{Builtin, prompt_args},
    request::RequestTemplate,
};

/// The domain of prompt skills.
pub(crate) const PROMPT_DOMAIN: &str = "prompt";
/// Time limit for one run unless the file sets another, in milliseconds [S0 5.1].
const TIMEOUT_MS: u64 = 30_000;

/// One skill with its implementation.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) spec: Arc<SkillSpec>,
    pub(crate) kind: Kind,
    /// The schedule that the file asks for.
    pub(crate) schedule: Option<FileSchedule>,
    /// Set if a conversation wrote the file.
    pub(crate) built: Option<Arc<Built>>,
}

/// The implementation of a skill.
#[derive(Clone)]
pub(crate) enum Kind {
    /// A built-in handler.
    Command(&'static Builtin),
    /// A program in the skill's folder or of the machine.
    Script(Arc<Script>),
    /// A request to another machine.
    Request(Arc<RequestTemplate>),
    /// The skill's own text and its supporting files.
    Prompt {
        tree: Arc<dyn Tree>,
        /// The folder's path in the tree.
        folder: String,
        /// Files below the folder, relative to it.
        files: Vec<String>,
    },
}

/// The content of one file.
#[derive(Clone)]
pub(crate) enum Item {
    Skill(Entry),
    Domain { name: String, description: String },
}

/// The content of a tree.
#[derive(Default)]
pub(crate) struct Layer {
    /// Good files, by path.
    pub(crate) items: BTreeMap<String, Item>,
    /// Files that could not be used.
    pub(crate) broken: Vec<String>,
    pub(crate) problems: Vec<Problem>,
    /// See `Listing::readable`.
    pub(crate) readable: bool,
}

enum Source<'a> {
    Command { domain: &'a str, verb: &'a str },
    Domain(&'a str),
    Prompt { folder: &'a str },
    Elsewhere,
    Nothing,
}

/// Reads a whole tree.
pub(crate) fn load(tree: &Arc<dyn Tree>) -> Layer {
    let listing = tree.list();
    let folders = prompt_folders(&listing.paths);
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut layer = Layer { problems: listing.problems, readable: listing.readable, ..Layer::default() };
    for path in &listing.paths {
        let mut report = Report::new(path);
        let item = match source(path, &folders) {
            Source::Nothing => continue,
            Source::Elsewhere => {
                let fix = "a command skill is `<domain>/<verb>.md`, a prompt skill `<name>/SKILL.md`";
                report.notice(None, "no skill can be here", fix);
                layer.problems.extend(report.into_problems());
                continue;
            }
            Source::Prompt { folder } => read(tree, path, &mut report)
                .and_then(|text| prompt_item(tree, &listing.paths, path, folder, &text, &mut report)),
            Source::Domain(domain) => read(tree, path, &mut report)
                .and_then(|text| command::read_domain(domain, &text, &mut report))
                .map(|description| Item::Domain { name: domain.to_owned(), description }),
            Source::Command { domain, verb } => {
                let place = Place { tree: tree.as_ref(), paths: &listing.paths, folder: domain };
                read(tree, path, &mut report)
                    .and_then(|text| command::read(domain, verb, &text, &place, &mut report))
                    .and_then(|mut file| match (file.script.take(), file.request.take()) {
                        (Some(script), _) => script_item(file, script, tree.source(path), &mut report),
                        (None, Some(request)) => request_item(file, request, tree.source(path), &mut report),
                        (None, None) => command_item(file, tree.source(path), &mut report),
                    })
            }
        };
        match item {
            Some(item) => layer.add(path, item, &mut names, &mut report),
            None => layer.broken.push(path.clone()),
        }
        layer.problems.extend(report.into_problems());
    }
    layer
}

#[cfg(test)]
/// Reads one file from its text.
pub(crate) fn load_text(path: &str, text: &str) -> (Option<Item>, Vec<Problem>) {
    let tree: Arc<dyn Tree> = Arc::new(super::tree::TextTree([(path.to_owned(), text.to_owned())].into()));
    let mut layer = load(&tree);
    (layer.items.remove(path), layer.problems)
}

impl Layer {
    /// `names` are the paths of the skills so far, by name.
    fn add(&mut self, path: &str, item: Item, names: &mut BTreeMap<String, String>, report: &mut Report) {
        if let Item::Skill(new) = &item {
            if let Some(other) = names.get(&new.spec.name) {
                let what = format!("the name `{}` is taken by {other}", new.spec.name);
                report.error(None, what, "rename one of the two");
                return;
            }
            names.insert(new.spec.name.clone(), path.to_owned());
        }
        self.items.insert(path.to_owned(), item);
    }
}

fn read(tree: &Arc<dyn Tree>, path: &str, report: &mut Report) -> Option<String> {
    match tree.read(path) {
        Ok(text) => Some(text),
        Err(error) => {
            let what = error.to_string();
            report.error(None, what.trim_end_matches('.'), "make it a readable UTF-8 text file of at most 1 MiB");
            None
        }
    }
}

/// Folders with a `SKILL.md`, outermost only; the file name may be in lower case.
fn prompt_folders(paths: &[String]) -> BTreeSet<&str> {
    let mut folders: BTreeSet<&str> = BTreeSet::new();
    for path in paths {
        if let Some((folder, "SKILL.md" | "skill.md")) = path.rsplit_once('/') {
            folders.insert(folder);
        }
    }
    let all = folders.clone();
    folders.retain(|own| !parents(own).any(|parent| all.contains(parent)));
    folders
}

/// The folders that contain a path, the innermost first.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(at, _)| &path[..at])
}

/// The path relative to a folder; `None` if it is not below the folder.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

fn source<'a>(path: &'a str, folders: &BTreeSet<&'a str>) -> Source<'a> {
    let own = parents(path).find(|parent| folders.contains(parent));
    if let Some((folder, rest)) = own.and_then(|own| Some((own, below(path, own)?))) {
        return if rest == "SKILL.md" || rest == "skill.md" { Source::Prompt { folder } } else { Source::Nothing };
    }
    match path.split('/').collect::<Vec<_>>()[..] {
        [domain, DOMAIN_FILE] => Source::Domain(domain),
        [domain, file] => match file.strip_suffix(".md") {
            Some(verb) => Source::Command { domain, verb },
            None => Source::Nothing,
        },
        ["SKILL.md" | "skill.md"] => Source::Elsewhere,
        [_] | [] => Source::Nothing,
        [..] if path.ends_with(".md") => Source::Elsewhere,
        [..] => Source::Nothing,
    }
}

/// The paths below a folder and next to them, in time that does not depend on the other paths.
fn in_folder<'a>(paths: &'a [String], folder: &'a str) -> impl Iterator<Item = &'a String> + Clone {
    let first = paths.partition_point(|path| path.as_str() < folder);
    paths[first..].iter().take_while(move |path| path.starts_with(folder))
}

fn prompt_item(
    tree: &Arc<dyn Tree>,
    paths: &[String],
    path: &str,
    folder: &str,
    text: &str,
    report: &mut Report,
) -> Option<Item> {
    if path.ends_with("skill.md") && in_folder(paths, folder).any(|p| below(p, folder) == Some("SKILL.md")) {
        report.error(None, "the folder has a `SKILL.md` too", "keep one of the two");
        return None;
    }
    let files =
        in_folder(paths, folder).filter_map(|p| below(p, folder)).filter(|p| *p != "SKILL.md" && *p != "skill.md");
    let mut scripts: Vec<&str> = files.clone().filter(|file| file.starts_with(SCRIPTS_FOLDER)).collect();
    if tree.folder().is_none() && !scripts.is_empty() {
        report.unsupported(None, "scripts of a bundled skill are not run", "put the skill into the skills folder");
        scripts.clear();
    }
    let file = prompt::read(folder.rsplit('/').next().unwrap_or(folder), &scripts, text, report)?;
    let spec = SkillSpec {
        name: file.name,
        domain: PROMPT_DOMAIN.to_owned(),
        description: file.description,
        body: file.body,
        args: prompt_args(file.argument_hint.as_deref(), file.scripts.is_some()),
        effect: Effect::Read,
        external: false,
        timeout_ms: TIMEOUT_MS,
        alternatives: Vec::new(),
        fallback: std::collections::BTreeMap::new(),
        is_ready: false,
        format: SkillFormat::Prompt {
            context: file.context,
            user_invocable: file.user_invocable,
            model_invocable: file.model_invocable,
            allowed_tools: file.allowed_tools,
            argument_hint: file.argument_hint,
            model: file.model,
            effort: file.effort,
            scripts: file.scripts,
        },
        source: tree.source(path),
    };
    let files = files.map(str::to_owned).collect();
    let built = file.built.map(Arc::new);
    let kind = Kind::Prompt { tree: Arc::clone(tree), folder: folder.to_owned(), files };
    let schedule = file.times.map(|times| times.of(&spec, report));
    if report.is_broken() {
        return None;
    }
    Some(Item::Skill(Entry { spec: Arc::new(spec), kind, schedule, built }))
}

fn command_item(file: CommandFile, source: String, report: &mut Report) -> Option<Item> {
    let wanted = file.handler.as_deref().unwrap_or(&file.name);
    let Some(builtin) = builtin::find(wanted) else {
        let fix =
            "name one with `handler: tasks.search`, or write `run:`, `request:` or a prompt skill (`<name>/SKILL.md`)";
        report.error(None, format!("there is no built-in handler `{wanted}`"), fix);
        return None;
    };
    if let Some(effect) = file.effect.filter(|e| *e != builtin.effect) {
        let own = builtin.effect.as_str();
        let what = format!("`effect: {}` is not what the handler does", effect.as_str());
        report.error(None, what, format!("write `effect: {own}`"));
    }
    if builtin.external && file.external == Some(false) {
        report.error(None, "the handler reaches other machines", "write `external: true`");
    }
    if report.is_broken() {
        return None;
    }
    let spec = SkillSpec {
        name: file.name,
        domain: file.domain,
        description: file.description,
        body: file.body,
        args: (builtin.args)(),
        effect: builtin.effect,
        external: file.external.unwrap_or(builtin.external),
        timeout_ms: file.timeout_ms.unwrap_or(TIMEOUT_MS),
        alternatives: file.alternatives,
        fallback: file.fallback,
        is_ready: file.is_ready,
        format: SkillFormat::Command,
        source,
    };
    let schedule = file.times.map(|times| times.of(&spec, report));
    if report.is_broken() {
        return None;
    }
    let built = file.built.map(Arc::new);
    Some(Item::Skill(Entry { spec: Arc::new(spec), kind: Kind::Command(builtin), schedule, built }))
}

/// A script: the file itself declares what a handler declares elsewhere.
fn script_item(
    file: CommandFile,
    ScriptFile { script, args }: ScriptFile,
    source: String,
    report: &mut Report,
) -> Option<Item> {
    let spec = SkillSpec {
        name: file.name,
        domain: file.domain,
        description: file.description,
        body: file.body,
        args,
        effect: file.effect.unwrap_or(Effect::Once),
        external: file.external.unwrap_or(script.network),
        timeout_ms: file.timeout_ms.unwrap_or(TIMEOUT_MS),
        alternatives: file.alternatives,
        fallback: file.fallback,
        is_ready: file.is_ready,
        format: SkillFormat::Command,
        source,
    };
    let schedule = file.times.map(|times| times.of(&spec, report));
    let built = file.built.map(Arc::new);
    let entry = Entry { spec: Arc::new(spec), kind: Kind::Script(Arc::new(script)), schedule, built };
    (!report.is_broken()).then_some(Item::Skill(entry))
}

/// A request. It always reaches another machine.
fn request_item(
    file: CommandFile,
    RequestFile { template, args, effect }: RequestFile,
    source: String,
    report: &mut Report,
) -> Option<Item> {
    let spec = SkillSpec {
        name: file.name,
        domain: file.domain,
        description: file.description,
        body: file.body,
        args,
        effect: file.effect.unwrap_or(effect),
        external: true,
        timeout_ms: file.timeout_ms.unwrap_or(TIMEOUT_MS),
        alternatives: file.alternatives,
        fallback: file.fallback,
        is_ready: file.is_ready,
        format: SkillFormat::Command,
        source,
    };
    let schedule = file.times.map(|times| times.of(&spec, report));
    let built = file.built.map(Arc::new);
    let entry = Entry { spec: Arc::new(spec), kind: Kind::Request(Arc::new(template)), schedule, built };
    (!report.is_broken()).then_some(Item::Skill(entry))
}
