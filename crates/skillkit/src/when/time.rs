//! The time of day in a text: `14:00`, `2pm`, `2:30 pm`, `noon`, `morning`.

use annie_core::calendar::PARTS_OF_DAY;
use chrono::{NaiveTime, Timelike};

/// A time as it was written.
#[derive(Clone, Copy)]
enum Written {
    /// `14:00`, `2pm`.
    Clock(NaiveTime),
    /// The part of the day that begins at this time: `evening`.
    Part(NaiveTime),
}

/// Separates the time from the words of the day, in any position. `None` if there are two times that do not belong together:
/// `tonight 8:00` and `evening at 8pm` are one.
pub(super) fn take<'a>(words: &[&'a str]) -> Option<(Option<NaiveTime>, Vec<&'a str>)> {
    let mut found: Option<Written> = None;
    let mut rest = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let next = words.get(at + 1).copied();
        let (time, len) = match next {
            Some(half @ ("am" | "pm" | "a.m." | "p.m.")) => {
                (clock(&format!("{}{}", words[at], half.replace('.', ""))).map(Written::Clock), 2)
            }
            _ => {
                let is_minute = ["noon", "midday", "midnight"].contains(&words[at]);
                let part = || part_of_day(words[at]).map(if is_minute { Written::Clock } else { Written::Part });
                (clock(words[at]).map(Written::Clock).or_else(part), 1)
            }
        };
        match time {
            Some(time) => {
                found = Some(match found {
                    None => time,
                    Some(before) => Written::Clock(joined(before, time)?),
                });
                // "in the morning", "this evening", and "tonight" also imply a day.
                match rest.last().copied() {
                    Some("in") => drop(rest.pop()),
                    Some("this") => {
                        rest.pop();
                        rest.push("today");
                    }
                    _ if words[at] == "tonight" => rest.push("today"),
                    _ => {}
                }
                at += len;
            }
            None => {
                rest.push(words[at]);
                at += 1;
            }
        }
    }
    let found = found.map(|(Written::Clock(time) | Written::Part(time))| time);
    Some((found, rest))
}

/// The time that a part of a day and a clock name together; `None` if they contradict each other, or are two clocks.
fn joined(one: Written, other: Written) -> Option<NaiveTime> {
    let (part, clock) = match (one, other) {
        (Written::Part(part), Written::Clock(clock)) | (Written::Clock(clock), Written::Part(part)) => (part, clock),
        _ => return None,
    };
    let is_late = part.hour() >= 12;
    // The evening and the night begin at four here; an hour after midnight may belong to either of two days.
    let earliest_hour = if part.hour() >= 18 { 16 } else { 12 };
    let time = match clock.hour() {
        0..12 if is_late => clock.overflowing_add_signed(chrono::TimeDelta::hours(12)).0,
        _ => clock,
    };
    (if is_late { time.hour() >= earliest_hour } else { time.hour() < 12 }).then_some(time)
}

/// `14:00`, `14:00:30`, `2pm`, `2:30pm`.
fn clock(word: &str) -> Option<NaiveTime> {
    let (digits, half) = match word.strip_suffix("am") {
        Some(digits) => (digits, Some(0)),
        None => word.strip_suffix("pm").map_or((word, None), |digits| (digits, Some(12))),
    };
    let parts: Vec<u32> = digits.split(':').map(|d| number(d, 2)).collect::<Option<_>>()?;
    let (hour, minute) = match (parts.as_slice(), half) {
        ([hour], Some(_)) => (*hour, 0),
        ([hour, minute] | [hour, minute, _], _) => (*hour, *minute),
        _ => return None,
    };
    match half {
        None => NaiveTime::from_hms_opt(hour, minute, 0),
        Some(shift) if (1..=12).contains(&hour) => NaiveTime::from_hms_opt(hour % 12 + shift, minute, 0),
        Some(_) => None,
    }
}

/// The hour at which a part of the day begins.
fn part_of_day(word: &str) -> Option<NaiveTime> {
    let (_, hour) = PARTS_OF_DAY.iter().find(|(name, _)| *name == word)?;
    NaiveTime::from_hms_opt(*hour, 0, 0)
}

/// A number of at most `digits_max` digits.
pub(super) fn number(word: &str, digits_max: usize) -> Option<u32> {
    let fits = (1..=digits_max).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| word.parse().ok()).flatten()
}
