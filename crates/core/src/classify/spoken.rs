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

/// Verbs that ask for a change, as they stand in a request: commands and infinitives, and of German verbs whose prefix stands
/// at the end of the sentence ("füge Milch hinzu") the stem.
const VERBS: &[&str] = &[
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
    // German commands.
    "merke",
    "merk",
    "notiere",
    "notier",
    "erinnere",
    "erinner",
    "erstelle",
    "lege",
    "leg",
    "lösche",
    "lösch",
    "schreibe",
    "schreib",
    "sende",
    "schicke",
    "schick",
    "speichere",
    "trage",
    "trag",
    "ändere",
    "verschiebe",
    "verschieb",
    "füge",
    "setze",
    "setz",
    "streiche",
    "streich",
    "entferne",
    "entfern",
    "hake",
    "hak",
    "plane",
    "bestelle",
    "buche",
    "storniere",
    "vergiss",
    "aktualisiere",
    "mache",
    "stelle",
    // German infinitives.
    "merken",
    "notieren",
    "erinnern",
    "erstellen",
    "anlegen",
    "löschen",
    "schreiben",
    "aufschreiben",
    "senden",
    "schicken",
    "speichern",
    "eintragen",
    "ändern",
    "verschieben",
    "hinzufügen",
    "setzen",
    "streichen",
    "entfernen",
    "abhaken",
    "planen",
    "bestellen",
    "buchen",
    "stornieren",
    "vergessen",
    "aktualisieren",
    "umbenennen",
    "ergänzen",
    "erledigen",
    "abschließen",
    "absagen",
    "verlegen",
    "einstellen",
    "hinzuzufügen",
];
/// A clause that begins with one of these asks about what is, or about something that was done.
const ASKING: &[&str] = &[
    "what", "when", "which", "who", "where", "why", "how", "did", "do", "does", "is", "are", "am", "was", "were",
    "have", "has", "any", "wann", "wer", "wo", "wie", "welche", "welcher", "welches", "warum", "wen", "wem", "wieviel",
    "ist", "sind", "bin", "hat", "habe", "haben", "gibt", "wessen",
];
/// Words of a wish to be told something.
const READING: &[&str] = &[
    "show",
    "tell",
    "list",
    "read",
    "find",
    "search",
    "what",
    "say",
    "give",
    "hear",
    "know",
    "look",
    "explain",
    "zeig",
    "zeige",
    "zeigen",
    "sag",
    "sage",
    "sagen",
    "nenn",
    "nenne",
    "nennen",
    "lies",
    "lesen",
    "vorlesen",
    "such",
    "suche",
    "suchen",
    "finde",
    "finden",
    "gib",
    "geben",
    "wissen",
    "hören",
    "erkläre",
    "erklären",
];
/// A text that begins with one of these and asks for nothing else is no request.
const GREETING: &[&str] = &[
    "hello", "hi", "hey", "good", "thanks", "thank", "bye", "yes", "no", "ok", "hallo", "guten", "danke", "tschüss",
    "ja", "nein",
];
/// A clause that begins so asks for what follows, though its first word is one of [`ASKING`].
const POLITE: &[&str] = &["is it possible", "would it be possible", "ist es möglich", "wäre es möglich"];

/// The kind of what was spoken. What is neither clearly a question nor a greeting counts as a wish: an answer that says that
/// nothing can be changed is worse than one that takes a moment longer.
#[must_use]
pub fn spoken(text: &str) -> Spoken {
    let lower = text.to_lowercase();
    let clauses = lower.split(['.', '!', '?', ',', ';']).flat_map(|s| s.split(" and ")).flat_map(|s| s.split(" und "));
    let wishes = clauses.filter(|clause| asks_for_a_change(clause)).count();
    match wishes {
        0 if is_only_asked(&lower) => Spoken::Simple,
        0 | 1 => Spoken::Action,
        _ => Spoken::Complex,
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty())
}

fn asks_for_a_change(clause: &str) -> bool {
    let is_polite = POLITE.iter().any(|polite| clause.trim_start().starts_with(polite));
    let first = words(clause).next().unwrap_or_default();
    (is_polite || !ASKING.contains(&first)) && words(clause).any(|word| VERBS.contains(&word))
}

/// Whether a text that names no change is a question, a wish to be told something, or a greeting.
fn is_only_asked(text: &str) -> bool {
    let Some(first) = words(text).next() else { return true };
    ASKING.contains(&first) || GREETING.contains(&first) || words(text).any(|word| READING.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_simple_and_wishes_are_counted() {
        for text in [
            "What's on my list?",
            "How is the weather",
            "Hello Annie",
            "Did I create a task?",
            "Wann ist der Termin?",
            "Was steht auf der Liste?",
            "Kannst du mir sagen, wann der Termin ist?",
            "Ist Milch auf der Liste?",
            "Read me my tasks",
        ] {
            assert_eq!(spoken(text), Spoken::Simple, "{text}");
        }
        for text in [
            "Remind me to call mum",
            "Please add milk to my list",
            "Could you delete task 3?",
            "Erinnere mich an Brot",
            "Kannst du die Aufgabe löschen?",
            "Kannst du mich an Brot erinnern?",
            "Füge Milch hinzu",
            "Is it possible to remind me of bread?",
            "Ist es möglich, die Aufgabe zu löschen?",
            "Some milk for tomorrow please",
        ] {
            assert_eq!(spoken(text), Spoken::Action, "{text}");
        }
        assert_eq!(spoken("Create a task to call Bob and remind me to buy milk"), Spoken::Complex);
    }
}
