//! Reads times of day and spans of time that are said in words: `half past six in the evening`, `at 8 at night`, `in half an hour`.

use annie_core::calendar::NUMBERS;

use super::text::Word;

/// Result of a reader: the text in a format that skills read, and the number of its words.
type Found = Option<(String, usize)>;

const HOUR_MINUTES: u32 = 60;
/// Minutes before or after an hour that are said as a word.
const MINUTES: [(&str, u32); 5] = [("half", 30), ("quarter", 15), ("five", 5), ("ten", 10), ("twenty", 20)];

/// The half of the day that words behind a time name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Morning,
    Later,
}

/// A time of day at this word: `half past six`, `a quarter to five`, `ten past 9 in the evening`. If `is_time`, because `at` or a day
/// precedes it, also a bare hour with a part of the day: `8 in the evening`.
pub(super) fn time(words: &[Word], at: usize, is_time: bool) -> Found {
    past_or_to(words, at).or_else(|| with_half(words, at, is_time)).or_else(|| part_then_clock(words, at, is_time))
}

/// The time of a day whose words name a part of it: `tonight` and `8:00` are `20:00`.
pub(super) fn in_part_of(day: &str, time: &str) -> Option<String> {
    let is_late = ["tonight", "evening", "afternoon", "night"].iter().any(|part| day.ends_with(part));
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    (is_late && (1..12).contains(&hour) && minute < HOUR_MINUTES)
        .then(|| clock(in_half(hour, Some(Half::Later)) * HOUR_MINUTES + minute))
}

/// `in half an hour`, `in 1.5 hours`, `in an hour and a half`, `in two and a half hours`, `in a couple of days`.
pub(super) fn span(words: &[Word], at: usize) -> Found {
    if !is(words, at, &["in"]) {
        return None;
    }
    let n = at + 1;
    let minutes = |minutes: u32, len: usize| Some((format!("in {minutes} minutes"), len + 1));
    let is_hour = |n: usize| is(words, n, &["hour", "hours", "hr", "hrs"]);
    if is(words, n, &["half"]) && is(words, n + 1, &["an", "a"]) && is_hour(n + 2) {
        return minutes(30, 3);
    }
    let article = usize::from(is(words, n, &["a", "an"]));
    if is(words, n + article, &["quarter"]) && is(words, n + article + 1, &["of"]) && is_hour(n + article + 3) {
        return minutes(15, article + 4);
    }
    if article == 1 && is(words, n + 1, &["couple"]) && is(words, n + 2, &["of"]) {
        let unit = words.get(n + 3).filter(|unit| super::dates::is_unit(&unit.lower))?;
        return Some((format!("in 2 {}", unit.lower), 5));
    }
    let half_behind = |n: usize| is(words, n, &["and"]) && is(words, n + 1, &["a"]) && is(words, n + 2, &["half"]);
    let whole = words.get(n).and_then(|word| if article == 1 { Some(1) } else { count(&word.lower) });
    if let Some(whole) = whole.filter(|whole| *whole < 1_000) {
        if is_hour(n + 1) && half_behind(n + 2) {
            return minutes(whole * HOUR_MINUTES + 30, 5);
        }
        if half_behind(n + 1) && is_hour(n + 4) {
            return minutes(whole * HOUR_MINUTES + 30, 5);
        }
    }
    let (whole, part) = words.get(n)?.lower.split_once('.')?;
    let is_decimal = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if !is_decimal(whole) || !is_decimal(part) || !is_hour(n + 1) {
        return None;
    }
    let hundredths = part.parse::<u32>().ok()? * if part.len() == 1 { 10 } else { 1 };
    minutes(whole.parse::<u32>().ok()? * HOUR_MINUTES + hundredths * HOUR_MINUTES / 100, 2)
}

