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
    let pattern = Regex::new(text);
    debug_assert!(pattern.is_ok(), "{pattern:?}");
    pattern.ok()
}

/// "I have saved the note", "the task has been created", "task created successfully".
static CLAIMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        (?: \b i (?: \s+ have | ['’]ve )?
            (?: \s+ (?: just | now | successfully | also | already | (?: gone | went ) \s+ ahead \s+ and ) )* \s+
          | ^ \W* (?: ok(?:ay)? | done | sure | great | got \s+ it )? [\s,.!:]* (?: successfully \s+ )? )
        (?: {DONE} | {DONE_BY_ME} ) \s [^.!?\n]{{0,80}}?
          \b (?: {THINGS} | it | that | this | them | file | list | e-?mail | message ) \b
        | \b (?: {THINGS} ) \b [^.!?\n]{{0,60}}?
          \b (?: has | have ) \s+ (?: now \s+ | just \s+ )? been \s+ (?: successfully \s+ )? (?: {DONE} ) \b
        | \b (?: {THINGS} ) \b [^.!?\n]{{0,60}}? \b (?: successfully \s+ (?: {DONE} ) | (?: {DONE} ) \s+ successfully ) \b"
    ))
});

/// Words that tell of an effect where nothing at all ran; else they may tell what a result showed.
static LOOSE_CLAIMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        ^ \W* (?: your \s+ | the \s+ | new \s+ )* (?: {THINGS} ) (?: \s+ \#? \d+ )? \s+ (?: {DONE} ) \b
        | \b (?: {THINGS} ) \b [^.!?\n]{{0,60}}? \b (?: was | were | (?: is | are ) \s+ now ) \s+ (?: {DONE} ) \b
        | \b (?: reminder | alarm | timer ) s? \b [^.!?\n]{{0,40}}? \b (?: is | are ) \s+ set \b
        | ^ \W* (?: {THINGS_GERMAN} ) \b [^.!?\n]{{0,40}}? \b (?: {DONE_GERMAN} ) \b"
    ))
});

/// "I'll remind you on Friday": a promise that nothing keeps.
static PROMISES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) \b i (?: ['’]ll | \s+ will ) \s+ (?: now \s+ | also \s+ )?
          (?: remember | remind \s+ you | make \s+ a \s+ note
            | (?: add | create | save | store | delete | remove | schedule | set \s+ up | set ) \s [^.!?\n]{{0,60}}? \b (?: {THINGS} | list ) \b )
        | \b ich \s+ (?: merke \s+ mir | werde \s+ (?: dich | sie ) \b [^.!?\n]{{0,60}}? \b erinnern | erinnere \s+ (?: dich | sie ) ) \b"
    ))
});

const THINGS: &str = "tasks? | notes? | memory | memories | reminders? | entry | entries | events? | items? | to-?dos? | appointments? | meetings? \
                      | alarms?";
const DONE: &str = "saved | stored | created | added | deleted | removed | updated | renamed | scheduled | marked | completed | sent \
                    | cancelled | canceled | set | booked";
/// The same, where the model says that it did it: of anything else these words tell often.
const DONE_BY_ME: &str = "rescheduled | moved | postponed | changed | finished";
const THINGS_GERMAN: &str = "aufgabe\\w* | notiz\\w* | erinnerung\\w* | eintrag\\w* | termin\\w* | nachricht\\w*";
const DONE_GERMAN: &str = "gespeichert | angelegt | erstellt | gelöscht | hinzugefügt | aktualisiert | entfernt | erledigt | eingetragen | gesendet";

/// "Ich habe die Aufgabe angelegt", "die Notiz wurde gespeichert".
static CLAIMS_GERMAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) (?: \b ich \s+ (?: habe | hab ) | \b (?: {THINGS_GERMAN} ) \b [^.!?\n]{{0,60}}? \b (?: wurde | wurden | ist | sind ) )
        \b [^.!?\n]{{0,100}}? \b (?: {DONE_GERMAN} ) \b"
    ))
});

/// A claim that is none: a question, an offer, a condition, somebody else's. What stands behind the claim does not unsay it.
static HEDGES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:if|when|once|after|before|until|unless|should|would|could|can|cannot|no|not|never|wenn|falls|sobald|nicht|nichts|kein\w*)\b",
    )
});

/// Words with "no" in them that hedge nothing.
static COURTESIES: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)\b(?:no (?:problem|worries|trouble)|kein problem)\b"));

