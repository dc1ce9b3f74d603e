//! Splits a message into clauses, one request each. An `and` or a comma separates two requests only if a request begins
//! after it: `buy bread and butter` stays whole, `…, and then tell me what is due` is split.

use std::{cell::Cell, ops::Range};

use super::{
    catalog::Catalog,
    choose::{How, by_likeness, by_phrase, choose, is_only_polite, is_plain, lead},
    pattern::Pattern,
    rules::Shape,
    text::{Mark, Text, Word},
};

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Clause {
    /// The words of the user, self-contained.
    pub text: String,
    /// The request must follow the ones before it.
    pub then: bool,
}

/// The most requests in one message; the text after them stays with the last.
pub(super) const CLAUSES_MAX: usize = 24;

/// How many positions of a message at most are checked as the beginning of a request, so that long texts stay cheap.
const LOOKS_MAX: u32 = 400;
/// How far a phrase may reach, in words.
const REACH_WORDS_MAX: usize = 60;

/// Words that continue the previous request at the beginning of a sentence.
const CONTINUES: [&str; 30] = [
    "it",
    "its",
    "he",
    "she",
    "they",
    "his",
    "her",
    "their",
    "this",
    "that",
    "these",
    "those",
    "with",
    "because",
    "but",
    "which",
    "who",
    "due",
    "tags",
    "tagged",
    "tag",
    "priority",
    "description",
    "high",
    "low",
    "urgent",
    "so",
    "since",
    "also",
    "there",
];

/// The requests of a message, in order.
pub(super) fn split(source: &str, catalog: &Catalog) -> Vec<Clause> {
    // A colon at the beginning: the text is the payload of a request that was not sent with it. The colon stays, so that a
    // sub-agent that gets the clause does not split it either.
    if source.trim_start().starts_with(':') {
        return vec![Clause { text: source.trim().to_owned(), then: false }];
    }
    let text = Text::new(source);
    let splitter = Splitter { text: &text, catalog, payload: text.payload_at(), looks_left: Cell::new(LOOKS_MAX) };
    let mut clauses = Vec::new();
    let mut start = 0;
    let mut then = false;
    let mut prefix = String::new();
    while start < text.words.len() {
        let next = if clauses.len() + 1 < CLAUSES_MAX { splitter.next_cut(start) } else { None };
        let end = next.as_ref().map_or(text.words.len(), |cut| cut.end);
        let body = text.slice(start..end);
        let whole = format!("{prefix}{body}");
        if !body.is_empty() {
            clauses.extend(items(&whole, catalog).into_iter().map(|text| Clause { text, then }));
        }
        let Some(cut) = next else { break };
        start = cut.next;
        then = cut.then;
        prefix = cut.prefix;
    }
    clauses.truncate(CLAUSES_MAX);
    if clauses.len() > 1 {
        clauses.retain(|clause| !is_only_polite(&clause.text));
    }
    clauses
}

/// Where one clause ends and the next begins.
struct Cut {
    end: usize,
    next: usize,
    then: bool,
    prefix: String,
}

struct Splitter<'a> {
    text: &'a Text<'a>,
    catalog: &'a Catalog,
    /// Index of the first word of the message's payload.
    payload: usize,
    looks_left: Cell<u32>,
}

/// Words between clauses.
struct Link {
    words: usize,
    then: bool,
}

