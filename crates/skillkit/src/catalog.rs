//! The catalogue of all skills: the bundled folder, overridden by the skills in the data folder, reloaded when files
//! change.
//!
//! Readers take the current snapshot without a lock. A reload builds a new snapshot. A broken (or half written) file keeps
//! its last good version, and is listed in [`FileCatalog::problems`].

mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use annie_core::{
    ports::Catalog,
    schedule::FileSchedule,
    skill::{ScriptRules, SkillFormat, SkillSet, SkillSpec},
};
use arc_swap::ArcSwap;

use crate::{
    files::{Bundled, Entry, FolderTree, Item, Kind, Layer, Problem, Report, Severity, Tree, load},
    handler::Starts,
};

/// The skill that needs a search engine.
const SEARCH: &str = "web.search";
/// The skill that writes skill files.
const BUILD: &str = "system.build_skill";
/// The beginning of the names of the skills that need an allowed folder.
const FILES: &str = "files.";

/// A snapshot of all skills with their implementations.
pub(crate) struct CatalogSnapshot {
    pub(crate) set: Arc<SkillSet>,
    entries: BTreeMap<String, Entry>,
    /// The skills that conversations wrote, also those that the configuration does not allow.
    built: BTreeMap<String, Entry>,
    problems: Vec<Problem>,
}

impl CatalogSnapshot {
    /// The skills that conversations wrote, by name.
    pub(crate) const fn built(&self) -> &BTreeMap<String, Entry> {
        &self.built
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }
}

/// Which skills that start programs are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramSkills {
    /// Scripts that need the network.
    pub network: bool,
    /// `shell.run`, because the operator has listed programs for it.
    pub listed: bool,
}

/// The catalogue of skill files.
pub struct FileCatalog {
    folder: Option<PathBuf>,
    /// Lists the skills whose handlers send requests to other machines.
    reaches_out: bool,
    /// Lists `web.search`.
    searches: bool,
    /// Lists `files.*`.
    has_folders: bool,
    /// Lists `system.build_skill`.
    builds: bool,
    /// Lists the skills that start programs.
    programs: Option<ProgramSkills>,
    /// The names of the backends; `None` if they are not known here.
    backends: Option<BTreeSet<String>>,
    snapshot: ArcSwap<CatalogSnapshot>,
    /// The last good files of the data folder by path. Locked for a whole reload, so that reloads run one after another.
    good: Mutex<BTreeMap<String, Item>>,
    version: tokio::sync::watch::Sender<u64>,
}

impl FileCatalog {
    /// Creates a catalogue of the skills that are embedded in the binary.
    #[must_use]
    pub fn bundled() -> Self {
        Self::new(None)
    }

    /// Creates a catalogue of the embedded skills and those of a folder (`<data>/skills`), which override embedded skills
    /// of the same name. A missing folder is created. Failures with the folder are reported as problems and do not prevent
    /// the start.
    #[must_use]
    pub fn open(folder: PathBuf) -> Self {
        Self::new(Some(folder))
    }

    fn new(folder: Option<PathBuf>) -> Self {
        let empty = CatalogSnapshot {
            set: Arc::default(),
            entries: BTreeMap::new(),
            built: BTreeMap::new(),
            problems: Vec::new(),
        };
        let catalog = Self {
            folder,
            reaches_out: false,
            searches: false,
            has_folders: false,
            builds: false,
            programs: None,
            backends: None,
            snapshot: ArcSwap::from_pointee(empty),
            good: Mutex::default(),
            version: tokio::sync::watch::Sender::new(0),
        };
        catalog.reload();
        catalog
    }

    /// The same with the skills that send requests to other machines (`web.*`). Without this they are left out, so that no
    /// prompt offers what cannot run.
    #[must_use]
    pub fn reaching_out(mut self) -> Self {
        self.reaches_out = true;
        self.reload();
        self
    }

    /// The same with `web.search`, because a search engine is configured.
    #[must_use]
    pub fn searching(mut self) -> Self {
        self.searches = true;
        self.reload();
        self
    }

    /// The same with `files.*`, because a folder is allowed.
    #[must_use]
    pub fn with_folders(mut self) -> Self {
        self.has_folders = true;
        self.reload();
        self
    }

    /// The same with `system.build_skill`, because this process runs conversations that may write into the folder.
    #[must_use]
    pub fn building(mut self) -> Self {
        self.builds = true;
        self.reload();
        self
    }

