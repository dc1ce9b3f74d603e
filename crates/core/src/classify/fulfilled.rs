//! Whether calls of skills do all that a message asks for. Every word of the message must be explained by the calls: it is in an
//! argument, or in the name or the description of the skill, or it is a word without a meaning of its own. A word that is not
//! explained may ask for more, so a wrong "no" costs one round of a model, and a wrong "yes" would cut a request off.

use serde_json::Value;

use crate::{
    jobs::words::words,
    skill::{ArgKind, Effect, SkillSpec},
    words::all_stems,
};

use super::spoken::{Spoken, spoken, user_requests};

/// The longest message that is examined, in bytes. A longer one is no simple request.
const MESSAGE_BYTES_MAX: usize = 200;

/// The first words of a request for a list or for one fact.
const ASKS: [&str; 6] = ["what", "list", "show", "tell", "give", "display"];
/// Words before a request.
const POLITE: [&str; 18] = [
    "please",
    "annie",
    "hi",
    "hello",
    "hey",
    "ok",
    "okay",
    "good",
    "morning",
    "evening",
    "afternoon",
    "can",
    "could",
    "would",
    "will",
    "you",
    "thanks",
    "thank",
];
/// Words without a meaning of their own.
const EMPTY: [&str; 55] = [
    "a",
    "an",
    "the",
    "my",
    "me",
    "i",
    "mine",
    "it",
    "is",
    "are",
    "am",
    "be",
    "do",
    "does",
    "have",
    "has",
    "got",
    "to",
    "of",
    "on",
    "in",
    "at",
    "for",
    "by",
    "with",
    "from",
    "please",
    "annie",
    "can",
    "could",
    "would",
    "will",
    "you",
    "your",
    "now",
    "right",
    "currently",
    "just",
    "there",
    "that",
    "what",
    "list",
    "show",
    "tell",
    "give",
    "display",
    "new",
    "up",
    "about",
    "us",
    "our",
    "currently",
    "thanks",
    "thank",
    "into",
];
/// Verbs of requests that a skill which makes something fulfils.
const MAKE: [&str; 14] = [
    "add", "create", "make", "put", "note", "remember", "save", "store", "write", "set", "need", "want", "schedule",
    "down",
];
/// The last parts of the names of such skills.
const MAKERS: [&str; 5] = ["create", "add", "save", "remind", "set"];
/// Words that a skill fulfils only if its name has them: a task without a reminder does not fulfil "remind me".
const NAMED: [&str; 6] = ["remind", "alarm", "timer", "alert", "notifi", "snooz"];
/// Words that join a second request, or limit the first one. Within the text of an argument they mean nothing.
const MORE: [&str; 33] = [
    "and",
    "or",
    "but",
    "then",
    "also",
    "plus",
    "too",
    "both",
    "each",
    "every",
    "everything",
    "except",
    "unless",
    "if",
    "when",
    "because",
    "so",
    "instead",
    "after",
    "before",
    "how",
    "why",
    "which",
    "who",
    "many",
    "much",
    "not",
    "without",
    "no",
    "again",
    "them",
    "these",
    "those",
];
/// Words for which a change may need several calls.
const SEVERAL: [&str; 8] = ["all", "tasks", "todos", "dos", "reminders", "notes", "memories", "ones"];
/// Words of dates, which a date in an argument explains.
const DATES: [&str; 42] = [
    "today",
    "tonight",
    "tomorrow",
    "yesterday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "next",
    "this",
    "week",
    "weeks",
    "month",
    "months",
    "day",
    "days",
    "hour",
    "hours",
    "minute",
    "minutes",
    "am",
    "pm",
    "noon",
    "midnight",
    "morning",
    "afternoon",
    "evening",
];

/// A call that may fulfil a request.
#[derive(Debug, Clone, Copy)]
pub struct Fulfilment<'a> {
    /// The skill.
    pub skill: &'a SkillSpec,
    /// The validated arguments.
    pub arguments: &'a Value,
}

