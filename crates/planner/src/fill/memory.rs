//! Memories, searches, time and help.

use std::ops::Range;

use super::{Filled, Filler};
use crate::{
    calendar, fallback,
    text::{Mark, capitalised, unquoted},
};

/// Words that identify the category of a statement.
const CATEGORIES: [(&str, &[&str]); 6] = [
    (
        "preference",
        &[
            "prefer",
            "prefers",
            "preferred",
            "like",
            "likes",
            "love",
            "loves",
            "hate",
            "hates",
            "favourite",
            "favorite",
            "dislike",
            "dislikes",
            "enjoys",
        ],
    ),
    ("decision", &["decided", "decision", "agreed", "chose", "chosen"]),
    ("goal", &["goal", "goals", "aim", "plans", "want", "wants"]),
    (
        "relationship",
        &[
            "wife",
            "husband",
            "boss",
            "manager",
            "colleague",
            "friend",
            "mother",
            "father",
            "sister",
            "brother",
            "daughter",
            "son",
            "partner",
            "team",
        ],
    ),
    ("instruction", &["always", "never"]),
    ("fact", &["is", "are", "was", "has", "have", "lives", "works"]),
];

/// Cities with their time zones.
const ZONES: [(&str, &str); 18] = [
    ("tokyo", "Asia/Tokyo"),
    ("london", "Europe/London"),
    ("berlin", "Europe/Berlin"),
    ("paris", "Europe/Paris"),
    ("prague", "Europe/Prague"),
    ("madrid", "Europe/Madrid"),
    ("rome", "Europe/Rome"),
    ("new york", "America/New_York"),
    ("los angeles", "America/Los_Angeles"),
    ("san francisco", "America/Los_Angeles"),
    ("chicago", "America/Chicago"),
    ("sydney", "Australia/Sydney"),
    ("singapore", "Asia/Singapore"),
    ("dubai", "Asia/Dubai"),
    ("delhi", "Asia/Kolkata"),
    ("mumbai", "Asia/Kolkata"),
    ("beijing", "Asia/Shanghai"),
    ("utc", "UTC"),
];

