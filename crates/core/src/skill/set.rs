//! An immutable snapshot of all skills, against which a turn is planned. Look-ups and searches are pure, so that a result
//! given to a model can be recorded with the reply that requested it.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Effect, SkillSpec, index::LazyIndex};

/// One line of the domain summary, which a model gets first [S0 3.1]. Details are available on request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainBrief {
    /// The domain.
    pub name: String,
    /// Its purpose.
    pub description: String,
    /// Its skills, sorted.
    pub skills: Vec<String>,
}

/// All skills at one point in time, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SkillSet {
    skills: BTreeMap<String, Arc<SkillSpec>>,
    domains: BTreeMap<String, String>,
    version: u64,
    index: LazyIndex,
}

impl SkillSet {
    /// A snapshot of these skills. A later skill replaces an earlier one of the same name. `domains` are the descriptions of
    /// the domains; `version` increases with every reload.
    #[must_use]
    pub fn new(
        skills: impl IntoIterator<Item = SkillSpec>,
        domains: impl IntoIterator<Item = (String, String)>,
        version: u64,
    ) -> Self {
        let skills = skills.into_iter().map(|s| (s.name.clone(), Arc::new(s))).collect();
        Self { skills, domains: domains.into_iter().collect(), version, index: LazyIndex::default() }
    }

    /// The skills of these sets together. Of two skills with the same name, and of two descriptions of the same domain, the one
    /// of the earlier set is kept. The version is the sum of the versions, so that it changes when one of them increases.
    #[must_use]
    pub fn joined<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut joined = Self::default();
        for set in sets {
            for (name, skill) in &set.skills {
                joined.skills.entry(name.clone()).or_insert_with(|| skill.clone());
            }
            for (name, description) in &set.domains {
                joined.domains.entry(name.clone()).or_insert_with(|| description.clone());
            }
            joined.version = joined.version.wrapping_add(set.version);
        }
        joined
    }

    /// The same without skills that have effects.
    #[must_use]
    pub fn reading(&self) -> Self {
        let reads = |(_, skill): &(&String, &Arc<SkillSpec>)| skill.effect == Effect::Read;
        let skills: BTreeMap<String, Arc<SkillSpec>> =
            self.skills.iter().filter(reads).map(|(name, skill)| (name.clone(), skill.clone())).collect();
        Self { skills, domains: self.domains.clone(), version: self.version, index: LazyIndex::default() }
    }

    /// The same without this skill.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut fewer = self.clone();
        fewer.skills.remove(name);
        fewer.index = LazyIndex::default();
        fewer
    }

    /// The version of this snapshot: the number of the reload that produced it, or the sum of the versions of joined sets.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The skill with exactly this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<SkillSpec>> {
        self.skills.get(name)
    }

    /// The skill with this name that a model may call, however the name's parts are joined: `tasks.create`, `tasks_create`,
    /// `tasks__create`. `None` if two skills match.
    #[must_use]
    pub fn named_like(&self, name: &str) -> Option<&Arc<SkillSpec>> {
        if let Some(skill) = self.get(name) {
            return Some(skill).filter(|s| s.is_model_invocable());
        }
        let key = SkillSpec::key(name);
        let mut fitting = self.for_model().filter(|s| SkillSpec::key(&s.name) == key);
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// All skills, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SkillSpec>> {
        self.skills.values()
    }

    /// The skills that a model may call, sorted by name.
    pub fn for_model(&self) -> impl Iterator<Item = &Arc<SkillSpec>> {
        self.iter().filter(|s| s.is_model_invocable())
    }

    /// The skills of a domain, sorted by name. The beginning of names of several parts is a domain too: `mcp.git` are the tools
    /// of one server, and a whole name is one skill.
    #[must_use]
    pub fn in_domain(&self, domain: &str) -> Vec<&Arc<SkillSpec>> {
        let is_below =
            |name: &str| name.strip_prefix(domain).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.for_model().filter(|s| s.domain == domain || is_below(&s.name)).collect()
    }

    /// The domain summary, sorted.
    #[must_use]
    pub fn domains(&self) -> Vec<DomainBrief> {
        let mut briefs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for skill in self.for_model() {
            briefs.entry(&skill.domain).or_default().push(skill.name.clone());
        }
        briefs
            .into_iter()
            .map(|(name, skills)| DomainBrief {
                name: name.to_owned(),
                description: self.domains.get(name).cloned().unwrap_or_default(),
                skills,
            })
            .collect()
    }

    /// Skills whose name, description or help contains the words of a query, best first. Each word counts 4 in the name, 2
    /// in the description, and 1 in the body.
    #[must_use]
    pub fn search(&self, query: &str) -> Vec<&Arc<SkillSpec>> {
        self.index.get(self.for_model()).search(query)
    }

    /// The names most similar to a misspelt one, for "did you mean": the same verb or domain, or an edit distance of at most
    /// two.
    #[must_use]
    pub fn near(&self, name: &str) -> Vec<String> {
        let mut near: Vec<(usize, &str)> = self
            .for_model()
            .filter_map(|s| {
                let distance = edit_distance(name, &s.name);
                let parts_match =
                    name.split('.').any(|part| part.len() > 2 && s.name.split('.').any(|own| own == part));
                (distance <= 2 || parts_match).then_some((distance, s.name.as_str()))
            })
            .collect();
        near.sort_unstable();
        near.into_iter().take(3).map(|(_, n)| n.to_owned()).collect()
    }
}

/// Whether a text is a valid skill name: `domain.verb` or a plain name, of lower case letters, digits, `-` and `_`, at most
/// 64 bytes, with at most two dots (MCP tools are `mcp.<server>.<tool>`).
#[must_use]
pub fn valid_skill_name(name: &str) -> bool {
    name.len() <= 64
        && name.split('.').count() <= 3
        && name.split('.').all(|part| {
            part.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
        })
}

/// Edit distance in characters, where a transposition of two adjacent characters counts once.
#[must_use]
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Three rows of the table, because transpositions need the row before the last.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(ca != cb)).min(row[j] + 1).min(last[j + 1] + 1);
            if i > 0 && j > 0 && *ca == b[j - 1] && a[i - 1] == *cb {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
