//! Builds skills from a tree of files: determines the kind of each file and the handler that runs it.

use std::{collections::BTreeMap, sync::Arc};

use annie_core::{
    schedule::FileSchedule,
    skill::{Effect, SkillFormat, SkillSpec},
};

use super::{
    command::{self, CommandFile, DOMAIN_FILE},
    problem::{Problem, Report},
    prompt,
    script::{Place, Script, ScriptFile},
    tree::Tree,
};
use crate::{
    builtin,
    handler::{Builtin, prompt_args},
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
}

/// The implementation of a skill.
#[derive(Clone)]
pub(crate) enum Kind {
    /// A built-in handler.
    Command(&'static Builtin),
    /// A program in the skill's folder or of the machine.
    Script(Arc<Script>),
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
                    .and_then(|mut file| match file.script.take() {
                        Some(script) => script_item(file, script, tree.source(path), &mut report),
                        None => command_item(file, tree.source(path), &mut report),
                    })
            }
        };
        match item {
            Some(item) => layer.add(path, item, &mut report),
            None => layer.broken.push(path.clone()),
        }
        layer.problems.extend(report.into_problems());
    }
    layer
}

impl Layer {
    fn add(&mut self, path: &str, item: Item, report: &mut Report) {
        if let Item::Skill(new) = &item {
            let twin = self.items.iter().find_map(|(other, item)| match item {
                Item::Skill(old) if old.spec.name == new.spec.name => Some(other.clone()),
                _ => None,
            });
            if let Some(other) = twin {
                let what = format!("the name `{}` is taken by {other}", new.spec.name);
                report.error(None, what, "rename one of the two");
                return;
            }
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
fn prompt_folders(paths: &[String]) -> Vec<&str> {
    let mut folders: Vec<&str> = Vec::new();
    for path in paths {
        if let Some((folder, "SKILL.md" | "skill.md")) = path.rsplit_once('/') {
            folders.push(folder);
        }
    }
    folders.sort_unstable();
    folders.dedup();
    let all = folders.clone();
    folders.retain(|own| !all.iter().any(|other| below(own, other).is_some()));
    folders
}

/// The path relative to a folder; `None` if it is not below the folder.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

fn source<'a>(path: &'a str, folders: &[&'a str]) -> Source<'a> {
    if let Some((folder, rest)) = folders.iter().find_map(|f| below(path, f).map(|rest| (*f, rest))) {
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

fn prompt_item(
    tree: &Arc<dyn Tree>,
    paths: &[String],
    path: &str,
    folder: &str,
    text: &str,
    report: &mut Report,
) -> Option<Item> {
    if path.ends_with("skill.md") && paths.iter().any(|p| below(p, folder) == Some("SKILL.md")) {
        report.error(None, "the folder has a `SKILL.md` too", "keep one of the two");
        return None;
    }
    let file = prompt::read(folder.rsplit('/').next().unwrap_or(folder), text, report)?;
    let files = paths.iter().filter_map(|p| below(p, folder)).filter(|p| *p != "SKILL.md" && *p != "skill.md");
    if files.clone().any(|file| file.starts_with("scripts/")) {
        let what = "the files in `scripts/` can be read, and are not run";
        report.unsupported(None, what, "tell the model in words what to do");
    }
    let spec = SkillSpec {
        name: file.name,
        domain: PROMPT_DOMAIN.to_owned(),
        description: file.description,
        body: file.body,
        args: prompt_args(file.argument_hint.as_deref()),
        effect: Effect::Read,
        external: false,
        timeout_ms: TIMEOUT_MS,
        format: SkillFormat::Prompt {
            context: file.context,
            user_invocable: file.user_invocable,
            model_invocable: file.model_invocable,
            allowed_tools: file.allowed_tools,
            argument_hint: file.argument_hint,
            model: file.model,
        },
        source: tree.source(path),
    };
    let files = files.map(str::to_owned).collect();
    let kind = Kind::Prompt { tree: Arc::clone(tree), folder: folder.to_owned(), files };
    let schedule = file.times.map(|times| times.of(&spec, report));
    if report.is_broken() {
        return None;
    }
    Some(Item::Skill(Entry { spec: Arc::new(spec), kind, schedule }))
}

fn command_item(file: CommandFile, source: String, report: &mut Report) -> Option<Item> {
    let wanted = file.handler.as_deref().unwrap_or(&file.name);
    let Some(builtin) = builtin::find(wanted) else {
        let fix = "name one with `handler: tasks.search`, or write a prompt skill (`<name>/SKILL.md`)";
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
        format: SkillFormat::Command,
        source,
    };
    let schedule = file.times.map(|times| times.of(&spec, report));
    if report.is_broken() {
        return None;
    }
    Some(Item::Skill(Entry { spec: Arc::new(spec), kind: Kind::Command(builtin), schedule }))
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
        format: SkillFormat::Command,
        source,
    };
    let schedule = file.times.map(|times| times.of(&spec, report));
    let entry = Entry { spec: Arc::new(spec), kind: Kind::Script(Arc::new(script)), schedule };
    (!report.is_broken()).then_some(Item::Skill(entry))
}
