//! Where dates come from. Small models add a date that nobody named ("tomorrow"), or another one than was said, and a to-do
//! under the wrong day is worse than one without: so a skill that changes something takes a date only where the user, the
//! context or a result of this conversation named it (invariant 20). What is not understood is not judged.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::LazyLock,
};

use serde::{Deserialize, Serialize};

use crate::{
    calendar::{MONTHS, WEEKDAYS},
    outcome::floor_char_boundary,
};

/// Dates that are remembered, as words; the smallest go first.
const WORDS_MAX: usize = 200;
/// The value that takes a date away.
const NONE: &str = "none";

/// What a call writes for days near by.
const NEAR: [&str; 2] = ["today", "tomorrow"];
/// Other words that mean one of [`WEEKDAYS`], in English and German; likewise the two lists below.
const WEEKDAYS_TOO: [&str; 7] = [
    "mon mondays montag montags",
    "tue tues tuesdays dienstag dienstags",
    "wed wednesdays mittwoch mittwochs",
    "thu thur thurs thursdays donnerstag donnerstags",
    "fri fridays freitag freitags",
    "sat saturdays samstag samstags sonnabend",
    "sun sundays sonntag sonntags",
];
const MONTHS_TOO: [&str; 12] = [
    "jan januar jänner",
    "feb februar",
    "mar märz",
    "apr",
    "mai",
    "jun juni",
    "jul juli",
    "aug",
    "sep sept",
    "oct oktober okt",
    "nov",
    "dec dezember dez",
];
const NEAR_TOO: [&str; 2] = ["tonight now asap immediately heute gleich sofort jetzt", "tmrw tomorrows morgen"];
/// Words that leave the day open.
const SPANS: &str = "day days week weeks weekend month months year years quarter fortnight hour hours minute minutes noon midday \
    midnight morning evening afternoon night eod eow eom eoy later soon christmas xmas easter holiday holidays birthday \
    deadline first second third fourth fifth tag tage tagen woche wochen wochenende monat monate monaten monats jahr jahre \
    jahres quartal stunde stunden minute minuten mittag mitternacht früh vormittag nachmittag abend nacht übermorgen \
    weihnachten ostern silvester ersten zweiten dritten";
/// Words that take a date away.
const WITHOUT: &str = "none no without remove clear drop unset off cancel ohne kein keine keinen entferne streiche";
/// Words behind the number of a time.
const TIMES: [&str; 7] = ["am", "pm", "a.m", "p.m", "uhr", "o'clock", "h"];
/// How much of a text is looked at, in bytes.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// Words by which a text is known to be English or German: only then is the absence of a date certain.
const KNOWN: &str = "the my and that with task tasks todo please remind remember this these buy need please add make note mark \
    und eine einen bitte ich mir mich meine meinen mein aufgabe für";

/// Dates that were named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dates {
    /// What the user's words of this turn say of a date.
    #[serde(default, skip_serializing_if = "is_not_judged")]
    said: Said,
    /// What they name, as calls write it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    now: BTreeSet<String>,
    /// What anything in this conversation named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    seen: BTreeSet<String>,
}

/// What words say of a date.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    /// Their language is not known.
    #[default]
    NotJudged,
    /// They name none.
    None,
    /// They name at least one.
    Some,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_not_judged(said: &Said) -> bool {
    matches!(said, Said::NotJudged)
}

/// A date in a call that nobody named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invented {
    /// The user named none.
    NoneNamed,
    /// The user named this one alone.
    NamedOther(String),
    /// The user named others.
    NamedOthers,
}

impl Dates {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes in what a turn that has ended had named.
    pub(super) fn learn(&mut self, other: &Self) {
        self.remember(other.seen.iter().cloned());
    }

    /// Takes in the user's words.
    pub(super) fn said(&mut self, text: &str) {
        let (named, is_known) = read(text);
        if named.iter().all(|word| word == NONE) {
            self.now.extend(named);
            if self.said == Said::NotJudged && is_known {
                self.said = Said::None;
            }
            return;
        }
        self.said = Said::Some;
        self.now.extend(named.iter().cloned());
        self.remember(named);
    }

    /// Takes in what was stored by others.
    pub(super) fn shown(&mut self, text: &str) {
        self.remember(read(text).0);
    }

    /// Remembers days: what "tomorrow" was in an earlier turn or in a result is another day by now.
    fn remember(&mut self, named: impl IntoIterator<Item = String>) {
        let lasts = |word: &String| {
            WEEKDAYS.contains(&word.as_str()) || MONTHS.contains(&word.as_str()) || iso_weekday(word).is_some()
        };
        self.seen.extend(named.into_iter().filter(lasts));
        while self.seen.len() > WORDS_MAX {
            self.seen.pop_first();
        }
    }

