//! The provenance of dates. Small models add a date that was not named ("tomorrow"), or another date than the user named, and a
//! to-do with a wrong date is worse than one without. So a skill that changes something accepts a date only if the user, the
//! context or a result of this conversation named it (invariant 20). Words that are not understood are not judged.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
    sync::LazyLock,
};

use serde::{Deserialize, Serialize};

use crate::{
    calendar::{MONTHS, NUMBERS as NUMBER_WORDS, PARTS_OF_DAY, UNITS, WEEKDAYS},
    outcome::floor_char_boundary,
};

/// How many dates are remembered, as words; the lexicographically smallest are evicted first.
const WORDS_MAX: usize = 200;
/// The argument value that removes a date.
const NONE: &str = "none";

/// The words that calls use for near days.
const NEAR: [&str; 2] = ["today", "tomorrow"];
/// Other English and German words that mean one of [`WEEKDAYS`]. The two lists below do the same for months and near days.
const WEEKDAYS_TOO: [&str; 7] = [
    "mondays montag montags",
    "tuesdays dienstag dienstags",
    "wednesdays mittwoch mittwochs",
    "thursdays donnerstag donnerstags",
    "fridays freitag freitags",
    "saturdays samstag samstags sonnabend",
    "sundays sonntag sonntags",
];
const MONTHS_TOO: [&str; 12] =
    ["januar jänner", "februar", "märz", "", "", "juni", "juli", "", "", "oktober", "", "dezember"];
const NEAR_TOO: [&str; 2] = ["heute", "tmrw tomorrows"];
/// Words that mean one of [`WEEKDAYS`] or something else ("mon médecin", "sun cream"). They allow every date and exclude none.
/// The two lists below do the same for months and near days.
const WEEKDAYS_MAYBE: [&str; 7] = ["mon", "tue tues", "wed weds", "thu thur thurs", "fri", "sat", "sun"];
const MONTHS_MAYBE: [&str; 12] =
    ["jan", "feb", "march mar", "apr", "may mai", "jun", "jul", "aug", "sep sept", "oct okt", "nov", "dec dez"];
const NEAR_MAYBE: [&str; 2] = ["now asap immediately gleich sofort jetzt", "morgen"];
/// Words for a date or a time that do not name the day.
const SPANS: &str = "yesterday thanksgiving halloween gestern vorgestern weekend weekday weekdays quarter fortnight eod eow eom eoy eve later soon christmas xmas easter holiday \
    holidays birthday deadline breakfast lunch lunchtime dinner supper bedtime daily weekly monthly yearly annually every before \
    after until till first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth \
    twentieth thirtieth tag tage tagen täglich \
    woche wochen wochenende wöchentlich monat monate monaten monats monatlich jahr jahre jahres quartal stunde stunden minuten \
    mittag mittags mitternacht früh vormittag nachmittag abend abends nacht nachts übermorgen nachher später vor nach bis \
    weihnachten ostern silvester ersten zweiten dritten vierten fünften sechsten siebten siebenten achten neunten \
    zehnten elften zwölften dreizehnten vierzehnten fünfzehnten sechzehnten siebzehnten achtzehnten neunzehnten zwanzigsten dreißigsten";
/// Words that remove a date.
const WITHOUT: &str = "none no without remove clear drop unset off cancel ohne kein keine keinen entferne streiche";
/// Words for the date of a thing. If one of them is present, any wording may mean that the date is removed.
const DUES: &str = "due date dates datum fällig fälligkeit frist";
/// Words after the number of a time.
const TIMES: [&str; 7] = ["am", "pm", "a.m", "p.m", "uhr", "o'clock", "h"];
/// Words before the number of a time or a day, whatever follows the number.
const BEFORE_NUMBER: &str =
    "at by on in around about past to from until till before after um gegen ab bis am vor nach zum";
/// Words between a word of [`BEFORE_NUMBER`] and the number.
const ARTICLES: &str = "the den dem der";
/// Spelled-out numbers of a time or a day, in addition to [`calendar::NUMBERS`].
const NUMBERS_TOO: &str =
    "half quarter ein eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf halb viertel";
