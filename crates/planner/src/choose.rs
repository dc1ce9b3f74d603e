//! Chooses the skill for a clause: one that the clause names, one with a matching phrase, or the one whose name and
//! description are most similar.

use std::{ops::Range, sync::LazyLock};

use annie_core::calendar::NUMBERS;

use super::{
    catalog::{Catalog, Skill},
    pattern::{Fit, Pattern, number},
    rules::{RULES, Shape},
    text::{Text, Word},
};

/// How a skill was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    /// The clause begins with the skill's name; flags may follow.
    Named,
    /// A phrase of a bundled skill.
    Phrase { shape: Shape, fit: Fit },
    /// By similarity; `rest` is the first word after verb and noun.
    Likeness { rest: usize },
}

/// A chosen skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub skill: String,
    /// The first word of the clause after politeness.
    pub start: usize,
    pub how: How,
}

/// Polite words before a request.
static POLITE: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    [
        "would you mind",
        "hey|hi|hello|ok|okay|yo|dear annie|assistant?",
        "annie",
        "please|kindly|just|now|also|and|then|so|well|um|umm|uh|er|erm|hmm|plus|finally|lastly|next|first|afterwards|but",
        "after that|this",
        "can|could|would|will|might you please|kindly|just|also?",
        "i want|need you to",
        "i would like|love|appreciate you|if to|you? could?",
        "go ahead and",
        "let us",
        "be so kind as|and to?",
        "do me a favor|favour and?",
        "yes|yeah|sure|right|alright|thanks|great|good|perfect",
    ]
    .into_iter()
    .map(Pattern::new)
    .collect()
});

/// Words before a question.
static ASKING: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    [
        "tell|telling|show|showing|give|giving|remind|inform me",
        "let me know",
        "do you know",
        "i want|need|wish to know|see|hear",
        "i would like|love to know|see|hear",
        "i am wondering|curious",
        "check|see|find|look out?",
        "any idea",
    ]
    .into_iter()
    .map(Pattern::new)
    .collect()
});

/// Phrases that wrap a request: `I'd like to add a task`.
static WRAPPING: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    [
        "i want|need|have to",
        "i would like|love to",
        "help me to?",
        "let me",
        "is it possible to",
        "you should|must|can",
        "we should",
    ]
    .into_iter()
    .map(Pattern::new)
    .collect()
});

const QUESTION_WORDS: [&str; 12] =
    ["what", "which", "when", "where", "who", "how", "whether", "if", "why", "whose", "everything", "anything"];

/// How many polite phrases at most are skipped.
const LEADS_MAX: usize = 8;

/// The first word that is not politeness.
pub(super) fn lead(words: &[Word], range: &Range<usize>) -> usize {
    let mut at = range.start;
    for _ in 0..LEADS_MAX {
        let next = POLITE.iter().find_map(|p| p.fit(&words[..range.end], at).map(|fit| fit.end));
        match next {
            Some(next) if next > at && next < range.end => at = next,
            _ => break,
        }
    }
    at
}

/// Whether a text consists only of politeness.
pub(super) fn is_only_polite(source: &str) -> bool {
    let words = Text::new(source).words;
    let mut at = 0;
    for _ in 0..LEADS_MAX {
        match POLITE.iter().find_map(|p| p.fit(&words, at)) {
            Some(fit) if fit.end > at => at = fit.end,
            _ => break,
        }
    }
    at == words.len()
}

/// Whether the word at this position is a question word.
pub(super) fn asks(words: &[Word], at: usize) -> bool {
    words.get(at).is_some_and(|w| !w.quoted && QUESTION_WORDS.contains(&w.lower.as_str()))
}

/// Positions where the request itself may begin, most specific first.
fn starts(words: &[Word], range: &Range<usize>) -> Vec<usize> {
    let plain = lead(words, range);
    let words = &words[..range.end];
    let asked = ASKING.iter().find_map(|p| p.fit(words, plain)).map(|f| f.end).filter(|at| asks(words, *at));
    let wrapped = WRAPPING.iter().find_map(|p| p.fit(words, plain)).map(|f| f.end).filter(|at| *at < range.end);
    let wrapped = wrapped.map(|at| lead(words, &(at..range.end)));
    let mut starts: Vec<usize> = [asked, wrapped].into_iter().flatten().collect();
    starts.push(plain);
    starts
}

