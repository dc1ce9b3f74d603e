//! What kind of request was spoken [S2 4]: how long its answer may take, and whether skills that change something are
//! offered. Whoever speaks cannot see what is about to be done, so a turn changes something only where the words ask for
//! it.

use serde::{Deserialize, Serialize};

/// A kind of spoken request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
const ASKING: &str = "what whats when which who where why how did does is are am was were has any wann was wer wo wie welche \
    welcher welches warum wen wem wieviel ist sind bin hat habe haben gibt wessen";
/// What follows "when" in a question.
const AUXILIARIES: &str =
    "s is are am was were do does did has have had can could will would shall should must may might";
/// The same, where somebody is asked or asked about: "do I have", but not "do that", nor "have the dentist moved".
const ASKING_OF: &str = "do have";
const ASKED_OF: &str = "i you we they he she it any anything there";
/// Verbs of a wish to be told something, at the beginning of a clause.
const READING: &str =
    "show tell list read find search say hear explain zeig zeige sag sage nenn nenne lies such suche finde erkläre";
/// The same behind other words: "kannst du mir sagen", "I want to know".
const READING_WITHIN: &str = "hear know zeigen sagen nennen lesen vorlesen suchen finden wissen hören erklären";
/// Verbs that ask for something to be told only with who is to be told it: "give me", but not "give task 3 high priority".
const GIVING: [&str; 4] = ["give me", "give us", "gib mir", "gib uns"];
/// A text that is nothing but these and a name or two is no request.
const GREETING: &str = "hello hi hey thanks thank bye hallo guten danke tschüss good morning afternoon evening night day morgen tag \
    abend nacht moin servus";
/// Words of thanks, and words with which the clause behind them begins that says what for.
const THANKS: &str = "thanks thank danke";
const PRAISING: &str = "that this it you very das es sehr";
/// Words before those that say what a clause is.
const FILLERS: &str = "please can could would will you i d ll want like to just so and also then well um uh bitte kannst könntest \
    würdest du ich möchte will mir gerne und also dann mal annie";
/// An answer to a question of the assistant's: what was asked about is wanted, or something else is.
const CONFIRMING: &str = "yes yeah yep yup no nope ok okay sure right exactly correct fine go ja jawohl nein doch klar genau gerne \
    einverstanden";
/// A wish to be told of something later, which is something to be done.
const WAITING: [&str; 14] = [
    "let me know when",
    "let me know once",
    "let me know if",
    "let me know as soon",
    "let us know",
    "tell me once",
    "tell me as soon",
    "wait for",
    "wait until",
    "sag mir bescheid",
    "gib mir bescheid",
    "sag bescheid",
    "gib bescheid",
    "melde dich",
];
/// "Tell me when the build is done" is such a wish, and "tell me when the dentist is" is a question.
const WAITED_FOR: &str = "done finished ready complete completed over here back arrives fertig erledigt da";
/// A clause that begins so asks for what follows, though its first word is one of [`ASKING`].
const POLITE: [&str; 6] =
    ["is it possible", "would it be possible", "how about", "ist es möglich", "wäre es möglich", "wie wäre es"];

/// The kind of what was spoken. What is neither clearly a question nor a greeting counts as a wish: an answer that says that
/// nothing can be changed is worse than one that takes a moment longer.
#[must_use]
pub fn spoken(text: &str) -> Spoken {
    let lower = text.to_lowercase();
    match wishes(&lower) {
        0 if is_only_asked(&lower) => Spoken::Simple,
        0 | 1 => Spoken::Action,
        _ => Spoken::Complex,
    }
}

/// How many changes a text asks for.
pub(crate) fn wishes(text: &str) -> usize {
    let lower = text.to_lowercase();
    let clauses =
        lower.split(['.', '!', '?', ',', ';', '\n']).flat_map(|s| s.split(" and ")).flat_map(|s| s.split(" und "));
    clauses.filter(|clause| asks_for_a_change(clause)).count()
}

fn words(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty())
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

fn asks_for_a_change(clause: &str) -> bool {
    let is_polite = POLITE.iter().any(|polite| clause.trim_start().starts_with(polite));
    (is_polite || !is_question(clause) || is_wish_in_a_question(clause))
        && words(clause).any(|word| VERBS.contains(&word))
}