/// Code and what stands in quotation marks: other words than the model's own.
static QUOTATIONS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern("(?s)```.*?(?:```|$)|\"[^\"\n]{0,300}\"|“[^”\n]{0,300}”|„[^“”\n]{0,300}[“”]|«[^»\n]{0,300}»")
});

/// Words of doubt about what happened.
static DOUBTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:may|might|maybe|perhaps|possibly|unknown|not known|unclear|uncertain|(?:not|n['’]t) (?:sure|certain|know|confirm\w*|verify)|vielleicht|möglicherweise|unbekannt|unklar|nicht sicher|weiß nicht)\b",
    )
});

static DENIALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b i \s+ (?: did \s+ not | didn['’]t | have \s+ not | haven['’]t ) \b
        | \b i (?: \s+ am | ['’]m ) \s+ (?: sorry | unable | not \s+ able )
        | \b i \s+ (?: can['’]t | can \s* not | could \s+ not | couldn['’]t | was \s+ (?: unable | not \s+ able ) )
        | ^ \s* sorry \b | \b no \s+ input \b | \b as \s+ an \s+ ai \b
        | \b (?: nothing | no \s+ \w+ ) \s+ (?: (?: was | were | has \s+ been | have \s+ been ) \s+ )?
          (?: changed | created | added | saved | stored | deleted | removed | updated | done | sent ) \b
        | \b (?: there \s+ (?: is | was ) \s+ )? nothing \s+ to \s+ do \b
        | \b ich \s+ (?: kann | konnte | habe ) \b [^.!?\n]{0,60} \b (?: nicht | nichts | kein\w* ) \b
        | \b es \s+ wurde \s+ (?: nichts | kein\w* ) \b | \b tut \s+ mir \s+ leid \b | ^ \s* leider \b",
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

/// The sentences of a text that may claim something: the model's own words, without their emphasis.
fn own_sentences(text: &str) -> Vec<String> {
    let without = |pattern: &LazyLock<Option<Regex>>, text: &str| {
        pattern.as_ref().map_or_else(|| text.to_owned(), |p| p.replace_all(text, " ").into_owned())
    };
    let text = without(&COURTESIES, &without(&QUOTATIONS, text)).replace(['*', '_', '`'], "");
    let sentences = text.split_inclusive(['.', '!', '?', '\n']).map(str::trim);
    sentences.filter(|s| !s.ends_with('?') && !s.starts_with('>')).map(str::to_owned).collect()
}

/// What a sentence claims, where nothing in front of it or in it takes it back.
fn claims_in<'a>(pattern: &LazyLock<Option<Regex>>, sentence: &'a str) -> Vec<&'a str> {
    let Some(pattern) = pattern.as_ref() else { return Vec::new() };
    let found = pattern.find_iter(sentence).filter(|found| !finds(&HEDGES, &sentence[..found.end()]));
    found.map(|found| found.as_str()).collect()
}

/// The line that a text needs which claims that something was changed, in a turn in which nothing was. `has_run` says that a
/// skill ran, whose result may be what the text tells.
pub(super) fn untrue_claim(text: &str, has_run: bool) -> Option<&'static str> {
    let sentences = own_sentences(text);
    let claims = |pattern| sentences.iter().any(|sentence| !claims_in(pattern, sentence).is_empty());
    // After a question to the user a promise is a condition.
    let promises = !has_run && !text.contains('?') && claims(&PROMISES);
    if claims(&CLAIMS_GERMAN) || (promises || !has_run && claims(&LOOSE_CLAIMS)) && is_german(text) {
        return Some(NOTHING_CHANGED_GERMAN);
    }
    (promises || claims(&CLAIMS) || !has_run && claims(&LOOSE_CLAIMS)).then_some(NOTHING_CHANGED)
}

fn is_german(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase);
    words.into_iter().any(|word| {
        matches!(
            word.as_str(),
            "ich" | "die" | "der" | "das" | "und" | "ist" | "mir" | "dich" | "erledigt" | "gelöscht"
        ) || word.starts_with("aufgabe")
            || word.starts_with("erinnerung")
    })
}

/// Whether last words say that something may or may not have happened.
pub(super) fn admits_doubt(text: &str) -> bool {
    finds(&DOUBTS, text)
}

