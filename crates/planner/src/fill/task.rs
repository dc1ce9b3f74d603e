//! Tasks: titles with dates in them, and filters of lists.

use std::ops::Range;

use annie_core::{calendar::NUMBERS, skill::ArgKind};

use super::{
    Call, Filled, Filler,
    words::{as_title, level},
};
use crate::{
    dates,
    pattern::number,
    text::{Mark, shortened, unquoted},
};

pub(super) const DUE: [&str; 7] = ["due", "due_date", "due_on", "date", "deadline", "when", "at"];
pub(super) const TITLE: [&str; 6] = ["title", "name", "subject", "summary", "task", "text"];
pub(super) const TAGS: [&str; 2] = ["tags", "tag"];
pub(super) const STATUS: [&str; 2] = ["status", "state"];

/// Said of a reminder without a time of day.
const WITHOUT_TIME: &str = "It stands on your list without a reminder, because I found no time of day. Say for example: “remind me to \
    call Bob tomorrow at 9”.";
/// When a reminder for a day without a time of day reminds.
const REMINDED_AT: &str = "9:00";

impl Filler<'_> {
    /// A new task from the remaining words.
    pub(super) fn title(&self, start: usize, rest: Range<usize>) -> Filled {
        let line_end = rest.clone().find(|at| self.words()[*at].mark == Mark::Line && *at + 1 < rest.end);
        let lines =
            line_end.map(|at| self.slice(at + 1..rest.end).to_owned()).filter(|_| rest.end == self.words().len());
        let rest = rest.start..line_end.map_or(rest.end, |at| at + 1);
        let (described, rest) = self.description(rest);
        let described = match (described, lines) {
            (Some(inline), Some(lines)) => Some(format!("{inline}\n{lines}")),
            (inline, lines) => inline.or(lines),
        };
        if let Some(answer) = self.refuse_date(&rest, start) {
            return answer;
        }
        let mut call = self.call();
        let mut left_out = Vec::new();
        let titled = self.quoted_title(&rest);
        let reminds = (start..rest.start).any(|at| self.is(at, &["remind", "reminder", "reminders"]));
        let (has_time, dated) = self.put_due(&mut call, &rest, reminds);
        left_out.extend(dated);
        let head_level = (start..rest.start).find_map(|at| {
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
        let second = left_out.iter().map(|r| r.end).find(|end| {
            self.is(*end, &["and", "or"]) && self.date(end + 1..rest.end).is_some_and(|d| d.words[0].start == end + 1)
        });
        if let Some(at) = second.filter(|at| *at < rest.end) {
            return Filled::Answer(format!(
                "A task has one date, so I made none: what about “{}”? Say one request for each.",
                shortened(self.slice(at..rest.end), 60)
            ));
        }
        let title = titled.unwrap_or_else(|| as_title(&self.without(rest.clone(), &left_out)));
        if says_nothing(&title) {
            return Filled::Answer(self.ask_for_title(&call));
        }
        if let Some(at) = self.unread_time(&rest, &left_out).filter(|_| reminds || has_time) {
            return self.refuse_time(at, has_time);
        }
        let undated = rest.clone().find(|at| {
            self.is(*at, &["due", "deadline"]) && !left_out.iter().any(|r| r.contains(at)) && self.flag(&DUE).is_some()
        });
        if let Some(at) = undated.filter(|at| *at > rest.start) {
            return Filled::Answer(format!(
                "I did not understand the date “{}”, so I made no task. Say it like “tomorrow”, “next friday at 14:00”, \
                 “in 3 days” or “2026-12-24”.",
                shortened(self.slice(at..rest.end), 60)
            ));
        }
        self.put(&mut call, &TITLE, &title);
        if let Some(description) = described {
            self.put(&mut call, &["description", "details", "notes", "body"], &description);
        }
        // The title comes first, in the order that people expect.
        call.args.sort_by_key(|(name, _)| !TITLE.contains(&name.as_str()));
        match self.ready(call) {
            Filled::Ready(mut calls) if reminds && !has_time && calls.len() == 1 => {
                Filled::Noted(calls.remove(0), WITHOUT_TIME.to_owned())
            }
            filled => filled,
        }
    }

    /// The refusal of a new task whose date is over or may mean two days.
    fn refuse_date(&self, rest: &Range<usize>, start: usize) -> Option<Filled> {
        let reminds = (start..rest.start).any(|at| self.is(at, &["remind", "reminder"]));
        if let Some(len) = dates::past_at(self.words(), rest.start).filter(|_| reminds) {
            return Some(Filled::Answer(format!(
                "I cannot remind you “{}”, because that is over, so I made nothing. Say for example: “remind me to call Bob \
                 tomorrow at 9”.",
                self.slice(rest.start..(rest.start + len).min(rest.end)).trim_end_matches(['.', '!'])
            )));
        }
        let at = dates::with_slash(self.words(), rest.clone())?;
        Some(Filled::Answer(format!(
            "I am not sure which day “{}” is, so I made nothing. Write it like “11 December” or “2026-12-11”.",
            self.slice(at..at + 1).trim_end_matches(['.', '!', '?'])
        )))
    }

    /// The first word of a time of day that is not the task's: `at 25`, or a second time.
    fn unread_time(&self, rest: &Range<usize>, left_out: &[Range<usize>]) -> Option<usize> {
        let is_clock = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_digit()) && word.bytes().all(|b| b.is_ascii_digit() || b == b':')
        };
        let is_unread = |at: usize| !left_out.iter().any(|range| range.contains(&at));
        let ends = |at: usize| at + 1 >= rest.end || self.is(at + 1, &["to"]) || self.words()[at].mark != Mark::Space;
        let is_spoken = |at: usize| {
            self.is(at, &["half", "quarter"]) && self.is(at + 1, &["past", "to"]) || self.is(at, &NUMBERS) && ends(at)
        };
        let is_time = |at: usize| is_unread(at) && (is_clock(&self.words()[at].lower) && ends(at) || is_spoken(at));
        rest.clone().find(|at| self.is(*at, &["at"]) && at + 1 < rest.end && is_time(at + 1))
    }

    fn refuse_time(&self, at: usize, has_time: bool) -> Filled {
        let said = self.slice(at..at + 2).trim_end_matches(['.', '!', '?']);
        Filled::Answer(if has_time {
            format!("A task has one time, so I made none: what about “{said}”? Say one request for each.")
        } else {
            format!("I did not understand the time “{said}”, so I made nothing. Say it like “at 14:30” or “at 3pm”.")
        })
    }

    /// Sets the due date in these words. Returns whether it has a time of day, and its words.
    fn put_due(&self, call: &mut Call, rest: &Range<usize>, reminds: bool) -> (bool, Vec<Range<usize>>) {
        let Some(due) = self.date(rest.clone()).filter(|_| self.flag(&DUE).is_some()) else {
            return (false, Vec::new());
        };
        let has_time = dates::names_time(&due.value);
        // A reminder needs a time of day. That of today may have passed.
        let adds_time = reminds && !has_time && due.value != "today";
        let value = if adds_time { format!("{} {REMINDED_AT}", due.value) } else { due.value };
        self.put(call, &DUE, &value);
        (has_time || adds_time, due.words)
    }

    /// Asks for the title of a task of which only the date was given.
    fn ask_for_title(&self, call: &Call) -> String {
        let due = call.args.iter().find(|(name, _)| DUE.contains(&name.as_str())).and_then(|(_, due)| due.as_str());
        let on = due.map(|due| format!(" for {due}")).unwrap_or_default();
        let example = due.map(|due| format!(", due {due}")).unwrap_or_default();
        format!(
            "What shall I put on your list{on}? Say it in one sentence, for example: “create a task to call Bob{example}”."
        )
    }

    /// The range without a date at its end, so that a priority before the date counts as being at the end.
    fn before(&self, range: &Range<usize>, left_out: &[Range<usize>]) -> Range<usize> {
        let end = left_out.iter().find(|r| r.end == range.end).map_or(range.end, |r| r.start);
        range.start..end.max(range.start)
    }

    /// A quoted text at the beginning is the whole title.
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
        let mut calls = match self.title(start, gap) {
            Filled::Ready(calls) => calls,
            Filled::Noted(call, _) => vec![call],
            other => return other,
        };
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
        let mut unused = String::new();
        if let Some(due) = self.date(all.clone()) {
            // A date filter is one day or one span. `by friday` means any time until then, which no filter expresses. A
            // task finished on one day may have been due on another.
            let until = due.words.iter().any(|r| (r.clone()).any(|at| self.is(at, &["by", "before", "until", "till"])));
            let finished = call.args.iter().any(|(name, value)| STATUS.contains(&name.as_str()) && value == "done")
                && !all.clone().any(|at| self.is(at, &["due"]));
            if until || finished {
                unused = self.without(due.words.first().cloned().unwrap_or(0..0), &[]);
            } else if let Some(day) = day_only(&due.value) {
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
        let query = self.list_query(&all, &left_out);
        if let Some(query) = &query {
            self.put(&mut call, &["query", "text", "words", "search"], query);
        }
        if unused.is_empty() && query.is_none() {
            unused = self.unused(&all, &left_out);
        }
        match self.ready(call) {
            Filled::Ready(mut calls) if !unused.is_empty() && calls.len() == 1 => {
                let text = format!("I did not use “{}” to choose among your tasks.", shortened(&unused, 60));
                Filled::Noted(calls.remove(0), text)
            }
            filled => filled,
        }
    }

    /// Words of a question about tasks that no filter covers.
    fn unused(&self, all: &Range<usize>, left_out: &[Range<usize>]) -> String {
        const KNOWN: &str = "what which show list display give tell read get see view check find search look review me my \
            mine the a an all any every everything anything something is are was were be do does did have has had i you we \
            to on in at of for up out through still need should must shall can could would left open task tasks todo todos \
            to-do to-dos reminder reminders thing things list lists agenda plate schedule plan planned due overdue late next \
            pending outstanding upcoming coming there that done completed finished finish complete blocked stuck progress \
            started ongoing cancelled canceled priority urgent critical important high low medium normal first top now today \
            please else many how much more work tackle focus supposed meant expected remains needs got so far already yet \
            just currently current this be been with and also annie right been achieved achieve get order by date it if \
            whether or not no deadline deadlines busy am total count";
        let known = |at: usize| {
            let word = &self.words()[at];
            left_out.iter().any(|r| r.contains(&at))
                || (!word.quoted
                    && (number(&word.lower).is_some() || KNOWN.split_whitespace().any(|k| k == word.lower)))
        };
        let left: Vec<&str> = all.clone().filter(|at| !known(*at)).map(|at| self.slice(at..at + 1)).collect();
        left.join(" ").trim_end_matches(['?', '.', '!']).to_owned()
    }

    fn put_list_status(&self, call: &mut Call, all: &Range<usize>) {
        let contains = |words: &[&str]| all.clone().any(|at| self.is(at, words));
        let status = if contains(&["overdue", "late"]) {
            "overdue"
        } else if contains(&["done", "completed", "finished"])
            || (contains(&["did"]) && contains(&["finish", "complete", "do", "achieve"]))
        {
            "done"
        } else if contains(&["blocked", "stuck"]) {
            "blocked"
        } else if contains(&["progress", "started", "ongoing"]) {
            "in_progress"
        } else if contains(&["cancelled", "canceled"]) {
            "cancelled"
        } else if contains(&["all", "every"]) && !contains(&["due", "open"]) {
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

    /// The subject of the tasks: `tasks about the report`, `the task called x`.
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
}

/// Whether a title names nothing to do.
fn says_nothing(title: &str) -> bool {
    const EMPTY: [&str; 15] = [
        "",
        "it",
        "this",
        "that",
        "them",
        "something",
        "anything",
        "again",
        "later",
        "task",
        "a task",
        "me",
        "things",
        "stuff",
        "soon",
    ];
    EMPTY.contains(&title.to_lowercase().as_str())
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
