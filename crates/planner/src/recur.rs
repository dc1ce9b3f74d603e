//! Finds requests for something that is to happen again and again: `every weekday at 8 run my digest`, `create a task every
//! Monday: team sync`. The times stay words, which the skill reads by the same rules; what these rules do not understand is
//! refused here, so that no part of a request is dropped.

use std::ops::Range;

use annie_core::{calendar::WEEKDAYS, schedule::Recurrence};

use super::{
    catalog::Catalog,
    choose::{by_phrase, lead},
    pattern::number,
    text::{Mark, Text, Word},
};

/// The skill that repeats a request.
pub(super) const REPEATS: &str = "schedules.create";

/// What a text says about a repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recurring {
    /// The times in words, and the request that is repeated.
    Understood { when: String, message: String },
    /// The answer to a request whose times are not understood.
    Refused(String),
}

/// Names of times after `every`.
const UNITS: [&str; 21] = [
    "day",
    "days",
    "week",
    "weeks",
    "weekday",
    "weekdays",
    "month",
    "months",
    "year",
    "years",
    "morning",
    "evening",
    "night",
    "afternoon",
    "hour",
    "hours",
    "minute",
    "minutes",
    "other",
    "second",
    "weekend",
];
const ADVERBS: [&str; 8] = ["daily", "weekly", "monthly", "yearly", "annually", "hourly", "fortnightly", "biweekly"];
const SHORT_WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Verbs that begin a request, beside the phrases of the bundled skills.
const VERBS: &str = "run do fetch get read check tell give show list send summarize summarise search find look say ask write \
    create add make remind review start plan prepare draft collect report translate compare update clean back download post \
    message notify ping print generate compile count measure open refresh sync export";
/// Skills whose text may speak of anything, such as of what happens every Monday.
const TAKES_STATEMENTS: [&str; 2] = ["memory.", "notes."];
/// Words that are no part of a time at its beginning and at its end.
const LOOSE: [&str; 7] = ["and", "the", "of", "in", "a", "per", "o'clock"];
/// How far the words of a time reach from the word that says that it recurs, in words.
const BEFORE_WORDS_MAX: usize = 8;
const AFTER_WORDS_MAX: usize = 16;
/// What was not understood, in an answer, in characters.
const SHOWN_CHARS_MAX: usize = 60;

/// Whether a whole message is one request that is repeated: it begins with its times.
pub(super) fn begins(source: &str, catalog: &Catalog) -> bool {
    let text = Text::new(source);
    let start = lead(&text.words, &(0..text.words.len()));
    let is_first = keyword(&text, start)
        .is_some_and(|at| at <= start + 1 || time_of(&text, start, at).is_some_and(|t| t.start <= start));
    is_first && read(&text, catalog).is_some()
}

/// Reads a request. `None` if it asks for nothing that recurs.
pub(super) fn read(text: &Text<'_>, catalog: &Catalog) -> Option<Recurring> {
    let words = &text.words;
    let start = lead(words, &(0..words.len()));
    let at = keyword(text, start)?;
    let time = time_of(text, start, at);
    let from = time.as_ref().map_or(at, |time| time.start);
    let is_asked = if from <= start {
        // What names no time may be two words long, such as `every second Tuesday`.
        let ends = time.as_ref().map_or(at + 2..=at + 3, |time| time.end..=time.end);
        ends.into_iter().any(|end| is_request(words, end, catalog) || end >= words.len())
    } else {
        is_request(words, start, catalog)
    };
    if !is_asked {
        return None;
    }
    let Some(time) = time else {
        let end = text.payload_at().min(at + AFTER_WORDS_MAX);
        let said = super::text::shortened(text.slice(at..end), SHOWN_CHARS_MAX);
        let why = Recurrence::parse(&said, "UTC").err().map(|error| error.to_string()).unwrap_or_default();
        return Some(Recurring::Refused(format!(
            "I did not understand when to repeat this (“{said}”), so I did nothing: {why}."
        )));
    };
    let when = text.source[words[time.start].at.start..words[time.end - 1].at.end].to_owned();
    let message = message(text, &time, start);
    if message.is_empty() {
        return Some(Recurring::Refused(format!(
            "I did not understand what to do “{when}”. Say both in one sentence, for example: “every weekday at 8 run my \
             digest”."
        )));
    }
    Some(Recurring::Understood { when, message })
}