/// What verbs of a skill's name are called in a claim that it ran.
const VERBS: [(&[&str], &[&str]); 5] = [
    (
        &["create", "add", "save", "write", "new"],
        &["created", "added", "saved", "stored", "angelegt", "erstellt", "gespeichert"],
    ),
    (&["delete", "remove", "forget"], &["deleted", "removed", "gelöscht", "entfernt"]),
    (
        &["update", "edit", "rename", "move"],
        &["updated", "renamed", "moved", "changed", "rescheduled", "postponed", "aktualisiert"],
    ),
    (&["complete", "finish", "done"], &["completed", "marked", "finished", "erledigt"]),
    (&["send"], &["sent", "gesendet"]),
];

/// Of skills that failed, those whose effect the text claims all the same though no receipt shows one of their kind.
pub(super) fn claimed_failures<'a>(text: &str, failed: &[&'a str], receipts: &[&str]) -> Vec<&'a str> {
    let sentences = own_sentences(text);
    let claimed: Vec<String> = sentences
        .iter()
        .flat_map(|s| [claims_in(&CLAIMS, s), claims_in(&CLAIMS_GERMAN, s)].concat())
        .map(str::to_lowercase)
        .collect();
    let kind = |skill: &str| {
        let verb = skill.rsplit('.').next().unwrap_or_default();
        VERBS.iter().find(|(verbs, _)| verbs.contains(&verb))
    };
    let mut untrue: Vec<&str> = Vec::new();
    for skill in failed {
        let Some((verbs, words)) = kind(skill) else { continue };
        let is_shown = receipts.iter().any(|r| kind(r).is_some_and(|(other, _)| other == verbs));
        let is_claimed = claimed.iter().any(|claim| words.iter().any(|word| claim.contains(word)));
        if is_claimed && !is_shown && !untrue.contains(skill) {
            untrue.push(skill);
        }
    }
    untrue
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
            "I moved task #1 \"Call the dentist\" to Friday.",
            "Sure! I have successfully added milk to your list.",
            "The task \"Buy milk\" has been created.",
            "Ich habe die Aufgabe angelegt.",
            "Die Notiz wurde gespeichert.",
            "I've gone ahead and added it.",
            "No problem, I have saved the note.",
            "I added the task, so you can check it now.",
            "I have **created** the task `Buy milk`.",
            "Task \"Call Dr. Smith\" created successfully!",
            "I have set a reminder for Friday.",
        ] {
            assert!(untrue_claim(text, true).is_some(), "{text}");
        }
        assert_eq!(untrue_claim("Ich habe die Aufgabe gelöscht.", true), Some(NOTHING_CHANGED_GERMAN));
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
            assert_eq!(untrue_claim(text, false), None, "{text}");
        }
    }

    #[test]
    fn loose_claims_and_promises_count_only_where_nothing_ran() {
        for text in [
            "Task #5 created: Buy milk.",
            "Your reminder is set for Friday.",
            "The note was saved.",
            "Got it, I'll remember that.",
            "Sure! I will remind you on Friday.",
            "I'll add milk to your shopping list.",
            "Ich merke mir das.",
        ] {
            assert!(untrue_claim(text, false).is_some(), "{text}");
            assert_eq!(untrue_claim(text, true), None, "{text}");
        }
        assert_eq!(untrue_claim("Ich merke mir das.", false), Some(NOTHING_CHANGED_GERMAN));
        for text in [
            "Which list? I'll add the task to it then.",
            "I'll write you a poem: roses are red.",
            "Well done! That is right.",
            "You could say \"I have created the task\".",
            "```\nI deleted the note.\n```",
        ] {
            assert_eq!(untrue_claim(text, false), None, "{text}");
        }
    }

    #[test]
    fn claim_of_a_failed_effect_is_found_if_no_receipt_shows_one_of_its_kind() {
        let text = "I created the task and I deleted the old task.";
        assert_eq!(claimed_failures(text, &["tasks.delete"], &["tasks.create"]), ["tasks.delete"]);
        assert!(claimed_failures(text, &["tasks.delete"], &["tasks.delete"]).is_empty(), "another try worked");
        assert!(claimed_failures("I created the task. Deleting failed.", &["tasks.delete"], &[]).is_empty());
        assert!(claimed_failures("I deleted the task.", &["mcp.files.read__all"], &[]).is_empty());
    }

    #[test]
    fn denials_and_refusals_are_told_from_answers() {
        for text in [
            "I did not receive any input to create a task.",
            "I'm sorry, I can't do that.",
            "Leider nein.",
            "No task was created.",
            "I have not made any changes.",
            "Nothing was changed.",
            "Es wurde nichts geändert.",
        ] {
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
