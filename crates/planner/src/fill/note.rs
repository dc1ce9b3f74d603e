//! Notes: separates title and text.

use std::ops::Range;

use super::{Filled, Filler, memory::refers_back, words::as_title};
use crate::text::{Mark, capitalised, unquoted};

const TITLE: [&str; 4] = ["title", "name", "note", "path"];
const CONTENT: [&str; 5] = ["content", "text", "body", "append", "note"];
/// How many words of a text become its title, if none was given.
const TITLE_WORDS_MAX: usize = 6;

impl Filler<'_> {
    /// A new note: `titled X saying Y`, `about X: Y`, `that Y`.
    pub(super) fn note(&self, rest: Range<usize>) -> Filled {
        let (title, content) = self.title_and_content(rest);
        self.new_note(title, content)
    }

    /// A new note of which only the text was given.
    pub(super) fn jot(&self, rest: Range<usize>) -> Filled {
        let content = self.slice(rest);
        let content = content.strip_prefix("that ").unwrap_or(content);
        self.new_note(None, Some(unquoted(content).to_owned()))
    }

    fn new_note(&self, title: Option<String>, content: Option<String>) -> Filled {
        let content = content.map(|c| if refers_back(&c) { self.results.trim().to_owned() } else { c });
        let content = content.filter(|c| !c.is_empty());
        let (title, content) = match (title.filter(|t| !t.is_empty()), content) {
            (Some(title), Some(content)) => (title, content),
            // A note begins with its heading; text can be added later.
            (Some(title), None) => (title.clone(), format!("# {title}")),
            (None, Some(content)) => (title_of(&content), content),
            (None, None) => return Filled::Missing("I did not understand what to write into the note".to_owned()),
        };
        let mut call = self.call();
        self.put(&mut call, &TITLE, &title);
        self.put(&mut call, &CONTENT, &capitalised(&content));
        if let Some(tags) = self.tags(0..self.words().len()) {
            self.put(&mut call, &["tags", "tag"], &tags.value);
        }
        self.ready(call)
    }

    /// Title and text of `[titled|about] X saying|with content|: Y`.
    fn title_and_content(&self, rest: Range<usize>) -> (Option<String>, Option<String>) {
        let words = self.words();
        let mut start = rest.start;
        if self.is(start, &["with"]) && self.is(start + 1, &["the", "a"]) && self.is(start + 2, &["title", "name"]) {
            start += 3;
        }
        while start < rest.end
            && self.is(start, &["titled", "called", "named", "title", "about", "for", "on", "of", "to", "me"])
        {
            start += 1;
        }
        if start < rest.end && self.is(start, &["that", "saying", "says", "with", "reading", "containing"]) {
            return (None, Some(self.content_from(start + 1, rest.end)));
        }
        // After `note:` comes the text.
        if start == rest.start && start > 0 && words[start - 1].mark == Mark::Colon {
            return (None, Some(self.content_from(start, rest.end)));
        }
        let quoted = words.get(start).is_some_and(|w| w.quoted);
        if quoted && let Some(quote) = self.text.quote_from(start) {
            let behind = (start..rest.end).find(|at| !words[*at].quoted).unwrap_or(rest.end);
            let content = self.content_from(behind, rest.end);
            return (Some(quote.trim().to_owned()), Some(content).filter(|c| !c.is_empty()));
        }
        let cut = (start..rest.end).find_map(|at| {
            if matches!(words[at].mark, Mark::Colon | Mark::Line) && at + 1 < rest.end {
                return Some((at + 1, at + 1));
            }
            let says = self.is(at, &["saying", "with", "containing", "reading"]);
            let that = self.is(at, &["that", "which"]) && self.is(at + 1, &["says", "reads", "contains"]);
            (at > start && (says || that)).then_some((at, at + 1 + usize::from(that)))
        });
        match cut {
            Some((end, from)) => (Some(note_name(self.slice(start..end))), Some(self.content_from(from, rest.end))),
            None => (Some(note_name(self.slice(start..rest.end))), None),
        }
    }

    /// The text from a word on, without its introduction.
    fn content_from(&self, mut at: usize, end: usize) -> String {
        const LEADS: [&str; 12] =
            ["with", "the", "and", "content", "text", "body", "saying", "that", "says", "containing", "contents", "of"];
        let first = at;
        while at < end && at < first + 4 && self.is(at, &LEADS) {
            at += 1;
        }
        // `the milk is sour` is a text; `the content` only introduces one.
        let led = (first..at).any(|n| {
            self.is(n, &["content", "text", "body", "saying", "says", "containing", "contents", "that", "with"])
        });
        let at = if led { at } else { first };
        unquoted(self.slice(at..end)).to_owned()
    }

    /// A note to read.
    pub(super) fn note_title(&self, rest: Range<usize>) -> Filled {
        let title = self.text.quote_from(rest.start).filter(|_| !rest.is_empty());
        let title = title.map_or_else(|| note_name(self.slice(rest)), |q| q.trim().to_owned());
        if title.is_empty() {
            return Filled::Missing("I did not understand which note you mean: say its title".to_owned());
        }
        let mut call = self.call();
        self.put(&mut call, &TITLE, &title);
        self.ready(call)
    }

    /// `add X to the note Y`, `add X to my Y note`.
    pub(super) fn note_append(&self, content: Range<usize>, gaps: &[Range<usize>], rest: Range<usize>) -> Filled {
        let named = if rest.is_empty() { gaps.get(1).cloned().unwrap_or(rest) } else { rest };
        let title = note_name(unquoted(self.slice(named)));
        self.appended(&title, unquoted(self.slice(content)))
    }

    /// `update the note Y: X`.
    pub(super) fn note_more(&self, rest: Range<usize>) -> Filled {
        let (title, content) = self.title_and_content(rest);
        self.appended(&title.unwrap_or_default(), &content.unwrap_or_default())
    }

    fn appended(&self, title: &str, content: &str) -> Filled {
        let content = if refers_back(content) { self.results.trim() } else { content };
        if title.is_empty() {
            return Filled::Missing("I did not understand which note you mean: say its title".to_owned());
        }
        if content.is_empty() {
            return Filled::Missing("I did not understand what to add to the note".to_owned());
        }
        let mut call = self.call();
        self.put(&mut call, &TITLE, title);
        let names = ["append", "content", "text", "body"];
        if !self.put(&mut call, &names, &capitalised(content)) {
            return Filled::Missing(format!("{} does not say how to add a text", self.skill.name));
        }
        self.ready(call)
    }
}