/// The skill for these words. The payload after a colon or on further lines is ignored.
pub(super) fn choose(text: &Text<'_>, range: &Range<usize>, catalog: &Catalog) -> Option<Choice> {
    let payload = text.payload_at();
    let range = &(range.start..if payload > range.start { range.end.min(payload) } else { range.end });
    let words = &text.words[..range.end];
    let plain = lead(words, range);
    if let Some(named) = words.get(plain).and_then(|w| catalog.get(&w.lower)).filter(|s| s.name.contains('.')) {
        return Some(Choice { skill: named.name.clone(), start: plain, how: How::Named });
    }
    if let Some(choice) = confirmation(text, range, catalog).or_else(|| instructions(words, range, catalog)) {
        return Some(choice);
    }
    // `note: …` is a note, whatever the payload is.
    if payload == plain + 1 && words.get(plain).is_some_and(|w| matches!(w.lower.as_str(), "note" | "memo" | "notes")) {
        let fit = Fit { end: payload, gaps: Vec::new() };
        let how = How::Phrase { shape: Shape::Jot, fit };
        return catalog.may_have("notes.create").then(|| Choice {
            skill: "notes.create".to_owned(),
            start: plain,
            how,
        });
    }
    let phrase = by_phrase(words, range, catalog);
    // These verbs alone are ambiguous, so a skill that a user added for them takes precedence.
    let vague = words.get(plain).is_some_and(|w| ["schedule", "plan", "book"].contains(&w.lower.as_str()));
    match phrase {
        Some(phrase) if !vague => Some(phrase),
        phrase => by_likeness(words, plain, range, catalog)
            // `schedule` names the domain of the skill that repeats requests, but this one says when by words of its own.
            .filter(|alike| alike.skill != super::recur::REPEATS)
            .filter(|alike| phrase.as_ref().is_none_or(|p| p.skill != alike.skill))
            .or(phrase),
    }
}

/// Begins a mission that looks a task up and asks whether to delete it.
pub(super) const ASK_FIRST: &str = "ask whether to ";

/// `ask whether to delete the milk task`: the skill that looks the task up.
fn confirmation(text: &Text<'_>, range: &Range<usize>, catalog: &Catalog) -> Option<Choice> {
    let words = &text.words[..range.end];
    let asks = ASK_FIRST
        .split_whitespace()
        .enumerate()
        .all(|(n, ask)| words.get(range.start + n).is_some_and(|w| !w.quoted && w.lower == ask));
    let inner = range.start + ASK_FIRST.split_whitespace().count();
    // An agent that only asks may lack the skill that deletes.
    let (start, fit) =
        starts(words, &(inner.min(range.end)..range.end)).into_iter().filter(|_| asks).find_map(|start| {
            let rule = RULES.iter().find(|rule| rule.skill == "tasks.delete" && rule.fit(words, start).is_some())?;
            Some((start, rule.fit(words, start)?))
        })?;
    let spelled = |at: usize| {
        let noun = ["task", "tasks", "todo", "number", "reminder"].contains(&words[at - 1].lower.as_str());
        noun && NUMBERS.contains(&words[at].lower.as_str())
    };
    let has_number = (start..words.len())
        .any(|at| !words[at].quoted && (number(&words[at].lower).is_some() || (at > start && spelled(at))));
    let skill = if has_number { "tasks.get" } else { "tasks.search" };
    let how = How::Phrase { shape: Shape::AskDelete, fit };
    catalog.may_have(skill).then(|| Choice { skill: skill.to_owned(), start, how })
}

/// `run my weekly review`: a prompt skill by its name, in any spelling, with only leading words besides it.
fn instructions(words: &[Word], range: &Range<usize>, catalog: &Catalog) -> Option<Choice> {
    const LEADS: [&str; 16] = [
        "run", "do", "start", "begin", "use", "the", "my", "a", "our", "skill", "prompt", "please", "now", "execute",
        "let", "us",
    ];
    let start = lead(words, range);
    let rest: Vec<&str> = words[start..range.end].iter().filter(|w| !w.quoted).map(|w| w.lower.as_str()).collect();
    let first = rest.iter().position(|w| !LEADS.contains(w))?;
    let spoken_name = rest[first..].iter().copied().filter(|w| !LEADS.contains(w)).collect::<Vec<_>>().join("-");
    let skill = catalog.iter().find(|s| !s.name.contains('.') && s.name.replace('_', "-") == spoken_name)?;
    Some(Choice { skill: skill.name.clone(), start, how: How::Named })
}

/// Whether a skill is read-only, judged by its verb.
pub(super) fn reads(skill: &str) -> bool {
    const READING: [&str; 16] = [
        "search", "get", "read", "list", "help", "time", "find", "show", "view", "fetch", "check", "query", "lookup",
        "today", "status", "forecast",
    ];
    skill.rsplit_once('.').is_none_or(|(_, verb)| READING.contains(&verb))
}

/// The skill with a phrase at the beginning of these words.
pub(super) fn by_phrase(words: &[Word], range: &Range<usize>, catalog: &Catalog) -> Option<Choice> {
    let words = &words[..range.end];
    starts(words, range).into_iter().find_map(|start| {
        RULES.iter().filter(|r| catalog.may_have(r.skill)).find_map(|rule| {
            let fit = rule.fit(words, start)?;
            Some(Choice { skill: rule.skill.to_owned(), start, how: How::Phrase { shape: rule.shape, fit } })
        })
    })
}