    /// Whether a date in a call was named.
    pub(super) fn check(&self, value: &str) -> Result<(), Invented> {
        if self.said == Said::NotJudged {
            return Ok(());
        }
        let value = value.trim().to_lowercase();
        let wanted = if value == NONE { [NONE.to_owned()].into() } else { read(&value).0 };
        let is_named = if wanted.is_empty() {
            self.said == Said::Some
        } else {
            wanted.iter().all(|word| self.now.contains(word) || self.seen.contains(word) || self.follows(word))
        };
        if is_named {
            return Ok(());
        }
        let mut days = self.now.iter().filter(|word| *word != NONE);
        Err(match (days.next(), days.next()) {
            (None, _) => Invented::NoneNamed,
            (Some(day), None) if is_day(day) => Invented::NamedOther(day.clone()),
            _ => Invented::NamedOthers,
        })
    }

    /// Whether a word of a call can follow from what the user said in other words: a day of a week from "next week", but not
    /// from another day.
    fn follows(&self, word: &str) -> bool {
        let of = |list: &[&str]| self.now.iter().any(|w| list.contains(&w.as_str()));
        let open = || self.now.iter().any(|w| w == SPAN || w == NUMBERS || iso_weekday(w).is_some());
        match word {
            NONE => false,
            SPAN | NUMBERS => self.said == Said::Some,
            _ if WEEKDAYS.contains(&word) => !of(&WEEKDAYS) && (open() || of(&NEAR) || of(&MONTHS)),
            _ if MONTHS.contains(&word) => !of(&MONTHS) && open(),
            _ if NEAR.contains(&word) => !of(&NEAR) && !of(&WEEKDAYS) && (open() || of(&MONTHS)),
            _ => match iso_weekday(word) {
                Some(day) => self.said == Said::Some && (open() || !of(&WEEKDAYS) || self.now.contains(day)),
                None => false,
            },
        }
    }
}

/// A span or a time, whichever.
const SPAN: &str = "span";
/// A date or time in numbers other than `2026-02-18`.
const NUMBERS: &str = "numbers";

/// What a word means.
#[derive(Clone, Copy)]
enum Meaning {
    /// A day or a month, as calls write it.
    Named(&'static str),
    Span,
    Without,
    Known,
}

static MEANINGS: LazyLock<HashMap<&'static str, Meaning>> = LazyLock::new(|| {
    let of = |words: &'static str, meaning| words.split_whitespace().map(move |word| (word, meaning));
    let lists = [(&WEEKDAYS[..], &WEEKDAYS_TOO[..]), (&MONTHS[..], &MONTHS_TOO[..]), (&NEAR[..], &NEAR_TOO[..])];
    let named = lists.into_iter().flat_map(|(names, more)| names.iter().zip(more));
    let all = of(KNOWN, Meaning::Known).chain(of(WITHOUT, Meaning::Without)).chain(of(SPANS, Meaning::Span));
    all.chain(named.flat_map(|(name, more)| of(name, Meaning::Named(name)).chain(of(more, Meaning::Named(name)))))
        .collect()
});

/// What a text names of dates: days and months as calls write them, `2026-02-18`, [`SPAN`], [`NUMBERS`] and [`NONE`]. And
/// whether it is known to be English or German.
fn read(text: &str) -> (BTreeSet<String>, bool) {
    let text = &text[..floor_char_boundary(text, TEXT_BYTES_MAX)];
    let (mut named, mut is_known, mut is_behind_number) = (BTreeSet::new(), false, false);
    for word in words(text) {
        let word = if word.bytes().any(|b| b.is_ascii_uppercase() || !b.is_ascii()) {
            Cow::Owned(word.to_lowercase())
        } else {
            Cow::Borrowed(word)
        };
        let is_number = word.len() <= 2 && word.parse::<u8>().is_ok();
        let is_time = std::mem::replace(&mut is_behind_number, is_number) && TIMES.contains(&&*word);
        match MEANINGS.get(&*word) {
            Some(Meaning::Named(day)) => drop(named.insert((*day).to_owned())),
            Some(Meaning::Span) => drop(named.insert(SPAN.to_owned())),
            Some(Meaning::Without) => drop(named.insert(NONE.to_owned())),
            Some(Meaning::Known) => is_known = true,
            None if is_time || is_in_numbers(&word) => drop(named.insert(NUMBERS.to_owned())),
            None => {
                if let Some(date) = word.get(..10).filter(|date| iso_weekday(date).is_some()) {
                    named.insert(date.to_owned());
                }
            }
        }
    }
    (named, is_known)
}

/// The words of a text; what joins the parts of a date or a time in numbers is part of a word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let joins = |c: char| matches!(c, '-' | '.' | '/' | ':');
    text.split(move |c: char| !(c.is_alphanumeric() || joins(c) || matches!(c, '+' | '\'')))
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '+'))
        .flat_map(move |word| {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '+');
            word.split(move |c| !is_number && joins(c)).filter(|part| !part.is_empty())
        })
}

