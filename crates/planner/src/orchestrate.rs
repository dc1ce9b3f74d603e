//! Plans as the orchestrator: queries the skills that the requests need, dispatches an agent for each request with its
//! dependencies, and answers from the results.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    answer::{Answer, Completion, Report, completion, compose, small_talk},
    catalog::Catalog,
    choose::{asks, choose, lead},
    clauses::split,
    execute::Reply,
    goal::{Goal, goals},
    guard,
    text::{Text, shortened},
    turn::Turn,
};

/// How many `get_skill` calls one reply contains at most.
const QUESTIONS_MAX: usize = 6;
/// How many times results are collected at most.
const COLLECTS_MAX: usize = 3;

/// The next reply.
pub(super) fn orchestrate(turn: &Turn<'_>, mut catalog: Catalog) -> Reply {
    let user_requests = &turn.user_requests;
    let mut asked = false;
    for answer in turn.tool_results("get_skill") {
        asked = true;
        catalog.read_answer(answer);
    }
    if !asked {
        let questions = questions(user_requests, &catalog);
        if !questions.is_empty() {
            return Reply::Tools(questions);
        }
    }
    let goals = planned(user_requests, &catalog);
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
    let unrecognised: Vec<String> =
        goals.iter().filter(|g| g.is_unrecognised()).map(|g| g.user_request().to_owned()).collect();
    if reports.is_empty() && left.is_empty() && (unrecognised.is_empty() || asks_something(turn.user_text)) {
        return Reply::Say(with_additions(small_talk(turn.user_text, turn.context, &catalog), turn));
    }
    Reply::Say(with_additions(compose(&reports, &unrecognised, &left), turn))
}

/// Mentions text that the user added while the turn ran, because it comes too late for the plan.
pub(super) fn with_additions(mut answer: Answer, turn: &Turn<'_>) -> Answer {
    for added in &turn.added {
        let added = shortened(&added.replace('\n', " "), 120);
        answer.text.push_str(&format!("\n\nI did not carry out what you added meanwhile (“{added}”): say it again."));
    }
    answer
}

/// All goals of the requests, each with the indices of its dependencies.
fn planned<'a>(user_requests: &[String], catalog: &'a Catalog) -> Vec<Goal<'a>> {
    let mut all = Vec::new();
    for user_request in user_requests {
        let offset = all.len();
        all.extend(goals(user_request, "", catalog).into_iter().map(|mut goal| {
            goal.waits_for.iter_mut().for_each(|w| *w += offset);
            goal
        }));
    }
    all
}

fn collect() -> (String, Value) {
    ("get_agent_results".to_owned(), json!({}))
}

/// The queries for `get_skill`: the domains of the skills that are known by name, and search texts for other clauses.
pub(super) fn questions(user_requests: &[String], catalog: &Catalog) -> Vec<(String, Value)> {
    let mut domains = BTreeSet::new();
    let mut searches = Vec::new();
    for clause in user_requests.iter().flat_map(|user_request| split(user_request, catalog)) {
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

/// Whether a text is a greeting or a question: conversation, for which no skill is searched.
fn asks_something(source: &str) -> bool {
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
    let text = Text::new(source);
    let Some(first) = text.words.first() else { return true };
    let start = lead(&text.words, &(0..text.words.len()));
    TALK.contains(&first.lower.as_str())
        || asks(&text.words, start)
        || source.trim_end().ends_with('?')
        || text.words.iter().all(|w| !w.lower.chars().any(char::is_alphabetic))
}

/// The progress of the agents.
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
                tracing::debug!(agent, tool = call.name, "dispatch refused");
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

    /// Dispatches for goals that have no agent yet, followed by the call that collects results.
    fn dispatches(&self, goals: &[Goal<'_>]) -> Vec<(String, Value)> {
        let ids: Vec<String> = goals.iter().enumerate().map(|(n, g)| agent_id(n, g)).collect();
        let can = |n: usize| goals[n].skill.is_some() && goals[n].stopped().is_none();
        let mut calls: Vec<(String, Value)> = Vec::new();
        for (n, goal) in goals.iter().enumerate().filter(|(n, _)| can(*n)) {
            if self.accepted.contains(&ids[n]) || self.refused.contains_key(&ids[n]) {
                continue;
            }
            let mut arguments = json!({"agent_id": ids[n], "mission": goal.user_request(), "skills": goal.skills()});
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
            let of = |completion: Completion, text: String| {
                Some(Report { user_request: goal.user_request().to_owned(), origin: goal.origin(), completion, text })
            };
            let agent = agent_id(n, goal);
            if let Some(why) = self.refused.get(&agent) {
                return if self.is_left(&agent) { None } else { of(Completion::Failed, why.clone()) };
            }
            goal.skill.as_ref()?;
            match self.results.get(&agent).map(|(status, text)| (status.as_str(), text)) {
                Some(("completed", text)) => of(completion(text), text.clone()),
                Some(("running", _)) | None => of(Completion::Failed, "it is still under way".to_owned()),
                Some((status, text)) if text.is_empty() => {
                    of(Completion::Failed, format!("the agent ended as {status}"))
                }
                Some((_, text)) if completion(text) == Completion::Declined => of(Completion::Declined, text.clone()),
                Some((_, text)) => of(Completion::Failed, text.clone()),
            }
        };
        goals.iter().enumerate().filter_map(|(n, goal)| report(n, goal)).collect()
    }

    /// Whether an agent was refused only because of a limit of this turn.
    fn is_left(&self, agent: &str) -> bool {
        self.refused.get(agent).is_some_and(|why| {
            let why = why.to_lowercase();
            ["limit", "not started", "not dispatched"].iter().any(|word| why.contains(word))
        })
    }

    /// Requests that another turn can continue.
    fn left(&self, goals: &[Goal<'_>]) -> Vec<String> {
        let left = |(n, goal): &(usize, &Goal<'_>)| self.is_left(&agent_id(*n, goal));
        goals.iter().enumerate().filter(left).map(|(_, g)| g.user_request().to_owned()).collect()
    }
}

/// An agent's id: the skill and the position of the request.
fn agent_id(position: usize, goal: &Goal<'_>) -> String {
    let skill = goal.skill.as_deref().unwrap_or("none");
    let plain: String = skill.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(50).collect();
    format!("{plain}_{}", position + 1)
}
