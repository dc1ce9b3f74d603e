//! Finds dates in a request. Dates are not resolved here: their words are removed from the title and passed to the skill,
//! which knows the current date.

use std::ops::Range;

use annie_core::calendar::{MONTHS, NUMBERS, WEEKDAYS};

use super::{clock, text::Word};

/// A date that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// The date in a format that skills read: `tomorrow 2pm`, `next friday`, `in 3 days`.
    pub text: String,
    /// The words to remove from the rest, in order: those of the date and a preceding `due`, `by`, `on`, `at`.
    pub words: Vec<Range<usize>>,
}

const SHORT_WEEKDAYS: [&str; 11] = ["mon", "tue", "tues", "wed", "thu", "thur", "thurs", "fri", "sat", "sun", "weds"];
const UNITS: [&str; 16] = [
    "minute", "minutes", "min", "mins", "hour", "hours", "day", "days", "week", "weeks", "month", "months", "year",
    "years", "hr", "hrs",
];
const PARTS: [&str; 8] = ["morning", "noon", "midday", "afternoon", "evening", "tonight", "night", "midnight"];

/// A day or a time, and its words.
type Part = (String, Range<usize>);
/// Result of a reader: the text and the number of its words.
type Found = Option<(String, usize)>;

/// Finds the date in these words; a separate time of day is added to it.
pub(super) fn find(words: &[Word], range: Range<usize>) -> Option<Due> {
    let scan = &words[range.clone()];
    let mut day: Option<Part> = None;
    let mut time: Option<Part> = None;
    let mut at = 0;
    while at < scan.len() && (day.is_none() || time.is_none()) {
        let intro = intro(scan, at);
        let from = at + intro;
        let loose = intro == 0;
        if day.is_none()
            && let Some((text, len)) = self::day(scan, from, loose)
        {
            day = Some((text, at..from + len));
            at = from + len;
        } else if time.is_none()
            && let Some((text, len)) = self::time(scan, from, loose, day.as_ref().is_some_and(|d| d.1.end == at))
        {
            time = Some((text, at..from + len));
            at = from + len;
        } else {
            at += 1;
        }
    }
    if let (Some((day, _)), Some((time, _))) = (&day, &mut time)
        && let Some(later) = clock::in_part_of(day, time)
    {
        *time = later;
    }
    let mut found: Vec<Part> = [day, time].into_iter().flatten().collect();
    let text = found.iter().map(|(t, _)| t.as_str()).collect::<Vec<_>>().join(" ");
    found.sort_by_key(|(_, r)| r.start);
    let shifted = |r: Range<usize>| r.start + range.start..r.end + range.start;
    (!found.is_empty()).then(|| Due { text, words: found.into_iter().map(|(_, r)| shifted(r)).collect() })
}

/// Whether a text is an offset such as `in 3 days`.
pub(super) fn is_offset(text: &str) -> bool {
    let text = super::text::Text::new(text);
    offset(&text.words, 0).is_some_and(|(_, len)| len == text.words.len())
}

/// Whether a word is a unit of time: `minutes`, `week`.
pub(super) fn is_unit(word: &str) -> bool {
    UNITS.contains(&word)
}

/// A day in the past at the first of these words: `yesterday`, `last friday`, `3 days ago`.
pub(super) fn past_at(words: &[Word], at: usize) -> Option<usize> {
    words.get(at).filter(|word| !word.quoted)?;
    past(words, at).map(|(_, len)| len)
}

/// A date such as `12/11`, which may mean two days, in these words.
pub(super) fn with_slash(words: &[Word], range: Range<usize>) -> Option<usize> {
    let is_number = |part: &str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    range.clone().find(|at| {
        let parts: Vec<&str> = words[*at].lower.split('/').collect();
        let leads =
            *at > range.start && is(words, at - 1, &["on", "by", "until", "till", "before", "due", "date", "from"]);
        !words[*at].quoted && leads && (2..=3).contains(&parts.len()) && parts.iter().all(|part| is_number(part))
    })
}

/// Whether a word may begin a date: `tomorrow`, `friday`.
pub(super) fn begins_date(word: &str) -> bool {
    WEEKDAYS.contains(&word) || ["tomorrow", "today", "tonight", "next", "this"].contains(&word)
}

/// Whether a date names a time of day.
pub(super) fn names_time(due: &str) -> bool {
    let is_clock = |word: &str| {
        let digits = word.strip_suffix("am").or_else(|| word.strip_suffix("pm"));
        word.contains(':') || digits.is_some_and(|digits| !digits.is_empty())
    };
    let names_part = |word: &str| PARTS.contains(&word) || UNITS[..6].contains(&word) || UNITS[14..].contains(&word);
    due.split_whitespace().any(|word| is_clock(word) || names_part(word))
}

