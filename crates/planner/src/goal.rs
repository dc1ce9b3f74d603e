//! The progress of one request: determines the next call from the results of the calls before it. A goal is built anew from
//! the message in every round and receives the recorded results. It needs no memory, and a replay decides the same.

use std::collections::VecDeque;

use annie_core::skill::ArgKind;
use serde_json::Value;

use super::{
    answer::{Completion, Origin, REFUSED, Report, failed_part, first_person, is_failure, reason},
    calendar,
    catalog::{Catalog, Skill},
    choose::{Choice, How, choose, lead},
    clauses::{Clause, split},
    fill::{Call, Filled, Filler},
    guard,
    recur::{self, REPEATS, Recurring},
    refer::{self, SHALL_I},
    text::Text,
};

/// The next step. `without` names the arguments that were refused and left out of a corrected call.
#[derive(Debug, Clone)]
enum Step {
    Run {
        call: Call,
        corrected: bool,
        without: Option<String>,
    },
    Find {
        query: String,
        id_flag: String,
        call: Call,
    },
    /// Looks a task up and asks whether to delete it.
    Confirm {
        call: Call,
    },
}

/// What `tasks.create` says of a task that is due in the past.
const IS_OVERDUE: &str = "(overdue";
/// What precedes the date of a task, behind its title.
const DUE: &str = ", due ";

/// Why a request is not started.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stop {
    /// Information is missing.
    Missing(String),
    /// This text is the answer.
    Answer(String),
    /// This text is the answer to the whole message.
    Whole(String),
}

/// One request.
#[derive(Debug)]
pub(super) struct Goal<'a> {
    user_request: String,
    /// The catalogue, for the search skill and for corrections.
    catalog: &'a Catalog,
    steps: VecDeque<Step>,
    outcomes: Vec<(bool, String)>,
    stop: Option<Stop>,
    /// The part of the request that the skill cannot do, reported below the result.
    note: Option<String>,
    /// The skill that the request asks for; `None` if no skill was found.
    pub skill: Option<String>,
    /// The goal asks whether to delete.
    asks: bool,
    /// Indices of the goals that must be done first.
    pub waits_for: Vec<usize>,
}

/// The goals of a text, in order, with their dependencies.
pub(super) fn goals<'a>(source: &str, results: &str, catalog: &'a Catalog) -> Vec<Goal<'a>> {
    let clauses = if catalog.may_have(REPEATS) && recur::begins(source, catalog) {
        // All of the message is repeated.
        vec![Clause { text: source.to_owned(), then: false }]
    } else {
        split(source, catalog)
    };
    let goals = of_clauses(guard::cautious(clauses, catalog), results, catalog);
    let whole = goals.iter().find_map(|goal| match &goal.stop {
        Some(Stop::Whole(text)) => Some(text.clone()),
        _ => None,
    });
    match whole.or_else(|| guard::refused(source, &goals)) {
        Some(text) => vec![Goal { stop: Some(Stop::Answer(text)), ..Goal::empty(source, catalog) }],
        None => goals,
    }
}

/// The goals of these clauses, in order.
fn of_clauses<'a>(clauses: Vec<Clause>, results: &str, catalog: &'a Catalog) -> Vec<Goal<'a>> {
    let mut goals: Vec<Goal<'a>> = Vec::with_capacity(clauses.len());
    for clause in clauses {
        let mut goal = Goal::new(&clause.text, results, catalog);
        goal.waits_for = (0..goals.len()).filter(|n| clause.then || goal.reads_after(&goals[*n])).collect();
        goals.push(goal);
    }
    goals
}

impl<'a> Goal<'a> {
    fn empty(user_request: &str, catalog: &'a Catalog) -> Self {
        Self {
            user_request: user_request.to_owned(),
            catalog,
            steps: VecDeque::new(),
            outcomes: Vec::new(),
            stop: None,
            note: None,
            skill: None,
            asks: false,
            waits_for: Vec::new(),
        }
    }

    fn new(user_request: &str, results: &str, catalog: &'a Catalog) -> Self {
        let mut goal = Self::empty(user_request, catalog);
        let text = Text::new(user_request);
        let all = 0..text.words.len();
        goal.stop = guard::answer(&text, catalog).map(Stop::Answer);
        if goal.stop.is_some() {
            return goal;
        }
        if catalog.may_have(REPEATS)
            && let Some(recurring) = recur::read(&text, catalog)
        {
            goal.repeat(recurring);
            return goal;
        }
        let choice = choose(&text, &all, catalog).or_else(|| only_one(&text, catalog));
        let Some(choice) = choice else { return goal };
        goal.skill = Some(choice.skill.clone());
        let Some(skill) = catalog.get(&choice.skill) else { return goal };
        let filler = Filler { skill, text: &text, results };
        match filler.fill(&choice) {
            Filled::Ready(calls) => {
                goal.steps.extend(calls.into_iter().map(|call| Step::Run { call, corrected: false, without: None }));
            }
            Filled::Find { query, id_flag, call } => goal.steps.push_back(Step::Find { query, id_flag, call }),
            Filled::Noted(call, note) => {
                goal.steps.push_back(Step::Run { call, corrected: false, without: None });
                goal.note = Some(note);
            }
            Filled::Confirm(call) => {
                goal.asks = true;
                goal.steps.push_back(Step::Confirm { call });
            }
            Filled::Missing(why) => goal.stop = Some(Stop::Missing(why)),
            Filled::Answer(text) => goal.stop = Some(Stop::Answer(text)),
            Filled::Whole(text) => goal.stop = Some(Stop::Whole(text)),
        }
        goal
    }