impl Splitter<'_> {
    fn words(&self) -> &[Word] {
        &self.text.words
    }

    fn next_cut(&self, start: usize) -> Option<Cut> {
        (start + 1..self.payload).find_map(|at| self.cut_at(start, at))
    }

    fn cut_at(&self, start: usize, at: usize) -> Option<Cut> {
        let words = self.words();
        if words[at].quoted || words[at].at.is_empty() {
            return None;
        }
        let mark = words[at - 1].mark;
        let link = link(words, at);
        if mark == Mark::Space && link.words == 0 {
            return None;
        }
        let next = at + link.words;
        if next >= self.payload {
            return None;
        }
        self.looks_left.set(self.looks_left.get().checked_sub(1)?);
        let strong = ends_sentence(mark) || link.then;
        let (prefix, next) = self.begins(start, next, strong)?;
        Some(Cut { end: at, next, then: link.then, prefix })
    }

    /// Whether a request begins here. Returns a prefix for the words that the request omits, and its first word.
    fn begins(&self, start: usize, at: usize, strong: bool) -> Option<(String, usize)> {
        let words = self.words();
        let reach = self.payload.min(at + REACH_WORDS_MAX);
        // A phrase may reach to the end of this sentence at most.
        let end = (at..reach).find(|n| ends_sentence(words[*n].mark)).map_or(reach, |n| n + 1);
        let range = at..end;
        let plainly = || (String::new(), at);
        if CONTINUES.contains(&words[at].lower.as_str()) {
            return None;
        }
        // `delete task 1 and task 2` continues the list of tasks of the previous request.
        if Pattern::new("task|todo|reminder #").fit(&words[..end], at).is_some_and(|fit| fit.end == end) {
            return None;
        }
        if let Some(elided) = self.elided(start, &range) {
            return Some(elided);
        }
        // `remember that they moved task 4 to Monday and task 5 to Friday` is one statement.
        if Pattern::new("task|todo|reminder # to").fit(words, at).is_some() {
            return None;
        }
        if by_phrase(words, &range, self.catalog).is_some() || self.is_name(at) {
            return Some(plainly());
        }
        let first = lead(words, &range);
        let alike = by_likeness(words, first, &range, self.catalog);
        let clear = alike.is_some_and(|choice| strong || is_plain(&choice, words));
        if clear {
            return Some(plainly());
        }
        let parts = ends_sentence(words[at - 1].mark) && !words[at].bullet;
        (parts && (!self.takes_sentences(start) || self.is_question_after_statement(start, &range))).then(plainly)
    }

    fn is_name(&self, at: usize) -> bool {
        let name = &self.words()[at].lower;
        name.contains('.') && self.catalog.get(name).is_some()
    }

    /// How the words of the clause that begins here become arguments.
    fn shape(&self, start: usize) -> Option<How> {
        choose(self.text, &(start..self.words().len().min(start + 40)), self.catalog).map(|c| c.how)
    }

    /// Whether this sentence is a question behind a statement to remember, which is not a part of it: `the code is 1234. What
    /// is the code?`.
    fn is_question_after_statement(&self, start: usize, sentence: &Range<usize>) -> bool {
        let asks = ["what", "when", "who", "where", "how", "which", "why", "do", "does", "did", "is", "are", "can"];
        let words = self.words();
        // In the middle of a statement a question is a part of it.
        let is_last = sentence.end == self.payload;
        let is_question = is_last
            && asks.contains(&words[sentence.start].lower.as_str())
            && self.text.source[words[sentence.end - 1].at.end..].trim_start_matches(['"', '”', ')']).starts_with('?');
        let states = |how| matches!(how, How::Phrase { shape: Shape::Statement | Shape::GapStatement, .. });
        is_question && self.shape(start).is_some_and(states)
    }

    /// Whether the text of the clause may continue over several sentences and lines.
    fn takes_sentences(&self, start: usize) -> bool {
        let shape = self.shape(start);
        matches!(
            shape,
            Some(How::Phrase {
                shape: Shape::Statement
                    | Shape::GapStatement
                    | Shape::Note
                    | Shape::Jot
                    | Shape::NoteMore
                    | Shape::NoteAppend,
                ..
            })
        )
    }

    /// `another one to email Ann`, `a note titled X`: the clause takes the verb of the previous one.
    fn elided(&self, start: usize, range: &Range<usize>) -> Option<(String, usize)> {
        let words = &self.words()[..range.end];
        if Pattern::new("a|an|another|one ~ task|todo|to-do|reminder|note|memo").fit(words, range.start).is_some() {
            return self.creates(start).map(|_| ("create ".to_owned(), range.start));
        }
        // `rename task 4 to X and task 5 to Y`
        if Pattern::new("task|todo|reminder # to").fit(words, range.start).is_some() {
            let verb = &self.words()[lead(self.words(), &(start..range.start))].lower;
            let takes_to = ["rename", "retitle", "move", "push", "shift", "postpone", "reschedule", "delay", "set"];
            return takes_to.contains(&verb.as_str()).then(|| (format!("{verb} "), range.start));
        }
        let another = Pattern::new("another|one one|more? to|for|about|called|titled").fit(words, range.start);
        another.and_then(|fit| Some((format!("create {}: ", self.creates(start)?), fit.end)))
    }

    /// The kind of object that the previous clause creates.
    fn creates(&self, start: usize) -> Option<&'static str> {
        let words = self.words();
        let choice = choose(self.text, &(start..words.len().min(start + 40)), self.catalog)?;
        match choice.skill.as_str() {
            "tasks.create" => Some("task"),
            "notes.create" => Some("note"),
            _ => None,
        }
    }
}

const fn ends_sentence(mark: Mark) -> bool {
    matches!(mark, Mark::Semicolon | Mark::Stop | Mark::Line)
}