/// Whether a repetition begins at this word: `every Monday`, `daily` at an end, `on Mondays`.
pub(super) fn recurs(words: &[Word], at: usize) -> bool {
    let is = |at: usize, any: &[&str]| words.get(at).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()));
    let is_end = at + 1 >= words.len() || words[at].mark != Mark::Space;
    let is_count = |n: usize| words.get(n).is_some_and(|w| !w.quoted && number(&w.lower).is_some());
    let is_ordinal = |n: usize| {
        is(n, &["first", "last", "third", "fourth", "fifth"])
            || words.get(n).is_some_and(|w| {
                let digits = ["st", "nd", "rd", "th"].iter().find_map(|end| w.lower.strip_suffix(end));
                digits.is_some_and(|digits| number(digits).is_some())
            })
    };
    if is(at, &["every", "each"]) {
        return is(at + 1, &UNITS)
            || is(at + 1, &WEEKDAYS)
            || is(at + 1, &SHORT_WEEKDAYS)
            || is_count(at + 1)
            || is_ordinal(at + 1)
            || is(at + 1, &annie_core::calendar::NUMBERS);
    }
    let plural = words.get(at).is_some_and(|w| !w.quoted && WEEKDAYS.iter().any(|d| w.lower == format!("{d}s")));
    let adverb = is(at, &ADVERBS);
    plural
        || (is(at, &["weekdays", "weekends", "workdays"]) && at > 0 && is(at - 1, &["on", "at"]))
        || (adverb && (is_end || is(at + 1, &["at", "on", "until", "from", "starting", "task", "todo", "reminder"])))
        || (is(at, &["recurring", "repeating", "repeated"]) && is(at + 1, &["task", "todo", "reminder", "to-do"]))
        || (is(at, &["once", "twice"]) && is(at + 1, &["a", "per", "every"]) && is(at + 2, &UNITS))
}

/// The first word of the request itself that says that it recurs.
fn keyword(text: &Text<'_>, start: usize) -> Option<usize> {
    (start..text.payload_at()).find(|at| recurs(&text.words, *at))
}

/// The longest range of words around the keyword that names a recurring time.
fn time_of(text: &Text<'_>, start: usize, at: usize) -> Option<Range<usize>> {
    let words = &text.words;
    let first = at.saturating_sub(BEFORE_WORDS_MAX).max(start);
    let last = text.payload_at().min(at + AFTER_WORDS_MAX);
    let is_loose = |at: usize| LOOSE.contains(&words[at].lower.as_str());
    let names_time = |range: &Range<usize>| {
        let said = &text.source[words[range.start].at.start..words[range.end - 1].at.end];
        !words[range.clone()].iter().any(|word| word.quoted) && Recurrence::parse(said, "UTC").is_ok()
    };
    let ranges = (first..=at).flat_map(|from| (at + 1..=last).map(move |to| from..to));
    let edges = ranges.filter(|range| !is_loose(range.start) && !is_loose(range.end - 1));
    let mut edges: Vec<Range<usize>> = edges.collect();
    edges.sort_by_key(|range| (std::cmp::Reverse(range.len()), range.start));
    edges.into_iter().find(names_time)
}

/// Whether a request begins at this word.
fn is_request(words: &[Word], at: usize, catalog: &Catalog) -> bool {
    let start = lead(words, &(at.min(words.len())..words.len()));
    let Some(first) = words.get(start).filter(|word| !word.quoted) else { return false };
    let phrase = by_phrase(words, &(start..words.len()), catalog).map(|choice| choice.skill);
    match phrase {
        Some(skill) if TAKES_STATEMENTS.iter().any(|domain| skill.starts_with(domain)) => {
            at > 0 && skill != "memory.search" && VERBS.split_whitespace().any(|verb| verb == first.lower)
        }
        _ if VERBS.split_whitespace().any(|verb| verb == first.lower) => true,
        Some(skill) => at > 0 || skill == "tasks.create",
        None => false,
    }
}

