//! The day in a text: names, offsets, calendar dates.

use annie_core::calendar::{MONTHS, NUMBERS, UNITS, WEEKDAYS};
use chrono::{DateTime, Datelike, NaiveDate, TimeDelta, Weekday};
use chrono_tz::Tz;

use super::{When, add_days, add_months, month, time::number, week};

/// Reads the words of a day. Only `now` and offsets of hours and minutes also set a time.
pub(super) fn read(words: &[&str], now: DateTime<Tz>) -> Option<When> {
    if *words == ["now"] {
        return Some(When::at(now));
    }
    let today = now.date_naive();
    let date = named(words, today).or_else(|| of_the_calendar(words, today));
    date.map(|date| When::new(date, None)).or_else(|| offset(words, now))
}

fn named(words: &[&str], today: NaiveDate) -> Option<NaiveDate> {
    match words {
        ["today" | "eod"] | ["end", "of", "day" | "today"] => Some(today),
        ["tomorrow" | "tmrw"] | ["end", "of", "next", "day"] => add_days(today, 1),
        ["yesterday"] => add_days(today, -1),
        ["day", "after", "tomorrow"] => add_days(today, 2),
        ["day", "before", "yesterday"] => add_days(today, -2),
        ["eow"] => last_of("week", 0, today),
        ["eom"] => last_of("month", 0, today),
        ["eoy"] => last_of("year", 0, today),
        ["end", "of", unit] | ["end", "of", "this", unit] | ["this", unit @ ("week" | "month" | "year")] => {
            last_of(unit, 0, today)
        }
        ["end", "of", "next", unit] => last_of(unit, 1, today),
        ["next", unit @ ("week" | "month" | "year")] | ["start" | "beginning", "of", "next", unit] => {
            period(unit, 1, today).map(|(first, _)| first)
        }
        ["weekend"] | ["this", "weekend"] if today.weekday() == Weekday::Sun => Some(today),
        ["weekend"] | ["this", "weekend"] => on_or_after(today, 5),
        ["next", "weekend"] => add_days(week(today, 1)?.0, 5),
        [day] => on_or_after(add_days(today, 1)?, weekday(day)?),
        ["this", day] => on_or_after(today, weekday(day)?),
        ["next", day] => add_days(week(today, 1)?.0, weekday(day)?),
        ["last", day] => add_days(on_or_after(today, weekday(day)?)?, -7),
        _ => None,
    }
}

fn period(unit: &str, ahead: i64, today: NaiveDate) -> Option<(NaiveDate, NaiveDate)> {
    match unit {
        "week" => week(today, ahead),
        "month" => month(today, ahead),
        "year" => {
            let year = today.year().checked_add(i32::try_from(ahead).ok()?)?;
            Some((NaiveDate::from_ymd_opt(year, 1, 1)?, NaiveDate::from_ymd_opt(year + 1, 1, 1)?))
        }
        _ => None,
    }
}

fn last_of(unit: &str, ahead: i64, today: NaiveDate) -> Option<NaiveDate> {
    period(unit, ahead, today)?.1.pred_opt()
}

/// Days from Monday; a name may be shortened to three characters or more.
fn weekday(word: &str) -> Option<i64> {
    let word = if word == "weds" { "wed" } else { word };
    prefixed(&WEEKDAYS, word).and_then(|n| i64::try_from(n).ok())
}

fn prefixed(names: &[&str], word: &str) -> Option<usize> {
    let word = word.trim_end_matches('.');
    names.iter().position(|name| word.len() >= 3 && name.starts_with(word))
}

fn on_or_after(date: NaiveDate, from_monday: i64) -> Option<NaiveDate> {
    let own = i64::from(date.weekday().num_days_from_monday());
    add_days(date, (from_monday - own).rem_euclid(7))
}

/// `2026-02-28`, `28.2.2026`, `march 3`, `3rd of march 2027`, `the 15th`.
fn of_the_calendar(words: &[&str], today: NaiveDate) -> Option<NaiveDate> {
    match words {
        [date] => numeric(date, today).or_else(|| {
            let day = number(ordinal(date)?, 2)?;
            (0..12).filter_map(|ahead| month(today, ahead)?.0.with_day(day)).find(|d| *d >= today)
        }),
        [month, day] if month_of(month).is_some() => next_such(month_of(month)?, day_of(day)?, today),
        [day, month] | [day, "of", month] => next_such(month_of(month)?, day_of(day)?, today),
        [month, day, year] if month_of(month).is_some() => {
            NaiveDate::from_ymd_opt(year_of(year)?, month_of(month)?, day_of(day)?)
        }
        [day, month, year] | [day, "of", month, year] => {
            NaiveDate::from_ymd_opt(year_of(year)?, month_of(month)?, day_of(day)?)
        }
        _ => None,
    }
}