/// How much of a text's beginning, and of its end, is read, in bytes: a request stands before or after pasted text.
const END_BYTES_MAX: usize = 16 * 1024;
/// Words that only English and German have. Two of them identify the language, so that the absence of a date is certain. A
/// single one may be a name or a loanword.
const KNOWN: &str = "the my and that with this these those please remind remember need for from you your it is are buy create \
    review should would could which und eine einen bitte ich mir mich meine meinen mein aufgabe für erstelle";
/// English words that other languages borrow. Two of them together with one of [`KNOWN`] identify the language.
const WEAK: &str = "add new task todo list high low priority finish call make get mark put set up of";
/// For this many turns a date that the user named also counts, unless the user names another date: "yes, please add it".
const LAST_TURNS_MAX: u8 = 2;

/// The dates that were named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dates {
    /// Whether the user's words of this turn name a date.
    #[serde(default, skip_serializing_if = "is_not_judged")]
    names_date: NamesDates,
    /// The dates that these words name, as calls write them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    now: BTreeSet<String>,
    /// The dates that the user named in the last turn that named any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    last: BTreeSet<String>,
    /// How many turns ago that turn was.
    #[serde(default, skip_serializing_if = "is_zero")]
    last_turns: u8,
    /// The dates that any text of this conversation named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    seen: BTreeSet<String>,
}

/// Whether words name a date.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NamesDates {
    /// The language of the words is not known.
    #[default]
    NotJudged,
    /// The words name no date.
    None,
    /// The words name at least one date.
    Some,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_not_judged(names: &NamesDates) -> bool {
    matches!(names, NamesDates::NotJudged)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_zero(turns: &u8) -> bool {
    *turns == 0
}

/// Why a date in a call counts as invented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invented {
    /// The user named no date.
    NoneNamed,
    /// The user named only this other date.
    NamedOther(String),
    /// The user named several other dates.
    NamedOthers,
    /// Some of the user's words may name this date or another one; their meaning is not understood.
    Unclear,
}

impl Dates {
    /// Whether no dates are recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Merges the dates of a turn that has ended.
    pub(super) fn learn(&mut self, other: &Self) {
        self.remember(other.seen.iter().cloned());
        self.turn_ended(other.now.iter().filter(|word| is_date(word)).cloned().collect());
    }

    /// Records the dates in the user's words of an earlier turn.
    pub(super) fn add_earlier_user_text(&mut self, text: &str) {
        let Read { named, maybe, .. } = read_ends(text);
        let opens = (!maybe.is_empty()).then(|| SPAN.to_owned());
        self.turn_ended(named.iter().filter(|word| is_date(word)).cloned().chain(opens).collect());
        self.remember(named.into_iter().chain(maybe));
    }

    fn turn_ended(&mut self, named: BTreeSet<String>) {
        if !named.is_empty() {
            (self.last, self.last_turns) = (named, 0);
        } else if !self.last.is_empty() {
            self.last_turns += 1;
            if self.last_turns >= LAST_TURNS_MAX {
                (self.last, self.last_turns) = (BTreeSet::new(), 0);
            }
        }
    }

    /// Records the dates in the user's words of this turn. Words in an unknown language exclude no date.
    pub(super) fn add_user_text(&mut self, text: &str) {
        let Read { mut named, maybe, is_known } = read_ends(text);
        if !maybe.is_empty() {
            named.insert(SPAN.to_owned());
        }
        self.now.extend(named.iter().cloned());
        let has_date = named.iter().any(|word| is_date(word));
        self.remember(named.into_iter().chain(maybe));
        self.names_date = if text.len() > 2 * END_BYTES_MAX {
            NamesDates::NotJudged
        } else if has_date && (is_known || self.names_date == NamesDates::None) {
            NamesDates::Some
        } else if self.names_date == NamesDates::NotJudged && is_known && !self.now.iter().any(|word| is_date(word)) {
            NamesDates::None
        } else {
            self.names_date
        };
    }

