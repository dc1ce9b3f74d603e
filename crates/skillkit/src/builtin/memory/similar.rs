//! When two memories are nearly the same, and how they are merged [S0 14.3]. The store only supplies candidates.

use annie_core::words::{different_stems, stems};

use super::data::Statement;
use crate::trash::TURNING;

/// The least share of common words of two texts that may be nearly the same.
const SHARED_MIN: f64 = 0.8;

/// Whether two texts are nearly the same: most words are common, in the same order, and no number or negation differs.
/// ("Standup is at 9" and "Standup is at 10" share most words and are two facts; "tea over coffee" and "coffee over tea" share
/// all. Texts that differ in a word that reverses a statement are never nearly the same.)
pub(crate) fn nearly_same(a: &str, b: &str) -> bool {
    let (set_a, set_b) = (different_stems(a), different_stems(b));
    if set_a.is_empty() || set_b.is_empty() {
        return a.trim() == b.trim();
    }
    let telling = |w: &&String| w.chars().any(char::is_numeric) || TURNING.contains(&w.as_str());
    let differs = |own: &[String], other: &[String]| own.iter().filter(telling).any(|w| !other.contains(w));
    if differs(&set_a, &set_b) || differs(&set_b, &set_a) {
        return false;
    }
    let shared = set_a.iter().filter(|w| set_b.contains(w)).count();
    let all = set_a.len() + set_b.len() - shared;
    if (shared as f64) < SHARED_MIN * all as f64 {
        return false;
    }
    let (order_a, order_b) = (stems(a), stems(b));
    let longer = order_a.len().max(order_b.len());
    common_in_order(&order_a, &order_b) as f64 >= SHARED_MIN * longer as f64
}

/// Length of the longest common subsequence.
fn common_in_order(a: &[String], b: &[String]) -> usize {
    let mut row = vec![0_usize; b.len() + 1];
    for word in a {
        let mut corner = 0;
        for (j, other) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if word == other { corner + 1 } else { above.max(row[j]) };
            corner = above;
        }
    }
    row[b.len()]
}

/// Merges a nearly identical new memory into the existing one: the tags joined, the higher importance, the longer text.
pub(crate) fn merged(mut old: Statement, new: &Statement) -> Statement {
    if new.content.chars().count() > old.content.chars().count() {
        old.content.clone_from(&new.content);
    }
    for tag in &new.tags {
        if !old.tags.contains(tag) {
            old.tags.push(tag.clone());
        }
    }
    old.importance = old.importance.max(new.importance);
    old
}

/// An importance within 0 to 1; NaN becomes 0.
pub(crate) fn importance(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::nearly_same;

    #[test]
    fn nearly_same_accepts_the_same_words_in_other_forms() {
        assert!(nearly_same("Bob prefers email.", "bob PREFERS emails"));
        assert!(nearly_same(
            "The user prefers dark mode in every editor on the laptop",
            "User prefers dark mode in every editor on the laptop"
        ));
        assert!(nearly_same("🎉", " 🎉 "));
    }

    #[test]
    fn nearly_same_rejects_another_number_a_negation_or_another_order() {
        assert!(!nearly_same(
            "The weekly sales meeting with Bob from the Paris office is at 10",
            "The weekly sales meeting with Bob from the Paris office is at 11"
        ));
        assert!(!nearly_same(
            "Bob wants to be told about every single change of the plan",
            "Bob wants to not be told about every single change of the plan"
        ));
        assert!(!nearly_same("prefers tea over coffee", "prefers coffee over tea"));
        assert!(!nearly_same("Bob prefers email", "Bob prefers phone"));
        assert!(!nearly_same("🎉", "🚀"));
        assert!(!nearly_same("", "Bob"));
    }
}
