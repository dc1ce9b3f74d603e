//! Changes of an existing task, identified by number or by words: its status, its fields, its deletion.

use std::ops::Range;

use super::{
    Call, Filled, Filler,
    task::{DUE, STATUS, TAGS, TITLE},
    words::{as_title, level},
};
use crate::{
    choose::reads,
    dates, fallback,
    text::{Mark, shortened, unquoted},
};

const ID: [&str; 5] = ["id", "number", "task_id", "task", "n"];
const DESCRIPTION: [&str; 4] = ["description", "details", "notes", "body"];
/// Words around a task's name that are not part of the name.
const NOUNS: [&str; 19] = [
    "task", "tasks", "todo", "to-do", "reminder", "item", "list", "the", "my", "a", "an", "called", "named", "titled",
    "about", "with", "for", "to", "of",
];
const ONE_BY_ONE: &str = "I change tasks only by their numbers or by words that fit one of them, so I changed nothing. Say for example: “mark \
     tasks 1 and 2 as done”.";

/// The tasks that a clause refers to.
enum Which {
    Numbers(Vec<u64>),
    Words(String),
    /// The reference is not possible; this is the answer.
    Answer(Filled),
}

impl Filler<'_> {
    /// A new status for a task.
    pub(super) fn status(&self, start: usize, gap: Range<usize>, rest: Range<usize>, status: &str) -> Filled {
        let mut call = self.call();
        if !self.put(&mut call, &STATUS, status) {
            return Filled::Missing(format!("{} cannot set a status of {status}", self.skill.name));
        }
        let named = if gap.is_empty() { rest.clone() } else { gap.clone() };
        self.refuse_unread_words(start, &[gap], rest.start, &[])
            .unwrap_or_else(|| self.on_task(start, named, &[], call))
    }

    /// The refusal if a change of numbered tasks contains words that were not understood.
    fn refuse_unread_words(
        &self,
        start: usize,
        gaps: &[Range<usize>],
        fit: usize,
        used: &[Range<usize>],
    ) -> Option<Filled> {
        let numbers = self.numbers(self.head(start));
        let first = numbers.first()?;
        let left = self.left_over(start, gaps, fit, used);
        (!left.is_empty()).then(|| {
            Filled::Answer(format!(
                "I understood this only in part, so I changed nothing: what does “{}” mean for task {first}? Say for example: \
                 “mark task {first} as done”, “move task {first} to Monday” or “rename task {first} to Call Bob”.",
                shortened(&left, 80)
            ))
        })
    }

    /// A task to show or to delete.
    pub(super) fn one(&self, start: usize, gap: Range<usize>, rest: Range<usize>) -> Filled {
        let call = self.call();
        let recent = (start..self.words().len()).any(|at| self.is(at, &["recent"]));
        if recent && let Some(flag) = self.flag(&["recent"]) {
            return Filled::Ready(vec![Call { args: vec![(flag.name.clone(), true.into())], ..call }]);
        }
        let named = if gap.is_empty() { rest.clone() } else { gap.clone() };
        if !reads(&self.skill.name)
            && let Some(answer) = self.refuse_unread_words(start, &[gap], rest.start, &[])
        {
            return answer;
        }
        self.on_task(start, named, &[], call)
    }

    /// Looks up the task to delete, so that the user sees it before the deletion.
    pub(super) fn ask_delete(&self, start: usize, gap: Range<usize>, rest: Range<usize>) -> Filled {
        let named = if gap.is_empty() { rest.clone() } else { gap.clone() };
        if let Some(answer) = self.refuse_unread_words(start, &[gap], rest.start, &[]) {
            return answer;
        }
        let mut call = self.call();
        let put = match self.which(start, named, &[]) {
            Which::Numbers(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
                match numbers.as_slice() {
                    [one] => self.put(&mut call, &ID, one),
                    many => self.put(&mut call, &["ids"], &many.join(",")),
                }
            }
            Which::Words(query) => self.put(&mut call, &["query", "text", "search", "q"], &query),
            Which::Answer(answer) => return answer,
        };
        if put { Filled::Confirm(call) } else { Filled::Answer(ONE_BY_ONE.to_owned()) }
    }

    /// `snooze task 3 for 10 minutes`, `remind me of task 3 tomorrow at 9`.
    pub(super) fn snooze(&self, start: usize, rest: Range<usize>) -> Filled {
        const MINUTES: &str = "in 10 minutes";
        let mut call = self.call();
        let [number] = self.numbers(self.head(start))[..] else {
            let one = "I remind you again of one task at a time, so I changed nothing. Say for example: “snooze task 3 for 10 \
                       minutes”.";
            return Filled::Answer(one.to_owned());
        };
        let lasts = rest.clone().find(|at| self.is(*at, &["for", "by"]) && *at + 3 <= rest.end);
        // `by an hour` counts from the time of the reminder.
        let lasting = lasts.map(|at| (self.is(at, &["by"]), self.slice(at + 1..at + 3), at..at + 3));
        let lasting = lasting.filter(|(_, text, _)| dates::is_offset(&format!("in {text}")));
        let (when, used) = match (lasting, self.date(rest.clone())) {
            (Some((true, text, words)), _) => (format!("{text} later"), vec![words]),
            (Some((false, text, words)), _) => (format!("in {text}"), vec![words]),
            (None, Some(date)) => (date.value, date.words),
            (None, None) => (MINUTES.to_owned(), Vec::new()),
        };
        self.put(&mut call, &ID, &number.to_string());
        self.put(&mut call, &["when"], &when);
        self.refuse_unread_words(start, &[], rest.start, &used).unwrap_or_else(|| self.ready(call))
    }

    /// `remove the due date from task 1`.
    pub(super) fn clear(&self, start: usize, rest: Range<usize>) -> Filled {
        let head = start..rest.start;
        let names = |words: &[&str]| head.clone().any(|at| self.is(at, words));
        let mut call = self.call();
        let put = if names(&["due", "deadline", "date"]) {
            self.put(&mut call, &DUE, "none")
        } else if names(&["tags", "labels"]) {
            self.put(&mut call, &TAGS, "none")
        } else if names(&["description", "details"]) {
            self.flag(&DESCRIPTION).map(|flag| call.args.push((flag.name.clone(), "".into()))).is_some()
        } else {
            let one = "I can take away a task's date, its description or all of its tags (“remove the tags from task 3”); a \
                       single tag, the title and the priority can only be replaced (“set the tags of task 3 to home, work”). \
                       I changed nothing.";
            return Filled::Answer(one.to_owned());
        };
        if !put {
            return Filled::Missing(format!("{} cannot take this away", self.skill.name));
        }
        self.refuse_unread_words(start, &[], rest.start, &[]).unwrap_or_else(|| self.on_task(start, rest, &[], call))
    }

    /// `add a due date to task 1: friday`, and refusals for what cannot be added to a task.
    pub(super) fn add_to(&self, start: usize, rest: Range<usize>) -> Filled {
        let all = start..self.words().len();
        let names = |words: &[&str]| all.clone().any(|at| self.is(at, words));
        let numbers = self.numbers(self.head(start));
        let number = numbers.first().map_or_else(|| "3".to_owned(), u64::to_string);
        if names(&["tag", "tags", "label", "labels"]) {
            return Filled::Answer(format!(
                "I can only set all tags of a task at once, so I changed nothing. Say: “set the tags of task {number} to …”, with \
                 the ones that it has."
            ));
        }
        if names(&["due", "deadline", "date", "priority"]) {
            let change = self.change(start, rest.start..rest.start, rest);
            return match change {
                Filled::Missing(_) => Filled::Answer(format!(
                    "I did not understand the date or priority, so I changed nothing. Say for example: “move task {number} to \
                     Monday” or “set the priority of task {number} to high”."
                )),
                change => change,
            };
        }
        Filled::Answer(format!(
            "A task has a title, a description, a date, a priority, a status and tags; I cannot add this to it, so I changed \
             nothing. Say for example: “set the description of task {number} to …”."
        ))
    }

    /// `move the dentist to Monday`: a task by its words, if only a date follows.
    pub(super) fn moved(&self, gap: Range<usize>, rest: Range<usize>) -> Filled {
        let date = dates::find(self.words(), rest.clone()).filter(|d| {
            rest.clone().all(|at| d.words.iter().any(|r| r.contains(&at)) || self.is(at, &["please", "now", "thanks"]))
        });
        let Some(date) = date.filter(|_| !gap.is_empty()) else {
            return Filled::Answer(fallback::not_understood(&[self.text.source.to_owned()]));
        };
        let mut call = self.call();
        self.put(&mut call, &DUE, &date.text);
        self.on_task(gap.start, gap, &date.words, call)
    }

    /// A change of fields of a task.
    pub(super) fn change(&self, start: usize, gap: Range<usize>, rest: Range<usize>) -> Filled {
        let all = start..self.words().len();
        let mut call = self.call();
        let mut used = Vec::new();
        let field = |words: &[&str]| (start..rest.start).any(|at| self.is(at, words));
        if field(&["rename", "retitle", "title", "name"]) {
            self.put_text(&mut call, &TITLE, rest.clone(), &mut used);
        } else if field(&["description", "details"]) {
            self.put_text(&mut call, &DESCRIPTION, rest.clone(), &mut used);
        } else if field(&["tags", "tag", "labels"])
            && !(start..rest.start).any(|at| self.is(at, &["task", "todo", "#"]))
        {
            self.put_text(&mut call, &TAGS, rest.clone(), &mut used);
        } else {
            self.attributes(&mut call, start, &all, &mut used);
        }
        if call.args.is_empty() {
            let what = "I did not understand what to change about the task: say its date, priority, status or title, for \
                        example “move task 3 to Monday”";
            return Filled::Missing(what.to_owned());
        }
        if let Some(answer) = self.refuse_unread_words(start, std::slice::from_ref(&gap), rest.start, &used) {
            return answer;
        }
        let end = used.iter().map(|r| r.start).filter(|s| *s > rest.start).min().unwrap_or(rest.end);
        let named = if gap.is_empty() { rest.start.min(end)..end } else { gap };
        self.on_task(start, named, &used, call)
    }

    /// The value after `to`, `as` or a colon that follows the task.
    fn put_text(&self, call: &mut Call, names: &[&str], rest: Range<usize>, used: &mut Vec<Range<usize>>) {
        let words = self.words();
        let leads = |at: &usize| self.is(*at, &["to", "as"]) || words[*at].mark == Mark::Colon;
        // The task's own words may contain a `to`; after its number or noun no such words follow.
        let numbered = words.get(rest.start).is_some_and(|w| crate::pattern::number(&w.lower).is_some());
        let named = rest.start > 0 && self.is(rest.start - 1, &["task", "todo", "reminder"]);
        let noun = rest.clone().find(|at| !numbered && !named && self.is(*at, &["task", "todo", "reminder"]));
        let Some(at) = (noun.unwrap_or(rest.start)..rest.end).find(leads).filter(|at| at + 1 < rest.end) else {
            return;
        };
        let value = self.slice(at + 1..rest.end);
        let value = match names {
            _ if names == TITLE => as_title(value),
            _ if names == TAGS => value.replace(" and ", ", ").trim_end_matches(['.', '!']).to_owned(),
            _ => unquoted(value).to_owned(),
        };
        self.put(call, names, &value);
        used.push(if words[at].mark == Mark::Colon { at + 1 } else { at }..rest.end);
    }

    /// Date, priority, tags and status in the words of a change.
    fn attributes(&self, call: &mut Call, start: usize, all: &Range<usize>, used: &mut Vec<Range<usize>>) {
        if let Some(due) = dates::find(self.words(), all.clone()) {
            self.put(call, &DUE, &due.text);
            used.extend(due.words);
        }
        // `lower the priority` names no level.
        let bare = (start + 1..all.end).find_map(|at| level(&self.words()[at].lower)).map(str::to_owned);
        let priority = self.priority(all.clone());
        used.extend(priority.iter().flat_map(|p| p.words.clone()));
        if let Some(level) = priority.map(|p| p.value).or(bare) {
            self.put_priority(call, &level);
        }
        if let Some(tags) = self.tags(all.clone()) {
            self.put(call, &TAGS, &tags.value);
            used.extend(tags.words);
        }
        let states =
            [(["done", "complete", "completed", "finished"], "done"), (["blocked", "stuck", "waiting", ""], "blocked")];
        for (words, status) in states {
            if all.clone().any(|at| self.is(at, &words)) {
                self.put(call, &STATUS, status);
            }
        }
    }

    /// The numbers or the words by which tasks are identified. Numbers in a new value do not count.
    fn which(&self, start: usize, named: Range<usize>, used: &[Range<usize>]) -> Which {
        let head = self.head(start);
        let end = used.iter().map(|r| r.start).filter(|s| *s > start).min().map_or(head.end, |end| end.min(head.end));
        let behind = used.iter().map(|r| r.end).filter(|e| *e < head.end).max();
        let mut numbers = self.numbers(start..end);
        if numbers.is_empty() {
            numbers = behind.map(|from| self.numbers(from..head.end)).unwrap_or_default();
        }
        if !numbers.is_empty() {
            return Which::Numbers(numbers);
        }
        if let Some(quote) = self.text.quote_from(named.start).filter(|_| !named.is_empty()) {
            return Which::Words(quote.trim().to_owned());
        }
        let mut range = named;
        while range.start < range.end && self.is(range.start, &NOUNS) {
            range.start += 1;
        }
        const ENDS: [&str; 8] = ["as", "from", "off", "is", "now", "today", "please", "and"];
        while range.end > range.start && (self.is(range.end - 1, &NOUNS) || self.is(range.end - 1, &ENDS)) {
            range.end -= 1;
        }
        let everything = ["all", "everything", "every", "them", "these", "those", "both", "any", "each"];
        if (start..head.end).any(|at| self.is(at, &everything)) {
            return Which::Answer(Filled::Answer(ONE_BY_ONE.to_owned()));
        }
        let query = self.query(range.clone());
        let text =
            if query.is_empty() { self.slice(range).trim_end_matches(['?', '.', '!']).to_owned() } else { query };
        if text.is_empty() {
            let why = "I did not understand which task you mean: say its number, like “task 3”";
            return Which::Answer(Filled::Missing(why.to_owned()));
        }
        Which::Words(text)
    }

    /// Completes a call with the task's number, or with the query that finds it.
    fn on_task(&self, start: usize, named: Range<usize>, used: &[Range<usize>], call: Call) -> Filled {
        let Some(id) = self.flag(&ID) else {
            return Filled::Missing(format!("{} does not say how to name a task", self.skill.name));
        };
        match self.which(start, named, used) {
            Which::Numbers(numbers) => {
                let with = |n: &u64| {
                    let mut call = call.clone();
                    call.args.insert(0, (id.name.clone(), (*n).into()));
                    call
                };
                Filled::Ready(numbers.iter().map(with).collect())
            }
            Which::Words(query) => Filled::Find { query, id_flag: id.name.clone(), call },
            Which::Answer(answer) => answer,
        }
    }
}
