//! Times of schedules in words: rules over English, no model. A text with a word that no rule knows is refused, because a
//! schedule that runs at a guessed time is worse than a question.

use super::ScheduleError;
use crate::calendar::{MONTHS, NUMBERS, PARTS_OF_DAY, UNITS, WEEKDAYS};

/// The hour of a schedule whose words name days and no time.
const DEFAULT_HOUR: u32 = 9;
/// Spellings of the ordinals from 1; later ones are written with digits.
const ORDINALS: [&str; 10] =
    ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];
/// Words without a meaning of their own.
const FILLERS: [&str; 8] = ["and", "on", "the", "of", "in", "o'clock", "a", "per"];

/// What the words name.
#[derive(Debug, Default)]
struct Named {
    /// `every`, or another word that says that there are several occurrences.
    recurs: bool,
    is_daily: bool,
    is_weekly: bool,
    is_monthly: bool,
    is_yearly: bool,
    /// In cron's numbers: 0 is Sunday.
    weekdays: Vec<usize>,
    days_of_month: Vec<String>,
    months: Vec<usize>,
    /// Each so many minutes or hours.
    step: Option<(Unit, u32)>,
    times: Vec<Time>,
    /// A part of the day, with the hour at which it begins.
    part: Option<(&'static str, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Minute,
    Hour,
}

#[derive(Debug, Clone, Copy)]
struct Time {
    hour: u32,
    minute: u32,
    /// Whether the words say which half of the day is meant, such as `8pm`, `noon` and `18:00`.
    is_exact: bool,
}

/// The cron expression of words such as `every weekday at 8`, with five fields.
///
/// # Errors
/// If the words name no recurring time, or contain something else.
pub(super) fn to_cron(text: &str) -> Result<String, ScheduleError> {
    let text = text.to_lowercase().replace([',', ';'], " and ");
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_end_matches(['.', '!'])).collect();
    let mut named = Named::default();
    let mut rest = words.as_slice();
    while let Some((word, after)) = rest.split_first() {
        rest = named.read(word, after).ok_or_else(|| not_understood(word))??;
    }
    named.cron()
}

fn not_understood(word: &str) -> ScheduleError {
    ScheduleError::When(format!(
        "`{word}` is not understood as a time of a schedule: say for example `every day at 7:30`, `every weekday at 8`, \
         `every monday and thursday at 18:00`, `every hour`, `on the first of the month at 9`, or a cron expression such as \
         `0 8 * * MON-FRI`"
    ))
}

fn refused(why: &str) -> ScheduleError {
    ScheduleError::When(why.to_owned())
}

