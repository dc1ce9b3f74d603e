//! Refuses clauses with parts that their skill cannot honour: conditions, negations, recurrence, words that were not
//! understood.
//! A skill that changes data runs only if no words of the clause are left over.

use std::ops::Range;

use super::{Filled, Filler};
use crate::{
    choose::reads,
    dates, fallback,
    pattern::number,
    recur,
    rules::Shape,
    text::{Mark, shortened},
};

/// Words that make the rest conditional, in any position.
pub(crate) const CONDITIONS: [&str; 5] = ["if", "unless", "whenever", "provided", "assuming"];
/// Words that wait for something, before a title or after a command.
const EVENTS: [&str; 7] = ["when", "once", "after", "before", "while", "until", "till"];
/// Words after which `if` belongs to the task itself: `check if the api is locked`.
const FINDS_OUT: [&str; 22] = [
    "check",
    "see",
    "ask",
    "know",
    "find",
    "out",
    "look",
    "test",
    "verify",
    "decide",
    "determine",
    "wonder",
    "sure",
    "confirm",
    "tell",
    "hear",
    "learn",
    "whether",
    "figure",
    "say",
    "what",
    "even",
];
/// Words that reverse a request or make an exception from it.
const NEGATIONS: [&str; 12] =
    ["not", "never", "no", "without", "except", "but", "instead", "only", "or", "neither", "almost", "nearly"];
/// Words of a change that add no meaning to the recognised parts.
const GLUE: &str = "a an the my our your this that it its is are was be been being to as from of off for on in at by and \
    also too please now today just already all right with task tasks todo todos to-do to-dos reminder reminders item items \
    list number no nr id called named titled about thanks thank you status state priority due date deadline title name \
    tag tags high higher low lower medium normal urgent critical important top done complete completed finished blocked \
    stuck waiting cancelled canceled set make back annie ok okay for me myself finally up out description details \
    level new";

