//! One wish on its way: which call comes next, given what came of those before. A goal is made anew from the request at
//! every round and fed the recorded results, so it needs no memory and a replay decides the same.

use std::collections::VecDeque;

use serde_json::Value;

use super::{
    answer::{Came, NOT_DONE, Origin, REFUSED, Report, first_person, is_failure, reason},
    calendar,
    catalog::{Catalog, Skill},
    choose::{Choice, How, choose, lead},
    clauses::{Clause, split},
    fill::{Call, Filled, Filler},
    guard,
    refer::{self, SHALL_I},
    text::Text,
};

/// What is still to be done. `without` is what was refused and left out of a corrected call, in words.
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
    /// Looks a task up and asks whether it is to be deleted.
    Confirm {
        call: Call,
    },
}

/// Why a wish is not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stop {
    /// Something is missing.
    Missing(String),
    /// This is said instead.
    Answer(String),
    /// This is said instead of the whole message.
    Whole(String),
}

/// One wish.
#[derive(Debug)]
pub(super) struct Goal<'a> {
    wish: String,
    /// The skill's own description of itself, for correction.
    catalog: &'a Catalog,
    steps: VecDeque<Step>,
    told: Vec<(bool, String)>,
    stop: Option<Stop>,
    /// What the skill cannot do of the wish, for below its result.
    note: Option<String>,
    /// The skill that it asks for; none if none was found.
    pub skill: Option<String>,
    /// It asks whether to delete.
    asks: bool,
    /// Goals that must be done first, by their place.
    pub waits_for: Vec<usize>,
}

/// The goals of a text, in order, with what each waits for.
pub(super) fn goals<'a>(said: &str, results: &str, catalog: &'a Catalog) -> Vec<Goal<'a>> {
    let goals = of_clauses(guard::cautious(split(said, catalog), catalog), results, catalog);
    let whole = goals.iter().find_map(|goal| match &goal.stop {
        Some(Stop::Whole(text)) => Some(text.clone()),
        _ => None,
    });
    match whole.or_else(|| guard::refused(said, &goals)) {
        Some(text) => vec![Goal { stop: Some(Stop::Answer(text)), ..Goal::empty(said, catalog) }],
        None => goals,
    }
}