/// The words after those that were read; `None` if the word has no meaning here.
type Read<'a> = Option<Result<&'a [&'a str], ScheduleError>>;

impl Named {
    fn read<'a>(&mut self, word: &str, after: &'a [&'a str]) -> Read<'a> {
        match word {
            "every" | "each" => return self.read_every(after),
            "at" => {
                let (time, after) = time_of(after)?;
                self.times.push(time);
                return Some(Ok(after));
            }
            "hourly" => self.step = Some((Unit::Hour, 1)),
            "daily" => (self.recurs, self.is_daily) = (true, true),
            "weekly" => (self.recurs, self.is_weekly) = (true, true),
            "monthly" | "month" => (self.recurs, self.is_monthly) = (true, true),
            "yearly" | "annually" => (self.recurs, self.is_yearly) = (true, true),
            "day" | "days" => self.is_daily = true,
            "week" => self.is_weekly = true,
            "year" => self.is_yearly = true,
            "weekday" | "workday" => self.weekdays.extend(1..=5),
            "weekdays" | "workdays" => (self.recurs, self.weekdays) = (true, vec![1, 2, 3, 4, 5]),
            "weekend" | "weekends" => {
                self.recurs |= word.ends_with('s');
                self.weekdays.extend([6, 0]);
            }
            word if FILLERS.contains(&word) => {}
            _ => return self.read_name(word, after),
        }
        Some(Ok(after))
    }

    /// What follows `every`: a number of minutes or hours, or the name of days.
    fn read_every<'a>(&mut self, after: &'a [&'a str]) -> Read<'a> {
        self.recurs = true;
        let counted = after.split_first().and_then(|(word, after)| Some((number(word)?, after)));
        let (count, unit, rest) = match counted {
            Some((count, after)) => (count, after.first()?, after.get(1..)?),
            None => (1, after.first()?, after.get(1..)?),
        };
        let step = match *unit {
            "other" | "second" if counted.is_none() && !rest.is_empty() => {
                let why =
                    "every second day or week cannot be said: name the days, such as `every monday and thursday at 8`";
                return Some(Err(refused(why)));
            }
            "second" | "seconds" | "sec" | "secs" => {
                return Some(Err(ScheduleError::TooOften { interval_ms: u64::from(count).saturating_mul(1_000) }));
            }
            unit if UNITS[0].contains(&unit) => Unit::Minute,
            unit if UNITS[1].contains(&unit) => Unit::Hour,
            _ if counted.is_none() => return Some(Ok(after)),
            _ => return Some(Err(refused("only minutes and hours can be counted, such as `every 15 minutes`"))),
        };
        self.step = Some((step, count));
        Some(Ok(rest))
    }

    /// A weekday, a month, a day of the month, a part of the day, or a time without `at`.
    fn read_name<'a>(&mut self, word: &str, after: &'a [&'a str]) -> Read<'a> {
        if let Some((day, is_plural)) = weekday(word) {
            self.recurs |= is_plural;
            let last = after.split_first().filter(|(word, _)| matches!(**word, "to" | "through" | "until" | "-"));
            let Some((_, ends)) = last else {
                self.weekdays.push(day);
                return Some(Ok(after));
            };
            let (last, after) = ends.split_first()?;
            let (last, _) = weekday(last)?;
            self.recurs = true;
            self.weekdays.extend((0..7).map(|n| (day + n) % 7).take((last + 7 - day) % 7 + 1));
            return Some(Ok(after));
        }
        if let Some(month) =
            MONTHS.iter().position(|month| *month == word || (word.len() == 3 && month.starts_with(word)))
        {
            self.months.push(month + 1);
            let Some((day, after)) = after.split_first().and_then(|(day, after)| Some((day_of_month(day)?, after)))
            else {
                return Some(Ok(after));
            };
            self.days_of_month.push(day);
            return Some(Ok(after));
        }
        if let Some(day) = ordinal(word) {
            self.days_of_month.push(day);
            return Some(Ok(after));
        }
        let part = PARTS_OF_DAY.iter().find(|(part, _)| *part == word || word.strip_suffix('s') == Some(*part));
        if let Some(&(part, hour)) = part.filter(|(part, _)| !matches!(*part, "noon" | "midday" | "midnight")) {
            self.part = Some((part, hour));
            self.is_daily |= self.weekdays.is_empty() && self.days_of_month.is_empty();
            return Some(Ok(after));
        }
        let (time, after) = timed(word, after)?;
        // A bare number is a time only behind `at` or behind another time.
        if !time.is_exact && !word.contains(':') && self.times.is_empty() {
            return None;
        }
        self.times.push(time);
        Some(Ok(after))
    }

    fn cron(mut self) -> Result<String, ScheduleError> {
        self.weekdays.sort_unstable();
        self.weekdays.dedup();
        let weekdays = if self.weekdays.is_empty() { "*".to_owned() } else { list(&self.weekdays) };
        if let Some((unit, count)) = self.step {
            return self.steps(unit, count, &weekdays);
        }
        if !self.recurs {
            return Err(refused("this names no recurring time: begin with `every`, such as `every monday at 8`"));
        }
        let times = self.time_fields()?;
        let days = (!self.weekdays.is_empty(), !self.days_of_month.is_empty(), !self.months.is_empty());
        match days {
            (true, false, false) if !self.is_monthly && !self.is_yearly => Ok(format!("{times} * * {weekdays}")),
            (false, true, false) if !self.is_weekly && !self.is_yearly => {
                Ok(format!("{times} {} * *", self.days_of_month.join(",")))
            }
            (false, true, true) if !self.is_weekly && !self.is_monthly => {
                Ok(format!("{times} {} {} *", self.days_of_month.join(","), list(&self.months)))
            }
            (false, false, false) if self.is_daily && !self.is_weekly && !self.is_monthly && !self.is_yearly => {
                Ok(format!("{times} * * *"))
            }
            _ => Err(refused(
                "this does not say on which days: name weekdays (`every friday`), days of the month (`on the 15th of the \
                 month`) or a date (`every year on march 3`)",
            )),
        }
    }

    fn steps(&self, unit: Unit, count: u32, weekdays: &str) -> Result<String, ScheduleError> {
        let is_alone = self.times.is_empty() && self.days_of_month.is_empty() && self.months.is_empty();
        if !is_alone || self.part.is_some() || self.is_weekly || self.is_monthly || self.is_yearly {
            return Err(refused("a schedule each so many minutes or hours has no other times: leave them out"));
        }
        let of = if unit == Unit::Minute { 60 } else { 24 };
        if count == 0 || count > of || of % count != 0 {
            return Err(refused(
                "the steps must divide the hour or the day evenly, such as `every 15 minutes` or `every 6 hours`",
            ));
        }
        let step = if count == 1 { "*".to_owned() } else { format!("*/{count}") };
        Ok(match (unit, count == of) {
            (Unit::Minute, false) => format!("{step} * * * {weekdays}"),
            (Unit::Minute, true) => format!("0 * * * {weekdays}"),
            (Unit::Hour, false) => format!("0 {step} * * {weekdays}"),
            (Unit::Hour, true) => format!("0 0 * * {weekdays}"),
        })
    }

    /// Minute and hours.
    fn time_fields(&self) -> Result<String, ScheduleError> {
        let is_late = matches!(self.part, Some(("afternoon" | "evening" | "tonight" | "night", _)));
        let mut hours = Vec::new();
        for time in &self.times {
            let is_after_noon = is_late && !time.is_exact && (1..12).contains(&time.hour);
            hours.push(if is_after_noon { time.hour + 12 } else { time.hour });
        }
        let minute = self.times.first().map_or(0, |time| time.minute);
        if self.times.iter().any(|time| time.minute != minute) {
            return Err(refused("times with different minutes need a schedule each"));
        }
        if hours.is_empty() {
            hours.push(self.part.map_or(DEFAULT_HOUR, |(_, hour)| hour));
        }
        hours.sort_unstable();
        hours.dedup();
        Ok(format!("{minute} {}", list(&hours)))
    }
}

fn list<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn number(word: &str) -> Option<u32> {
    let named = || NUMBERS.iter().position(|name| *name == word).and_then(|n| u32::try_from(n + 1).ok());
    word.parse().ok().or_else(named)
}

/// A weekday in cron's numbers, and whether the word is a plural, which says that it recurs.
fn weekday(word: &str) -> Option<(usize, bool)> {
    let is_short = |name: &str| word.len() >= 3 && word.len() <= 5 && name.starts_with(word);
    let at = |found: usize| (found + 1) % 7;
    if let Some(found) = WEEKDAYS.iter().position(|name| *name == word || is_short(name)) {
        return Some((at(found), false));
    }
    let single = word.strip_suffix('s')?;
    WEEKDAYS.iter().position(|name| *name == single).map(|found| (at(found), true))
}

/// `first`, `15th`, `last`.
fn ordinal(word: &str) -> Option<String> {
    if word == "last" {
        return Some("L".to_owned());
    }
    let named = ORDINALS.iter().position(|name| *name == word).map(|n| n + 1);
    let digits = || ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(*end))?.parse().ok();
    named.or_else(digits).filter(|day: &usize| (1..=31).contains(day)).map(|day| day.to_string())
}

/// A day behind the name of a month: also a plain number.
fn day_of_month(word: &str) -> Option<String> {
    let plain = || word.parse().ok().filter(|day: &u32| (1..=31).contains(day)).map(|day| day.to_string());
    ordinal(word).or_else(plain)
}

/// Whether it is the second half of the day.
fn half_of(word: &str) -> Option<bool> {
    match word {
        "am" | "a.m" => Some(false),
        "pm" | "p.m" => Some(true),
        _ => None,
    }
}

fn time_of<'a>(words: &'a [&'a str]) -> Option<(Time, &'a [&'a str])> {
    let (word, after) = words.split_first()?;
    timed(word, after)
}

/// `8`, `8:30`, `8am`, `8 pm`, `18:00`, `noon`, `midnight`.
fn timed<'a>(word: &str, after: &'a [&'a str]) -> Option<(Time, &'a [&'a str])> {
    let exactly = |hour| Some((Time { hour, minute: 0, is_exact: true }, after));
    match word {
        "noon" | "midday" => return exactly(12),
        "midnight" => return exactly(0),
        _ => {}
    }
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '.');
    let (half, after) = match (&word[digits.len()..], after.split_first()) {
        ("", Some((next, rest))) if half_of(next).is_some() => (half_of(next), rest),
        ("", _) => (None, after),
        (end, _) => (Some(half_of(end)?), after),
    };
    let (hour, minute): (&str, u32) = match digits.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (hour, minute.parse().ok()?),
        Some(_) => return None,
        None => (digits, 0),
    };
    let hour: u32 = Some(hour).filter(|hour| hour.len() <= 2)?.parse().ok()?;
    let hour = match half {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(is_pm) => hour % 12 + if is_pm { 12 } else { 0 },
        None => hour,
    };
    let is_exact = half.is_some() || hour > 12 || hour == 0;
    (hour < 24 && minute < 60).then_some((Time { hour, minute, is_exact }, after))
}
