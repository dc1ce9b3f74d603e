//! What is told is true (invariant 21): what a model's last words claim, deny or leave out, held against the receipts of
//! its turn. The lists are short on purpose: a line of the kernel below an answer has to be rare and right.

use std::sync::LazyLock;

use regex::Regex;

use crate::receipt::{Extent, Receipt};

/// Below an answer that claims an effect in a turn without one.
const NOTHING_CHANGED: &str = "(Nothing was changed: no skill that changes anything ran for this request.)";
/// The same for a German answer.
const NOTHING_CHANGED_GERMAN: &str = "(Es wurde nichts geändert: für diese Bitte lief kein Skill, der etwas ändert.)";
/// The longest denial, in bytes: a longer answer says more than that it could not.
const DENIAL_BYTES_MAX: usize = 400;
/// The longest refusal that is left out of later prompts, in bytes.
const REFUSAL_BYTES_MAX: usize = 200;
/// How much of two texts is compared when they are joined, in bytes.
const OVERLAP_BYTES_MAX: usize = 200;
/// The shortest repetition that is taken for one, in bytes.
const OVERLAP_BYTES_MIN: usize = 12;

fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

/// "I have saved the note", "the task has been created", "I've deleted it".
static CLAIMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        (?: \b i (?: \s+ have | ['’]ve )? (?: \s+ (?: just | now | successfully | also ) )* \s+
          | ^ \s* (?: ok(?:ay)? | done | sure | great )? [\s,.!:]* (?: successfully \s+ )? )
        (?: saved | stored | created | added | deleted | removed | updated | renamed | scheduled | marked | completed | sent )
        \s [^.!?\n]{0,80}? \b (?: task | tasks | note | notes | memory | memories | reminder | list | file | entry | event | item
          | to-?do | it | that | this | them | e-?mail | message ) \b
        | \b (?: task | note | memory | reminder | entry | event | item | to-?do | e-?mail ) s? \b [^.!?\n]{0,60}?
          \b (?: has | have ) \s+ (?: now \s+ )? been \s+ (?: successfully \s+ )?
          (?: saved | stored | created | added | deleted | removed | updated | renamed | scheduled | marked | completed | sent ) \b",
    )
});

/// "Ich habe die Aufgabe angelegt", "die Notiz wurde gespeichert".
static CLAIMS_GERMAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        (?: \b ich \s+ (?: habe | hab )
          | \b (?: aufgabe | notiz | erinnerung | eintrag | termin | nachricht ) \w* \b [^.!?\n]{0,60}? \b (?: wurde | wurden | ist | sind ) )
        \b [^.!?\n]{0,100}? \b (?: gespeichert | angelegt | erstellt | gelöscht | hinzugefügt | aktualisiert | entfernt | erledigt | eingetragen | gesendet ) \b",
    )
});

/// A claim that is none: a question, an offer, a condition, somebody else's.
static HEDGES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:if|when|once|after|before|until|unless|should|would|could|can|cannot|no|not|never|wenn|falls|sobald|nicht|kein\w*)\b",
    )
});

static DENIALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b i \s+ (?: did \s+ not | didn['’]t | have \s+ not | haven['’]t ) \s+ receive
        | \b i (?: \s+ am | ['’]m ) \s+ (?: sorry | unable | not \s+ able )
        | \b i \s+ (?: can['’]t | can \s* not | could \s+ not | couldn['’]t | was \s+ (?: unable | not \s+ able ) )
        | ^ \s* sorry \b | \b no \s+ input \b | \b as \s+ an \s+ ai \b
        | \b ich \s+ (?: kann | konnte | habe ) \b [^.!?\n]{0,60} \b (?: nicht | kein\w* ) \b | \b tut \s+ mir \s+ leid \b | ^ \s* leider \b",
    )
});

static REFUSALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b i (?: \s+ am | ['’]m )? \s+ (?: sorry [,.]? \s+ (?: but \s+ )? i \s+ )? (?: can['’]t | can \s* not | unable \s+ to | not \s+ able \s+ to )
        \s+ (?: assist | help | do \s+ that | fulfil | comply | process )
        | \b (?: dabei | damit | hierbei ) \s+ (?: kann | konnte ) \s+ ich \b [^.!?\n]{0,40} \b nicht \b",
    )
});

fn finds(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|p| p.is_match(text))
}

/// The line that a text needs which claims that something was changed, in a turn in which nothing was.
pub(super) fn untrue_claim(text: &str) -> Option<&'static str> {
    // Quoted text and code are somebody's words, not a claim.
    let sentences = || text.split_inclusive(['.', '!', '?', '\n']).map(str::trim).filter(|s| !s.ends_with('?'));
    let claims = |pattern| sentences().any(|s| finds(pattern, s) && !finds(&HEDGES, s) && !s.starts_with('>'));
    if claims(&CLAIMS_GERMAN) {
        return Some(NOTHING_CHANGED_GERMAN);
    }
    claims(&CLAIMS).then_some(NOTHING_CHANGED)
}

