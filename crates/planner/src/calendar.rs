//! Answers questions about days, `what's the date next Friday?`, based on the current date from `system.time`. Dates are
//! read as in the task skills: `friday` is the first one after today, `next friday` is in the next calendar week.

use annie_core::calendar::{MONTHS, NUMBERS, WEEKDAYS};
use chrono::{Datelike, Days, Months, NaiveDate};

use super::text::{Text, capitalised};

/// Length limit for a question about time, in words; a longer one is treated as something else.
const WORDS_MAX: usize = 24;
/// Named days with a fixed date.
const FEASTS: [(&str, u32, u32); 7] = [
    ("christmas eve", 12, 24),
    ("christmas", 12, 25),
    ("boxing day", 12, 26),
    ("new year's eve", 12, 31),
    ("new year's day", 1, 1),
    ("new year", 1, 1),
    ("halloween", 10, 31),
];

/// The subject of a question about time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// The current date and time.
    Now,
    /// The date and weekday of the day that this phrase names.
    Day(String),
    /// The distance to that day, in days or in weeks.
    Until { phrase: String, in_weeks: bool },
    /// Any other question.
    Unknown(String),
}

/// Reads a question about time.
pub(super) fn asked(question: &str) -> Asked {
    const EMPTY: &str = "what which is are was were will be it the a an of date day weekday time today's todays current \
        present now right exactly please here local there do does you we have tell me know and fall falls on in at for \
        month year week annie currently today's";
    let text = Text::new(question);
    let kept: Vec<&str> = text.words.iter().take(WORDS_MAX).map(|w| w.lower.as_str()).collect();
    if text.words.len() > WORDS_MAX {
        return Asked::Unknown(kept.join(" "));
    }
    let until = kept.iter().any(|w| ["until", "till", "before"].contains(w))
        && kept.iter().any(|w| ["days", "weeks", "long"].contains(w));
    const UNTIL: &str = "how many long days weeks until till before to";
    let says = |w: &&&str| {
        let is_empty = EMPTY.split_whitespace().any(|e| e == **w);
        let leads = until && UNTIL.split_whitespace().any(|u| u == **w);
        !is_empty && !leads
    };
    let rest: Vec<&str> = kept.iter().filter(says).copied().collect();
    match rest.as_slice() {
        [] | ["today"] if !until => Asked::Now,
        rest => {
            // `in 3 days` and `the 15th of may` need their small words.
            let phrase =
                (0..kept.len()).map(|at| kept[at..].join(" ")).find(|p| day(p, NaiveDate::default()).is_some());
            match phrase {
                Some(phrase) if until => Asked::Until { phrase, in_weeks: kept.contains(&"weeks") },
                Some(phrase) => Asked::Day(phrase),
                None => Asked::Unknown(rest.join(" ")),
            }
        }
    }
}

/// The answer, based on the output of `system.time`: `Saturday, 2026-11-21 14:03 in Europe/Berlin (…)`.
pub(super) fn answer(asked: &Asked, present: &str) -> Option<String> {
    let today = present.split(' ').find_map(|w| NaiveDate::parse_from_str(w, "%Y-%m-%d").ok())?;
    match asked {
        Asked::Now | Asked::Unknown(_) => None,
        Asked::Day(phrase) => {
            let day = day(phrase, today)?;
            let verb = if day < today { "was" } else { "is" };
            Some(format!("{} {verb} {}.", capitalised(phrase), day.format("%A, %Y-%m-%d")))
        }
        Asked::Until { phrase, in_weeks } => {
            let day = day(phrase, today)?;
            let days = (day - today).num_days();
            let far = distance(days.unsigned_abs(), *in_weeks);
            let (verb, when) = match days {
                0 => ("is", "today".to_owned()),
                1.. => ("is", format!("in {far}")),
                _ => ("was", format!("{far} ago")),
            };
            Some(format!("{} {verb} {}, {when}.", capitalised(phrase), day.format("%A, %Y-%m-%d")))
        }
    }
}

/// `34 days`, `4 weeks and 6 days`.
fn distance(days: u64, in_weeks: bool) -> String {
    let counted = |n: u64, unit: &str| format!("{n} {unit}{}", if n == 1 { "" } else { "s" });
    match (days / 7, days % 7) {
        _ if !in_weeks => counted(days, "day"),
        (0, rest) => counted(rest, "day"),
        (weeks, 0) => counted(weeks, "week"),
        (weeks, rest) => format!("{} and {}", counted(weeks, "week"), counted(rest, "day")),
    }
}

/// The day that a phrase names.
fn day(phrase: &str, today: NaiveDate) -> Option<NaiveDate> {
    let words: Vec<&str> = phrase.split(' ').filter(|w| !matches!(*w, "the" | "of" | "on" | "in")).collect();
    let monday = today - Days::new(u64::from(today.weekday().num_days_from_monday()));
    let days = |n: u64| today.checked_add_days(Days::new(n));
    match words.as_slice() {
        ["today"] => Some(today),
        ["tomorrow"] => days(1),
        ["yesterday"] => today.pred_opt(),
        ["day", "after", "tomorrow"] => days(2),
        ["day", "before", "yesterday"] => today.checked_sub_days(Days::new(2)),
        ["next", day] => weekday(day).and_then(|n| monday.checked_add_days(Days::new(7 + n))),
        ["last", day] => {
            let back = (u64::from(today.weekday().num_days_from_monday()) + 7 - weekday(day)?) % 7;
            today.checked_sub_days(Days::new(if back == 0 { 7 } else { back }))
        }
        ["this", day] => weekday(day).and_then(|n| days(ahead(today, n))),
        [count, unit] if amount(count).is_some() => shifted(today, amount(count)?, unit, true),
        [count, unit, "ago"] => shifted(today, amount(count)?, unit, false),
        [count, unit, "from", "now" | "today"] => shifted(today, amount(count)?, unit, true),
        [one] => weekday(one)
            .and_then(|n| days(if ahead(today, n) == 0 { 7 } else { ahead(today, n) }))
            .or_else(|| NaiveDate::parse_from_str(one, "%Y-%m-%d").ok())
            .or_else(|| feast(phrase, today)),
        _ => feast(phrase, today),
    }
    .or_else(|| of_month(&words, today))
}