fn is(words: &[Word], at: usize, any: &[&str]) -> bool {
    words.get(at).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()))
}

/// Words that introduce a date: `due`, `due on`, `by`, `with due date`, `it is due`, `deadline`.
fn intro(words: &[Word], at: usize) -> usize {
    let mut n = at;
    if is(words, n, &["it", "this", "that"]) && is(words, n + 1, &["is"]) && is(words, n + 2, &["due"]) {
        n += 2;
    }
    if is(words, n, &["with", "and"]) && is(words, n + 1, &["due", "deadline", "a", "the"]) {
        n += 1;
        n += usize::from(is(words, n, &["a", "the"]));
    }
    let named = is(words, n, &["due", "deadline"]);
    if named {
        n += 1;
        n += usize::from(is(words, n, &["date"]));
        n += usize::from(is(words, n, &["is", "of"]));
    } else if n > at {
        return 0;
    }
    n += usize::from(
        is(words, n, &["by", "on", "before", "until", "till", "for", "at", "in"]) && !is(words, n, &["in"]),
    );
    n - at
}

fn day(words: &[Word], at: usize, loose: bool) -> Found {
    let word = words.get(at).filter(|w| !w.quoted)?.lower.as_str();
    if at > 0 && is(words, at - 1, &["every", "each"]) {
        return None;
    }
    relative(words, at)
        // In the middle of a sentence a past day is a statement; after `due` it is a date.
        .or_else(|| if loose { None } else { past(words, at) })
        .or_else(|| offset(words, at))
        .or_else(|| end_of(words, at))
        .or_else(|| calendar(words, at, loose))
        .or_else(|| {
            let weekday = WEEKDAYS.contains(&word) || (!loose && SHORT_WEEKDAYS.contains(&word));
            // `last friday` is not the next one.
            let weekday = weekday && !(at > 0 && is(words, at - 1, &["last"]));
            // A bare weekday in the middle of a sentence may be a name: `the monday meeting`.
            let edge = !loose
                || at == 0
                || ends_here(words, at)
                || is(words, at + 1, &["at", "to", "morning", "afternoon", "evening", "night"])
                || time(words, at + 1, true, true).is_some();
            (weekday && edge).then(|| (word.to_owned(), 1))
        })
}

fn ends_here(words: &[Word], at: usize) -> bool {
    at + 1 >= words.len() || words[at].mark != super::text::Mark::Space
}

fn relative(words: &[Word], at: usize) -> Found {
    let word = words[at].lower.as_str();
    let next = words.get(at + 1).map_or("", |w| w.lower.as_str());
    match word {
        "today" | "tomorrow" | "tmrw" | "tonight" | "eod" | "eow" | "eom" => Some((word.to_owned(), 1)),
        "tomorow" | "tommorow" | "tommorrow" => Some(("tomorrow".to_owned(), 1)),
        "day" if next == "after" && is(words, at + 2, &["tomorrow"]) => Some(("day after tomorrow".to_owned(), 3)),
        "the" if next == "day" && is(words, at + 2, &["after"]) => relative(words, at + 1).map(|(t, n)| (t, n + 1)),
        "this" | "next" | "coming" => {
            let parts = ["morning", "afternoon", "evening", "night"];
            let text = match (word, next) {
                ("this", part) if parts.contains(&part) => format!("today {part}"),
                ("coming", day) if WEEKDAYS.contains(&day) => day.to_owned(),
                (_, day) if WEEKDAYS.contains(&day) || SHORT_WEEKDAYS.contains(&day) => format!("{word} {day}"),
                ("this" | "next", unit @ ("week" | "month" | "year" | "weekend")) => format!("{word} {unit}"),
                _ => return None,
            };
            Some((text, 2))
        }
        _ if word.starts_with('+') && word.len() <= 5 && word[1..].starts_with(|c: char| c.is_ascii_digit()) => {
            Some((word.to_owned(), 1))
        }
        _ => None,
    }
}

/// `yesterday`, `last friday`, `3 days ago`.
fn past(words: &[Word], at: usize) -> Found {
    let next = words.get(at + 1).map_or("", |w| w.lower.as_str());
    match words[at].lower.as_str() {
        "yesterday" => Some(("yesterday".to_owned(), 1)),
        "last" if WEEKDAYS.contains(&next) => Some((format!("last {next}"), 2)),
        count if is(words, at + 1, &UNITS) && is(words, at + 2, &["ago"]) => Some((format!("{count} {next} ago"), 3)),
        _ => None,
    }
}

