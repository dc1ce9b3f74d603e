//! What kind of effect a skill has by its name, and what kind a sentence claims: so that a claim is held against the receipts
//! that could show it.

use super::QUOTATIONS;
use crate::{
    classify::{spoken, wishes},
    receipt::Receipt,
    turn::numbers::{numbers, numbers_of_things},
};

/// A kind of effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Creates,
    Deletes,
    Changes,
    Completes,
    Sends,
}

/// Verbs of skills' names, and what is said of what they did.
const WORDS: [(Kind, &[&str], &[&str]); 5] = [
    (
        Kind::Creates,
        &["create", "add", "save", "write", "new", "book", "schedule", "set"],
        &[
            "created",
            "added",
            "saved",
            "stored",
            "scheduled",
            "booked",
            "set",
            "angelegt",
            "erstellt",
            "gespeichert",
            "hinzugefügt",
            "eingetragen",
        ],
    ),
    (
        Kind::Deletes,
        &["delete", "remove", "forget", "cancel"],
        &["deleted", "removed", "cancelled", "canceled", "gelöscht", "entfernt"],
    ),
    (
        Kind::Changes,
        &["update", "edit", "rename", "move", "change"],
        &["updated", "renamed", "moved", "changed", "rescheduled", "postponed", "aktualisiert"],
    ),
    (Kind::Completes, &["complete", "finish", "done"], &["completed", "marked", "finished", "erledigt"]),
    (Kind::Sends, &["send", "reply", "forward", "post"], &["sent", "gesendet"]),
];

/// The words of a text, in small letters.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

impl Kind {
    /// The kind of effect of a skill, if its name tells.
    pub(super) fn of(skill: &str) -> Option<Self> {
        let name = skill.rsplit('.').next().unwrap_or_default();
        let is_verb = |word: &str| WORDS.iter().find(|(_, verbs, _)| verbs.contains(&word)).map(|(kind, ..)| *kind);
        words(name).find_map(|word| is_verb(&word))
    }

    /// The kinds of effect that a claim tells of.
    pub(super) fn claimed_in(claim: &str) -> Vec<Self> {
        let words: Vec<String> = words(claim).collect();
        let is_told = |told: &[&str]| words.iter().any(|word| told.contains(&word.as_str()));
        WORDS.iter().filter(|(_, _, told)| is_told(told)).map(|(kind, ..)| *kind).collect()
    }

    /// Whether an effect of this kind may be told as one of the other: whoever edits a list removes something from it. Only
    /// what is surely another thing is not.
    pub(super) const fn backs(self, claimed: Self) -> bool {
        match self {
            Self::Changes | Self::Completes => !matches!(claimed, Self::Sends),
            Self::Creates => !matches!(claimed, Self::Sends | Self::Deletes),
            Self::Deletes => matches!(claimed, Self::Deletes | Self::Changes),
            Self::Sends => matches!(claimed, Self::Sends | Self::Creates | Self::Completes),
        }
    }

    /// What was done, as one says it.
    pub(crate) const fn done(self) -> &'static str {
        match self {
            Self::Creates => "created",
            Self::Deletes => "deleted",
            Self::Changes => "changed",
            Self::Completes => "completed",
            Self::Sends => "sent",
        }
    }
}

/// Whether a sentence, in small letters, names a skill, its domain, its verb or what it does.
pub(super) fn names(sentence: &str, skill: &str) -> bool {
    let kind = Kind::of(skill);
    let told = WORDS.iter().find(|(other, ..)| Some(*other) == kind);
    let told = told.map(|(_, verbs, told)| [*verbs, *told].concat()).unwrap_or_default();
    let of_name: Vec<String> = words(skill).collect();
    // "E-mail" is two words, and a mail is one.
    let sentence = sentence.replace("e-mail", "email").replace(" mail", " email");
    words(&sentence).any(|word| {
        let stem = word.trim_end_matches('s');
        told.contains(&word.as_str()) || of_name.iter().any(|name| name.trim_end_matches('s') == stem)
    })
}

/// What earlier turns of a conversation did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Earlier<'a> {
    /// The receipts of their effects.
    pub receipts: &'a [Receipt],
    /// The user asks what was done.
    pub is_asked: bool,
}