/// Whether a clause with such a verb asks for something though it begins as a question does: "any chance you could add milk",
/// "are you able to remind me", "when I get home remind me".
fn is_wish_in_a_question(clause: &str) -> bool {
    let mut words = words(clause);
    let first = words.next().unwrap_or_default();
    let mut rest = words.clone().skip_while(|word| *word != "you");
    match first {
        "when" => words.next().is_some_and(|next| !is_in(AUXILIARIES, next)),
        "any" | "are" | "is" => rest.any(|word| VERBS.contains(&word)),
        _ => false,
    }
}

/// Whether a clause asks about what is. What may be a request as well is none.
fn is_question(clause: &str) -> bool {
    let mut words = words(clause);
    let first = words.next().unwrap_or_default();
    // "Am Freitag" is no question.
    if first == "am" {
        return words.next().is_some_and(|of| matches!(of, "i" | "we"));
    }
    is_in(ASKING, first) || (is_in(ASKING_OF, first) && words.next().is_some_and(|of| is_in(ASKED_OF, of)))
}

/// Whether a text that names no change is a question, a wish to be told something, or a greeting: each of its sentences is.
fn is_only_asked(text: &str) -> bool {
    !is_waited_for(text) && text.split(['.', '!', '?', ';', '\n']).all(is_asked_or_greeting)
}

fn is_waited_for(text: &str) -> bool {
    let plain = words(text).collect::<Vec<_>>().join(" ");
    WAITING.iter().any(|waiting| plain.contains(waiting))
        || (plain.contains("tell me when ") && words(text).last().is_some_and(|last| is_in(WAITED_FOR, last)))
}

/// Whether a sentence's first clause that is no greeting asks for something to be told.
fn is_asked_or_greeting(sentence: &str) -> bool {
    let mut is_thanked = false;
    for clause in sentence.split(',') {
        let mut rest = clause;
        // What is praised is nothing to be done.
        if is_thanked && words(clause).next().is_some_and(|first| is_in(PRAISING, first)) {
            return true;
        }
        is_thanked |= words(clause).any(|word| is_in(THANKS, word));
        let (mut is_greeting, mut may_confirm) = (false, true);
        loop {
            let Some(first) = words(rest).next() else { break };
            if is_in(CONFIRMING, first) && may_confirm {
                return false;
            }
            let plain = words(rest).take(2).collect::<Vec<_>>().join(" ");
            if is_question(rest) || is_in(READING, first) || GIVING.contains(&plain.as_str()) {
                return true;
            }
            is_greeting |= is_in(GREETING, first);
            may_confirm = is_in(GREETING, first) || is_in("um uh well so and und annie", first);
            if !is_in(GREETING, first) && !is_in(FILLERS, first) {
                break;
            }
            rest = rest.split_once(first).map_or("", |(_, behind)| behind);
        }
        if words(rest).any(|word| is_in(READING_WITHIN, word)) {
            return true;
        }
        // "Hello dear Annie", and what is called out before a question.
        if words(rest).count() > if is_greeting { 2 } else { 0 } {
            return false;
        }
    }
    true
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
            "Good morning, what is on my list?",
            "Hey Annie, tell me when the dentist is",
            "Hi there",
            "Thanks",
            "Do I have anything to do today?",
            "Have you created the task?",
            "And what is due tomorrow?",
            "Give me my tasks",
            "I want to know what is due",
            "Ich möchte gerne wissen, was ansteht",
            "Gib mir meine Aufgaben",
            "Danke. Was steht morgen an?",
            "Am I free tomorrow?",
            "Any tasks to complete today?",
            "When did you add the milk?",
            "",
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
            "Yes.",
            "Yes please",
            "Ja bitte",
            "Gerne",
            "Um, yes",
            "ok do that",
            "No, the second one",
            "Nein",
            "Sure, go ahead",
            "Good, do that",
            "Do remind me to call mum",
            "Have the dentist moved to Friday",
            "Give task 3 high priority",
            "Hey, give task 3 high priority",
            "What's the time? Give task 3 high priority.",
            "Let me know when the build is done",
            "Tell me when the backup is ready",
            "Sag mir Bescheid, wenn der Build fertig ist",
            "Milk on the list, please",
            "How about we move the dentist to Friday?",
            "Yes. What is on it?",
            "Am Freitag erinnere mich an den Zahnarzt",
            "Am Montag um drei Zahnarzt eintragen",
            "Any chance you could add milk to my list?",
            "Are you able to remind me of bread?",
            "When I get home remind me of bread",
        ] {
            assert_eq!(spoken(text), Spoken::Action, "{text}");
        }
        assert_eq!(spoken("Create a task to call Bob and remind me to buy milk"), Spoken::Complex);
    }
}
