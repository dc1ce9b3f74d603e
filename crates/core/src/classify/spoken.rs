//! What kind of request was spoken (S2 4): how long its answer may take, and whether skills that change something are offered.
//! Whoever speaks cannot see what is about to be done, so a turn changes something only where the words ask for it.

use serde::{Deserialize, Serialize};

/// A kind of spoken request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spoken {
    /// Something is only asked: skills that read are enough.
    Simple,
    /// Something is to be done.
    Action,
    /// Several things are to be done.
    Complex,
}

impl Spoken {
    /// Whether skills that change something are not offered.
    #[must_use]
    pub const fn reads_only(self) -> bool {
        matches!(self, Self::Simple)
    }
}

/// Verbs that ask for a change, as they stand in a request.
const VERBS: [&str; 46] = [
    "add",
    "append",
    "book",
    "buy",
    "cancel",
    "change",
    "check",
    "complete",
    "create",
    "delete",
    "edit",
    "finish",
    "forget",
    "make",
    "mark",
    "move",
    "note",
    "order",
    "postpone",
    "put",
    "remember",
    "remind",
    "remove",
    "rename",
    "reschedule",
    "save",
    "schedule",
    "send",
    "set",
    "store",
    "tick",
    "update",
    "write",
    "merke",
    "merk",
    "notiere",
    "erinnere",
    "erstelle",
    "lege",
    "lösche",
    "schreibe",
    "sende",
    "speichere",
    "trage",
    "ändere",
    "verschiebe",
];
/// Before these a verb belongs to a question about what is, or to something that was done.
const ASKING: [&str; 22] = [
    "what", "when", "which", "who", "where", "why", "how", "did", "do", "does", "is", "are", "was", "were", "have",
    "has", "was", "wann", "wer", "wo", "wie", "welche",
];

/// The kind of what was spoken.
#[must_use]
pub fn spoken(text: &str) -> Spoken {
    let lower = text.to_lowercase();
    let clauses = lower.split(['.', '!', '?', ',', ';']).flat_map(|s| s.split(" and ")).flat_map(|s| s.split(" und "));
    let wishes = clauses.filter(|clause| asks_for_a_change(clause)).count();
    match wishes {
        0 => Spoken::Simple,
        1 => Spoken::Action,
        _ => Spoken::Complex,
    }
}

fn asks_for_a_change(clause: &str) -> bool {
    let mut words = clause.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
    let first = words.clone().next().unwrap_or_default();
    !ASKING.contains(&first) && words.any(|word| VERBS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_simple_and_wishes_are_counted() {
        for text in
            ["What's on my list?", "How is the weather", "Hello Annie", "Did I create a task?", "Wann ist der Termin?"]
        {
            assert_eq!(spoken(text), Spoken::Simple, "{text}");
        }
        for text in
            ["Remind me to call mum", "Please add milk to my list", "Could you delete task 3?", "Erinnere mich an Brot"]
        {
            assert_eq!(spoken(text), Spoken::Action, "{text}");
        }
        assert_eq!(spoken("Create a task to call Bob and remind me to buy milk"), Spoken::Complex);
    }
}
