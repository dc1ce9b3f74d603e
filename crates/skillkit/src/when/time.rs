//! The time of day in a text: `14:00`, `2pm`, `2:30 pm`, `noon`, `morning`.

use annie_core::calendar::PARTS_OF_DAY;
use chrono::NaiveTime;

/// Separates the time from the words of the day, in any position. `None` if there are two times.
pub(super) fn take<'a>(words: &[&'a str]) -> Option<(Option<NaiveTime>, Vec<&'a str>)> {
    let mut found = None;
    let mut rest = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let next = words.get(at + 1).copied();
        let (time, len) = match next {
            Some(half @ ("am" | "pm" | "a.m." | "p.m.")) => {
                (clock(&format!("{}{}", words[at], half.replace('.', ""))), 2)
            }
            _ => (clock(words[at]).or_else(|| part_of_day(words[at])), 1),
        };
        match time {
            Some(_) if found.is_some() => return None,
            Some(time) => {
                found = Some(time);
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
    Some((found, rest))
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
