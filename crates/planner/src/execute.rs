//! Runs skills itself: as a sub-agent with commands or the scoped tool, or as the whole agent in `single_loop` and
//! `direct` mode. Every round is computed anew: the goals are fed the results so far, and what they want next is the
//! reply.

use annie_core::{
    command::quote,
    context::{framed, unescape},
    message::{Message, ToolCall},
};
use serde_json::{Map, Value, json};

use super::{
    answer::{Came, Said, compose, small_talk},
    catalog::Catalog,
    fill::Call,
    goal::{Goal, goals},
    orchestrate::{questions, with_additions},
    turn::Turn,
};

/// How skills are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    /// Commands in fenced blocks.
    Cmd,
    /// The tool `use_skill`.
    UseSkill,
    /// A tool for each skill.
    Direct,
}

/// What a reply holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// Text alone.
    Say(Said),
    /// Tool calls: name and arguments.
    Tools(Vec<(String, Value)>),
}

/// The kernel's word that no call is left.
const REPORT_NOW: &str = "tool calls are used. Report now";

/// A sub-agent's next reply.
pub(super) fn sub_agent(turn: &Turn<'_>, interface: Interface, catalog: &Catalog) -> Reply {
    let brief = Brief::read(turn.said);
    let goals = goals(brief.mission, &brief.results, catalog);
    if goals.iter().all(Goal::is_puzzling) {
        let text = "I could not find out which of my skills the mission wants.".to_owned();
        return Reply::Say(Said { text, is_declined: true });
    }
    advance(goals, turn, interface, catalog)
}

/// The next reply in `single_loop` and `direct` mode.
pub(super) fn alone(turn: &Turn<'_>, interface: Interface, mut catalog: Catalog) -> Reply {
    if interface == Interface::UseSkill {
        let mut asked = false;
        for answer in turn.tool_results("get_skill") {
            asked = true;
            catalog.read_answer(answer);
        }
        let wanted = questions(&turn.wishes, &catalog);
        if !asked && !wanted.is_empty() {
            return Reply::Tools(wanted);
        }
    }
    let goals: Vec<Goal<'_>> = turn.wishes.iter().flat_map(|wish| goals(wish, "", &catalog)).collect();
    if goals.iter().all(Goal::is_puzzling) {
        return Reply::Say(with_additions(small_talk(turn.said, turn.context, &catalog), turn));
    }
    advance(goals, turn, interface, &catalog)
}

/// Feeds the goals the results of each round and gives the calls of the next.
fn advance(mut goals: Vec<Goal<'_>>, turn: &Turn<'_>, interface: Interface, catalog: &Catalog) -> Reply {
    let mut rounds = turn.rounds(interface);
    loop {
        let wanted: Vec<(usize, Call)> = (0..goals.len())
            .filter(|n| goals[*n].waits_for.iter().all(|w| goals[*w].is_done()))
            .filter_map(|n| goals[n].next().map(|call| (n, call)))
            .collect();
        if wanted.is_empty() {
            break;
        }
        let Some(round) = rounds.next() else {
            let calls: Vec<Call> = wanted.into_iter().map(|(_, call)| call).collect();
            if turn.trail.last().is_some_and(|m| matches!(m, Message::Note { text } if text.contains(REPORT_NOW))) {
                break;
            }
            return write(&calls, interface, catalog);
        };
        let results = round.results();
        for (place, (n, _)) in wanted.iter().enumerate() {
            goals[*n].take(results.get(place).map_or("Error: there was no result.", |r| r.as_str()));
        }
    }
    let reports: Vec<_> = goals.iter().filter(|g| !g.is_puzzling()).map(Goal::report).collect();
    let puzzling: Vec<String> = goals.iter().filter(|g| g.is_puzzling()).map(|g| g.wish().to_owned()).collect();
    // A sub-agent's report is put together with others by the orchestrator: a plain success is passed on as it is.
    match reports.as_slice() {
        [only] if only.came != Came::Failed && puzzling.is_empty() && turn.is_mission => {
            Reply::Say(Said { text: only.text.clone(), is_declined: only.came == Came::Declined })
        }
        _ => Reply::Say(with_additions(compose(&reports, &puzzling, &[]), turn)),
    }
}

fn write(calls: &[Call], interface: Interface, catalog: &Catalog) -> Reply {
    if interface == Interface::Cmd {
        let lines: Vec<String> = calls.iter().map(command_line).collect();
        return Reply::Say(Said { text: format!("```cmd\n{}\n```", lines.join("\n")), is_declined: false });
    }
    let object = |call: &Call| Value::Object(call.args.iter().cloned().collect::<Map<String, Value>>());
    Reply::Tools(
        calls
            .iter()
            .map(|call| match interface {
                Interface::Direct => {
                    let tool = catalog.get(&call.skill).and_then(|s| s.tool.clone());
                    (tool.unwrap_or_else(|| call.skill.clone()), object(call))
                }
                _ => ("use_skill".to_owned(), json!({"skill": call.skill, "arguments": object(call)})),
            })
            .collect(),
    )
}

/// A call as the kernel's command grammar reads it back.
pub(super) fn command_line(call: &Call) -> String {
    let mut line = call.skill.clone();
    for (flag, value) in &call.args {
        let text = match value {
            Value::Bool(true) => {
                line.push_str(&format!(" --{flag}"));
                continue;
            }
            Value::String(text) => text.clone(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            other => other.to_string(),
        };
        line.push_str(&format!(" --{flag} {}", quote(&text)));
    }
    line
}

/// A sub-agent's first message.
struct Brief<'a> {
    mission: &'a str,
    results: String,
}

impl<'a> Brief<'a> {
    /// Reads `MISSION: …`, `Additional context:`, and the reports of the agents that it waited for.
    fn read(said: &'a str) -> Self {
        let said = said.strip_prefix("MISSION: ").unwrap_or(said);
        let context = said.find("\n\nAdditional context:\n");
        let results = said.find("\n\n<report");
        let end = [context, results].into_iter().flatten().min().unwrap_or(said.len());
        let given = results.map(|at| &said[at..]).unwrap_or_default();
        let texts: Vec<String> = framed(given, "report")
            .into_iter()
            .map(|report| report.text.trim().to_owned())
            .filter(|text| !text.is_empty())
            .collect();
        Self { mission: said[..end].trim(), results: texts.join("\n\n") }
    }
}

/// The calls of one recorded round and their results.
pub(super) enum Round<'a> {
    /// One message with all results of commands.
    Commands(&'a str),
    /// Tool calls and what came back.
    Tools(Vec<(&'a ToolCall, &'a str)>),
}

impl Round<'_> {
    /// The results in the order of the calls that were made.
    fn results(&self) -> Vec<String> {
        match self {
            Self::Commands(text) => framed(text, "result").into_iter().map(|result| result.text.into_owned()).collect(),
            Self::Tools(pairs) => pairs.iter().map(|(_, text)| unescape(text).into_owned()).collect(),
        }
    }
}
