//! Joins sources of skills to one catalogue and one runner: the files with their built-in handlers first, then the other
//! sources in their order. Of two skills with the same name, the one of the earlier source is kept.
//!
//! A source that cannot list its skills keeps the skills that it listed last. The router calls `run` of a source only within
//! the future that it returns itself, so that the caller catches every panic of the run.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, TryLockError},
};

use annie_core::{
    ids::UserId,
    outcome::Outcome,
    ports::{Catalog, Fut, SkillCall, SkillRunner, SkillSource},
    skill::{SkillFormat, SkillSet, SkillSpec, valid_skill_name},
    time::Micros,
};

use crate::{
    FileCatalog, Problem, Severity, SkillError,
    approved::{BuiltSkill, DecisionError, SkillDecision},
    runner::{Runner, unknown_skill},
};

/// Length limit of a source's name, in bytes. The name is a part of the name of an actor.
const SOURCE_NAME_BYTES_MAX: usize = 64;

/// What one source listed last.
#[derive(Clone, Default)]
struct Listing {
    skills: Arc<SkillSet>,
    /// The skills of this source that the router lists.
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

/// The first skill that has a name, and its source by number.
struct Owner {
    source: usize,
    skill: String,
}

/// All sources of skills as one catalogue and one runner.
pub struct Router {
    files: Arc<Runner>,
    /// The files, then the other sources.
    sources: Vec<Arc<dyn SkillSource>>,
    /// Why other sources are left out, for people.
    refused: Vec<String>,
    /// Locked while the sources list their skills, so that no older list replaces a newer one.
    asking: Mutex<()>,
    joined: Mutex<Arc<Joined>>,
}

impl Router {
    /// Creates a router over the files and these other sources, which are asked for their skills at once. A source with an
    /// invalid name is left out.
    #[must_use]
    pub fn new(files: Arc<Runner>, others: Vec<Arc<dyn SkillSource>>) -> Self {
        let (others, unfit): (Vec<_>, Vec<_>) = others.into_iter().partition(|source| valid_source_name(source.name()));
        let refused = unfit.iter().map(|source| {
            let name = source.name().escape_debug();
            format!(
                "skill source `{name}` is left out: a name has 1 to {SOURCE_NAME_BYTES_MAX} lower-case letters, digits and \
                 underscores"
            )
        });
        let refused = refused.collect();
        let first: Arc<dyn SkillSource> = files.clone();
        let sources: Vec<Arc<dyn SkillSource>> = std::iter::once(first).chain(others).collect();
        let listings = vec![Listing::default(); sources.len()];
        let joined = Mutex::new(Arc::new(Joined { listings, ..Joined::default() }));
        let router = Self { files, sources, refused, asking: Mutex::default(), joined };
        router.current();
        router
    }

    /// The catalogue of the files.
    #[must_use]
    pub fn files(&self) -> Arc<FileCatalog> {
        self.files.catalog()
    }

    /// The skills that conversations of a user wrote, by name, with what persons decided about them.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn built(&self, user: &UserId) -> Result<Vec<BuiltSkill>, SkillError> {
        self.files.built(user).await
    }

    /// Approves the present content of a skill that a conversation wrote, or withdraws the approval. `by` names the person for
    /// the record.
    ///
    /// # Errors
    /// If the user is not the owner of the skills, there is no such skill, its content is another one, or the store fails.
    pub async fn decide(
        &self,
        user: &UserId,
        by: &str,
        name: &str,
        decision: SkillDecision,
        at: Micros,
    ) -> Result<BuiltSkill, DecisionError> {
        self.files.decide(user, by, name, decision, at).await
    }

    /// All sources in use, in their order.
    #[must_use]
    pub fn sources(&self) -> &[Arc<dyn SkillSource>] {
        &self.sources
    }