    /// The same with the skills that start programs: scripts, `python.run`, and `shell.run` if a program is allowed. Without this
    /// they are left out.
    #[must_use]
    pub fn running_programs(mut self, programs: ProgramSkills) -> Self {
        self.programs = Some(programs);
        self.reload();
        self
    }

    /// The same with the names of the configured backends. A skill that requests another model is reported.
    #[must_use]
    pub fn knowing_backends(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.backends = Some(names.into_iter().collect());
        self.reload();
        self
    }

    /// Reads all files again (blocking) and returns the new version.
    pub fn reload(&self) -> u64 {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let bundled: Arc<dyn Tree> = Arc::new(Bundled);
        let mut base = load(&bundled);
        let mut own = self.own_layer();
        if own.readable {
            let kept = own.broken.iter().filter_map(|path| Some((path.clone(), good.get(path)?.clone())));
            own.items.extend(kept.collect::<Vec<_>>());
            good.clone_from(&own.items);
        } else {
            own.items.clone_from(&good);
        }
        let version = *self.version.borrow() + 1;
        let built = built_of(&own);
        self.leave_out(&mut base);
        let left_out = self.leave_out(&mut own);
        own.problems.extend(left_out);
        if let Some(backends) = &self.backends {
            let unknown = unknown_models(&own, backends);
            own.problems.extend(unknown);
        }
        if !self.programs.is_some_and(|programs| programs.network) {
            let without_network = scripts_without_network(&own);
            own.problems.extend(without_network);
        }
        let snapshot = merge(&mut base, &mut own, built, version);
        // A start reads the files once for each setting, and a problem is logged once.
        let before = self.snapshot.load();
        for problem in snapshot.problems.iter().filter(|problem| !before.problems.contains(problem)) {
            match problem.severity {
                Severity::Notice => tracing::info!(%problem, "skill file"),
                Severity::Error | Severity::Lenient | Severity::Unsupported => tracing::warn!(%problem, "skill file"),
            }
        }
        tracing::info!(version, skills = snapshot.entries.len(), problems = snapshot.problems.len(), "skills loaded");
        self.snapshot.store(Arc::new(snapshot));
        self.version.send_replace(version);
        version
    }

    /// Removes the skills that the configuration does not allow, and says so for each of them.
    fn leave_out(&self, layer: &mut Layer) -> Vec<Problem> {
        let mut problems = Vec::new();
        layer.items.retain(|path, item| {
            let Item::Skill(entry) = item else { return true };
            let Some((what, fix)) = self.not_allowed(&entry.kind) else { return true };
            let mut report = Report::new(path);
            report.notice(None, what, fix);
            problems.extend(report.into_problems());
            false
        });
        problems
    }

    /// Why the configuration does not allow a skill, and how to change that.
    fn not_allowed(&self, kind: &Kind) -> Option<(&'static str, &'static str)> {
        let no_programs = ("it starts a program, and this process starts none", "run it in a server");
        match (kind, self.programs) {
            (Kind::Command(builtin), _) if builtin.external && !self.reaches_out => Some((
                "its handler sends requests to other machines, which are switched off",
                "write `enabled = true` below `[egress]` in the configuration",
            )),
            (Kind::Command(builtin), _) if builtin.name == SEARCH && !self.searches => Some((
                "no search engine is configured",
                "write `kind = \"searxng\"` and `url` below `[web_search]` in the configuration",
            )),
            (Kind::Command(builtin), _) if builtin.name.starts_with(FILES) && !self.has_folders => Some((
                "no folder is allowed",
                "write `path = \"/home/me/documents\"` below `[[files.folder]]` in the configuration",
            )),
            (Kind::Command(builtin), _) if builtin.name == BUILD && !self.builds => {
                Some(("this process writes no skill files", "run it in a server"))
            }
            (Kind::Command(builtin), None) if builtin.starts != Starts::Nothing => Some(no_programs),
            (Kind::Command(builtin), Some(programs)) if builtin.starts == Starts::ListedProgram && !programs.listed => {
                Some(("no program is allowed", "write `allow = [\"ls\"]` below `[skills.shell]` in the configuration"))
            }
            (Kind::Script(_), None) => Some(no_programs),
            (Kind::Script(script), Some(programs)) if script.network && !programs.network => Some((
                "its script needs the network, which is switched off for scripts",
                "write `network = true` below `[sandbox]` in the configuration",
            )),
            (Kind::Request(_), _) if !self.reaches_out => Some((
                "it sends a request to another machine, which is switched off",
                "write `enabled = true` below `[egress]` in the configuration",
            )),
            (Kind::Command(_) | Kind::Script(_) | Kind::Request(_) | Kind::Prompt { .. }, _) => None,
        }
    }

