//! Resolves dates as people and models write them in the user's local time: `2026-02-28`, `tomorrow 14:00`, `next friday`,
//! `+3d`, `in 2 weeks`, `end of month`, `march 3rd at 2pm`.
//!
//! The functions are pure: the current time is an argument. Ambiguous texts follow fixed rules. `friday` is the first one
//! after today, `this friday` may be today, `next friday` is in the next calendar week (weeks begin on Monday). A day
//! without a year is the next such day. A time without a day is today, or tomorrow if it has passed. `m` alone is refused,
//! because it could mean minutes or months. A result is local time of the user.

mod day;
mod show;
mod time;

use std::fmt;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveTime, Utc, Weekday};
use chrono_tz::Tz;

pub use show::{describe_due, is_overdue};

/// A day with an optional time. Its text is the stored form, `2026-02-28` or `2026-02-28T14:00`, which sorts as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When {
    /// The day.
    pub date: NaiveDate,
    /// The time of day, if one was given.
    pub time: Option<NaiveTime>,
    /// The instant, if the text names one and not a time of the clock: `in 90 minutes`. When the clocks are set back, a time of
    /// the clock occurs twice.
    pub instant: Option<DateTime<Utc>>,
}

impl When {
    /// A day with an optional time of the clock.
    #[must_use]
    pub const fn new(date: NaiveDate, time: Option<NaiveTime>) -> Self {
        Self { date, time, instant: None }
    }

    /// The local time of an instant.
    fn at(instant: DateTime<Tz>) -> Self {
        let local = instant.naive_local();
        Self { date: local.date(), time: Some(local.time()), instant: Some(instant.to_utc()) }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.date.format("%Y-%m-%d"))?;
        self.time.map_or(Ok(()), |time| write!(f, "T{}", time.format("%H:%M")))
    }
}

/// A text that is not a date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a date that I understand; write 2026-02-28, today, tomorrow, friday, next friday, +3d, in 2 weeks or \
     end of month, with a time if you like: tomorrow 14:00, friday 2pm"
)]
pub struct WhenError {
    text: String,
}

/// Length limit for a text, in bytes.
const TEXT_BYTES_MAX: usize = 100;

/// Resolves a date, or a date and time.
///
/// # Errors
/// Fails if the text is not understood; the error lists valid forms.
pub fn resolve(text: &str, now: DateTime<Tz>) -> Result<When, WhenError> {
    let fail = || WhenError { text: text.chars().take(TEXT_BYTES_MAX).collect() };
    if text.len() > TEXT_BYTES_MAX {
        return Err(fail());
    }
    if let Ok(instant) = DateTime::parse_from_rfc3339(text.trim()) {
        return checked(When::at(instant.with_timezone(&now.timezone()))).ok_or_else(fail);
    }
    let lower = text.trim().to_lowercase().replace(',', " ");
    let words: Vec<&str> = lower
        .split_whitespace()
        .flat_map(|word| iso_parts(word).map_or([word, ""], |(date, time)| [date, time]))
        .filter(|word| !["", "the", "on", "by", "due", "at"].contains(word))
        .collect();
    parse(&words, now).and_then(checked).ok_or_else(fail)
}

/// Splits `2026-02-28t14:00` at the `t`.
fn iso_parts(word: &str) -> Option<(&str, &str)> {
    word.split_once('t').filter(|(date, _)| date.len() == 10 && date.starts_with(|c: char| c.is_ascii_digit()))
}

/// The stored form sorts as text only for years of four digits.
fn checked(when: When) -> Option<When> {
    (1000..=9999).contains(&when.date.year()).then_some(when)
}

fn parse(words: &[&str], now: DateTime<Tz>) -> Option<When> {
    let (time, words) = time::take(words)?;
    let local = now.naive_local();
    if words.is_empty() {
        let time = time?;
        let date = if time > local.time() { local.date() } else { local.date().succ_opt()? };
        return Some(When::new(date, Some(time)));
    }
    match (day::read(&words, now)?, time) {
        (found, None) => Some(found),
        (When { date, time: None, .. }, time) => Some(When::new(date, time)),
        (When { time: Some(_), .. }, Some(_)) => None,
    }
}

/// A range of stored dates for a query, from inclusive, to exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The first day of the range.
    pub from: String,
    /// The first day after the range.
    pub before: String,
}

/// Resolves a day, `this_week`, `next_week`, `last_week`, `this_month`, `next_month` or `last_month` into a range.
///
/// # Errors
/// Fails if the text is not understood.
pub fn span(text: &str, now: DateTime<Tz>) -> Result<Span, WhenError> {
    let today = now.date_naive();
    let name = text.trim().to_lowercase().replace(['_', '-'], " ");
    let days = match name.as_str() {
        "week" | "this week" => week(today, 0),
        "next week" => week(today, 1),
        "last week" => week(today, -1),
        "month" | "this month" => month(today, 0),
        "next month" => month(today, 1),
        "last month" => month(today, -1),
        _ => {
            let date = resolve(text, now)?.date;
            date.succ_opt().map(|next| (date, next))
        }
    };
    let (from, before) = days.ok_or_else(|| WhenError { text: text.to_owned() })?;
    Ok(Span { from: from.to_string(), before: before.to_string() })
}

/// The week that is `weeks` weeks from this one: its Monday, and the next Monday.
fn week(today: NaiveDate, weeks: i64) -> Option<(NaiveDate, NaiveDate)> {
    let monday = add_days(today.week(Weekday::Mon).checked_first_day()?, weeks * 7)?;
    Some((monday, monday.checked_add_days(Days::new(7))?))
}

/// The month that is `months` months from this one: its first day, and the next month's.
fn month(today: NaiveDate, months: i64) -> Option<(NaiveDate, NaiveDate)> {
    let first = add_months(today.with_day(1)?, months)?;
    Some((first, first.checked_add_months(Months::new(1))?))
}

fn add_days(date: NaiveDate, days: i64) -> Option<NaiveDate> {
    let by = Days::new(days.unsigned_abs());
    if days < 0 { date.checked_sub_days(by) } else { date.checked_add_days(by) }
}

fn add_months(date: NaiveDate, months: i64) -> Option<NaiveDate> {
    let by = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
    if months < 0 { date.checked_sub_months(by) } else { date.checked_add_months(by) }
}

#[cfg(test)]
mod tests;
