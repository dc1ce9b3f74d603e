//! The kind of effect that a skill has, by its name, and the kind that a sentence claims. A claim is checked against the
//! receipts of its kind.

use super::QUOTATIONS;
use crate::{
    classify::{spoken, user_requests},
    message::Message,
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

/// For each kind: verbs in the names of skills, and the words with which a text claims such an effect.
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

/// The words of a text in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

impl Kind {
    /// The kind of effect of a skill, if its name contains a known verb.
    pub(super) fn of(skill: &str) -> Option<Self> {
        let name = skill.rsplit('.').next().unwrap_or_default();
        let is_verb = |word: &str| WORDS.iter().find(|(_, verbs, _)| verbs.contains(&word)).map(|(kind, ..)| *kind);
        words(name).find_map(|word| is_verb(&word))
    }

    /// The kinds of effect that a claim contains.
    pub(super) fn claimed_in(claim: &str) -> Vec<Self> {
        let words: Vec<String> = words(claim).collect();
        let is_contained = |participles: &[&str]| words.iter().any(|word| participles.contains(&word.as_str()));
        WORDS.iter().filter(|(_, _, participles)| is_contained(participles)).map(|(kind, ..)| *kind).collect()
    }

    /// Whether an effect of this kind can support a claim of the other kind: editing a list may remove something from it. False
    /// only for kinds that are certainly different.
    pub(super) const fn backs(self, claimed: Self) -> bool {
        match self {
            Self::Changes | Self::Completes => !matches!(claimed, Self::Sends),
            Self::Creates => !matches!(claimed, Self::Sends | Self::Deletes),
            Self::Deletes => matches!(claimed, Self::Deletes | Self::Changes),
            Self::Sends => matches!(claimed, Self::Sends | Self::Creates | Self::Completes),
        }
    }

    /// The past participle for the user.
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

/// Whether a sentence in lower case names a skill, its domain, its verb or its effect.
pub(super) fn names(sentence: &str, skill: &str) -> bool {
    let kind = Kind::of(skill);
    let participles = WORDS.iter().find(|(other, ..)| Some(*other) == kind);
    let participles = participles.map(|(_, verbs, participles)| [*verbs, *participles].concat()).unwrap_or_default();
    let of_name: Vec<String> = words(skill).collect();
    // "E-mail" would be split into two words, and "mail" means the same.
    let sentence = sentence.replace("e-mail", "email").replace(" mail", " email");
    words(&sentence).any(|word| {
        let stem = word.trim_end_matches('s');
        participles.contains(&word.as_str()) || of_name.iter().any(|name| name.trim_end_matches('s') == stem)
    })
}

/// The effects of earlier turns of a conversation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Earlier<'a> {
    /// The receipts of their effects.
    pub receipts: &'a [Receipt],
    /// The user asks what was done.
    pub is_asked: bool,
    /// The user requests only a change now. An answer that mentions only earlier effects would not answer that.
    pub is_requested: bool,
    /// A sentence of the user's message requests a change.
    pub has_request: bool,
    /// The messages of this turn.
    pub messages: &'a [Message],
}

impl Earlier<'_> {
    /// Whether the claim of a sentence of this text may refer to an effect of an earlier turn: a receipt of that kind exists, and
    /// the user asked what was done, or the text names the thing of the receipt. A claim about another thing of the same kind
    /// does not count, because small models tend to repeat their earlier answers.
    pub(super) fn back(&self, sentence: &str, text: &str) -> bool {
        if self.receipts.is_empty() || self.is_requested {
            return false;
        }
        let kinds = Kind::claimed_in(sentence);
        let may_show = |receipt: &&Receipt| {
            let kind = Kind::of(&receipt.skill);
            kind.is_none_or(|kind| kinds.iter().all(|claimed| kind.backs(*claimed)))
        };
        let is_meant = |receipt: &&Receipt| self.is_asked || names_thing(receipt, sentence, text);
        self.receipts.iter().filter(may_show).any(|receipt| is_meant(&receipt)) && self.show_details(sentence, is_meant)
    }

    /// The same for a sentence that says how something is: "task #1 is deleted", or only "deleted", which names no thing. A
    /// request to delete what an earlier turn has deleted is answered by that.
    pub(super) fn back_state(&self, sentence: &str, text: &str, is_of_thing: bool) -> bool {
        let kinds = Kind::claimed_in(sentence);
        let mut of_kind = self.receipts.iter().filter(|r| Kind::of(&r.skill).is_some_and(|kind| kinds == [kind]));
        if self.is_requested {
            return kinds == [Kind::Deletes] && of_kind.any(|receipt| names_thing(receipt, sentence, text));
        }
        self.back(sentence, text) || !is_of_thing && of_kind.next().is_some()
    }

    /// Whether a claim says that something was created, deleted or sent, and neither the user nor a result of this turn says so.
    pub(super) fn is_unread(&self, claim: &str) -> bool {
        const CERTAIN: [&str; 9] =
            ["created", "deleted", "removed", "sent", "angelegt", "erstellt", "gelöscht", "entfernt", "gesendet"];
        let is_certain = words(claim).any(|word| CERTAIN.contains(&word.as_str()));
        let read = self.messages.iter().filter_map(|message| match message {
            Message::User { text, .. } | Message::Tool { text, .. } => Some(text),
            Message::Assistant { .. } | Message::Note { .. } => None,
        });
        let read: Vec<Kind> = read.flat_map(|text| Kind::claimed_in(text)).collect();
        is_certain && Kind::claimed_in(claim).iter().all(|kind| !read.contains(kind))
    }

    /// Whether each detail of a claim stands in a line of a receipt that is meant: a model that repeats an earlier answer often
    /// adds a due date, a priority or a status that nothing was given.
    fn show_details(&self, sentence: &str, is_meant: impl Fn(&&Receipt) -> bool) -> bool {
        const DETAILS: [(&str, &str); 5] =
            [("due", "due"), ("fällig", "due"), ("high", "high"), ("medium", "medium"), ("low", "low")];
        /// Words before a status that is claimed: "to status done", "marked as completed".
        const BEFORE_STATUS: [&str; 3] = ["status", "as", "to"];
        const DONE: [&str; 3] = ["done", "completed", "complete"];
        let shown: Vec<String> = self.receipts.iter().filter(is_meant).flat_map(|r| words(&r.line)).collect();
        let is_shown = |wanted: &str| shown.iter().any(|shown| shown == wanted);
        let claimed: Vec<String> = words(sentence).collect();
        let is_done_claimed = claimed
            .windows(2)
            .any(|pair| BEFORE_STATUS.contains(&pair[0].as_str()) && DONE.contains(&pair[1].as_str()));
        (!is_done_claimed || DONE.iter().any(|done| is_shown(done)))
            && claimed.iter().all(|word| {
                let detail = DETAILS.iter().find(|(claimed, _)| claimed == word);
                detail.is_none_or(|(_, wanted)| is_shown(wanted))
            })
    }
}