/// The words that link a clause to the one before it: `and`, `then`, `and after that`, `also`.
fn link(words: &[Word], at: usize) -> Link {
    let is = |n: usize, any: &[&str]| words.get(n).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()));
    let mut n = at;
    let mut then = false;
    n += usize::from(is(n, &["and", "but", "plus", "&", "or"]));
    if is(n, &["then", "afterwards", "finally", "lastly", "subsequently"]) {
        then = true;
        n += 1;
    } else if is(n, &["after", "once", "when"]) && is(n + 1, &["that", "this", "done"]) {
        then = true;
        n += 2;
        n += usize::from(is(n, &["is"])) + usize::from(is(n + 1, &["done"]));
    }
    n += usize::from(is(n, &["also", "additionally"]));
    Link { words: n - at, then }
}

/// The noun of `add ~ tasks`, and the first word after it. A verb in the payload is data, even after a greeting.
fn plural(words: &[Word], start: usize, end: usize, payload: usize) -> Option<(usize, &'static str)> {
    let words = &words[..end];
    let at = lead(words, &(start..end));
    if at >= payload {
        return None;
    }
    let fit = Pattern::new("create|add|make|new|set ~ tasks|todos|to-dos|reminders to|for?").fit(words, at)?;
    Some((fit.end, "task"))
}

/// Splits a clause that asks for several tasks at once into one clause for each.
fn items(clause: &str, catalog: &Catalog) -> Vec<String> {
    let text = Text::new(clause);
    let words = &text.words;
    let listed = plural(words, 0, words.len(), text.payload_at()).filter(|_| catalog.may_have("tasks.create"));
    let Some((first, noun)) = listed.filter(|(first, _)| *first < words.len()) else {
        return vec![clause.to_owned()];
    };
    let mut items = Vec::new();
    let mut push = |range: Range<usize>| {
        let item = text.slice(range);
        if !item.is_empty() {
            items.push(format!("create {noun}: {item}"));
        }
    };
    let mut start = first;
    for (at, word) in words.iter().enumerate().skip(first) {
        let in_quote = word.quoted && words.get(at + 1).is_some_and(|next| next.quoted);
        if word.lower == "and" && !word.quoted {
            push(start..at);
            start = at + 1;
        } else if word.mark != Mark::Space && !in_quote {
            push(start..at + 1);
            start = at + 1;
        }
    }
    push(start..words.len());
    if items.is_empty() { vec![clause.to_owned()] } else { items }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::catalog, *};

    fn texts(source: &str) -> Vec<String> {
        split(source, &catalog()).into_iter().map(|c| if c.then { format!("> {}", c.text) } else { c.text }).collect()
    }

    #[test]
    fn splitter_cuts_where_the_next_request_begins() {
        for (source, wanted) in [
            (
                "Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due",
                vec![
                    "Create a task to review PR 42 due tomorrow",
                    "remember that Bob prefers email",
                    "> tell me what is due",
                ],
            ),
            ("Create a task to buy bread and butter", vec!["Create a task to buy bread and butter"]),
            (
                "Add a task to call Bob and remind me to water the plants",
                vec!["Add a task to call Bob", "remind me to water the plants"],
            ),
            ("Add a task to review PR 42 and update the docs", vec!["Add a task to review PR 42 and update the docs"]),
            ("finish task 3; what's due?", vec!["finish task 3", "what's due?"]),
            (
                "remember that tea is green. Create a task to buy tea.",
                vec!["remember that tea is green.", "Create a task to buy tea."],
            ),
            (
                "Remember that Bob prefers email. He hates calls.",
                vec!["Remember that Bob prefers email. He hates calls."],
            ),
            ("Create a task to call Bob. It is urgent.", vec!["Create a task to call Bob. It is urgent."]),
            (
                "create a task to call Bob and another one to email Ann",
                vec!["create a task to call Bob", "create task: email Ann"],
            ),
            (
                "create a task to call Bob and a note titled Plan: go",
                vec!["create a task to call Bob", "create a note titled Plan: go"],
            ),
            ("complete #3, after that show my tasks", vec!["complete #3", "> show my tasks"]),
            ("what's overdue and what do you know about Bob", vec!["what's overdue", "what do you know about Bob"]),
            (
                "create a task \"call Bob, and then remind me to sleep\"",
                vec!["create a task \"call Bob, and then remind me to sleep\""],
            ),
        ] {
            assert_eq!(texts(source), wanted, "{source}");
        }
    }

    #[test]
    fn splitter_makes_one_clause_for_each_listed_task() {
        assert_eq!(
            texts("add tasks: buy milk, call mom and water the plants"),
            ["create task: buy milk", "create task: call mom", "create task: water the plants"]
        );
        assert_eq!(
            texts("Add these tasks:\n- buy milk\n- call mom"),
            ["create task: buy milk", "create task: call mom"]
        );
    }

    #[test]
    fn splitter_limits_the_number_of_clauses() {
        assert_eq!(texts(&"what is due; ".repeat(100)).len(), CLAUSES_MAX);
        assert!(texts(" \n ").is_empty());
    }
}
