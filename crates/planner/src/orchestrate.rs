//! Plans as the orchestrator: asks for the skills that the wishes need, dispatches an agent for each wish with what it
//! must wait for, and answers from the results.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    answer::{Came, Report, Said, came, compose, small_talk},
    catalog::Catalog,
    choose::{asks, choose, lead},
    clauses::split,
    execute::Reply,
    goal::{Goal, goals},
    guard,
    text::{Text, shortened},
    turn::Turn,
};

/// How many questions for skills one reply holds.
const QUESTIONS_MAX: usize = 6;
/// How often results are asked for.
const COLLECTS_MAX: usize = 3;

/// The next reply.
pub(super) fn orchestrate(turn: &Turn<'_>, mut catalog: Catalog) -> Reply {
    let wishes = &turn.wishes;
    let mut asked = false;
    for answer in turn.tool_results("get_skill") {
        asked = true;
        catalog.read_answer(answer);
    }
    if !asked {
        let questions = questions(wishes, &catalog);
        if !questions.is_empty() {
            return Reply::Tools(questions);
        }
    }
    let goals = planned(wishes, &catalog);
    let state = State::read(turn, &goals);
    let dispatches = state.dispatches(&goals);
    if !dispatches.is_empty() {
        return Reply::Tools(dispatches);
    }
    let waits = state.accepted.iter().any(|agent| state.results.get(agent).is_none_or(|r| r.0 == "running"));
    if waits && state.collects < COLLECTS_MAX {
        return Reply::Tools(vec![collect()]);
    }
    let reports = state.reports(&goals);
    let left = state.left(&goals);
    let puzzling: Vec<String> = goals.iter().filter(|g| g.is_puzzling()).map(|g| g.wish().to_owned()).collect();
    if reports.is_empty() && left.is_empty() && (puzzling.is_empty() || asks_something(turn.said)) {
        return Reply::Say(with_additions(small_talk(turn.said, turn.context, &catalog), turn));
    }
    Reply::Say(with_additions(compose(&reports, &puzzling, &left), turn))
}

/// What the user said while the turn ran comes too late for the plan, and is not passed over in silence.
pub(super) fn with_additions(mut said: Said, turn: &Turn<'_>) -> Said {
    for added in &turn.added {
        let added = shortened(&added.replace('\n', " "), 120);
        said.text.push_str(&format!("\n\nI did not carry out what you added meanwhile (“{added}”): say it again."));
    }
    said
}

/// All goals of the wishes, each with the places of those it waits for.
fn planned<'a>(wishes: &[String], catalog: &'a Catalog) -> Vec<Goal<'a>> {
    let mut all = Vec::new();
    for wish in wishes {
        let offset = all.len();
        all.extend(goals(wish, "", catalog).into_iter().map(|mut goal| {
            goal.waits_for.iter_mut().for_each(|w| *w += offset);
            goal
        }));
    }
    all
}

fn collect() -> (String, Value) {
    ("get_agent_results".to_owned(), json!({}))
}

/// What to ask `get_skill`: the domains of the skills that are known by name, and words where none is.
pub(super) fn questions(wishes: &[String], catalog: &Catalog) -> Vec<(String, Value)> {
    let mut domains = BTreeSet::new();
    let mut searches = Vec::new();
    for clause in wishes.iter().flat_map(|wish| split(wish, catalog)) {
        let text = Text::new(&clause.text);
        let all = 0..text.words.len();
        if guard::answer(&text, catalog).is_some() {
            continue;
        }
        match choose(&text, &all, catalog) {
            Some(choice) => {
                let domain = choice.skill.rsplit_once('.').map_or("prompt", |(domain, _)| domain);
                domains.insert(domain.to_owned());
            }
            None if asks_something(&clause.text) => {}
            None => searches.push(shortened(text.slice(lead(&text.words, &all)..all.end), 80)),
        }
    }
    let by_domain = domains.into_iter().map(|d| json!({"domain": d}));
    let by_search = searches.into_iter().filter(|s| !s.is_empty()).map(|s| json!({"search": s}));
    by_domain.chain(by_search).take(QUESTIONS_MAX).map(|arguments| ("get_skill".to_owned(), arguments)).collect()
}

/// A greeting or a question: conversation, for which no skill need be looked for.
fn asks_something(said: &str) -> bool {
    const TALK: [&str; 26] = [
        "hi",
        "hello",
        "hey",
        "hallo",
        "greetings",
        "thanks",
        "thank",
        "thx",
        "cheers",
        "bye",
        "goodbye",
        "good",
        "are",
        "is",
        "do",
        "does",
        "did",
        "am",
        "was",
        "were",
        "yes",
        "no",
        "ok",
        "okay",
        "continue",
        "lol",
    ];
    let text = Text::new(said);
    let Some(first) = text.words.first() else { return true };
    let start = lead(&text.words, &(0..text.words.len()));
    TALK.contains(&first.lower.as_str())
        || asks(&text.words, start)
        || said.trim_end().ends_with('?')
        || text.words.iter().all(|w| !w.lower.chars().any(char::is_alphabetic))
}

