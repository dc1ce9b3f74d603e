//! One wish on its way: which call comes next, given what came of those before. A goal is made anew from the request at
//! every round and fed the recorded results, so it needs no memory and a replay decides the same.

use std::collections::VecDeque;

use serde_json::Value;

use super::{
    answer::{Report, is_failure, reason},
    catalog::{Catalog, Skill},
    choose::{Choice, How, choose, lead},
    clauses::{Clause, split},
    fill::{Call, Filled, Filler},
    text::Text,
};

/// What is still to be done. `without` is what was refused and left out of a corrected call, in words.
#[derive(Debug, Clone)]
enum Step {
    Run { call: Call, corrected: bool, without: Option<String> },
    Find { query: String, id_flag: String, call: Call },
}

/// One wish.
#[derive(Debug)]
pub(super) struct Goal<'a> {
    wish: String,
    /// The skill's own description of itself, for correction.
    catalog: &'a Catalog,
    steps: VecDeque<Step>,
    told: Vec<(bool, String)>,
    /// The skill that it asks for; none if none was found.
    pub skill: Option<String>,
    /// Goals that must be done first, by their place.
    pub waits_for: Vec<usize>,
}

/// The goals of a text, in order, with what each waits for.
pub(super) fn goals<'a>(said: &str, results: &str, catalog: &'a Catalog) -> Vec<Goal<'a>> {
    of_clauses(split(said, catalog), results, catalog)
}

/// The goals of clauses.
pub(super) fn of_clauses<'a>(clauses: Vec<Clause>, results: &str, catalog: &'a Catalog) -> Vec<Goal<'a>> {
    let mut goals: Vec<Goal<'a>> = Vec::with_capacity(clauses.len());
    for clause in clauses {
        let mut goal = Goal::new(&clause.text, results, catalog);
        goal.waits_for = (0..goals.len()).filter(|n| clause.then || goal.reads_after(&goals[*n])).collect();
        goals.push(goal);
    }
    goals
}

impl<'a> Goal<'a> {
    fn new(wish: &str, results: &str, catalog: &'a Catalog) -> Self {
        let mut goal = Self {
            wish: wish.to_owned(),
            catalog,
            steps: VecDeque::new(),
            told: Vec::new(),
            skill: None,
            waits_for: Vec::new(),
        };
        let text = Text::new(wish);
        let all = 0..text.words.len();
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
            Filled::Missing(why) => goal.told.push((false, why)),
        }
        goal
    }

    /// The wish, as the user said it.
    pub fn wish(&self) -> &str {
        &self.wish
    }

    /// Whether it cannot even begin, and why.
    pub fn missing(&self) -> Option<&str> {
        let missing = self.steps.is_empty() && self.skill.is_some();
        self.told.first().filter(|(ok, _)| missing && !ok).map(|(_, why)| why.as_str())
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
            Step::Run { call, .. } => Some(call.clone()),
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
                    let less = without.map(|what| format!(" (without {what}, which was refused)")).unwrap_or_default();
                    self.told.push((true, format!("{}{less}", result.trim())));
                } else if let Some(better) = (!corrected).then(|| self.corrected(&call, result)).flatten() {
                    let without = lost(&call, &better);
                    self.steps.push_front(Step::Run { call: better, corrected: true, without });
                } else {
                    self.told.push((false, reason(result)));
                }
            }
            Some(Step::Find { call, .. }) if is_failure(result) => {
                self.told.push((false, format!("{} could not be looked up: {}", call.skill, reason(result))));
            }
            Some(Step::Find { query, id_flag, mut call }) => match numbers(result).as_slice() {
                [number] => {
                    call.args.insert(0, (id_flag, (*number).into()));
                    self.steps.push_front(Step::Run { call, corrected: false, without: None });
                }
                [] => self.told.push((false, format!("nothing matches “{query}”"))),
                _ => self.told.push((
                    false,
                    format!("several match “{query}”, say the number of the one you mean:\n\n{}", result.trim()),
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
            _ => call.clone(),
        };
        let keeps = |(flag, _): &(String, Value)| skill.arg(flag).is_some_and(|arg| arg.required || !named(flag));
        let args: Vec<(String, Value)> = better.args.into_iter().filter(keeps).collect();
        let better = Call { skill: call.skill.clone(), args };
        (better != *call).then_some(better)
    }

    /// What came of it.
    pub fn report(&self) -> Report {
        let ok = !self.told.is_empty() && self.told.iter().all(|(ok, _)| *ok);
        let mut text: Vec<&str> = self.told.iter().map(|(_, text)| text.as_str()).collect();
        if !self.is_done() || self.told.is_empty() {
            text.push("it was not done");
        }
        Report { wish: self.wish.clone(), ok: ok && self.is_done(), text: text.join("\n") }
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