    /// Records the dates in text that the user did not write.
    pub(super) fn add_shown_text(&mut self, text: &str) {
        let Read { named, maybe, .. } = read_ends(text);
        self.remember(named.into_iter().chain(maybe));
    }

    /// Remembers days and months, but no near days: "tomorrow" in an earlier turn or in a result is another day by now.
    fn remember(&mut self, named: impl IntoIterator<Item = String>) {
        let lasts = |word: &String| {
            WEEKDAYS.contains(&word.as_str()) || MONTHS.contains(&word.as_str()) || iso_weekday(word).is_some()
        };
        self.seen.extend(named.into_iter().filter(lasts));
        while self.seen.len() > WORDS_MAX {
            self.seen.pop_first();
        }
    }

    /// Checks that a date in a call was named.
    pub(super) fn check(&self, value: &str) -> Result<(), Invented> {
        if self.names_date == NamesDates::NotJudged {
            return Ok(());
        }
        let value = value.trim().to_lowercase();
        let is_named = if value == NONE {
            self.now.contains(NONE) || self.now.contains(DUE)
        } else {
            let Read { named, maybe, .. } = read(&value);
            let mut wanted = named.iter().chain(&maybe).filter(|word| is_date(word)).peekable();
            let is_open = self.names_date == NamesDates::Some || !self.last.is_empty();
            if wanted.peek().is_none() { is_open } else { wanted.all(|word| self.allows(word)) }
        };
        if is_named {
            return Ok(());
        }
        if self.now.contains(SPAN) {
            return Err(Invented::Unclear);
        }
        let mut days = self.now.iter().filter(|word| is_date(word));
        Err(match (days.next(), days.next()) {
            (None, _) => Invented::NoneNamed,
            (Some(day), None) if is_day(day) => Invented::NamedOther(day.clone()),
            _ => Invented::NamedOthers,
        })
    }

    fn allows(&self, word: &str) -> bool {
        let (now, last) = (&self.now, &self.last);
        now.contains(word)
            || self.seen.contains(word)
            || last.contains(word)
            || follows(now, word)
            || follows(last, word)
    }
}

/// Whether a date word of a call can follow from other words of the user: a weekday follows from "next week", but not from
/// another weekday.
fn follows(named: &BTreeSet<String>, word: &str) -> bool {
    let of = |list: &[&str]| named.iter().any(|w| list.contains(&w.as_str()));
    let open = || named.iter().any(|w| w == SPAN || w == NUMBERS || iso_weekday(w).is_some());
    let names_date = || named.iter().any(|w| is_date(w));
    match word {
        SPAN | NUMBERS => names_date(),
        _ if WEEKDAYS.contains(&word) => !of(&WEEKDAYS) && (open() || of(&NEAR) || of(&MONTHS)),
        _ if MONTHS.contains(&word) => !of(&MONTHS) && open(),
        _ if NEAR.contains(&word) => !of(&NEAR) && !of(&WEEKDAYS) && (open() || of(&MONTHS)),
        _ => match iso_weekday(word) {
            Some(day) => names_date() && (open() || !of(&WEEKDAYS) || named.contains(day)),
            None => false,
        },
    }
}

/// Words before a day that leave its meaning as it is.
const PLAIN_LEADS: &str = "to on by due the this coming is at date zum am auf diesen dieser kommenden";

/// Words that may exclude the day that a message names, or say that it is the old one.
const EXCLUDES: &str = "not no don never except instead rather from nicht kein keine keinen statt außer von vom";