impl Earlier<'_> {
    /// Whether what a sentence of this text claims may be what an earlier turn did: it has a receipt of the kind, and the user
    /// asked what was done, or the words name its thing. Another thing of the same kind it is not: what a small model has
    /// answered before, it likes to answer again.
    pub(super) fn back(&self, sentence: &str, text: &str) -> bool {
        if self.receipts.is_empty() {
            return false;
        }
        let kinds = Kind::claimed_in(sentence);
        let may_show = |receipt: &&Receipt| {
            let kind = Kind::of(&receipt.skill);
            kind.is_none_or(|kind| kinds.iter().all(|claimed| kind.backs(*claimed)))
        };
        self.receipts.iter().filter(may_show).any(|receipt| self.is_asked || names_thing(receipt, sentence, text))
    }
}

/// Whether words name the thing of a receipt: its number, or in quotation marks what the receipt says.
fn names_thing(receipt: &Receipt, sentence: &str, text: &str) -> bool {
    const TITLE_CHARS_MIN: usize = 3;
    let line = receipt.line.to_lowercase();
    let is_title = |quoted: &str| {
        let title = quoted.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        title.chars().count() >= TITLE_CHARS_MIN && line.contains(&title)
    };
    let is_in_line = |number: &u64| numbers(&line).any(|n| n.is_named && n.value == *number);
    // Every other number is a date's or a time's as well.
    numbers_of_things(sentence).iter().any(|number| receipt.ids.contains(number) || is_in_line(number))
        || QUOTATIONS.as_ref().is_some_and(|quoted| quoted.find_iter(text).any(|found| is_title(found.as_str())))
}

/// Whether a message asks what was done or how something is, and for nothing to be done.
pub(crate) fn asks_what_was(message: &str) -> bool {
    const FIRST: [&str; 24] = [
        "did", "have", "has", "was", "were", "is", "are", "what", "which", "when", "where", "who", "how", "why",
        "hast", "haben", "hat", "wurde", "wurden", "war", "ist", "sind", "was", "welche",
    ];
    let message = message.trim();
    let is_one_question = message.ends_with('?') && message.matches(['.', '!', '?', '\n']).count() == 1;
    let asks = words(message).next().is_some_and(|first| FIRST.contains(&first.as_str()));
    // "Is it possible to add eggs?"
    is_one_question && asks && spoken(message).reads_only()
}

/// Whether a message asks for a translation or a story and nothing else: the "I" of the answer is somebody else.
pub(crate) fn asks_for_prose(message: &str) -> bool {
    const BEFORE: [&str; 17] = [
        "please",
        "can",
        "could",
        "would",
        "will",
        "you",
        "i",
        "d",
        "like",
        "want",
        "to",
        "hey",
        "annie",
        "bitte",
        "kannst",
        "könntest",
        "du",
    ];
    const TRANSLATES: [&str; 3] = ["translate", "übersetze", "übersetz"];
    const WRITES: [&str; 9] =
        ["write", "tell", "compose", "invent", "schreibe", "schreib", "erzähle", "erzähl", "erfinde"];
    const PROSE: [&str; 17] = [
        "story",
        "tale",
        "poem",
        "song",
        "lyrics",
        "essay",
        "speech",
        "joke",
        "fable",
        "monologue",
        "dialogue",
        "geschichte",
        "gedicht",
        "märchen",
        "lied",
        "witz",
        "aufsatz",
    ];
    /// Where something is kept.
    const KEPT: [&str; 16] = [
        "note",
        "notes",
        "list",
        "lists",
        "task",
        "tasks",
        "todo",
        "todos",
        "reminder",
        "reminders",
        "memory",
        "notiz",
        "notizen",
        "liste",
        "aufgabe",
        "aufgaben",
    ];
    /// Words from the verb to what is to be written: "write me a very short and sad story".
    const WORDS_MAX: usize = 8;
    let lower = message.to_lowercase();
    let mut said = words(&lower).skip_while(|word| BEFORE.contains(&word.as_str()));
    let Some(verb) = said.next() else { return false };
    let is_prose = TRANSLATES.contains(&verb.as_str())
        || WRITES.contains(&verb.as_str()) && said.take(WORDS_MAX).any(|word| PROSE.contains(&word.as_str()));
    // "Tell me a joke and add milk", "write a note with the lyrics": what changes something is no prose.
    // A text behind a colon or in quotes is what is translated.
    let behind = lower.split_once(&verb).map_or("", |(_, behind)| behind).split([':', '"']).next().unwrap_or_default();
    let keeps = words(behind).any(|word| KEPT.contains(&word.as_str()));
    is_prose && !keeps && wishes(behind) == 0
}