/// The request without its times.
fn message(text: &Text<'_>, time: &Range<usize>, start: usize) -> String {
    let words = &text.words;
    let begin = words.get(start).map_or(0, |word| word.at.start);
    let before = &text.source[begin.min(words[time.start].at.start)..words[time.start].at.start];
    let before = before.trim_end().trim_end_matches(',');
    let after = &text.source[words[time.end - 1].at.end..];
    let after = after.trim_start_matches(['.', ';', ',', '"', '”']).trim();
    let after = if before.is_empty() { after.trim_start_matches(':').trim_start() } else { after };
    let glue = if before.is_empty() || after.is_empty() || after.starts_with(':') { "" } else { " " };
    reminding(format!("{before}{glue}{after}").trim())
}

/// `remind me to stretch` as a task of the day: the notification of the answer is the reminder.
fn reminding(message: &str) -> String {
    let lower = message.to_lowercase();
    let what = ["remind me to ", "remind me about ", "remind me of ", "remind me "]
        .iter()
        .find_map(|lead| lower.starts_with(lead).then(|| &message[lead.len()..]));
    match what.map(|what| what.trim_end_matches(['.', '!'])) {
        Some(what) => format!("create a task to {what} due today"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::catalog;

    fn of(source: &str) -> Option<Recurring> {
        read(&Text::new(source), &catalog())
    }

    #[test]
    fn repeated_request_is_divided_into_its_times_and_the_rest() {
        for (source, when, message) in [
            ("every weekday at 8 run my digest", "every weekday at 8", "run my digest"),
            ("create a task every Monday: team sync", "every Monday", "create a task: team sync"),
            ("every first of the month at 9 list my tasks", "every first of the month at 9", "list my tasks"),
            ("remind me every day at 9 to take my pills", "every day at 9", "create a task to take my pills due today"),
            ("remind me to stretch on mondays", "on mondays", "create a task to stretch due today"),
            ("please run the report every friday at 17:30.", "every friday at 17:30", "run the report"),
            ("at 9 every day, tell me what is due", "at 9 every day", "tell me what is due"),
            ("show me my tasks daily at 7am", "daily at 7am", "show me my tasks"),
            (
                "every weekday at 8 fetch https://example.org/a, run my summary script over it, remember what changed",
                "every weekday at 8",
                "fetch https://example.org/a, run my summary script over it, remember what changed",
            ),
        ] {
            let wanted = Recurring::Understood { when: when.to_owned(), message: message.to_owned() };
            assert_eq!(of(source), Some(wanted), "{source}");
        }
        for source in ["every weekday at 8 run my digest and tell me what is due", "Every Monday, list my tasks."] {
            assert!(begins(source, &catalog()), "{source}");
        }
    }

    #[test]
    fn repetition_that_is_not_understood_is_refused_with_an_example() {
        for source in [
            "every second tuesday run my digest",
            "create a task to water the plants twice a week",
            "create a task every other week: bins",
            "add a recurring task to water the plants",
        ] {
            let Some(Recurring::Refused(text)) = of(source) else { panic!("{source}: {:?}", of(source)) };
            assert!(text.starts_with("I did not understand when to repeat this") && text.contains("every "), "{text}");
        }
        let Some(Recurring::Refused(text)) = of("every weekday at 8") else { panic!("no request") };
        assert!(text.contains("run my digest"), "{text}");
    }

    #[test]
    fn statement_about_something_that_recurs_is_no_request() {
        for source in [
            "I go to the gym every Monday",
            "every Monday I go to the gym",
            "remember that Bob plays chess every Friday",
            "note: every Monday is hard",
            "create a task to write the weekly report",
            "create a task to check the daily numbers of Bob",
            "create a task \"every Monday\"",
            "what is due every week",
        ] {
            assert_eq!(of(source), None, "{source}");
        }
    }
}