    /// The call that has a request repeated.
    fn repeat(&mut self, recurring: Recurring) {
        match recurring {
            Recurring::Refused(text) => self.stop = Some(Stop::Answer(text)),
            Recurring::Understood { when, message } => {
                self.skill = Some(REPEATS.to_owned());
                if self.catalog.get(REPEATS).is_some() {
                    let args = vec![("when".to_owned(), when.into()), ("message".to_owned(), message.into())];
                    let call = Call { skill: REPEATS.to_owned(), args };
                    self.steps.push_back(Step::Run { call, corrected: false, without: None });
                }
            }
        }
    }

    /// The request in the user's words.
    pub fn user_request(&self) -> &str {
        &self.user_request
    }

    /// The report on a request that cannot be started.
    pub fn stopped(&self) -> Option<Report> {
        let (text, how) = match self.stop.as_ref()? {
            Stop::Missing(why) => (why, Completion::Failed),
            Stop::Answer(text) | Stop::Whole(text) => (text, Completion::Declined),
        };
        Some(Report {
            user_request: self.user_request.clone(),
            origin: self.origin(),
            completion: how,
            text: text.clone(),
        })
    }

    /// Whether no skill was found for the request.
    pub fn is_unrecognised(&self) -> bool {
        self.skill.is_none() && self.stop.is_none()
    }

    /// The author of the text in the result.
    pub fn origin(&self) -> Origin {
        match self.skill.as_deref() {
            _ if self.asks => Origin::Question,
            Some(skill) if skill.starts_with("tasks.") => Origin::Tasks,
            _ => Origin::Other,
        }
    }

    /// The skills that the goal needs.
    pub fn skills(&self) -> Vec<String> {
        let mut skills: Vec<String> = self.skill.iter().cloned().collect();
        let finds = self.steps.iter().any(|s| matches!(s, Step::Find { .. }));
        skills.extend(self.finder().filter(|_| finds).map(|s| s.name.clone()));
        skills
    }

