//! Tasks: titles with dates in them, filters of lists, and changes of a task that is named by its number or its words.

use std::ops::Range;

use annie_core::skill::ArgKind;

use super::{
    Call, Filled, Filler,
    words::{as_title, level},
};
use crate::offline::{dates, pattern::number, text::unquoted};

const DUE: [&str; 7] = ["due", "due_date", "due_on", "date", "deadline", "when", "at"];
const TITLE: [&str; 6] = ["title", "name", "subject", "summary", "task", "text"];
const TAGS: [&str; 2] = ["tags", "tag"];
const ID: [&str; 5] = ["id", "number", "task_id", "task", "n"];
const STATUS: [&str; 2] = ["status", "state"];
/// Words around a task's name that are not part of it.
const NOUNS: [&str; 19] = [
    "task", "tasks", "todo", "to-do", "reminder", "item", "list", "the", "my", "a", "an", "called", "named", "titled",
    "about", "with", "for", "to", "of",
];

impl Filler<'_> {
    /// A new task out of the rest.
    pub(super) fn title(&self, start: usize, rest: Range<usize>) -> Filled {
        let (described, rest) = self.description(rest);
        let mut call = self.call();
        let mut left_out = Vec::new();
        let titled = self.quoted_title(&rest);
        if let Some(due) = self.date(rest.clone()).filter(|_| self.flag(&DUE).is_some()) {
            self.put(&mut call, &DUE, &due.value);
            left_out.extend(due.words);
        }
        let head = start..rest.start;
        let head_level = head.clone().find_map(|at| {
            let word = &self.words()[at].lower;
            level(word.strip_suffix("-priority").unwrap_or(word)).map(str::to_owned)
        });
        if let Some(priority) = self.priority(self.before(&rest, &left_out)) {
            if self.put_priority(&mut call, &priority.value) {
                left_out.extend(priority.words);
            }
        } else if let Some(level) = head_level {
            self.put_priority(&mut call, &level);
        }
        if let Some(tags) = self.tags(rest.clone()).filter(|_| self.flag(&TAGS).is_some()) {
            self.put(&mut call, &TAGS, &tags.value);
            left_out.extend(tags.words);
        }
        let title = titled.unwrap_or_else(|| as_title(&self.without(rest.clone(), &left_out)));
        let title = if title.is_empty() { as_title(self.slice(rest)) } else { title };
        self.put(&mut call, &TITLE, &title);
        if let Some(description) = described {
            self.put(&mut call, &["description", "details", "notes", "body"], &description);
        }
        // What is to be done comes first, as people read it.
        call.args.sort_by_key(|(name, _)| !TITLE.contains(&name.as_str()));
        self.ready(call)
    }

    /// The range without a date at its end, so that what stands before the date is seen as the end.
    fn before(&self, range: &Range<usize>, left_out: &[Range<usize>]) -> Range<usize> {
        let end = left_out.iter().find(|r| r.end == range.end).map_or(range.end, |r| r.start);
        range.start..end.max(range.start)
    }

    /// A title in quotes at the beginning is the whole title.
    fn quoted_title(&self, rest: &Range<usize>) -> Option<String> {
        let first = self.words().get(rest.start).filter(|w| w.quoted && rest.start < rest.end)?;
        let quote = self.text.quotes.iter().find(|q| q.contains(&first.at.start))?;
        Some(self.text.source[quote.clone()].trim().to_owned()).filter(|t| !t.is_empty())
    }

    /// Splits off `with description …`.
    fn description(&self, rest: Range<usize>) -> (Option<String>, Range<usize>) {
        let at = rest.clone().find(|at| {
            self.is(*at, &["description", "details", "desc"])
                && *at > rest.start
                && self.is(*at - 1, &["with", "the", "a", "and"])
        });
        let Some(at) = at.filter(|at| at + 1 < rest.end) else { return (None, rest) };
        let mut end = at - 1;
        while end > rest.start
            && self.is(end, &["with", "the", "a", "and"])
            && self.is(end - 1, &["with", "the", "a", "and"])
        {
            end -= 1;
        }
        (Some(unquoted(self.slice(at + 1..rest.end)).to_owned()), rest.start..end)
    }

    /// `add milk to my list tomorrow`.
    pub(super) fn gap_title(&self, start: usize, gap: Range<usize>, rest: Range<usize>) -> Filled {
        let filled = self.title(start, gap);
        let Filled::Ready(mut calls) = filled else { return filled };
        for call in &mut calls {
            if let Some(due) = self.date(rest.clone()) {
                self.put(call, &DUE, &due.value);
            }
            if let Some(priority) = self.priority(rest.clone()) {
                self.put_priority(call, &priority.value);
            }
        }
        Filled::Ready(calls)
    }

    /// The filters of a task list.
    pub(super) fn list(&self, start: usize) -> Filled {
        let all = start..self.words().len();
        let mut call = self.call();
        self.put_list_status(&mut call, &all);
        let mut left_out = Vec::new();
        if let Some(due) = self.date(all.clone()) {
            // A filter is one day or one span: `by friday` means all until then, which is what no filter shows.
            let until = due.words.iter().any(|r| (r.clone()).any(|at| self.is(at, &["by", "before", "until", "till"])));
            if !until && let Some(day) = day_only(&due.value) {
                self.put(&mut call, &DUE, &day);
            }
            left_out.extend(due.words);
        }
        let urgent = all.clone().find(|at| self.is(*at, &["urgent", "critical", "important"]));
        let urgent = urgent.and_then(|at| level(&self.words()[at].lower)).map(str::to_owned);
        let priority = self.priority(all.clone());
        if let Some(level) = priority.as_ref().map(|p| p.value.clone()).or(urgent) {
            self.put_priority(&mut call, &level);
        }
        left_out.extend(priority.into_iter().flat_map(|p| p.words));
        if let Some(tags) = self.tags(all.clone()) {
            let first = tags.value.split(',').next().unwrap_or_default().to_owned();
            self.put(&mut call, &["tag", "tags"], &first);
            left_out.extend(tags.words);
        }
        if let Some(at) = all.clone().find(|at| {
            self.is(*at, &["first", "top", "next"])
                && self.words().get(at + 1).is_some_and(|w| number(&w.lower).is_some())
        }) {
            self.put(&mut call, &["limit", "count", "max"], &self.words()[at + 1].lower);
        }
        if let Some(query) = self.list_query(&all, &left_out) {
            self.put(&mut call, &["query", "text", "words", "search"], &query);
        }
        self.ready(call)
    }

    fn put_list_status(&self, call: &mut Call, all: &Range<usize>) {
        let said = |words: &[&str]| all.clone().any(|at| self.is(at, words));
        let status = if said(&["overdue", "late"]) {
            "overdue"
        } else if said(&["done", "completed", "finished"])
            || (said(&["did"]) && said(&["finish", "complete", "do", "achieve"]))
        {
            "done"
        } else if said(&["blocked", "stuck"]) {
            "blocked"
        } else if said(&["progress", "started", "ongoing"]) {
            "in_progress"
        } else if said(&["cancelled", "canceled"]) {
            "cancelled"
        } else if said(&["all", "every"]) && !said(&["due", "open"]) {
            "all"
        } else {
            "open"
        };
        if !self.put(call, &STATUS, status)
            && let Some(flag) = self.flag(&[status]).filter(|a| a.kind == ArgKind::Bool)
        {
            call.args.push((flag.name.clone(), true.into()));
        }
    }

    /// What the tasks are about: `tasks about the report`, `the task called x`.
    fn list_query(&self, all: &Range<usize>, left_out: &[Range<usize>]) -> Option<String> {
        const ABOUT: [&str; 11] = [
            "about",
            "with",
            "for",
            "named",
            "called",
            "titled",
            "containing",
            "matching",
            "mentioning",
            "regarding",
            "on",
        ];
        let noun = all
            .clone()
            .find(|at| self.is(*at, &["task", "tasks", "todo", "todos", "to-dos", "reminder", "reminders"]))?;
        if !self.is(noun + 1, &ABOUT) {
            return None;
        }
        let text = self.without(noun + 2..all.end, left_out);
        let text = unquoted(text.trim_end_matches(['?', '.', '!'])).to_owned();
        let empty = ["", "me", "my list", "us", "it", "my", "the list", "that are"];
        (!empty.contains(&text.to_lowercase().as_str())).then_some(text)
    }

    /// A task's new status.
    pub(super) fn status(&self, start: usize, gap: Range<usize>, rest: Range<usize>, status: &str) -> Filled {
        let mut call = self.call();
        if !self.put(&mut call, &STATUS, status) {
            return Filled::Missing(format!("{} cannot set a status of {status}", self.skill.name));
        }
        let named = if gap.is_empty() { rest } else { gap };
        self.on_task(start, named, call)
    }

    /// A task to show or to delete.
    pub(super) fn one(&self, start: usize, gap: Range<usize>, rest: Range<usize>) -> Filled {
        let call = self.call();
        let recent = (start..self.words().len()).any(|at| self.is(at, &["recent"]));
        if recent && let Some(flag) = self.flag(&["recent"]) {
            return Filled::Ready(vec![Call { args: vec![(flag.name.clone(), true.into())], ..call }]);
        }
        let named = if gap.is_empty() { rest } else { gap };
        self.on_task(start, named, call)
    }

    /// What is to change about a task.
    pub(super) fn change(&self, start: usize, rest: Range<usize>) -> Filled {
        let all = start..self.words().len();
        let mut call = self.call();
        let mut left_out = Vec::new();
        let renames = all.clone().any(|at| self.is(at, &["rename", "retitle", "title", "name"]));
        if renames {
            let to = rest
                .clone()
                .rev()
                .find(|at| self.is(*at, &["to", "as"]) || self.words()[*at].mark == crate::offline::text::Mark::Colon);
            if let Some(at) = to {
                self.put(&mut call, &TITLE, &as_title(self.slice(at + 1..all.end)));
                left_out.push(at..all.end);
            }
        } else {
            if let Some(due) = dates::find(self.words(), all.clone()) {
                self.put(&mut call, &DUE, &due.text);
                left_out.extend(due.words);
            }
            let bare = all.clone().find_map(|at| level(&self.words()[at].lower)).map(str::to_owned);
            let priority = self.priority(all.clone());
            left_out.extend(priority.iter().flat_map(|p| p.words.clone()));
            if let Some(level) = priority.map(|p| p.value).or(bare) {
                self.put_priority(&mut call, &level);
            }
            if let Some(tags) = self.tags(all.clone()) {
                self.put(&mut call, &TAGS, &tags.value);
                left_out.extend(tags.words);
            }
            for (words, status) in [
                (["done", "complete", "completed", "finished"], "done"),
                (["blocked", "stuck", "waiting", ""], "blocked"),
            ] {
                if all.clone().any(|at| self.is(at, &words)) {
                    self.put(&mut call, &STATUS, status);
                }
            }
        }
        if call.args.is_empty() {
            return Filled::Missing(
                "I did not understand what to change about the task: say its date, priority, status or title"
                    .to_owned(),
            );
        }
        let named = rest.start..left_out.iter().map(|r| r.start).filter(|s| *s > rest.start).min().unwrap_or(rest.end);
        self.on_task(start, named, call)
    }

    /// Completes a call with the task's number, or with how to find it.
    fn on_task(&self, start: usize, named: Range<usize>, call: Call) -> Filled {
        let Some(id) = self.flag(&ID) else {
            return Filled::Missing(format!("{} does not say how to name a task", self.skill.name));
        };
        let numbers = self.numbers(start..self.words().len());
        if !numbers.is_empty() {
            let with = |n: &u64| {
                let mut call = call.clone();
                call.args.insert(0, (id.name.clone(), (*n).into()));
                call
            };
            return Filled::Ready(numbers.iter().map(with).collect());
        }
        let text = match self.text.quote_from(named.start).filter(|_| !named.is_empty()) {
            Some(quote) => quote.trim().to_owned(),
            None => {
                let mut range = named;
                while range.start < range.end && self.is(range.start, &NOUNS) {
                    range.start += 1;
                }
                while range.end > range.start
                    && (self.is(range.end - 1, &NOUNS)
                        || self.is(range.end - 1, &["as", "from", "off", "is", "now", "today", "please"]))
                {
                    range.end -= 1;
                }
                let told = self.query(range.clone());
                if told.is_empty() { self.slice(range).trim_end_matches(['?', '.', '!']).to_owned() } else { told }
            }
        };
        if text.is_empty() {
            return Filled::Missing("I did not understand which task you mean: say its number, like #3".to_owned());
        }
        Filled::Find { query: text, id_flag: id.name.clone(), call }
    }
}

/// The day of a date with a time: filters take whole days, `this_week` as one word.
fn day_only(due: &str) -> Option<String> {
    let is_time = |w: &&str| w.contains(':') || w.ends_with("am") || w.ends_with("pm");
    let parts = ["morning", "noon", "midday", "afternoon", "evening", "night", "midnight"];
    let words: Vec<&str> = due.split(' ').filter(|w| !is_time(w) && !parts.contains(w)).collect();
    match words.as_slice() {
        [] => None,
        ["tonight" | "eod"] => Some("today".to_owned()),
        ["this" | "next" | "last", "week" | "month"] => Some(words.join("_")),
        _ => Some(words.join(" ")),
    }
}