/// How far the agents are.
struct State {
    accepted: BTreeSet<String>,
    refused: BTreeMap<String, String>,
    results: BTreeMap<String, (String, String)>,
    collects: usize,
}

impl State {
    fn read(turn: &Turn<'_>, goals: &[Goal<'_>]) -> Self {
        let mut state = Self {
            accepted: BTreeSet::new(),
            refused: BTreeMap::new(),
            results: BTreeMap::new(),
            collects: turn.fresh_calls().filter(|(call, ..)| call.name == "get_agent_results").count(),
        };
        let ours: BTreeSet<String> = goals.iter().enumerate().map(|(n, g)| agent_id(n, g)).collect();
        for (call, arguments, result) in turn.calls() {
            match call.name.as_str() {
                "dispatch_agent" => {
                    let agent = arguments["agent_id"].as_str().unwrap_or_default().to_owned();
                    if ours.contains(&agent) && !result.starts_with("Error:") {
                        state.accepted.insert(agent);
                    }
                }
                "get_agent_results" => state.read_results(result),
                _ => {}
            }
        }
        for (call, arguments, result) in turn.fresh_calls().filter(|(call, ..)| call.name == "dispatch_agent") {
            if let (Some(agent), Some(why)) = (arguments["agent_id"].as_str(), result.strip_prefix("Error:")) {
                tracing::debug!(agent, tool = call.name, "a dispatch was refused");
                state.refused.insert(agent.to_owned(), why.trim().to_owned());
            }
        }
        state
    }

    fn read_results(&mut self, json: &str) {
        let json: Value = serde_json::from_str(json).unwrap_or(Value::Null);
        for entry in json["agents"].as_array().into_iter().flatten() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            self.results.insert(text("agent_id"), (text("status"), text("result")));
        }
    }

    /// Goals that have no agent yet, and the question for results behind them.
    fn dispatches(&self, goals: &[Goal<'_>]) -> Vec<(String, Value)> {
        let ids: Vec<String> = goals.iter().enumerate().map(|(n, g)| agent_id(n, g)).collect();
        let can = |n: usize| goals[n].skill.is_some() && goals[n].stopped().is_none();
        let mut calls: Vec<(String, Value)> = Vec::new();
        for (n, goal) in goals.iter().enumerate().filter(|(n, _)| can(*n)) {
            if self.accepted.contains(&ids[n]) || self.refused.contains_key(&ids[n]) {
                continue;
            }
            let mut arguments = json!({"agent_id": ids[n], "mission": goal.wish(), "skills": goal.skills()});
            let waits: Vec<&String> = goal.waits_for.iter().filter(|w| can(**w)).map(|w| &ids[*w]).collect();
            if !waits.is_empty() {
                arguments["depends_on"] = json!(waits);
            }
            calls.push(("dispatch_agent".to_owned(), arguments));
        }
        if !calls.is_empty() {
            calls.push(collect());
        }
        calls
    }

    fn reports(&self, goals: &[Goal<'_>]) -> Vec<Report> {
        let report = |n: usize, goal: &Goal<'_>| {
            if let Some(stopped) = goal.stopped() {
                return Some(stopped);
            }
            let of = |came: Came, text: String| {
                Some(Report { wish: goal.wish().to_owned(), origin: goal.origin(), came, text })
            };
            let agent = agent_id(n, goal);
            if let Some(why) = self.refused.get(&agent) {
                return if self.is_left(&agent) { None } else { of(Came::Failed, why.clone()) };
            }
            goal.skill.as_ref()?;
            match self.results.get(&agent).map(|(status, text)| (status.as_str(), text)) {
                Some(("completed", text)) => of(came(text), text.clone()),
                Some(("running", _)) | None => of(Came::Failed, "it is still under way".to_owned()),
                Some((status, text)) if text.is_empty() => of(Came::Failed, format!("the agent ended as {status}")),
                Some((_, text)) if came(text) == Came::Declined => of(Came::Declined, text.clone()),
                Some((_, text)) => of(Came::Failed, text.clone()),
            }
        };
        goals.iter().enumerate().filter_map(|(n, goal)| report(n, goal)).collect()
    }

    /// Whether an agent was refused only for a limit of this turn.
    fn is_left(&self, agent: &str) -> bool {
        self.refused.get(agent).is_some_and(|why| {
            let why = why.to_lowercase();
            ["limit", "not started", "not dispatched"].iter().any(|word| why.contains(word))
        })
    }

    /// Wishes that another turn can go on with.
    fn left(&self, goals: &[Goal<'_>]) -> Vec<String> {
        let left = |(n, goal): &(usize, &Goal<'_>)| self.is_left(&agent_id(*n, goal));
        goals.iter().enumerate().filter(left).map(|(_, g)| g.wish().to_owned()).collect()
    }
}

/// An agent's name: what it does and which wish it is for.
fn agent_id(place: usize, goal: &Goal<'_>) -> String {
    let skill = goal.skill.as_deref().unwrap_or("none");
    let plain: String = skill.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(50).collect();
    format!("{plain}_{}", place + 1)
}
