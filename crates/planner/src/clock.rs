//! Reads times of day and spans of time that are said in words: `half past six in the evening`, `at 8 at night`, `in half an hour`.

use annie_core::calendar::NUMBERS;

use super::text::Word;

/// Result of a reader: the text in a format that skills read, and the number of its words.
type Found = Option<(String, usize)>;

const HOUR_MINUTES: u32 = 60;
/// Minutes before or after an hour that are said as a word.
const MINUTES: [(&str, u32); 5] = [("half", 30), ("quarter", 15), ("five", 5), ("ten", 10), ("twenty", 20)];

/// The part of the day that words around a time name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Morning,
    Afternoon,
    Evening,
    Night,
}

/// A time relative to an hour: `quarter to five`.
struct Said {
    is_to: bool,
    minutes: u32,
    hour: u32,
    /// The index of the first word after it.
    end: usize,
}

impl Said {
    fn in_half(&self, half: Option<Half>) -> Option<String> {
        // A quarter to twelve in the morning is before noon.
        let is_noon = self.is_to && self.hour == 12 && half == Some(Half::Morning);
        let hour = if is_noon { 12 } else { in_half(self.hour, half)? };
        let of_day = hour * HOUR_MINUTES;
        let of_day = if self.is_to { of_day.checked_sub(self.minutes)? } else { of_day + self.minutes };
        Some(clock(of_day))
    }
}

/// A time of day at this word: `half past six`, `a quarter to five`, `ten past 9 in the evening`. If `is_time`, because `at` or a day
/// precedes it, also a bare hour with a part of the day: `8 in the evening`.
pub(super) fn time(words: &[Word], at: usize, is_time: bool) -> Found {
    past_or_to(words, at, is_time)
        .or_else(|| with_half(words, at, is_time))
        .or_else(|| part_then_clock(words, at, is_time))
}

/// The time of a day whose words name a part of it: `tonight` and `8:00` are `20:00`.
pub(super) fn in_part_of(day: &str, time: &str) -> Option<String> {
    let is_late = ["tonight", "evening", "afternoon", "night"].iter().any(|part| day.ends_with(part));
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    let is_half = is_late && (4..12).contains(&hour) && minute < HOUR_MINUTES;
    is_half.then(|| clock((hour + 12) * HOUR_MINUTES + minute))
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

fn past_or_to(words: &[Word], at: usize, is_time: bool) -> Found {
    let said = said(words, at, is_time)?;
    let (half, len) = half_of_day(words, said.end);
    Some((said.in_half(half)?, said.end + len - at))
}

fn said(words: &[Word], at: usize, is_time: bool) -> Option<Said> {
    let mut n = at + usize::from(is(words, at, &["a"]) && is(words, at + 1, &["quarter"]));
    let lower = words.get(n).filter(|w| !w.quoted)?.lower.as_str();
    let spelled = MINUTES.iter().find(|(word, _)| *word == lower).map(|(_, minutes)| *minutes);
    let minutes = spelled.or_else(|| lower.parse().ok().filter(|minutes| (1..HOUR_MINUTES).contains(minutes)))?;
    n += 1;
    n += usize::from(is(words, n, &["minutes"]));
    let is_to = is(words, n, &["to", "till"]);
    if !is_to && !is(words, n, &["past", "after"]) {
        return None;
    }
    let hour = words.get(n + 1).filter(|w| !w.quoted).and_then(|w| count(&w.lower)).filter(|h| (1..=12).contains(h))?;
    // `give half to six people` is no time, and `half past six` is one anywhere.
    let is_plain = !is_to && ["half", "quarter"].contains(&lower);
    let is_led = at.checked_sub(1).is_some_and(|before| is(words, before, &["at", "until", "by", "for"]));
    (is_plain || is_time || is_led).then_some(Said { is_to, minutes, hour, end: n + 2 })
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
    let hour = in_half(hour, Some(half)).filter(|_| is_ambiguous)?;
    Some((clock(hour * HOUR_MINUTES + minute), 1 + len))
}

/// `evening at 8`, `morning at half past six`, `evening at 8pm`, behind a day.
fn part_then_clock(words: &[Word], at: usize, is_time: bool) -> Found {
    let half = match words.get(at).filter(|w| is_time && !w.quoted)?.lower.as_str() {
        "morning" => Half::Morning,
        "afternoon" => Half::Afternoon,
        "evening" => Half::Evening,
        "night" => Half::Night,
        _ => return None,
    };
    if !is(words, at + 1, &["at"]) {
        return None;
    }
    if let Some(said) = said(words, at + 2, true) {
        return Some((said.in_half(Some(half))?, said.end - at));
    }
    let word = words.get(at + 2).filter(|w| !w.quoted)?.lower.as_str();
    if word.starts_with(|c: char| c.is_ascii_digit()) && (word.ends_with("am") || word.ends_with("pm")) {
        return Some((word.to_owned(), 3));
    }
    let (hour, minute) = match word.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (hour.parse().ok()?, minute.parse().ok()?),
        Some(_) => return None,
        None => (count(word)?, 0),
    };
    let hour = in_half(hour, Some(half)).filter(|_| (1..=12).contains(&hour) && minute < HOUR_MINUTES)?;
    Some((clock(hour * HOUR_MINUTES + minute), 3))
}

/// `in the morning`, `in the evening`, `at night`, and the number of these words.
fn half_of_day(words: &[Word], at: usize) -> (Option<Half>, usize) {
    let part = if is(words, at, &["in"]) && is(words, at + 1, &["the"]) { at + 2 } else { at };
    if part > at && is(words, part, &["morning"]) || is(words, at, &["am"]) {
        return (Some(Half::Morning), part + 1 - at);
    }
    if part > at && is(words, part, &["afternoon"]) || is(words, at, &["pm"]) {
        return (Some(Half::Afternoon), part + 1 - at);
    }
    if part > at && is(words, part, &["evening"]) {
        return (Some(Half::Evening), part + 1 - at);
    }
    if is(words, at, &["at"]) && is(words, at + 1, &["night"]) {
        return (Some(Half::Night), 2);
    }
    (None, 0)
}

/// The hour from 0 to 23. One to six alone mean the afternoon, because people rarely mean five in the morning. Midnight has no hour
/// here: it may belong to either of two days.
const fn in_half(hour: u32, half: Option<Half>) -> Option<u32> {
    match (half, hour) {
        (Some(Half::Morning), 12) => Some(0),
        (Some(Half::Afternoon), 1..=11)
        | (Some(Half::Evening), 4..=11)
        | (Some(Half::Night), 6..=11)
        | (None, 0..=6) => Some(hour + 12),
        (Some(Half::Evening), _) | (Some(Half::Night), 12..) => None,
        (Some(Half::Morning | Half::Afternoon | Half::Night) | None, _) => Some(hour),
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