    fn finder(&self) -> Option<&'a Skill> {
        let (domain, _) = self.skill.as_deref()?.rsplit_once('.')?;
        self.catalog.get(&format!("{domain}.search"))
    }

    /// Whether the goal reads or changes what an earlier goal creates, without a word that links them.
    fn reads_after(&self, earlier: &Goal<'_>) -> bool {
        let parts = |goal: &Goal<'_>| {
            goal.skill.as_deref().and_then(|s| s.rsplit_once('.')).map(|(d, v)| (d.to_owned(), v.to_owned()))
        };
        let (Some((domain, verb)), Some((theirs, did))) = (parts(self), parts(earlier)) else { return false };
        let makes = |verb: &str| matches!(verb, "create" | "save" | "add" | "new");
        let reads = |verb: &str| matches!(verb, "search" | "get" | "read" | "list" | "help" | "time");
        domain == theirs && !makes(&verb) && !reads(&did)
    }

    /// The next call; `None` if the goal is done.
    pub fn next(&self) -> Option<Call> {
        match self.steps.front()? {
            Step::Run { call, .. } | Step::Confirm { call } => Some(call.clone()),
            Step::Find { query, .. } => self.finder().and_then(|skill| find_call(skill, query)),
        }
    }

    /// Whether no call is left.
    pub fn is_done(&self) -> bool {
        self.next().is_none()
    }

    /// Processes the result of the call that [`Self::next`] returned.
    pub fn take(&mut self, result: &str) {
        match self.steps.pop_front() {
            Some(Step::Run { call, corrected, without }) => {
                if !is_failure(result) {
                    // The user must learn which part of the request was left out.
                    let less = without.map(|what| format!(" (without {what}{REFUSED}")).unwrap_or_default();
                    let day = (call.skill == "system.time")
                        .then(|| calendar::answer(&calendar::asked(&self.user_request), result));
                    let result = day.flatten().unwrap_or_else(|| result.trim().to_owned());
                    let is_over = result.rsplit_once(DUE).is_some_and(|(_, due)| due.contains(IS_OVERDUE));
                    if call.skill == "tasks.create" && is_over {
                        self.note = Some("That time has passed already, so nothing will remind you of it.".to_owned());
                    }
                    self.outcomes.push((true, format!("{result}{less}")));
                } else if let Some(better) =
                    (!corrected && call.skill != "system.time").then(|| self.corrected(&call, result)).flatten()
                {
                    let without = lost(&call, &better);
                    self.steps.push_front(Step::Run { call: better, corrected: true, without });
                } else {
                    self.outcomes.push((false, reason(result)));
                }
            }
            Some(Step::Confirm { .. }) if is_failure(result) => self.outcomes.push((false, reason(result))),
            Some(Step::Confirm { call }) => self.outcomes.push(confirmation(&call, result)),
            Some(Step::Find { call, .. }) if is_failure(result) => {
                self.outcomes.push((false, format!("{} could not be looked up: {}", call.skill, reason(result))));
            }
            Some(Step::Find { query, call, .. }) if is_over(result, &query) && !reopens(&call) => {
                let ended = with_words(result, &query);
                let ended: Vec<&str> = ended.lines().filter(|line| !numbers(line).is_empty()).collect();
                let ended = ended.join("\n");
                self.outcomes.push((false, format!("no open task matches “{query}”; these have ended:\n\n{ended}")));
            }
            Some(Step::Find { query, id_flag, mut call }) => match numbers(&with_words(result, &query)).as_slice() {
                [number] => {
                    call.args.insert(0, (id_flag, (*number).into()));
                    self.steps.push_front(Step::Run { call, corrected: false, without: None });
                }
                [] => self.outcomes.push((false, format!("nothing matches “{query}”"))),
                _ => self.outcomes.push((
                    false,
                    format!(
                        "several match “{query}”, say the number of the one you mean:\n\n{}",
                        with_words(result, &query).trim()
                    ),
                )),
            },
            None => {}
        }
    }

    /// The same call corrected by the usage in an error: without the refused flags, with the missing values.
    fn corrected(&self, call: &Call, error: &str) -> Option<Call> {
        let usage = error.lines().find_map(|line| line.strip_prefix("Usage: "))?;
        let skill = Skill::from_synopsis(usage, "")?;
        let what = error.lines().next().unwrap_or_default();
        let named = |flag: &str| {
            what.split(|c: char| c.is_whitespace() || matches!(c, ',' | '.' | ':' | '='))
                .any(|w| w.strip_prefix("--") == Some(flag))
        };
        // A task without its date is not what the user asked for.
        let is_date = |flag: &str| skill.arg(flag).is_some_and(|arg| arg.kind == ArgKind::Date && !arg.required);
        if call.args.iter().any(|(flag, _)| named(flag) && is_date(flag)) {
            return None;
        }
        let text = Text::new(&self.user_request);
        let choice = choose(&text, &(0..text.words.len()), self.catalog)?;
        let better = match (Filler { skill: &skill, text: &text, results: "" }).fill(&choice) {
            Filled::Ready(calls) => calls.into_iter().next()?,
            Filled::Noted(call, _) => call,
            _ => call.clone(),
        };
        let keeps = |(flag, _): &(String, Value)| skill.arg(flag).is_some_and(|arg| arg.required || !named(flag));
        let args: Vec<(String, Value)> = better.args.into_iter().filter(keeps).collect();
        let better = Call { skill: call.skill.clone(), args };
        (better != *call).then_some(better)
    }

    /// The result of the request.
    pub fn report(&self) -> Report {
        if let Some(stopped) = self.stopped() {
            return stopped;
        }
        let ok = !self.outcomes.is_empty() && self.outcomes.iter().all(|(ok, _)| *ok) && self.is_done();
        let mut text: Vec<&str> = self.outcomes.iter().map(|(_, text)| text.as_str()).collect();
        if !self.is_done() || self.outcomes.is_empty() {
            text.push("it was not done");
        }
        text.extend(self.note.as_deref().filter(|_| ok));
        if !ok && self.outcomes.iter().any(|(ok, _)| *ok) && self.is_done() {
            let line = |(ok, text): &(bool, String)| if *ok { first_person(text) } else { failed_part(text) };
            let text = self.outcomes.iter().map(line).collect::<Vec<_>>().join("\n");
            return Report {
                user_request: self.user_request.clone(),
                origin: self.origin(),
                completion: Completion::Declined,
                text,
            };
        }
        let completion = match ok {
            true if text.first().is_some_and(|t| t.starts_with(SHALL_I)) => Completion::Declined,
            true => Completion::Done,
            false => Completion::Failed,
        };
        Report { user_request: self.user_request.clone(), origin: self.origin(), completion, text: text.join("\n") }
    }
}