fn feast(phrase: &str, today: NaiveDate) -> Option<NaiveDate> {
    let (_, month, day) = FEASTS.iter().find(|(name, ..)| *name == phrase)?;
    coming(*month, *day, today)
}

/// `march 3rd`, `24 december 2027`.
fn of_month(words: &[&str], today: NaiveDate) -> Option<NaiveDate> {
    let (first, second) = (words.first()?, words.get(1)?);
    let (month, day) = match (month(first), month(second)) {
        (Some(month), None) => (month, ordinal(second)?),
        (None, Some(month)) => (month, ordinal(first)?),
        _ => return None,
    };
    match words.get(2..)? {
        [] => coming(month, day, today),
        [year] if year.len() == 4 => NaiveDate::from_ymd_opt(year.parse().ok()?, month, day),
        _ => None,
    }
}

/// The next such day, today included; leap days may be years away.
fn coming(month: u32, day: u32, today: NaiveDate) -> Option<NaiveDate> {
    (today.year()..=today.year() + 8).filter_map(|y| NaiveDate::from_ymd_opt(y, month, day)).find(|d| *d >= today)
}

fn month(word: &str) -> Option<u32> {
    let at = MONTHS.iter().position(|m| word.len() >= 3 && m.starts_with(word))?;
    u32::try_from(at + 1).ok()
}

fn ordinal(word: &str) -> Option<u32> {
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
    digits.parse().ok().filter(|n| (1..=31).contains(n))
}

fn amount(word: &str) -> Option<u32> {
    let named = NUMBERS.iter().position(|c| *c == word).and_then(|n| u32::try_from(n + 1).ok());
    let figure = || word.parse().ok().filter(|n| (1..=9_999).contains(n));
    named.or_else(|| matches!(word, "a" | "an").then_some(1)).or_else(figure)
}

fn shifted(today: NaiveDate, count: u32, unit: &str, forth: bool) -> Option<NaiveDate> {
    let by_days = |n: u32| {
        let n = Days::new(u64::from(n));
        if forth { today.checked_add_days(n) } else { today.checked_sub_days(n) }
    };
    let by_months = |n: u32| {
        let n = Months::new(n);
        if forth { today.checked_add_months(n) } else { today.checked_sub_months(n) }
    };
    match unit.trim_end_matches('s') {
        "day" => by_days(count),
        "week" => by_days(count * 7),
        "month" => by_months(count),
        "year" => by_months(count * 12),
        _ => None,
    }
}

/// Days from Monday.
fn weekday(word: &str) -> Option<u64> {
    WEEKDAYS.iter().zip(0..).find(|(name, _)| **name == word).map(|(_, n)| n)
}

fn ahead(today: NaiveDate, from_monday: u64) -> u64 {
    (from_monday + 7 - u64::from(today.weekday().num_days_from_monday())) % 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_answers_question_about_a_day_with_its_date() {
        // A Saturday.
        let now = "Saturday, 2026-11-21 14:03 in Europe/Berlin (UTC+01:00, week 47)";
        for (question, wanted) in [
            ("what's the date next Friday?", "Next friday is Friday, 2026-11-27."),
            ("what day is it tomorrow", "Tomorrow is Sunday, 2026-11-22."),
            ("what is the date of christmas", "Christmas is Friday, 2026-12-25."),
            ("what day was yesterday", "Yesterday was Friday, 2026-11-20."),
            ("what is the date in 3 weeks", "In 3 weeks is Saturday, 2026-12-12."),
            ("which weekday is the 24th of december", "The 24th of december is Thursday, 2026-12-24."),
            ("what day is march 3rd 2027", "March 3rd 2027 is Wednesday, 2027-03-03."),
            ("how many days until christmas", "Christmas is Friday, 2026-12-25, in 34 days."),
            ("how many weeks until christmas", "Christmas is Friday, 2026-12-25, in 4 weeks and 6 days."),
            ("how many weeks until 2026-12-05", "2026-12-05 is Saturday, 2026-12-05, in 2 weeks."),
            ("how many days until tomorrow", "Tomorrow is Sunday, 2026-11-22, in 1 day."),
            ("how many days until today", "Today is Saturday, 2026-11-21, today."),
            ("how many days until 2020-01-01", "2020-01-01 was Wednesday, 2020-01-01, 2516 days ago."),
            ("when is monday", "Monday is Monday, 2026-11-23."),
            ("what date was it 10 days ago", "10 days ago was Wednesday, 2026-11-11."),
        ] {
            assert_eq!(answer(&asked(question), now).as_deref(), Some(wanted), "{question}: {:?}", asked(question));
        }
    }

    #[test]
    fn calendar_distinguishes_questions_about_the_present_and_other_questions() {
        for question in ["what time is it?", "what day is it today", "what's the date", "what is today's date?"] {
            assert_eq!(asked(question), Asked::Now, "{question}");
        }
        assert!(matches!(asked(&format!("what time is it {}", "a ".repeat(100))), Asked::Unknown(_)));
        assert_eq!(asked("what time is the meeting"), Asked::Unknown("meeting".into()));
        assert_eq!(asked("what is the date of the offsite"), Asked::Unknown("offsite".into()));
    }
}
