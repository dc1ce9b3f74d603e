//! The words of all skills, for searches that do not read the texts of thousands of skills each time. Built by the first search of a
//! set.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use super::SkillSpec;

/// The fields of a skill in which a word occurs, as bits, with what each counts.
const FIELDS: [(u8, u32); 3] = [(1, 4), (2, 2), (4, 1)];
/// Stands between the words of the vocabulary. No word has it.
const SEPARATOR: char = '\n';

/// The index of a set of skills, once it is needed.
#[derive(Clone, Default)]
pub(super) struct LazyIndex(OnceLock<Arc<Index>>);

impl LazyIndex {
    pub(super) fn get<'a>(&self, skills: impl Iterator<Item = &'a Arc<SkillSpec>>) -> &Index {
        self.0.get_or_init(|| Arc::new(Index::of(skills.cloned().collect())))
    }
}

/// Sets with the same skills are equal, whether they were searched or not.
impl PartialEq for LazyIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for LazyIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyIndex")
    }
}

pub(super) struct Index {
    /// Sorted by name.
    skills: Vec<Arc<SkillSpec>>,
    /// All different words, each behind a separator.
    vocabulary: String,
    /// Where each word begins in the vocabulary, ascending.
    starts: Vec<usize>,
    /// For each word the skills that have it, by number, with the fields.
    postings: Vec<Vec<(u32, u8)>>,
}

impl Index {
    fn of(skills: Vec<Arc<SkillSpec>>) -> Self {
        let mut words: HashMap<String, Vec<(u32, u8)>> = HashMap::new();
        for (number, skill) in (0..).zip(&skills) {
            for ((bit, _), text) in FIELDS.iter().zip([&skill.name, &skill.description, &skill.body]) {
                for word in words_of(text) {
                    let postings = words.entry(word).or_default();
                    match postings.last_mut().filter(|(last, _)| *last == number) {
                        Some((_, fields)) => *fields |= bit,
                        None => postings.push((number, *bit)),
                    }
                }
            }
        }
        let mut index = Self { skills, vocabulary: String::new(), starts: Vec::new(), postings: Vec::new() };
        // The order of words has no effect on results.
        for (word, postings) in words {
            index.vocabulary.push(SEPARATOR);
            index.starts.push(index.vocabulary.len());
            index.vocabulary.push_str(&word);
            index.postings.push(postings);
        }
        index
    }

    /// The skills of which a word contains a word of the query, best first, then by name.
    pub(super) fn search(&self, query: &str) -> Vec<&Arc<SkillSpec>> {
        let mut scores = vec![0_u32; self.skills.len()];
        for wanted in words_of(query).filter(|word| word.len() > 1) {
            let mut fields = vec![0_u8; self.skills.len()];
            for (at, _) in self.vocabulary.match_indices(&wanted) {
                let word = self.starts.partition_point(|start| *start <= at) - 1;
                for (skill, found) in &self.postings[word] {
                    fields[*skill as usize] |= found;
                }
            }
            for (score, fields) in scores.iter_mut().zip(fields) {
                *score += FIELDS.iter().filter(|(bit, _)| fields & bit != 0).map(|(_, counts)| counts).sum::<u32>();
            }
        }
        let mut found: Vec<(std::cmp::Reverse<u32>, usize)> = scores
            .into_iter()
            .enumerate()
            .filter(|(_, score)| *score > 0)
            .map(|(n, s)| (std::cmp::Reverse(s), n))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number)| &self.skills[number]).collect()
    }
}

fn words_of(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}