/// The only mention of a day in the user's plain words, as a call writes it: with `next` if that stands before it. `None` if it is
/// mentioned more than once, or behind a word that may change its meaning ("every friday", "not friday").
/// In a call that changes something, a day in a sentence with "due" may be the present date of the thing.
pub(super) fn day_to_copy(user_words: &str, day: &str, is_change: bool) -> Option<String> {
    let all: Vec<&str> = user_words.split_whitespace().collect();
    if all.iter().any(|word| EXCLUDES.split_whitespace().any(|excludes| excludes == *word)) {
        return None;
    }
    let names = |word: &&str| matches!(MEANINGS.get(*word), Some(Meaning::Named(named)) if *named == day);
    let mut mentions = all.iter().enumerate().filter(|(_, word)| names(word)).map(|(at, _)| at);
    let (at, None) = (mentions.next()?, mentions.next()) else { return None };
    let lead = at.checked_sub(1).and_then(|before| all.get(before));
    // "The one that is due on friday" names the present date, "due to friday" and "its due date to friday" the new one.
    let has_due = all.iter().any(|word| DUES.split_whitespace().any(|due| due == *word));
    let is_new = || {
        lead.is_some_and(|lead| matches!(*lead, "to" | "auf" | "zum")) && all.get(at.saturating_sub(2)) != Some(&"due")
    };
    if is_change && has_due && !is_new() {
        return None;
    }
    match lead {
        Some(&"next") => Some(format!("next {day}")),
        Some(lead) if PLAIN_LEADS.split_whitespace().any(|plain| plain == *lead) => Some(day.to_owned()),
        Some(_) | None => None,
    }
}

/// Stands for any time span or time of day.
const SPAN: &str = "span";
/// Stands for a date or a time in digits other than `2026-02-18`.
const NUMBERS: &str = "numbers";

/// Stands for the date of a thing, without naming the date.
const DUE: &str = "due";

/// Whether a word of [`Read::named`] is a date; false for [`NONE`] and [`DUE`].
fn is_date(word: &str) -> bool {
    word != NONE && word != DUE
}

/// The meaning of a word.
#[derive(Clone, Copy)]
enum Meaning {
    /// A day or a month, as calls write it.
    Named(&'static str),
    /// Possibly a day or a month, possibly another word.
    Maybe(&'static str),
    Due,
    Span,
    Without,
    Known,
    Weak,
}

static MEANINGS: LazyLock<HashMap<&'static str, Meaning>> = LazyLock::new(|| {
    fn of(words: &'static str, meaning: Meaning) -> impl Iterator<Item = (&'static str, Meaning)> {
        words.split_whitespace().map(move |word| (word, meaning))
    }
    let mut all: HashMap<&'static str, Meaning> = HashMap::new();
    for (words, meaning) in [
        (WEAK, Meaning::Weak),
        (KNOWN, Meaning::Known),
        (WITHOUT, Meaning::Without),
        (SPANS, Meaning::Span),
        (DUES, Meaning::Due),
    ] {
        all.extend(of(words, meaning));
    }
    let units = UNITS.iter().flat_map(|names| names.iter()).filter(|name| name.len() > 2);
    let parts = PARTS_OF_DAY.iter().map(|(name, _)| name);
    all.extend(units.chain(parts).map(|name| (*name, Meaning::Span)));
    let maybe = [(&WEEKDAYS[..], &WEEKDAYS_MAYBE[..]), (&MONTHS[..], &MONTHS_MAYBE[..]), (&NEAR[..], &NEAR_MAYBE[..])];
    let sure = [(&WEEKDAYS[..], &WEEKDAYS_TOO[..]), (&MONTHS[..], &MONTHS_TOO[..]), (&NEAR[..], &NEAR_TOO[..])];
    for (names, more) in sure {
        for (name, more) in names.iter().zip(more) {
            all.extend(of(name, Meaning::Named(name)).chain(of(more, Meaning::Named(name))));
        }
    }
    for (names, more) in maybe {
        all.extend(names.iter().zip(more).flat_map(|(name, more)| of(more, Meaning::Maybe(name))));
    }
    all
});

/// The role of a word beside a number.
#[derive(Clone, Copy)]
enum AroundNumber {
    Numeral,
    Before,
    Article,
}

/// A map, so that each word needs one lookup: texts of many kilobytes are read at every event.
static AROUND_NUMBERS: LazyLock<HashMap<&'static str, AroundNumber>> = LazyLock::new(|| {
    let written = NUMBER_WORDS.iter().copied().chain(NUMBERS_TOO.split_whitespace());
    let before = BEFORE_NUMBER.split_whitespace();
    written
        .map(|word| (word, AroundNumber::Numeral))
        .chain(before.map(|word| (word, AroundNumber::Before)))
        .chain(ARTICLES.split_whitespace().map(|word| (word, AroundNumber::Article)))
        .collect()
});