/// Whether last words deny that anything was done.
pub(super) fn denies(text: &str) -> bool {
    text.len() <= DENIAL_BYTES_MAX && finds(&DENIALS, text)
}

/// Whether last words are a refusal and nothing else: later turns would only learn to refuse from it.
pub(super) fn refuses(text: &str) -> bool {
    text.len() <= REFUSAL_BYTES_MAX && !text.contains('?') && finds(&REFUSALS, text)
}

/// What the receipts of a turn show, for a user.
pub(super) fn done_in_this_turn<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> String {
    let receipts: Vec<&Receipt> = receipts.collect();
    let parts = [
        (Extent::Done, "Done in this turn:"),
        (Extent::Partial, "Done in part:"),
        (Extent::Accepted, "Accepted, and the result comes later:"),
    ];
    let listed = parts.into_iter().filter_map(|(extent, heading)| {
        let of = receipts.iter().filter(|r| r.extent == extent);
        let lines: String = of.map(|r| format!("\n- {}", r.summary())).collect();
        (!lines.is_empty()).then(|| format!("{heading}{lines}"))
    });
    listed.collect::<Vec<_>>().join("\n\n")
}

/// An answer that was cut off, and how it went on.
pub(super) fn joined(before: &str, after: &str) -> String {
    let (before, rest) = (before.trim(), after.trim());
    if rest.is_empty() {
        return before.to_owned();
    }
    // Some models begin again from the start.
    let start: String = before.chars().take(40).collect();
    if start.len() >= OVERLAP_BYTES_MIN && rest.len() > before.len() && rest.starts_with(&start) {
        return rest.to_owned();
    }
    let overlap = (OVERLAP_BYTES_MIN..=OVERLAP_BYTES_MAX.min(before.len()).min(rest.len()))
        .rev()
        .filter(|n| before.is_char_boundary(before.len() - n) && rest.is_char_boundary(*n))
        .find(|n| before[before.len() - n..] == rest[..*n]);
    if let Some(n) = overlap {
        return format!("{before}{}", &rest[n..]);
    }
    // A model that goes on with a whole word leaves out the blank before it.
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let blank = after.starts_with(char::is_whitespace) || (is_word(rest.chars().next()) && !before.ends_with('-'));
    format!("{before}{}{rest}", if blank { " " } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_effects_are_found_in_english_and_german() {
        for text in [
            "I saved \"Paris\" to long-term memory.",
            "I have created the task \"Call the bank\".",
            "I've deleted it.",
            "Sure! I have successfully added milk to your list.",
            "The task \"Buy milk\" has been created.",
            "Ich habe die Aufgabe angelegt.",
            "Die Notiz wurde gespeichert.",
        ] {
            assert!(untrue_claim(text).is_some(), "{text}");
        }
        assert_eq!(untrue_claim("Ich habe die Aufgabe gelöscht."), Some(NOTHING_CHANGED_GERMAN));
    }

    #[test]
    fn other_sentences_are_no_claims() {
        for text in [
            "Hello Ann!",
            "Should I create the task?",
            "I can create a task for you.",
            "I have not created the task.",
            "Once I have saved the note, I will tell you.",
            "Shall I say I deleted it?",
            "Paris is the capital of France.",
            "You have three open tasks.",
            "The bridge was completed in 1937.",
            "> I deleted the note.",
            "Ich habe die Aufgabe nicht gelöscht.",
            "Ich kann die Aufgabe anlegen.",
        ] {
            assert_eq!(untrue_claim(text), None, "{text}");
        }
    }

    #[test]
    fn denials_and_refusals_are_told_from_answers() {
        for text in ["I did not receive any input to create a task.", "I'm sorry, I can't do that.", "Leider nein."] {
            assert!(denies(text), "{text}");
        }
        assert!(!denies("Created task #1.") && !denies(""));
        for text in ["I'm sorry, but I can't assist with that.", "I cannot help with that request."] {
            assert!(refuses(text), "{text}");
        }
        for text in ["I'm sorry, I could not find task 7. Did you mean 8?", "I can't find the note \"x\"."] {
            assert!(!refuses(text), "{text}");
        }
    }

    #[test]
    fn continuation_is_joined_without_a_gap_or_a_repeat() {
        assert_eq!(joined("Once upon a", "time there was"), "Once upon a time there was");
        assert_eq!(joined("Once upon a", " time"), "Once upon a time");
        assert_eq!(joined("one, two", ", three"), "one, two, three");
        assert_eq!(
            joined("It was a dark and stormy night", "stormy night, and cold"),
            "It was a dark and stormy night, and cold"
        );
        assert_eq!(joined("Once upon a time", "Once upon a time there was"), "Once upon a time there was");
        assert_eq!(joined("Once", " "), "Once");
        assert_eq!(
            joined("Äpfel und Öl für große Töpfe", "Öl für große Töpfe, bitte"),
            "Äpfel und Öl für große Töpfe, bitte"
        );
    }
}