fn past_or_to(words: &[Word], at: usize) -> Found {
    let mut n = at + usize::from(is(words, at, &["a"]) && is(words, at + 1, &["quarter"]));
    let lower = words.get(n).filter(|w| !w.quoted)?.lower.as_str();
    let said = MINUTES.iter().find(|(word, _)| *word == lower).map(|(_, minutes)| *minutes);
    let minutes = said.or_else(|| lower.parse().ok().filter(|minutes| (1..HOUR_MINUTES).contains(minutes)))?;
    n += 1;
    n += usize::from(is(words, n, &["minutes"]));
    let is_to = is(words, n, &["to", "till"]);
    if !is_to && !is(words, n, &["past", "after"]) {
        return None;
    }
    let hour = words.get(n + 1).filter(|w| !w.quoted).and_then(|w| count(&w.lower)).filter(|h| (1..=12).contains(h))?;
    // `give 5 to 3 people` is no time.
    if said.is_none() && !is(words, at.checked_sub(1)?, &["at", "until", "by", "for"]) {
        return None;
    }
    let (half, len) = half_of_day(words, n + 2);
    let hour = in_half(hour, half);
    let of_day = if is_to { hour * HOUR_MINUTES - minutes } else { hour * HOUR_MINUTES + minutes };
    Some((clock(of_day), n + 2 + len - at))
}

/// A clock time or a bare hour with a part of the day behind it.
fn with_half(words: &[Word], at: usize, is_time: bool) -> Found {
    let word = words.get(at).filter(|w| !w.quoted)?.lower.as_str();
    // `2 pm` is a time that skills read.
    if is(words, at + 1, &["am", "pm"]) {
        return None;
    }
    let (Some(half), len) = half_of_day(words, at + 1) else { return None };
    let (hour, minute) = match word.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (hour.parse().ok()?, minute.parse().ok()?),
        Some(_) => return None,
        None if is_time => (count(word)?, 0),
        None => return None,
    };
    let is_ambiguous = (1..=12).contains(&hour) && minute < HOUR_MINUTES;
    is_ambiguous.then(|| (clock(in_half(hour, Some(half)) * HOUR_MINUTES + minute), 1 + len))
}

/// `evening at 8`, `morning at 6:30`, behind a day.
fn part_then_clock(words: &[Word], at: usize, is_time: bool) -> Found {
    let half = match words.get(at).filter(|w| is_time && !w.quoted)?.lower.as_str() {
        "morning" => Half::Morning,
        "afternoon" | "evening" | "night" => Half::Later,
        _ => return None,
    };
    if !is(words, at + 1, &["at"]) {
        return None;
    }
    let word = words.get(at + 2).filter(|w| !w.quoted)?.lower.as_str();
    let (hour, minute) = match word.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (hour.parse().ok()?, minute.parse().ok()?),
        Some(_) => return None,
        None => (count(word)?, 0),
    };
    ((1..=12).contains(&hour) && minute < HOUR_MINUTES)
        .then(|| (clock(in_half(hour, Some(half)) * HOUR_MINUTES + minute), 3))
}

/// `in the morning`, `in the evening`, `at night`, and the number of these words.
fn half_of_day(words: &[Word], at: usize) -> (Option<Half>, usize) {
    let part = if is(words, at, &["in"]) && is(words, at + 1, &["the"]) { at + 2 } else { at };
    if part > at && is(words, part, &["morning"]) || is(words, at, &["am"]) {
        return (Some(Half::Morning), part + 1 - at);
    }
    if part > at && is(words, part, &["afternoon", "evening"]) || is(words, at, &["pm"]) {
        return (Some(Half::Later), part + 1 - at);
    }
    if is(words, at, &["at"]) && is(words, at + 1, &["night"]) {
        return (Some(Half::Later), 2);
    }
    (None, 0)
}

/// The hour from 0 to 24. One to six alone mean the afternoon, because people rarely mean five in the morning.
const fn in_half(hour: u32, half: Option<Half>) -> u32 {
    match half {
        Some(Half::Morning) if hour == 12 => 0,
        Some(Half::Morning) => hour,
        Some(Half::Later) if hour < 12 => hour + 12,
        None if hour <= 6 => hour + 12,
        Some(Half::Later) | None => hour,
    }
}

/// Minutes of a day as `18:30`.
fn clock(of_day: u32) -> String {
    format!("{}:{:02}", of_day / HOUR_MINUTES % 24, of_day % HOUR_MINUTES)
}

fn count(word: &str) -> Option<u32> {
    let spelled = || NUMBERS.iter().position(|n| *n == word).and_then(|n| u32::try_from(n + 1).ok());
    if word.len() <= 3 { word.parse().ok().or_else(spelled) } else { spelled() }
}

fn is(words: &[Word], at: usize, any: &[&str]) -> bool {
    words.get(at).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()))
}
