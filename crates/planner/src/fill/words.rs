//! Parts that every kind of clause may contain: priorities, tags, numbers, and filler words.

use std::ops::Range;

use annie_core::{calendar::NUMBERS, skill::ArgKind};

use super::{Call, Filler};
use crate::{
    dates,
    pattern::number,
    text::{Mark, Word, capitalised, unquoted},
};

/// Words that carry no meaning of their own in a search.
const STOP_WORDS: &str = "a about all am an and any anything are as at be been by can could did do does everything for \
    from get had has have he her him his how i if in into is it its know like likes me mention mentioned my of on or \
    our please recall remember said say shall she should so some something tell that the their them then there these \
    they this those to told up us was we were what when where which who whom why will with would you your";

/// Words of importance, most important first.
const LEVELS: [(&str, &[&str]); 4] = [
    ("critical", &["urgent", "urgently", "critical", "asap", "top", "highest", "immediately", "emergency"]),
    ("high", &["high", "important", "higher"]),
    ("medium", &["medium", "normal", "default", "moderate"]),
    ("low", &["low", "lowest", "lower", "minor"]),
];

/// The level that a word names.
pub(super) fn level(word: &str) -> Option<&'static str> {
    LEVELS.iter().find(|(_, words)| words.contains(&word)).map(|(level, _)| *level)
}

/// A value that was found, and the words to remove from a title for it.
pub(super) struct Found {
    pub value: String,
    pub words: Vec<Range<usize>>,
}

impl Found {
    fn at(value: &str, words: Range<usize>) -> Self {
        Self { value: value.to_owned(), words: std::iter::once(words).collect() }
    }
}