/// Whether a text names the thing of a receipt: by its number, or by a quoted part of the receipt's line.
fn names_thing(receipt: &Receipt, sentence: &str, text: &str) -> bool {
    const TITLE_CHARS_MIN: usize = 3;
    let line = receipt.line.to_lowercase();
    let is_title = |quoted: &str| {
        let title = quoted.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        title.chars().count() >= TITLE_CHARS_MIN && line.contains(&title)
    };
    let is_in_line = |number: &u64| numbers(&line).any(|n| n.is_named && n.value == *number);
    // Other numbers may belong to a date or a time.
    numbers_of_things(sentence).iter().any(|number| receipt.ids.contains(number) || is_in_line(number))
        && !names_other_domain(sentence, &receipt.skill)
        || QUOTATIONS.as_ref().is_some_and(|quoted| quoted.find_iter(text).any(|found| is_title(found.as_str())))
}

/// Whether a sentence names things, but none of the skill's domain: note #1 is not task #1.
fn names_other_domain(sentence: &str, skill: &str) -> bool {
    const THINGS: [&str; 6] = ["task", "note", "memory", "event", "contact", "reminder"];
    let stem = |word: &str| word.trim_end_matches('s').to_owned();
    let named: Vec<String> = words(sentence).map(|word| stem(&word)).filter(|w| THINGS.contains(&w.as_str())).collect();
    let domain = stem(skill.split('.').next().unwrap_or_default());
    THINGS.contains(&domain.as_str()) && !named.is_empty() && !named.contains(&domain)
}

/// Whether a message is a single question about what was done or how something is, and requests no change.
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

