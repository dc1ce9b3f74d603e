//! The lists of skills in prompts. A complete list depends on nothing but the skills and its limit, so it is made once and not
//! for each turn.
//!
//! Owns: the last lists. Survives its users: nothing; a list that is missing is made again.

use std::{collections::BTreeMap, sync::Arc};

use annie_core::{
    context::{SkillsList, skills_list_for},
    skill::SkillSet,
};
use parking_lot::Mutex;

/// Lists that are kept, at most: one for each size of a context window that the backends have.
const KEPT_MAX: usize = 4;

/// What a prompt says of the skills.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub list: SkillsList,
    /// The names of all domains.
    pub domains: Vec<String>,
}

impl Listed {
    /// Makes the list for one turn.
    pub fn of(skills: &SkillSet, chars_max: usize, message_text: &str, uses: &BTreeMap<String, u32>) -> Self {
        let list = skills_list_for(skills, chars_max, message_text, uses);
        Self { list, domains: skills.domains().into_iter().map(|domain| domain.name).collect() }
    }

    pub const fn is_complete(&self) -> bool {
        self.list.left_out.is_none() && self.list.skills_left_out.is_empty()
    }
}

/// A complete list, with the skills and the limit that it was made for. The skills are compared by their place in memory, which
/// no other skills can take while they are kept here.
struct Kept {
    skills: Arc<SkillSet>,
    chars_max: usize,
    listed: Arc<Listed>,
}

/// The complete lists that were made last, the newest last.
#[derive(Default)]
pub(crate) struct SkillLists(Mutex<Vec<Kept>>);

impl SkillLists {
    /// The list for one turn. A list in which something is left out depends on the turn, and is made for each.
    pub fn of(
        &self,
        skills: &Arc<SkillSet>,
        chars_max: usize,
        message_text: &str,
        uses: &BTreeMap<String, u32>,
    ) -> Arc<Listed> {
        let is_kept = |kept: &&Kept| Arc::ptr_eq(&kept.skills, skills) && kept.chars_max == chars_max;
        if let Some(kept) = self.0.lock().iter().find(is_kept) {
            return kept.listed.clone();
        }
        let listed = Arc::new(Listed::of(skills, chars_max, message_text, uses));
        if listed.is_complete() {
            let mut all = self.0.lock();
            // Lists of skills that have changed since are not asked for again.
            all.retain(|kept| Arc::ptr_eq(&kept.skills, skills) && kept.chars_max != chars_max);
            if all.len() >= KEPT_MAX {
                all.remove(0);
            }
            all.push(Kept { skills: skills.clone(), chars_max, listed: listed.clone() });
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use annie_core::ports::Catalog;
    use annie_testkit::skills::FixedCatalog;

    use super::*;

    #[test]
    fn skill_lists_are_made_once_for_the_same_skills_and_limit() {
        let (lists, skills, none) = (SkillLists::default(), FixedCatalog::three().skills(), BTreeMap::new());
        let first = lists.of(&skills, 10_000, "Hi", &none);
        assert!(first.is_complete());
        assert_eq!(
            *first,
            Listed::of(&skills, 10_000, "wait until it is done", &BTreeMap::from([("a".to_owned(), 3)]))
        );
        assert!(Arc::ptr_eq(&first, &lists.of(&skills, 10_000, "wait", &none)));
        assert!(!Arc::ptr_eq(&first, &lists.of(&skills, 10_001, "wait", &none)), "another limit");
        assert!(Arc::ptr_eq(&first, &lists.of(&skills, 10_000, "wait", &none)), "both are kept");
        let changed = Arc::new(skills.without("test.put"));
        assert!(!lists.of(&changed, 10_000, "Hi", &none).list.text.contains("test.put"));
        let short = lists.of(&skills, 10, "Hi", &none);
        assert!(!short.is_complete());
        assert!(!Arc::ptr_eq(&short, &lists.of(&skills, 10, "Hi", &none)), "it depends on the turn");
    }
}