impl Filler<'_> {
    /// A statement to remember.
    pub(super) fn statement(&self, rest: Range<usize>) -> Filled {
        let mut call = self.call();
        let pointer =
            self.is(rest.start, &["this", "that", "following"]) && self.words()[rest.start].mark == Mark::Colon;
        let rest = rest.start + usize::from(pointer)..rest.end;
        let statement = self.slice(rest.clone());
        let statement = statement.strip_prefix("that ").unwrap_or(statement);
        let statement = unquoted(single_stop(statement));
        let content = if refers_back(statement) && !self.results.is_empty() {
            self.results.trim().to_owned()
        } else {
            capitalised(statement)
        };
        if refers_back(statement) && self.results.is_empty() {
            return Filled::Missing("I did not understand what to remember: say it in the same sentence".to_owned());
        }
        self.put(&mut call, &["content", "text", "memory", "fact", "statement"], &content);
        let contains = |any: &[&str]| rest.clone().any(|at| self.is(at, any));
        if let Some((category, _)) = CATEGORIES.iter().find(|(_, words)| contains(words)) {
            self.put(&mut call, &["category", "kind", "type"], category);
        }
        if (0..rest.end).any(|at| self.is(at, &["important", "crucial", "critical"])) {
            self.put(&mut call, &["importance"], "0.9");
        }
        if let Some(tags) = self.tags(rest) {
            self.put(&mut call, &["tags", "tag"], &tags.value);
        }
        self.ready(call)
    }

    /// The query of a search in memories or notes.
    pub(super) fn search(&self, range: Range<usize>) -> Filled {
        let mut call = self.call();
        if let Some(tags) = self.tags(range.clone()) {
            let tags = tags.value;
            self.put(&mut call, &["tag", "tags"], &tags);
        }
        let query = self.query(range);
        if !query.is_empty() && !query.starts_with('#') {
            self.put(&mut call, &["query", "q", "search", "text", "words"], &query);
        }
        match self.lacking(&call) {
            Some(_) => Filled::Missing("tell me what to look for".to_owned()),
            None => Filled::Ready(vec![call]),
        }
    }

    /// What was deleted or is to be forgotten: by its number, or else by its words as they stand.
    pub(super) fn deleted(&self, rest: Range<usize>) -> Filled {
        let mut call = self.call();
        let text = self.slice(rest).trim().trim_end_matches(['.', '!', '?']);
        let is_named = self.put(&mut call, &["id"], text) || self.put(&mut call, &["query"], text);
        if is_named { self.ready(call) } else { Filled::Missing("say its number, or words of it".to_owned()) }
    }

    /// The event to wait for, without the words that announce its end.
    pub(super) fn awaited(&self, rest: Range<usize>) -> Filled {
        const ENDS: [&str; 10] = [
            " to report back",
            " reports back",
            " is done",
            " is finished",
            " is ready",
            " is complete",
            " has finished",
            " has ended",
            " finishes",
            " ends",
        ];
        let event = unquoted(self.slice(rest)).trim_end_matches(['.', '!', '?']).trim();
        let what = ENDS.iter().find_map(|end| event.strip_suffix(end)).unwrap_or(event);
        if what.is_empty() {
            return Filled::Missing("tell me what to wait for".to_owned());
        }
        let mut call = self.call();
        self.put(&mut call, &["what", "for", "text"], what);
        self.ready(call)
    }

    /// The time zones of the cities in `in Tokyo and New York`, and the words after `and` that name none.
    fn cities(&self) -> (Vec<&'static str>, Option<&str>) {
        let end = self.words().len();
        let zone = |at: usize| {
            let name = |count: usize| {
                let words = self.words().get(at..at + count).filter(|words| words.iter().all(|word| !word.quoted))?;
                let name = words.iter().map(|word| word.lower.as_str()).collect::<Vec<_>>().join(" ");
                ZONES.iter().find(|(city, _)| *city == name).map(|(_, zone)| (*zone, count))
            };
            name(2).or_else(|| name(1))
        };
        let mut found = Vec::new();
        let Some(from) = (0..end).find(|at| self.is(*at, &["in"]) && zone(at + 1).is_some()) else {
            return (found, None);
        };
        let mut at = from + 1;
        while at < end {
            if let Some((zone, count)) = zone(at) {
                found.push(zone);
                at += count;
            } else if self.is(at, &["and", "or", "in"]) {
                at += 1;
            } else {
                let is_listed = self.is(at - 1, &["and", "or"]);
                return (found, is_listed.then(|| self.slice(at..end).trim_end_matches(['?', '.', '!'])));
            }
        }
        (found, None)
    }

    /// The time, here or elsewhere, or the date of a day.
    pub(super) fn time(&self, start: usize) -> Filled {
        let mut call = self.call();
        let lower = self.text.source.to_lowercase();
        let (cities, unknown) = self.cities();
        if let Some(unknown) = unknown {
            return Filled::Answer(format!(
                "I do not know the time in “{unknown}” together with others. Ask for one city at a time."
            ));
        }
        if cities.len() > 1 {
            let of = |zone: &&str| {
                let mut call = self.call();
                self.put(&mut call, &["timezone", "zone", "tz"], zone);
                call
            };
            return Filled::Ready(cities.iter().map(of).collect());
        }
        let zone = ZONES.iter().find(|(city, _)| lower.contains(&format!("in {city}"))).map(|(_, zone)| *zone);
        let named = self.words().iter().map(|w| &self.text.source[w.at.clone()]);
        let named = named.rev().find(|w| w.contains('/') && w.starts_with(char::is_uppercase));
        if let Some(zone) = zone.or(named) {
            self.put(&mut call, &["timezone", "zone", "tz"], zone);
        } else if let calendar::Asked::Unknown(what) = calendar::asked(self.slice(start..self.words().len())) {
            // The skill knows the cities of the time zones.
            let is_zone_query =
                lower.contains("time") && lower.contains(&format!(" in {what}")) && what.split(' ').count() <= 3;
            if !is_zone_query {
                return Filled::Answer(fallback::not_understood(&[self.text.source.to_owned()]));
            }
            self.put(&mut call, &["timezone", "zone", "tz"], &what);
        }
        self.ready(call)
    }

    /// Help, on a domain or a skill if one is named.
    pub(super) fn topic(&self) -> Filled {
        const DOMAINS: [(&str, &str); 8] = [
            ("task", "tasks"),
            ("tasks", "tasks"),
            ("todo", "tasks"),
            ("note", "notes"),
            ("notes", "notes"),
            ("memory", "memory"),
            ("memories", "memory"),
            ("system", "system"),
        ];
        let mut call = self.call();
        let topic = self.words().iter().find_map(|w| {
            let dotted = w.lower.contains('.').then(|| w.lower.clone());
            dotted.or_else(|| DOMAINS.iter().find(|(word, _)| *word == w.lower).map(|(_, d)| (*d).to_owned()))
        });
        if let Some(topic) = topic {
            self.put(&mut call, &["topic", "skill", "domain", "name"], &topic);
        }
        self.ready(call)
    }
}

/// Removes the final stop of a single sentence.
fn single_stop(text: &str) -> &str {
    let bare = text.trim_end_matches(['.', '!', '?']);
    if bare.contains(". ") { text } else { bare }
}

/// Whether a text only refers to earlier text.
pub(super) fn refers_back(text: &str) -> bool {
    let lower = text.trim().to_lowercase();
    const BACK: [&str; 18] = [
        "",
        "it",
        "this",
        "that",
        "them",
        "these",
        "those",
        "the result",
        "the results",
        "the answer",
        "the list",
        "me",
        "everything",
        "what i said",
        "what you said",
        "this file",
        "our conversation",
        "the following",
    ];
    BACK.contains(&lower.as_str())
}
