//! The picture of all skills, kept fresh: the bundled folder, and over it the data folder's own skills.
//!
//! A reader takes the present picture without a lock. A reload builds a new one beside it; a file that is broken (or half
//! written) keeps its last good version, and is listed in [`FileCatalog::problems`].

mod watch;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use annie_core::{
    ports::Catalog,
    skill::{SkillSet, SkillSpec},
};
use arc_swap::ArcSwap;

use crate::files::{Bundled, Entry, FolderTree, Item, Layer, Problem, Report, Severity, Tree, load};

/// All skills at one moment, with what carries them out.
pub(crate) struct Picture {
    pub(crate) set: Arc<SkillSet>,
    entries: BTreeMap<String, Entry>,
    problems: Vec<Problem>,
}

impl Picture {
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }
}

/// The catalogue of skill files.
pub struct FileCatalog {
    folder: Option<PathBuf>,
    picture: ArcSwap<Picture>,
    /// The data folder's last good files by path; locked for a whole reload, so that reloads do not overtake each other.
    good: Mutex<BTreeMap<String, Item>>,
    version: tokio::sync::watch::Sender<u64>,
}

impl FileCatalog {
    /// Only the skills that are embedded in the binary.
    #[must_use]
    pub fn bundled() -> Self {
        Self::new(None)
    }

    /// The embedded skills, and those of a folder (`<data>/skills`), which win over embedded ones of the same name. The
    /// folder is made if it is missing; trouble with it is a problem to be shown, never a reason not to start.
    #[must_use]
    pub fn open(folder: PathBuf) -> Self {
        Self::new(Some(folder))
    }

    fn new(folder: Option<PathBuf>) -> Self {
        let empty = Picture { set: Arc::default(), entries: BTreeMap::new(), problems: Vec::new() };
        let catalog = Self {
            folder,
            picture: ArcSwap::from_pointee(empty),
            good: Mutex::default(),
            version: tokio::sync::watch::Sender::new(0),
        };
        catalog.reload();
        catalog
    }

    /// Reads all files again (blocking) and answers the new version.
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
        let picture = merge(&mut base, &mut own, version);
        for problem in &picture.problems {
            match problem.severity {
                Severity::Notice => tracing::info!(%problem, "skill file"),
                Severity::Error | Severity::Lenient | Severity::Unsupported => tracing::warn!(%problem, "skill file"),
            }
        }
        tracing::info!(version, skills = picture.entries.len(), problems = picture.problems.len(), "skills loaded");
        self.picture.store(Arc::new(picture));
        self.version.send_replace(version);
        version
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

    /// What is wrong with the files as they were last read.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.picture.load().problems.clone()
    }

    /// The version of the present picture, and a way to wait for the next: it changes after every reload.
    #[must_use]
    pub fn versions(&self) -> tokio::sync::watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(crate) fn picture(&self) -> Arc<Picture> {
        self.picture.load_full()
    }
}

impl Catalog for FileCatalog {
    fn skills(&self) -> Arc<SkillSet> {
        Arc::clone(&self.picture.load().set)
    }
}

fn merge(base: &mut Layer, own: &mut Layer, version: u64) -> Picture {
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
    Picture { set: Arc::new(SkillSet::new(specs, domains, version)), entries, problems }
}

#[cfg(test)]
mod tests;