/// `3.5.`, `14:05`, `5pm`, `3rd`, `+3d`, `3/5`.
fn is_in_numbers(word: &str) -> bool {
    let digits = word.trim_start_matches('+').chars().take_while(char::is_ascii_digit).count();
    let plus = word.starts_with('+');
    let rest = &word[digits + usize::from(plus)..];
    let is_joined = rest.starts_with(['.', '/', ':']) && rest[1..].starts_with(|c: char| c.is_ascii_digit());
    (1..=2).contains(&digits) && (is_joined || matches!(rest, "am" | "pm" | "st" | "nd" | "rd" | "th" | "h"))
        || (digits > 0 && plus && matches!(rest, "d" | "w" | "m" | "y" | "h"))
}

/// The weekday of a date like `2026-02-18`.
fn iso_weekday(date: &str) -> Option<&'static str> {
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return None;
    }
    let (year, month, day): (u32, usize, u32) = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    // Sakamoto's method: 0 is Sunday.
    let shift = *[0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4].get(month.checked_sub(1)?)?;
    let year = if month < 3 { year.checked_sub(1)? } else { year };
    let day = (year + year / 4 - year / 100 + year / 400 + shift + day) % 7;
    WEEKDAYS.get((day as usize + 6) % 7).copied()
}

/// Whether a word alone says which day is meant.
fn is_day(word: &str) -> bool {
    WEEKDAYS.contains(&word) || NEAR.contains(&word) || iso_weekday(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(said: &str, value: &str) -> Result<(), Invented> {
        let mut dates = Dates::default();
        dates.said(said);
        dates.check(value)
    }

    #[test]
    fn date_that_the_user_named_in_any_form_is_taken() {
        for (said, value) in [
            ("Remind me to see the dentist on Thursday", "thursday"),
            ("Remind me to see the dentist on Thursday", "2026-11-26"),
            ("Add a task: call Bob tomorrow at 5pm", "tomorrow 17:00"),
            ("Add a task for the 3rd of May", "2026-05-03"),
            ("Add a task for 3 May", "may 3rd"),
            ("Move task 2 to 3/5, please", "march 5"),
            ("Bitte eine Aufgabe für Donnerstag", "thursday"),
            ("Erstelle eine Aufgabe für übermorgen", "in 2 days"),
            ("Move the rent task to next week", "next monday"),
            ("Move the rent task to the end of the month", "end of month"),
            ("Add a task: call Bob at 14:00", "today 14:00"),
            ("Add a task: call Bob at 9 am", "today 9:00"),
            ("I need it in 3 days, add a task", "+3d"),
            ("Take the date off that task", "none"),
            ("Kup znaczki jutro", "tomorrow"),
            ("Comprar sellos mañana", "2026-11-23"),
        ] {
            assert_eq!(check(said, value), Ok(()), "{said}: {value}");
        }
    }

    #[test]
    fn date_that_nobody_named_is_known_as_such() {
        for (said, value, why) in [
            ("Create a task to buy stamps", "tomorrow", Invented::NoneNamed),
            ("Create a task to buy stamps", "2026-11-23", Invented::NoneNamed),
            ("Create a task to review PR 42", "+1w", Invented::NoneNamed),
            ("Erstelle eine Aufgabe: Fahrrad reparieren", "next friday", Invented::NoneNamed),
            ("Rename the bread task to Buy rye bread", "none", Invented::NoneNamed),
            ("I am done with the milk, and no other task", "tomorrow", Invented::NoneNamed),
            ("See the dentist on Thursday, please", "4th of November", Invented::NamedOther("thursday".into())),
            ("See the dentist on Thursday, please", "2026-11-27", Invented::NamedOther("thursday".into())),
            ("See the dentist on Thursday, please", "tomorrow", Invented::NamedOther("thursday".into())),
            ("The task is due today or on Friday", "monday", Invented::NamedOthers),
        ] {
            assert_eq!(check(said, value), Err(why), "{said}: {value}");
        }
    }

    #[test]
    fn date_of_a_result_or_an_earlier_turn_is_taken_and_a_confirmation_is_not_judged() {
        let mut dates = Dates::default();
        dates.said("I have to see the bank on Friday, and that is my only task");
        let mut next = Dates::default();
        next.learn(&dates);
        next.said("Add a task for that, please");
        assert_eq!(next.check("friday"), Ok(()));
        assert_eq!(next.check("monday"), Err(Invented::NoneNamed));
        next.shown("- #1 Send the parcel, due 2026-11-27 (tomorrow)");
        assert_eq!(next.check("2026-11-27"), Ok(()));
        assert_eq!(next.check("tomorrow"), Err(Invented::NoneNamed));
        let mut last = Dates::default();
        last.learn(&next);
        last.said("yes");
        assert_eq!(last.check("2026-11-30"), Ok(()));
    }

    #[test]
    fn weekdays_of_dates_are_right() {
        for (date, day) in [
            ("2026-11-22", "sunday"),
            ("2026-11-26", "thursday"),
            ("2024-02-29", "thursday"),
            ("2000-01-01", "saturday"),
        ] {
            assert_eq!(iso_weekday(date), Some(day), "{date}");
        }
        assert_eq!(iso_weekday("2026-13-01"), None);
        assert_eq!(iso_weekday("20-11-1"), None);
    }
}
