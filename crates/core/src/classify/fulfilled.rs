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
    wants && are_explained(&said, calls, changes)
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
    let values: Vec<Vec<String>> =
        calls.iter().flat_map(|call| values_of(call.arguments)).map(|text| words(&text)).collect();
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
        if !calls.iter().any(|call| explains(*call, word, &values)) {
            return false;
        }
        at += 1;
    }
    true
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

fn explains(Fulfilment { skill, arguments }: Fulfilment<'_>, word: &str, values: &[Vec<String>]) -> bool {
    let stem = all_stems(word).next().unwrap_or_default();
    let in_name = all_stems(&skill.name).any(|named| named == stem);
    if NAMED.contains(&stem.as_str()) {
        return in_name;
    }
    // "overdue" wants `--status overdue`, whatever the description says.
    if let Some(arg) = skill.args.iter().find(|arg| is_choice(&arg.kind, word) && word != "todo") {
        return arg.default.as_str() == Some(word);
    }
    let has_date = skill.args.iter().any(|arg| arg.kind == ArgKind::Date && arguments[arg.name.as_str()].is_string());
    let date_fits = has_date && (DATES.contains(&word) || number_is_in(word, values));
    let verb = skill.name.rsplit('.').next().unwrap_or_default();
    let makes = skill.effect != Effect::Read && MAKERS.contains(&verb) && MAKE.contains(&word);
    date_fits || makes || EMPTY.contains(&word) || in_name || all_stems(&skill.description).any(|named| named == stem)
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
    numbers.any(|found| found == wanted || found == wanted + 12)
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::skill::{ArgSpec, SkillFormat};

    fn arg(name: &str, kind: ArgKind, default: Value) -> ArgSpec {
        let help = String::new();
        ArgSpec { name: name.to_owned(), kind, required: false, help, minimum: None, maximum: None, default }
    }

    fn skill(name: &str, effect: Effect, description: &str) -> SkillSpec {
        let choices = ["open", "overdue", "done"].map(str::to_owned).to_vec();
        SkillSpec {
            name: name.to_owned(),
            domain: name.split('.').next().unwrap_or_default().to_owned(),
            description: description.to_owned(),
            body: String::new(),
            args: vec![
                arg("title", ArgKind::Text, Value::Null),
                arg("id", ArgKind::Id, Value::Null),
                arg("due", ArgKind::Date, Value::Null),
                arg("status", ArgKind::Choice(choices), json!("open")),
            ],
            effect,
            external: false,
            timeout_ms: 1,
            alternatives: Vec::new(),
            fallback: std::collections::BTreeMap::new(),
            is_ready: true,
            format: SkillFormat::Command,
            source: "bundled".to_owned(),
        }
    }

    fn check(skill: &SkillSpec, wanted: bool, cases: &[(&str, Value)]) {
        for (message, arguments) in cases {
            let found = fulfils(message, &[Fulfilment { skill, arguments }]);
            assert_eq!(found, wanted, "{}: {message} {arguments}", skill.name);
        }
    }

    #[test]
    fn list_is_fulfilled_only_if_the_call_has_every_word_of_the_question() {
        let search = skill(
            "tasks.search",
            Effect::Read,
            "List or search the user's tasks by status or due date. Use it for \"what is due\", \"what is on my list\".",
        );
        let due = |due: &str| json!({"due": due});
        check(
            &search,
            true,
            &[
                ("What's on my list?", json!({})),
                ("List my tasks", json!({})),
                ("Hi Annie! Show me my open tasks, please.", json!({})),
                ("What is due today?", due("today")),
                ("what is due on friday", due("2026-11-27")),
                ("What is overdue?", json!({"status": "overdue"})),
                ("Show the tasks about milk", json!({"title": "milk"})),
            ],
        );
        check(
            &search,
            false,
            &[
                ("What is due today?", json!({})),
                ("What is overdue?", json!({})),
                ("How many tasks are due?", json!({})),
                ("Which of my tasks matters most?", json!({})),
                ("Is the report done?", json!({"title": "report"})),
                ("What is due today and tomorrow?", due("today")),
                ("What is on my list? Add milk to it.", json!({})),
                ("What is on Bob's list?", json!({})),
                ("Was ist heute fällig?", due("today")),
                ("List my tasks; summarise them.", json!({})),
                ("What is due?\nAnd what is not?", json!({})),
                ("", json!({})),
                ("Thanks!", json!({})),
            ],
        );
    }

    #[test]
    fn change_is_fulfilled_only_by_one_call_with_every_word_of_the_request() {
        let create = skill(
            "tasks.create",
            Effect::Idempotent,
            "Create a task (to-do) with due date. A due date with a time of day also reminds at this time.",
        );
        check(
            &create,
            true,
            &[
                ("Add milk to my list", json!({"title": "Milk"})),
                ("Please create a task: review PR 42", json!({"title": "Review PR 42"})),
                ("Add a task to buy milk and eggs tomorrow", json!({"title": "Buy milk and eggs", "due": "tomorrow"})),
                ("Add \"call Bob\" for friday at 3pm", json!({"title": "call Bob", "due": "2026-11-27 15:00"})),
            ],
        );
        check(
            &create,
            false,
            &[
                ("Remind me to buy milk", json!({"title": "buy milk"})),
                ("Add milk to my list tomorrow", json!({"title": "milk"})),
                ("Add milk and bread", json!({"title": "milk"})),
                ("Add milk to my list and tell me what is due", json!({"title": "milk"})),
                ("Add milk, then delete the bread", json!({"title": "milk"})),
                ("Add all of these: milk", json!({"title": "milk"})),
                ("Add a task for each guest", json!({"title": "guest"})),
                ("Do not add milk", json!({"title": "milk"})),
                ("Add milk unless it is there", json!({"title": "milk"})),
                ("What is on my list?", json!({"title": "list"})),
                ("Delete milk", json!({"title": "milk"})),
            ],
        );
        let update = skill("tasks.update", Effect::Idempotent, "Change a task: finish it, mark as finished.");
        check(&update, true, &[("Mark task 3 as done", json!({"id": 3, "status": "done"}))]);
        check(
            &update,
            false,
            &[
                ("Mark the milk task as done", json!({"id": 3, "status": "done"})),
                ("Mark task 3 as done", json!({"id": 4, "status": "done"})),
                ("Mark tasks 3 and 4 as done", json!({"id": 3, "status": "done"})),
            ],
        );
        let call = Fulfilment { skill: &create, arguments: &json!({"title": "milk"}) };
        assert!(!fulfils("Add milk to my list", &[call, call]), "a change is alone");
    }
}