/// Whether a message is one sentence that requests a change. A greeting and thanks do not count. A message of several sentences
/// may also be about what was done before, and then a true answer about that must not be taken for an untrue one.
pub(crate) fn requests_change(message: &str) -> bool {
    let sentences: Vec<&str> = sentences(message).into_iter().filter(|sentence| !is_courtesy(sentence)).collect();
    matches!(sentences[..], [sentence] if is_request(sentence))
}

/// Whether a sentence of a message requests a change.
pub(crate) fn has_request(message: &str) -> bool {
    sentences(message).into_iter().any(is_request)
}

/// Whether a sentence requests a change, in the imperative, as a polite question, or by the statement that something is done.
fn is_request(sentence: &str) -> bool {
    let says_done = words(sentence).collect::<Vec<_>>().windows(2).any(|pair| {
        matches!(pair[0].as_str(), "is" | "are" | "ist" | "sind")
            && matches!(pair[1].as_str(), "done" | "finished" | "erledigt")
    });
    !spoken(sentence).reads_only() && !asks_what_was(sentence) && (user_requests(sentence) > 0 || says_done)
}

/// The sentences of a message. A period within a number or behind a title ends none.
fn sentences(message: &str) -> Vec<&str> {
    const TITLES: [&str; 8] = ["dr", "mr", "mrs", "ms", "prof", "st", "no", "nr"];
    let is_end = |at: usize, c: char| {
        let before = message[..at].rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
        let ends_word = message[at + c.len_utf8()..].chars().next().is_none_or(char::is_whitespace);
        c == '\n' || matches!(c, '!' | '?') || c == '.' && ends_word && !TITLES.contains(&before.as_str())
    };
    let mut found = Vec::new();
    let mut from = 0;
    for (at, c) in message.char_indices().filter(|(_, c)| matches!(c, '.' | '!' | '?' | '\n')) {
        if is_end(at, c) {
            found.push(&message[from..=at]);
            from = at + 1;
        }
    }
    found.push(&message[from..]);
    found.retain(|sentence| sentence.contains(char::is_alphanumeric));
    found
}

/// Whether a message only says thanks. Each of its words must be one of thanks or praise, because every other word may belong to
/// a request: "thanks, that one".
pub(crate) fn only_thanks(message: &str) -> bool {
    const THANKS: &str = "thanks thank thx danke dank dankeschön";
    const BESIDE: &str = "you annie many very so much really this that it is was were for your the all everything help \
                          helpful kind useful great good nice perfect super lovely wonderful awesome excellent \
                          vielen besten herzlichen lieben dir sehr wirklich das die es war ist für deine alles hilfe \
                          hilfreich toll prima gut perfekt klasse nett lieb schön";
    let is_in = |list: &str, word: &String| list.split_whitespace().any(|listed| listed == word);
    !message.contains('?')
        && words(message).any(|word| is_in(THANKS, &word))
        && words(message).all(|word| is_in(THANKS, &word) || is_in(BESIDE, &word))
}

/// Whether a sentence only greets or thanks.
fn is_courtesy(sentence: &str) -> bool {
    const COURTESY: &str = "hi hello hey hallo annie there good guten morning morgen afternoon evening abend tag day thanks \
                            thank you danke vielen dank many so much very please bitte schön great super";
    words(sentence).all(|word| COURTESY.split_whitespace().any(|courtesy| courtesy == word))
}

/// Whether a message only requests a translation or a story, in whose answer the "I" is not the model.
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
    /// Words for places where Annie stores something.
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
    /// The most words between the verb and the kind of text: "write me a very short and sad story".
    const WORDS_MAX: usize = 8;
    let lower = message.to_lowercase();
    let mut request_words = words(&lower).skip_while(|word| BEFORE.contains(&word.as_str()));
    let Some(verb) = request_words.next() else { return false };
    let is_prose = TRANSLATES.contains(&verb.as_str())
        || WRITES.contains(&verb.as_str()) && request_words.take(WORDS_MAX).any(|word| PROSE.contains(&word.as_str()));
    // "Tell me a joke and add milk", "write a note with the lyrics": a request for a change is not only prose.
    // Text after a colon or in quotation marks is the text to translate.
    let behind = lower.split_once(&verb).map_or("", |(_, behind)| behind).split([':', '"']).next().unwrap_or_default();
    let keeps = words(behind).any(|word| KEPT.contains(&word.as_str()));
    is_prose && !keeps && user_requests(behind) == 0
}