/// The dates in a text.
#[derive(Default)]
struct Read {
    /// Days and months as calls write them, `2026-02-18`, [`SPAN`], [`NUMBERS`], [`NONE`] and [`DUE`].
    named: BTreeSet<String>,
    /// Days and months that the text may name.
    maybe: BTreeSet<String>,
    /// The text is English or German.
    is_known: bool,
}

/// The dates in the beginning and the end of a text.
fn read_ends(text: &str) -> Read {
    if text.len() <= 2 * END_BYTES_MAX {
        return read(text);
    }
    let mut from = text.len() - END_BYTES_MAX;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let (mut head, tail) = (read(&text[..floor_char_boundary(text, END_BYTES_MAX)]), read(&text[from..]));
    head.named.extend(tail.named);
    head.maybe.extend(tail.maybe);
    Read { is_known: head.is_known || tail.is_known, ..head }
}

fn read(text: &str) -> Read {
    let (mut found, mut known, mut is_behind_number, mut awaits_number) =
        (Read::default(), [HashSet::new(), HashSet::new()], false, false);
    for word in words(text) {
        let word = if word.bytes().any(|b| b.is_ascii_uppercase() || !b.is_ascii()) {
            Cow::Owned(word.to_lowercase())
        } else {
            Cow::Borrowed(word)
        };
        // "tomorrow's"
        let word = word.strip_suffix("'s").unwrap_or(&word);
        let is_number = word.len() <= 2 && word.parse::<u8>().is_ok();
        let is_time = std::mem::replace(&mut is_behind_number, is_number)
            && (TIMES.contains(&word) || UNITS.iter().any(|names| names.contains(&word)));
        let around = AROUND_NUMBERS.get(word);
        let is_after_lead = awaits_number && (is_number || matches!(around, Some(AroundNumber::Numeral)));
        awaits_number = match around {
            Some(AroundNumber::Before) => true,
            Some(AroundNumber::Article) => awaits_number,
            _ => false,
        };
        let named = match MEANINGS.get(word) {
            Some(Meaning::Named(day)) => {
                // The names of months are similar in many languages.
                if !MONTHS.contains(day) {
                    known[0].insert(word.to_owned());
                }
                Some(*day)
            }
            Some(Meaning::Maybe(day)) => {
                found.maybe.insert((*day).to_owned());
                None
            }
            Some(Meaning::Span) => Some(SPAN),
            Some(Meaning::Without) => Some(NONE),
            Some(Meaning::Due) => Some(DUE),
            Some(Meaning::Known) => {
                known[0].insert(word.to_owned());
                None
            }
            Some(Meaning::Weak) => {
                known[1].insert(word.to_owned());
                None
            }
            None => {
                found.maybe.extend(like_a_day(word).map(str::to_owned));
                word.get(..10).filter(|date| iso_weekday(date).is_some())
            }
        };
        found.named.extend(named.map(str::to_owned));
        if is_after_lead || is_time || (named.is_none() && is_in_numbers(word)) {
            found.named.insert(NUMBERS.to_owned());
        }
        // Two words are enough to identify the language.
        found.is_known |= known[0].len() > 1 || (!known[0].is_empty() && known[1].len() > 1);
        if found.is_known {
            known.iter_mut().for_each(HashSet::clear);
        }
    }
    found
}

/// The words of a text. Characters that join the parts of a date or a time in digits are part of a word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let joins = |c: char| matches!(c, '-' | '.' | '/' | ':');
    text.split(move |c: char| !(c.is_alphanumeric() || joins(c) || matches!(c, '+' | '\'')))
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '+'))
        .flat_map(move |word| {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '+');
            word.split(move |c| !is_number && joins(c)).filter(|part| !part.is_empty())
        })
}