impl<'a> Filler<'a> {
    pub(super) fn words(&self) -> &'a [Word] {
        &self.text.words
    }

    pub(super) fn is(&self, at: usize, any: &[&str]) -> bool {
        self.words().get(at).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()))
    }

    /// The date in these words.
    pub(super) fn date(&self, range: Range<usize>) -> Option<Found> {
        dates::find(self.words(), range).map(|due| Found { value: due.text, words: due.words })
    }

    /// The priority in these words: `high priority`, `it is urgent`, `…, asap`.
    pub(super) fn priority(&self, range: Range<usize>) -> Option<Found> {
        let words = self.words();
        for at in range.clone().filter(|at| !words[*at].quoted) {
            let word = words[at].lower.as_str();
            let glued = word.strip_suffix("-priority").and_then(level);
            if let Some(level) = level(word).filter(|_| self.is(at + 1, &["priority", "prio", "importance"])).or(glued)
            {
                let mut start = at;
                while start > range.start
                    && self.is(start - 1, &["with", "as", "at", "of", "a", "the", "and", "it", "make", "in"])
                {
                    start -= 1;
                }
                let end = at + 1 + usize::from(glued.is_none());
                return Some(Found::at(level, start..end));
            }
            if matches!(word, "priority" | "prio") {
                let to = at + 1 + usize::from(self.is(at + 1, &["is", "of", "to", "as"]));
                if let Some(level) = words.get(to).filter(|_| to < range.end).and_then(|w| level(&w.lower)) {
                    let start = at - usize::from(at > range.start && self.is(at - 1, &["with", "and"]));
                    return Some(Found::at(level, start..to + 1));
                }
            }
        }
        self.urgency(&range)
    }

    /// `it is very urgent`, `as soon as possible`, and at the end `, urgent` or `asap`.
    fn urgency(&self, range: &Range<usize>) -> Option<Found> {
        let words = self.words();
        for at in range.clone() {
            if self.is(at, &["as"])
                && self.is(at + 1, &["soon"])
                && self.is(at + 2, &["as"])
                && self.is(at + 3, &["possible"])
            {
                return Some(Found::at("critical", at..(at + 4).min(range.end)));
            }
            if self.is(at, &["it", "this", "that", "which"]) && self.is(at + 1, &["is"]) {
                let to = at + 2 + usize::from(self.is(at + 2, &["very", "really", "quite", "super", "extremely"]));
                if let Some(level) = words.get(to).filter(|_| to < range.end).and_then(|w| level(&w.lower)) {
                    let start =
                        at - usize::from(at > range.start && self.is(at - 1, &["and", "because", "since", "as"]));
                    return Some(Found::at(level, start..to + 1));
                }
            }
        }
        let last = range.clone().next_back()?;
        let word = words.get(last).filter(|w| !w.quoted)?;
        let apart = last > range.start && words[last - 1].mark != Mark::Space;
        let alone = matches!(word.lower.as_str(), "asap" | "urgently" | "immediately");
        let level = level(&word.lower).filter(|_| (apart || alone) && last > range.start)?;
        Some(Found::at(level, last..last + 1))
    }

    /// `#home`, `tagged home and garden`, `with tags a, b`.
    pub(super) fn tags(&self, range: Range<usize>) -> Option<Found> {
        let words = self.words();
        let mut tags = Vec::new();
        let mut left_out = Vec::new();
        for at in range.clone().filter(|at| !words[*at].quoted) {
            if let Some(tag) = words[at].lower.strip_prefix('#').filter(|t| !t.is_empty() && number(t).is_none()) {
                tags.push(tag.to_owned());
                left_out.push(at..at + 1);
            }
        }
        let named = range.clone().find(|at| self.is(*at, &["tagged", "tags", "tag"]) && *at + 1 < range.end);
        if let Some(at) =
            named.filter(|at| self.is(*at, &["tagged"]) || (*at > range.start && self.is(*at - 1, &["with", "and"])))
        {
            let start = at - usize::from(at > range.start && self.is(at - 1, &["with", "and"]));
            let mut end = at + 1 + usize::from(self.is(at + 1, &["as", "with"]));
            while end < range.end {
                if !self.is(end, &["and"]) {
                    tags.push(words[end].lower.trim_start_matches('#').to_owned());
                }
                end += 1;
                let continues =
                    words[end - 1].mark == Mark::Comma || self.is(end - 1, &["and"]) || self.is(end, &["and"]);
                if !continues {
                    break;
                }
            }
            left_out.push(start..end);
        }
        tags.dedup();
        (!tags.is_empty()).then(|| Found { value: tags.join(","), words: left_out })
    }

    /// The numbers of things: after a `#`, or after `task`; at most five.
    pub(super) fn numbers(&self, range: Range<usize>) -> Vec<u64> {
        const NUMBERS_MAX: usize = 5;
        let words = self.words();
        let mut found = Vec::new();
        for at in range.clone().filter(|at| !words[*at].quoted) {
            let hashed = words[at].lower.starts_with('#');
            // `finish 3 things` names none.
            let counts =
                ["tasks", "todos", "reminders", "things", "items", "more", "of", "days", "weeks", "hours", "minutes"];
            let noun = [
                "task",
                "tasks",
                "todo",
                "todos",
                "reminder",
                "reminders",
                "item",
                "items",
                "schedule",
                "schedules",
                "number",
                "no",
                "nr",
                "id",
                "#",
            ];
            let named = at > 0 && self.is(at - 1, &noun);
            let spelled = || NUMBERS.iter().position(|n| *n == words[at].lower).and_then(|n| u64::try_from(n + 1).ok());
            let Some(number) = number(&words[at].lower).or_else(|| spelled().filter(|_| named)) else { continue };
            if !hashed && !named && self.is(at + 1, &counts) {
                continue;
            }
            // `tasks 3, 4 and 5`, `mark 3 as done`.
            let continues = !found.is_empty()
                && (self.is(at - 1, &["and"]) || words[at - 1].mark == Mark::Comma)
                && !(at > 1 && self.is(at - 1, &["and"]) && self.is(at - 2, &["except", "but", "not"]));
            let object = found.is_empty() && at <= range.start + 1;
            if (hashed || named || continues || object) && !found.contains(&number) && found.len() < NUMBERS_MAX {
                found.push(number);
            }
        }
        found
    }

    /// The words of a range without those to leave out.
    pub(super) fn without(&self, range: Range<usize>, left_out: &[Range<usize>]) -> String {
        let mut left_out: Vec<&Range<usize>> =
            left_out.iter().filter(|r| r.start < range.end && r.end > range.start).collect();
        left_out.sort_by_key(|r| r.start);
        let mut pieces = Vec::new();
        let mut at = range.start;
        for gone in left_out {
            if gone.start > at {
                pieces.push(self.slice(at..gone.start));
            }
            at = at.max(gone.end);
        }
        if at < range.end {
            pieces.push(self.slice(at..range.end));
        }
        pieces.into_iter().flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    /// The words of a search query without stop words.
    pub(super) fn query(&self, range: Range<usize>) -> String {
        let whole = unquoted(self.slice(range.clone())).trim_end_matches(['?', '.', '!']).trim();
        if let Some(quote) = self.text.quote_from(range.start) {
            return quote.trim().to_owned();
        }
        let kept: Vec<&str> = whole
            .split_whitespace()
            .filter(|w| {
                let bare = w.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
                !bare.is_empty() && !STOP_WORDS.split_whitespace().any(|s| s == bare)
            })
            .map(|w| w.trim_matches(|c: char| !c.is_alphanumeric()))
            .collect();
        kept.join(" ")
    }

    /// Sets a priority by the skill's own names.
    pub(super) fn put_priority(&self, call: &mut Call, level: &str) -> bool {
        let names = ["priority", "urgency"];
        let Some(arg) = self.flag(&names) else { return false };
        let ArgKind::Choice(words) = &arg.kind else { return self.put(call, &names, level) };
        let others: &[&str] = match level {
            "critical" => &["critical", "urgent", "highest", "high"],
            "high" => &["high", "important"],
            "low" => &["low", "lowest"],
            _ => &["medium", "normal"],
        };
        others.iter().any(|o| words.iter().any(|w| w == o) && self.put(call, &names, o))
    }
}

/// A title: without surrounding quotes, politeness and loose ends, with a capital first letter.
pub(super) fn as_title(text: &str) -> String {
    const LEADS: [&str; 13] = [
        "to ",
        "that ",
        "about ",
        "of ",
        "for ",
        "called ",
        "named ",
        "titled ",
        "saying ",
        "and ",
        "which says ",
        "i need to ",
        "i have to ",
    ];
    const ENDS: [&str; 12] =
        [" please", " and", " with", " for me", " to", " for", " on", " by", " at", " thanks", " then", " the"];
    let mut text = text.trim();
    loop {
        let lower = text.to_lowercase();
        let bare = text
            .trim_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '-'))
            .trim_end_matches(['.', '!', '?', '…']);
        let lead =
            LEADS.iter().find(|l| lower.starts_with(*l) && text.is_char_boundary(l.len())).map_or(0, |l| l.len());
        let end = ENDS.iter().find(|e| lower.ends_with(*e) && lower.len() == text.len()).map_or(0, |e| e.len());
        let next = if lead > 0 {
            &text[lead..]
        } else if end > 0 {
            &text[..text.len() - end]
        } else {
            unquoted(bare)
        };
        if next == text {
            return capitalised(text);
        }
        text = next;
    }
}