    /// The folder of the user's own skills.
    pub(crate) fn own_folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn own_layer(&self) -> Layer {
        let Some(folder) = &self.folder else { return Layer { readable: true, ..Layer::default() } };
        let opened = std::fs::create_dir_all(folder)
            .map_err(|e| crate::SkillError::io("cannot make the skills folder", e))
            .and_then(|()| FolderTree::open(folder));
        match opened {
            Ok(tree) => {
                let tree: Arc<dyn Tree> = Arc::new(tree);
                load(&tree)
            }
            Err(error) => {
                let mut report = Report::new(".");
                report.error(None, error.to_string(), "check the data folder; the bundled skills are used meanwhile");
                Layer { problems: report.into_problems(), ..Layer::default() }
            }
        }
    }

    /// The problems of the files as last read.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.snapshot.load().problems.clone()
    }

    /// The schedules that the files ask for.
    #[must_use]
    pub fn schedules(&self) -> Vec<FileSchedule> {
        self.snapshot.load().entries.values().filter_map(|entry| entry.schedule.clone()).collect()
    }

    /// The version of the current snapshot, as a channel that changes after every reload.
    #[must_use]
    pub fn versions(&self) -> tokio::sync::watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(crate) fn snapshot(&self) -> Arc<CatalogSnapshot> {
        self.snapshot.load_full()
    }
}

impl Catalog for FileCatalog {
    fn skills(&self) -> Arc<SkillSet> {
        Arc::clone(&self.snapshot.load().set)
    }
}

/// Reports the prompt skills that request a model which no backend is called.
fn unknown_models(layer: &Layer, backends: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, item) in &layer.items {
        let Item::Skill(Entry { spec, .. }) = item else { continue };
        let SkillFormat::Prompt { model: Some(model), .. } = &spec.format else { continue };
        if !backends.contains(model) {
            let mut report = Report::new(path);
            let what = format!("no backend is called `{model}`, so any backend runs the skill");
            report.unsupported(None, what, "name a `[[backend]]` of the configuration, or leave `model` out");
            problems.extend(report.into_problems());
        }
    }
    problems
}

/// Reports the prompt skills whose scripts ask for the network that scripts do not get here.
fn scripts_without_network(layer: &Layer) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, item) in &layer.items {
        let Item::Skill(Entry { spec, .. }) = item else { continue };
        let SkillFormat::Prompt { scripts: Some(ScriptRules { network: true, .. }), .. } = spec.format else {
            continue;
        };
        let mut report = Report::new(path);
        let fix = "write `network = true` below `[sandbox]` in the configuration";
        report.notice(None, "its scripts need the network, which is switched off for scripts", fix);
        problems.extend(report.into_problems());
    }
    problems
}

/// The skills of a layer that conversations wrote.
fn built_of(layer: &Layer) -> BTreeMap<String, Entry> {
    let skills = layer.items.values().filter_map(|item| match item {
        Item::Skill(entry) => Some(entry),
        Item::Domain { .. } => None,
    });
    skills.filter(|entry| entry.built.is_some()).map(|entry| (entry.spec.name.clone(), entry.clone())).collect()
}

fn merge(base: &mut Layer, own: &mut Layer, built: BTreeMap<String, Entry>, version: u64) -> CatalogSnapshot {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    let mut domains: BTreeMap<String, String> = BTreeMap::new();
    let mut problems = std::mem::take(&mut base.problems);
    problems.append(&mut own.problems);
    for (path, item) in std::mem::take(&mut base.items).into_iter().chain(std::mem::take(&mut own.items)) {
        match item {
            Item::Domain { name, description } => {
                domains.insert(name, description);
            }
            Item::Skill(entry) => {
                let name = entry.spec.name.clone();
                if let Some(old) = entries.insert(name.clone(), entry) {
                    let mut report = Report::new(&path);
                    let what = format!("replaces the {} skill `{name}`", old.spec.source);
                    report.notice(None, what, "rename it if that is not meant");
                    problems.extend(report.into_problems());
                }
            }
        }
    }
    let specs: Vec<SkillSpec> = entries.values().map(|e| SkillSpec::clone(&e.spec)).collect();
    CatalogSnapshot { set: Arc::new(SkillSet::new(specs, domains, version)), entries, built, problems }
}

#[cfg(test)]
mod tests;
