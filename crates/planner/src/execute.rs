//! Runs skills: as a sub-agent with commands or the scoped tool, or as the only agent in `single_loop` and `direct` mode.
//! Every round starts from scratch: the goals receive the results so far, and the calls that they request next are the
//! reply.

use annie_core::{
    command::quote,
    context::{framed, unescape},
    message::{Message, ToolCall},
};
use serde_json::{Map, Value, json};

use super::{
    answer::{Answer, Completion, compose, small_talk},
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
    /// One tool for each skill.
    Direct,
}

/// The content of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// Text only.
    Say(Answer),
    /// Tool calls: name and arguments.
    Tools(Vec<(String, Value)>),
}

/// The kernel's note that no calls are left.
const REPORT_NOW: &str = "tool calls are used. Report now";

/// A sub-agent's next reply.
pub(super) fn sub_agent(turn: &Turn<'_>, interface: Interface, catalog: &Catalog) -> Reply {
    let brief = Brief::read(turn.user_text);
    let goals = goals(brief.mission, &brief.results, catalog);
    if goals.iter().all(Goal::is_unrecognised) {
        let text = "I could not find out which of my skills the mission wants.".to_owned();
        return Reply::Say(Answer { text, is_declined: true });
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
        let wanted = questions(&turn.user_requests, &catalog);
        if !asked && !wanted.is_empty() {
            return Reply::Tools(wanted);
        }
    }
    let goals: Vec<Goal<'_>> =
        turn.user_requests.iter().flat_map(|user_request| goals(user_request, "", &catalog)).collect();
    if goals.iter().all(Goal::is_unrecognised) {
        return Reply::Say(with_additions(small_talk(turn.user_text, turn.context, &catalog), turn));
    }
    advance(goals, turn, interface, &catalog)
}

/// Passes the results of each recorded round to the goals, and returns the calls of the next round.
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
        for (position, (n, _)) in wanted.iter().enumerate() {
            goals[*n].take(results.get(position).map_or("Error: there was no result.", |r| r.as_str()));
        }
    }
    let reports: Vec<_> = goals.iter().filter(|g| !g.is_unrecognised()).map(Goal::report).collect();
    let unrecognised: Vec<String> =
        goals.iter().filter(|g| g.is_unrecognised()).map(|g| g.user_request().to_owned()).collect();
    // The orchestrator combines a sub-agent's report with others, so a single success is passed on unchanged.
    match reports.as_slice() {
        [only] if only.completion != Completion::Failed && unrecognised.is_empty() && turn.is_mission => {
            Reply::Say(Answer { text: only.text.clone(), is_declined: only.completion == Completion::Declined })
        }
        _ => Reply::Say(with_additions(compose(&reports, &unrecognised, &[]), turn)),
    }
}

fn write(calls: &[Call], interface: Interface, catalog: &Catalog) -> Reply {
    if interface == Interface::Cmd {
        let lines: Vec<String> = calls.iter().map(command_line).collect();
        return Reply::Say(Answer { text: format!("```cmd\n{}\n```", lines.join("\n")), is_declined: false });
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

/// Writes a call in the kernel's command grammar.
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
    /// Reads `MISSION: …`, `Additional context:`, and the reports of the agents that this one depends on.
    fn read(message: &'a str) -> Self {
        let message = message.strip_prefix("MISSION: ").unwrap_or(message);
        let context = message.find("\n\nAdditional context:\n");
        let results = message.find("\n\n<report");
        let end = [context, results].into_iter().flatten().min().unwrap_or(message.len());
        let given = results.map(|at| &message[at..]).unwrap_or_default();
        let texts: Vec<String> = framed(given, "report")
            .into_iter()
            .map(|report| report.text.trim().to_owned())
            .filter(|text| !text.is_empty())
            .collect();
        Self { mission: message[..end].trim(), results: texts.join("\n\n") }
    }
}

/// The calls of one recorded round and their results.
pub(super) enum Round<'a> {
    /// One message with the results of all commands.
    Commands(&'a str),
    /// Tool calls with their results.
    Tools(Vec<(&'a ToolCall, &'a str)>),
}

impl Round<'_> {
    /// The results, in the order of the calls.
    fn results(&self) -> Vec<String> {
        match self {
            Self::Commands(text) => framed(text, "result").into_iter().map(|result| result.text.into_owned()).collect(),
            Self::Tools(pairs) => pairs.iter().map(|(_, text)| unescape(text).into_owned()).collect(),
        }
    }
}