/// The day or month that a compound or misspelled word may mean: "freitagabend", "tommorow".
fn like_a_day(word: &str) -> Option<&'static str> {
    /// Shorter words are too often other words.
    const CHARS_MIN: usize = 6;
    let all = [(&WEEKDAYS[..], &WEEKDAYS_TOO[..]), (&MONTHS[..], &MONTHS_TOO[..]), (&NEAR[..], &NEAR_TOO[..])];
    let names = all.into_iter().flat_map(|(days, more)| days.iter().zip(more));
    let mut names = names.flat_map(|(day, more)| {
        more.split(' ').filter(|name| !name.is_empty()).chain([*day]).map(move |name| (*day, name))
    });
    let is_like = |name: &str| {
        let count = name.chars().count();
        let mistakes_max = if count > 7 { 2 } else { 1 };
        count >= CHARS_MIN && word.starts_with(name)
            || (count >= CHARS_MIN || name == NEAR[0]) && mistakes(word, name, mistakes_max)
    };
    names.find(|(_, name)| is_like(name)).map(|(day, _)| day)
}

/// Whether a word has the same first character as `name` and differs from it in at most `count_max` wrong, missing, extra or
/// transposed characters.
fn mistakes(word: &str, name: &str, count_max: usize) -> bool {
    /// Longer than every name of a day or month, in characters. Every word of a message is compared with several names, so the
    /// rows are on the stack.
    const CHARS_MAX: usize = 32;
    if word.chars().next() != name.chars().next() || word.len().abs_diff(name.len()) > count_max + 1 {
        return false;
    }
    let (mut word_chars, mut name_chars) = (['\0'; CHARS_MAX], ['\0'; CHARS_MAX]);
    let (Some(word), Some(name)) = (filled(&mut word_chars, word), filled(&mut name_chars, name)) else { return false };
    // Rows of the edit distances between all prefixes of both words: the row before the last, and the last row.
    let mut before = [0; CHARS_MAX + 1];
    let mut last: [usize; CHARS_MAX + 1] = std::array::from_fn(|j| j);
    for i in 1..=word.len() {
        let mut row = [0; CHARS_MAX + 1];
        row[0] = i;
        for j in 1..=name.len() {
            let change = last[j - 1] + usize::from(word[i - 1] != name[j - 1]);
            let mut least = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && word[i - 1] == name[j - 2] && word[i - 2] == name[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row[j] = least;
        }
        before = std::mem::replace(&mut last, row);
    }
    last[name.len()] <= count_max
}

/// The characters of a word; `None` if they are more than there is space for.
fn filled<'a>(chars: &'a mut [char], word: &str) -> Option<&'a [char]> {
    let count = word.chars().try_fold(0, |count, c| {
        *chars.get_mut(count)? = c;
        Some(count + 1)
    })?;
    chars.get(..count)
}

/// Whether a word is a date or a time in digits: `3.5.`, `14:05`, `5pm`, `3rd`, `+3d`, `20min`, `3/5`, `2026/11/26`,
/// `11-26-2026`.
fn is_in_numbers(word: &str) -> bool {
    let plus = word.starts_with('+');
    let word = word.trim_start_matches('+');
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return false;
    }
    let (number, rest) = word.split_at(digits);
    let is_unit = UNITS.iter().any(|names| names.contains(&rest));
    let parts = word.split(|c: char| !c.is_ascii_digit()).map(str::len);
    let is_joined = rest.starts_with(['.', '/', ':', '-']) && parts.clone().all(|len| matches!(len, 0 | 1 | 2 | 4));
    match number.len() {
        1 | 2 if is_joined || matches!(rest, "am" | "pm" | "st" | "nd" | "rd" | "th") => true,
        4 if is_joined => parts.count() == 3,
        1..=3 if is_unit => true,
        _ => plus && (is_unit || rest == "m"),
    }
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

/// Whether a word alone identifies a day.
fn is_day(word: &str) -> bool {
    WEEKDAYS.contains(&word) || NEAR.contains(&word) || iso_weekday(word).is_some()
}

#[cfg(test)]
mod tests;