    /// What is wrong with the sources at present, for people: skills that are left out, and sources that cannot list their
    /// skills. Each text names the source.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.current().problems.clone()
    }

    /// What is wrong with the files and the sources at present, worst first. The file of a problem of a source is
    /// [`Router::SOURCES`].
    #[must_use]
    pub fn all_problems(&self) -> Vec<Problem> {
        let of_source = |what: String| Problem {
            file: Self::SOURCES.to_owned(),
            line: None,
            severity: Severity::Error,
            what,
            fix: String::new(),
        };
        let mut all = self.files().problems();
        all.extend(self.problems().into_iter().map(of_source));
        all.sort_by_key(|problem| problem.severity);
        all
    }

    /// What stands for a file in the problems of sources of skills.
    pub const SOURCES: &str = "skill sources";

    /// The skills that the sources listed last.
    fn last(&self) -> Arc<Joined> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The present skills. They are joined again only if a source has a new version, fails, or works again.
    fn current(&self) -> Arc<Joined> {
        let _asking = match self.asking.try_lock() {
            Ok(asking) => asking,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread asks the sources. A source that waits although it must not delays that thread only.
            Err(TryLockError::WouldBlock) => return self.last(),
        };
        let joined = self.last();
        let asked = self.sources.iter().zip(&joined.listings).enumerate();
        let changed: Vec<(usize, Listing)> =
            asked.filter_map(|(n, (source, last))| Some((n, changed_since(last, source.as_ref())?))).collect();
        if changed.is_empty() {
            return joined;
        }
        let mut listings = joined.listings.clone();
        for (n, listing) in changed {
            listings[n] = listing;
        }
        let next = Arc::new(self.join(listings));
        for problem in next.problems.iter().filter(|problem| !joined.problems.contains(problem)) {
            tracing::warn!("{problem}");
        }
        self.files.publish(next.all.clone());
        *self.joined.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
        next
    }

    fn join(&self, mut listings: Vec<Listing>) -> Joined {
        let mut problems = self.refused.clone();
        // The owner of each name, however its parts are joined: a model may write `tasks__create` for `tasks.create`.
        let mut owners: BTreeMap<String, Owner> = BTreeMap::new();
        for (n, listing) in listings.iter_mut().enumerate() {
            let name = self.sources[n].name();
            if self.sources[..n].iter().any(|earlier| earlier.name() == name) {
                problems.push(format!(
                    "two skill sources are named `{name}`: the second one does not follow its changes; rename one of them"
                ));
            }
            if let Some(why) = &listing.failure {
                let consequence =
                    if listing.version.is_some() { "its last ones are used" } else { "none of them is available" };
                problems.push(format!("skill source `{name}` cannot list its skills, and {consequence}: {why}"));
            }
            let mut admitted = (*listing.skills).clone();
            for skill in listing.skills.iter() {
                let key = SkillSpec::key(&skill.name);
                if let Some(problem) = self.left_out(n, skill, owners.get(&key)) {
                    problems.push(problem);
                    admitted = admitted.without(&skill.name);
                } else {
                    owners.entry(key).or_insert_with(|| Owner { source: n, skill: skill.name.clone() });
                }
            }
            listing.admitted = Arc::new(admitted);
        }
        let all = SkillSet::joined(listings.iter().map(|listing| &*listing.admitted));
        Joined { all: Arc::new(all), listings, problems }
    }

    /// Why a skill of the `n`th source is left out, for people. `owner` has the skill's name already.
    fn left_out(&self, n: usize, skill: &SkillSpec, owner: Option<&Owner>) -> Option<String> {
        let (source, name) = (self.sources[n].name(), skill.name.escape_debug());
        match owner {
            // Users call the prompt skills of files by their exact names.
            _ if n == 0 => None,
            Some(owner) if owner.source == n => Some(format!(
                "skill source `{source}`: its skill `{name}` is left out: to a model its skill `{}` has the same name; rename \
                 one of them",
                owner.skill
            )),
            Some(owner) => {
                let earlier = self.sources[owner.source].name();
                Some(format!(
                    "skill source `{source}` also has `{name}`, and that of `{earlier}` is used: rename one of them"
                ))
            }
            None => not_of_a_source(skill)
                .map(|why| format!("skill source `{source}`: its skill `{name}` is left out: {why}")),
        }
    }

    /// The source that runs a call, and whether it is the files, or the outcome of a call that no source can run.
    fn source_of(&self, call: &SkillCall) -> Result<(&dyn SkillSource, bool), Box<Outcome>> {
        let joined = self.current();
        for (source, listing) in self.sources.iter().zip(&joined.listings) {
            let Some(skill) = listing.admitted.get(&call.skill) else { continue };
            return match skill.check_arguments(&call.arguments) {
                Ok(()) => {
                    let is_first = joined.listings.first().is_some_and(|first| std::ptr::eq(first, listing));
                    Ok((source.as_ref(), is_first))
                }
                Err(error) => Err(Box::new(Outcome::permanent("invalid_arguments", error.to_string()))),
            };
        }
        Err(Box::new(unknown_skill(&call.skill, &joined.all)))
    }
}

/// Why a source other than the files may not have a skill. The kernel trusts the texts of prompt skills, which the operator
/// installed, and of the domain `system`.
fn not_of_a_source(skill: &SkillSpec) -> Option<&'static str> {
    if !valid_skill_name(&skill.name) {
        return Some("a name has lower-case letters, digits, `-` and `_`, at most two dots and 64 bytes");
    }
    match skill.name.split_once('.') {
        Some(("system", _)) => Some("the domain `system` is the kernel's"),
        Some(_) if skill.format == SkillFormat::Command => None,
        Some(_) => Some("only skill files may be prompt skills: list it as a command skill"),
        None => Some("its name needs a domain, such as `ledger.show`"),
    }
}

/// The outcome without changes of the active skill, unless the skill is one of the files. The texts of other sources are no
/// instructions.
fn trusted(is_files: bool, mut outcome: Outcome) -> Outcome {
    outcome.skill_change = outcome.skill_change.filter(|_| is_files);
    outcome
}

/// Whether a text can be the name of a source.
fn valid_source_name(name: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=SOURCE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_part)
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
                Ok((source, is_files)) => trusted(is_files, source.run(call).await),
                Err(refused) => *refused,
            };
            self.files.scrubbed(outcome).clipped()
        })
    }

    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>> {
        Box::pin(async move {
            let (source, is_files) = self.source_of(&call).ok()?;
            let outcome = source.reconcile(call).await.map(|outcome| self.files.scrubbed(outcome).clipped());
            outcome.map(|outcome| trusted(is_files, outcome))
        })
    }
}

#[cfg(test)]
mod tests;