/// Verbs that people use for the verbs of skill names.
const VERBS: &[(&str, &[&str])] = &[
    ("send", &["send", "write", "mail", "email", "message", "text"]),
    ("list", &["list", "show", "get", "give", "display", "see", "what", "which"]),
    ("search", &["search", "find", "look", "query", "google"]),
    ("get", &["get", "fetch", "show", "read", "what", "check"]),
    ("read", &["read", "open", "show", "view"]),
    ("create", &["create", "add", "make", "new", "schedule", "book", "write", "draft"]),
    ("add", &["add", "create", "put", "insert"]),
    ("update", &["update", "change", "edit", "modify", "set"]),
    ("edit", &["edit", "change", "update", "modify"]),
    ("delete", &["delete", "remove", "cancel", "erase"]),
    ("run", &["run", "start", "execute", "launch", "do"]),
    ("convert", &["convert", "turn", "change", "translate"]),
];

/// The lowest accepted score: verb and noun, or a noun that the description repeats.
const SCORE_MIN: u32 = 4;
/// How many words of a clause are compared.
const LOOK_WORDS_MAX: usize = 24;

/// The similarity of a skill to a clause.
#[derive(Debug, Clone, Copy, Default)]
struct Likeness {
    score: u32,
    /// How many leading words name the skill.
    taken: usize,
}

/// The skill that is most similar to these words.
pub(super) fn by_likeness(words: &[Word], start: usize, range: &Range<usize>, catalog: &Catalog) -> Option<Choice> {
    let seen = &words[start..range.end.min(start + LOOK_WORDS_MAX)];
    let (like, skill) = catalog
        .iter()
        // The steps of a prompt skill are written for a model, and the phrases of the bundled skills are in the rules.
        .filter(|skill| skill.name.contains('.') && !RULES.iter().any(|rule| rule.skill == skill.name))
        .map(|skill| (likeness(skill, seen), skill))
        .filter(|(like, _)| like.score >= SCORE_MIN)
        .max_by(|a, b| a.0.score.cmp(&b.0.score).then_with(|| b.1.name.cmp(&a.1.name)))?;
    Some(Choice { skill: skill.name.clone(), start, how: How::Likeness { rest: start + like.taken } })
}

/// Whether the clause contains both verb and noun of the chosen skill: enough to begin a request in the middle of a
/// sentence.
pub(super) fn is_plain(choice: &Choice, words: &[Word]) -> bool {
    matches!(choice.how, How::Likeness { rest } if rest > choice.start + 1)
        && words.get(choice.start).is_some_and(|w| VERBS.iter().any(|(_, verbs)| verbs.contains(&w.lower.as_str())))
}

fn reads_by(verb: &str) -> bool {
    matches!(verb, "list" | "search" | "get" | "read")
}

fn likeness(skill: &Skill, seen: &[Word]) -> Likeness {
    let Some(first) = seen.first().filter(|w| !w.quoted) else { return Likeness::default() };
    let verb = skill.verb();
    let says = |word: &str, part: &str| {
        word == part || word.strip_suffix('s') == Some(part) || part.strip_suffix('s') == Some(word)
    };
    let is_verb =
        says(&first.lower, verb) || VERBS.iter().any(|(v, words)| *v == verb && words.contains(&first.lower.as_str()));
    let parts = skill.name.split(['.', '-', '_']).filter(|p| p.len() > 2 && (*p != verb || !skill.name.contains('.')));
    let nouns: Vec<usize> =
        parts.filter_map(|part| seen.iter().position(|w| !w.quoted && says(&w.lower, part))).collect();
    // A noun in the middle of a sentence is weak evidence, and misleading with another verb: a request to delete a memory
    // must not match the skill that saves one.
    let looks = asks(seen, 0) || VERBS.iter().any(|(v, w)| reads_by(v) && w.contains(&first.lower.as_str()));
    if nouns.is_empty() || !(is_verb || nouns.contains(&0) || (looks && reads(&skill.name))) {
        return Likeness::default();
    }
    let mut like = Likeness { score: 3 * u32::try_from(nouns.len()).unwrap_or(0), taken: usize::from(is_verb) };
    like.score += 3 * u32::from(is_verb);
    // `email Bob`: the noun serves as the verb and means sending.
    like.score += u32::from(nouns.contains(&0) && matches!(verb, "send" | "create" | "run" | "post"));
    like.taken = nouns.iter().filter(|at| **at < 5).map(|at| at + 1).fold(like.taken, usize::max);
    let about = skill.about.to_lowercase();
    let in_description = |w: &&Word| {
        !w.quoted && w.lower.len() > 3 && about.split(|c: char| !c.is_alphanumeric()).any(|a| says(a, &w.lower))
    };
    like.score +=
        u32::try_from(seen.iter().skip(usize::from(is_verb)).filter(in_description).take(3).count()).unwrap_or(0);
    like
}