fn numeric(word: &str, today: NaiveDate) -> Option<NaiveDate> {
    let separator = ['-', '.', '/'].into_iter().find(|s| word.contains(*s))?;
    let parts: Vec<&str> = word.trim_end_matches('.').split(separator).collect();
    match (separator, parts.as_slice()) {
        // With hyphens and slashes the year must be first: 3/4/2026 is ambiguous between continents, so it is refused.
        ('-' | '/', [year, month, day]) => NaiveDate::from_ymd_opt(year_of(year)?, number(month, 2)?, number(day, 2)?),
        ('.', [day, month, year]) => NaiveDate::from_ymd_opt(year_of(year)?, number(month, 2)?, number(day, 2)?),
        ('.', [day, month]) => next_such(number(month, 2)?, number(day, 2)?, today),
        _ => None,
    }
}

fn year_of(word: &str) -> Option<i32> {
    number(word, 4).filter(|_| word.len() == 4).and_then(|y| i32::try_from(y).ok())
}

fn month_of(word: &str) -> Option<u32> {
    prefixed(&MONTHS, word).and_then(|n| u32::try_from(n + 1).ok())
}

fn day_of(word: &str) -> Option<u32> {
    number(ordinal(word).unwrap_or(word), 2)
}

/// `3` of `3rd`; `None` without such an ending.
fn ordinal(word: &str) -> Option<&str> {
    ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end))
}

/// The next such day, today included. Leap days may be years away.
fn next_such(month: u32, day: u32, today: NaiveDate) -> Option<NaiveDate> {
    (today.year()..=today.year() + 8).filter_map(|year| NaiveDate::from_ymd_opt(year, month, day)).find(|d| *d >= today)
}

enum Unit {
    Minutes,
    Hours,
    Days,
    Weeks,
    Months,
    Years,
}

/// `+3d`, `-2w`, `in 2 weeks`, `a month from now`, `3 days ago`.
fn offset(words: &[&str], now: DateTime<Tz>) -> Option<When> {
    let (count, unit) = match words {
        [word] => {
            let (sign, rest) =
                word.strip_prefix('+').map(|r| (1, r)).or_else(|| word.strip_prefix('-').map(|r| (-1, r)))?;
            glued(rest).map(|(n, unit)| (sign * n, unit))?
        }
        ["in", word] => glued(word)?,
        ["in", count, unit] | [count, unit] | [count, unit, "from", "now" | "today"] => {
            (amount(count)?, unit_of(unit)?)
        }
        [count, unit, "ago"] => (-amount(count)?, unit_of(unit)?),
        _ => return None,
    };
    let today = now.date_naive();
    let clock = |delta: TimeDelta| now.checked_add_signed(delta).map(When::at);
    let date = match unit {
        Unit::Minutes => return clock(TimeDelta::try_minutes(count)?),
        Unit::Hours => return clock(TimeDelta::try_hours(count)?),
        Unit::Days => add_days(today, count),
        Unit::Weeks => add_days(today, count * 7),
        Unit::Months => add_months(today, count),
        Unit::Years => add_months(today, count * 12),
    };
    date.map(|date| When::new(date, None))
}

/// `3d`, `30min`.
fn glued(word: &str) -> Option<(i64, Unit)> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    Some((i64::from(number(&word[..digits], 5)?), unit_of(&word[digits..])?))
}

fn amount(word: &str) -> Option<i64> {
    if word == "a" || word == "an" {
        return Some(1);
    }
    let named = NUMBERS.iter().zip(1..).find(|(name, _)| **name == word).map(|(_, n)| n);
    named.or_else(|| number(word.trim_start_matches('+'), 5).map(i64::from))
}

fn unit_of(word: &str) -> Option<Unit> {
    const ALL: [Unit; 6] = [Unit::Minutes, Unit::Hours, Unit::Days, Unit::Weeks, Unit::Months, Unit::Years];
    UNITS.iter().zip(ALL).find(|(names, _)| names.contains(&word)).map(|(_, unit)| unit)
}