/// Whether a message is one simple request, in English, that these calls fulfil completely. Calls that change something must be
/// alone.
#[must_use]
pub fn fulfils(message: &str, calls: &[Fulfilment<'_>]) -> bool {
    let changes = calls.iter().any(|call| call.skill.effect != Effect::Read);
    if message.len() > MESSAGE_BYTES_MAX || message.trim().lines().count() > 1 || (changes && calls.len() != 1) {
        return false;
    }
    let Some(sentence) = only_sentence(message) else { return false };
    let said = words(sentence);
    let wants = if changes {
        spoken(message) == Spoken::Action && user_requests(message) == 1
    } else {
        let first = said.iter().find(|word| !POLITE.contains(&word.as_str()));
        spoken(message) == Spoken::Simple && first.is_some_and(|first| ASKS.contains(&first.as_str()))
    };
    wants && (changes || calls.iter().all(|call| is_said(*call, &said))) && are_explained(&said, calls, changes)
}

/// Whether the message says every argument of a call that reads: one that it does not say would make the answer a part of what was asked.
/// A date in figures was compared with the days that the user named before.
fn is_said(Fulfilment { skill, arguments }: Fulfilment<'_>, said: &[String]) -> bool {
    let Some(given) = arguments.as_object() else { return false };
    given.iter().all(|(name, value)| {
        let arg = skill.args.iter().find(|arg| arg.name == *name);
        let is_default = arg.is_some_and(|arg| arg.default == *value);
        let is_figures = |text: &String| text.starts_with(|c: char| c.is_ascii_digit());
        let is_date = arg.is_some_and(|arg| arg.kind == ArgKind::Date);
        let has = |text: String| is_date && is_figures(&text) || words(&text).iter().all(|word| said.contains(word));
        is_default || values_of(value).into_iter().all(has)
    })
}

/// The one sentence of a message that is more than a courtesy.
fn only_sentence(message: &str) -> Option<&str> {
    let is_end = |at: usize, c: char| {
        matches!(c, '!' | '?' | ';') || c == '.' && message[at + 1..].chars().next().is_none_or(char::is_whitespace)
    };
    let mut sentences = Vec::new();
    let mut from = 0;
    for (at, c) in message.char_indices().filter(|(_, c)| matches!(c, '.' | '!' | '?' | ';')) {
        if is_end(at, c) {
            sentences.push(&message[from..at]);
            from = at + c.len_utf8();
        }
    }
    sentences.push(&message[from..]);
    let is_courtesy = |sentence: &&str| words(sentence).iter().all(|word| POLITE.contains(&word.as_str()));
    let mut rest = sentences.into_iter().filter(|sentence| !is_courtesy(sentence));
    let first = rest.next()?;
    rest.next().is_none().then_some(first)
}

fn are_explained(said: &[String], calls: &[Fulfilment<'_>], changes: bool) -> bool {
    let (dates, values) = values_by_kind(calls);
    // A date in a title or a description sets no date. A word such as "may" or "this" may be meant otherwise, which costs one round.
    let lacks_date = |call: &Fulfilment<'_>| takes_date(call.skill) && !has_date(*call);
    if changes && calls.iter().all(lacks_date) && said.iter().any(|word| DATES.contains(&word.as_str())) {
        return false;
    }
    let mut at = 0;
    while at < said.len() {
        let covered = longest_run(&said[at..], &values);
        if covered > 0 {
            at += covered;
            continue;
        }
        let word = said[at].as_str();
        if MORE.contains(&word) || (changes && SEVERAL.contains(&word)) {
            return false;
        }
        let beside = [at.checked_sub(1).and_then(|before| said.get(before)), said.get(at + 1)];
        let is_beside_date = beside.into_iter().flatten().any(|word| {
            let word = word.as_str();
            DATES.contains(&word) || ["at", "by", "until", "on"].contains(&word)
        });
        if !calls.iter().any(|call| explains(*call, word, (&dates, is_beside_date))) {
            return false;
        }
        at += 1;
    }
    true
}

/// The words of all dates, and those of all other values. A number of a date explains no quantity.
fn values_by_kind(calls: &[Fulfilment<'_>]) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let (mut dates, mut others) = (Vec::new(), Vec::new());
    for Fulfilment { skill, arguments } in calls {
        for (name, value) in arguments.as_object().into_iter().flatten() {
            let is_date = skill.args.iter().any(|arg| arg.name == *name && arg.kind == ArgKind::Date);
            let values = values_of(value).into_iter().map(|text| words(&text));
            if is_date { dates.extend(values) } else { others.extend(values) }
        }
    }
    (dates, others)
}

/// How many of the first words are the text of an argument. A word that joins requests does not end such a text.
fn longest_run(said: &[String], values: &[Vec<String>]) -> usize {
    let mut longest = 0;
    for value in values {
        for from in 0..value.len() {
            let run = said.iter().zip(&value[from..]).take_while(|(said, value)| said == value).count();
            let is_more = |word: &String| MORE.contains(&word.as_str());
            let run = run - said[..run].iter().rev().take_while(|word| is_more(word)).count();
            if run > longest && !is_more(&said[0]) {
                longest = run;
            }
        }
    }
    longest
}

fn explains(
    Fulfilment { skill, arguments }: Fulfilment<'_>,
    word: &str,
    (dates, is_beside_date): (&[Vec<String>], bool),
) -> bool {
    let stem = all_stems(word).next().unwrap_or_default();
    let in_name = all_stems(&skill.name).any(|named| named == stem);
    if NAMED.contains(&stem.as_str()) {
        return in_name;
    }
    // "overdue" wants `--status overdue`, whatever the description says.
    if let Some(arg) = skill.args.iter().find(|arg| is_choice(&arg.kind, word) && word != "todo") {
        return arg.default.as_str() == Some(word);
    }
    let date_fits = has_date(Fulfilment { skill, arguments })
        && (DATES.contains(&word) || is_beside_date && number_is_in(word, dates));
    let verb = skill.name.rsplit('.').next().unwrap_or_default();
    let makes = skill.effect != Effect::Read && MAKERS.contains(&verb) && MAKE.contains(&word);
    date_fits || makes || EMPTY.contains(&word) || in_name || all_stems(&skill.description).any(|named| named == stem)
}

fn takes_date(skill: &SkillSpec) -> bool {
    skill.args.iter().any(|arg| arg.kind == ArgKind::Date)
}

fn has_date(Fulfilment { skill, arguments }: Fulfilment<'_>) -> bool {
    skill.args.iter().any(|arg| arg.kind == ArgKind::Date && arguments[arg.name.as_str()].is_string())
}

fn is_choice(kind: &ArgKind, word: &str) -> bool {
    matches!(kind, ArgKind::Choice(choices) if choices.iter().any(|choice| choice == word))
}

/// Whether the number with which a word begins, such as the hour of "9am", is in an argument. An hour after noon may be there as
/// one of 24.
fn number_is_in(word: &str, values: &[Vec<String>]) -> bool {
    let number = |word: &str| {
        let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        word[..digits].parse::<u32>().ok()
    };
    let Some(wanted) = number(word) else { return false };
    let mut numbers = values.iter().flatten().filter_map(|value| number(value));
    numbers.any(|found| found == wanted || !word.ends_with("am") && Some(found) == wanted.checked_add(12))
}

/// The texts of all values.
fn values_of(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.replace('_', " ")],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(values_of).collect(),
        Value::Object(map) => map.values().flat_map(values_of).collect(),
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