/// The goals of a sub-agent's mission: the orchestrator has judged the message that it is from.
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
    fn empty(wish: &str, catalog: &'a Catalog) -> Self {
        Self {
            wish: wish.to_owned(),
            catalog,
            steps: VecDeque::new(),
            told: Vec::new(),
            stop: None,
            note: None,
            skill: None,
            asks: false,
            waits_for: Vec::new(),
        }
    }

    fn new(wish: &str, results: &str, catalog: &'a Catalog) -> Self {
        let mut goal = Self::empty(wish, catalog);
        let text = Text::new(wish);
        let all = 0..text.words.len();
        goal.stop = guard::answer(&text, catalog).map(Stop::Answer);
        if goal.stop.is_some() {
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

    /// The wish, as the user said it.
    pub fn wish(&self) -> &str {
        &self.wish
    }

    /// What to say of a wish that cannot even begin.
    pub fn stopped(&self) -> Option<Report> {
        let (text, how) = match self.stop.as_ref()? {
            Stop::Missing(why) => (why, Came::Failed),
            Stop::Answer(text) | Stop::Whole(text) => (text, Came::Declined),
        };
        Some(Report { wish: self.wish.clone(), origin: self.origin(), came: how, text: text.clone() })
    }

    /// Whether nobody knows what is asked for.
    pub fn is_puzzling(&self) -> bool {
        self.skill.is_none() && self.stop.is_none()
    }

    /// Whose words its result holds.
    pub fn origin(&self) -> Origin {
        match self.skill.as_deref() {
            _ if self.asks => Origin::Question,
            Some(skill) if skill.starts_with("tasks.") => Origin::Tasks,
            _ => Origin::Other,
        }
    }

    /// The skills that it needs.
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

    /// Whether it looks at or changes what an earlier goal makes, without a word that says so.
    fn reads_after(&self, earlier: &Goal<'_>) -> bool {
        let parts = |goal: &Goal<'_>| {
            goal.skill.as_deref().and_then(|s| s.rsplit_once('.')).map(|(d, v)| (d.to_owned(), v.to_owned()))
        };
        let (Some((domain, verb)), Some((theirs, did))) = (parts(self), parts(earlier)) else { return false };
        let makes = |verb: &str| matches!(verb, "create" | "save" | "add" | "new");
        let reads = |verb: &str| matches!(verb, "search" | "get" | "read" | "list" | "help" | "time");
        domain == theirs && !makes(&verb) && !reads(&did)
    }

    /// The call to make now; none if it is done.
    pub fn next(&self) -> Option<Call> {
        match self.steps.front()? {
            Step::Run { call, .. } | Step::Confirm { call } => Some(call.clone()),
            Step::Find { query, .. } => self.finder().and_then(|skill| find_call(skill, query)),
        }
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.next().is_none()
    }

    /// Takes the result of the call that [`Self::next`] gave.
    pub fn take(&mut self, result: &str) {
        match self.steps.pop_front() {
            Some(Step::Run { call, corrected, without }) => {
                if !is_failure(result) {
                    // Who asked for more than was done must hear of it.
                    let less = without.map(|what| format!(" (without {what}{REFUSED}")).unwrap_or_default();
                    let day =
                        (call.skill == "system.time").then(|| calendar::answer(&calendar::asked(&self.wish), result));
                    let result = day.flatten().unwrap_or_else(|| result.trim().to_owned());
                    self.told.push((true, format!("{result}{less}")));
                } else if let Some(better) =
                    (!corrected && call.skill != "system.time").then(|| self.corrected(&call, result)).flatten()
                {
                    let without = lost(&call, &better);
                    self.steps.push_front(Step::Run { call: better, corrected: true, without });
                } else {
                    self.told.push((false, reason(result)));
                }
            }
            Some(Step::Confirm { .. }) if is_failure(result) => self.told.push((false, reason(result))),
            Some(Step::Confirm { call }) => self.told.push(confirmation(&call, result)),
            Some(Step::Find { call, .. }) if is_failure(result) => {
                self.told.push((false, format!("{} could not be looked up: {}", call.skill, reason(result))));
            }
            Some(Step::Find { query, call, .. }) if is_over(result, &query) && !reopens(&call) => {
                let ended = with_words(result, &query);
                let ended: Vec<&str> = ended.lines().filter(|line| !numbers(line).is_empty()).collect();
                let ended = ended.join("\n");
                self.told.push((false, format!("no open task matches “{query}”; these have ended:\n\n{ended}")));
            }
            Some(Step::Find { query, id_flag, mut call }) => match numbers(&with_words(result, &query)).as_slice() {
                [number] => {
                    call.args.insert(0, (id_flag, (*number).into()));
                    self.steps.push_front(Step::Run { call, corrected: false, without: None });
                }
                [] => self.told.push((false, format!("nothing matches “{query}”"))),
                _ => self.told.push((
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

    /// The same call as the usage in an error wants it: without flags that are refused, with what was missing.
    fn corrected(&self, call: &Call, error: &str) -> Option<Call> {
        let usage = error.lines().find_map(|line| line.strip_prefix("Usage: "))?;
        let skill = Skill::from_synopsis(usage, "")?;
        let what = error.lines().next().unwrap_or_default();
        let named = |flag: &str| {
            what.split(|c: char| c.is_whitespace() || matches!(c, ',' | '.' | ':' | '='))
                .any(|w| w.strip_prefix("--") == Some(flag))
        };
        let text = Text::new(&self.wish);
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

    /// What came of it.
    pub fn report(&self) -> Report {
        if let Some(stopped) = self.stopped() {
            return stopped;
        }
        let ok = !self.told.is_empty() && self.told.iter().all(|(ok, _)| *ok) && self.is_done();
        let mut text: Vec<&str> = self.told.iter().map(|(_, text)| text.as_str()).collect();
        if !self.is_done() || self.told.is_empty() {
            text.push("it was not done");
        }
        text.extend(self.note.as_deref().filter(|_| ok));
        if !ok && self.told.iter().any(|(ok, _)| *ok) && self.is_done() {
            let told = |(ok, text): &(bool, String)| if *ok { first_person(text) } else { format!("{NOT_DONE}{text}") };
            let text = self.told.iter().map(told).collect::<Vec<_>>().join("\n");
            return Report { wish: self.wish.clone(), origin: self.origin(), came: Came::Declined, text };
        }
        let came = match ok {
            true if text.first().is_some_and(|t| t.starts_with(SHALL_I)) => Came::Declined,
            true => Came::Done,
            false => Came::Failed,
        };
        Report { wish: self.wish.clone(), origin: self.origin(), came, text: text.join("\n") }
    }
}

/// The question before a deletion, from the lines of the tasks that were looked up.
/// Whether a search found only tasks that have ended, by the words with which `tasks.search` says so.
fn is_over(result: &str, query: &str) -> bool {
    result.starts_with("No open tasks found") && !numbers(&with_words(result, query)).is_empty()
}

/// Whether a call opens a task again.
fn reopens(call: &Call) -> bool {
    let opens = |value: &Value| value.as_str().is_some_and(|status| ["todo", "in_progress"].contains(&status));
    call.args.iter().any(|(flag, value)| flag == "status" && opens(value))
}

/// A task as a question names it: without its priority and tags, and with the word that says that it has ended.
fn as_asked(line: &str) -> String {
    let (name, rest) = line.split_once(", priority ").unwrap_or((line, ""));
    let ended =
        rest.split(" [").next().unwrap_or_default().split(", ").find(|word| ["done", "cancelled"].contains(word));
    ended.map_or_else(|| name.to_owned(), |ended| format!("{name} ({ended})"))
}

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
    let said = |(flag, value): &(String, Value)| match value {
        Value::String(text) => format!("the {} “{text}”", flag.replace('_', " ")),
        _ => format!("the {}", flag.replace('_', " ")),
    };
    let gone: Vec<String> = gone.map(said).collect();
    (!gone.is_empty()).then(|| gone.join(" and "))
}

/// The only skill there is: whoever gave it meant it.
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

/// The lines of a list that have each word of a query as a word: a search also finds `x` in `taxes`, and what is found by
/// words is changed.
fn with_words(list: &str, query: &str) -> String {
    const STEM_BYTES_MIN: usize = 4;
    let split = |text: &str| -> Vec<String> {
        text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let wanted = split(query);
    let alike = |said: &str, word: &str| {
        said == word
            || (said.len() >= STEM_BYTES_MIN && word.starts_with(said))
            || (word.len() >= STEM_BYTES_MIN && said.starts_with(word))
    };
    let fits = |line: &&str| {
        let words = split(line);
        numbers(line).is_empty() || wanted.iter().all(|said| words.iter().any(|word| alike(said, word)))
    };
    list.lines().filter(fits).collect::<Vec<_>>().join("\n")
}

/// The numbers that a list shows, `#3` at the beginning of each line; words behind them may hold others.
fn numbers(list: &str) -> Vec<u64> {
    let of_line = |line: &str| {
        let line = line.trim_start().trim_start_matches("- ");
        let digits = line.strip_prefix('#')?;
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    };
    list.lines().filter_map(of_line).collect()
}
