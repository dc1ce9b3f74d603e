//! Classification of spoken requests [S2 4]: it determines the deadlines of the answer, and whether skills with effects are
//! offered. A speaking user cannot see pending actions, so a turn may change something only if the words request a change.

use serde::{Deserialize, Serialize};

/// The kind of a spoken request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spoken {
    /// A question only: skills that read are sufficient.
    Simple,
    /// A request for one action.
    Action,
    /// A request for several actions.
    Complex,
}

/// A verb that requests a change only with "off": "check off the milk", but "check whether it is done".
const CHECK: &str = "check";

impl Spoken {
    /// Whether skills with effects are withheld.
    #[must_use]
    pub const fn reads_only(self) -> bool {
        matches!(self, Self::Simple)
    }
}

/// Verbs that request a change, as they occur in requests: imperatives and infinitives. For German verbs whose prefix is at
/// the end of the sentence ("füge Milch hinzu"), the stem.
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
/// First words of clauses that ask about a present state or a past action.
const ASKING: &str = "what whats when which who where why how did does is are am was were has any wann was wer wo wie welche \
    welcher welches warum wen wem wieviel ist sind bin hat habe haben gibt wessen";
/// Words that follow "when" in a question.
const AUXILIARIES: &str =
    "s is are am was were do does did has have had can could will would shall should must may might";
/// First words of clauses that are questions only before a word of [`ASKED_OF`]: "do I have", but not "do that" or "have the
/// dentist moved".
const ASKING_OF: &str = "do have";
const ASKED_OF: &str = "i you we they he she it any anything there";
/// Verbs at the beginning of a clause that request information.
const READING: &str =
    "show tell list read find search say hear explain zeig zeige sag sage nenn nenne lies such suche finde erkläre";
/// The same after other words: "kannst du mir sagen", "I want to know".
const READING_WITHIN: &str = "hear know zeigen sagen nennen lesen vorlesen suchen finden wissen hören erklären";
/// Verbs that request information only together with the recipient: "give me", but not "give task 3 high priority".
const GIVING: [&str; 4] = ["give me", "give us", "gib mir", "gib uns"];
/// Words of greetings. A text of only these words and one or two names is not a request.
const GREETING: &str = "hello hi hey thanks thank bye hallo guten danke tschüss good morning afternoon evening night day morgen tag \
    abend nacht moin servus";
/// Words of thanks, and the first words of a following clause that says for what.
const THANKS: &str = "thanks thank danke";
const PRAISING: &str = "that this it you very das es sehr";
/// Words before the one that determines the kind of a clause.
const FILLERS: &str = "please can could would will you i d ll want like to just so and also then well um uh bitte kannst könntest \
    würdest du ich möchte will mir gerne und also dann mal annie";
/// An answer to a question of the assistant. It requests what the assistant asked about, or something else.
const CONFIRMING: &str = "yes yeah yep yup no nope ok okay sure right exactly correct fine go ja jawohl nein doch klar genau gerne \
    einverstanden";
/// Phrases that request a later notification, which is an action.
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
/// "Tell me when the build is done" requests a notification, whereas "tell me when the dentist is" is a question.
const WAITED_FOR: &str = "done finished ready complete completed over here back arrives fertig erledigt da";
/// A clause with this beginning is a request, although its first word is one of [`ASKING`].
const POLITE: [&str; 6] =
    ["is it possible", "would it be possible", "how about", "ist es möglich", "wäre es möglich", "wie wäre es"];

/// The kind of a spoken text. A text that is neither clearly a question nor a greeting counts as a request for an action,
/// because an answer that nothing can be changed is worse than a slightly slower answer.
#[must_use]
pub fn spoken(text: &str) -> Spoken {
    let lower = text.to_lowercase();
    match user_requests(&lower) {
        0 if is_only_asked(&lower) => Spoken::Simple,
        0 | 1 => Spoken::Action,
        _ => Spoken::Complex,
    }
}

/// Number of changes that a text requests.
pub(crate) fn user_requests(text: &str) -> usize {
    let lower = text.to_lowercase();
    let clauses =
        lower.split(['.', '!', '?', ',', ';', '\n']).flat_map(|s| s.split(" and ")).flat_map(|s| s.split(" und "));
    clauses.filter(|clause| asks_for_a_change(clause)).count()
}

fn words(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty())
}

/// Whether a list of words, with one space between two of them, has this word.
fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

fn asks_for_a_change(clause: &str) -> bool {
    let is_polite = POLITE.iter().any(|polite| clause.trim_start().starts_with(polite));
    (is_polite || !is_question(clause) || is_request_phrased_as_question(clause))
        && words(clause).any(|word| VERBS.contains(&word) && (word != CHECK || words(clause).any(|word| word == "off")))
}

/// Whether a clause with a verb of change requests something although it begins like a question: "any chance you could add
/// milk", "are you able to remind me", "when I get home remind me".
fn is_request_phrased_as_question(clause: &str) -> bool {
    let mut words = words(clause);
    let first = words.next().unwrap_or_default();
    let mut rest = words.clone().skip_while(|word| *word != "you");
    match first {
        "when" => words.next().is_some_and(|next| !is_in(AUXILIARIES, next)),
        "any" | "are" | "is" => rest.any(|word| VERBS.contains(&word)),
        _ => false,
    }
}

/// Whether a clause asks about the present state. A clause that may also be a request does not count as a question.
fn is_question(clause: &str) -> bool {
    let mut words = words(clause);
    let first = words.next().unwrap_or_default();
    // "Am Freitag" is not a question.
    if first == "am" {
        return words.next().is_some_and(|of| matches!(of, "i" | "we"));
    }
    is_in(ASKING, first) || (is_in(ASKING_OF, first) && words.next().is_some_and(|of| is_in(ASKED_OF, of)))
}

/// Whether a text without a requested change consists only of questions, requests for information and greetings.
fn is_only_asked(text: &str) -> bool {
    !is_waited_for(text) && text.split(['.', '!', '?', ';', '\n']).all(is_asked_or_greeting)
}

fn is_waited_for(text: &str) -> bool {
    let plain = words(text).collect::<Vec<_>>().join(" ");
    WAITING.iter().any(|waiting| plain.contains(waiting))
        || (plain.contains("tell me when ") && words(text).last().is_some_and(|last| is_in(WAITED_FOR, last)))
}

/// Whether the first clause of a sentence that is not a greeting requests information.
fn is_asked_or_greeting(sentence: &str) -> bool {
    let mut is_thanked = false;
    for clause in sentence.split(',') {
        let mut rest = clause;
        // A clause of thanks or praise requests nothing. The next clause may.
        if is_thanked && words(clause).next().is_some_and(|first| is_in(PRAISING, first)) {
            continue;
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
        // Such as "Hello dear Annie", or a vocative before a question.
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
    fn spoken_questions_are_simple_and_requested_changes_are_counted() {
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

    #[test]
    fn check_requests_a_change_only_with_off() {
        assert_eq!(user_requests("Check whether task 1 is done"), 0);
        assert_eq!(user_requests("Check off the milk"), 1);
    }

    #[test]
    fn spoken_clause_behind_thanks_and_praise_may_request_an_action() {
        for text in
            ["Thanks, that is right, email Bob", "Thanks, it works, turn off the light", "Danke, das passt, mach es so"]
        {
            assert_eq!(spoken(text), Spoken::Action, "{text}");
        }
        assert_eq!(spoken("Thanks, that was very helpful"), Spoken::Simple);
    }
}
