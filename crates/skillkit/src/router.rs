//! Joins sources of skills to one catalogue and one runner: the files with their built-in handlers first, then the other
//! sources in their order. Of two skills with the same name, the one of the earlier source is kept.
//!
//! A source that cannot list its skills keeps the skills that it listed last. The router calls `run` of a source only within
//! the future that it returns itself, so that the caller catches every panic of the run.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use annie_core::{
    outcome::Outcome,
    ports::{Catalog, Fut, SkillCall, SkillRunner, SkillSource},
    skill::{SkillFormat, SkillSet, SkillSpec},
};

use crate::runner::{Runner, unknown_skill};

/// What one source listed last.
#[derive(Clone, Default)]
struct Listing {
    skills: Arc<SkillSet>,
    /// Those of them that are used.
    admitted: Arc<SkillSet>,
    /// The version of the skills; `None` before the first success.
    version: Option<u64>,
    /// Why the source cannot list its skills at present.
    failure: Option<String>,
}

/// The skills of all sources at one point in time.
#[derive(Default)]
struct Joined {
    all: Arc<SkillSet>,
    /// One for each source, in the order of the sources.
    listings: Vec<Listing>,
    problems: Vec<String>,
}

/// All sources of skills as one catalogue and one runner.
pub struct Router {
    files: Arc<Runner>,
    /// The files, then the other sources.
    sources: Vec<Arc<dyn SkillSource>>,
    /// Locked while the sources list their skills, so that no older list replaces a newer one.
    joined: Mutex<Arc<Joined>>,
}

impl Router {
    /// Creates a router over the files and these other sources, which are asked for their skills at once.
    #[must_use]
    pub fn new(files: Arc<Runner>, others: Vec<Arc<dyn SkillSource>>) -> Self {
        let first: Arc<dyn SkillSource> = files.clone();
        let sources: Vec<Arc<dyn SkillSource>> = std::iter::once(first).chain(others).collect();
        let listings = vec![Listing::default(); sources.len()];
        let joined = Mutex::new(Arc::new(Joined { listings, ..Joined::default() }));
        let router = Self { files, sources, joined };
        router.current();
        router
    }

    /// All sources, in their order.
    #[must_use]
    pub fn sources(&self) -> &[Arc<dyn SkillSource>] {
        &self.sources
    }

    /// What is wrong with the sources at present, for people: skills that are left out, and sources that cannot list their
    /// skills. Each text begins with `skill source` and the name of the source.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.current().problems.clone()
    }

    /// The present skills. They are joined again only if a source has a new version, fails, or works again.
    fn current(&self) -> Arc<Joined> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = self.sources.iter().zip(&joined.listings).enumerate();
        let changed: Vec<(usize, Listing)> =
            asked.filter_map(|(n, (source, last))| Some((n, changed_since(last, source.as_ref())?))).collect();
        if !changed.is_empty() {
            let mut listings = joined.listings.clone();
            for (n, listing) in changed {
                listings[n] = listing;
            }
            let next = self.join(listings);
            for problem in next.problems.iter().filter(|problem| !joined.problems.contains(problem)) {
                tracing::warn!("{problem}");
            }
            self.files.publish(next.all.clone());
            *joined = Arc::new(next);
        }
        joined.clone()
    }

    fn join(&self, mut listings: Vec<Listing>) -> Joined {
        let mut problems = Vec::new();
        // Who has a name, however its parts are joined: a model may write `tasks__create` for `tasks.create`.
        let mut owners: BTreeMap<String, &str> = BTreeMap::new();
        for (n, listing) in listings.iter_mut().enumerate() {
            let name = self.sources[n].name();
            if self.sources[..n].iter().any(|earlier| earlier.name() == name) {
                problems.push(format!(
                    "skill source `{name}`: another one has the same name, and the changes of this one are not followed: rename \
                     one of them"
                ));
            }
            if let Some(why) = &listing.failure {
                problems
                    .push(format!("skill source `{name}` cannot list its skills, and its last ones are used: {why}"));
            }
            let mut admitted = (*listing.skills).clone();
            for skill in listing.skills.iter() {
                let owner = owners.get(&SkillSpec::key(&skill.name));
                let taken = owner.map(|earlier| format!("and that of `{earlier}` is used: rename one of them"));
                let unfit = || not_of_a_source(skill).filter(|_| n > 0).map(|why| format!("which is left out: {why}"));
                if let Some(why) = taken.or_else(unfit) {
                    problems.push(format!("skill source `{name}` also has `{}`, {why}", skill.name));
                    admitted = admitted.without(&skill.name);
                }
            }
            owners.extend(admitted.iter().map(|skill| (SkillSpec::key(&skill.name), name)));
            listing.admitted = Arc::new(admitted);
        }
        let all = SkillSet::joined(listings.iter().map(|listing| &*listing.admitted));
        Joined { all: Arc::new(all), listings, problems }
    }

    /// The source that runs a call, or the outcome of a call that no source can run.
    fn source_of(&self, call: &SkillCall) -> Result<&dyn SkillSource, Box<Outcome>> {
        let joined = self.current();
        for (source, listing) in self.sources.iter().zip(&joined.listings) {
            let Some(skill) = listing.admitted.get(&call.skill) else { continue };
            return match skill.check_arguments(&call.arguments) {
                Ok(()) => Ok(source.as_ref()),
                Err(error) => Err(Box::new(Outcome::permanent("invalid_arguments", error.to_string()))),
            };
        }
        Err(Box::new(unknown_skill(&call.skill, &joined.all)))
    }
}

/// Why a source other than the files may not have a skill. The kernel trusts the texts of prompt skills, which the operator
/// installed, and of the domain `system`.
fn not_of_a_source(skill: &SkillSpec) -> Option<&'static str> {
    match skill.name.split_once('.') {
        Some(("system", _)) => Some("the domain `system` is the kernel's"),
        Some(_) if skill.format == SkillFormat::Command => None,
        Some(_) => Some("only files have prompt skills"),
        None => Some("its name needs a domain, such as `ledger.show`"),
    }
}

/// What a source lists now; `None` if that is what it listed last.
fn changed_since(last: &Listing, source: &dyn SkillSource) -> Option<Listing> {
    let listed = catch_unwind(AssertUnwindSafe(|| source.specs())).unwrap_or_else(|_| Err("it panicked".to_owned()));
    match listed {
        Ok(skills) if last.failure.is_none() && last.version == Some(skills.version()) => None,
        Ok(skills) => Some(Listing { version: Some(skills.version()), skills, failure: None, ..last.clone() }),
        // A failure is reported once, even if its text changes with every call.
        Err(_) if last.failure.is_some() => None,
        Err(failure) => Some(Listing { failure: Some(failure), ..last.clone() }),
    }
}

impl Catalog for Router {
    fn skills(&self) -> Arc<SkillSet> {
        self.current().all.clone()
    }
}

impl SkillRunner for Router {
    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async move {
            let outcome = match self.source_of(&call) {
                Ok(source) => source.run(call).await,
                Err(refused) => *refused,
            };
            self.files.scrubbed(outcome).clipped()
        })
    }

    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>> {
        Box::pin(async move {
            let source = self.source_of(&call).ok()?;
            source.reconcile(call).await.map(|outcome| self.files.scrubbed(outcome).clipped())
        })
    }
}

#[cfg(test)]
mod tests;