impl Filler<'_> {
    /// The answer in place of the clause, if it must not be carried out as it is.
    pub(super) fn refusal_for_clause(&self, shape: Shape, start: usize, end: usize) -> Option<Filled> {
        let words = self.words();
        let head = self.head(start);
        let carried = head.end < words.len();
        let takes_text = matches!(
            shape,
            Shape::Title
                | Shape::Statement
                | Shape::GapStatement
                | Shape::Note
                | Shape::Jot
                | Shape::NoteMore
                | Shape::NoteAppend
                | Shape::NoteTitle
        );
        let has_lines = self.text.has_lines();
        let by_attributes = matches!(shape, Shape::Change | Shape::AddTo) && !has_lines;
        if carried
            && !takes_text
            && !by_attributes
            && (has_lines || !reads(&self.skill.name) || matches!(shape, Shape::AskDelete | Shape::One))
        {
            let text = "I take what stands behind a colon or on further lines as text, not as orders, and what stands before \
                        it is no request that takes a text. Nothing was done. Say each request in a message of its own.";
            return Some(Filled::Whole(text.to_owned()));
        }
        match shape {
            Shape::Title | Shape::GapTitle => self.refusal_for_clause_title(start, end, &head),
            Shape::Status(_)
            | Shape::Change
            | Shape::One
            | Shape::AskDelete
            | Shape::Clear
            | Shape::Snooze
            | Shape::AddTo
            | Shape::Move => self.refusal_for_clause_change(&head),
            Shape::Statement | Shape::GapStatement => self.refusal_for_clause_statement(end),
            Shape::Await => self.refusal_for_clause_await(end),
            _ => None,
        }
    }

    fn refusal_for_clause_title(&self, start: usize, end: usize, head: &Range<usize>) -> Option<Filled> {
        let words = self.words();
        let line_end = (start..words.len()).find(|n| words[*n].mark == Mark::Line).map_or(words.len(), |n| n + 1);
        let all = start..if head.end > line_end { line_end } else { words.len() };
        let condition = (end..head.end).find(|at| self.is(*at, &CONDITIONS) && !self.finds_out(end, *at));
        let waits = self.is(end, &EVENTS) && dates::find(words, end..head.end).is_none_or(|d| d.words[0].start > end);
        if let Some(at) = condition.or_else(|| waits.then_some(end)) {
            return Some(Filled::Whole(self.conditional(at..head.end)));
        }
        // The skill that repeats requests is not installed.
        if let Some(at) = all.clone().find(|at| recur::recurs(words, *at)) {
            return Some(Filled::Answer(format!(
                "I cannot repeat a task (“{}”), so I made none. I can make one for one day, for example: “create a task \
                 to call Bob, due Monday”.",
                shortened(self.slice(at..(at + 3).min(all.end)), 60)
            )));
        }
        let existing = (end..head.end).find(|at| self.names_task(*at));
        if let Some(at) = existing {
            let number = words[at + 1].lower.trim_start_matches('#');
            return Some(Filled::Answer(format!(
                "This speaks of task {number}, so I made no new one, and I did not understand what to change. Say for \
                 example: “move task {number} to Monday”, “mark task {number} as done” or “rename task {number} to \
                 Call Bob”."
            )));
        }
        let dated = dates::find(words, end..head.end);
        let negated = dated.filter(|d| d.words.iter().any(|r| r.start > end && self.is(r.start - 1, &["not"])));
        negated
            .map(|d| Filled::Answer(format!("I did not understand “not {}”, so I made no task. Say the date.", d.text)))
    }

    /// A task's number after its noun.
    fn names_task(&self, at: usize) -> bool {
        let named = self.is(at, &["task", "todo", "to-do", "reminder"]);
        named && self.words().get(at + 1).is_some_and(|w| !w.quoted && number(&w.lower).is_some())
    }

    fn finds_out(&self, from: usize, at: usize) -> bool {
        (from.max(at.saturating_sub(4))..at).any(|n| self.is(n, &FINDS_OUT))
    }

    fn conditional(&self, range: Range<usize>) -> String {
        fallback::cannot_wait(self.slice(range))
    }

    fn refusal_for_clause_change(&self, head: &Range<usize>) -> Option<Filled> {
        let condition = head.clone().find(|at| {
            self.is(*at, &CONDITIONS)
                || (self.is(*at, &EVENTS)
                    && dates::find(self.words(), *at..head.end).is_none_or(|d| d.words[0].start > *at))
        });
        if let Some(at) = condition {
            return Some(Filled::Whole(self.conditional(at..head.end)));
        }
        let turned = head.clone().find(|at| {
            self.is(*at, &NEGATIONS)
                && !(self.is(*at, &["no"]) && self.words().get(at + 1).is_some_and(|w| number(&w.lower).is_some()))
        })?;
        Some(Filled::Answer(format!(
            "I am not sure what “{}” means for your tasks, so I changed nothing. Say plainly what to do, for example: “mark \
             task 3 as done”.",
            shortened(self.slice(turned..head.end), 80)
        )))
    }

    fn refusal_for_clause_statement(&self, end: usize) -> Option<Filled> {
        const QUESTIONS: [&str; 8] = ["when", "what", "who", "where", "how", "why", "which", "if"];
        let words = self.words();
        let bare =
            end > 1 && self.is(end - 2, &["save"]) && self.is(end - 1, &["this"]) && words[end - 1].mark != Mark::Colon;
        if bare {
            return Some(Filled::Missing(
                "say what to save behind a colon, for example “save this: Bob prefers email”".to_owned(),
            ));
        }
        let asks = self.text.source.trim_end().ends_with('?') && self.is(end, &QUESTIONS);
        asks.then(|| {
            let about = self.query(end..words.len());
            Filled::Answer(format!(
                "I saved nothing, since this sounds like a question. To look it up, say: “what do you know about {about}”."
            ))
        })
    }

    fn refusal_for_clause_await(&self, end: usize) -> Option<Filled> {
        let inner = ["task", "tasks", "todo", "due", "overdue", "o'clock", "midnight", "noon"];
        let clock =
            (end..self.words().len()).any(|at| self.is(at, &inner)) || self.date(end..self.words().len()).is_some();
        clock.then(|| {
            Filled::Answer(
                "I cannot watch the clock or your list with these words. I remind you at a time, for example: “remind me to call Bob \
                 tomorrow at 5pm”, and show the list when you ask “what is due today”."
                    .to_owned(),
            )
        })
    }

    /// The words of a change of numbered tasks that were not understood. `fit` is the end of the phrase; `used` are the
    /// ranges taken as values.
    pub(super) fn left_over(&self, start: usize, gaps: &[Range<usize>], fit: usize, used: &[Range<usize>]) -> String {
        let words = self.words();
        let numbers = self.numbers(self.head(start));
        let matched = |at: usize| at < fit && !gaps.iter().any(|gap| gap.contains(&at));
        let known = |at: usize| {
            let word = &words[at];
            matched(at)
                || used.iter().any(|r| r.contains(&at))
                || (!word.quoted && number(&word.lower).is_some_and(|n| numbers.contains(&n)))
                || (!word.quoted
                    && annie_core::calendar::NUMBERS.contains(&word.lower.as_str())
                    && at > 0
                    && self.is(at - 1, &["task", "todo", "number"]))
                || (!word.quoted && GLUE.split_whitespace().any(|g| g == word.lower))
        };
        let left: Vec<&str> = (start..words.len()).filter(|at| !known(*at)).map(|at| self.slice(at..at + 1)).collect();
        left.join(" ")
    }
}