/// `in 3 days`, `two weeks from now`.
fn offset(words: &[Word], at: usize) -> Found {
    if let Some(found) = clock::span(words, at) {
        return Some(found);
    }
    let count = |n: usize| {
        words.get(n).is_some_and(|w| {
            matches!(w.lower.as_str(), "a" | "an")
                || NUMBERS.contains(&w.lower.as_str())
                || (w.lower.len() <= 4 && !w.lower.is_empty() && w.lower.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    let word = |n: usize| words[n].lower.as_str();
    if is(words, at, &["in"]) && count(at + 1) && is(words, at + 2, &UNITS) {
        return Some((format!("in {} {}", word(at + 1), word(at + 2)), 3));
    }
    if count(at) && is(words, at + 1, &UNITS) && is(words, at + 2, &["from"]) && is(words, at + 3, &["now", "today"]) {
        return Some((format!("in {} {}", word(at), word(at + 1)), 4));
    }
    None
}

/// `end of the week`, `the end of next month`.
fn end_of(words: &[Word], at: usize) -> Found {
    let mut n = at + usize::from(is(words, at, &["the"]));
    if !(is(words, n, &["end"]) && is(words, n + 1, &["of"])) {
        return None;
    }
    n += 2;
    n += usize::from(is(words, n, &["the", "this"]));
    let next = is(words, n, &["next"]);
    n += usize::from(next);
    is(words, n, &["day", "week", "month", "year", "today"]).then(|| {
        let middle = if next { "next " } else { "" };
        (format!("end of {middle}{}", words[n].lower), n + 1 - at)
    })
}

fn month(word: &str) -> bool {
    word.len() >= 3 && MONTHS.iter().any(|m| *m == word || (m.starts_with(word) && (word.len() == 3 || word == "sept")))
}

/// `3`, `3rd` as the day of a month.
fn day_number(word: &str) -> Option<&str> {
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
    let number: u32 = (digits.len() <= 2).then(|| digits.parse().ok()).flatten()?;
    (1..=31).contains(&number).then_some(digits)
}

fn year(words: &[Word], at: usize) -> usize {
    usize::from(words.get(at).is_some_and(|w| {
        w.lower.len() == 4 && w.lower.starts_with("20") && w.lower.bytes().all(|b| b.is_ascii_digit())
    }))
}

/// `2026-02-28`, `28.2.2026`, `march 3rd`, `3 march 2027`, `the 15th` after `on` or `by`.
fn calendar(words: &[Word], at: usize, loose: bool) -> Found {
    let word = words[at].lower.as_str();
    let is_number = |p: &str| !p.is_empty() && p.len() <= 4 && p.bytes().all(|b| b.is_ascii_digit());
    let iso = word.split('-').collect::<Vec<_>>();
    if word.len() >= 10 && iso.len() == 3 && iso[0].len() == 4 && iso[..2].iter().all(|p| is_number(p)) {
        return Some((word.replace('t', "T"), 1));
    }
    let dotted = word.split('.').collect::<Vec<_>>();
    if dotted.len() == 3 && dotted[2].len() == 4 && dotted.iter().all(|p| is_number(p)) {
        return Some((word.to_owned(), 1));
    }
    let joined = |len: usize| {
        let years = year(words, at + len);
        let text: Vec<&str> = words[at..at + len + years].iter().map(|w| w.lower.as_str()).collect();
        Some((text.join(" "), len + years))
    };
    let next = words.get(at + 1).map_or("", |w| w.lower.as_str());
    let clean = words[at].mark == super::text::Mark::Space;
    if month(word) && day_number(next).is_some() && clean {
        return joined(2);
    }
    if day_number(word).is_some() && clean {
        if month(next) {
            return joined(2);
        }
        if next == "of" && words.get(at + 2).is_some_and(|w| month(&w.lower)) {
            return joined(3);
        }
    }
    let ordinal = day_number(next).is_some_and(|d| d.len() < next.len());
    if word == "the" && ordinal && is(words, at + 2, &["of"]) {
        return calendar(words, at + 1, loose).map(|(text, len)| (text, len + 1));
    }
    (!loose && word == "the" && ordinal).then(|| (next.to_owned(), 2))
}

/// `2pm`, `at 14:00`, `at 9`, `noon`; a part of the day only directly after a day or an `at`.
fn time(words: &[Word], at: usize, loose: bool, behind_day: bool) -> Found {
    let word = words.get(at).filter(|w| !w.quoted)?.lower.as_str();
    let next = words.get(at + 1).map_or("", |w| w.lower.as_str());
    let digits = |t: &str| (1..=2).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_digit());
    let clock = |t: &str| match t.split_once(':') {
        Some((hours, minutes)) => digits(hours) && minutes.len() == 2 && digits(minutes),
        None => digits(t),
    };
    let after_at = at > 0 && is(words, at - 1, &["at"]);
    if let Some(found) = clock::time(words, at, after_at || behind_day) {
        return Some(found);
    }
    let half = ["am", "pm", "a.m", "p.m"];
    if let Some(bare) = word.strip_suffix("am").or_else(|| word.strip_suffix("pm")).filter(|t| clock(t)) {
        return Some((format!("{bare}{}", &word[bare.len()..]), 1));
    }
    if clock(word) && half.contains(&next) {
        return Some((format!("{word}{}", next.replace('.', "")), 2));
    }
    if clock(word) && word.contains(':') {
        return Some((word.to_owned(), 1));
    }
    if after_at
        && digits(word)
        && (next.is_empty()
            || words[at].mark != super::text::Mark::Space
            || !next.starts_with(char::is_alphabetic)
            || ["on", "to", "and", "o'clock", "today", "tomorrow"].contains(&next))
    {
        let hour: u32 = word.parse().ok().filter(|h| *h <= 24)?;
        // `at 5` means the afternoon, because people rarely mean five in the morning.
        let hour = if (1..=6).contains(&hour) { hour + 12 } else { hour };
        return Some((format!("{hour}:00"), 1 + usize::from(next == "o'clock")));
    }
    let in_the = usize::from(is(words, at, &["in"])) + usize::from(is(words, at + 1, &["the"]));
    let part_at = if in_the == 2 { at + 2 } else { at };
    let part = words.get(part_at).filter(|w| PARTS.contains(&w.lower.as_str()))?;
    (behind_day || !loose || in_the == 2).then(|| (part.lower.clone(), part_at + 1 - at))
}

#[cfg(test)]
mod tests {
    use super::{super::text::Text, *};

    /// The date and the remaining text.
    fn split(source: &str) -> (String, String) {
        let text = Text::new(source);
        let due = find(&text.words, 0..text.words.len()).unwrap_or_default();
        let left: Vec<&str> = (0..text.words.len())
            .filter(|n| !due.words.iter().any(|r| r.contains(n)))
            .map(|n| &source[text.words[n].at.clone()])
            .collect();
        (due.text, left.join(" "))
    }

    #[test]
    fn date_is_found_with_its_introductory_words() {
        for (source, due, left) in [
            ("review PR 42 due tomorrow", "tomorrow", "review PR 42"),
            ("call Bob by friday at 2pm", "friday 2pm", "call Bob"),
            ("call Bob at 2 pm on friday", "friday 2pm", "call Bob"),
            ("tomorrow at 14:30 call Bob", "tomorrow 14:30", "call Bob"),
            ("pay rent next week", "next week", "pay rent"),
            ("pay rent in 3 days", "in 3 days", "pay rent"),
            ("pay rent two weeks from now", "in two weeks", "pay rent"),
            ("file taxes before the end of the month", "end of month", "file taxes"),
            ("file taxes by end of next month", "end of next month", "file taxes"),
            ("renew passport on march 3rd 2027", "march 3rd 2027", "renew passport"),
            ("renew passport 24 december", "24 december", "renew passport"),
            ("renew passport 3rd of may", "3rd of may", "renew passport"),
            ("renew it on the 15th", "15th", "renew it"),
            ("renew it on the 31st of february", "31st of february", "renew it"),
            ("renew it, due yesterday", "yesterday", "renew it"),
            ("ship it 2026-12-01", "2026-12-01", "ship it"),
            ("ship it on 2026-12-01t14:00", "2026-12-01T14:00", "ship it"),
            ("ship it 1.12.2026", "1.12.2026", "ship it"),
            ("ship it, it is due on wed", "wed", "ship it"),
            ("ship it with a due date of next friday", "next friday", "ship it"),
            ("water the plants tomorrow morning", "tomorrow morning", "water the plants"),
            ("water the plants tonight", "tonight", "water the plants"),
            ("water the plants this evening", "today evening", "water the plants"),
            ("stand up at 9", "9:00", "stand up"),
            ("leave at 5 tomorrow", "tomorrow 17:00", "leave"),
            ("lunch at noon", "noon", "lunch"),
            ("lunch the day after tomorrow", "day after tomorrow", "lunch"),
            ("lunch +3d", "+3d", "lunch"),
            ("lunch tomorrow in the afternoon", "tomorrow afternoon", "lunch"),
        ] {
            assert_eq!(split(source), (due.to_owned(), left.to_owned()), "{source}");
        }
    }

    #[test]
    fn date_finder_ignores_similar_words() {
        for source in [
            "prepare the monday meeting notes",
            "sit in the sun with Bob",
            "read \"due tomorrow\"",
            "water plants every friday",
            "meet at 5 people's request",
            "may the fourth be with you",
            "review PR 42",
        ] {
            let (due, left) = split(source);
            let plain = source.replace('"', "");
            assert_eq!((due.as_str(), left.as_str()), ("", plain.as_str()));
        }
    }
}