/// A note's name without articles, `note` and stops.
fn note_name(spoken: &str) -> String {
    let spoken = unquoted(spoken.trim_end_matches(['?', '.', '!', ',']));
    let lower = spoken.to_lowercase();
    let lead =
        ["the ", "my ", "a ", "an ", "our ", "note ", "titled ", "called "].into_iter().find(|l| lower.starts_with(l));
    let tail = [" note", " notes", " say", " please", " say about it"].into_iter().find(|t| lower.ends_with(t));
    match (lead, tail) {
        _ if lower.len() != spoken.len() => spoken.to_owned(),
        (Some(lead), _) => note_name(&spoken[lead.len()..]),
        (None, Some(tail)) => note_name(&spoken[..spoken.len() - tail.len()]),
        (None, None) => as_title(spoken),
    }
}

/// The first words of a text as a title, without characters that file names must not contain.
fn title_of(content: &str) -> String {
    let first = content.lines().next().unwrap_or_default();
    let kept: String = first.chars().filter(|c| !c.is_control() && !r#"\:*?"<>|/#"#.contains(*c)).collect();
    let words: Vec<&str> = kept.split_whitespace().take(TITLE_WORDS_MAX).collect();
    let title: String = words.join(" ").chars().take(80).collect();
    capitalised(title.trim_matches(|c: char| !c.is_alphanumeric()))
}