/// Whether a search found only tasks that have ended, recognised by the text of `tasks.search`.
fn is_over(result: &str, query: &str) -> bool {
    result.starts_with("No open tasks found") && !numbers(&with_words(result, query)).is_empty()
}

/// Whether a call reopens a task.
fn reopens(call: &Call) -> bool {
    let opens = |value: &Value| value.as_str().is_some_and(|status| ["todo", "in_progress"].contains(&status));
    call.args.iter().any(|(flag, value)| flag == "status" && opens(value))
}

/// A task as a question names it: without its priority and tags, marked if it has ended.
fn as_asked(line: &str) -> String {
    let (name, rest) = line.split_once(", priority ").unwrap_or((line, ""));
    let ended =
        rest.split(" [").next().unwrap_or_default().split(", ").find(|word| ["done", "cancelled"].contains(word));
    ended.map_or_else(|| name.to_owned(), |ended| format!("{name} ({ended})"))
}

/// The question before a deletion, from the lines of the tasks that were looked up; false with the reason if none fits.
fn confirmation(call: &Call, result: &str) -> (bool, String) {
    let by_words = call.skill.ends_with(".search");
    let query = call.args.first().and_then(|(_, value)| value.as_str()).unwrap_or_default();
    let result = if by_words { with_words(result, query) } else { result.to_owned() };
    let result = result.strip_prefix("[partial]").unwrap_or(&result);
    let lines: Vec<&str> = result.lines().map(|l| l.trim_start().trim_start_matches("- ")).collect();
    let found: Vec<(u64, String)> =
        lines.iter().filter_map(|line| Some((*numbers(line).first()?, as_asked(line)))).collect();
    match found.as_slice() {
        [] if by_words => (false, format!("nothing matches “{query}”")),
        [] => (false, "there is no such task".to_owned()),
        [_, _, ..] if by_words => {
            let list: Vec<String> = found.iter().map(|(_, line)| format!("- {line}")).collect();
            let list = list.join("\n");
            (false, format!("several match “{query}”, say “delete task” and the number of the one you mean:\n\n{list}"))
        }
        found => {
            let tasks: Vec<&str> = found.iter().map(|(_, line)| line.as_str()).collect();
            let ids: Vec<u64> = found.iter().map(|(n, _)| *n).collect();
            (true, refer::question(&tasks, &ids))
        }
    }
}

/// The arguments that one call has and the other has not, in words.
fn lost(call: &Call, better: &Call) -> Option<String> {
    let gone = call.args.iter().filter(|(flag, _)| !better.args.iter().any(|(other, _)| other == flag));
    let in_words = |(flag, value): &(String, Value)| match value {
        Value::String(text) => format!("the {} “{text}”", flag.replace('_', " ")),
        _ => format!("the {}", flag.replace('_', " ")),
    };
    let gone: Vec<String> = gone.map(in_words).collect();
    (!gone.is_empty()).then(|| gone.join(" and "))
}

/// The only skill in the catalogue, which the caller must have meant.
fn only_one(text: &Text<'_>, catalog: &Catalog) -> Option<Choice> {
    let mut skills = catalog.iter();
    let (only, None) = (skills.next()?, skills.next()) else { return None };
    let start = lead(&text.words, &(0..text.words.len()));
    Some(Choice { skill: only.name.clone(), start, how: How::Likeness { rest: start } })
}

fn find_call(skill: &Skill, query: &str) -> Option<Call> {
    let flag = ["query", "text", "search", "q"].into_iter().find_map(|f| skill.arg(f))?;
    Some(Call { skill: skill.name.clone(), args: vec![(flag.name.clone(), query.into())] })
}

/// The lines of a list that contain every word of a query as a word. A search also finds `x` in `taxes`, and the matching
/// tasks are changed.
fn with_words(list: &str, query: &str) -> String {
    const STEM_BYTES_MIN: usize = 4;
    let split = |text: &str| -> Vec<String> {
        text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let wanted = split(query);
    let alike = |queried: &str, word: &str| {
        queried == word
            || (queried.len() >= STEM_BYTES_MIN && word.starts_with(queried))
            || (word.len() >= STEM_BYTES_MIN && queried.starts_with(word))
    };
    let fits = |line: &&str| {
        let words = split(line);
        numbers(line).is_empty() || wanted.iter().all(|queried| words.iter().any(|word| alike(queried, word)))
    };
    list.lines().filter(fits).collect::<Vec<_>>().join("\n")
}

/// The numbers that a list shows, `#3` at the beginning of each line; later text in a line may contain others.
fn numbers(list: &str) -> Vec<u64> {
    let of_line = |line: &str| {
        let line = line.trim_start().trim_start_matches("- ");
        let digits = line.strip_prefix('#')?;
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    };
    list.lines().filter_map(of_line).collect()
}
